//! The way of what I/O threads report of a path to the task of that path.

use std::sync::{Mutex, PoisonError};

use mpath_core::{MAX_PATHS, PathId};
use reactor::PathEvent;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// By path.
type Senders = [Option<UnboundedSender<PathEvent>>; MAX_PATHS];

/// Who gets the reports of a disk's I/O threads.
pub(crate) struct Reports(Mutex<Senders>);

impl Default for Reports {
    fn default() -> Self {
        Self(Mutex::new([const { None }; MAX_PATHS]))
    }
}

impl Reports {
    /// From now on a path's reports come here.
    pub(crate) fn listen(&self, path: PathId) -> UnboundedReceiver<PathEvent> {
        let (sender, receiver) = unbounded_channel();
        self.change(path, |slot| *slot = Some(sender));
        receiver
    }

    /// A path is gone; the I/O threads have nothing more to say of it.
    pub(crate) fn forget(&self, path: PathId) {
        self.change(path, |slot| *slot = None);
    }

    /// Passes a report on. It holds no I/O thread up: reports are rare, and so are changes.
    pub(crate) fn send(&self, event: PathEvent) {
        self.change(event.path, |slot| {
            if let Some(sender) = slot {
                // Nobody listens any more when the daemon ends.
                let _ = sender.send(event);
            }
        });
    }

    fn change(&self, path: PathId, change: impl FnOnce(&mut Option<UnboundedSender<PathEvent>>)) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut senders[usize::from(path.0)]);
    }
}
