//! Decides: a removal is held, because no other path is usable.
//!
//! Removals that are held, because I/O of a disk would stop.
//!
//! A path that is removed in order waits until nothing is outstanding. Meanwhile the other paths of the disk may fail. The
//! removal is held then: the path is used until another path is usable. Its removal goes on after that.

use crate::order::DesiredState;

/// A path, for [`held_removals`].
#[derive(Debug, Clone, Copy)]
pub struct RemovablePath {
    /// The order that the path has.
    pub wanted: DesiredState,
    /// The disks whose requests can go there now if the path is not drained, as a set.
    pub serves: u64,
}

/// The orders of paths whose removal is to be held or to go on: the position of each path, and its new order. `disks` is the set of
/// all disks.
///
/// If several paths are being removed and one of them suffices, the first one stays. A held path that is lost is connected again:
/// its removal goes on once all disks have another path.
#[must_use]
pub fn held_removals(disks: u64, paths: &[RemovablePath]) -> Vec<(usize, DesiredState)> {
    let in_use = paths.iter().filter(|path| path.wanted == DesiredState::Enabled);
    let mut served = in_use.fold(0, |served, path| served | path.serves);
    let mut changes = Vec::new();
    for (path, index) in paths.iter().zip(0..) {
        if !matches!(path.wanted, DesiredState::RemovalHeld | DesiredState::Removed { at_once: false }) {
            continue;
        }
        let is_lost = path.wanted == DesiredState::RemovalHeld && path.serves == 0;
        let is_needed = (if is_lost { disks } else { path.serves }) & !served != 0;
        let wanted = if is_needed { DesiredState::RemovalHeld } else { DesiredState::Removed { at_once: false } };
        if is_needed {
            served |= path.serves;
        }
        if wanted != path.wanted {
            changes.push((index, wanted));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOVED: DesiredState = DesiredState::Removed { at_once: false };
    const FORCED: DesiredState = DesiredState::Removed { at_once: true };
    const HELD: DesiredState = DesiredState::RemovalHeld;
    const ENABLED: DesiredState = DesiredState::Enabled;

    #[track_caller]
    fn check(paths: &[(DesiredState, u64)], changes: &[(usize, DesiredState)]) {
        let paths: Vec<_> = paths.iter().map(|&(wanted, serves)| RemovablePath { wanted, serves }).collect();
        assert_eq!(held_removals(0b11, &paths), changes);
    }

    #[test]
    fn a_removal_is_held_while_a_disk_has_no_other_usable_path() {
        check(&[(ENABLED, 0b11), (REMOVED, 0b11)], &[]);
        check(&[(ENABLED, 0), (REMOVED, 0b11)], &[(1, HELD)]);
        check(&[(ENABLED, 0b01), (REMOVED, 0b11)], &[(1, HELD)]);
        check(&[(DesiredState::Drained, 0b1), (REMOVED, 0b1)], &[(1, HELD)]);
        check(&[(ENABLED, 0), (REMOVED, 0), (FORCED, 1)], &[]);
        check(&[(ENABLED, 0b1), (HELD, 0b1)], &[(1, REMOVED)]);
        check(&[(ENABLED, 0), (HELD, 0b1)], &[]);
        // A held path that is lost comes back.
        check(&[(ENABLED, 0), (HELD, 0)], &[]);
        check(&[(ENABLED, 0b01), (HELD, 0)], &[]);
        check(&[(ENABLED, 0b11), (HELD, 0)], &[(1, REMOVED)]);
    }

    #[test]
    fn one_of_several_removed_paths_stays() {
        check(&[(REMOVED, 0b1), (REMOVED, 0b1)], &[(0, HELD)]);
        check(&[(REMOVED, 0b01), (REMOVED, 0b10), (REMOVED, 0b11)], &[(0, HELD), (1, HELD)]);
        check(&[(REMOVED, 0), (HELD, 0b1)], &[]);
    }
}
