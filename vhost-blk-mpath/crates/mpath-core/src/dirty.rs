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
//! is no error. That is all if the one before ended in order, or if there was none. If it was killed there are such writes for all we
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

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::path::{Epoch, MAX_PATHS, PathId};

/// How late a flush may come in here: it waits in its virtqueue until the I/O thread looks. So one that comes in just after
/// another one failed was submitted before the guest could see that, and has to report the loss too; and one that comes in just
/// after a loss does not tell the guest of the last writes before it.
const STILL_UNDER_WAY: Duration = Duration::from_millis(100);

/// Dirty state of all paths of one disk, shared by its [`crate::Group`]s.
#[derive(Debug)]
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
    came_in: Instant,
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

    /// The path is removed, its last association having ended. Each group of the disk says so, before the id is used again.
    pub(crate) fn removed(&self, path: PathId) {
        let (_, mut ledger) = self.lock(path);
        debug_assert!(!ledger.alive, "only a path that is down is removed");
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

    /// A flush of the guest comes in: it covers the rounds up to this one, and reports the losses not reported so far.
    pub(crate) fn flush_submitted(&self, now: Instant, path: PathId) -> Owed {
        let (dirt, mut ledger) = self.lock(path);
        let reported = ledger.recent_report(now).unwrap_or(ledger.reported);
        Owed { round: dirt.end_round(&mut ledger), came_in: now, reported }
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
        if ledger.lost_at.is_some_and(|at| owed.came_in < at + STILL_UNDER_WAY) {
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
    /// If a loss was reported just now: up to which round losses had been reported before.
    fn recent_report(&self, now: Instant) -> Option<u64> {
        self.recently.filter(|(at, _)| now < *at + STILL_UNDER_WAY).map(|(_, before)| before)
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
mod tests {
    use super::*;

    const P: PathId = PathId(0);
    const E1: Epoch = Epoch(1);
    const E2: Epoch = Epoch(2);

    fn started() -> DirtyPaths {
        let dirty = DirtyPaths::new();
        dirty.up(Instant::now(), P, E1, false);
        dirty
    }

    fn is_dirty(dirty: &DirtyPaths) -> bool {
        dirty.need(P, None).dirty.is_some()
    }

    #[test]
    fn a_flush_cleans_what_completed_before_it_and_nothing_else() {
        let now = Instant::now();
        let dirty = started();
        assert!(!is_dirty(&dirty));
        dirty.mark(now, P, E1);
        assert!(is_dirty(&dirty));
        let round = dirty.begin_flush(P, E1).expect("alive");
        // Completed while the flush was on its way.
        dirty.mark(now, P, E1);
        dirty.flushed(P, E1, round);
        assert!(is_dirty(&dirty));
        let round = dirty.begin_flush(P, E1).expect("alive");
        dirty.flushed(P, E1, round);
        assert!(!is_dirty(&dirty));
    }

    #[test]
    fn a_flush_on_its_way_does_not_yet_make_clean() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        let _ = dirty.begin_flush(P, E1);
        assert!(is_dirty(&dirty), "a second flush must not be answered before the first");
    }

    #[test]
    fn a_loss_is_reported_by_every_flush_under_way_and_then_forgotten() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        dirty.lost(now, P, E1);
        dirty.up(now, P, E2, false);
        let now = now + STILL_UNDER_WAY;
        let first = dirty.flush_submitted(now, P);
        assert_eq!(dirty.need(P, None), Need { dirty: None, lost: true });
        dirty.flush_submitted(now, P);
        assert!(dirty.need(P, None).lost);
        dirty.report(now, P, first);
        assert!(!dirty.need(P, None).lost);
        dirty.mark(now, P, E2);
        dirty.lost(now, P, E2);
        assert!(dirty.need(P, None).lost, "a second loss is another error");
    }

    #[test]
    fn a_flush_that_came_in_before_the_report_reports_the_loss_too() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        dirty.lost(now, P, E1);
        dirty.up(now, P, E2, false);
        let now = now + STILL_UNDER_WAY;
        let (first, second) = (dirty.flush_submitted(now, P), dirty.flush_submitted(now, P));
        assert!(dirty.need(P, Some(first)).lost);
        dirty.report(now, P, first);
        assert!(dirty.need(P, Some(second)).lost, "it has not started yet, and its guest knows nothing");
        let third = dirty.flush_submitted(now + STILL_UNDER_WAY / 2, P);
        assert!(dirty.need(P, Some(third)).lost, "it may have waited in its virtqueue all the time");
        dirty.report(now + STILL_UNDER_WAY / 2, P, third);
        let fourth = dirty.flush_submitted(now + STILL_UNDER_WAY, P);
        assert!(!dirty.need(P, Some(fourth)).lost, "repeating it is no news");
    }

    #[test]
    fn what_the_guest_submitted_before_the_last_write_completed_tells_it_nothing_for_certain() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        let under_way = dirty.flush_submitted(now, P);
        dirty.lost(now, P, E1);
        dirty.up(now, P, E2, false);
        let just_after = dirty.flush_submitted(now + STILL_UNDER_WAY / 2, P);
        for early in [under_way, just_after] {
            dirty.report(now + STILL_UNDER_WAY, P, early);
            assert!(dirty.need(P, None).lost);
        }
        let later = dirty.flush_submitted(now + STILL_UNDER_WAY, P);
        dirty.report(now + STILL_UNDER_WAY, P, later);
        assert!(!dirty.need(P, None).lost);
    }

    #[test]
    fn a_report_does_not_cover_a_later_loss() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        dirty.lost(now, P, E1);
        dirty.up(now, P, E2, false);
        let flush = dirty.flush_submitted(now, P);
        dirty.mark(now, P, E2);
        dirty.lost(now, P, E2);
        dirty.report(now, P, flush);
        assert!(dirty.need(P, None).lost);
    }

    #[test]
    fn a_report_does_not_cover_what_was_not_lost_yet() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        dirty.lost(now, P, E1);
        dirty.up(now, P, E2, false);
        dirty.mark(now, P, E2);
        let flush = dirty.flush_submitted(now, P);
        dirty.report(now, P, flush);
        dirty.lost(now, P, E2);
        assert!(dirty.need(P, None).lost);
    }

    #[test]
    fn clean_associations_are_lost_without_harm() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        let round = dirty.begin_flush(P, E1).expect("alive");
        dirty.flushed(P, E1, round);
        dirty.lost(now, P, E1);
        assert!(!dirty.need(P, None).lost);
    }

    #[test]
    fn a_write_that_one_group_reports_after_another_saw_the_loss_is_lost() {
        let now = Instant::now();
        let dirty = started();
        dirty.lost(now, P, E1);
        dirty.mark(now, P, E1);
        assert!(dirty.need(P, None).lost);

        let dirty = started();
        dirty.up(now, P, E2, false);
        dirty.mark(now, P, E1);
        assert!(dirty.need(P, None).lost);
        assert!(!is_dirty(&dirty), "the new association has nothing to do with it");
    }

    #[test]
    fn a_flush_of_an_old_association_cleans_nothing_of_the_new_one() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        let round = dirty.begin_flush(P, E1).expect("alive");
        dirty.up(now, P, E2, false);
        dirty.mark(now, P, E2);
        dirty.flushed(P, E1, round);
        assert!(is_dirty(&dirty));
        assert_eq!(dirty.begin_flush(P, E1), None);
    }

    #[test]
    fn associations_are_presumed_dirty_until_a_flush_succeeds_and_only_with_a_volatile_cache() {
        let now = Instant::now();
        let dirty = DirtyPaths::new();
        dirty.up(now, P, E1, true);
        dirty.up(now, P, E1, true);
        let need = dirty.need(P, None).dirty.expect("presumed dirty");
        assert!(need.presumed);
        dirty.lost(now, P, E1);
        assert!(!dirty.need(P, None).lost, "no write of ours was lost");
        dirty.up(now, P, E2, true);
        assert!(dirty.need(P, None).dirty.expect("the controller may still have them").presumed);
        let round = dirty.begin_flush(P, E2).expect("alive");
        dirty.flushed(P, E2, round);
        dirty.up(now, P, Epoch(3), true);
        assert!(!is_dirty(&dirty));

        let dirty = DirtyPaths::new();
        dirty.up(now, P, E1, true);
        dirty.mark(now, P, E1);
        dirty.lost(now, P, E1);
        assert!(dirty.need(P, None).lost);
    }

    #[test]
    fn what_a_removed_path_lost_is_reported_and_the_next_one_is_presumed_dirty() {
        let now = Instant::now();
        let dirty = started();
        dirty.mark(now, P, E1);
        dirty.lost(now, P, E1);
        dirty.removed(P);
        assert!(dirty.need(P, None).lost);
        dirty.up(now, P, E2, true);
        let need = dirty.need(P, None);
        assert!(need.lost && need.dirty.is_some_and(|association| association.presumed), "{need:?}");
        dirty.lost(now, P, E2);
        let later = now + STILL_UNDER_WAY;
        let flush = dirty.flush_submitted(later, P);
        dirty.report(later, P, flush);
        assert!(!dirty.need(P, None).lost, "the first loss is told, and the second one is none");
    }

    /// Writers and flushers on real threads. What every write stores is the model's count of completed writes; what a
    /// flush proves durable is the count it read after `begin_flush`. A flush that `need` calls unnecessary must find
    /// everything that had finished before it already durable.
    #[test]
    fn threads_agree() {
        use std::sync::atomic::AtomicU64 as Count;
        let now = Instant::now();
        let dirty = started();
        let (completed, finished, durable) = (Count::new(0), Count::new(0), Count::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=20_000 {
                    completed.store(n, Ordering::SeqCst);
                    dirty.mark(now, P, E1);
                    finished.store(n, Ordering::SeqCst);
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while finished.load(Ordering::SeqCst) < 20_000 {
                        let must_cover = finished.load(Ordering::SeqCst);
                        if dirty.need(P, None).dirty.is_some() {
                            let round = dirty.begin_flush(P, E1).expect("alive");
                            let covers = completed.load(Ordering::SeqCst);
                            durable.fetch_max(covers, Ordering::SeqCst);
                            dirty.flushed(P, E1, round);
                        }
                        assert!(durable.load(Ordering::SeqCst) >= must_cover);
                    }
                });
            }
        });
    }
}
