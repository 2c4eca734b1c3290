//! Time by the clock, and time of the processors.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Both clocks when something began.
pub(crate) struct Clock {
    began: Instant,
    worked: Duration,
}

/// What something took.
#[derive(Clone, Copy, Default)]
pub(crate) struct Taken {
    /// By the clock.
    pub(crate) seconds: f64,
    /// On all cores together, by every thread of this process, in the process and in the system on its behalf. Whatever else the machine
    /// does is not in it.
    pub(crate) core_seconds: f64,
}

impl Clock {
    /// Begins now.
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), worked: worked() }
    }

    /// What has been taken until now.
    pub(crate) fn taken(&self) -> Taken {
        Taken {
            seconds: self.began.elapsed().as_secs_f64(),
            core_seconds: worked().saturating_sub(self.worked).as_secs_f64(),
        }
    }
}

impl AddAssign for Taken {
    fn add_assign(&mut self, more: Self) {
        self.seconds += more.seconds;
        self.core_seconds += more.core_seconds;
    }
}

fn worked() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
