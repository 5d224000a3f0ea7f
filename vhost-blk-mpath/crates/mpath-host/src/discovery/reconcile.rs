//! What a changed list of addresses means for the paths of a disk. Nothing is done here, only decided.

use mpath_core::PathId;

/// A path as the decision sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Have<A> {
    /// Its name.
    pub path: PathId,
    /// Where it leads.
    pub address: A,
    /// Discovery added it, and may remove it.
    pub discovered: bool,
    /// New I/O may go there now.
    pub usable: bool,
    /// It is being removed already.
    pub leaving: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes<A> {
    /// Listed, and no path yet.
    pub add: Vec<A>,
    /// Discovered once, and listed no more.
    pub remove: Vec<PathId>,
    /// As `remove`, but there is no other path: it stays until there is one. Told once.
    pub keep: Option<PathId>,
}

/// Compares the addresses that discovery lists now with the paths there are.
///
/// Paths that discovery has not added are left alone, whatever it lists. Of those that it has and lists no more, one is kept if
/// without it the disk had no usable path left or, when none is usable now, none that could become so.
pub(super) fn reconcile<A: Clone + Eq>(wanted: &[A], have: &[Have<A>]) -> Changes<A> {
    let mut changes = Changes { add: Vec::new(), remove: Vec::new(), keep: None };
    for address in wanted {
        // One that is leaving has to be gone before its address can come back.
        let known = have.iter().any(|path| path.address == *address) || changes.add.contains(address);
        if !known {
            changes.add.push(address.clone());
        }
    }
    let vanished = |path: &&Have<A>| path.discovered && !path.leaving && !wanted.contains(&path.address);
    let others = || have.iter().filter(|path| !path.leaving && !vanished(path));
    let mut remove: Vec<&Have<A>> = have.iter().filter(vanished).collect();
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

    /// Paths by letters: discovered or configured, usable (capital), leaving (`-`). Path n is at address n.
    fn paths(text: &str) -> Vec<Have<u16>> {
        let path = |(n, word): (u16, &str)| Have {
            path: PathId(n),
            address: n,
            discovered: word.starts_with(['d', 'D']),
            usable: word.starts_with(char::is_uppercase),
            leaving: word.ends_with('-'),
        };
        (1..).zip(text.split_whitespace()).map(path).collect()
    }

    #[track_caller]
    fn check(wanted: &[u16], have: &str, add: &[u16], remove: &[u16], keep: Option<u16>) {
        let expected =
            Changes { add: add.to_vec(), remove: remove.iter().copied().map(PathId).collect(), keep: keep.map(PathId) };
        assert_eq!(reconcile(wanted, &paths(have)), expected, "wanted {wanted:?}, have {have}");
    }

    #[test]
    fn what_is_listed_is_added_once() {
        check(&[1, 2, 3, 3], "D C", &[3], &[], None);
        check(&[], "", &[], &[], None);
        check(&[7, 8], "", &[7, 8], &[], None);
    }

    #[test]
    fn what_vanishes_is_removed_and_what_was_configured_is_not() {
        check(&[1], "D D d", &[], &[2, 3], None);
        check(&[], "C c D", &[], &[3], None);
        check(&[], "C c", &[], &[], None);
        check(&[4], "D D d", &[4], &[2, 3], Some(1));
    }

    #[test]
    fn the_last_usable_path_stays() {
        check(&[], "D", &[], &[], Some(1));
        check(&[], "d D D", &[], &[1, 3], Some(2));
        // A configured path that is lost does not replace it.
        check(&[], "c D", &[], &[], Some(2));
        check(&[3], "c D d", &[], &[], Some(2));
        // Nor does one that is on its way out.
        check(&[], "D- D", &[], &[], Some(2));
        check(&[], "C- D", &[], &[], Some(2));
        // With another one live it goes.
        check(&[3], "c D D", &[], &[2], None);
    }

    #[test]
    fn where_none_is_usable_one_is_left() {
        check(&[], "d d", &[], &[2], Some(1));
        check(&[], "c d d", &[], &[2, 3], None);
        check(&[2], "d d", &[], &[1], None);
    }

    #[test]
    fn what_is_leaving_is_left_to_leave() {
        check(&[], "D- D", &[], &[], Some(2));
        check(&[1, 2], "D- D", &[], &[], None);
        check(&[2], "d- D d-", &[], &[], None);
    }

    #[test]
    fn whatever_is_decided_leaves_a_path() {
        // Every list of up to four paths of every kind, against every list of addresses.
        const KINDS: [&str; 8] = ["c", "C", "d", "D", "c-", "C-", "d-", "D-"];
        for count in 0..=4u32 {
            for choice in 0..KINDS.len().pow(count) {
                let kind = |n: u32| KINDS[choice / KINDS.len().pow(n) % KINDS.len()];
                let text: Vec<_> = (0..count).map(kind).collect();
                let have = paths(&text.join(" "));
                for listed in 0..1u16 << count {
                    let wanted: Vec<_> = (0..count as u16).filter(|n| listed >> n & 1 != 0).map(|n| n + 1).collect();
                    let changes = reconcile(&wanted, &have);
                    assert!(changes.add.is_empty());
                    let staying = || have.iter().filter(|path| !path.leaving && !changes.remove.contains(&path.path));
                    let before = || have.iter().filter(|path| !path.leaving);
                    assert!(before().count() == 0 || staying().count() > 0, "{text:?} {wanted:?}");
                    assert_eq!(
                        before().any(|path| path.usable),
                        staying().any(|path| path.usable),
                        "{text:?} {wanted:?}"
                    );
                    for path in &changes.remove {
                        let path = &have[usize::from(path.0 - 1)];
                        assert!(path.discovered && !path.leaving && !wanted.contains(&path.address));
                    }
                    let stray = |path: &&Have<u16>| path.discovered && !wanted.contains(&path.address);
                    let strays = staying().filter(stray).count();
                    assert_eq!(strays, usize::from(changes.keep.is_some()), "no more are kept than needed");
                }
            }
        }
    }
}
