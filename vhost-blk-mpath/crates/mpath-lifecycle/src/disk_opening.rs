//! Decides: a front-end is served, or waits for a path; a restored disk grows at its first path.
//!
//! Decides when front-ends of a disk are served, and what has to be done before.
//!
//! ```text
//!  a path leads to its namespace ────────────────────────────────────────┐
//!  an earlier daemon has saved it ── every path was tried, or PATIENCE ──┤
//!                                                                        ▼
//!                        open ◀── Serve ◀── Save ◀── RecordNamespace ◀── InheritFences
//!                          │                  ▲          └── a step fails ──▶ closed; from the start after a delay
//!                          └── the first path ┘
//! ```
//! * The fence record names the namespace before a front-end can submit requests, which no other namespace may receive.
//! * The size is saved before guests see it. Otherwise the next daemon could show them a smaller disk.
//! * As long as no path has led to the namespace, front-ends see what was saved. The first path may then have more
//!   blocks: the namespace may have grown while no daemon ran. Before the disk is open, its front-ends see these blocks at
//!   once, and the new size is saved. Afterwards the disk grows as usual (`growth.rs`).

use monotonic::{Duration, Instant};

use crate::disk_hold::TriedPath;
use crate::disks::{Size, Unusable};

/// How long front-ends are not answered from the description of an earlier daemon while paths make their first attempt. If a path
/// works, the description may have to change. A front-end should not see a size that changes a moment later.
const PATIENCE: Duration = Duration::from_secs(1);

/// A step of opening a disk, as in [`DiskStep`](crate::DiskStep). [`DiskOpening::done`] or [`DiskOpening::failed`] follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpeningStep {
    InheritFences,
    RecordNamespace,
    Save,
    Serve,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// `again_at`: a step has failed.
    Closed {
        again_at: Option<Instant>,
    },
    Opening(OpeningStep),
    /// `is_to_save`: the first path has led to the namespace after the disk was opened.
    Open {
        is_to_save: bool,
    },
}

/// Decides when front-ends of one disk are served.
#[derive(Debug)]
pub struct DiskOpening {
    patient_until: Instant,
    retry_delay: Duration,
    /// An earlier daemon has saved the disk.
    is_restored: bool,
    /// A path of this daemon has led to its namespace.
    is_found: bool,
    phase: Phase,
}

impl DiskOpening {
    /// The opening of a disk whose namespace is not known. A failed step is repeated after `retry_delay`.
    pub(crate) fn new(now: Instant, retry_delay: Duration) -> Self {
        let phase = Phase::Closed { again_at: None };
        Self { patient_until: now + PATIENCE, retry_delay, is_restored: false, is_found: false, phase }
    }

    /// Records that the namespace is known because an earlier daemon has saved the disk.
    pub fn restored(&mut self) {
        self.is_restored = true;
    }

    /// The blocks that guests are to see when the first path leads to the namespace of a restored disk and finds `found`.
    /// So far they were to see `shown` blocks. [`Self::found`] has to follow, before another path is admitted.
    ///
    /// # Errors
    /// The namespace lacks blocks that guests have seen.
    pub fn size_when_found(&self, shown: u64, found: Size) -> Result<u64, Unusable> {
        if found.blocks < shown {
            Err(Unusable::Shrunk { found, shown: Size { blocks: shown, ..found } })
        } else if self.is_open() {
            Ok(shown)
        } else {
            // The disk takes the size of the path, as a new disk does: no front-end of this daemon has seen a smaller
            // one, and no other path has fewer blocks.
            Ok(found.blocks)
        }
    }

    /// Records that the first path has led to the namespace.
    pub fn found(&mut self) {
        self.is_found = true;
        match &mut self.phase {
            Phase::Opening(step @ OpeningStep::Serve) => *step = OpeningStep::Save,
            Phase::Open { is_to_save } => *is_to_save = true,
            Phase::Opening(_) | Phase::Closed { .. } => {}
        }
    }

    /// The step to be taken. `None` until the paths have changed, or until [`next_timeout`](Self::next_timeout).
    /// `first_logs_are_done`: discovery adds no path of its first logs any more.
    pub(crate) fn step(&mut self, now: Instant, first_logs_are_done: bool, paths: &[TriedPath]) -> Option<OpeningStep> {
        match self.phase {
            Phase::Closed { again_at } => {
                let were_all_tried = || first_logs_are_done && !paths.iter().any(|path| path.trial.is_untried());
                let is_known = self.is_found || self.is_restored && (self.patient_until <= now || were_all_tried());
                if !is_known || again_at.is_some_and(|at| now < at) {
                    return None;
                }
                self.phase = Phase::Opening(OpeningStep::InheritFences);
                Some(OpeningStep::InheritFences)
            }
            Phase::Opening(step) => Some(step),
            Phase::Open { is_to_save } => is_to_save.then_some(OpeningStep::Save),
        }
    }

    /// Reports that the step is done.
    pub(crate) fn done(&mut self) {
        self.phase = match self.phase {
            Phase::Opening(OpeningStep::InheritFences) => Phase::Opening(OpeningStep::RecordNamespace),
            Phase::Opening(OpeningStep::RecordNamespace) if self.is_found => Phase::Opening(OpeningStep::Save),
            // Front-ends see what is saved.
            Phase::Opening(OpeningStep::RecordNamespace | OpeningStep::Save) => Phase::Opening(OpeningStep::Serve),
            Phase::Opening(OpeningStep::Serve) | Phase::Open { .. } => Phase::Open { is_to_save: false },
            Phase::Closed { .. } => unreachable!("no step is under way"),
        };
    }

    /// Reports that the step has failed.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.phase = match self.phase {
            // Guests see the size that stays saved.
            Phase::Open { .. } => Phase::Open { is_to_save: false },
            Phase::Opening(_) | Phase::Closed { .. } => Phase::Closed { again_at: Some(now + self.retry_delay) },
        };
    }

    /// Whether front-ends are served.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    /// When [`step`](Self::step) is due though nothing else has happened.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let Phase::Closed { again_at } = self.phase else { return None };
        let patience = (self.is_restored && !self.is_found).then_some(self.patient_until);
        again_at.max(patience)
    }
}

#[cfg(test)]
mod tests;
