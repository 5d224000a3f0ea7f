//! Priority over whatever else this machine does, so that what is measured is not how busy it is.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Until it is dropped this thread, and each thread and process that it starts, goes before everything of ordinary priority, where that is
/// permitted.
pub(crate) struct Priority {
    is_permitted: bool,
    _alone: MutexGuard<'static, ()>,
}

/// Two tests with it would be each other's load.
static ALONE: Mutex<()> = Mutex::new(());

/// What is measured.
const MEASURED: i32 = 2;
/// What is not to take the processor from it.
const BEHIND: i32 = 1;

impl Priority {
    /// That of what is measured.
    pub(crate) fn take() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self { is_permitted: set(libc::SCHED_RR, MEASURED), _alone: alone }
    }

    /// What is started from now on goes before everything else, but not before what was started until now.
    pub(crate) fn stay_behind(&self) {
        if self.is_permitted {
            set(libc::SCHED_RR, BEHIND);
        }
    }

    /// What is started from now on goes before everything again.
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
