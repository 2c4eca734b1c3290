//! The pool of threads that decodes, encodes and copies.

use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::VolumeError;
use crate::carried::carried_over;

/// A pool of threads for work that computes; its threads are named `haloflow-cpu-N`. Cloning shares the pool, and the threads
/// end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct CpuPool {
    pool: Arc<rayon::ThreadPool>,
}

impl CpuPool {
    /// Starts a pool of `threads` threads for work that takes long. Where processors are few they step back behind the process's other threads,
    /// which somebody waits for.
    ///
    /// # Errors
    /// `Internal` if the operating system gives no threads.
    pub fn new(threads: NonZeroUsize) -> Result<Self, VolumeError> {
        Self::start("haloflow-cpu", threads, step_back)
    }

    /// Starts a pool of `threads` threads named `name` for work that somebody waits for.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn urgent(name: &'static str, threads: NonZeroUsize) -> Result<Self, VolumeError> {
        Self::start(name, threads, || ())
    }

    fn start(name: &'static str, threads: NonZeroUsize, begin: fn()) -> Result<Self, VolumeError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.get())
            .thread_name(move |index| format!("{name}-{index}"))
            .start_handler(move |_| begin())
            .build()
            .map_err(|error| {
                VolumeError::internal(format!("cannot start a pool of {threads} threads: {error}")).with_source(error)
            })?;
        Ok(Self { pool: Arc::new(pool) })
    }

    /// How many threads the pool has.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `work` on the pool and waits for its result without blocking the runtime. Inside `work`, rayon's parallel iterators use
    /// this pool. Whatever is moved into `work` (a permit, a lease) lives as long as the work. Log lines and notes of `work` are the caller's.
    ///
    /// Cancellation: dropping the future does not stop work that has been handed over; its result is dropped on the pool.
    ///
    /// # Errors
    /// `Internal` with the panic's message if `work` panics.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, VolumeError> {
        let (sender, receiver) = oneshot::channel();
        let work = carried_over(work);
        self.pool.spawn(move || {
            // A send fails only if the caller has gone; the result is then dropped here.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        });
        match receiver.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => {
                Err(VolumeError::internal(format!("a worker thread panicked: {}", panic_message(&*panic))))
            }
            Err(_) => Err(VolumeError::internal("the CPU pool ended before its work was done")),
        }
    }
}

/// How far threads of long work step back: a processor that is wanted by one of them and by another thread is the other's for three quarters
/// of the time.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Lowers the priority of this thread. Only Linux has one for each thread, and only it is asked.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Ok(now) = rustix::process::getpriority_process(None) {
        // It works as well without.
        let _ = rustix::process::setpriority_process(None, now + NICENESS);
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VolumeErrorKind;

    #[tokio::test]
    async fn work_runs_on_named_threads_and_a_panic_is_an_error() {
        let pool = CpuPool::new(NonZeroUsize::new(2).unwrap()).unwrap();
        let name = pool.run(|| std::thread::current().name().map(str::to_owned)).await.unwrap();
        assert!(name.unwrap().starts_with("haloflow-cpu-"));
        let error = pool.run(|| panic!("boom {}", 7)).await.unwrap_err();
        assert_eq!(error.kind, VolumeErrorKind::Internal);
        assert!(error.message.contains("boom 7"), "{error}");
        assert_eq!(pool.run(|| 3).await.unwrap(), 3);
    }
}
