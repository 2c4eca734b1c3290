//! What a storage location may depend on besides its URL.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::memory::InMemory;

/// Variables such as `AWS_ENDPOINT_URL`, passed in once, and the store behind `memory://` URLs. Cloning shares both, so that a
/// volume written to `memory://` can be read back through a clone of the same environment.
#[derive(Clone, Debug)]
pub struct Environment {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    variables: BTreeMap<String, String>,
    memory: Arc<InMemory>,
}

impl Environment {
    /// An environment of these variables (name, value), with an empty memory store.
    #[must_use]
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let shared = Shared { variables: variables.into_iter().collect(), memory: Arc::new(InMemory::new()) };
        Self { shared: Arc::new(shared) }
    }

    /// An environment without variables.
    #[must_use]
    pub fn empty() -> Self {
        Self::new([])
    }

    /// The variables whose names start with `prefix`.
    pub(crate) fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let variables = self.shared.variables.iter().filter(move |(name, _)| name.starts_with(prefix));
        variables.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn memory(&self) -> Arc<InMemory> {
        Arc::clone(&self.shared.memory)
    }
}
