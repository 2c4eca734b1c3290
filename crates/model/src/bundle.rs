//! A bundle: a folder with `model.toml`, a module, a program, and compiled packages.

use std::path::{Component, Path, PathBuf};

use crate::checksum;
use crate::error::ModelError;
use crate::facts::ModelFacts;
use crate::package::Package;

/// The file that makes a folder a bundle.
pub(crate) const FACTS: &str = "model.toml";
/// The TorchScript module.
pub(crate) const MODULE: &str = "module.ts";
/// The exported program, which packages are made from.
pub(crate) const PROGRAM: &str = "program.pt2";

/// A bundle whose files are what `model.toml` says they are.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Where it is.
    pub folder: PathBuf,
    /// What is known of it.
    pub facts: ModelFacts,
    /// The TorchScript module, if there is one.
    pub module: Option<PathBuf>,
    /// The exported program, if there is one.
    pub program: Option<PathBuf>,
    /// The compiled packages with facts beside them. Their sums are checked when one is chosen.
    pub packages: Vec<Package>,
}

impl Bundle {
    /// Reads and checks the bundle in `folder`.
    ///
    /// # Errors
    /// Names the file, and both sums where a file was changed.
    pub fn open(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join(FACTS);
        let text = std::fs::read_to_string(&path).map_err(|error| ModelError::file(&path, "read", &error))?;
        let facts = ModelFacts::parse(&text, &path)?;
        for (name, sum) in &facts.files {
            checksum::check(&folder.join(inside(name, &path)?), sum)?;
        }
        let there = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
        let bundle = Self {
            module: there(MODULE),
            program: there(PROGRAM),
            packages: Package::all_in(&folder.join("compiled"))?,
            folder: folder.to_owned(),
            facts,
        };
        if bundle.module.is_none() && bundle.program.is_none() && bundle.packages.is_empty() {
            let message = format!("{} holds neither {MODULE} nor {PROGRAM} nor a package", folder.display());
            return Err(ModelError::data(message));
        }
        bundle.all_summed(&path)?;
        Ok(bundle)
    }

    /// A module or program that `model.toml` gives no sum of could be anything.
    fn all_summed(&self, path: &Path) -> Result<(), ModelError> {
        let unsummed = [(MODULE, &self.module), (PROGRAM, &self.program)]
            .into_iter()
            .find(|(name, file)| file.is_some() && !self.facts.files.contains_key(*name));
        match unsummed {
            Some((name, _)) => Err(ModelError::data(format!(
                "{}: `files` gives no SHA-256 of {name}, which lies beside it",
                path.display()
            ))),
            None => Ok(()),
        }
    }
}

/// The name of a file in a bundle, if it stays inside.
fn inside<'a>(name: &'a str, facts: &Path) -> Result<&'a Path, ModelError> {
    let path = Path::new(name);
    if path.components().all(|part| matches!(part, Component::Normal(_))) && !name.is_empty() {
        return Ok(path);
    }
    Err(ModelError::data(format!("{}: `files` names `{name}`, which lies outside the bundle", facts.display())))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::checksum::sha256_of_file;

    /// A bundle with files of these contents.
    pub(crate) fn bundle(folder: &Path, files: &[(&str, &str)]) {
        let mut text = String::from("name = 'net'\nchannels-in = 1\npatch = [8, 8, 8]\n[files]\n");
        for (name, content) in files {
            std::fs::write(folder.join(name), content).unwrap();
            text += &format!("'{name}' = '{}'\n", sha256_of_file(&folder.join(name)).unwrap());
        }
        std::fs::write(folder.join(FACTS), text).unwrap();
    }

    #[test]
    fn a_sound_bundle_opens_and_a_changed_file_is_refused_with_both_sums() {
        let folder = tempfile::tempdir().unwrap();
        bundle(folder.path(), &[(MODULE, "m"), (PROGRAM, "p")]);
        let opened = Bundle::open(folder.path()).unwrap();
        assert_eq!(opened.program, Some(folder.path().join(PROGRAM)));
        std::fs::write(folder.path().join(MODULE), "changed").unwrap();
        let found = sha256_of_file(&folder.path().join(MODULE)).unwrap();
        let told = Bundle::open(folder.path()).unwrap_err().message;
        assert!(told.contains(MODULE) && told.contains(&found) && told.contains(&opened.facts.files[MODULE]), "{told}");
    }

    #[test]
    fn files_without_a_sum_outside_or_missing_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |text: &str| {
            std::fs::write(folder.path().join(FACTS), text).unwrap();
            Bundle::open(folder.path()).unwrap_err().message
        };
        assert!(refused("name = 'a'").contains("neither module.ts nor program.pt2"));
        assert!(refused("name = 'a'\n[files]\n'../x' = '00'").contains("`../x`, which lies outside"));
        assert!(refused("name = 'a'\n[files]\n'module.ts' = '00'").contains("module.ts cannot be read"));
        std::fs::write(folder.path().join(MODULE), "m").unwrap();
        assert!(refused("name = 'a'").contains("no SHA-256 of module.ts"));
    }
}
