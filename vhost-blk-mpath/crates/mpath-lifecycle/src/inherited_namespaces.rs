//! Decides: a namespace differs from the namespace that earlier daemons served.
//!
//! The namespaces that earlier daemons have left for a disk. The disk must not become another one.

use crate::namespace_name::NamespaceName;

/// The namespaces that earlier daemons have left for a disk, if any.
#[derive(Debug, Clone, Copy, Default)]
pub struct InheritedNamespaces<'a> {
    /// The namespace that front-ends were shown.
    pub shown: Option<&'a NamespaceName>,
    /// The namespace of a guest that may come back and repeat its requests in flight.
    pub of_guest: Option<&'a NamespaceName>,
}

/// Why a namespace cannot be the disk's. Each variant names the earlier namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InheritedMismatch<'a> {
    /// Front-ends were shown this earlier namespace.
    Shown(&'a NamespaceName),
    /// A guest may repeat requests that are for this earlier namespace.
    OfGuest(&'a NamespaceName),
    /// Nothing tells whether the namespace is this earlier one.
    Unverified(&'a NamespaceName),
}

impl<'a> InheritedNamespaces<'a> {
    /// Checks that a namespace is the one that earlier daemons have left. If they have left none, any namespace passes.
    ///
    /// # Errors
    /// The earlier namespace.
    pub fn check(&self, found: &NamespaceName) -> Result<(), InheritedMismatch<'a>> {
        let other = |before: Option<&'a NamespaceName>| before.filter(|before| !before.is_same(found));
        let unverified = |before: &&NamespaceName| before.has_identifier() && !before.is_comparable(found);
        if let Some(before) = [self.shown, self.of_guest].into_iter().flatten().find(unverified) {
            return Err(InheritedMismatch::Unverified(before));
        }
        match (other(self.shown), other(self.of_guest)) {
            (Some(before), _) => Err(InheritedMismatch::Shown(before)),
            (None, Some(before)) => Err(InheritedMismatch::OfGuest(before)),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use nvme_tcp::host::NamespaceIdentity;

    use super::*;

    #[test]
    fn a_disk_stays_on_the_namespace_that_was_shown_or_that_its_guest_may_come_back_for() {
        let name = |uuid| {
            NamespaceName::new("nqn.example", &NamespaceIdentity { uuid: [uuid; 16], ..crate::testing::namespace() })
        };
        let (one, other) = (name(1), name(2));
        let check = |shown, of_guest| InheritedNamespaces { shown, of_guest }.check(&one);
        assert_eq!((check(None, None), check(Some(&one), Some(&one))), (Ok(()), Ok(())));
        assert_eq!(check(Some(&other), None), Err(InheritedMismatch::Shown(&other)));
        assert_eq!(check(Some(&one), Some(&other)), Err(InheritedMismatch::OfGuest(&other)));
        assert_eq!(check(Some(&other), Some(&other)), Err(InheritedMismatch::Shown(&other)));
        // A namespace that reports none of the known identifiers may be the one, or not.
        let nameless = name(0);
        let check = |shown, of_guest| InheritedNamespaces { shown, of_guest }.check(&nameless);
        assert_eq!(check(Some(&one), None), Err(InheritedMismatch::Unverified(&one)));
        assert_eq!(check(None, Some(&one)), Err(InheritedMismatch::Unverified(&one)));
        assert_eq!(check(Some(&nameless), None), Ok(()));
    }
}
