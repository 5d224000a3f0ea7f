//! Stand-in for `mpath_core::PolicyKind` until that crate is merged.

use std::fmt;
use std::str::FromStr;

/// A path selection policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// `numa`
    Numa,
    /// `round-robin`
    RoundRobin,
    /// `queue-depth`
    QueueDepth,
    /// `latency-rr`
    LatencyRr,
}

impl PolicyKind {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Numa, Self::RoundRobin, Self::QueueDepth, Self::LatencyRr];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Numa => "numa",
            Self::RoundRobin => "round-robin",
            Self::QueueDepth => "queue-depth",
            Self::LatencyRr => "latency-rr",
        }
    }

    /// One line on what it does.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Numa => "one path per node",
            Self::RoundRobin => "paths in turn",
            Self::QueueDepth => "fewest in flight",
            Self::LatencyRr => "in turn among the fast",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No such policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{0}`; one of numa, round-robin, queue-depth, latency-rr")]
pub struct UnknownPolicy(pub String);

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;
    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownPolicy(text.into()))
    }
}

/// Serde by name, for `#[serde(with = ...)]`.
pub(crate) mod policy_name {
    use std::fmt;

    use serde::{Deserializer, Serializer, de};

    use super::PolicyKind;

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
}
