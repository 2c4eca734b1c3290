//! A store: a bucket, a container, a web server, or the local disk.

use std::sync::Arc;

use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use crate::amazon::Region;
use crate::credentials::Credentials;
use crate::gate::Gate;

/// A store and, if it is remote, what its requests have to pass.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// None for the local disk and for memory: nothing is repeated there.
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// Where the bucket is, if it is one of S3.
    pub(crate) region: Option<Region>,
}

impl Store {
    pub(crate) fn local(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, gate: None, credentials: None, region: None }
    }

    pub(crate) fn forget_credentials(&self) {
        self.credentials.iter().for_each(|credentials| credentials.forget());
    }
}

/// Nothing is repeated below [`persist`](crate::retry::persist), which knows whole chunks.
pub(crate) fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: std::time::Duration::ZERO, backoff: BackoffConfig::default() }
}
