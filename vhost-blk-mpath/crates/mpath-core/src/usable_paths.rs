//! The paths to which requests of one disk can go now, for readers outside the I/O threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::PathId;

/// The usable paths of a disk, as each [`crate::Group`] of the disk sees them. A usable path is live and selectable by
/// its ANA state. The path is not drained or resting after a path error, nor suspect while another is usable.
#[derive(Debug, Default)]
pub struct UsablePaths(Mutex<Vec<Arc<PathSets>>>);

/// What one group publishes, as sets of paths.
#[derive(Debug, Default)]
struct PathSets {
    live: AtomicU64,
    usable: AtomicU64,
    suspect: AtomicU64,
}

/// The place where one group publishes its sets.
#[derive(Debug)]
pub(crate) struct PublishedPaths(Arc<PathSets>);

impl UsablePaths {
    /// A place for one more group, at first with no path.
    pub(crate) fn publisher(&self) -> PublishedPaths {
        let sets = Arc::<PathSets>::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&sets));
        PublishedPaths(sets)
    }

    /// Whether every group in which the path is live can use it, and there is one. Groups without virtqueues may lack a queue pair.
    #[must_use]
    pub fn contains(&self, path: PathId) -> bool {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has = |set: &AtomicU64| set.load(Ordering::Relaxed) & path.bit() != 0;
        let mut live = groups.iter().filter(|group| has(&group.live)).peekable();
        live.peek().is_some() && live.all(|group| has(&group.usable))
    }

    /// Whether every group with a live path can use some path, and there is one. Then no I/O stands still for want of a path.
    #[must_use]
    pub fn any_in_each(&self) -> bool {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = groups.iter().filter(|group| group.live.load(Ordering::Relaxed) != 0).peekable();
        live.peek().is_some() && live.all(|group| group.usable.load(Ordering::Relaxed) != 0)
    }

    /// Whether the path is suspect in any group.
    #[must_use]
    pub fn is_suspect(&self, path: PathId) -> bool {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.iter().any(|group| group.suspect.load(Ordering::Relaxed) & path.bit() != 0)
    }
}

impl PublishedPaths {
    /// Publishes the group's sets: bit 0 is [`PathId`] 0.
    pub(crate) fn publish(&self, live: u64, usable: u64, suspect: u64) {
        self.0.live.store(live, Ordering::Relaxed);
        self.0.usable.store(usable, Ordering::Relaxed);
        self.0.suspect.store(suspect, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_usable_if_every_group_that_has_it_can_use_it() {
        let paths = UsablePaths::default();
        assert!(!paths.contains(PathId(0)), "no group");
        let (one, other) = (paths.publisher(), paths.publisher());
        one.publish(0b111, 0b111, 0);
        assert!(paths.contains(PathId(2)) && paths.any_in_each(), "the other group has no queue pair of it");
        other.publish(0b11, 0, 0);
        assert!(!paths.contains(PathId(0)) && !paths.any_in_each(), "the other group can use no path");
        other.publish(0b11, 0b10, 0b01);
        assert_eq!([0, 1, 2, 3].map(|path| paths.contains(PathId(path))), [false, true, true, false]);
        one.publish(0b11, 0b01, 0b10);
        assert!(!paths.contains(PathId(0)) && !paths.contains(PathId(1)) && paths.any_in_each(), "I/O goes on");
        one.publish(0b111, 0b111, 0);
        assert_eq!([0, 1].map(|path| paths.is_suspect(PathId(path))), [true, false]);
    }
}
