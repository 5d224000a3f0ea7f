//! Which controllers hold completed writes that no flush has covered yet.
//!
//! A flush is promised only for what *that* controller completed (NVM Command Set, "Flush command"), while virtio-blk
//! promises the guest that a flush covers every write it saw complete, whatever path it took and whatever virtqueue,
//! hence I/O thread, it came through. So dirty state is kept per path and shared by the [`crate::Group`]s of a disk.
//!
//! **Rounds.** A bit per path would be too little: clearing it when a flush is sent would let a second flush of another
//! thread succeed before the first one has, clearing it when the flush is answered would forget the writes completed
//! meanwhile. So time is cut into rounds; every flush that comes in or goes out ends a round. A completed write dirties
//! the round it falls in, and a flush that succeeds cleans all rounds up to the one it ended.
//!
//! **Ordering.** A write marks its path before its `Finish` is given out, hence before the guest can know of it, hence
//! before a flush that must cover it can be submitted; the ledger's lock makes the mark visible to the thread that
//! serves that flush. The common case, a path already marked in this round, takes no lock: one load. It may race with a
//! flush of another thread that ends the round. If the load still sees the mark, it came before the flush cleared it
//! (both are sequentially consistent), and the flush is sent only after that; the write had completed before the load;
//! so the flush covers the write, and so does the mark, which stands in the ledger for the round that ended.
//!
//! **Loss.** A write completed on an association that ended unflushed may sit in a cache that is gone. A flush through
//! another association proves nothing about it. So the next flush that covers it fails, and so does every flush that had
//! come in when that one was answered, or comes in just after; then it is forgotten (as `errseq` in Linux, for nothing can ever prove it
//! later). Never is it a silent success. Writes with FUA and writes to a controller without a volatile write cache are
//! durable when completed and never mark.
//!
//! **Presumption.** A process before this one may have left writes behind in a cache. Until a flush has succeeded on a path, each
//! association therefore starts out *presumed* dirty: flushes go there too, but losing a path that is only presumed dirty
//! is no error. That is all if the one before ended in order, or if there was none: it has said itself what it lost. If it was killed there are such writes for all we
//! know: a path counts as dirty by them, and a flush that cannot reach it while it is live fails, once.
//!
//! **Persistent loss.** An ANA group in that state has lost what was in the caches, although the association lives on. If the group
//! comes back all the same, it does so as a new association would: a [`Life`] of its own. A write belongs to the one in which it was
//! sent, and a flush proves nothing about one before.
//!
//! A flush whose path is lost, or the namespace there, is no loss if another one has covered by then what it owes.
//!
//! **Removal.** What a removed path lost stays in the ledger of its id until a flush has reported it. Rounds and epochs go on
//! from there, so that the next path of that id finds itself where a new association of the old one would; but it is another
//! path, presumed dirty again until a flush succeeds there.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Epoch, MAX_PATHS, PathId};

/// How late a flush may come in here: it waits in its virtqueue until the I/O thread looks, which says so if that has taken longer. So one that comes in just after
/// another one failed was submitted before the guest could see that, and has to report the loss too; and one that comes in just
/// after a loss does not tell the guest of the last writes before it.
const STILL_UNDER_WAY: Duration = Duration::from_millis(100);

/// Dirty state of all paths of one disk, shared by its [`crate::Group`]s.
pub struct DirtyPaths {
    paths: Vec<PathDirt>,
    after_crash: AtomicBool,
}

#[derive(Debug, Default)]
struct PathDirt {
    /// [`Life::mark`] of the one that has a write marked in the current round; 0 if there is none.
    marked: AtomicU64,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// The latest association.
    epoch: Option<Epoch>,
    /// How often the namespace was lost in it; [`u32::MAX`] after its end.
    losses: u32,
    alive: bool,
    round: u64,
    /// The latest round in which a write completed.
    dirty: u64,
    /// `dirty` is a presumption, no write of ours is behind it.
    presumed: bool,
    /// A flush has succeeded, and with it covered what our predecessor may have left.
    settled: bool,
    /// Every round up to this one has been flushed.
    clean: u64,
    /// The latest round with a write that was lost unflushed.
    lost: u64,
    /// When that was lost.
    lost_at: Option<Instant>,
    /// Losses up to this round have been reported to the guest.
    reported: u64,
    /// When that happened last, and up to which round losses had been reported before.
    recently: Option<(Instant, u64)>,
}

/// A cut in time on one path: writes completed before it are in this round or an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round(u64);

/// What a flush of the guest has to cover on one path, fixed when it comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    /// Writes completed in this round at the latest.
    round: Round,
    /// It was not submitted before.
    since: Instant,
    /// Losses that had been reported by then. What is reported later, by another flush, this one has to report too:
    /// whoever waits for this one has not seen the other one fail.
    reported: u64,
}

/// What a flush that starts now owes one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The association to flush; `None` if it is clean.
    pub(crate) dirty: Option<DirtyAssociation>,
    /// There is a loss that no flush has reported yet.
    pub(crate) lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirtyAssociation {
    pub(crate) epoch: Epoch,
    pub(crate) presumed: bool,
}

/// What a write dirties: an association up to the first persistent loss of the namespace in it, or from one such loss to the next. Every
/// group of the disk hears of the same losses in the same order, and counts them, but not at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    epoch: Epoch,
    losses: u32,
}

impl From<Epoch> for Life {
    /// An association as it begins.
    fn from(epoch: Epoch) -> Self {
        Self { epoch, losses: 0 }
    }
}

impl Life {
    /// After another loss.
    pub(crate) fn next(self) -> Self {
        Self { losses: self.losses + 1, ..self }
    }

    /// Not 0. An association does not live to see 2^24 losses.
    fn mark(self) -> u64 {
        (self.epoch.0 + 1) << 24 | u64::from(self.losses & 0xff_ffff)
    }
}

/// Of the paths, those that have had an association.
impl fmt::Debug for DirtyPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = (0..).map(PathId).zip(&self.paths);
        let used = paths.filter(|(id, _)| self.lock(*id).1.epoch.is_some());
        f.debug_struct("DirtyPaths")
            .field("after_crash", &self.after_crash)
            .field("paths", &Used(used.collect()))
            .finish()
    }
}

struct Used<'a>(Vec<(PathId, &'a PathDirt)>);

impl fmt::Debug for Used<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().copied()).finish()
    }
}

impl Default for DirtyPaths {
    fn default() -> Self {
        Self::new()
    }
}

impl DirtyPaths {
    /// For a disk that no process served before, or the last one to do so ended in order.
    #[must_use]
    pub fn new() -> Self {
        Self { paths: (0..MAX_PATHS).map(|_| PathDirt::default()).collect(), after_crash: AtomicBool::new(false) }
    }

    /// For a disk whose last process was killed: what it had not flushed is in some cache.
    #[must_use]
    pub fn after_crash() -> Self {
        Self { after_crash: AtomicBool::new(true), ..Self::new() }
    }

    /// The same, found out later: before any request of the disk is queued in a group.
    pub fn set_after_crash(&self) {
        self.after_crash.store(true, Ordering::Relaxed);
    }

    /// Whether the path's association holds writes that no flush has covered, of ours or of a process that was killed.
    ///
    /// Once nothing that may dirty the path is in flight in any group, `false` stays so until something is sent there.
    #[must_use]
    pub fn is_dirty(&self, path: PathId) -> bool {
        let (_, ledger) = self.lock(path);
        ledger.is_dirty() && (self.is_after_crash() || !ledger.presumed)
    }

    /// An association begins. Each group of the disk says so; the first one counts.
    pub(crate) fn up(&self, now: Instant, path: PathId, epoch: Epoch, volatile_write_cache: bool) {
        let (dirt, mut ledger) = self.lock(path);
        if ledger.epoch >= Some(epoch) {
            return;
        }
        dirt.end_life(now, &mut ledger);
        (ledger.epoch, ledger.losses) = (Some(epoch), 0);
        ledger.begin(volatile_write_cache);
    }

    /// The namespace is lost, though the association lives on; this is how it stands after that. Each group of the disk says so; the
    /// first one counts.
    pub(crate) fn namespace_lost(&self, now: Instant, path: PathId, after: Life) {
        let (dirt, mut ledger) = self.lock(path);
        if ledger.epoch == Some(after.epoch) && ledger.losses < after.losses {
            dirt.end_life(now, &mut ledger);
            ledger.losses = after.losses;
        }
    }

    /// The namespace is accessible again after that. Each group of the disk says so; the first one counts.
    pub(crate) fn back(&self, path: PathId, life: Life, volatile_write_cache: bool) {
        let (_, mut ledger) = self.lock(path);
        if (ledger.epoch, ledger.losses) == (Some(life.epoch), life.losses) && !ledger.alive {
            ledger.begin(volatile_write_cache);
        }
    }

    /// An association has ended. Each group of the disk says so; the first one counts.
    pub(crate) fn lost(&self, now: Instant, path: PathId, epoch: Epoch) {
        let (dirt, mut ledger) = self.lock(path);
        if ledger.epoch == Some(epoch) && ledger.losses < u32::MAX {
            dirt.end_life(now, &mut ledger);
            ledger.losses = u32::MAX;
        }
    }

    /// Whether writes are lost, or may be, that no flush has covered or reported. To be asked when every group has ended, and
    /// [written back](crate::Group::begin_write_back) what it could. Whoever serves the disk next is to be told, by
    /// [`set_lost`](Self::set_lost).
    #[must_use]
    pub fn has_unreported_loss(&self) -> bool {
        let has_lost = |path| {
            let (_, ledger) = self.lock(path);
            ledger.lost > ledger.reported
        };
        (0..self.paths.len() as u16).map(PathId).any(|path| has_lost(path) || self.is_dirty(path))
    }

    /// The process before this one has lost writes and has reported that to no flush: the first flush fails that may have been submitted
    /// after this process began. Before any request of the disk is queued in a group.
    pub fn set_lost(&self, began: Instant) {
        // The loss is older than every path. The ledger of any id has it until a flush has reported it.
        let (dirt, mut ledger) = self.lock(PathId(0));
        dirt.end_round(&mut ledger);
        (ledger.lost, ledger.lost_at) = (dirt.end_round(&mut ledger).0, Some(began));
    }

    /// The path is removed, its last association having ended. Each group of the disk says so, before the id is used again. At the end of
    /// the daemon other groups may have [left](crate::Group::path_left) that association, which does not end it here.
    pub(crate) fn removed(&self, path: PathId) {
        let (_, mut ledger) = self.lock(path);
        ledger.settled = false;
    }

    /// A write without FUA has completed that was sent in this life. To be called before its request finishes.
    pub(crate) fn mark(&self, now: Instant, path: PathId, life: impl Into<Life>) {
        let life = life.into();
        let mark = life.mark();
        let dirt = &self.paths[path.index()];
        if dirt.marked.load(Ordering::SeqCst) == mark {
            return;
        }
        let (_, mut ledger) = self.lock(path);
        if (ledger.epoch, ledger.losses) == (Some(life.epoch), life.losses) && ledger.alive {
            ledger.dirty = ledger.round;
            ledger.presumed = false;
            dirt.marked.store(mark, Ordering::SeqCst);
        } else {
            // Another group has seen the end of that life already.
            (ledger.lost, ledger.lost_at) = (ledger.round, Some(now));
        }
    }

    /// A flush of the guest comes in, which was submitted then or later: it covers the rounds up to this one, and reports the losses
    /// not reported before.
    pub(crate) fn flush_submitted(&self, since: Instant, path: PathId) -> Owed {
        let (dirt, mut ledger) = self.lock(path);
        let reported = ledger.recent_report(since).unwrap_or(ledger.reported);
        Owed { round: dirt.end_round(&mut ledger), since, reported }
    }

    /// What does a flush that starts now owe this path? `owed` is `None` for a path added since it came in.
    pub(crate) fn need(&self, path: PathId, owed: Option<Owed>) -> Need {
        let (_, ledger) = self.lock(path);
        let reported = owed.map_or(ledger.reported, |owed| owed.reported);
        let association = DirtyAssociation { epoch: ledger.epoch.unwrap_or(Epoch(0)), presumed: ledger.presumed };
        Need { dirty: ledger.is_dirty().then_some(association), lost: ledger.lost > reported }
    }

    /// A flush command is about to be sent on this association: the round it will clean, or `None` if the association
    /// is over.
    pub(crate) fn begin_flush(&self, path: PathId, epoch: Epoch) -> Option<Round> {
        let (dirt, mut ledger) = self.lock(path);
        (ledger.epoch == Some(epoch) && ledger.alive).then(|| dirt.end_round(&mut ledger))
    }

    /// That flush command has succeeded.
    pub(crate) fn flushed(&self, path: PathId, epoch: Epoch, round: Round) {
        let (_, mut ledger) = self.lock(path);
        // After a loss was recorded it stays, though this flush may have covered it: an error too many is safe.
        if ledger.epoch == Some(epoch) && ledger.alive {
            ledger.clean = ledger.clean.max(round.0);
            ledger.settled = true;
        }
    }

    /// Whether what is presumed was there.
    pub(crate) fn is_after_crash(&self) -> bool {
        // Requests come to a thread by way of a channel, after this was set.
        self.after_crash.load(Ordering::Relaxed)
    }

    /// A flush could not reach this association while it lived, and fails: what was only presumed of it has been told thereby.
    pub(crate) fn presumed_in_vain(&self, path: PathId, epoch: Epoch) {
        let (dirt, mut ledger) = self.lock(path);
        if ledger.epoch == Some(epoch) && ledger.is_dirty() && ledger.presumed {
            ledger.clean = dirt.end_round(&mut ledger).0;
            ledger.settled = true;
        }
    }

    /// A flush of the guest tells it of the losses on this path.
    pub(crate) fn report(&self, now: Instant, path: PathId, owed: Owed) {
        let (_, mut ledger) = self.lock(path);
        if ledger.lost_at.is_some_and(|at| owed.since < at + STILL_UNDER_WAY) {
            // To the guest it may have nothing to do with the last of these writes.
            return;
        }
        // What is lost later has not been told, even if it completed before that flush: it was dirty, not lost, at the
        // time.
        let told = owed.round.0.min(ledger.lost);
        // Only news: a guest that flushes in a loop would otherwise never see one succeed again.
        if told > ledger.reported {
            let before = ledger.recent_report(now).unwrap_or(ledger.reported);
            ledger.recently = Some((now, before));
            ledger.reported = told;
        }
    }

    /// Whether this association is the path's latest and alive.
    pub(crate) fn is_current(&self, path: PathId, epoch: Epoch) -> bool {
        let (_, ledger) = self.lock(path);
        ledger.epoch == Some(epoch) && ledger.alive
    }

    fn lock(&self, path: PathId) -> (&PathDirt, MutexGuard<'_, Ledger>) {
        let dirt = &self.paths[path.index()];
        // No code below panics halfway through a change.
        let ledger = dirt.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        (dirt, ledger)
    }
}

impl PathDirt {
    fn end_round(&self, ledger: &mut Ledger) -> Round {
        self.marked.store(0, Ordering::SeqCst);
        let ended = ledger.round;
        ledger.round += 1;
        Round(ended)
    }

    fn end_life(&self, now: Instant, ledger: &mut Ledger) {
        if ledger.is_dirty() && !ledger.presumed {
            (ledger.lost, ledger.lost_at) = (ledger.dirty, Some(now));
        }
        ledger.alive = false;
        let ended = self.end_round(ledger);
        ledger.clean = ended.0;
    }
}

impl Ledger {
    /// If a loss was reported after then, or just before: up to which round losses had been reported before.
    fn recent_report(&self, since: Instant) -> Option<u64> {
        self.recently.filter(|(at, _)| since < *at + STILL_UNDER_WAY).map(|(_, before)| before)
    }

    fn begin(&mut self, volatile_write_cache: bool) {
        self.alive = true;
        if !self.settled && volatile_write_cache {
            self.dirty = self.round;
            self.presumed = true;
        }
    }

    fn is_dirty(&self) -> bool {
        self.alive && self.dirty > self.clean
    }
}

#[cfg(test)]
#[path = "dirty_tests.rs"]
mod tests;
