//! Judges a run: the invariants of the disks, whatever fails.
//!
//! * `registers`: every block is a register with concurrent operations, seen from the guest.
//! * `durability`: data that a flush promised survive a crash.
//! * `flushes`: flushes go where their disk has unflushed data, and fail only if the disk may have lost data.
//! * `closed_paths`: a path is closed in order only if its node caches no answered write.
//! * `first_attempts`: after a kill, no request is executed before every path was tried.
//! * `failure_reasons`: no other request fails without a reason. `host_events` collects the reasons.
//! * `failovers`: no write is sent more often than its failovers allow.
//! * `limits`: no disk exceeds its limits.
//! * `slow_array`: an array that is only slow gets few reads twice.
//! * `torn_writes`: truncated memory becomes zeroes in writes, and these writes do not succeed.
//! * `store`: each change of the store belongs to a request of that disk that is not answered yet.
//! * `requests`: every request is answered once. Faults of other disks do not delay a spared disk.

mod closed_paths;
mod counts;
mod daemons;
mod durability;
mod failovers;
mod failure_reasons;
mod first_attempts;
mod flushes;
mod history;
mod host_events;
mod limits;
mod registers;
mod requests;
mod slow_array;
mod store;
mod torn_writes;
mod truncation;
pub(crate) mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use monotonic::Duration;
use mpath_core::{AnaState, GroupConfig, Limits};

use self::closed_paths::ClosedPaths;
pub use self::counts::Counts;
use self::durability::Durability;
use self::failovers::LostAttempts;
use self::failure_reasons::{FailureReasons, RequestErrors};
use self::first_attempts::FirstAttempts;
use self::flushes::Flushes;
use self::history::{History, Moment};
use self::limits::LimitUse;
use self::registers::Registers;
use self::slow_array::ArrayReads;
use self::torn_writes::TornWrites;
use crate::blocks::{Block, Operation};

/// Whether commands may be sent to a namespace in this state (NVMe base specification 2.1, section 8.1.1). The checker does not
/// use the rule of the core, which it checks.
pub(crate) fn is_accessible(state: AnaState) -> bool {
    match state {
        AnaState::Optimized | AnaState::NonOptimized => true,
        AnaState::Inaccessible | AnaState::PersistentLoss | AnaState::Change => false,
    }
}

/// The first broken invariant of a run.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The broken invariant, with the values.
    pub what: String,
    /// The block it was seen on.
    pub block: Option<Block>,
    /// Virtual time.
    pub at: Duration,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct OpenRequest {
    disk: usize,
    operation: Operation,
    range: Range<u64>,
    submitted: Moment,
    at: Duration,
    /// Errors of commands and connections since its submission.
    errors_met: RequestErrors,
    /// Errors that may pass, by block; empty if there are none.
    errors_by_block: Vec<u64>,
    /// The memory of its guest is truncated.
    is_truncated: bool,
}

/// The checks of one disk.
#[derive(Debug)]
struct DiskChecks {
    registers: Registers,
    torn_writes: TornWrites,
    block_bytes: u64,
    durability: Durability,
    limit_use: LimitUse,
    reasons: FailureReasons,
    /// Since when none of its virtqueues runs.
    stopped: Option<Moment>,
}

/// Everything that guests submitted and were answered, as far as it matters to the invariants.
#[derive(Debug)]
pub(crate) struct Checker {
    moment: Moment,
    /// Requests not answered yet.
    open: BTreeMap<u64, OpenRequest>,
    disks: Vec<DiskChecks>,
    /// The disk that no fault concerns.
    spared: Option<usize>,
    pub(crate) flushes: Flushes,
    pub(crate) first_attempts: FirstAttempts,
    pub(crate) closed_paths: ClosedPaths,
    /// Nodes that have reported another namespace.
    replaced: BTreeSet<usize>,
    array_reads: ArrayReads,
    lost_attempts: LostAttempts,
    config: GroupConfig,
    /// The most blocks of Write Zeroes, if the controllers have a limit that they do not report.
    pub(crate) write_zeroes_max: Option<u64>,
    pub(crate) violation: Option<Violation>,
    pub(crate) history: History,
    pub(crate) counts: Counts,
}

impl Checker {
    /// The host sends a command that reads these blocks of a disk.
    pub(crate) fn read_sent(&mut self, disk: usize, blocks: &Range<u64>) {
        self.array_reads.sent(disk, blocks.start);
    }

    /// Judges the reads of a run in which the array was only slow.
    pub(crate) fn judge_slow_array(&mut self, at: Duration, threads: usize) {
        self.counts.slow_arrays += 1;
        self.counts.slow_array_reads_repeated += self.array_reads.repeated;
        if let Err(what) = self.array_reads.judge(threads as u64, self.counts.answered) {
            self.violate(at, None, format_args!("{what}"));
        }
    }

    /// For disks of `blocks` blocks of `block_bytes` bytes each.
    pub(crate) fn new(
        disks: impl Iterator<Item = (u64, u64)>,
        spared: Option<usize>,
        config: &GroupConfig,
        is_recorded: bool,
    ) -> Self {
        let disk = |(blocks, block_bytes)| DiskChecks {
            registers: Registers::new(blocks),
            torn_writes: TornWrites::default(),
            block_bytes,
            durability: Durability::default(),
            limit_use: LimitUse::default(),
            reasons: FailureReasons::default(),
            stopped: None,
        };
        let disks: Vec<_> = disks.map(disk).collect();
        Self {
            moment: 0,
            open: BTreeMap::new(),
            spared,
            flushes: Flushes::new(config.shared_write_cache),
            first_attempts: FirstAttempts::new(disks.len()),
            closed_paths: ClosedPaths::default(),
            lost_attempts: LostAttempts::default(),
            disks,
            replaced: BTreeSet::new(),
            array_reads: ArrayReads::default(),
            config: *config,
            write_zeroes_max: None,
            violation: None,
            history: History::new(is_recorded),
            counts: Counts::default(),
        }
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// An invariant is broken. Only the first violation counts, as others may follow from it.
    pub(crate) fn violate(&mut self, at: Duration, block: Option<Block>, what: impl fmt::Display) {
        if self.violation.is_none() {
            let what = match block {
                Some(Block { disk, .. }) if self.disks.len() > 1 => format!("disk {disk}: {what}"),
                _ => what.to_string(),
            };
            self.violation = Some(Violation { what, block, at });
        }
    }

    /// The front-end of a disk has stopped all of its virtqueues.
    pub(crate) fn queues_stopped(&mut self, disk: usize) {
        self.counts.queue_stops += 1;
        self.disks[disk].stopped = Some(self.tick());
    }

    /// Virtqueues of a disk run again, or those of another front-end do.
    pub(crate) fn queues_started(&mut self, disk: usize) {
        self.disks[disk].stopped = None;
        self.lost_attempts.forget();
    }

    /// The operator has changed the limits of a disk.
    pub(crate) fn limits_set(&mut self, at: Duration, disk: usize, limits: Limits) {
        let open = self.open.values().filter(|request| request.disk == disk).count();
        self.disks[disk].limit_use = LimitUse::new(at, limits, open as u64);
    }

    /// The limits of a disk do not hold for requests that its virtqueues drain.
    pub(crate) fn limits_lifted(&mut self, disk: usize) {
        self.disks[disk].limit_use = LimitUse::default();
    }

    /// A node loses the namespace of a disk.
    pub(crate) fn namespace_gone(&mut self, node: usize, disk: usize) {
        self.closed_paths.namespace_gone(node, disk, self.open.keys().copied());
    }

    /// A node reports another namespace than a disk's.
    pub(crate) fn namespace_replaced(&mut self, node: usize) {
        self.replaced.insert(node);
    }

    /// The host has given up a path for good, because it leads to another namespace.
    pub(crate) fn path_refused(&mut self, at: Duration, path: usize) {
        if !self.replaced.contains(&path) {
            self.violate(at, None, format!("path {path} is refused, and its node has reported no other namespace"));
        }
    }

    /// A live association has ended because the controller did not answer within this time.
    pub(crate) fn association_timed_out(&mut self, at: Duration, allowed: Duration, keep_alive_tmo: Duration) {
        self.counts.associations_timed_out += 1;
        if allowed < keep_alive_tmo / 2 {
            let what = format!("an association ends after a silence of {allowed:?}, with a KATO of {keep_alive_tmo:?}");
            self.violate(at, None, what);
        }
    }

    /// The requests that are not answered.
    pub(crate) fn open_requests(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.keys().copied()
    }
}
