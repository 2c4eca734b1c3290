//! Which form of a model runs: the compiled one where it loads and gets through its warm-up, else the TorchScript module.

use std::path::PathBuf;

use haloflow_engine::EngineErrorKind;
use tch::Device;

use crate::cause::Cause;
use crate::model::Model;
use crate::options::TorchOptions;

/// The compiled form of a model, which is tried before the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledForm {
    /// An AOTInductor package made for the options' device, batch, patch and kind; or a sentence on why there is none.
    pub package: Result<PathBuf, String>,
    /// Whether the engine fails where this form does, instead of running the module.
    pub required: bool,
}

/// A model that has run one batch.
#[derive(Debug)]
pub(crate) struct Ready<M, W> {
    pub(crate) model: M,
    /// What the warm-up found out.
    pub(crate) warm: W,
    /// Why it is not the compiled form, where that was asked for.
    pub(crate) not_compiled: Option<String>,
}

/// Loads a model and warms it up: the compiled form if there is one and it works, else the module, with one warning.
pub(crate) fn ready<W>(
    options: &TorchOptions,
    device: Device,
    warm_up: impl Fn(&Model) -> Result<W, Cause>,
) -> Result<Ready<Model, W>, Cause> {
    let compiled = |package: PathBuf| {
        let model = Model::compiled(&package, device)?;
        warm_up(&model).map(|warm| (model, warm))
    };
    let module = || {
        let model = Model::load(&options.model, device, options.kind)?;
        warm_up(&model).map(|warm| (model, warm))
    };
    let name = options.device.to_string();
    either(options.compiled.as_ref(), &name, compiled, module)
}

fn either<M, W>(
    form: Option<&CompiledForm>,
    device: &str,
    compiled: impl FnOnce(PathBuf) -> Result<(M, W), Cause>,
    module: impl FnOnce() -> Result<(M, W), Cause>,
) -> Result<Ready<M, W>, Cause> {
    let not_compiled = match form {
        None => None,
        Some(CompiledForm { package, required }) => {
            let found = package.clone().map_err(|why| Cause::new(EngineErrorKind::Load, why));
            match found.and_then(compiled) {
                Ok((model, warm)) => return Ok(Ready { model, warm, not_compiled: None }),
                Err(cause) if cause.kind == EngineErrorKind::DeviceLost => return Err(cause),
                Err(cause) if *required => {
                    let message = format!("the compiled model is required and cannot run: {}", cause.message);
                    return Err(Cause::new(EngineErrorKind::Load, message));
                }
                Err(cause) => Some(cause.message),
            }
        }
    };
    if let Some(why) = &not_compiled {
        tracing::warn!("{device} runs the TorchScript module, not a compiled one: {why}");
    }
    module().map(|(model, warm)| Ready { model, warm, not_compiled })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(message: &str, kind: EngineErrorKind) -> Result<(&'static str, ()), Cause> {
        Err(Cause::new(kind, message))
    }

    fn form(required: bool) -> CompiledForm {
        CompiledForm { package: Ok("a.pt2".into()), required }
    }

    #[test]
    fn the_compiled_form_comes_first() {
        let ready = either(Some(&form(false)), "cpu", |_| Ok(("compiled", ())), || panic!("not asked for")).unwrap();
        assert_eq!((ready.model, ready.not_compiled), ("compiled", None));
        let ready = either(None, "cpu", |_| panic!("not asked for"), || Ok(("module", ()))).unwrap();
        assert_eq!((ready.model, ready.not_compiled), ("module", None));
    }

    #[test]
    fn the_module_runs_where_the_compiled_form_does_not_and_says_why() {
        let ready = either(
            Some(&form(false)),
            "cpu",
            |_| failed("no room", EngineErrorKind::OutOfMemory),
            || Ok(("module", ())),
        );
        assert_eq!(ready.unwrap().not_compiled.as_deref(), Some("no room"));
        let none = CompiledForm { package: Err("no compiler".into()), required: false };
        let ready = either(Some(&none), "cpu", |_| panic!("there is none"), || Ok(("module", ()))).unwrap();
        assert_eq!((ready.model, ready.not_compiled.as_deref()), ("module", Some("no compiler")));
    }

    #[test]
    fn what_is_required_is_not_replaced_and_neither_is_a_lost_device() {
        let run = |required, kind| {
            either(Some(&form(required)), "cpu", |_| failed("bad", kind), || Ok(("module", ()))).unwrap_err()
        };
        let cause = run(true, EngineErrorKind::Run);
        assert_eq!(cause.kind, EngineErrorKind::Load);
        assert_eq!(cause.message, "the compiled model is required and cannot run: bad");
        assert_eq!(run(false, EngineErrorKind::DeviceLost).kind, EngineErrorKind::DeviceLost);
    }
}
