//! Which connections there are, so that they can be bounded, ended and waited for.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::wake::Wake;

struct Entry {
    listener: usize,
    wake: Arc<Wake>,
}

#[derive(Default)]
struct Inner {
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
        if inner.entries.len() >= self.max_connections {
            return None;
        }
        let id = inner.next_id;
        inner.next_id += 1;
        inner.entries.insert(id, Entry { listener, wake: Arc::clone(wake) });
        Some(Registration { registry: Arc::clone(self), id })
    }

    /// Ends all connections of a listener and waits until the last one is gone.
    pub(super) fn end_all(&self, listener: usize) {
        let mut inner = self.lock();
        let of_listener = |entry: &&Entry| entry.listener == listener;
        inner.entries.values().filter(of_listener).for_each(|entry| entry.wake.stop());
        while inner.entries.values().any(|entry| entry.listener == listener) {
            inner = self.removed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn connections(&self, listener: usize) -> usize {
        self.lock().entries.values().filter(|entry| entry.listener == listener).count()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.lock().entries.remove(&self.id);
        self.registry.removed.notify_all();
    }
}
