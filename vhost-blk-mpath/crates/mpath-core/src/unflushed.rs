//! Decides: a flush reports a loss.
//!
//! Which controllers may hold completed writes that no flush has covered.
//!
//! An NVMe flush covers only writes that the same controller completed (NVM Command Set, "Flush command"). A
//! virtio-blk flush covers every write that the guest saw complete, on any path, virtqueue and I/O thread. So
//! unflushed state is kept per path, and the [`crate::Group`]s of a disk share it.
//!
//! **Rounds.** One bit per path is not enough. If a flush cleared it when sent, a second flush of another thread
//! could succeed before the first. If a flush cleared it when answered, writes that completed meanwhile would be
//! forgotten. So time is divided into rounds, and every flush that arrives or is sent ends a round. A completed write
//! marks its round unflushed. A successful flush covers all rounds up to the round that it ended.
//!
//! **Ordering.** A write marks its path before its `Finish` is returned, so before the guest can submit a flush that
//! must cover the write. The lock of the ledger makes the mark visible to the thread that serves the flush. In the
//! common case the path already has a mark in this round. Then marking takes no lock, only one load. The load may
//! race with a flush of another thread that ends the round. If the load still sees the mark, the load came before the
//! flush cleared it (both are sequentially consistent). The flush is sent after that, and the write completed before
//! the load. So the flush covers the write, and the ledger keeps the mark for the ended round.
//!
//! **Loss.** An association ended with an unflushed write: the write may be gone with a cache, and a flush through
//! another association proves nothing about it. So the next flush that covers the write fails. Every other flush fails
//! too if it arrived before the guest got that failure, or just after. Then the loss is forgotten (as `errseq` in
//! Linux), because nothing can prove the write durable later. A loss never passes as a silent success. FUA writes, and
//! writes to a controller without a volatile write cache, are durable when completed and set no mark.
//!
//! **Presumption.** An earlier daemon may have left writes in a cache. Until a flush has succeeded on a path, each
//! association starts as *presumed* unflushed. Flushes go there too, but the loss of such a path is no error. An
//! earlier daemon that ended in order has reported its own losses, so a presumption has no other effect. After a daemon
//! that was killed, such writes are assumed to exist. Then a presumed path counts as unflushed, and one flush fails if
//! it cannot reach the path while the association lives.
//!
//! **Persistent loss.** An ANA group in this state has lost what was in its caches, although the association lives
//! on. The loss counts from the reading of the ANA log page, though I/O threads are told later. If the group comes back,
//! a new [`CachePeriod`] begins, as with a new association. A write belongs to the period in which it was sent. A flush
//! proves nothing about earlier periods.
//!
//! The controller may leave the state as soon as it has answered the reading, and a flush through an I/O queue may overtake
//! that answer. So a flush that succeeds while the log is read proves nothing, and is repeated.
//!
//! **Failed flushes.** A flush that ends with an error of the medium or of the controller may have taken the data out of the
//! cache. A repeated flush then succeeds and proves nothing, so the writes until then count as lost.
//!
//! If a flush loses its path, or the namespace there, this is no loss when another flush has covered the same writes
//! meanwhile.
//!
//! **Removal.** The losses of a removed path stay in the ledger of its id until a flush has reported them. Rounds and
//! epochs continue from there, so the next path with this id starts as a new association of the old path would. It is
//! another path, though: it is presumed unflushed until a flush succeeds on it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use monotonic::{Duration, Instant};

use crate::{Epoch, MAX_PATHS, PathId};

/// The longest time for which a flush may have waited in its virtqueue although `since` does not say so. If a flush may
/// have waited longer, the I/O thread passes an earlier `since`. A flush that arrives just after a failed flush may
/// have been submitted before the guest saw the failure, so it reports the loss too. A flush that arrives just after a
/// loss may be older than the last lost writes, so it reports nothing of them.
const SUBMIT_DELAY_MAX: Duration = Duration::from_millis(100);

/// The ledger of a cache that all paths share. It knows only failed flushes.
pub(crate) const SHARED_CACHE: PathId = PathId(MAX_PATHS as u16);

/// Unflushed state of all paths of one disk, shared by its [`crate::Group`]s.
pub struct UnflushedPaths {
    /// By path, and [`SHARED_CACHE`].
    paths: Vec<UnflushedPath>,
    after_crash: AtomicBool,
}

#[derive(Debug, Default)]
struct UnflushedPath {
    /// [`CachePeriod::mark`] of the period with a marked write in the current round; 0 if there is none.
    marked: AtomicU64,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// The latest association.
    epoch: Option<Epoch>,
    /// How often the namespace was lost in this association; [`u32::MAX`] after the association ended.
    losses: u32,
    is_alive: bool,
    /// The latest association whose ANA log was being read, until the losses of this reading are recorded.
    ana_read_in: Option<Epoch>,
    round: u64,
    /// The latest round in which a write completed.
    unflushed_round: u64,
    /// `unflushed_round` is a presumption: no write of this daemon is behind it.
    is_presumed: bool,
    /// A flush has succeeded on this path. It covered the writes that an earlier daemon may have left.
    has_been_flushed: bool,
    /// Every round up to this one has been flushed.
    flushed_round: u64,
    /// The latest round with a write that was lost unflushed.
    lost_round: u64,
    /// The time of the latest loss.
    lost_at: Option<Instant>,
    /// Losses up to this round have been reported to the guest.
    reported_round: u64,
    /// The time of the latest report, and the round up to which losses had been reported before it.
    last_report: Option<(Instant, u64)>,
}

/// A point in time on one path. Writes that completed before it are in this round or an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round(u64);

/// The writes that a flush of the guest must cover on one path, fixed when the flush arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushScope {
    /// The flush covers writes that completed in this round or earlier.
    round: Round,
    /// The earliest time at which the guest may have submitted the flush.
    since: Instant,
    /// The round up to which losses had been reported when this flush arrived. This flush also reports losses that
    /// another flush reports later: the guest may not have seen that other flush fail.
    reported: u64,
}

/// The work of a flush that starts now, on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushNeed {
    /// The association to flush; `None` if the path has no unflushed write.
    pub(crate) unflushed: Option<UnflushedAssociation>,
    /// There is a loss that this flush has to report.
    pub(crate) lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnflushedAssociation {
    pub(crate) epoch: Epoch,
    pub(crate) is_presumed: bool,
}

/// The period in which a controller's cache keeps a write: a whole association, or the part of one that a persistent
/// loss of the namespace begins or ends. All groups of the disk count the same losses in the same order, but at
/// different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachePeriod {
    epoch: Epoch,
    losses: u32,
}

impl From<Epoch> for CachePeriod {
    /// The first period of an association.
    fn from(epoch: Epoch) -> Self {
        Self { epoch, losses: 0 }
    }
}

impl CachePeriod {
    /// The period after another loss.
    pub(crate) fn next(self) -> Self {
        Self { losses: self.losses + 1, ..self }
    }

    /// Never 0. An association does not last for 2^24 losses.
    fn mark(self) -> u64 {
        (self.epoch.0 + 1) << 24 | u64::from(self.losses & 0xff_ffff)
    }
}

/// Shows only paths that have had an association.
impl fmt::Debug for UnflushedPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = (0..).map(PathId).zip(&self.paths);
        let used = paths.filter(|(id, _)| self.lock(*id).1.epoch.is_some());
        f.debug_struct("UnflushedPaths")
            .field("after_crash", &self.after_crash)
            .field("paths", &UsedPaths(used.collect()))
            .finish()
    }
}

struct UsedPaths<'a>(Vec<(PathId, &'a UnflushedPath)>);

impl fmt::Debug for UsedPaths<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().copied()).finish()
    }
}

impl Default for UnflushedPaths {
    fn default() -> Self {
        Self::new()
    }
}

impl UnflushedPaths {
    /// The state for a disk that no earlier daemon served, or that an earlier daemon left in order.
    #[must_use]
    pub fn new() -> Self {
        Self { paths: (0..=MAX_PATHS).map(|_| UnflushedPath::default()).collect(), after_crash: AtomicBool::new(false) }
    }

    /// The state for a disk whose last daemon was killed: unflushed writes of that daemon may be in a cache.
    #[must_use]
    pub fn after_crash() -> Self {
        Self { after_crash: AtomicBool::new(true), ..Self::new() }
    }

    /// Records that the disk's last daemon was killed. Call it before any request of the disk is queued in a group.
    pub fn set_after_crash(&self) {
        self.after_crash.store(true, Ordering::Relaxed);
    }

    /// Whether the path's association may hold unflushed writes, of this daemon or of a killed one.
    ///
    /// If no group has a write in flight on the path, `false` remains true until a write is sent there.
    #[must_use]
    pub fn is_unflushed(&self, path: PathId) -> bool {
        let (_, ledger) = self.lock(path);
        ledger.is_unflushed() && (self.is_after_crash() || !ledger.is_presumed)
    }

    /// Records that an association begins. Each group of the disk reports it; the first report counts.
    pub(crate) fn association_begun(&self, now: Instant, path: PathId, epoch: Epoch, volatile_write_cache: bool) {
        let (entry, mut ledger) = self.lock(path);
        if ledger.epoch >= Some(epoch) {
            return;
        }
        entry.end_period(now, &mut ledger);
        (ledger.epoch, ledger.losses) = (Some(epoch), 0);
        ledger.begin(volatile_write_cache);
    }

    /// Records that the namespace is lost although the association lives on. `after` is the period after the loss. Each
    /// group of the disk reports it; the first report counts.
    pub(crate) fn namespace_lost(&self, now: Instant, path: PathId, after: CachePeriod) {
        let (entry, mut ledger) = self.lock(path);
        if ledger.epoch == Some(after.epoch) && ledger.losses < after.losses {
            entry.end_period(now, &mut ledger);
            ledger.losses = after.losses;
        }
    }

    /// Records that the ANA log page reports the namespace as lost. Call it before the groups are told. A group may be
    /// told late, and until then none of its flushes may succeed that must cover the lost writes. No effect if a group
    /// knows already.
    pub fn loss_read(&self, now: Instant, path: PathId, epoch: Epoch) {
        let (entry, mut ledger) = self.lock(path);
        if ledger.epoch == Some(epoch) && ledger.is_alive {
            entry.end_period(now, &mut ledger);
            ledger.losses += 1;
        }
    }

    /// Records that the ANA log page of this association is read. Call it before the log is requested. Until
    /// [`ana_read`](Self::ana_read), a flush that succeeds there proves nothing: the log may report a loss that came before it.
    pub fn ana_reading_begun(&self, path: PathId, epoch: Epoch) {
        let (_, mut ledger) = self.lock(path);
        // The groups may still have to learn of the association.
        ledger.ana_read_in = Some(epoch);
    }

    /// Records that the ANA log page was read. Call it after [`loss_read`](Self::loss_read), and not if the association ends
    /// before the log is read: then its flushes prove nothing until each group knows of the end.
    pub fn ana_read(&self, path: PathId, epoch: Epoch) {
        let (_, mut ledger) = self.lock(path);
        ledger.ana_read_in.take_if(|read_in| *read_in == epoch);
    }

    /// Whether the ANA log page of this association is read, so that a flush that succeeds there proves nothing.
    #[must_use]
    pub fn is_ana_reading(&self, path: PathId, epoch: Epoch) -> bool {
        let (_, ledger) = self.lock(path);
        ledger.ana_read_in == Some(epoch)
    }

    /// Records that the namespace is accessible again. Each group of the disk reports it; the first report counts.
    pub(crate) fn namespace_back(&self, path: PathId, period: CachePeriod, volatile_write_cache: bool) {
        let (_, mut ledger) = self.lock(path);
        if (ledger.epoch, ledger.losses) == (Some(period.epoch), period.losses) && !ledger.is_alive {
            ledger.begin(volatile_write_cache);
        }
    }

    /// Records that an association has ended. Each group of the disk reports it; the first report counts.
    pub(crate) fn association_lost(&self, now: Instant, path: PathId, epoch: Epoch) {
        let (entry, mut ledger) = self.lock(path);
        if ledger.epoch == Some(epoch) && ledger.losses < u32::MAX {
            entry.end_period(now, &mut ledger);
            ledger.losses = u32::MAX;
        }
    }

    /// Whether writes are lost, or may be lost, that no flush has covered or reported. Ask when every group has ended
    /// and has flushed its caches ([`Group::begin_daemon_flush`](crate::Group::begin_daemon_flush)). Tell the next daemon by
    /// [`set_lost`](Self::set_lost).
    #[must_use]
    pub fn has_unreported_loss(&self) -> bool {
        self.has_known_loss() || Self::all_paths().any(|path| self.is_unflushed(path))
    }

    /// Whether writes were lost, and no flush has reported the loss.
    #[must_use]
    pub fn has_known_loss(&self) -> bool {
        Self::all_paths().any(|path| {
            let (_, ledger) = self.lock(path);
            ledger.lost_round > ledger.reported_round
        })
    }

    /// Whether a flush of the cache that all paths share has failed, and no flush has reported the loss.
    #[must_use]
    pub fn has_shared_cache_loss(&self) -> bool {
        let (_, ledger) = self.lock(SHARED_CACHE);
        ledger.lost_round > ledger.reported_round
    }

    /// Forgets the losses until now, so that no flush reports them. The guest that wrote the lost data is gone.
    pub fn forget_losses(&self) {
        for path in Self::all_paths().chain([SHARED_CACHE]) {
            let (entry, mut ledger) = self.lock(path);
            ledger.reported_round = ledger.reported_round.max(ledger.lost_round);
            // Later writes are in a later round than the losses.
            entry.end_round(&mut ledger);
        }
    }

    fn all_paths() -> impl Iterator<Item = PathId> {
        (0..MAX_PATHS as u16).map(PathId)
    }

    /// Records that the earlier daemon lost writes and that no flush has reported the loss. Flushes fail until one has
    /// reported it. A flush that the guest may have submitted before this daemon `began` fails and does not report.
    /// Call it before any request of the disk is queued in a group.
    pub fn set_lost(&self, began: Instant) {
        // The loss is older than every path. Any path's ledger can keep it until a flush has reported it. Flushes look either at
        // paths or at the shared cache.
        for path in [PathId(0), SHARED_CACHE] {
            let (entry, mut ledger) = self.lock(path);
            entry.end_round(&mut ledger);
            (ledger.lost_round, ledger.lost_at) = (entry.end_round(&mut ledger).0, Some(began));
        }
    }

    /// Records that the path is removed after its last association ended. Each group of the disk reports it before the
    /// id is used again. At the end of the daemon, other groups may have [closed](crate::Group::path_closed) the
    /// association; this does not end it here.
    pub(crate) fn path_removed(&self, path: PathId) {
        let (_, mut ledger) = self.lock(path);
        ledger.has_been_flushed = false;
    }

    /// Marks a completed write without FUA, sent in this period, as unflushed, or as lost if the period is over. Call
    /// it before the request finishes.
    pub(crate) fn mark(&self, now: Instant, path: PathId, period: impl Into<CachePeriod>) {
        let period = period.into();
        let mark = period.mark();
        let entry = &self.paths[path.index()];
        if entry.marked.load(Ordering::SeqCst) == mark {
            return;
        }
        let (_, mut ledger) = self.lock(path);
        if (ledger.epoch, ledger.losses) == (Some(period.epoch), period.losses) && ledger.is_alive {
            ledger.unflushed_round = ledger.round;
            ledger.is_presumed = false;
            entry.marked.store(mark, Ordering::SeqCst);
        } else {
            // Another group has already reported the end of the period.
            (ledger.lost_round, ledger.lost_at) = (ledger.round, Some(now));
        }
    }

    /// Fixes the scope of an arriving flush, which the guest submitted at `since` or later. The flush covers the rounds
    /// up to this one, and reports the losses not reported before.
    pub(crate) fn flush_submitted(&self, since: Instant, path: PathId) -> FlushScope {
        let (entry, mut ledger) = self.lock(path);
        let reported = ledger.recently_reported(since).unwrap_or(ledger.reported_round);
        FlushScope { round: entry.end_round(&mut ledger), since, reported }
    }

    /// The work of a flush that starts now, on this path. `scope` is `None` if the path was added after the flush
    /// arrived.
    pub(crate) fn need(&self, path: PathId, scope: Option<FlushScope>) -> FlushNeed {
        let (_, ledger) = self.lock(path);
        let reported = scope.map_or(ledger.reported_round, |scope| scope.reported);
        let association =
            UnflushedAssociation { epoch: ledger.epoch.unwrap_or(Epoch(0)), is_presumed: ledger.is_presumed };
        FlushNeed { unflushed: ledger.is_unflushed().then_some(association), lost: ledger.lost_round > reported }
    }

    /// Ends the round, because a flush command is about to be sent on this association. Returns the round that it will
    /// cover, or `None` if the association is over.
    pub(crate) fn begin_flush(&self, path: PathId, epoch: Epoch) -> Option<Round> {
        let (entry, mut ledger) = self.lock(path);
        (ledger.epoch == Some(epoch) && ledger.is_alive).then(|| entry.end_round(&mut ledger))
    }

    /// Records that a flush command has failed, and that the cache may have lost the writes until now. Returns `false` if the
    /// association is over, so that its loss is known already. A write of another queue pair may have been in the cache and be
    /// answered later. The flush that reports the loss covers it too, as it comes in at least [`SUBMIT_DELAY_MAX`] later.
    pub(crate) fn flush_failed(&self, now: Instant, path: PathId, epoch: Epoch) -> bool {
        let (entry, mut ledger) = self.lock(path);
        let is_current = ledger.epoch == Some(epoch) && ledger.is_alive;
        if is_current {
            (ledger.lost_round, ledger.lost_at) = (entry.end_round(&mut ledger).0, Some(now));
        }
        is_current
    }

    /// A flush of the cache that all paths share has failed.
    pub(crate) fn shared_flush_failed(&self, now: Instant) {
        let (entry, mut ledger) = self.lock(SHARED_CACHE);
        (ledger.lost_round, ledger.lost_at) = (entry.end_round(&mut ledger).0, Some(now));
    }

    /// Records that the flush command has succeeded. Returns `false`, and records nothing, if this proves nothing because the
    /// ANA log is being read.
    pub(crate) fn flushed(&self, path: PathId, epoch: Epoch, round: Round) -> bool {
        let (_, mut ledger) = self.lock(path);
        if ledger.ana_read_in == Some(epoch) {
            return false;
        }
        // A recorded loss stays, although this flush may have covered it: one error too many is safe.
        if ledger.epoch == Some(epoch) && ledger.is_alive {
            ledger.flushed_round = ledger.flushed_round.max(round.0);
            ledger.has_been_flushed = true;
        }
        true
    }

    /// Records that the controller has failed a flush that no guest sees. The writes that it had to cover count as lost,
    /// because a later flush that succeeds proves nothing about them.
    pub(crate) fn daemon_flush_failed(&self, now: Instant, path: PathId, epoch: Epoch, round: Round) {
        let (_, mut ledger) = self.lock(path);
        // Another flush may have covered the same writes meanwhile.
        if ledger.epoch == Some(epoch) && ledger.is_unflushed() && ledger.flushed_round < round.0 {
            ledger.lost_round = ledger.lost_round.max(round.0.min(ledger.unflushed_round));
            ledger.lost_at = Some(now);
            ledger.flushed_round = round.0;
        }
    }

    /// Whether presumed unflushed writes count as real ones.
    pub(crate) fn is_after_crash(&self) -> bool {
        // Relaxed is enough: this was set before the channel brought the request to the thread.
        self.after_crash.load(Ordering::Relaxed)
    }

    /// Clears the presumption that the association is unflushed: a flush could not reach the living association, and
    /// its failure tells the guest.
    pub(crate) fn report_presumed(&self, path: PathId, epoch: Epoch) {
        let (entry, mut ledger) = self.lock(path);
        if ledger.epoch == Some(epoch) && ledger.is_unflushed() && ledger.is_presumed {
            ledger.flushed_round = entry.end_round(&mut ledger).0;
            ledger.has_been_flushed = true;
        }
    }

    /// Records that a flush of the guest reports the losses on this path.
    pub(crate) fn report(&self, now: Instant, path: PathId, scope: FlushScope) {
        let (_, mut ledger) = self.lock(path);
        if ledger.lost_at.is_some_and(|at| scope.since < at + SUBMIT_DELAY_MAX) {
            // The guest may have submitted the flush before the last of these writes.
            return;
        }
        // A later loss is not reported by this flush, even of writes that completed before it: they were unflushed
        // then, not lost.
        let reported = scope.round.0.min(ledger.lost_round);
        // Each loss is reported once. Otherwise a guest that flushes in a loop would never see a flush succeed.
        if reported > ledger.reported_round {
            // An earlier report is older than `SUBMIT_DELAY_MAX`: this flush came in that long after the loss that it reports.
            ledger.last_report = Some((now, ledger.reported_round));
            ledger.reported_round = reported;
        }
    }

    /// Whether this association is the path's latest and is alive.
    pub(crate) fn is_current(&self, path: PathId, epoch: Epoch) -> bool {
        let (_, ledger) = self.lock(path);
        ledger.epoch == Some(epoch) && ledger.is_alive
    }

    /// Whether the cache still keeps the writes of this period.
    pub(crate) fn is_current_period(&self, path: PathId, period: CachePeriod) -> bool {
        let (_, ledger) = self.lock(path);
        (ledger.epoch, ledger.losses) == (Some(period.epoch), period.losses) && ledger.is_alive
    }

    fn lock(&self, path: PathId) -> (&UnflushedPath, MutexGuard<'_, Ledger>) {
        let entry = &self.paths[path.index()];
        // No code panics halfway through a change of the ledger.
        let ledger = entry.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        (entry, ledger)
    }
}

impl UnflushedPath {
    fn end_round(&self, ledger: &mut Ledger) -> Round {
        self.marked.store(0, Ordering::SeqCst);
        let ended = ledger.round;
        ledger.round += 1;
        Round(ended)
    }

    fn end_period(&self, now: Instant, ledger: &mut Ledger) {
        if ledger.is_unflushed() && !ledger.is_presumed {
            (ledger.lost_round, ledger.lost_at) = (ledger.unflushed_round, Some(now));
        }
        ledger.is_alive = false;
        let ended = self.end_round(ledger);
        ledger.flushed_round = ended.0;
    }
}

impl Ledger {
    /// The round up to which losses had been reported before, if the latest report came after `since` or just before
    /// it.
    fn recently_reported(&self, since: Instant) -> Option<u64> {
        self.last_report.filter(|(at, _)| since < *at + SUBMIT_DELAY_MAX).map(|(_, before)| before)
    }

    fn begin(&mut self, volatile_write_cache: bool) {
        self.is_alive = true;
        if !self.has_been_flushed && volatile_write_cache {
            self.unflushed_round = self.round;
            self.is_presumed = true;
        }
    }

    fn is_unflushed(&self) -> bool {
        self.is_alive && self.unflushed_round > self.flushed_round
    }
}

#[cfg(test)]
mod tests;
