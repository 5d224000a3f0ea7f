//! A policy or scheduler with the values of its parameters, and changes of them.

use std::fmt;

use monotonic::Duration;

use crate::Param;

/// The set of all policies, or of all schedulers.
pub trait KindWithParams: Copy + Eq + 'static {
    /// "policy" or "scheduler".
    const NOUN: &'static str;

    /// Every name, other names included.
    fn names() -> Vec<&'static str>;

    /// The name and parameters of this policy or scheduler.
    fn params_of(self) -> ParamsOf;
}

/// A policy or scheduler by name, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamsOf {
    /// "policy" or "scheduler".
    pub noun: &'static str,
    /// The name.
    pub name: &'static str,
    /// All parameters.
    pub params: &'static [Param],
}

impl ParamsOf {
    /// Positions and values of parameters that are given by name and text.
    fn read_all<'a>(
        self,
        params: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<(usize, u64)>, ParamError> {
        let mut values: Vec<(usize, u64)> = Vec::new();
        for (name, text) in params {
            let found = self.params.iter().enumerate().find(|(_, param)| param.name() == name);
            let (at, param) = found.ok_or_else(|| ParamError::Unknown { of: self, name: name.into() })?;
            if values.iter().any(|(other, _)| *other == at) {
                return Err(ParamError::Twice { of: self, name: param.name() });
            }
            let value = param.parse(text).ok_or_else(|| ParamError::Value { of: self, param, value: text.into() })?;
            values.push((at, value));
        }
        Ok(values)
    }

    /// The part of messages that lists the parameters.
    fn known(&self) -> String {
        let names: Vec<&str> = self.params.iter().map(Param::name).collect();
        if names.is_empty() { "it has none".into() } else { format!("it has {}", names.join(", ")) }
    }
}

impl fmt::Display for ParamsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}'", self.noun, self.name)
    }
}

/// Why a parameter was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// The policy or scheduler has no such parameter.
    #[error("{of} has no parameter '{name}'; {}", of.known())]
    Unknown {
        /// The policy or scheduler.
        of: ParamsOf,
        /// The given text.
        name: String,
    },
    /// The parameter cannot have this value.
    #[error("{of}: parameter '{}' is '{value}', expected {} ({}, default {}); {}",
        param.name(), param.range(), param.unit(), param.default_text(), of.known())]
    Value {
        /// The policy or scheduler.
        of: ParamsOf,
        /// The parameter.
        param: &'static Param,
        /// The given text.
        value: String,
    },
    /// The parameter is given more than once.
    #[error("{of}: parameter '{name}' is given twice; give it once")]
    Twice {
        /// The policy or scheduler.
        of: ParamsOf,
        /// The parameter.
        name: &'static str,
    },
}

/// The largest number of parameters of a policy or scheduler.
pub(crate) const MAX_PARAMS: usize = 8;

/// A policy or scheduler, and the values of its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KindSpec<K> {
    kind: K,
    /// The values, in the order of [`ParamsOf::params`].
    values: [u64; MAX_PARAMS],
}

impl<K: KindWithParams> KindSpec<K> {
    /// A policy or scheduler with these parameters, by name and text. The others have their defaults.
    pub fn new<'a>(kind: K, params: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut spec = Self::from(kind);
        spec.change(&KindChange::new(kind, params)?);
        Ok(spec)
    }

    /// The policy or scheduler.
    #[must_use]
    pub const fn kind(&self) -> K {
        self.kind
    }

    /// Every parameter with its value as text.
    pub fn params(&self) -> impl Iterator<Item = (&'static Param, String)> + '_ {
        self.kind.params_of().params.iter().zip(&self.values).map(|(param, value)| (param, param.text(*value)))
    }

    /// The parameters that differ from their defaults, with their values as text.
    pub fn changed_params(&self) -> impl Iterator<Item = (&'static Param, String)> + '_ {
        self.params().filter(|(param, text)| *text != param.default_text())
    }

    /// Applies a change.
    pub fn change(&mut self, change: &KindChange<K>) {
        if self.kind != change.kind {
            *self = change.kind.into();
        }
        for &(at, value) in &change.values {
            self.values[at] = value;
        }
    }

    /// The value of a parameter: a number, thousandths of a ratio, or the position of a word among its words.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let at = self.kind.params_of().params.iter().position(|param| param.name() == name);
        self.values[at.expect("the parameter exists")]
    }

    /// The value of a [`Param::time`].
    pub(crate) fn time(&self, name: &str) -> Duration {
        Duration::from_micros(self.number(name))
    }
}

impl<K: KindWithParams> From<K> for KindSpec<K> {
    /// Every parameter at its default.
    fn from(kind: K) -> Self {
        let mut values = [0; MAX_PARAMS];
        for (value, param) in values.iter_mut().zip(kind.params_of().params) {
            *value = param.default_value();
        }
        Self { kind, values }
    }
}

impl<K: KindWithParams> fmt::Debug for KindSpec<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<K: KindWithParams> fmt::Display for KindSpec<K> {
    /// The name, and the parameters that differ from their defaults: `latency-rr threshold=1.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.params_of().name)?;
        self.changed_params().try_for_each(|(param, text)| write!(f, " {}={text}", param.name()))
    }
}

/// A switch to a policy or scheduler. If it is already in force, parameters that are not named keep their values.
/// Otherwise they get their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindChange<K> {
    kind: K,
    /// Positions and values.
    values: Vec<(usize, u64)>,
}

impl<K: KindWithParams> KindChange<K> {
    /// A switch with these parameters, by name and text. The text `default` means the default.
    pub fn new<'a>(kind: K, params: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        Ok(Self { kind, values: kind.params_of().read_all(params)? })
    }
}

#[cfg(test)]
mod tests {
    use crate::PolicyKind::{LatencyRr, RoundRobin};
    use crate::{PolicySpec, SchedulerChange, SchedulerKind, SchedulerSpec};

    #[test]
    fn parameters_by_name_and_text() {
        let spec = PolicySpec::new(LatencyRr, [("threshold", "1.5")]).unwrap();
        assert_eq!(spec.number("threshold"), 1500);
        assert_eq!(spec.to_string(), "latency-rr threshold=1.5");
        assert_eq!(PolicySpec::new(LatencyRr, [("threshold", "1.25")]).unwrap(), LatencyRr.into());
    }

    #[test]
    fn errors_name_parameter_value_range_and_known_parameters() {
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
    fn a_change_keeps_parameters_that_it_does_not_name() {
        let change = |name: &str, params: &[(&str, &str)]| {
            SchedulerChange::new(name.parse().unwrap(), params.iter().copied()).unwrap()
        };
        let mut spec = SchedulerSpec::from(SchedulerKind::Fifo);
        for (change, shown) in [
            (change("burst-credit", &[("gap", "1ms")]), "burst-credit gap=1ms"),
            (change("burst-credit", &[("share", "0.5")]), "burst-credit share=0.5 gap=1ms"),
            (change("burst-credit", &[("gap", "default")]), "burst-credit share=0.5"),
            (change("published", &[]), "published"),
            (change("burst-credit", &[]), "burst-credit"),
        ] {
            spec.change(&change);
            assert_eq!(spec.to_string(), shown);
        }
    }
}
