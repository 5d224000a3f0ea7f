//! A policy with its parameters, and the policies of the two kinds of requests.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::param::{Values, of_path};
use super::{Param, ParamError, PolicyKind, UnknownPolicy};
use crate::PathId;

/// A policy and the values of its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicySpec {
    kind: PolicyKind,
    /// In the order of [`PolicyKind::params`].
    values: Values,
}

impl PolicySpec {
    /// A policy with these parameters, by name and text; the others have their defaults.
    pub fn new<'a>(kind: PolicyKind, params: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut spec = Self::from(kind);
        spec.values.set_all(&kind.params_of().read_all(params)?);
        Ok(spec)
    }

    /// Which policy.
    #[must_use]
    pub const fn kind(&self) -> PolicyKind {
        self.kind
    }

    /// Every parameter with its value as text.
    pub fn params(&self) -> impl Iterator<Item = (&'static Param, String)> + '_ {
        self.kind.params().iter().zip(self.values.iter()).map(|(param, value)| (param, param.text(value)))
    }

    /// The parameters that differ from their defaults, with their values as text.
    pub fn changed_params(&self) -> impl Iterator<Item = (&'static Param, String)> + '_ {
        self.params().filter(|(param, text)| *text != param.default_text())
    }

    /// The value of a parameter of the policy's own.
    fn value(&self, name: &str) -> u64 {
        self.values.get(self.kind.params(), name)
    }

    /// A [`Param::whole`].
    pub(super) fn whole(&self, name: &str) -> u64 {
        self.value(name)
    }

    /// A [`Param::ratio`], in thousandths.
    pub(super) fn thousandths(&self, name: &str) -> u64 {
        self.value(name)
    }

    /// A [`Param::time`].
    pub(super) fn time(&self, name: &str) -> Duration {
        Duration::from_micros(self.value(name))
    }

    /// The position of a [`Param::word`] among its words.
    pub(super) fn word(&self, name: &str) -> u64 {
        self.value(name)
    }

    /// A path's number in a [`Param::per_path`].
    pub(super) fn of_path(&self, name: &str, path: PathId) -> u8 {
        of_path(self.value(name), path.index())
    }
}

impl From<PolicyKind> for PolicySpec {
    /// Every parameter at its default.
    fn from(kind: PolicyKind) -> Self {
        Self { kind, values: Values::defaults(kind.params()) }
    }
}

impl fmt::Debug for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PolicySpec {
    /// The name, and the parameters that differ from their defaults: `latency-rr threshold=1.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        self.changed_params().try_for_each(|(param, text)| write!(f, " {}={text}", param.name()))
    }
}

/// The requests that can have a policy of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyClass {
    /// Reads.
    Read,
    /// Everything else. (A flush goes to every dirty path, whatever the policy, unless the write cache is shared.)
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

/// There is no class of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown class '{name}', expected one of: read, write")]
pub struct UnknownClass {
    /// What was asked for.
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

/// The policies of a disk. If both are equal, one policy decides about all requests and sees them all; otherwise each sees its
/// own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassPolicies {
    /// For reads.
    pub read: PolicySpec,
    /// For writes and everything else: see [`PolicyClass::Write`].
    pub write: PolicySpec,
}

impl ClassPolicies {
    /// The policy of all requests, if there is one.
    #[must_use]
    pub fn single(&self) -> Option<&PolicySpec> {
        (self.read == self.write).then_some(&self.read)
    }

    /// The distinct ones: of all requests, or of reads and of the others.
    pub fn iter(&self) -> impl Iterator<Item = &PolicySpec> {
        std::iter::once(&self.read).chain((self.read != self.write).then_some(&self.write))
    }

    /// Whether one of them is of that kind.
    #[must_use]
    pub fn uses(&self, kind: PolicyKind) -> bool {
        self.iter().any(|spec| spec.kind == kind)
    }

    /// Does what an operator asked for.
    pub fn change(&mut self, change: &PolicyChange) {
        let read = (change.class != Some(PolicyClass::Write)).then_some(&mut self.read);
        let write = (change.class != Some(PolicyClass::Read)).then_some(&mut self.write);
        for spec in [read, write].into_iter().flatten() {
            if spec.kind != change.kind {
                *spec = change.kind.into();
            }
            spec.values.set_all(&change.values);
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

    /// A policy by its name, for all requests.
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

/// A switch to a policy. Where that policy is in force already, parameters that are not named keep their values; elsewhere they
/// get their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    kind: PolicyKind,
    class: Option<PolicyClass>,
    values: Vec<(usize, u64)>,
}

impl PolicyChange {
    /// A switch of one class of requests, or of all, with these parameters by name and text.
    pub fn new<'a>(
        kind: PolicyKind,
        class: Option<PolicyClass>,
        params: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParamError> {
        Ok(Self { kind, class, values: kind.params_of().read_all(params)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PolicyKind::{LatencyRr, QueueDepth, RoundRobin};

    #[test]
    fn parameters_by_name_and_text() {
        let spec = PolicySpec::new(LatencyRr, [("threshold", "1.5")]).unwrap();
        assert_eq!(spec.thousandths("threshold"), 1500);
        assert_eq!(spec.to_string(), "latency-rr threshold=1.5");
        assert_eq!(PolicySpec::new(LatencyRr, [("threshold", "1.25")]).unwrap(), LatencyRr.into());
    }

    #[test]
    fn errors_name_parameter_value_range_and_what_there_is() {
        let message = |kind, params: &[(&str, &str)]| {
            PolicySpec::new(kind, params.iter().copied()).expect_err("refused").to_string()
        };
        assert_eq!(message(RoundRobin, &[("gain", "1")]), "policy 'round-robin' has no parameter 'gain'; it has none");
        let unknown = message(LatencyRr, &[("gain", "1")]);
        assert!(unknown.starts_with("policy 'latency-rr' has no parameter 'gain'; it has threshold"), "{unknown}");
        let value = message(LatencyRr, &[("threshold", "0.5")]);
        let start =
            "policy 'latency-rr': parameter 'threshold' is '0.5', expected 1 to 10 (ratio, default 1.25); it has ";
        assert!(value.starts_with(start), "{value}");
        assert_eq!(
            message(LatencyRr, &[("threshold", "2"), ("threshold", "3")]),
            "policy 'latency-rr': parameter 'threshold' is given twice; give it once"
        );
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
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
