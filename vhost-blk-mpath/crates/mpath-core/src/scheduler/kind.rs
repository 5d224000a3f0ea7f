//! The schedulers there are, and one with its parameters.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use super::{About, Rule, burst_credit, burst_credit_drr, fifo};
use crate::policy::{ParamsOf, Values};
use crate::{Param, ParamError};

/// The rule by which flows take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerKind {
    /// Each flow in turn, a request each.
    Fifo,
    /// A flow that was idle goes first with its first requests.
    BurstCredit,
    /// The same within a budget, and with a share for the others.
    BurstCreditDrr,
}

impl SchedulerKind {
    /// Every scheduler.
    pub const ALL: [Self; 3] = [Self::Fifo, Self::BurstCredit, Self::BurstCreditDrr];

    const fn about(self) -> &'static About {
        match self {
            Self::Fifo => &fifo::ABOUT,
            Self::BurstCredit => &burst_credit::ABOUT,
            Self::BurstCreditDrr => &burst_credit_drr::ABOUT,
        }
    }

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.about().name
    }

    /// The rule in one line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.about().description
    }

    /// Its parameters.
    #[must_use]
    pub const fn params(self) -> &'static [Param] {
        self.about().params
    }

    const fn params_of(self) -> ParamsOf {
        ParamsOf { what: "scheduler", name: self.name(), params: self.params() }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no scheduler of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown scheduler '{name}', expected one of: {}", SchedulerKind::ALL.map(SchedulerKind::name).join(", "))]
pub struct UnknownScheduler {
    /// What was asked for.
    pub name: String,
}

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, UnknownScheduler> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownScheduler { name: name.into() })
    }
}

/// A scheduler and the values of its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SchedulerSpec {
    kind: SchedulerKind,
    values: Values,
}

impl SchedulerSpec {
    /// A scheduler with these parameters, by name and text; the others have their defaults.
    pub fn new<'a>(
        kind: SchedulerKind,
        params: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParamError> {
        let mut spec = Self::from(kind);
        spec.values.set_all(&kind.params_of().read_all(params)?);
        Ok(spec)
    }

    /// Which scheduler.
    #[must_use]
    pub const fn kind(&self) -> SchedulerKind {
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

    /// Does what an operator asked for.
    pub fn change(&mut self, change: &SchedulerChange) {
        if self.kind != change.kind {
            *self = change.kind.into();
        }
        self.values.set_all(&change.values);
    }

    /// A number, or thousandths of a ratio.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.values.get(self.kind.params(), name)
    }

    pub(super) fn time(&self, name: &str) -> Duration {
        Duration::from_micros(self.number(name))
    }

    pub(super) fn build(&self, now: Instant) -> Box<dyn Rule> {
        (self.kind.about().build)(now, self)
    }
}

impl From<SchedulerKind> for SchedulerSpec {
    /// Every parameter at its default.
    fn from(kind: SchedulerKind) -> Self {
        Self { kind, values: Values::defaults(kind.params()) }
    }
}

impl fmt::Debug for SchedulerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SchedulerSpec {
    /// The name, and the parameters that differ from their defaults: `burst-credit-drr rho=0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        self.changed_params().try_for_each(|(param, text)| write!(f, " {}={text}", param.name()))
    }
}

/// A switch to a scheduler. Where it is in force already, parameters that are not named keep their values; elsewhere they get
/// their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerChange {
    kind: SchedulerKind,
    values: Vec<(usize, u64)>,
}

impl SchedulerChange {
    /// The scheduler and its parameters by name and text; the text `default` is the default of each.
    pub fn new<'a>(
        kind: SchedulerKind,
        params: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParamError> {
        Ok(Self { kind, values: kind.params_of().read_all(params)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MAX_PARAMS;

    #[test]
    fn names_round_trip_and_errors_list_them() {
        for kind in SchedulerKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "cfq".parse::<SchedulerKind>().expect_err("unknown").to_string();
        assert_eq!(error, "unknown scheduler 'cfq', expected one of: fifo, burst-credit, burst-credit-drr");
    }

    #[test]
    fn parameters_by_name_and_text() {
        let spec = SchedulerSpec::new(SchedulerKind::BurstCreditDrr, [("rho", "0")]).unwrap();
        assert_eq!(spec.to_string(), "burst-credit-drr rho=0");
        let error = SchedulerSpec::new(SchedulerKind::Fifo, [("rho", "0")]).expect_err("fifo has none").to_string();
        assert_eq!(error, "scheduler 'fifo' has no parameter 'rho'; it has none");
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let change = |name: &str, params: &[(&str, &str)]| {
            SchedulerChange::new(name.parse().unwrap(), params.iter().copied()).unwrap()
        };
        let mut spec = SchedulerSpec::from(SchedulerKind::Fifo);
        for (change, shown) in [
            (change("burst-credit-drr", &[("rho", "0")]), "burst-credit-drr rho=0"),
            (change("burst-credit-drr", &[("share", "0.5")]), "burst-credit-drr rho=0 share=0.5"),
            (change("burst-credit-drr", &[("rho", "default")]), "burst-credit-drr share=0.5"),
            (change("burst-credit", &[]), "burst-credit"),
            (change("burst-credit-drr", &[]), "burst-credit-drr"),
        ] {
            spec.change(&change);
            assert_eq!(spec.to_string(), shown);
        }
    }

    #[test]
    fn the_documentation_has_every_scheduler_and_parameter() {
        let text = include_str!("../../../../../docs/scheduler.md");
        for kind in SchedulerKind::ALL {
            assert!(kind.params().len() <= MAX_PARAMS && !kind.description().is_empty());
            let section = text.split("\n## ").find(|section| section.starts_with(&format!("`{kind}`\n")));
            let section = section.unwrap_or_else(|| panic!("no section on {kind}"));
            for param in kind.params() {
                let (name, unit, range) = (param.name(), param.unit(), param.range());
                let (default, what) = (param.default_text(), param.description());
                let row = format!("| `{name}` | {unit} | {range} | {default} | {what} |\n");
                assert!(section.contains(&row), "{kind}: docs/scheduler.md lacks:\n{row}");
                assert_eq!(param.parse(&default), Some(param.default_value()));
            }
            // Every parameter that the rule reads is in its table.
            SchedulerSpec::from(kind).build(Instant::now());
        }
    }
}
