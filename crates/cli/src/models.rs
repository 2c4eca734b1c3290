//! The model of a run: opened, or exported first where weights were named.

use std::path::{Path, PathBuf};

use haloflow_model::zoo::VoxelStep as ZooStep;
use haloflow_model::{Cache, ExportRequest, Model, ModelError, Python, exported};
use haloflow_pipeline::after::VoxelStep;

use crate::args::RunArgs;
use crate::model_args::Places;

/// A model, and where things are that making more of it needs.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) places: Found,
}

/// The cache, and where Python is looked for.
pub(crate) struct Found {
    pub(crate) cache: Cache,
    python: Option<PathBuf>,
    user_cache: PathBuf,
}

impl Found {
    /// Reads the environment.
    pub(crate) fn new(places: &Places) -> Result<Self, ModelError> {
        let cache = Cache::new(places.cache.as_deref(), |name| std::env::var_os(name))?;
        // The set-up's Python stays in the user's cache, wherever what is made goes.
        let user_cache = Cache::new(None, |name| std::env::var_os(name))
            .map_or_else(|_| PathBuf::new(), |user| user.folder().to_owned());
        Ok(Self { cache, python: places.python.clone(), user_cache })
    }

    /// The interpreter.
    pub(crate) fn python(&self) -> Result<Python, ModelError> {
        let python = Python::find(self.python.as_deref(), &self.user_cache)?;
        // If the system does not tell where this program is, Python tries by itself.
        Ok(match std::env::current_exe() {
            Ok(program) => python.tried_by(program),
            Err(_) => python,
        })
    }
}

/// Opens the model of a run; `None` if none is named.
pub(crate) fn open(args: &RunArgs) -> Result<Option<Opened>, ModelError> {
    let Some(path) = &args.model else { return Ok(None) };
    let places = Found::new(&Places { python: args.python.clone(), cache: args.cache.clone() })?;
    let path = match &args.model_type {
        Some(model_type) if needs_architecture(path)? => exported_from(args, model_type, path, &places)?,
        _ => path.clone(),
    };
    Ok(Some(Opened { model: Model::open(&path, &places.cache)?, places }))
}

/// Whether the model has to be exported first, which takes a minute where it was never done.
pub(crate) fn must_export(args: &RunArgs) -> bool {
    let weights = args.model.as_deref().filter(|_| args.model_type.is_some());
    weights.is_some_and(|weights| Model::is_checkpoint(weights).unwrap_or(false))
}

/// A module carries its own architecture, also where a name is typed along with it.
fn needs_architecture(path: &Path) -> Result<bool, ModelError> {
    if path.exists() {
        return Model::is_checkpoint(path);
    }
    Err(ModelError::data(format!("the model {} does not exist", path.display())))
}

fn exported_from(args: &RunArgs, model_type: &str, weights: &Path, places: &Found) -> Result<PathBuf, ModelError> {
    let patch = match args.patch.as_deref() {
        None => [64; 3],
        Some(&[all]) => [all; 3],
        Some(&[z, y, x]) => [z, y, x],
        Some(_) => return Err(ModelError::usage("`patch` has neither one value nor three")),
    };
    let libtorch = haloflow_engine_torch::libtorch_version();
    let channels_in = args.c.as_ref().map_or(1, |channels| channels.len().max(1));
    let registry = args.registry.as_deref();
    let request = ExportRequest { model_type, weights, patch, channels_in, registry, libtorch: &libtorch };
    exported(&request, &places.cache, &|| places.python(), &mut |line| tracing::debug!("python: {line}"))
}

/// The steps after the network that a model zoo's description names.
pub(crate) fn after(model: &Model) -> Vec<VoxelStep> {
    let steps = model.zoo.iter().flat_map(|zoo| &zoo.after);
    let steps = steps.map(|step| match *step {
        ZooStep::Linear { gain, offset } => VoxelStep::Linear { gain, offset },
        ZooStep::Sigmoid => VoxelStep::Sigmoid,
        ZooStep::Clip { low, high } => VoxelStep::Clip { low, high },
        ZooStep::Binarize { threshold } => VoxelStep::Binarize { threshold },
    });
    steps.collect()
}
