//! What of the network decides about a result: what a resumed run must have in common with the first.

use haloflow_engine_torch::{TorchDevice, TorchOptions};
use haloflow_model::{Model, ModelError, Sha256, sha256_of_file};
use haloflow_pipeline::recipe::Recipe;

use crate::args::RunArgs;

/// The network as part of the recipe: its files, and how they are run.
pub(crate) fn recipe(args: &RunArgs, model: &Model, engines: &[TorchOptions]) -> Result<Recipe, ModelError> {
    let mut named = vec![("model", sum(model)?)];
    if let Some(engine) = engines.first() {
        let device = if engine.device == TorchDevice::Cpu { "cpu" } else { "cuda" };
        named.extend([
            ("devices", device.to_owned()),
            ("kind", engine.kind.to_string()),
            ("tf32", engine.tf32.to_string()),
            ("cudnn-benchmark", engine.cudnn_benchmark.to_string()),
        ]);
    }
    let compile = args.compile.as_deref().unwrap_or("false");
    named.push(("compile", (compile != "false").to_string()));
    if compile != "false" {
        named.push(("compile-mode", args.compile_mode.clone().unwrap_or_else(|| "default".into())));
    }
    Ok(named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The sum of the files that the network is in: the module if there is one, since all other forms are made of it.
fn sum(model: &Model) -> Result<String, ModelError> {
    let files = model.module.iter().chain(&model.program).take(1);
    let files: Vec<_> =
        files.chain((model.module.is_none() && model.program.is_none()).then_some(&model.path)).collect();
    let mut sum = Sha256::default();
    for file in files {
        sum = sum.with(sha256_of_file(file)?);
    }
    Ok(sum.finish())
}
