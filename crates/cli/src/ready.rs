//! From what was typed to a run that can begin: checks first, then what takes long or needs Python.
//!
//! Model opened, input and outputs checked, batch found, model compiled for it. Weights are exported before the model can be opened,
//! so that for them the input and the outputs are checked once more, before that.

use std::time::Duration;

use haloflow_engine_torch::{TorchOptions, fitting_batch};
use haloflow_model::ModelError;
use haloflow_pipeline::{Fault, Part, Stage};
use haloflow_volume::Environment;
use haloflow_volume::carried::carried_over;
use tokio_util::sync::CancellationToken;

use crate::args::RunArgs;
use crate::machine::Machine;
use crate::models::Opened;
use crate::settings::{Settings, idle, settings};
use crate::{compile, exit, model_defaults, models, network, part};

/// How long a stopped search for a batch may take to end.
const PROBE_GRACE: Duration = Duration::from_secs(10);

/// What stops a run before it begins.
#[derive(Debug)]
pub(crate) enum Stop {
    /// What was typed, or the model, cannot be used: sentences, and an exit code.
    Refused(Vec<String>, u8),
    /// What a run may end with too.
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Makes everything ready for a run; nothing of Python is needed once this is done. For one that is only to be explained the model
/// is enough.
///
/// # Errors
/// What is wrong, or that `cancel` was cancelled.
pub(crate) async fn ready(args: RunArgs, cancel: &CancellationToken) -> Result<(RunArgs, Settings), Stop> {
    let machine = Machine::here();
    // The model may change a default, so what these settings are refused for may yet work; what they name has to be there.
    if models::must_export(&args)
        && let Ok(early) = asked(&args, &machine)
    {
        check(&early, cancel).await?;
    }
    let (args, mut settings, opened) = blocking(cancel, move || settle(args, &machine)).await??;
    if settings.explain {
        return Ok((args, settings));
    }
    for sentence in idle(&args, &settings) {
        tracing::warn!("{sentence}");
    }
    // The run checks the same; opening a large volume twice is worth it only where minutes are at stake.
    if settings.find_batch || compile::is_wanted(&args, &opened.model) {
        check(&settings, cancel).await?;
    }
    find_batch(&mut settings, cancel).await?;
    let (typed, mut engines) = (args.clone(), settings.engines);
    let compiled = blocking(cancel, move || compile::attach(&typed, &opened, &mut engines).map(|()| engines)).await?;
    settings.engines =
        compiled.map_err(|error| Fault::new(exit::fault_kind(error.kind), Stage::Open, error.message))?;
    Ok((args, settings))
}

/// The settings of a run and its model, exported if it has to be.
fn settle(mut args: RunArgs, machine: &Machine) -> Result<(RunArgs, Settings, Opened), Stop> {
    let usage = |sentences: Vec<String>| Stop::Refused(sentences, exit::USAGE);
    let unusable = |error: ModelError| Stop::Refused(vec![error.message], exit::model_code(error.kind));
    let Some(opened) = models::open(&args).map_err(unusable)? else {
        // Without a model: tells what else is missing.
        return Err(usage(asked(&args, machine).err().unwrap_or_default()));
    };
    let warnings = model_defaults::fill(&mut args, &opened.model).map_err(|sentence| usage(vec![sentence]))?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let mut settings = asked(&args, machine).map_err(usage)?;
    if let Some(sentence) = compile::problem(&args, &opened.model) {
        return Err(usage(vec![sentence]));
    }
    settings.run.values.after = models::after(&opened.model);
    let file = opened.model.module.as_ref().unwrap_or(&opened.model.path);
    settings.engines.iter_mut().for_each(|engine| engine.model.clone_from(file));
    settings.run.network = network::recipe(&args, &opened.model, &settings.engines).map_err(unusable)?;
    Ok((args, settings, opened))
}

/// Checks a job of the daemon before it is queued: everything that can be checked without its data, and how many bytes of memory it
/// takes. The model is opened for what it wishes only if `look_at_model`, and not if Python would have to make it first. Blocks.
///
/// # Errors
/// One sentence per key that cannot work.
pub(crate) fn checked(mut args: RunArgs, machine: &Machine, look_at_model: bool) -> Result<u64, Vec<String>> {
    if look_at_model && !models::must_export(&args) {
        let opened = models::open(&args).map_err(|error| vec![error.message])?;
        if let Some(opened) = opened {
            model_defaults::fill(&mut args, &opened.model).map_err(|sentence| vec![sentence])?;
            if let Some(sentence) = compile::problem(&args, &opened.model) {
                return Err(vec![sentence]);
            }
        }
    }
    asked(&args, machine).map(|settings| settings.run.resources.memory)
}

/// The settings as typed, and the part of the volume that they or an array engine name.
fn asked(args: &RunArgs, machine: &Machine) -> Result<Settings, Vec<String>> {
    let part = part::part(part::typed(args), |name| std::env::var(name).ok());
    let part = part.and_then(|part| match (part, args.overwrite) {
        (Part::Shard { .. }, Some(true)) => Err(
            "`overwrite` and `part` contradict each other: every part would delete what the others have written; delete the output \
             once, before the first part begins"
                .to_owned(),
        ),
        (part, _) => Ok(part),
    });
    match (settings(args, machine), part) {
        (Ok(mut settings), Ok(part)) => {
            settings.run.part = part;
            Ok(settings)
        }
        (settings, part) => Err(settings.err().into_iter().flatten().chain(part.err()).collect()),
    }
}

/// Checks what a run will check, for whoever does something expensive before it.
async fn check(settings: &Settings, cancel: &CancellationToken) -> Result<(), Fault> {
    let environment = Environment::with_network(std::env::vars(), settings.network);
    let checking = haloflow_pipeline::check(&settings.run, &environment);
    cancel.run_until_cancelled(checking).await.unwrap_or_else(|| Err(Fault::interrupted()))
}

/// Does `work`, which may wait for Python, on a thread of its own. When the run is cancelled nobody waits for it any more; Python
/// ends with this process.
async fn blocking<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    let done = cancel.run_until_cancelled(tokio::task::spawn_blocking(carried_over(work))).await;
    done.ok_or_else(Fault::interrupted)?.map_err(|error| Fault::panicked(Stage::Open, &error))
}

/// Settles the batch if it is to be found: the least of what fits on each device, since all run the same.
async fn find_batch(settings: &mut Settings, cancel: &CancellationToken) -> Result<(), Fault> {
    if !settings.find_batch {
        return Ok(());
    }
    let (engines, stop) = (settings.engines.clone(), cancel.clone());
    // Each on a thread that ends, one after the other: whoever looks for a batch takes a device for itself.
    let looking = tokio::task::spawn_blocking(carried_over(move || {
        let fits = |options: TorchOptions| std::thread::spawn(carried_over(move || fitting_batch(&options))).join();
        engines.into_iter().take_while(|_| !stop.is_cancelled()).map(fits).collect::<Vec<_>>()
    }));
    let mut looking = looking;
    let found = cancel.run_until_cancelled(&mut looking).await;
    let Some(found) = found.filter(|_| !cancel.is_cancelled()) else {
        // The device that is looked at now is let go if it takes no longer than this.
        drop(tokio::time::timeout(PROBE_GRACE, looking).await);
        return Err(Fault::interrupted());
    };
    let ended = |why: String| Fault::defect(Stage::Device, &format!("the search for a batch ended: {why}"));
    let found = found.map_err(|error| ended(error.to_string()))?;
    let mut least = usize::MAX;
    for found in found {
        let fits = found.map_err(|_| ended("it panicked".into()))?;
        least = least.min(fits.map_err(|error| Fault::engine(&error))?);
    }
    tracing::info!("`batch` is auto: {least} patches fit");
    settings.run.resources.batch = least;
    settings.engines.iter_mut().for_each(|options| options.batch = least);
    Ok(())
}
