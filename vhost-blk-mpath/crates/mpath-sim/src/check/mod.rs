//! What must be true of the disk, whatever fails.
//!
//! * `registers`: every block is a register with concurrent operations, seen from the guest.
//! * `durability`: what a flush promised survives a crash.
//! * Here: what changes the store belongs to a request that is not answered yet; every request is answered once.
//!
//! Moments are numbers that grow with everything that happens: of two moments the smaller one was before.

mod durability;
mod pattern;
mod registers;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use mpath_core::IoError;

use self::durability::Durability;
pub(crate) use self::pattern::fill;
use self::registers::Registers;
use crate::target::store::Loss;

/// Most lines of history in a report.
const HISTORY_MAX: usize = 100;

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
}

/// What went wrong. It is found out once: what follows from it is of no interest.
#[derive(Debug, Clone)]
pub struct Violation {
    /// What must not be.
    pub what: String,
    /// The block it was seen on.
    pub block: Option<u64>,
    /// Virtual time.
    pub at: Duration,
}

type Entry = (Duration, u64, Range<u64>, String);

#[derive(Debug)]
struct Asked {
    kind: Kind,
    range: Range<u64>,
    submitted: Moment,
}

/// Everything the guest did and saw, as far as it matters.
#[derive(Debug)]
pub(crate) struct Checker {
    moment: Moment,
    /// Requests not answered yet.
    open: BTreeMap<u64, Asked>,
    registers: Registers,
    durability: Durability,
    /// Final errors: given by nodes, and not yet heard of.
    refusals: u64,
    pub(crate) violation: Option<Violation>,
    /// What happened when, to which request, on which blocks.
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
    /// Daemons killed.
    pub kills: u64,
    /// Requests that went down with their daemon.
    pub given_up: u64,
    /// Events.
    pub events: u64,
}

impl Checker {
    pub(crate) fn new(blocks: u64, record: bool) -> Self {
        Self {
            moment: 0,
            open: BTreeMap::new(),
            registers: Registers::new(blocks),
            durability: Durability::default(),
            refusals: 0,
            violation: None,
            history: record.then(Vec::new),
            counts: Counts::default(),
        }
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    pub(crate) fn violate(&mut self, at: Duration, block: Option<u64>, what: impl fmt::Display) {
        if self.violation.is_none() {
            self.violation = Some(Violation { what: what.to_string(), block, at });
        }
    }

    fn note(&mut self, at: Duration, id: u64, range: Range<u64>, text: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push((at, id, range, text()));
        }
    }

    /// What was recorded of a block.
    pub(crate) fn history_of(&self, block: Option<u64>) -> Vec<String> {
        let all = self.history.iter().flatten();
        let concerns = |range: &Range<u64>| block.is_none_or(|block| range.is_empty() || range.contains(&block));
        let lines = all.filter(|(_, _, range, _)| concerns(range));
        let lines: Vec<String> = lines
            .map(|(at, id, range, text)| format!("{:>13.6} #{id:<5} {range:?} {text}", at.as_secs_f64()))
            .collect();
        lines[lines.len().saturating_sub(HISTORY_MAX)..].to_vec()
    }

    /// The guest asks.
    pub(crate) fn submitted(&mut self, at: Duration, id: u64, kind: Kind, range: Range<u64>) {
        let moment = self.tick();
        match kind {
            Kind::Read => self.registers.read_submitted(id, range.clone()),
            Kind::Flush => {}
            Kind::Write { .. } | Kind::WriteZeroes { .. } | Kind::Discard => {
                self.registers.write_submitted(id, range.clone(), kind.is_zeroing(), moment);
            }
        }
        self.note(at, id, range.clone(), || format!("{kind:?} submitted"));
        let before = self.open.insert(id, Asked { kind, range, submitted: moment });
        assert!(before.is_none(), "the guest gives each request a number of its own");
    }

    /// The guest is answered; of a read, with these bytes.
    pub(crate) fn answered(&mut self, at: Duration, id: u64, result: Result<(), IoError>, data: &[u8]) {
        let moment = self.tick();
        let Some(Asked { kind, range, submitted }) = self.open.remove(&id) else {
            return self.violate(at, None, format_args!("request #{id} was answered twice"));
        };
        self.counts.answered += 1;
        self.counts.failed += u64::from(result.is_err());
        self.note(at, id, range.clone(), || format!("{kind:?} answered: {result:?}"));
        let wrong = match kind {
            Kind::Read if result.is_ok() => {
                let block_bytes = data.len() / (range.end - range.start) as usize;
                let mut found = None;
                for (lba, bytes) in range.clone().zip(data.chunks_exact(block_bytes)) {
                    match pattern::parse(bytes, lba) {
                        Ok(origin) => {
                            self.note(at, id, lba..lba + 1, || format!("  read {origin:?}"));
                            if let Err(what) = self.registers.read(id, lba, origin, moment) {
                                found.get_or_insert((Some(lba), what));
                            }
                        }
                        Err(what) => {
                            found.get_or_insert((Some(lba), what));
                        }
                    }
                }
                found
            }
            Kind::Read => None,
            Kind::Flush => {
                self.durability.flush_answered(submitted, moment, result.is_ok());
                None
            }
            Kind::Write { fua } | Kind::WriteZeroes { fua } => {
                self.registers.write_answered(id, range, moment, result.is_ok());
                if result.is_ok() {
                    self.durability.acknowledged(id, moment, fua);
                }
                None
            }
            Kind::Discard => {
                self.registers.write_answered(id, range, moment, result.is_ok());
                if result.is_ok() {
                    self.durability.acknowledged(id, moment, false);
                }
                None
            }
        };
        self.registers.read_over(id);
        if let Some((block, what)) = wrong {
            self.violate(at, block, format_args!("request #{id}: {what}"));
        }
    }

    /// The daemon was killed. It alone knew which controllers hold writes that no flush has covered.
    pub(crate) fn killed(&mut self, at: Duration) {
        let moment = self.tick();
        self.counts.kills += 1;
        self.durability.forgotten(moment);
        self.note(at, 0, 0..0, || "the daemon was killed".into());
    }

    /// A flush of the present daemon is about to succeed that had to reach every controller.
    pub(crate) fn recovered(&mut self) {
        self.durability.recovered();
    }

    /// A request went down with its daemon, and the next one begins to serve: it has no effect from now on.
    pub(crate) fn given_up(&mut self, at: Duration, id: u64) {
        let moment = self.tick();
        let Some(Asked { kind, range, .. }) = self.open.remove(&id) else { return };
        self.counts.given_up += 1;
        self.note(at, id, range.clone(), || format!("{kind:?} given up"));
        match kind {
            Kind::Read => self.registers.read_over(id),
            Kind::Flush => {}
            Kind::Write { .. } | Kind::WriteZeroes { .. } | Kind::Discard => {
                self.registers.write_answered(id, range, moment, false);
            }
        }
    }

    /// A node has given a final error.
    pub(crate) fn refusal_given(&mut self) {
        self.refusals += 1;
    }

    /// The host has heard of one.
    pub(crate) fn refusal_heard(&mut self, at: Duration) {
        match self.refusals.checked_sub(1) {
            Some(left) => self.refusals = left,
            None => self.violate(at, None, "a request was refused, and no node had refused any"),
        }
    }

    /// The store is about to be changed by a command with this payload (none: zeroes): whose it is.
    pub(crate) fn applying(
        &mut self,
        at: Duration,
        node: usize,
        range: Range<u64>,
        payload: Option<&[u8]>,
        orphan: bool,
    ) -> Origin {
        self.tick();
        self.counts.applied += 1;
        self.counts.late += u64::from(orphan);
        let id = if let Some(payload) = payload {
            let block_bytes = payload.len() / (range.end - range.start) as usize;
            let blocks = range.clone().zip(payload.chunks_exact(block_bytes));
            let mut origins = blocks.map(|(lba, block)| pattern::parse(block, lba));
            let first = origins.next().unwrap_or(Ok(Origin::Initial));
            match origins
                .fold(first.clone(), |same, next| if next == first { same } else { next.and(Err("mixed".into())) })
            {
                Ok(Origin::Request(id)) => Some(id),
                Ok(Origin::Initial) => {
                    self.violate(at, Some(range.start), "zeroes were written that nobody wrote");
                    return Origin::Initial;
                }
                Err(what) => {
                    self.violate(at, Some(range.start), format_args!("written to the store: {what}"));
                    return Origin::Initial;
                }
            }
        } else {
            let zeroes = |asked: &Asked| asked.kind.is_zeroing() && asked.range == range;
            self.open.iter().find(|(_, asked)| zeroes(asked)).map(|(&id, _)| id)
        };
        let alone = if orphan { ", its connection being gone" } else { "" };
        let Some(id) = id else {
            self.violate(at, Some(range.start), format_args!("node {node} zeroed {range:?} for nobody{alone}"));
            return Origin::Initial;
        };
        self.note(at, id, range.clone(), || format!("  executed by node {node}{alone}"));
        match self.open.get(&id).map(|asked| asked.range.clone()) {
            None => self.violate(
                at,
                Some(range.start),
                format_args!("stale write: node {node} executed #{id} after it had been answered{alone}"),
            ),
            Some(asked) if asked.start > range.start || asked.end < range.end => {
                self.violate(at, Some(range.start), format_args!("#{id} for {asked:?} wrote {range:?}"));
            }
            Some(_) => {}
        }
        Origin::Request(id)
    }

    /// A flush has succeeded for the guest: what it covers must not be in any cache.
    pub(crate) fn flushed(&mut self, at: Duration, cached: impl Iterator<Item = (u64, usize, Origin)>) {
        for (lba, node, origin) in cached {
            if self.durability.is_promised(origin) {
                let what = format_args!("{origin:?} is not durable at node {node} though a flush of it succeeded");
                return self.violate(at, Some(lba), what);
            }
        }
    }

    /// A node has lost its cache.
    pub(crate) fn crashed(&mut self, at: Duration, node: usize, losses: &[Loss]) {
        let moment = self.tick();
        self.note(at, 0, 0..0, || format!("node {node} crashed"));
        for loss in losses {
            for origin in &loss.gone {
                if self.durability.is_promised(*origin) && !loss.left.contains(origin) {
                    let what = format_args!("lost write: {origin:?} was promised to be durable, node {node} lost it");
                    self.violate(at, Some(loss.lba), what);
                }
            }
            if loss.visible {
                self.counts.lost += 1;
                self.registers.reverted(loss.lba, moment);
                self.note(at, 0, loss.lba..loss.lba + 1, || format!("  fell back to {:?}", loss.left.last()));
            }
        }
    }

    /// Requests not answered.
    pub(crate) fn open(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.keys().copied()
    }
}
