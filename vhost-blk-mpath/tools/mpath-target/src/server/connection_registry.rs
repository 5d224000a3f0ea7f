//! The table of connections: to limit their number, to end them, and to wait for their end.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::waker::Waker;
use crate::setting::Queues;

struct Entry {
    listener: usize,
    waker: Arc<Waker>,
    /// The queue that the connection carries; `None` before its Connect.
    qid: Option<u16>,
}

#[derive(Default)]
struct Inner {
    closed: bool,
    next_id: u64,
    entries: HashMap<u64, Entry>,
}

/// All connections of a server.
pub(super) struct ConnectionRegistry {
    max_connections: usize,
    inner: Mutex<Inner>,
    removed: Condvar,
}

/// The entry of a connection in the registry. Dropping it, even by a panic, removes the entry.
pub(super) struct Registration {
    registry: Arc<ConnectionRegistry>,
    id: u64,
}

impl ConnectionRegistry {
    pub(super) fn new(max_connections: usize) -> Self {
        Self { max_connections, inner: Mutex::default(), removed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; `None` if there are too many.
    pub(super) fn register(self: &Arc<Self>, listener: usize, waker: &Arc<Waker>) -> Option<Registration> {
        let mut inner = self.lock();
        if inner.closed || inner.entries.len() >= self.max_connections {
            return None;
        }
        let id = inner.next_id;
        inner.next_id += 1;
        inner.entries.insert(id, Entry { listener, waker: Arc::clone(waker), qid: None });
        Some(Registration { registry: Arc::clone(self), id })
    }

    /// Ends the current connections of a listener that carry such `queues`, and waits until they are gone.
    pub(super) fn end(&self, listener: usize, queues: Queues) {
        let mut inner = self.lock();
        let is_selected = |entry: &Entry| {
            entry.listener == listener
                && match queues {
                    Queues::All => true,
                    Queues::Admin => entry.qid == Some(0),
                    Queues::Io => entry.qid.is_some_and(|qid| qid > 0),
                }
        };
        let ids: Vec<u64> = inner.entries.iter().filter(|(_, entry)| is_selected(entry)).map(|(&id, _)| id).collect();
        ids.iter().filter_map(|id| inner.entries.get(id)).for_each(|entry| entry.waker.stop());
        while ids.iter().any(|id| inner.entries.contains_key(id)) {
            inner = self.removed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends all connections, and refuses new ones.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.entries.values().for_each(|entry| entry.waker.stop());
        while !inner.entries.is_empty() {
            inner = self.removed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes all connections, so that they notice changes.
    pub(super) fn notify_all(&self) {
        for entry in self.lock().entries.values() {
            entry.waker.notify();
        }
    }

    /// Wakes the connections of a listener, so that they notice changes.
    pub(super) fn notify(&self, listener: usize) {
        let inner = self.lock();
        inner.entries.values().filter(|entry| entry.listener == listener).for_each(|entry| entry.waker.notify());
    }

    pub(super) fn connections(&self, listener: usize) -> usize {
        self.lock().entries.values().filter(|entry| entry.listener == listener).count()
    }
}

impl Registration {
    /// Records the queue that the connection carries.
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
