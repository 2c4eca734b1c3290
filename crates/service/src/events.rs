//! What happens to jobs, told to whoever listens. A listener that is too slow misses what is between, and sees how things are when it
//! looks again: it never holds anybody up.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::job::JobStatus;

/// News that wait for the slowest listener.
const WAITING: usize = 256;

/// The place where news are told.
#[derive(Clone, Debug)]
pub struct Events {
    sender: broadcast::Sender<Arc<JobStatus>>,
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(WAITING) }
    }
}

impl Events {
    /// Tells how a job is now.
    pub fn tell(&self, status: JobStatus) {
        // Nobody may be listening.
        drop(self.sender.send(Arc::new(status)));
    }

    /// Listens from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Arc<JobStatus>> {
        self.sender.subscribe()
    }
}
