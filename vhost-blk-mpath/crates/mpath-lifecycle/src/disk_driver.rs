//! Decides: a disk takes one step at a time, so opening and growth never save it at once (`next`).
//! Decides: a growth that was not saved or shown is tried again (`done`).
//!
//! Drives the opening, the hold and the growth of a disk. The daemon carries out its steps over files and I/O threads, the
//! simulator over simulated ones.
//!
//! ```text
//!  paths, pending fences ──▶ DiskDriver ── step ──▶ files, front-ends, guests
//!                             ▲    └── hold.poll ──▶ I/O threads
//!                             └── done, thread_settled ── ┘
//! ```

#[cfg(test)]
mod tests;

use monotonic::{Duration, Instant};
use mpath_core::SharedDisk;

use crate::disk_hold::{DiskHold, InheritedFence, TriedPath};
use crate::disk_opening::{DiskOpening, OpeningStep};
use crate::disk_step::DiskStep;
use crate::disks::ServedNamespace;
use crate::growth::Growth;
use crate::pending_fences::PendingFence;

/// The surroundings of a disk, as its driver needs them.
#[derive(Debug)]
pub struct DiskView {
    /// Discovery adds no path of its first logs any more.
    pub first_logs_are_done: bool,
    /// All paths. Each thing that is known of them was posted to the I/O threads before.
    pub paths: Vec<TriedPath>,
    /// The namespace, once a path of this daemon has led there.
    pub served: Option<ServedNamespace>,
    /// The fence of a removed disk that the disk has to inherit.
    pub pending_fence: Option<PendingFence>,
}

/// Decides what happens to one disk, and when.
#[derive(Debug)]
pub struct DiskDriver {
    /// When front-ends are served.
    pub opening: DiskOpening,
    /// When requests are fetched. Its actions are carried out after each change, before the step that was returned.
    pub hold: DiskHold,
    growth: Option<Growth>,
    /// A growth was not saved, or not shown.
    grow_again_at: Option<Instant>,
    retry_delay: Duration,
    under_way: Option<DiskStep>,
    /// The inherited fences have passed, and the record has them still.
    has_passed_fences: bool,
    shared: SharedDisk,
}

impl DiskDriver {
    /// The driver of a disk whose namespace is not known. `is_cache_shared`: a flush of any controller covers the writes of
    /// all. A failed step is repeated after `retry_delay`.
    #[must_use]
    pub fn new(now: Instant, inherited: Option<InheritedFence>, is_cache_shared: bool, retry_delay: Duration) -> Self {
        let hold = DiskHold::new(inherited, is_cache_shared);
        Self {
            opening: DiskOpening::new(now, retry_delay),
            shared: hold.shared_disk(),
            hold,
            growth: None,
            grow_again_at: None,
            retry_delay,
            under_way: None,
            has_passed_fences: false,
        }
    }

    /// The state that I/O threads share about the disk.
    #[must_use]
    pub fn shared(&self) -> &SharedDisk {
        &self.shared
    }

    /// The step to be taken, or under way. `None` until something has changed, or until [`next_timeout`](Self::next_timeout).
    pub fn step(&mut self, now: Instant, view: &DiskView) -> Option<DiskStep> {
        let was_inherited = self.hold.inherited_fence().is_some();
        self.hold.update(now, view.first_logs_are_done, &view.paths);
        self.has_passed_fences |= was_inherited && self.hold.inherited_fence().is_none();
        self.grow_again_at.take_if(|at| *at <= now);
        if self.under_way.is_none() {
            self.under_way = self.next(now, view);
        }
        self.under_way.clone()
    }

    fn next(&mut self, now: Instant, view: &DiskView) -> Option<DiskStep> {
        if std::mem::take(&mut self.has_passed_fences) {
            return Some(DiskStep::ForgetFences);
        }
        if self.growth.is_none() {
            let step = self.next_of_opening(now, view);
            if step.is_some() || self.grow_again_at.is_some() {
                return step;
            }
            self.growth = Growth::begin(view.served?, view.paths.iter().filter_map(|path| path.blocks));
        }
        self.growth.as_ref().map(Growth::step)
    }

    fn next_of_opening(&mut self, now: Instant, view: &DiskView) -> Option<DiskStep> {
        Some(match self.opening.step(now, view.first_logs_are_done, &view.paths)? {
            OpeningStep::InheritFences => {
                let Some(pending) = &view.pending_fence else {
                    self.opening.done();
                    return self.next_of_opening(now, view);
                };
                DiskStep::InheritFence(pending.clone())
            }
            OpeningStep::RecordNamespace => DiskStep::RecordNamespace,
            OpeningStep::Save => DiskStep::Save { grow_to: None },
            OpeningStep::Serve => {
                self.hold.open(now, view.first_logs_are_done, &view.paths);
                // A path that finds the namespace from now on must not change what front-ends see.
                self.opening.done();
                DiskStep::Serve
            }
        })
    }

    /// The blocks that guests are to see in [`DiskStep::Show`], if these are more than they see. `sizes` has the blocks of the
    /// namespace on each path to it.
    #[must_use]
    pub fn to_show(&self, served: ServedNamespace, sizes: impl Iterator<Item = u64>) -> Option<u64> {
        self.growth.as_ref()?.to_show(served, sizes)
    }

    /// Reports that the step under way is done or has failed. [`step`](Self::step) has to follow.
    ///
    /// # Panics
    /// If no step is under way.
    pub fn done(&mut self, now: Instant, is_done: bool) {
        match (self.under_way.take().expect("a step is under way"), self.growth.take()) {
            (DiskStep::ForgetFences | DiskStep::Serve, growth) => self.growth = growth,
            (_, Some(growth)) => {
                self.growth = growth.done(is_done);
                if !is_done {
                    self.grow_again_at = Some(now + self.retry_delay);
                }
            }
            (_, None) if !is_done => self.opening.failed(now),
            (DiskStep::InheritFence(pending), None) => self.hold.inherit(pending.fence, &self.shared),
            (_, None) => self.opening.done(),
        }
    }

    /// When [`step`](Self::step) is due though nothing else has happened.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let of_steps = self.opening.next_timeout().into_iter().chain(self.grow_again_at);
        // The hold goes on while a step is under way.
        self.hold.next_timeout().into_iter().chain(of_steps.filter(|_| self.under_way.is_none())).min()
    }
}
