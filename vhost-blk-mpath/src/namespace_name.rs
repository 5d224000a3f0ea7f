//! By what a namespace is known again, by whichever way it comes.

use std::fmt;

use nvme_tcp::host::NamespaceIdentity;
use serde::{Deserialize, Serialize};

/// The name of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceName {
    /// The subsystem's NQN.
    pub(crate) subsystem: String,
    pub(crate) nsid: u32,
    /// UUID, NGUID and EUI64, those that there are.
    identifiers: String,
}

impl NamespaceName {
    pub(crate) fn new(subsystem: &str, namespace: &NamespaceIdentity) -> Self {
        let NamespaceIdentity { nsid, uuid, nguid, eui64, .. } = *namespace;
        let uuid = ("uuid", u128::from_be_bytes(uuid), 32);
        let nguid = ("nguid", u128::from_be_bytes(nguid), 32);
        let eui64 = ("eui64", u128::from(u64::from_be_bytes(eui64)), 16);
        let there = [uuid, nguid, eui64].into_iter().filter(|(_, value, _)| *value != 0);
        let identifiers: Vec<_> = there.map(|(name, value, digits)| format!("{name}={value:0digits$x}")).collect();
        Self { subsystem: subsystem.to_owned(), nsid, identifiers: identifiers.join(",") }
    }

    /// By its identifiers, which are the same whichever subsystem has it; without any by its number.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identifiers == other.identifiers
            && (!self.identifiers.is_empty() || (&self.subsystem, self.nsid) == (&other.subsystem, other.nsid))
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

    fn identity(nsid: u32, uuid: u8, eui64: u8) -> NamespaceIdentity {
        let controller = crate::geometry::tests::controller();
        let known = controller.namespaces[0].as_ref().unwrap().identity;
        NamespaceIdentity { nsid, uuid: [uuid; 16], nguid: [0; 16], eui64: [eui64; 8], ..known }
    }

    #[test]
    fn identifiers_count_more_than_numbers() {
        let name = |subsystem: &str, nsid, uuid, eui64| NamespaceName::new(subsystem, &identity(nsid, uuid, eui64));
        let one = name("nqn.a", 1, 7, 0);
        assert_eq!(one.to_string(), format!("namespace 1 of nqn.a (uuid={})", "07".repeat(16)));
        assert!(one.is_same(&name("nqn.b", 2, 7, 0)));
        for other in [name("nqn.a", 1, 8, 0), name("nqn.a", 1, 0, 0), name("nqn.a", 1, 7, 7)] {
            assert!(!one.is_same(&other) && !other.is_same(&one), "{other}");
        }
        let without = name("nqn.a", 1, 0, 0);
        assert!(without.is_same(&name("nqn.a", 1, 0, 0)));
        assert!(!without.is_same(&name("nqn.b", 1, 0, 0)) && !without.is_same(&name("nqn.a", 2, 0, 0)));
        assert_eq!(without.to_string(), "namespace 1 of nqn.a");
    }
}
