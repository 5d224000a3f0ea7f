//! The writes that flushes have promised to be durable.
//!
//! A flush that succeeds promises every write that was acknowledged before the flush was submitted. A write with FUA is promised
//! by its own acknowledgement.
//!
//! An earlier flush that failed ends the promise, because it told the guest that such writes may be lost. That flush was
//! submitted after the write was acknowledged, and answered before the flush that succeeds was submitted.
//!
//! Flushes of the next daemon do not promise writes that a killed daemon left unflushed, because the next daemon does not know
//! which controllers hold them. There is one exception: the first flush of a daemon that had every controller from the start goes
//! to all controllers.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Moment;
use crate::blocks::Origin;

#[derive(Debug, Clone, Copy)]
struct Flush {
    submitted: Moment,
    answered: Moment,
}

#[derive(Debug, Default)]
pub(super) struct Durability {
    /// When each write was acknowledged, and whether with FUA.
    acknowledged: BTreeMap<u64, (Moment, bool)>,
    succeeded: Vec<Flush>,
    failed: Vec<Flush>,
    /// When daemons that left unflushed writes were killed.
    kills: Vec<Moment>,
    /// When the last daemon that left unflushed writes was killed.
    killed: Moment,
    /// A daemon has ended with writes in doubt. The next one presumes unflushed writes, as after a kill.
    is_presumed: bool,
    /// Requests whose changes a node has lost with its cache, and that were not executed again.
    lost: BTreeSet<u64>,
    /// When daemons ended.
    ends: Vec<Moment>,
}

impl Durability {
    pub(super) fn acknowledged(&mut self, id: u64, moment: Moment, fua: bool) {
        self.acknowledged.insert(id, (moment, fua));
    }

    pub(super) fn is_acknowledged(&self, id: u64) -> bool {
        self.acknowledged.contains_key(&id)
    }

    pub(super) fn flush_answered(&mut self, submitted: Moment, answered: Moment, succeeded: bool) {
        let flushes = if succeeded { &mut self.succeeded } else { &mut self.failed };
        flushes.push(Flush { submitted, answered });
    }

    /// Another daemon follows.
    pub(super) fn ended(&mut self, moment: Moment) {
        self.ends.push(moment);
    }

    /// The daemon has ended, and the next daemon does not know its unflushed writes.
    pub(super) fn daemon_forgot(&mut self, moment: Moment) {
        self.kills.push(moment);
        self.killed = moment;
    }

    /// A daemon has ended in order, with writes in doubt.
    pub(super) fn ended_in_doubt(&mut self) {
        self.is_presumed = true;
    }

    /// Whether the daemon presumes unflushed writes of an earlier one.
    pub(super) fn has_unknown_writes(&self) -> bool {
        self.is_presumed || !self.kills.is_empty()
    }

    /// Notes that a successful flush has covered the unflushed writes of earlier daemons.
    pub(super) fn recovered(&mut self) {
        self.kills.clear();
        self.is_presumed = false;
    }

    /// A node has lost a change of this origin with its cache.
    pub(super) fn lost(&mut self, origin: Origin) {
        if let Origin::Request(id) = origin {
            self.lost.insert(id);
        }
    }

    /// A request is executed, from its first block on.
    pub(super) fn executed(&mut self, id: u64) {
        self.lost.remove(&id);
    }

    /// A write that is lost although a flush has promised it. Writes of a killed daemon do not count: the next daemon cannot know
    /// which of them a controller has lost.
    pub(super) fn silently_lost(&self) -> Option<Origin> {
        let is_known = |id: &&u64| self.acknowledged.get(*id).is_some_and(|(moment, _)| *moment > self.killed);
        self.lost.iter().filter(is_known).map(|&id| Origin::Request(id)).find(|&origin| self.is_promised(origin))
    }

    /// Whether a change of this origin must survive every crash.
    pub(super) fn is_promised(&self, origin: Origin) -> bool {
        let Origin::Request(id) = origin else { return false };
        let Some(&(acknowledged, fua)) = self.acknowledged.get(&id) else { return false };
        // The sooner a flush was submitted the fewer failures there are before it.
        let knows = |flush: &&Flush| !self.kills.iter().any(|&kill| acknowledged < kill && kill < flush.answered);
        let mut covering = self.succeeded.iter().filter(|flush| flush.submitted > acknowledged).filter(knows);
        fua || covering.any(|flush| {
            // A daemon does not know what its predecessor reported while this flush waited in its virtqueue.
            let waited = |told: Moment| self.ends.iter().any(|end| (told..flush.answered).contains(end));
            let excuses = |told: &Flush| {
                told.submitted > acknowledged && (told.answered < flush.submitted || waited(told.answered))
            };
            !self.failed.iter().any(excuses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: Origin = Origin::Request(1);

    #[test]
    fn a_flush_promises_what_was_acknowledged_before_it() {
        let mut durability = Durability::default();
        durability.flush_answered(1, 2, true);
        durability.acknowledged(1, 4, false);
        durability.flush_answered(3, 5, true);
        assert!(!durability.is_promised(W), "both flushes were submitted before");
        durability.flush_answered(6, 7, false);
        assert!(!durability.is_promised(W));
        durability.flush_answered(8, 9, true);
        assert!(!durability.is_promised(W), "the guest was told");
    }

    #[test]
    fn flushes_at_the_same_time_excuse_nothing() {
        let mut durability = Durability::default();
        durability.acknowledged(1, 1, false);
        durability.flush_answered(2, 4, false);
        assert!(!durability.is_promised(W));
        durability.flush_answered(3, 5, true);
        assert!(durability.is_promised(W));
    }

    #[test]
    fn no_flush_covers_what_a_killed_daemon_had_not_flushed() {
        let mut durability = Durability::default();
        durability.acknowledged(1, 1, false);
        durability.daemon_forgot(3);
        durability.flush_answered(2, 4, true);
        durability.flush_answered(5, 6, true);
        assert!(!durability.is_promised(W), "neither the one under way nor a later one");
        durability.acknowledged(2, 7, false);
        durability.flush_answered(8, 9, true);
        assert!(durability.is_promised(Origin::Request(2)));
        durability.recovered();
        durability.flush_answered(10, 11, true);
        assert!(durability.is_promised(W), "unless that one reached all controllers");
    }

    #[test]
    fn no_flush_succeeds_for_what_was_lost_before_unless_it_was_executed_again() {
        let mut durability = Durability::default();
        durability.acknowledged(1, 1, false);
        durability.lost(W);
        assert_eq!(durability.silently_lost(), None);
        durability.flush_answered(2, 3, true);
        assert_eq!(durability.silently_lost(), Some(W));
        durability.executed(1);
        assert_eq!(durability.silently_lost(), None);
        durability.lost(W);
        durability.daemon_forgot(4);
        durability.recovered();
        assert_eq!(durability.silently_lost(), None, "the next daemon cannot know");
    }

    #[test]
    fn force_unit_access_needs_no_flush() {
        let mut durability = Durability::default();
        durability.acknowledged(1, 1, true);
        assert!(durability.is_promised(W));
        assert!(!durability.is_promised(Origin::Request(2)) && !durability.is_promised(Origin::Initial));
    }

    #[test]
    fn a_daemon_that_follows_writes_in_doubt_presumes_unflushed_writes_until_a_flush() {
        let mut durability = Durability::default();
        durability.ended(1);
        assert!(!durability.has_unknown_writes());
        durability.ended_in_doubt();
        assert!(durability.has_unknown_writes());
        durability.recovered();
        assert!(!durability.has_unknown_writes());
    }
}
