//! Which places jobs may read and write: prefixes of URLs, part by part.

use std::fmt;
use std::path::PathBuf;

/// A list of prefixes. An empty one allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots(Vec<Root>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Root {
    text: String,
    scheme: String,
    /// Bucket or host, then the parts of the path.
    parts: Vec<String>,
}

impl Roots {
    /// Reads prefixes: `s3://bucket/folder`, `/data`, `file:///data`. The part after the last slash counts whole: `s3://lab/a` does not
    /// allow `s3://lab/ab`.
    ///
    /// # Errors
    /// A sentence for each that is none.
    pub fn new<'a>(prefixes: impl IntoIterator<Item = &'a str>) -> Result<Self, Vec<String>> {
        let (mut roots, mut errors) = (Vec::new(), Vec::new());
        for text in prefixes {
            match Root::read(text) {
                Some(root) => roots.push(root),
                None => errors.push(format!(
                    "{text:?} is no root; give the beginning of a URL, such as s3://bucket/folder, or an absolute path, without `.` and `..`"
                )),
            }
        }
        if errors.is_empty() { Ok(Self(roots)) } else { Err(errors) }
    }

    /// The folders of this machine among them.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let local = self.0.iter().filter(|root| root.scheme == "file");
        local.map(|root| std::iter::once("/").chain(root.parts.iter().map(String::as_str)).collect()).collect()
    }

    /// Whether `place` lies in one of them. `place` is a URL or an absolute path whose links were followed.
    #[must_use]
    pub fn allow(&self, place: &str) -> bool {
        let Some(place) = Root::read(place) else { return false };
        self.0.iter().any(|root| root.scheme == place.scheme && place.parts.starts_with(&root.parts))
    }
}

impl fmt::Display for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("nothing"),
            roots => f.write_str(&roots.iter().map(|root| root.text.as_str()).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Root {
    fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = match text.split_once("://") {
            Some(("file", path)) => ("file", path),
            Some((scheme, rest)) => (scheme, rest),
            None => ("file", text),
        };
        let host_needed = scheme != "file";
        if !host_needed && !rest.starts_with('/') {
            return None;
        }
        let parts: Vec<String> = rest.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let plain = parts.iter().all(|part| part != "." && part != ".." && !part.contains('\\'));
        let named = !host_needed || rest.split('/').next().is_some_and(|host| !host.is_empty());
        (plain && named && !scheme.is_empty()).then(|| Self {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_inside_is_allowed() {
        let roots = Roots::new(["s3://lab/raw/", "/data", "file:///scratch/a", "https://host.org/open"]).unwrap();
        for inside in [
            "s3://lab/raw",
            "s3://lab/raw/x.zarr",
            "/data/x",
            "file:///data/x",
            "/scratch/a/b",
            "https://host.org/open/x",
        ] {
            assert!(roots.allow(inside), "{inside}");
        }
        for outside in [
            "s3://lab/raws/x",
            "s3://lab/",
            "s3://other/raw/x",
            "gs://lab/raw/x",
            "/database",
            "/data/../etc/passwd",
            "/etc/passwd",
            "data/x",
            "file://data/x",
            "https://host.org.evil.org/open/x",
            "http://host.org/open/x",
            "",
        ] {
            assert!(!roots.allow(outside), "{outside}");
        }
        assert!(!Roots::default().allow("/data"));
        assert_eq!(roots.folders(), [PathBuf::from("/data"), "/scratch/a".into()]);
        assert_eq!(Roots::new(["/"]).unwrap().folders(), [PathBuf::from("/")]);
    }

    #[test]
    fn what_is_no_root_is_told() {
        let told = Roots::new(["data", "s3:///x", "/a/../b", "/fine"]).unwrap_err();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("\"data\" is no root"), "{told:?}");
    }
}
