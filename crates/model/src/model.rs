//! What was named as a model, and what can run of it.

use std::path::{Path, PathBuf};

use crate::archive::{self, Content};
use crate::bundle::{Bundle, FACTS, MODULE, PROGRAM};
use crate::cache::Cache;
use crate::checksum::{self, sha256_of_file};
use crate::error::ModelError;
use crate::facts::ModelFacts;
use crate::package::Package;
use crate::zoo::{self, Zoo};

/// What a user named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A folder with `model.toml`, or a zip of one.
    Bundle,
    /// A TorchScript module.
    Module,
    /// An AOTInductor package.
    Package,
    /// A program of `torch.export`.
    Program,
    /// A BioImage.IO folder with TorchScript weights.
    Zoo,
}

impl Form {
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Module => "TorchScript module",
            Self::Package => "AOTInductor package",
            Self::Program => "exported program",
            Self::Zoo => "BioImage.IO model",
        }
    }
}

/// A model whose files are what they should be.
#[derive(Clone, Debug)]
pub struct Model {
    /// What was named.
    pub path: PathBuf,
    /// What it is.
    pub form: Form,
    /// What is known of it.
    pub facts: ModelFacts,
    /// The folder that Python compiles from, if there is one.
    pub folder: Option<PathBuf>,
    /// The TorchScript module, if there is one.
    pub module: Option<PathBuf>,
    /// The exported program, if there is one.
    pub program: Option<PathBuf>,
    /// Compiled packages that came with it.
    pub packages: Vec<Package>,
    /// What a model zoo's description asks for.
    pub zoo: Option<Zoo>,
}

impl Model {
    /// Opens what `path` names. The cache serves archives, which are unpacked into it.
    ///
    /// # Errors
    /// A sentence that names the file: it is missing, is no model, was changed, or needs what is not supported.
    pub fn open(path: &Path, cache: &Cache) -> Result<Self, ModelError> {
        if !path.exists() {
            return Err(ModelError::data(format!("the model {} does not exist", path.display())));
        }
        if path.is_dir() {
            return Self::of_folder(path, path);
        }
        match archive::content(path)? {
            Content::Folder => Self::of_folder(&archive::unpacked(path, cache)?, path),
            Content::Package => Self::of_package(path),
            Content::Program => Self::of_program(path, cache),
            Content::Checkpoint => Err(ModelError::data(format!(
                "{} holds weights and no code: name its architecture with `--model-type`, or export it with `haloflow model export`",
                path.display()
            ))),
            // A module of an old format is no archive that can be looked into: libtorch has the last word.
            Content::TorchScript | Content::Unknown => {
                Ok(Self { module: Some(path.to_owned()), ..Self::empty(path, Form::Module, ModelFacts::of_file(path)) })
            }
        }
    }

    /// What tells these weights from others: the sum of the bundle's module.
    #[must_use]
    pub fn weights(&self) -> Option<&str> {
        self.facts.files.get(MODULE).map(String::as_str)
    }

    /// Whether the file at `path` holds weights without code, so that an architecture must be named for it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn is_checkpoint(path: &Path) -> Result<bool, ModelError> {
        if path.is_dir() {
            return Ok(false);
        }
        // Checkpoints of an old format are plain pickles, no archives.
        Ok(matches!(archive::content(path)?, Content::Checkpoint | Content::Unknown))
    }

    fn empty(path: &Path, form: Form, facts: ModelFacts) -> Self {
        let path = path.to_owned();
        Self { path, form, facts, folder: None, module: None, program: None, packages: Vec::new(), zoo: None }
    }

    fn of_folder(folder: &Path, named: &Path) -> Result<Self, ModelError> {
        if folder.join(FACTS).is_file() {
            let Bundle { folder, facts, module, program, packages } = Bundle::open(folder)?;
            let empty = Self::empty(named, Form::Bundle, facts);
            return Ok(Self { folder: Some(folder), module, program, packages, ..empty });
        }
        let Some(description) = zoo::description(folder) else {
            let message = format!("{} is no model: it holds neither {FACTS} nor rdf.yaml", named.display());
            return Err(ModelError::data(message));
        };
        let zoo = Zoo::open(&description)?;
        if let Some(sum) = &zoo.sha256 {
            checksum::check(&zoo.module, sum)?;
        }
        let empty = Self::empty(named, Form::Zoo, zoo.facts.clone());
        Ok(Self { module: Some(zoo.module.clone()), zoo: Some(zoo), ..empty })
    }

    fn of_package(path: &Path) -> Result<Self, ModelError> {
        let packages = Package::beside(path)?.into_iter().collect();
        Ok(Self { packages, ..Self::empty(path, Form::Package, ModelFacts::of_file(path)) })
    }

    /// Python compiles from bundles, so one is made of the file.
    fn of_program(path: &Path, cache: &Cache) -> Result<Self, ModelError> {
        let sum = sha256_of_file(path)?;
        let files = [(PROGRAM.to_owned(), sum.clone())].into();
        let facts = ModelFacts { files, ..ModelFacts::of_file(path) };
        let folder = cache.entry("programs", &sum[..32], |folder| {
            let told = |error: &dyn std::fmt::Display| ModelError::file(path, "copied", error);
            let text = toml::to_string(&facts).map_err(|error| told(&error))?;
            std::fs::copy(path, folder.join(PROGRAM)).map_err(|error| told(&error))?;
            std::fs::write(folder.join(FACTS), text).map_err(|error| told(&error))
        })?;
        let program = Some(folder.join(PROGRAM));
        Ok(Self { program, folder: Some(folder), ..Self::empty(path, Form::Program, facts) })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::bundle::tests::bundle;

    fn zip(path: &Path, files: &[(&str, &[u8])]) {
        let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
        for (name, bytes) in files {
            zip.start_file(*name, zip::write::FileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    #[test]
    fn each_form_is_told_by_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let cache = Cache::new(Some(&at("cache")), |_| None).unwrap();
        let form = |name: &str| Model::open(&at(name), &cache).map(|model| model.form);
        std::fs::create_dir(at("bundle")).unwrap();
        bundle(&at("bundle"), &[("module.ts", "m")]);
        let text = std::fs::read(at("bundle/model.toml")).unwrap();
        zip(&at("bundle.zip"), &[("bundle/model.toml", &text), ("bundle/module.ts", b"m")]);
        zip(&at("net.pt"), &[("net/data.pkl", b""), ("net/code/a.py", b"")]);
        zip(&at("weights.pt"), &[("weights/data.pkl", b"")]);
        zip(&at("package.pt2"), &[("p/data/aotinductor/model/a.so", b"")]);
        zip(&at("program.pt2"), &[("p/models/model.json", b"")]);
        assert_eq!(form("bundle"), Ok(Form::Bundle));
        assert_eq!(form("bundle.zip"), Ok(Form::Bundle));
        assert_eq!(form("net.pt"), Ok(Form::Module));
        assert_eq!(form("package.pt2"), Ok(Form::Package));
        assert_eq!(form("program.pt2"), Ok(Form::Program));
        assert!(form("weights.pt").unwrap_err().message.contains("--model-type"));
        assert!(form("missing").unwrap_err().message.contains("does not exist"));
        assert!(form("cache").unwrap_err().message.contains("is no model"));
        assert_eq!(Model::is_checkpoint(&at("weights.pt")), Ok(true));
        assert_eq!(Model::is_checkpoint(&at("net.pt")), Ok(false));
    }

    #[test]
    fn a_program_becomes_a_bundle_that_python_can_compile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.pt2");
        zip(&path, &[("p/models/model.json", b"")]);
        let cache = Cache::new(Some(&folder.path().join("cache")), |_| None).unwrap();
        let model = Model::open(&path, &cache).unwrap();
        let opened = Bundle::open(&model.folder.unwrap()).unwrap();
        assert_eq!((opened.facts.name.as_str(), opened.program), ("net", model.program));
        assert_eq!(opened.facts.files, model.facts.files);
    }
}
