//! The settings of hedging.

use std::fmt;
use std::str::FromStr;

use mpath_core::Hedging;
use serde_json::json;

use crate::schema::json_schema;
use crate::text::text_serde;

/// The reads that are hedged: `off`, or those slower than a quantile of recent reads, `p50` to `p99.9`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hedge {
    /// None.
    #[default]
    Off,
    /// Reads slower than this quantile, in thousandths.
    Quantile(u16),
}

/// A text that is no [`Hedge`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not off or a quantile from p50 to p99.9, such as p95 or p99.5")]
pub struct HedgeError {
    /// The text.
    pub text: String,
}

/// The most hedges, as a share of all reads: 0.1 % to 5 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HedgeBudget {
    permille: u16,
}

/// A text that is no [`HedgeBudget`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a share of all reads from 0.1% to 5%, such as 5% or 0.5%")]
pub struct HedgeBudgetError {
    /// The text.
    pub text: String,
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
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u16>().ok())?;
    number(whole)?.checked_mul(10)?.checked_add(number(tenth).filter(|_| tenth.len() == 1)?)
}

/// Thousandths, shown as a percentage.
struct Percent(u16);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => whole.fmt(f),
            (whole, tenth) => write!(f, "{whole}.{tenth}"),
        }
    }
}

impl FromStr for Hedge {
    type Err = HedgeError;

    fn from_str(text: &str) -> Result<Self, HedgeError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let quantile = text.strip_prefix('p').and_then(permille).filter(|quantile| (500..=999).contains(quantile));
        quantile.map(Self::Quantile).ok_or_else(|| HedgeError { text: text.into() })
    }
}

impl fmt::Display for Hedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off => f.write_str("off"),
            Self::Quantile(quantile) => write!(f, "p{}", Percent(quantile)),
        }
    }
}

impl FromStr for HedgeBudget {
    type Err = HedgeBudgetError;

    fn from_str(text: &str) -> Result<Self, HedgeBudgetError> {
        let share = text.strip_suffix('%').and_then(permille).filter(|share| (1..=50).contains(share));
        share.map(|permille| Self { permille }).ok_or_else(|| HedgeBudgetError { text: text.into() })
    }
}

impl fmt::Display for HedgeBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", Percent(self.permille))
    }
}

text_serde!(Hedge, "off, or a quantile such as p95");
text_serde!(HedgeBudget, "a share of all reads, such as 5%");
json_schema!(
    Hedge,
    "Hedge",
    json!({
        "type": "string",
        "description": "The reads that are hedged: `off`, or those slower than a quantile of recent reads, `p50` to `p99.9`.",
        "pattern": r"^(off|p0*[5-9][0-9](\.[0-9])?)$",
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
