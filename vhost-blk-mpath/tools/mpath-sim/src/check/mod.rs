//! Invariants of the disks, whatever fails.
//!
//! * `registers`: every block is a register with concurrent operations, seen from the guest.
//! * `durability`: what a flush promised survives a crash.
//! * `owed`: flushes go where their disk has something to be made durable, and fail only if it may have lost something.
//! * `excuses`: no other request fails without a reason.
//! * `limited`: no disk has more than its limits allow.
//! * `torn`: memory that a guest loses is zeroes in its writes, and no success.
//! * `store`: what changes the store belongs to a request of that disk that is not answered yet.
//! * Here: every request is answered once; a disk that is spared of all faults is not held up by those of the others.
//!
//! Moments are numbers that grow with everything that happens: of two moments the smaller one was before.

mod counts;
mod durability;
mod excuses;
mod limited;
mod owed;
mod pattern;
mod registers;
mod store;
mod torn;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use mpath_core::{AnaState, GroupConfig, IoError, Limits};

pub use self::counts::Counts;
use self::durability::Durability;
use self::excuses::{Excuses, Trouble};
use self::limited::Limited;
use self::owed::Owed;
pub(crate) use self::pattern::fill;
use self::registers::Registers;
use self::torn::TornWrites;
use crate::host::What;

/// Most lines of history in a report.
const HISTORY_MAX: usize = 100;

/// Whether commands may be sent to a namespace in this state (NVMe base specification 2.1, section 8.1.1). It is not the core's
/// answer, which is what is to be judged.
pub(crate) fn is_accessible(state: AnaState) -> bool {
    match state {
        AnaState::Optimized | AnaState::NonOptimized => true,
        AnaState::Inaccessible | AnaState::PersistentLoss | AnaState::Change => false,
    }
}

/// A moment.
pub(crate) type Moment = u64;

/// Who gave a block its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// No request yet.
    Initial,
    /// The request of this number.
    Request(u64),
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write { fua: bool },
    WriteZeroes { fua: bool },
    Discard,
    Flush,
}

impl Kind {
    pub(crate) fn is_zeroing(self) -> bool {
        matches!(self, Self::WriteZeroes { .. } | Self::Discard)
    }

    pub(crate) fn is_fua(self) -> bool {
        matches!(self, Self::Write { fua: true } | Self::WriteZeroes { fua: true })
    }

    fn changes_data(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }
}

/// A block of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The disk.
    pub disk: usize,
    /// The block.
    pub lba: u64,
}

/// What went wrong. It is found out once: what follows from it is of no interest.
#[derive(Debug, Clone)]
pub struct Violation {
    /// What must not be.
    pub what: String,
    /// The block it was seen on.
    pub block: Option<Block>,
    /// Virtual time.
    pub at: Duration,
}

/// Something that happened: when, to which request, on which blocks. All disks are meant if the blocks are none of one.
#[derive(Debug)]
struct Entry {
    at: Duration,
    id: u64,
    disk: Option<usize>,
    range: Range<u64>,
    text: String,
}

#[derive(Debug)]
struct Asked {
    disk: usize,
    kind: Kind,
    range: Range<u64>,
    submitted: Moment,
    at: Duration,
    /// What it has met.
    trouble: Trouble,
    /// Memory of its guest is gone.
    is_cut_off: bool,
}

/// What is watched of one disk.
#[derive(Debug)]
struct Disk {
    registers: Registers,
    torn: TornWrites,
    block_bytes: u64,
    durability: Durability,
    limited: Limited,
    excuses: Excuses,
    /// Since when none of its virtqueues runs.
    stopped: Option<Moment>,
}

/// How long a request of a spared disk may take.
const SPARED_MAX: Duration = Duration::from_secs(2);

/// Everything the guest did and saw, as far as it matters.
#[derive(Debug)]
pub(crate) struct Checker {
    moment: Moment,
    /// Requests not answered yet.
    open: BTreeMap<u64, Asked>,
    disks: Vec<Disk>,
    /// No fault concerns this one.
    spared: Option<usize>,
    pub(crate) owed: Owed,
    config: GroupConfig,
    pub(crate) violation: Option<Violation>,
    history: Option<Vec<Entry>>,
    pub(crate) counts: Counts,
}

impl Checker {
    /// For disks of `blocks` blocks of `block_bytes` bytes each.
    pub(crate) fn new(
        disks: impl Iterator<Item = (u64, u64)>,
        spared: Option<usize>,
        config: &GroupConfig,
        record: bool,
    ) -> Self {
        let disk = |(blocks, block_bytes)| Disk {
            registers: Registers::new(blocks),
            torn: TornWrites::default(),
            block_bytes,
            durability: Durability::default(),
            limited: Limited::default(),
            excuses: Excuses::default(),
            stopped: None,
        };
        Self {
            moment: 0,
            open: BTreeMap::new(),
            disks: disks.map(disk).collect(),
            spared,
            owed: Owed::new(config.shared_write_cache),
            config: *config,
            violation: None,
            history: record.then(Vec::new),
            counts: Counts::default(),
        }
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    pub(crate) fn violate(&mut self, at: Duration, block: Option<Block>, what: impl fmt::Display) {
        if self.violation.is_none() {
            let what = match block {
                Some(Block { disk, .. }) if self.disks.len() > 1 => format!("disk {disk}: {what}"),
                _ => what.to_string(),
            };
            self.violation = Some(Violation { what, block, at });
        }
    }

    fn note(&mut self, at: Duration, id: u64, disk: usize, range: Range<u64>, text: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(Entry { at, id, disk: Some(disk), range, text: text() });
        }
    }

    fn note_all(&mut self, at: Duration, text: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(Entry { at, id: 0, disk: None, range: 0..0, text: text() });
        }
    }

    /// What was recorded of a block.
    pub(crate) fn history_of(&self, block: Option<Block>) -> Vec<String> {
        let concerns = |entry: &&Entry| {
            let on = |block: Block| {
                let all = entry.range.is_empty() || entry.range.contains(&block.lba);
                entry.disk.is_none_or(|disk| disk == block.disk && all)
            };
            block.is_none_or(on)
        };
        let line = |Entry { at, id, disk, range, text }: &Entry| {
            let disk = disk.map_or(String::new(), |disk| format!("disk {disk} "));
            format!("{:>13.6} #{id:<5} {disk}{range:?} {text}", at.as_secs_f64())
        };
        let lines: Vec<String> = self.history.iter().flatten().filter(concerns).map(line).collect();
        lines[lines.len().saturating_sub(HISTORY_MAX)..].to_vec()
    }

    /// The guest of a disk asks.
    pub(crate) fn submitted(&mut self, at: Duration, disk: usize, id: u64, kind: Kind, range: Range<u64>) {
        let moment = self.tick();
        self.owe(disk, id, kind);
        let registers = &mut self.disks[disk].registers;
        match kind {
            Kind::Read => registers.read_submitted(id, range.clone()),
            Kind::Flush => {}
            Kind::Write { .. } | Kind::WriteZeroes { .. } | Kind::Discard => {
                registers.write_submitted(id, range.clone(), kind.is_zeroing(), moment);
            }
        }
        self.note(at, id, disk, range.clone(), || format!("{kind:?} submitted"));
        let trouble = self.disks[disk].excuses.so_far(at);
        let before =
            self.open.insert(id, Asked { disk, kind, range, submitted: moment, at, trouble, is_cut_off: false });
        assert!(before.is_none(), "the guest gives each request a number of its own");
    }

    fn owe(&mut self, disk: usize, id: u64, kind: Kind) {
        if kind == Kind::Flush {
            self.owed.flush_submitted(id, disk);
        } else if kind.changes_data() {
            self.owed.change_submitted(disk);
        }
    }

    /// Whether the host had a reason for this answer.
    fn check_reason(
        &mut self,
        now: Duration,
        id: u64,
        asked: &Asked,
        result: Result<(), IoError>,
    ) -> Result<(), String> {
        let &Asked { disk, kind, trouble, is_cut_off, .. } = asked;
        let (excuses, config) = (&self.disks[disk].excuses, &self.config);
        if kind == Kind::Flush {
            // One that any controller can carry out is a request like others.
            let is_explained = if config.shared_write_cache {
                excuses.explain(now, trouble, config)
            } else {
                excuses.explain_flush(now, trouble, config)
            };
            let of_loss = result.is_err() && !is_explained && !is_cut_off;
            return self.owed.flush_over(id, disk, of_loss);
        }
        if kind.changes_data() {
            self.owed.change_answered(disk);
        }
        if result.is_err() && !is_cut_off && !excuses.explain(now, trouble, config) {
            return Err(format!("#{id} of disk {disk} failed without need"));
        }
        Ok(())
    }

    /// The guest is answered; of a read, with these bytes.
    pub(crate) fn answered(&mut self, at: Duration, id: u64, result: Result<(), IoError>, data: &[u8]) {
        let moment = self.tick();
        let Some(asked) = self.open.remove(&id) else {
            return self.violate(at, None, format_args!("request #{id} was answered twice"));
        };
        if let Err(what) = self.check_reason(at, id, &asked, result) {
            self.violate(at, None, what);
        }
        let Asked { disk, kind, range, submitted, at: submitted_at, .. } = asked;
        if result.is_ok() && kind != Kind::Flush {
            self.check_limits(at, disk, if kind.is_zeroing() { 0 } else { range.end - range.start });
        }
        self.counts.answered += 1;
        self.counts.failed += u64::from(result.is_err());
        self.counts.answered_beside += u64::from(disk > 0);
        self.note(at, id, disk, range.clone(), || format!("{kind:?} answered: {result:?}"));
        let took = at.saturating_sub(submitted_at);
        if self.spared == Some(disk) && (result.is_err() || took > SPARED_MAX) {
            let what =
                format_args!("#{id} of disk {disk}, which no fault concerns, was answered {result:?} after {took:?}");
            self.violate(at, None, what);
        }
        let wrong = match kind {
            Kind::Read if result.is_ok() => {
                let block_bytes = data.len() / (range.end - range.start) as usize;
                let mut found = None;
                for (lba, bytes) in range.clone().zip(data.chunks_exact(block_bytes)) {
                    let block = Block { disk, lba };
                    if let Err(what) = self.judge_block(at, id, block, bytes) {
                        found.get_or_insert((block, what));
                    }
                }
                found
            }
            Kind::Read => None,
            Kind::Flush => {
                self.disks[disk].durability.flush_answered(submitted, moment, result.is_ok());
                None
            }
            Kind::Write { .. } | Kind::WriteZeroes { .. } | Kind::Discard => {
                let Disk { registers, durability, torn, .. } = &mut self.disks[disk];
                let first = Block { disk, lba: range.start };
                registers.write_answered(id, range, moment, result.is_ok());
                if result.is_ok() {
                    durability.acknowledged(id, moment, kind.is_fua());
                }
                let is_true = result.is_err() || torn.succeeds(id);
                (!is_true).then(|| (first, "success, though zeroes were written in place of its data".into()))
            }
        };
        self.disks[disk].registers.read_over(id);
        if let Some((block, what)) = wrong {
            self.violate(at, Some(block), format_args!("request #{id}: {what}"));
        }
    }

    /// The daemon was killed. It alone knew which controllers hold writes that no flush has covered.
    pub(crate) fn killed(&mut self, at: Duration) {
        self.counts.kills += 1;
        self.forget_daemon(at);
        self.forget_promises();
        self.note_all(at, || "the daemon was killed".into());
    }

    /// The daemon has ended in order; `is_written` if it could say what it leaves.
    pub(crate) fn ended(&mut self, at: Duration, is_written: bool) {
        self.counts.restarts += 1;
        self.forget_daemon(at);
        for (index, _) in self.disks.iter().enumerate().filter(|(_, disk)| disk.durability.is_in_doubt()) {
            // The daemon presumes unflushed writes of a killed one. If it cannot flush them, it tells the next daemon.
            self.owed.may_have_lost(index);
        }
        if !is_written {
            self.forget_promises();
        }
        self.note_all(at, || "the daemon has ended in order".into());
    }

    /// The daemon that follows does not know which controllers hold writes that no flush has covered.
    fn forget_promises(&mut self) {
        if !self.config.shared_write_cache {
            let moment = self.tick();
            self.disks.iter_mut().for_each(|disk| disk.durability.forgotten(moment));
        }
    }

    fn forget_daemon(&mut self, at: Duration) {
        let moment = self.tick();
        self.disks.iter_mut().for_each(|disk| disk.durability.ended(moment));
        self.owed.restarted();
        let open: Vec<_> = self.open.iter().map(|(&id, asked)| (asked.disk, id, asked.kind)).collect();
        for (disk, id, kind) in open {
            self.owe(disk, id, kind);
        }
        for disk in &mut self.disks {
            disk.limited = Limited::default();
            disk.excuses.killed(at);
            disk.stopped = None;
        }
    }

    /// A flush of a disk by the present daemon is about to succeed that had to reach every controller.
    pub(crate) fn recovered(&mut self, disk: usize) {
        self.disks[disk].durability.recovered();
    }

    /// A request went down with its daemon, and the next one begins to serve: it has no effect from now on.
    pub(crate) fn given_up(&mut self, at: Duration, id: u64) {
        let moment = self.tick();
        let Some(asked) = self.open.remove(&id) else { return };
        // Which is no error.
        let _ = self.check_reason(at, id, &asked, Ok(()));
        let Asked { disk, kind, range, .. } = asked;
        self.counts.given_up += 1;
        self.note(at, id, disk, range.clone(), || format!("{kind:?} given up"));
        let registers = &mut self.disks[disk].registers;
        match kind {
            Kind::Read => registers.read_over(id),
            Kind::Flush => {}
            Kind::Write { .. } | Kind::WriteZeroes { .. } | Kind::Discard => {
                registers.write_answered(id, range, moment, false);
            }
        }
    }

    /// The guest that waits for these is gone, though they may be executed yet. The result of a flush among them reaches no guest.
    pub(crate) fn unheard(&mut self, ids: impl Iterator<Item = u64>) {
        let moment = self.tick();
        for asked in ids.filter_map(|id| self.open.get(&id)).filter(|asked| asked.kind == Kind::Flush) {
            self.disks[asked.disk].durability.flush_answered(asked.submitted, moment, false);
        }
    }

    /// The front-end of a disk has stopped all of its virtqueues.
    pub(crate) fn queues_stopped(&mut self, disk: usize) {
        self.counts.stops += 1;
        self.disks[disk].stopped = Some(self.tick());
    }

    /// They run again, or those of another front-end do.
    pub(crate) fn queues_started(&mut self, disk: usize) {
        self.disks[disk].stopped = None;
    }

    /// The operator has changed the limits of a disk.
    pub(crate) fn limit(&mut self, at: Duration, disk: usize, limits: Limits) {
        let open = self.open.values().filter(|asked| asked.disk == disk).count();
        self.disks[disk].limited = Limited::new(at, limits, open as u64);
    }

    /// The limits of a disk do not hold for what its virtqueues drain.
    pub(crate) fn limits_lifted(&mut self, disk: usize) {
        self.disks[disk].limited = Limited::default();
    }

    /// The path to a disk has executed a request with `blocks` blocks of data.
    fn check_limits(&mut self, at: Duration, disk: usize, blocks: u64) {
        let Disk { limited, block_bytes, .. } = &mut self.disks[disk];
        if let Err(what) = limited.take(at, blocks * *block_bytes) {
            self.violate(at, None, format_args!("disk {disk} has more than its limits allow: {what}"));
        }
    }

    /// An association has ended.
    pub(crate) fn association_lost(&mut self, at: Duration) {
        self.counts.associations_lost += 1;
        if self.spared.is_some() {
            self.violate(at, None, "an association was lost though one of its disks was spared");
        }
    }

    /// A command of a disk has ended with an error, of which the host knows. The requests are meant that it can have been part of; `blocks` are not known
    /// of every command.
    pub(crate) fn command_failed(&mut self, disk: usize, what: What, blocks: Option<&Range<u64>>, is_final: bool) {
        let is_meant = |asked: &Asked| {
            let is_of_kind = match what {
                What::Flush => asked.kind == Kind::Flush,
                What::Read => asked.kind == Kind::Read,
                What::Change => asked.kind.changes_data(),
            };
            let is_there = |blocks: &Range<u64>| asked.range.start <= blocks.start && blocks.end <= asked.range.end;
            asked.disk == disk && is_of_kind && blocks.is_none_or(is_there)
        };
        for asked in self.open.values_mut().filter(|asked| is_meant(asked)) {
            asked.trouble.refused += u64::from(is_final);
            asked.trouble.errors += u64::from(!is_final);
        }
    }

    /// An I/O thread has a path to a disk, or none.
    pub(crate) fn has_path(&mut self, at: Duration, thread: usize, disk: usize, has_path: bool) {
        self.disks[disk].excuses.has_path(at, thread, has_path);
    }

    /// A connection of an I/O queue has ended.
    pub(crate) fn queue_lost(&mut self) {
        self.disks.iter_mut().for_each(|disk| disk.excuses.lost());
    }

    /// An I/O thread has an injection in force on a path, or none any more.
    pub(crate) fn injected(&mut self, begins: bool) {
        self.disks.iter_mut().for_each(|disk| disk.excuses.injected(begins));
    }

    /// A link flips bits, or does no more.
    pub(crate) fn corrupted(&mut self, begins: bool) {
        self.disks.iter_mut().for_each(|disk| disk.excuses.corrupted(begins));
    }

    /// Whether what I/O threads hear is what they were told.
    pub(crate) fn are_answers_altered(&self) -> bool {
        self.disks.first().is_some_and(|disk| disk.excuses.are_answers_altered())
    }

    /// Requests not answered.
    pub(crate) fn open(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.keys().copied()
    }
}
