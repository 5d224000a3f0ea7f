//! Which connections there are, so that they can be bounded, ended and waited for.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::wake::Wake;
use crate::setting::Queues;

struct Entry {
    listener: usize,
    wake: Arc<Wake>,
    /// The queue that the connection is; `None` before its Connect.
    qid: Option<u16>,
}

#[derive(Default)]
struct Inner {
    closed: bool,
    next_id: u64,
    entries: HashMap<u64, Entry>,
}

/// All connections of a server.
pub(super) struct Registry {
    max_connections: usize,
    inner: Mutex<Inner>,
    removed: Condvar,
}

/// A connection's place in the registry; dropping it, also by a panic, gives the place up.
pub(super) struct Registration {
    registry: Arc<Registry>,
    id: u64,
}

impl Registry {
    pub(super) fn new(max_connections: usize) -> Self {
        Self { max_connections, inner: Mutex::default(), removed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection, unless there are too many.
    pub(super) fn register(self: &Arc<Self>, listener: usize, wake: &Arc<Wake>) -> Option<Registration> {
        let mut inner = self.lock();
        if inner.closed || inner.entries.len() >= self.max_connections {
            return None;
        }
        let id = inner.next_id;
        inner.next_id += 1;
        inner.entries.insert(id, Entry { listener, wake: Arc::clone(wake), qid: None });
        Some(Registration { registry: Arc::clone(self), id })
    }

    /// Ends those connections of a listener that are there now and meant, and waits until they are gone.
    pub(super) fn end(&self, listener: usize, queues: Queues) {
        let mut inner = self.lock();
        let meant = |entry: &Entry| {
            entry.listener == listener
                && match queues {
                    Queues::All => true,
                    Queues::Admin => entry.qid == Some(0),
                    Queues::Io => entry.qid.is_some_and(|qid| qid > 0),
                }
        };
        let ids: Vec<u64> = inner.entries.iter().filter(|(_, entry)| meant(entry)).map(|(&id, _)| id).collect();
        ids.iter().filter_map(|id| inner.entries.get(id)).for_each(|entry| entry.wake.stop());
        while ids.iter().any(|id| inner.entries.contains_key(id)) {
            inner = self.removed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends all connections for good.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.entries.values().for_each(|entry| entry.wake.stop());
        while !inner.entries.is_empty() {
            inner = self.removed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the connections of a listener look at what has changed.
    pub(super) fn notify(&self, listener: usize) {
        let inner = self.lock();
        inner.entries.values().filter(|entry| entry.listener == listener).for_each(|entry| entry.wake.notify());
    }

    pub(super) fn connections(&self, listener: usize) -> usize {
        self.lock().entries.values().filter(|entry| entry.listener == listener).count()
    }
}

impl Registration {
    /// The connection has become this queue of a controller.
    pub(super) fn set_qid(&self, qid: u16) {
        if let Some(entry) = self.registry.lock().entries.get_mut(&self.id) {
            entry.qid = Some(qid);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.lock().entries.remove(&self.id);
        self.registry.removed.notify_all();
    }
}
