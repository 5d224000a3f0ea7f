//! Decides: requests of a disk are fetched.
//! Decides: a disk waits until each path was tried since a kill.
//!
//! Decides when requests of a disk are fetched from its virtqueues.
//!
//! ```text
//!  inherited fence ── its time has passed ────────────────┐
//!  untried paths ──── every path was tried after a kill ──┼──▶ requests are fetched
//!  writes in doubt ── every I/O thread has settled ───────┘
//! ```
//! A killed daemon may have left unflushed writes in the cache of any controller. The first flush of the next daemon has to reach
//! all controllers that can be reached. So no request is fetched until every path was tried. Only attempts count that began no
//! earlier than the attempt of the first working path.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};
use mpath_core::{SharedDisk, UnflushedPaths};

use crate::path::PathTrial;
use crate::record::DiskShutdown;

/// Attempts that begin within this time count as concurrent.
const CONCURRENT: Duration = Duration::from_secs(1);

/// The time until which earlier writes to a disk's namespace may be executed. A time that has passed means that no such
/// writes exist, though the earlier daemon did not end in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InheritedFence {
    /// The end of the fence.
    pub until: Instant,
    /// The disk of this daemon that sent the writes; `None` for an earlier daemon.
    pub of: Option<String>,
}

impl InheritedFence {
    /// The longest of `fences`, which [`Record::open`](crate::Record::open) has found for the disks that share their
    /// paths. Each of these disks waits for it, because the earlier daemon had all of them on the same associations.
    #[must_use]
    pub fn longest(now: Instant, fences: impl IntoIterator<Item = Option<Duration>>) -> Option<Self> {
        let longest = fences.into_iter().flatten().max()?;
        Some(Self { until: now + longest, of: None })
    }
}

/// Why a disk takes no requests because of an earlier daemon or a removed disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldReason {
    /// Earlier writes may be executed.
    InheritedFence(InheritedFence),
    /// The previous daemon was killed, and some path was not tried since the first path worked.
    UntriedPaths,
}

/// An action that the caller has to do for a held disk, in the order given.
#[derive(Debug, PartialEq, Eq)]
pub enum HoldAction {
    /// Have every I/O thread fetch nothing from the disk's virtqueues before this time.
    HoldUntil(Instant),
    /// Have every I/O thread fetch nothing from the disk's virtqueues until [`HoldAction::Resume`].
    Suspend,
    /// Have every I/O thread report once the disk is settled. [`DiskHold::thread_settled`] follows for each thread.
    TellWhenSettled,
    /// End [`HoldAction::Suspend`].
    Resume,
    /// Report that the disk is held.
    Held(HoldReason),
    /// The inherited fences have passed. If `was_held`, report that the disk is held no more.
    Released {
        /// [`HoldAction::Held`] came before.
        was_held: bool,
    },
}

/// A path of a disk, for [`DiskView`](crate::DiskView).
#[derive(Debug, Clone, Copy)]
pub struct TriedPath {
    /// Whether it was tried.
    pub trial: PathTrial,
    /// The blocks of the disk's namespace on it, if it is live and the namespace can be used.
    pub blocks: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No front-end is served.
    Closed,
    /// Front-ends are served. `was_held`: the disk was reported to be held.
    Open { was_held: bool },
}

/// Decides when requests of one disk are fetched.
#[derive(Debug)]
pub struct DiskHold {
    inherited: Option<InheritedFence>,
    /// A killed daemon may have left unflushed writes in any controller, and some path was not tried.
    awaits_paths: bool,
    is_cache_shared: bool,
    phase: Phase,
    /// The number of I/O threads that may still have writes of an earlier front-end.
    unsettled_threads: usize,
    is_suspended: bool,
    actions: VecDeque<HoldAction>,
}

impl DiskHold {
    /// The hold of a disk that is not open. `is_cache_shared`: a flush of any controller covers the writes of all.
    pub(crate) fn new(inherited: Option<InheritedFence>, is_cache_shared: bool) -> Self {
        Self {
            inherited,
            awaits_paths: false,
            is_cache_shared,
            phase: Phase::Closed,
            unsettled_threads: 0,
            is_suspended: false,
            actions: VecDeque::new(),
        }
    }

    /// The state that I/O threads share about the disk at its start. An earlier daemon that did not end in order may have
    /// left unflushed writes on any path.
    pub(crate) fn shared_disk(&self) -> SharedDisk {
        if self.inherited.is_some() { SharedDisk::after_crash() } else { SharedDisk::default() }
    }

    /// Adds a fence to wait for, and has the next flush cover unflushed writes of earlier disks too. To be called before
    /// the disk is opened. The longest fence counts. `shared` is the state that I/O threads share about the disk.
    pub(crate) fn inherit(&mut self, fence: InheritedFence, shared: &SharedDisk) {
        shared.unflushed.set_after_crash();
        let longest = self.inherited.take().into_iter().chain([fence]).max_by_key(|fence| fence.until);
        self.inherited = longest;
    }

    /// Ends the inherited fence: the operator says that no earlier write can be executed any more.
    pub fn end_fence(&mut self, now: Instant) {
        if let Some(fence) = self.inherited.as_mut().filter(|fence| fence.until > now) {
            fence.until = now;
            self.actions.push_back(HoldAction::HoldUntil(now));
        }
    }

    /// The fence that has to pass. `None` if there is none, or once [`HoldAction::Released`] has come.
    #[must_use]
    pub fn inherited_fence(&self) -> Option<&InheritedFence> {
        self.inherited.as_ref()
    }

    /// Whether the disk is open and nothing of earlier daemons and removed disks holds it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase != Phase::Closed && self.inherited.is_none()
    }

    /// The state of the disk after its shutdown, when all sockets are closed. `in_doubt` and `unanswered`: as in
    /// [`DiskShutdown`]. Writes count as lost if no flush has reported their loss, or if they are unflushed. A cache that
    /// all paths share keeps unflushed writes.
    #[must_use]
    pub fn at_shutdown(
        &self,
        now: Instant,
        in_doubt: bool,
        unanswered: bool,
        unflushed: &UnflushedPaths,
    ) -> DiskShutdown {
        let left = |fence: &InheritedFence| fence.until.saturating_duration_since(now);
        DiskShutdown {
            in_doubt,
            inherited_left: self.inherited.as_ref().map(left).unwrap_or_default(),
            // While the disk waits for paths, this daemon answers nothing, so the requests of the earlier daemon remain
            // unanswered.
            unanswered: unanswered || self.awaits_paths,
            lost_writes: if self.is_cache_shared {
                unflushed.has_shared_cache_loss()
            } else {
                unflushed.has_unreported_loss()
            },
        }
    }

    /// Why the disk takes no requests because of an earlier daemon or a removed disk.
    #[must_use]
    pub fn reason(&self, now: Instant) -> Option<HoldReason> {
        let fence = self.inherited.as_ref().filter(|fence| fence.until > now);
        let fence = fence.map(|fence| HoldReason::InheritedFence(fence.clone()));
        fence.or_else(|| self.awaits_paths.then_some(HoldReason::UntriedPaths))
    }

    /// Opens the disk: front-ends are served once the actions are done. The arguments are those of
    /// [`update`](Self::update), which has to follow.
    pub(crate) fn open(&mut self, now: Instant, first_logs_are_done: bool, paths: &[TriedPath]) {
        self.awaits_paths = self.inherited.is_some() && !self.is_cache_shared;
        let until = self.inherited.as_ref().map(|fence| fence.until).filter(|until| *until > now);
        self.actions.extend(until.map(HoldAction::HoldUntil));
        self.consider(first_logs_are_done, paths);
        let reason = self.reason(now);
        self.phase = Phase::Open { was_held: reason.is_some() };
        self.actions.extend(reason.map(HoldAction::Held));
    }

    /// Takes the state of all paths, which may have changed, and the time. The I/O threads know of each live path by
    /// now. `first_logs_are_done`: discovery adds no path of its first logs any more.
    pub(crate) fn update(&mut self, now: Instant, first_logs_are_done: bool, paths: &[TriedPath]) {
        let Phase::Open { was_held } = self.phase else { return };
        self.consider(first_logs_are_done, paths);
        // As long as a path was not tried, the next daemon has to know that the earlier one was killed.
        if self.reason(now).is_none() && self.inherited.take().is_some() {
            self.actions.push_back(HoldAction::Released { was_held });
        }
    }

    /// Records that a front-end has connected. Writes that an earlier front-end has left may still be executed, and must
    /// not overwrite what this one writes. So each of the `threads` I/O threads has to settle first.
    ///
    /// While threads are settling, no requests are fetched, so no more writes can be in doubt. Front-ends that connect
    /// again and again therefore leave one suspension, not many.
    pub fn front_end_connected(&mut self, threads: usize) {
        if self.unsettled_threads == 0 {
            self.unsettled_threads = threads;
            self.follow();
            self.actions.push_back(HoldAction::TellWhenSettled);
        }
    }

    /// Records that an I/O thread has settled.
    pub fn thread_settled(&mut self) {
        self.unsettled_threads = self.unsettled_threads.checked_sub(1).expect("once for each thread");
        self.follow();
    }

    fn consider(&mut self, first_logs_are_done: bool, paths: &[TriedPath]) {
        self.awaits_paths &= !(first_logs_are_done && were_all_tried(paths));
        self.follow();
    }

    /// Suspends or resumes the disk, if it has to change.
    fn follow(&mut self) {
        let is_suspended = self.awaits_paths || self.unsettled_threads > 0;
        if is_suspended != self.is_suspended {
            self.is_suspended = is_suspended;
            self.actions.push_back(if is_suspended { HoldAction::Suspend } else { HoldAction::Resume });
        }
    }

    /// When [`update`](Self::update) is due though no path has changed.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.inherited.as_ref().filter(|_| self.phase != Phase::Closed && !self.awaits_paths).map(|fence| fence.until)
    }

    /// The next action. `None` until something else has happened.
    pub fn poll(&mut self) -> Option<HoldAction> {
        self.actions.pop_front()
    }
}

/// Whether every path is live, is not tried any more, or was tried no earlier than the first working path.
fn were_all_tried(paths: &[TriedPath]) -> bool {
    let works = |path: &&TriedPath| path.trial.is_live && path.blocks.is_some();
    let first = paths.iter().filter(works).filter_map(|path| path.trial.tried_at).min();
    first.is_some_and(|first| {
        let since = first.checked_sub(CONCURRENT).unwrap_or(first);
        paths.iter().all(|path| path.trial.had_a_chance(since))
    })
}

#[cfg(test)]
mod tests;
