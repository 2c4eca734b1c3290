//! What a storage location may depend on besides its URL.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::memory::InMemory;

use crate::Network;
use crate::confined::Confined;
use crate::store::Store;

/// Variables such as `AWS_ENDPOINT_URL`, passed in once, limits on the network, the remote stores in use, and the store behind
/// `memory://` URLs. Cloning shares all of them, so that a volume written to `memory://` can be read back through a clone of the
/// same environment, and everything that works on one bucket shares its limit on requests.
#[derive(Clone)]
pub struct Environment {
    shared: Arc<Shared>,
}

struct Shared {
    variables: BTreeMap<String, String>,
    network: Network,
    memory: Arc<InMemory>,
    confined: Option<Arc<Confined>>,
    stores: Mutex<HashMap<String, Store>>,
}

impl fmt::Debug for Environment {
    /// Names the variables without their values: some are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Environment").field(&self.shared.variables.keys()).field(&self.shared.network).finish()
    }
}

impl Environment {
    /// An environment of these variables (name, value), with an empty memory store and the usual network.
    #[must_use]
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::with_network(variables, Network::default())
    }

    /// An environment of these variables (name, value) and this network.
    #[must_use]
    pub fn with_network(variables: impl IntoIterator<Item = (String, String)>, network: Network) -> Self {
        let (memory, confined, stores) = Default::default();
        let variables = variables.into_iter().collect();
        Self { shared: Arc::new(Shared { variables, network, memory, confined, stores }) }
    }

    /// The same, but files of this machine are read and written in these folders only, wherever links may lead.
    #[must_use]
    pub fn confined(self, read: Vec<PathBuf>, write: Vec<PathBuf>) -> Self {
        let Shared { variables, network, memory, .. } = &*self.shared;
        let (variables, memory, stores) = (variables.clone(), Arc::clone(memory), Mutex::default());
        let confined = Some(Arc::new(Confined { read, write }));
        Self { shared: Arc::new(Shared { variables, network: *network, memory, confined, stores }) }
    }

    pub(crate) fn confinement(&self) -> Option<Arc<Confined>> {
        self.shared.confined.clone()
    }

    /// An environment without variables.
    #[must_use]
    pub fn empty() -> Self {
        Self::new([])
    }

    pub(crate) fn network(&self) -> Network {
        self.shared.network
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.shared.variables.get(name).map(String::as_str)
    }

    /// The variables whose names start with `prefix`.
    pub(crate) fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let variables = self.shared.variables.iter().filter(move |(name, _)| name.starts_with(prefix));
        variables.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn memory(&self) -> Arc<InMemory> {
        Arc::clone(&self.shared.memory)
    }

    /// The store of this name, if it is in use.
    pub(crate) fn known_store(&self, name: &str) -> Option<Store> {
        self.shared.stores.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Keeps a store, unless somebody else was quicker: the one that is kept comes back.
    pub(crate) fn keep_store(&self, name: String, store: Store) -> Store {
        self.shared.stores.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_insert(store).clone()
    }
}
