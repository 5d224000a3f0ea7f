//! Decides: a name is this policy.
//!
//! The policies by name.

use std::fmt;
use std::str::FromStr;

use super::{
    Param, Policy, PolicyInfo, PolicySpec, adaptive, bdp, latency, latency_rr, numa, pid, queue_depth, round_robin,
    service_time,
};
use crate::kind_with_params::{KindWithParams, ParamsOf};

/// A path selection policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// The nearest path.
    Numa,
    /// Each path in turn.
    RoundRobin,
    /// The path with the fewest requests in flight.
    QueueDepth,
    /// Turns in inverse proportion to smoothed latency.
    Adaptive,
    /// Each virtqueue keeps to one path.
    Pid,
    /// The path with the lowest average latency.
    Latency,
    /// Each path in turn that is near the best latency.
    LatencyRr,
    /// The path with the fewest bytes in flight relative to its throughput.
    ServiceTime,
    /// Fast paths first, each with no more than it can carry.
    Bdp,
}

impl PolicyKind {
    /// Every policy.
    pub const ALL: [Self; 9] = [
        Self::Numa,
        Self::RoundRobin,
        Self::QueueDepth,
        Self::Adaptive,
        Self::Pid,
        Self::Latency,
        Self::LatencyRr,
        Self::ServiceTime,
        Self::Bdp,
    ];

    const fn info(self) -> &'static PolicyInfo {
        match self {
            Self::Numa => &numa::INFO,
            Self::RoundRobin => &round_robin::INFO,
            Self::QueueDepth => &queue_depth::INFO,
            Self::Adaptive => &adaptive::INFO,
            Self::Pid => &pid::INFO,
            Self::Latency => &latency::INFO,
            Self::LatencyRr => &latency_rr::INFO,
            Self::ServiceTime => &service_time::INFO,
            Self::Bdp => &bdp::INFO,
        }
    }

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Other names of the policy, which are accepted too.
    #[must_use]
    pub const fn aliases(self) -> &'static [&'static str] {
        self.info().aliases
    }

    /// The rule in one line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.info().description
    }

    /// The parameters of the policy.
    #[must_use]
    pub const fn params(self) -> &'static [Param] {
        self.info().params
    }

    pub(super) fn build(self, spec: &PolicySpec, seed: u64) -> Box<dyn Policy> {
        (self.info().build)(spec, seed)
    }
}

impl KindWithParams for PolicyKind {
    const NOUN: &'static str = "policy";

    fn names() -> Vec<&'static str> {
        Self::ALL.iter().flat_map(|kind| std::iter::once(kind.name()).chain(kind.aliases().iter().copied())).collect()
    }

    fn params_of(self) -> ParamsOf {
        ParamsOf { noun: Self::NOUN, name: self.name(), params: self.params() }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for an unknown policy name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy '{name}', expected one of: {}", PolicyKind::ALL.map(PolicyKind::name).join(", "))]
pub struct UnknownPolicy {
    /// The given name.
    pub name: String,
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let is_meant = |kind: &Self| kind.name() == name || kind.aliases().contains(&name);
        Self::ALL.into_iter().find(is_meant).ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind_with_params::MAX_PARAMS;

    #[test]
    fn names_round_trip_and_errors_list_them() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            for alias in kind.aliases() {
                assert_eq!(alias.parse(), Ok(kind));
            }
            assert!(!kind.description().is_empty());
        }
        let error = "roundrobin".parse::<PolicyKind>().expect_err("unknown").to_string();
        assert!(error.starts_with("unknown policy 'roundrobin', expected one of: numa, round-robin, "), "{error}");
    }

    #[test]
    fn every_parameter_is_described_and_its_default_is_valid() {
        for kind in PolicyKind::ALL {
            let params = kind.params();
            assert!(params.len() <= MAX_PARAMS);
            for (at, param) in params.iter().enumerate() {
                assert!(!param.description().is_empty() && !param.unit().is_empty(), "{kind} {}", param.name());
                assert_eq!(param.parse(&param.default_text()), Some(param.default_value()), "{kind} {}", param.name());
                assert!(params[..at].iter().all(|other| other.name() != param.name()), "{kind} {} twice", param.name());
                // The long form of a policy in YAML has these keys next to the parameters.
                assert!(!["name", "read", "write"].contains(&param.name()));
            }
            // Every parameter that the policy reads is in its table.
            kind.build(&kind.into(), 0);
        }
    }

    #[test]
    fn the_documentation_has_every_policy_and_parameter() {
        let text = include_str!("../../../../../docs/policies.md");
        for kind in PolicyKind::ALL {
            let section = text.split("\n## ").find(|section| section.starts_with(&format!("`{kind}`\n")));
            let section = section.unwrap_or_else(|| panic!("no section on {kind}"));
            assert!(kind.aliases().iter().all(|alias| section.contains(&format!("`{alias}`"))), "{kind}");
            for param in kind.params() {
                let row = format!(
                    "| `{}` | {} | {} | {} | {} |\n",
                    param.name(),
                    param.unit(),
                    param.range(),
                    param.default_text(),
                    param.description()
                );
                assert!(section.contains(&row), "{kind}: docs/policies.md lacks:\n{row}");
            }
        }
    }
}
