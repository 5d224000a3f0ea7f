//! Decides: a disk grows, in this order.
//!
//! How a disk grows with its namespace.
//!
//! ```text
//!  all paths agree ──▶ TellThreads ──▶ Save ── saved ──▶ Show ──▶ Save (as shown) ──▶ over
//!                                       └── it cannot be saved ──▶ over
//! ```
//! * Queue pairs know the size before guests do, because a request for the new blocks may come at once.
//! * The size is saved before guests see it. Otherwise the next daemon could show them a smaller disk.
//! * Meanwhile a path with fewer blocks may have become live. So guests see no more than all paths agree on then.

use crate::disks::ServedNamespace;

/// A step of a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthStep {
    /// Wait until every I/O thread has the sizes that were reported. [`Growth::threads_told`] follows.
    TellThreads,
    /// Save the disk with this size for the next daemon. [`Growth::saved`] follows.
    Save {
        /// The size in blocks.
        blocks: u64,
    },
    /// Show guests [`Growth::to_show`], before any other path becomes live. [`Growth::shown`] follows.
    Show,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    TellingThreads,
    Saving,
    Showing,
    SavingShown { blocks: u64 },
    Over,
}

/// One growth of a disk. Until it is over, no other growth of the disk begins and nothing else saves the disk.
#[derive(Debug)]
pub struct Growth {
    /// The size that all paths agreed on at the beginning.
    agreed_before: u64,
    phase: Phase,
}

impl Growth {
    /// Begins a growth if all paths agree on more blocks than guests see. `sizes` has the namespace's blocks as each
    /// path to it reports them.
    ///
    /// Controllers of a subsystem notice growth at different times. A controller that has not noticed it fails
    /// requests for the new blocks, so all paths have to agree.
    #[must_use]
    pub fn begin(served: ServedNamespace, sizes: impl Iterator<Item = u64>) -> Option<Self> {
        let agreed_before = agreed(served, sizes)?;
        Some(Self { agreed_before, phase: Phase::TellingThreads })
    }

    /// The step to be taken. `None` when the growth is over.
    #[must_use]
    pub fn step(&self) -> Option<GrowthStep> {
        Some(match self.phase {
            Phase::TellingThreads => GrowthStep::TellThreads,
            Phase::Saving => GrowthStep::Save { blocks: self.agreed_before },
            Phase::Showing => GrowthStep::Show,
            Phase::SavingShown { blocks } => GrowthStep::Save { blocks },
            Phase::Over => return None,
        })
    }

    /// Reports that every I/O thread has the sizes.
    pub fn threads_told(&mut self) {
        self.phase = Phase::Saving;
    }

    /// Reports the outcome of [`GrowthStep::Save`].
    pub fn saved(&mut self, is_saved: bool) {
        self.phase = if matches!(self.phase, Phase::Saving) && is_saved { Phase::Showing } else { Phase::Over };
    }

    /// The blocks that guests are to see, if these are more than they see.
    #[must_use]
    pub fn to_show(&self, served: ServedNamespace, sizes: impl Iterator<Item = u64>) -> Option<u64> {
        Some(agreed(served, sizes)?.min(self.agreed_before))
    }

    /// Reports that guests see this many blocks.
    pub fn shown(&mut self, blocks: u64) {
        self.phase = Phase::SavingShown { blocks };
    }
}

/// The size that all paths agree on, if it is larger than what guests see.
fn agreed(served: ServedNamespace, sizes: impl Iterator<Item = u64>) -> Option<u64> {
    sizes.min().filter(|blocks| *blocks > served.shown_blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::namespace;

    fn served(shown_blocks: u64) -> ServedNamespace {
        ServedNamespace { namespace: namespace(), shown_blocks }
    }

    fn begin(sizes: &[u64]) -> Option<Growth> {
        Growth::begin(served(100), sizes.iter().copied())
    }

    /// A growth from 100 blocks to 200, when the I/O threads know.
    fn told() -> Growth {
        let mut growth = begin(&[200, 300]).unwrap();
        assert_eq!(growth.step(), Some(GrowthStep::TellThreads));
        growth.threads_told();
        assert_eq!(growth.step(), Some(GrowthStep::Save { blocks: 200 }));
        growth
    }

    #[test]
    fn a_disk_grows_as_far_as_all_paths_agree() {
        assert!(begin(&[]).is_none() && begin(&[200, 100, 300]).is_none());
        let mut growth = told();
        growth.saved(true);
        assert_eq!(growth.step(), Some(GrowthStep::Show));
        // All paths have grown further. Not all queue pairs know that.
        assert_eq!(growth.to_show(served(100), [300, 300].into_iter()), Some(200));
        growth.shown(200);
        assert_eq!(growth.step(), Some(GrowthStep::Save { blocks: 200 }));
        growth.saved(false);
        assert_eq!(growth.step(), None);
    }

    #[test]
    fn a_path_that_became_live_meanwhile_keeps_the_disk_small() {
        let mut growth = told();
        growth.saved(true);
        assert_eq!(growth.to_show(served(100), [200, 150].into_iter()), Some(150));
        assert_eq!(growth.to_show(served(100), [200, 100].into_iter()), None);
        growth.shown(100);
        assert_eq!(growth.step(), Some(GrowthStep::Save { blocks: 100 }), "the next daemon shows no more");
    }

    #[test]
    fn a_size_that_is_not_saved_is_not_shown() {
        let mut growth = told();
        growth.saved(false);
        assert_eq!(growth.step(), None);
    }
}
