//! The settings of hedging.

use std::fmt;
use std::str::FromStr;

use mpath_core::{Hedging, decimal_text, json_schema, parse_decimal};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::text::{ValueError, off_in_yaml_1_1, text_serde, word_or_number};

const HEDGE: &str = "off or a quantile from p50 to p99.9, such as p95 or p99.5";
const BUDGET: &str = "a share of all reads from 0.1% to 5%, such as 5% or 0.5%";

/// The reads that are hedged: `off`, or those slower than a quantile of recent reads, `p50` to `p99.9`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hedge {
    /// None.
    #[default]
    Off,
    /// Reads slower than this quantile, in thousandths.
    Quantile(u16),
}

/// The most hedges, as a share of all reads: 0.1 % to 5 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HedgeBudget {
    permille: u16,
}

impl Default for HedgeBudget {
    /// 5 %.
    fn default() -> Self {
        Self { permille: 50 }
    }
}

/// Both settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HedgeSetting {
    /// The reads that are hedged.
    pub hedge: Hedge,
    /// The most hedges.
    pub budget: HedgeBudget,
}

impl HedgeSetting {
    /// The setting as mpath-core takes it. `None` if hedging is off.
    #[must_use]
    pub fn hedging(self) -> Option<Hedging> {
        let Hedge::Quantile(quantile_permille) = self.hedge else { return None };
        Some(Hedging { quantile_permille, budget_permille: self.budget.permille })
    }
}

/// Parses a percentage with at most one decimal into thousandths.
fn permille(text: &str) -> Option<u16> {
    parse_decimal(text, 1)?.try_into().ok()
}

impl FromStr for Hedge {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let quantile = text.strip_prefix('p').and_then(permille).filter(|quantile| (500..=999).contains(quantile));
        quantile.map(Self::Quantile).ok_or_else(|| ValueError::not(text, HEDGE))
    }
}

impl fmt::Display for Hedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off => f.write_str("off"),
            Self::Quantile(quantile) => write!(f, "p{}", decimal_text(quantile.into(), 1)),
        }
    }
}

impl FromStr for HedgeBudget {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let share = text.strip_suffix('%').and_then(permille).filter(|share| (1..=50).contains(share));
        share.map(|permille| Self { permille }).ok_or_else(|| ValueError::not(text, BUDGET))
    }
}

impl fmt::Display for HedgeBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", decimal_text(self.permille.into(), 1))
    }
}

impl Serialize for Hedge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hedge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word_or_number(deserializer, HEDGE)
    }
}

text_serde!(HedgeBudget, BUDGET);
json_schema!(
    Hedge,
    "Hedge",
    json!({
        "description": "The reads that are hedged: `off`, or those slower than a quantile of recent reads, `p50` to `p99.9`.",
        "anyOf": [{"type": "string", "pattern": r"^(off|p0*[5-9][0-9](\.[0-9])?)$"}, off_in_yaml_1_1()],
        "examples": ["off", "p50", "p99.9"],
    })
);
json_schema!(
    HedgeBudget,
    "HedgeBudget",
    json!({
        "type": "string",
        "description": "The most hedges, as a share of all reads: 0.1% to 5%.",
        "pattern": r"^0*(0\.[1-9]|[1-4](\.[0-9])?|5(\.0)?)%$",
        "examples": ["0.1%", "4.5%", "5%"],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_what_they_mean() {
        for (hedge, budget, core) in [
            ("off", "5%", None),
            ("p50", "0.1%", Some((500, 1))),
            ("p95", "3%", Some((950, 30))),
            ("p99.9", "4.5%", Some((999, 45))),
        ] {
            let setting = HedgeSetting { hedge: hedge.parse().unwrap(), budget: budget.parse().unwrap() };
            assert_eq!((setting.hedge.to_string(), setting.budget.to_string()), (hedge.into(), budget.into()));
            let told = setting.hedging().map(|told| (told.quantile_permille, told.budget_permille));
            assert_eq!(told, core);
        }
        assert_eq!(HedgeSetting::default(), HedgeSetting { hedge: Hedge::Off, budget: "5.0%".parse().unwrap() });
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for text in ["", "on", "p", "95", "p49.9", "p100", "p99.99", "p99.", "p+95", "p9999999", "P95", "p-1", "p95%"] {
            assert!(text.parse::<Hedge>().is_err(), "{text}");
        }
        for text in ["", "5", "0%", "5.1%", "0.05%", "-1%", "%", ".5%", "+3%", "70000%", "3 %"] {
            assert!(text.parse::<HedgeBudget>().is_err(), "{text}");
        }
        let said = "p30".parse::<Hedge>().unwrap_err().to_string();
        assert_eq!(said, "`p30` is not off or a quantile from p50 to p99.9, such as p95 or p99.5");
        let said = "7%".parse::<HedgeBudget>().unwrap_err().to_string();
        assert_eq!(said, "`7%` is not a share of all reads from 0.1% to 5%, such as 5% or 0.5%");
    }
}
