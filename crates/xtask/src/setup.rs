//! Set-up: libtorch in the user's cache folder, shared by all clones, and a link to it in this one.
//!
//! libtorch comes from the PyPI wheel, with every CUDA library it needs, into a virtual environment that serves the
//! demo's Python too. A marker written last tells a complete environment from one whose making was cut short.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{process, python};

const ENVIRONMENT: &str = "torch-2.11.0";
const MARKER: &str = ".complete";
/// The wheel's version is the one that the crate `tch` is made for. numpy 2.2 is the last for Python 3.10.
const REQUIREMENTS: &[&str] =
    &["torch==2.11.0", "numpy==2.2.6; python_version < '3.11'", "numpy==2.4.6; python_version >= '3.11'"];

/// What the set-up leaves.
pub(crate) struct Installed {
    /// The user's cache folder for this project.
    pub(crate) cache: PathBuf,
    /// The environment's interpreter.
    pub(crate) python: PathBuf,
    /// libtorch: the folder with `include` and `lib`.
    libtorch: PathBuf,
}

/// Does whatever of the set-up is missing. Takes milliseconds when nothing is.
pub(crate) fn ensure() -> Result<Installed> {
    check_compiler()?;
    let cache = cache_folder(|name| std::env::var_os(name).map(PathBuf::from))?;
    let environment = cache.join(ENVIRONMENT);
    if !environment.join(MARKER).exists() {
        fs::create_dir_all(&cache).with_context(|| format!("the folder {} cannot be made", cache.display()))?;
        let _lock = lock(&cache.join(format!("{ENVIRONMENT}.lock")))?;
        make(&environment)?;
    }
    let libtorch = find_libtorch(&environment)?;
    link(&libtorch, &process::root().join(".libtorch"))?;
    Ok(Installed { python: environment.join("bin/python"), cache, libtorch })
}

/// The command `setup`: says where things are.
pub(crate) fn report(installed: &Installed, _: &[String]) -> Result<()> {
    println!("libtorch is in {}", installed.libtorch.display());
    Ok(())
}

/// Holds `path` as a lock, until dropped, against other clones and other runs.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.with_context(|| format!("the lock {} cannot be made", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting for another run that holds {}", path.display());
            file.lock().with_context(|| format!("the lock {} cannot be taken", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("the lock {} cannot be taken", path.display()));
        }
    }
    Ok(file)
}

/// Makes the environment, unless another clone did so while this one waited for the lock.
fn make(environment: &Path) -> Result<()> {
    if environment.join(MARKER).exists() {
        return Ok(());
    }
    python::check()?;
    if environment.exists() {
        eprintln!("removing {}, whose set-up was cut short", environment.display());
        fs::remove_dir_all(environment).with_context(|| format!("{} cannot be removed", environment.display()))?;
    }
    eprintln!("installing libtorch into {} (once; 5 GB, a minute or more)", environment.display());
    let started = Instant::now();
    python::make_environment(environment, REQUIREMENTS)?;
    find_libtorch(environment)?;
    fs::write(environment.join(MARKER), REQUIREMENTS.join("\n")).context("the set-up's marker cannot be written")?;
    eprintln!("installed in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn check_compiler() -> Result<()> {
    if std::env::var_os("CXX").is_some() || process::on_path("c++").is_some() {
        return Ok(());
    }
    bail!(
        "a C++ compiler is missing: install g++ or clang++ (`c++` must be found; on Debian and Ubuntu, the package g++)"
    )
}

/// `$XDG_CACHE_HOME/haloflow`, or `~/.cache/haloflow`. `variable` looks a variable of the environment up.
fn cache_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    // The XDG specification wants relative paths to be ignored.
    let xdg = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let home = variable("HOME").filter(|path| path.is_absolute()).map(|home| home.join(".cache"));
    let cache = xdg.or(home).context("there is no folder to install into: set HOME or XDG_CACHE_HOME")?;
    Ok(cache.join("haloflow"))
}

/// `lib/python3.*/site-packages/torch` in an environment.
fn find_libtorch(environment: &Path) -> Result<PathBuf> {
    let libraries = environment.join("lib");
    let interpreters = fs::read_dir(&libraries).with_context(|| format!("{} cannot be read", libraries.display()))?;
    let candidates = interpreters.flatten().map(|entry| entry.path().join("site-packages/torch"));
    candidates.into_iter().find(|torch| torch.join("lib/libtorch.so").exists()).with_context(|| {
        format!("{} holds no libtorch: remove that folder and run `cargo xtask setup`", environment.display())
    })
}

/// Makes `link` point at `libtorch`, in one step, whatever it pointed at before.
fn link(libtorch: &Path, link: &Path) -> Result<()> {
    if fs::read_link(link).is_ok_and(|target| target == libtorch) {
        return Ok(());
    }
    if link.exists() && !link.is_symlink() {
        bail!("{} is in the way: it is no link; remove it", link.display());
    }
    let fresh = link.with_extension(std::process::id().to_string());
    symlink(libtorch, &fresh)
        .and_then(|()| fs::rename(&fresh, link))
        .with_context(|| format!("the link {} cannot be made", link.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_folder_follows_xdg_then_home() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            let (xdg, home) = (xdg.map(PathBuf::from), home.map(PathBuf::from));
            cache_folder(move |name| if name == "HOME" { home.clone() } else { xdg.clone() })
        };
        assert_eq!(with(Some("/x"), Some("/h")).unwrap(), Path::new("/x/haloflow"));
        assert_eq!(with(None, Some("/h")).unwrap(), Path::new("/h/.cache/haloflow"));
        assert_eq!(with(Some("relative"), Some("/h")).unwrap(), Path::new("/h/.cache/haloflow"));
        assert!(with(None, None).unwrap_err().to_string().contains("set HOME or XDG_CACHE_HOME"));
    }

    #[test]
    fn a_stale_link_is_replaced_and_a_folder_is_not() {
        let folder = std::env::temp_dir().join(format!("haloflow-xtask-{}", std::process::id()));
        fs::create_dir_all(folder.join("taken")).unwrap();
        let at = folder.join(".libtorch");
        for target in ["/nowhere/a", "/nowhere/b", "/nowhere/b"] {
            link(Path::new(target), &at).unwrap();
            assert_eq!(fs::read_link(&at).unwrap(), Path::new(target));
        }
        let error = link(Path::new("/nowhere/a"), &folder.join("taken")).unwrap_err().to_string();
        assert!(error.contains("in the way"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
