//! Decides: two names are one namespace.
//!
//! Names by which a namespace is recognised over any path or subsystem.

use std::fmt;

use nvme_tcp::host::NamespaceIdentity;
use serde::{Deserialize, Serialize};

/// The name of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceName {
    /// The NQN of the subsystem.
    pub subsystem: String,
    /// NSID.
    pub nsid: u32,
    /// UUID, NGUID and EUI64, as far as the namespace has them.
    identifiers: String,
}

impl NamespaceName {
    /// The name of a namespace in the subsystem with that NQN.
    #[must_use]
    pub fn new(subsystem: &str, namespace: &NamespaceIdentity) -> Self {
        let NamespaceIdentity { nsid, uuid, nguid, eui64, .. } = *namespace;
        let uuid = ("uuid", u128::from_be_bytes(uuid), 32);
        let nguid = ("nguid", u128::from_be_bytes(nguid), 32);
        let eui64 = ("eui64", u128::from(u64::from_be_bytes(eui64)), 16);
        let there = [uuid, nguid, eui64].into_iter().filter(|(_, value, _)| *value != 0);
        let identifiers: Vec<_> = there.map(|(name, value, digits)| format!("{name}={value:0digits$x}")).collect();
        Self { subsystem: subsystem.to_owned(), nsid, identifiers: identifiers.join(",") }
    }

    /// Whether both name one namespace. Identifiers decide, compared by the kinds that both names have: a target may
    /// report more kinds after an update. Without any identifier, subsystem and NSID decide.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        if self.identifiers.is_empty() && other.identifiers.is_empty() {
            return (&self.subsystem, self.nsid) == (&other.subsystem, other.nsid);
        }
        self.is_comparable(other) && self.of_one_kind(other).all(|(ours, theirs)| ours == theirs)
    }

    /// Whether both names have an identifier of one kind.
    #[must_use]
    pub(crate) fn is_comparable(&self, other: &Self) -> bool {
        self.of_one_kind(other).next().is_some()
    }

    /// The identifiers of the kinds that both names have.
    fn of_one_kind<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.by_kind().flat_map(|ours| other.by_kind().map(move |theirs| (ours, theirs)));
        pairs.filter(|((kind, _), (other, _))| kind == other).map(|((_, ours), (_, theirs))| (ours, theirs))
    }

    /// Whether the namespace has a UUID, NGUID or EUI64.
    #[must_use]
    pub fn has_identifier(&self) -> bool {
        !self.identifiers.is_empty()
    }

    fn by_kind(&self) -> impl Iterator<Item = (&str, &str)> {
        self.identifiers.split(',').filter_map(|identifier| identifier.split_once('='))
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subsystem, nsid, identifiers } = self;
        write!(f, "namespace {nsid} of {subsystem}")?;
        if identifiers.is_empty() { Ok(()) } else { write!(f, " ({identifiers})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(nsid: u32, uuid: u8, nguid: u8, eui64: u8) -> NamespaceIdentity {
        let known = crate::testing::namespace();
        NamespaceIdentity { nsid, uuid: [uuid; 16], nguid: [nguid; 16], eui64: [eui64; 8], ..known }
    }

    #[test]
    fn identifiers_take_precedence_over_nsids() {
        let name = |subsystem: &str, nsid, uuid, eui64| NamespaceName::new(subsystem, &identity(nsid, uuid, 0, eui64));
        let one = name("nqn.a", 1, 7, 0);
        assert_eq!(one.to_string(), format!("namespace 1 of nqn.a (uuid={})", "07".repeat(16)));
        assert!(one.is_same(&name("nqn.b", 2, 7, 0)));
        for other in [name("nqn.a", 1, 8, 0), name("nqn.a", 1, 0, 0), name("nqn.a", 1, 0, 7)] {
            assert!(!one.is_same(&other) && !other.is_same(&one), "{other}");
        }
        let without = name("nqn.a", 1, 0, 0);
        assert!(without.is_same(&name("nqn.a", 1, 0, 0)));
        assert!(!without.is_same(&name("nqn.b", 1, 0, 0)) && !without.is_same(&name("nqn.a", 2, 0, 0)));
        assert_eq!(without.to_string(), "namespace 1 of nqn.a");
        assert!(one.has_identifier() && !without.has_identifier());
    }

    #[test]
    fn a_namespace_that_gains_or_loses_an_identifier_is_the_same() {
        let name = |uuid, nguid, eui64| NamespaceName::new("nqn.a", &identity(1, uuid, nguid, eui64));
        let same = |one: NamespaceName, other: NamespaceName| {
            assert_eq!(one.is_same(&other), other.is_same(&one));
            one.is_same(&other)
        };
        assert!(same(name(7, 0, 0), name(7, 7, 7)));
        assert!(same(name(7, 8, 0), name(0, 8, 7)));
        assert!(!same(name(7, 8, 0), name(7, 9, 0)), "one of those that both have differs");
        assert!(!same(name(7, 0, 0), name(0, 7, 0)), "they have none in common");
        assert!(!same(name(0, 0, 0), name(7, 0, 0)));
    }
}
