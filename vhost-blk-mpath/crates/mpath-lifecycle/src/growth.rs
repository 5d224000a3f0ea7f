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

use crate::disk_step::DiskStep;
use crate::disks::ServedNamespace;

#[derive(Debug, Clone, Copy)]
enum Phase {
    TellingThreads,
    Saving,
    Showing,
    SavingShown,
}

/// One growth of a disk.
#[derive(Debug)]
pub(crate) struct Growth {
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
    pub(crate) fn begin(served: ServedNamespace, sizes: impl Iterator<Item = u64>) -> Option<Self> {
        let agreed_before = agreed(served, sizes)?;
        Some(Self { agreed_before, phase: Phase::TellingThreads })
    }

    /// The step to be taken.
    pub(crate) fn step(&self) -> DiskStep {
        match self.phase {
            Phase::TellingThreads => DiskStep::TellThreads,
            Phase::Saving => DiskStep::Save { grow_to: Some(self.agreed_before) },
            Phase::Showing => DiskStep::Show,
            Phase::SavingShown => DiskStep::Save { grow_to: None },
        }
    }

    /// Reports that the step is done or has failed. `None` when the growth is over.
    pub(crate) fn done(self, is_done: bool) -> Option<Self> {
        let phase = match self.phase {
            Phase::TellingThreads => Phase::Saving,
            Phase::Saving if is_done => Phase::Showing,
            Phase::Showing => Phase::SavingShown,
            Phase::Saving | Phase::SavingShown => return None,
        };
        Some(Self { phase, ..self })
    }

    /// The blocks that guests are to see, if these are more than they see.
    pub(crate) fn to_show(&self, served: ServedNamespace, sizes: impl Iterator<Item = u64>) -> Option<u64> {
        Some(agreed(served, sizes)?.min(self.agreed_before))
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
        let growth = begin(&[200, 300]).unwrap();
        assert_eq!(growth.step(), DiskStep::TellThreads);
        let growth = growth.done(true).unwrap();
        assert_eq!(growth.step(), DiskStep::Save { grow_to: Some(200) });
        growth
    }

    #[test]
    fn a_disk_grows_as_far_as_all_paths_agree() {
        assert!(begin(&[]).is_none() && begin(&[200, 100, 300]).is_none());
        let growth = told().done(true).unwrap();
        assert_eq!(growth.step(), DiskStep::Show);
        // All paths have grown further. Not all queue pairs know that.
        assert_eq!(growth.to_show(served(100), [300, 300].into_iter()), Some(200));
        let growth = growth.done(true).unwrap();
        assert_eq!(growth.step(), DiskStep::Save { grow_to: None });
        assert!(growth.done(false).is_none());
    }

    #[test]
    fn a_path_that_became_live_meanwhile_keeps_the_disk_small() {
        let growth = told().done(true).unwrap();
        assert_eq!(growth.to_show(served(100), [200, 150].into_iter()), Some(150));
        assert_eq!(growth.to_show(served(100), [200, 100].into_iter()), None);
        let growth = growth.done(true).unwrap();
        assert_eq!(growth.step(), DiskStep::Save { grow_to: None }, "the next daemon shows no more");
    }

    #[test]
    fn a_size_that_is_not_saved_is_not_shown() {
        assert!(told().done(false).is_none());
    }
}
