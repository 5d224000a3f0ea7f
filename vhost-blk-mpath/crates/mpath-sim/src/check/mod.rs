//! What must be true of the disks, whatever fails.
//!
//! * `registers`: every block is a register with concurrent operations, seen from the guest.
//! * `durability`: what a flush promised survives a crash.
//! * `owed`: flushes go where their disk has something to be made durable, and fail only if it may have lost something.
//! * `excuses`: no other request fails without a reason.
//! * `limited`: no disk has more than its limits allow.
//! * Here: what changes the store belongs to a request of that disk that is not answered yet; every request is answered once; a disk
//!   that is spared of all faults is not held up by those of the others.
//!
//! Moments are numbers that grow with everything that happens: of two moments the smaller one was before.

mod durability;
mod excuses;
mod limited;
mod owed;
mod pattern;
mod registers;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{AddAssign, Range};
use std::time::Duration;

use mpath_core::{AnaState, GroupConfig, IoError, Limits};

use self::durability::Durability;
use self::excuses::{Excuses, Trouble};
use self::limited::Limited;
use self::owed::Owed;
pub(crate) use self::pattern::fill;
use self::registers::Registers;
use crate::target::store::Loss;

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
    /// Nobody yet.
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
    /// What had gone wrong before.
    trouble: Trouble,
}

/// What is watched of one disk.
#[derive(Debug)]
struct Disk {
    registers: Registers,
    block_bytes: u64,
    durability: Durability,
    limited: Limited,
    excuses: Excuses,
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

/// What a run was made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered.
    pub answered: u64,
    /// Of those, with an error.
    pub failed: u64,
    /// Of those, of other disks than the first.
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
    /// Reads sent a second time.
    pub hedges: u64,
    /// Of those, the ones whose data the guest was given.
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
    /// Associations that the operator ended, which owed nothing then.
    pub closed_in_order: u64,
    /// Daemons killed.
    pub kills: u64,
    /// Front-ends that hung up.
    pub hang_ups: u64,
    /// Requests that went down with their daemon, or their machine.
    pub given_up: u64,
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
        self.hedges += one.hedges;
        self.hedges_won += one.hedges_won;
        self.associations_lost += one.associations_lost;
        self.resets += one.resets;
        self.removals += one.removals;
        self.discovered += one.discovered;
        self.listed_no_more += one.listed_no_more;
        self.closed_in_order += one.closed_in_order;
        self.kills += one.kills;
        self.hang_ups += one.hang_ups;
        self.given_up += one.given_up;
        self.events += one.events;
    }
}

impl Checker {
    /// For disks of so many blocks of so many bytes each.
    pub(crate) fn new(
        disks: impl Iterator<Item = (u64, u64)>,
        spared: Option<usize>,
        config: &GroupConfig,
        record: bool,
    ) -> Self {
        let disk = |(blocks, block_bytes)| Disk {
            registers: Registers::new(blocks),
            block_bytes,
            durability: Durability::default(),
            limited: Limited::default(),
            excuses: Excuses::default(),
        };
        Self {
            moment: 0,
            open: BTreeMap::new(),
            disks: disks.map(disk).collect(),
            spared,
            owed: Owed::default(),
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
        let trouble = self.disks[disk].excuses.so_far();
        let before = self.open.insert(id, Asked { disk, kind, range, submitted: moment, at, trouble });
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
        let &Asked { disk, kind, at, trouble, .. } = asked;
        let (excuses, config) = (&self.disks[disk].excuses, &self.config);
        if kind == Kind::Flush {
            let took = now.saturating_sub(at);
            let of_loss = result.is_err() && !excuses.explain_flush(trouble, took, config);
            return self.owed.flush_over(id, disk, of_loss);
        }
        if kind.changes_data() {
            self.owed.change_answered(disk);
        }
        if result.is_err() && !excuses.explain(trouble, config) {
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
                    match pattern::parse(disk, bytes, lba) {
                        Ok(origin) => {
                            self.note(at, id, disk, lba..lba + 1, || format!("  read {origin:?}"));
                            if let Err(what) = self.disks[disk].registers.read(id, lba, origin, moment) {
                                found.get_or_insert((block, what));
                            }
                        }
                        Err(what) => {
                            found.get_or_insert((block, what));
                        }
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
                let Disk { registers, durability, .. } = &mut self.disks[disk];
                registers.write_answered(id, range, moment, result.is_ok());
                if result.is_ok() {
                    durability.acknowledged(id, moment, kind.is_fua());
                }
                None
            }
        };
        self.disks[disk].registers.read_over(id);
        if let Some((block, what)) = wrong {
            self.violate(at, Some(block), format_args!("request #{id}: {what}"));
        }
    }

    /// The daemon was killed. It alone knew which controllers hold writes that no flush has covered.
    pub(crate) fn killed(&mut self, at: Duration) {
        let moment = self.tick();
        self.counts.kills += 1;
        self.owed = Owed::default();
        let open: Vec<_> = self.open.iter().map(|(&id, asked)| (asked.disk, id, asked.kind)).collect();
        for (disk, id, kind) in open {
            self.owe(disk, id, kind);
        }
        for disk in &mut self.disks {
            disk.durability.forgotten(moment);
            disk.limited = Limited::default();
            disk.excuses.killed();
        }
        self.note_all(at, || "the daemon was killed".into());
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

    /// The guest that waits for these is gone, though they may be executed yet. What a flush among them reports nobody hears.
    pub(crate) fn unheard(&mut self, ids: impl Iterator<Item = u64>) {
        let moment = self.tick();
        for asked in ids.filter_map(|id| self.open.get(&id)).filter(|asked| asked.kind == Kind::Flush) {
            self.disks[asked.disk].durability.flush_answered(asked.submitted, moment, false);
        }
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

    /// The path to a disk has carried out a request of so many blocks of data.
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

    /// A command of a disk has ended with an error, of which the host knows.
    pub(crate) fn command_failed(&mut self, disk: usize, is_final: bool) {
        self.disks[disk].excuses.failed(is_final);
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

    /// The store is about to be changed by a command with this payload (none: zeroes): whose it is.
    pub(crate) fn applying(
        &mut self,
        at: Duration,
        node: usize,
        disk: usize,
        range: Range<u64>,
        payload: Option<&[u8]>,
        orphan: bool,
    ) -> Origin {
        let first = Some(Block { disk, lba: range.start });
        self.tick();
        self.counts.applied += 1;
        self.counts.late += u64::from(orphan);
        let id = if let Some(payload) = payload {
            let block_bytes = payload.len() / (range.end - range.start) as usize;
            let blocks = range.clone().zip(payload.chunks_exact(block_bytes));
            let mut origins = blocks.map(|(lba, block)| pattern::parse(disk, block, lba));
            let one = origins.next().unwrap_or(Ok(Origin::Initial));
            match origins.fold(one.clone(), |same, next| if next == one { same } else { next.and(Err("mixed".into())) })
            {
                Ok(Origin::Request(id)) => Some(id),
                Ok(Origin::Initial) => {
                    self.violate(at, first, "zeroes were written that nobody wrote");
                    return Origin::Initial;
                }
                Err(what) => {
                    self.violate(at, first, format_args!("written to the store: {what}"));
                    return Origin::Initial;
                }
            }
        } else {
            let zeroes = |asked: &Asked| asked.disk == disk && asked.kind.is_zeroing() && asked.range == range;
            self.open.iter().find(|(_, asked)| zeroes(asked)).map(|(&id, _)| id)
        };
        let alone = if orphan { ", its connection being gone" } else { "" };
        let Some(id) = id else {
            self.violate(at, first, format_args!("node {node} zeroed {range:?} for nobody{alone}"));
            return Origin::Initial;
        };
        self.note(at, id, disk, range.clone(), || format!("  executed by node {node}{alone}"));
        match self.open.get(&id).map(|asked| asked.range.clone()) {
            None => self.violate(
                at,
                first,
                format_args!("stale write: node {node} executed #{id} after it had been answered{alone}"),
            ),
            Some(asked) if asked.start > range.start || asked.end < range.end => {
                self.violate(at, first, format_args!("#{id} for {asked:?} wrote {range:?}"));
            }
            Some(_) => {}
        }
        Origin::Request(id)
    }

    /// A flush of a disk has succeeded for the guest: what it covers must not be in any cache.
    pub(crate) fn flushed(&mut self, at: Duration, disk: usize, cached: impl Iterator<Item = (u64, usize, Origin)>) {
        for (lba, node, origin) in cached {
            if self.disks[disk].durability.is_promised(origin) {
                let what = format_args!("{origin:?} is not durable at node {node} though a flush of it succeeded");
                return self.violate(at, Some(Block { disk, lba }), what);
            }
        }
    }

    /// A node has lost its cache of a disk.
    pub(crate) fn crashed(&mut self, at: Duration, node: usize, disk: usize, losses: &[Loss]) {
        let moment = self.tick();
        self.note(at, 0, disk, 0..0, || format!("node {node} crashed"));
        for loss in losses {
            for origin in &loss.gone {
                if self.disks[disk].durability.is_promised(*origin) && !loss.left.contains(origin) {
                    let what = format_args!("lost write: {origin:?} was promised to be durable, node {node} lost it");
                    self.violate(at, Some(Block { disk, lba: loss.lba }), what);
                }
            }
            if loss.visible {
                self.counts.lost += 1;
                self.disks[disk].registers.reverted(loss.lba, moment);
                self.note(at, 0, disk, loss.lba..loss.lba + 1, || format!("  fell back to {:?}", loss.left.last()));
            }
        }
    }

    /// Requests not answered.
    pub(crate) fn open(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.keys().copied()
    }
}
