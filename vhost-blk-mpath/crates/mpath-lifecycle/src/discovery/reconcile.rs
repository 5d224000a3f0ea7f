//! Decides: listed paths are added, and others removed.
//! Decides: a held removal is taken back.
//!
//! Compares listed addresses with a disk's paths. It only decides; the caller adds and removes paths.

use std::collections::HashSet;
use std::hash::Hash;

use mpath_core::PathId;

/// A path of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPath<A> {
    /// Its id.
    pub path: PathId,
    /// Its address.
    pub address: A,
    /// Discovery has added it and may remove it.
    pub discovered: bool,
    /// New I/O may go there.
    pub usable: bool,
    /// It is being removed.
    pub leaving: bool,
}

/// The changes to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes<A> {
    /// Listed addresses without a path.
    pub add: Vec<A>,
    /// Discovered paths that are not listed any more.
    pub remove: Vec<PathId>,
    /// A path to remove that stays until the disk has another. Reported once.
    pub keep: Option<PathId>,
    /// Discovered paths that are being removed and are listed again. Take their removal back, unless a path is closed
    /// already: that path is added again once it is gone.
    pub take_back: Vec<PathId>,
}

/// Compares the listed addresses with the known paths.
///
/// Only paths that discovery has added are removed. One unlisted path stays if the disk would otherwise lose its last
/// usable path. Without a usable path, one stays if the disk would lose its last path that can become usable.
pub(super) fn reconcile<A: Clone + Eq + Hash>(wanted: &[A], known: &[KnownPath<A>]) -> Changes<A> {
    // A path that is leaving has to be gone before its address can come back.
    let mut there: HashSet<&A> = known.iter().map(|path| &path.address).collect();
    let add = wanted.iter().filter(|address| there.insert(*address)).cloned().collect();
    let wanted: HashSet<&A> = wanted.iter().collect();
    let returns = |path: &&KnownPath<A>| path.discovered && path.leaving && wanted.contains(&path.address);
    let take_back = known.iter().filter(returns).map(|path| path.path).collect();
    let mut changes = Changes { add, remove: Vec::new(), keep: None, take_back };
    let vanished = |path: &&KnownPath<A>| path.discovered && !path.leaving && !wanted.contains(&path.address);
    let others = || known.iter().filter(|path| !path.leaving && !vanished(path));
    let mut remove: Vec<&KnownPath<A>> = known.iter().filter(vanished).collect();
    let keep = if others().any(|path| path.usable) {
        None
    } else if let Some(at) = remove.iter().position(|path| path.usable) {
        Some(at)
    } else if others().next().is_none() && !remove.is_empty() {
        Some(0)
    } else {
        None
    };
    changes.keep = keep.map(|at| remove.remove(at).path);
    changes.remove = remove.into_iter().map(|path| path.path).collect();
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths as letters: discovered or configured, usable (capital), leaving (`-`). Path n has address n.
    fn paths(text: &str) -> Vec<KnownPath<u16>> {
        let path = |(n, word): (u16, &str)| KnownPath {
            path: PathId(n),
            address: n,
            discovered: word.starts_with(['d', 'D']),
            usable: word.starts_with(char::is_uppercase),
            leaving: word.ends_with('-'),
        };
        (1..).zip(text.split_whitespace()).map(path).collect()
    }

    #[track_caller]
    fn check(wanted: &[u16], known: &str, add: &[u16], remove: &[u16], keep: Option<u16>) {
        let Changes { take_back, .. } = reconcile(wanted, &paths(known));
        let remove = remove.iter().copied().map(PathId).collect();
        let expected = Changes { add: add.to_vec(), remove, keep: keep.map(PathId), take_back };
        assert_eq!(reconcile(wanted, &paths(known)), expected, "wanted {wanted:?}, known {known}");
    }

    #[test]
    fn the_removal_of_a_path_that_is_listed_again_is_taken_back() {
        let take_back = |wanted: &[u16], known| reconcile(wanted, &paths(known)).take_back;
        assert_eq!(take_back(&[1, 2], "d- D"), [PathId(1)]);
        assert_eq!(take_back(&[1, 2], "D d-"), [PathId(2)]);
        assert!(take_back(&[2], "d- D").is_empty());
        assert!(take_back(&[1], "c- D").is_empty(), "the operator removes a configured path");
    }

    #[test]
    fn a_listed_address_is_added_once() {
        check(&[1, 2, 3, 3], "D C", &[3], &[], None);
        check(&[], "", &[], &[], None);
        check(&[7, 8], "", &[7, 8], &[], None);
    }

    #[test]
    fn unlisted_paths_are_removed_and_configured_paths_are_not() {
        check(&[1], "D D d", &[], &[2, 3], None);
        check(&[], "C c D", &[], &[3], None);
        check(&[], "C c", &[], &[], None);
        check(&[4], "D D d", &[4], &[2, 3], Some(1));
    }

    #[test]
    fn the_last_usable_path_stays() {
        check(&[], "D", &[], &[], Some(1));
        check(&[], "d D D", &[], &[1, 3], Some(2));
        // A lost configured path does not replace the unlisted path.
        check(&[], "c D", &[], &[], Some(2));
        check(&[3], "c D d", &[], &[], Some(2));
        // A path that is leaving does not replace it either.
        check(&[], "D- D", &[], &[], Some(2));
        check(&[], "C- D", &[], &[], Some(2));
        // If the disk has another live path, the unlisted path is removed.
        check(&[3], "c D D", &[], &[2], None);
    }

    #[test]
    fn without_a_usable_path_one_path_stays() {
        check(&[], "d d", &[], &[2], Some(1));
        check(&[], "c d d", &[], &[2, 3], None);
        check(&[2], "d d", &[], &[1], None);
    }

    #[test]
    fn paths_being_removed_are_left_alone() {
        check(&[], "D- D", &[], &[], Some(2));
        check(&[1, 2], "D- D", &[], &[], None);
        check(&[2], "d- D d-", &[], &[], None);
    }

    #[test]
    fn every_decision_leaves_a_path() {
        // Every list of up to four paths of every kind, against every list of addresses.
        const KINDS: [&str; 8] = ["c", "C", "d", "D", "c-", "C-", "d-", "D-"];
        for count in 0..=4u32 {
            for choice in 0..KINDS.len().pow(count) {
                let kind = |n: u32| KINDS[choice / KINDS.len().pow(n) % KINDS.len()];
                let text: Vec<_> = (0..count).map(kind).collect();
                let known = paths(&text.join(" "));
                for listed in 0..1u16 << count {
                    let wanted: Vec<_> = (0..count as u16).filter(|n| listed >> n & 1 != 0).map(|n| n + 1).collect();
                    let changes = reconcile(&wanted, &known);
                    assert!(changes.add.is_empty());
                    let staying = || known.iter().filter(|path| !path.leaving && !changes.remove.contains(&path.path));
                    let before = || known.iter().filter(|path| !path.leaving);
                    assert!(before().count() == 0 || staying().count() > 0, "{text:?} {wanted:?}");
                    assert_eq!(
                        before().any(|path| path.usable),
                        staying().any(|path| path.usable),
                        "{text:?} {wanted:?}"
                    );
                    for path in &changes.remove {
                        let path = &known[usize::from(path.0 - 1)];
                        assert!(path.discovered && !path.leaving && !wanted.contains(&path.address));
                    }
                    let stray = |path: &&KnownPath<u16>| path.discovered && !wanted.contains(&path.address);
                    let strays = staying().filter(stray).count();
                    assert_eq!(strays, usize::from(changes.keep.is_some()), "no more are kept_path than needed");
                }
            }
        }
    }
}
