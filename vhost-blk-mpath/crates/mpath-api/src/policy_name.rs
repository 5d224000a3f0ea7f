//! A policy as its name, for `#[serde(with = "policy_name")]`: mpath-core knows no serde.

use std::fmt;

use mpath_core::PolicyKind;
use serde::{Deserializer, Serializer, de};

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn serialize<S: Serializer>(policy: &PolicyKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(policy)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicyKind, D::Error> {
    struct Visitor;
    impl de::Visitor<'_> for Visitor {
        type Value = PolicyKind;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the name of a policy")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<PolicyKind, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_str(Visitor)
}
