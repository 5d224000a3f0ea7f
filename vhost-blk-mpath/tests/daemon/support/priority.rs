//! Test helpers: priority over other load on this machine, so that measurements do not depend on it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Until this is dropped, this thread, and all threads and processes it starts, run before everything of ordinary
/// priority, if that is permitted.
pub(crate) struct Priority {
    is_permitted: bool,
    _alone: MutexGuard<'static, ()>,
}

/// Two tests with priority would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

/// The priority of what is measured.
const MEASURED: i32 = 2;
/// The priority of what must not take the processor from it.
const BEHIND: i32 = 1;

impl Priority {
    /// Applies the priority of what is measured.
    pub(crate) fn take() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self { is_permitted: set(libc::SCHED_RR, MEASURED), _alone: alone }
    }

    /// Threads started from now on run before other processes, but after those started until now.
    pub(crate) fn stay_behind(&self) {
        if self.is_permitted {
            set(libc::SCHED_RR, BEHIND);
        }
    }

    /// Threads started from now on run before everything again.
    pub(crate) fn go_first(&self) {
        if self.is_permitted {
            set(libc::SCHED_RR, MEASURED);
        }
    }

    pub(crate) fn is_permitted(&self) -> bool {
        self.is_permitted
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if self.is_permitted {
            set(libc::SCHED_OTHER, 0);
        }
    }
}

fn set(policy: i32, priority: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: about the calling thread, and the structure lives until the call returns.
    unsafe { libc::pthread_setschedparam(libc::pthread_self(), policy, &raw const parameters) == 0 }
}
