//! Writes are sent no more often than their failovers allow.
//!
//! An attempt is lost with a connection that ends before its commands were answered. The host counts each of them, and also
//! attempts whose answer was lost, which this check does not see.

use std::collections::{BTreeMap, BTreeSet};

use crate::connection::ConnId;

/// The attempts of writes since requests began anew.
#[derive(Debug, Default)]
pub(super) struct LostAttempts {
    /// Writes, and the connections over which commands of them have arrived.
    arrived: BTreeSet<(u64, ConnId)>,
    /// By write: the connections that attempts were lost with.
    lost: BTreeMap<u64, BTreeSet<ConnId>>,
}

impl LostAttempts {
    pub(super) fn of(&self, id: u64) -> usize {
        self.lost.get(&id).map_or(0, BTreeSet::len)
    }

    /// A command of a write has arrived.
    pub(super) fn arrived(&mut self, id: u64, conn: ConnId) {
        self.arrived.insert((id, conn));
    }

    /// A connection has ended before a command of a write was answered. Returns whether the attempt is new. A target may notice
    /// late that the attempt of an earlier daemon is lost, which does not count.
    pub(super) fn add(&mut self, id: u64, conn: ConnId) -> bool {
        self.arrived.contains(&(id, conn)) && self.lost.entry(id).or_default().insert(conn)
    }

    /// Requests begin anew, with another daemon or on virtqueues that run again.
    pub(super) fn forget(&mut self) {
        self.arrived.clear();
        self.lost.clear();
    }
}
