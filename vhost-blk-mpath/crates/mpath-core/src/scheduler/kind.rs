//! The schedulers by name, and a scheduler with its parameters.

use std::fmt;
use std::str::FromStr;

use super::settings::PARAMS;
use crate::Param;
use crate::kind_with_params::{KindChange, KindSpec, KindWithParams, ParamsOf};

/// The rule by which disks and flows take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerKind {
    /// Flows and disks that were idle go first with a burst, within an allowance.
    BurstCredit,
    /// The rule as published (docs/scheduler.md): the first 64 requests of a flow that was idle go before all others.
    Published,
    /// Each flow in turn, one request each.
    Fifo,
}

impl SchedulerKind {
    /// Every scheduler.
    pub const ALL: [Self; 3] = [Self::BurstCredit, Self::Published, Self::Fifo];

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BurstCredit => "burst-credit",
            Self::Published => "published",
            Self::Fifo => "fifo",
        }
    }

    /// The rule in one line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::BurstCredit => {
                "flows and disks that were idle go first with a burst; busy ones keep a share of the service"
            }
            Self::Published => "the first 64 requests of a flow that was idle go strictly before those of busy flows",
            Self::Fifo => "flows in turn, one request each; first in, first out within a flow",
        }
    }

    /// The parameters of the scheduler.
    #[must_use]
    pub const fn params(self) -> &'static [Param] {
        match self {
            Self::BurstCredit => PARAMS,
            Self::Published | Self::Fifo => &[],
        }
    }
}

impl KindWithParams for SchedulerKind {
    const NOUN: &'static str = "scheduler";

    fn names() -> Vec<&'static str> {
        Self::ALL.map(Self::name).into()
    }

    fn params_of(self) -> ParamsOf {
        ParamsOf { noun: Self::NOUN, name: self.name(), params: self.params() }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for an unknown scheduler name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown scheduler '{name}', expected one of: {}", SchedulerKind::ALL.map(SchedulerKind::name).join(", "))]
pub struct UnknownScheduler {
    /// The given name.
    pub name: String,
}

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, UnknownScheduler> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownScheduler { name: name.into() })
    }
}

/// A scheduler and the values of its parameters.
pub type SchedulerSpec = KindSpec<SchedulerKind>;
/// A switch to a scheduler.
pub type SchedulerChange = KindChange<SchedulerKind>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind_with_params::MAX_PARAMS;
    use crate::scheduler::settings::Settings;

    #[test]
    fn names_round_trip_and_errors_list_them() {
        for kind in SchedulerKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = |name: &str| name.parse::<SchedulerKind>().expect_err("unknown").to_string();
        assert_eq!(error("cfq"), "unknown scheduler 'cfq', expected one of: burst-credit, published, fifo");
    }

    #[test]
    fn parameters_by_name_and_text() {
        let spec = SchedulerSpec::new(SchedulerKind::BurstCredit, [("share", "0.5")]).unwrap();
        assert_eq!(spec.to_string(), "burst-credit share=0.5");
        for (kind, error) in [
            (SchedulerKind::Fifo, "scheduler 'fifo' has no parameter 'rho'; it has none"),
            (
                SchedulerKind::BurstCredit,
                "scheduler 'burst-credit' has no parameter 'rho'; it has burst, share, gap, io-cost",
            ),
        ] {
            assert_eq!(SchedulerSpec::new(kind, [("rho", "0")]).expect_err("none of it").to_string(), error);
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
            // Every parameter that the settings read is in the table.
            Settings::new(&kind.into());
        }
    }
}
