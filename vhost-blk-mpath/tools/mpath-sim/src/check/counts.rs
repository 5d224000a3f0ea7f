//! What runs are made of.

use std::ops::AddAssign;

/// What a run was made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered.
    pub answered: u64,
    /// Requests answered with an error.
    pub failed: u64,
    /// Requests of disks other than the first that were answered.
    pub answered_beside: u64,
    /// Runs with several disks.
    pub several: u64,
    /// Times that a disk lost a path which others kept.
    pub disks_lost: u64,
    /// Associations that ended because the namespace of one of several disks became another one.
    pub ended_by_another: u64,
    /// Namespaces that the queue pairs of a live association were told of, once they could be used.
    pub namespaces_added: u64,
    /// Runs with a disk that no fault concerned.
    pub spared: u64,
    /// Changes of the store.
    pub applied: u64,
    /// Changes of the store by commands whose connection was gone.
    pub late: u64,
    /// Blocks whose visible content a crash took.
    pub lost: u64,
    /// Persistent losses of a namespace that took something from a cache.
    pub caches_taken: u64,
    /// Reads sent a second time.
    pub hedges: u64,
    /// Hedges whose data the guest was given.
    pub hedges_won: u64,
    /// Associations lost.
    pub associations_lost: u64,
    /// Fences that a Cross-Controller Reset has lifted.
    pub resets: u64,
    /// Paths removed.
    pub removals: u64,
    /// Paths added because a discovery controller listed them.
    pub discovered: u64,
    /// Paths to be removed because none did any more.
    pub listed_no_more: u64,
    /// Discovery logs read on a session that only its keep-alives can have kept open until then.
    pub sessions_kept_alive: u64,
    /// Associations that the operator ended, which owed nothing then.
    pub closed_in_order: u64,
    /// Daemons killed.
    pub kills: u64,
    /// Disks that have grown.
    pub grown: u64,
    /// Daemons that ended in order.
    pub restarts: u64,
    /// Front-ends that hung up.
    pub hang_ups: u64,
    /// Times that a front-end had stopped all of its virtqueues.
    pub stops: u64,
    /// Machines whose memory was cut off.
    pub cut_off: u64,
    /// Machines that lost memory and that the daemon hung up on.
    pub hung_up_on: u64,
    /// Changes of the store with zeroes in place of data whose memory was gone.
    pub torn: u64,
    /// Requests that went down with their daemon, or their machine.
    pub given_up: u64,
    /// R2Ts that a hostile node has spoilt.
    pub spoilt_r2ts: u64,
    /// Times that an I/O thread has heard what breaks the protocol.
    pub broken: u64,
    /// Connections that the target ended in order while commands were under way there.
    pub finished: u64,
    /// Handshakes that were not answered in time.
    pub unanswered: u64,
    /// Commands that had their data in the capsule.
    pub in_capsule: u64,
    /// Commands whose data were asked for by R2Ts.
    pub asked_for: u64,
    /// Bytes in the largest capsule.
    pub capsule_bytes_max: u64,
    /// Runs in which all controllers share one cache.
    pub shared_caches: u64,
    /// Pieces of commands that were executed before the last one.
    pub pieces: u64,
    /// Commands of which a piece was executed, and the rest never.
    pub cut: u64,
    /// Events.
    pub events: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, one: Self) {
        self.answered += one.answered;
        self.failed += one.failed;
        self.answered_beside += one.answered_beside;
        self.several += one.several;
        self.disks_lost += one.disks_lost;
        self.ended_by_another += one.ended_by_another;
        self.namespaces_added += one.namespaces_added;
        self.spared += one.spared;
        self.applied += one.applied;
        self.late += one.late;
        self.lost += one.lost;
        self.caches_taken += one.caches_taken;
        self.hedges += one.hedges;
        self.hedges_won += one.hedges_won;
        self.associations_lost += one.associations_lost;
        self.resets += one.resets;
        self.removals += one.removals;
        self.discovered += one.discovered;
        self.listed_no_more += one.listed_no_more;
        self.sessions_kept_alive += one.sessions_kept_alive;
        self.closed_in_order += one.closed_in_order;
        self.kills += one.kills;
        self.grown += one.grown;
        self.restarts += one.restarts;
        self.hang_ups += one.hang_ups;
        self.stops += one.stops;
        self.cut_off += one.cut_off;
        self.hung_up_on += one.hung_up_on;
        self.torn += one.torn;
        self.given_up += one.given_up;
        self.spoilt_r2ts += one.spoilt_r2ts;
        self.broken += one.broken;
        self.finished += one.finished;
        self.unanswered += one.unanswered;
        self.in_capsule += one.in_capsule;
        self.asked_for += one.asked_for;
        self.capsule_bytes_max = self.capsule_bytes_max.max(one.capsule_bytes_max);
        self.shared_caches += one.shared_caches;
        self.pieces += one.pieces;
        self.cut += one.cut;
        self.events += one.events;
    }
}
