//! Routes the reports of I/O threads to the tasks of paths.

use std::sync::{Mutex, PoisonError};

use mpath_core::{MAX_PATHS, PathId};
use reactor::PathEvent;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// By path.
type Senders = [Option<UnboundedSender<PathEvent>>; MAX_PATHS];

/// The receivers of I/O thread reports.
pub(crate) struct Reports(Mutex<Senders>);

impl Default for Reports {
    fn default() -> Self {
        Self(Mutex::new([const { None }; MAX_PATHS]))
    }
}

impl Reports {
    /// Routes the reports of a path to the returned receiver.
    pub(crate) fn listen(&self, path: PathId) -> UnboundedReceiver<PathEvent> {
        let (sender, receiver) = unbounded_channel();
        self.change(path, |slot| *slot = Some(sender));
        receiver
    }

    /// Stops routing for a path that is gone.
    pub(crate) fn forget(&self, path: PathId) {
        self.change(path, |slot| *slot = None);
    }

    /// Passes a report on. The lock is short, and reports and changes are rare, so no I/O thread is delayed.
    pub(crate) fn send(&self, event: PathEvent) {
        self.change(event.path, |slot| {
            if let Some(sender) = slot {
                // The receiver is gone when the daemon ends.
                let _ = sender.send(event);
            }
        });
    }

    fn change(&self, path: PathId, change: impl FnOnce(&mut Option<UnboundedSender<PathEvent>>)) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut senders[usize::from(path.0)]);
    }
}
