//! Writes are sent no more often than their failovers allow.
//!
//! An attempt is lost with a connection that ends before its commands were answered. The host counts each of them, and also
//! attempts whose answer was lost, which this check does not see.

use std::collections::{BTreeMap, BTreeSet};

use crate::connection::ConnId;

/// The lost attempts of each write, by the connections that they were lost with.
#[derive(Debug, Default)]
pub(super) struct LostAttempts(BTreeMap<u64, BTreeSet<ConnId>>);

impl LostAttempts {
    pub(super) fn of(&self, id: u64) -> usize {
        self.0.get(&id).map_or(0, BTreeSet::len)
    }

    /// A connection has ended before a command of a write was answered. Returns whether the attempt is new.
    pub(super) fn add(&mut self, id: u64, conn: ConnId) -> bool {
        self.0.entry(id).or_default().insert(conn)
    }

    /// Requests begin anew, with another daemon or on virtqueues that run again.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
