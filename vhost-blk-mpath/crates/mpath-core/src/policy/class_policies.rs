//! Policies by class of requests.

use std::fmt;
use std::str::FromStr;

use super::{PolicyKind, UnknownPolicy};
use crate::ParamError;
use crate::kind_with_params::{KindChange, KindSpec};

/// A policy and the values of its parameters.
pub type PolicySpec = KindSpec<PolicyKind>;

/// The classes of requests that can have separate policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyClass {
    /// Reads.
    Read,
    /// All other requests. (A flush goes to every unflushed path under any policy, unless the write cache is shared.)
    Write,
}

impl PolicyClass {
    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The error for an unknown class name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown class '{name}', expected one of: read, write")]
pub struct UnknownClass {
    /// The given name.
    pub name: String,
}

impl FromStr for PolicyClass {
    type Err = UnknownClass;

    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        match name {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            _ => Err(UnknownClass { name: name.into() }),
        }
    }
}

/// The policies of a disk. If both are equal, one policy decides about all requests and sees all of them. Otherwise
/// each policy sees only its own requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassPolicies {
    /// The policy of reads.
    pub read: PolicySpec,
    /// The policy of all other requests: see [`PolicyClass::Write`].
    pub write: PolicySpec,
}

impl ClassPolicies {
    /// The policy of all requests, if both are equal.
    #[must_use]
    pub fn single(&self) -> Option<&PolicySpec> {
        (self.read == self.write).then_some(&self.read)
    }

    /// The distinct policies, one or two.
    pub fn iter(&self) -> impl Iterator<Item = &PolicySpec> {
        std::iter::once(&self.read).chain((self.read != self.write).then_some(&self.write))
    }

    /// Whether one of the policies is of this kind.
    #[must_use]
    pub fn uses(&self, kind: PolicyKind) -> bool {
        self.iter().any(|spec| spec.kind() == kind)
    }

    /// Applies a change.
    pub fn change(&mut self, change: &PolicyChange) {
        let read = (change.class != Some(PolicyClass::Write)).then_some(&mut self.read);
        let write = (change.class != Some(PolicyClass::Read)).then_some(&mut self.write);
        for spec in [read, write].into_iter().flatten() {
            spec.change(&change.change);
        }
    }
}

impl From<PolicySpec> for ClassPolicies {
    fn from(spec: PolicySpec) -> Self {
        Self { read: spec, write: spec }
    }
}

impl From<PolicyKind> for ClassPolicies {
    fn from(kind: PolicyKind) -> Self {
        PolicySpec::from(kind).into()
    }
}

impl FromStr for ClassPolicies {
    type Err = UnknownPolicy;

    /// Parses the name of a policy for all requests.
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        name.parse::<PolicyKind>().map(Into::into)
    }
}

impl fmt::Debug for ClassPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ClassPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(spec) => spec.fmt(f),
            None => write!(f, "read: {}, write: {}", self.read, self.write),
        }
    }
}

/// A switch of one class of requests, or of all, to a policy: see [`KindChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    class: Option<PolicyClass>,
    change: KindChange<PolicyKind>,
}

impl PolicyChange {
    /// A switch of one class of requests, or of all, with these parameters by name and text.
    pub fn new<'a>(
        kind: PolicyKind,
        class: Option<PolicyClass>,
        params: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParamError> {
        Ok(Self { class, change: KindChange::new(kind, params)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PolicyKind::{LatencyRr, QueueDepth, RoundRobin};

    #[test]
    fn a_change_keeps_parameters_that_it_does_not_name() {
        let mut policies = ClassPolicies::from(LatencyRr);
        let change =
            |kind, class, params: &[(&str, &str)]| PolicyChange::new(kind, class, params.iter().copied()).unwrap();
        policies.change(&change(LatencyRr, None, &[("threshold", "2")]));
        policies.change(&change(LatencyRr, None, &[]));
        assert_eq!(policies.to_string(), "latency-rr threshold=2");
        policies.change(&change(QueueDepth, Some(PolicyClass::Write), &[]));
        assert_eq!(policies.to_string(), "read: latency-rr threshold=2, write: queue-depth");
        assert_eq!((policies.single(), policies.uses(QueueDepth), policies.uses(RoundRobin)), (None, true, false));
        policies.change(&change(LatencyRr, None, &[]));
        assert_eq!(policies.to_string(), "read: latency-rr threshold=2, write: latency-rr");
        policies.change(&change(LatencyRr, Some(PolicyClass::Read), &[("threshold", "default")]));
        assert_eq!(policies, LatencyRr.into());
    }
}
