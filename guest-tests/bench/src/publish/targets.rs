//! What a measurement is to show, and whether it does. Why a target is missed is for a human to say.

use serde::Serialize;
use std::fmt::Write;

/// Something that a measurement is to show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// It.
    pub what: &'static str,
    /// Whether each case does; `None` if there is none, because what it is about was not measured.
    pub met: Option<bool>,
    /// Where it can be read.
    pub cases: Vec<Case>,
}

/// A target in one row of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Case {
    /// The row.
    pub row: String,
    /// Whose cell: the name of a policy or of a scheduler.
    pub subject: String,
    /// In `unit`; `None`: never.
    pub measured: Option<f64>,
    /// What it must not be below or above.
    pub limit: f64,
    /// `ms`, `s`, `times`, or words behind the number.
    pub unit: &'static str,
    /// Whether it is within the limit.
    pub met: bool,
}

/// What has to reach a number, or stay below it.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // The names say it all.
pub enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    /// With its verdict.
    #[must_use]
    pub fn new(what: &'static str, cases: Vec<Case>) -> Self {
        let met = (!cases.is_empty()).then(|| cases.iter().all(|case| case.met));
        Self { what, met, cases }
    }
}

impl Case {
    /// With its verdict.
    #[must_use]
    pub fn new(row: &str, subject: &str, measured: Option<f64>, limit: Limit, unit: &'static str) -> Self {
        let (limit, met) = match limit {
            Limit::AtLeast(limit) => (limit, measured.is_some_and(|measured| measured >= limit)),
            Limit::AtMost(limit) => (limit, measured.is_some_and(|measured| measured <= limit)),
        };
        Self { row: row.to_owned(), subject: subject.to_owned(), measured, limit, unit, met }
    }

    fn text(&self) -> String {
        let number = |value: f64| match self.unit {
            "ms" => format!("{value:.2} ms"),
            "s" => format!("{value:.1} s"),
            "times" => format!("{value:.2} ×"),
            unit => format!("{value:.1} {unit}"),
        };
        let measured = self.measured.map_or_else(|| "never".to_owned(), number);
        format!("{measured} (`{}`, {})", self.subject, self.row)
    }

    /// How near to its limit, or how far beyond: the larger the worse. Cases of a target may have limits in both
    /// directions.
    fn strain(&self) -> f64 {
        let Some(measured) = self.measured else { return f64::INFINITY };
        let ratio = if self.limit > 0.0 && measured > 0.0 { measured / self.limit } else { 0.0 };
        if self.met == (ratio <= 1.0) { ratio } else { ratio.recip() }
    }
}

/// The table of targets.
pub fn write_targets(text: &mut String, targets: &[Target]) -> std::fmt::Result {
    writeln!(
        text,
        "\nTargets, by the medians:\n\n| target | | nearest to its limit, or all that miss it |\n|---|---|---|"
    )?;
    for target in targets {
        let worst = target.cases.iter().max_by(|one, other| one.strain().total_cmp(&other.strain()));
        let missed: Vec<String> = target.cases.iter().filter(|case| !case.met).map(Case::text).collect();
        let (word, where_) = match (target.met, worst) {
            (Some(true), Some(worst)) => (format!("met in {}", target.cases.len()), worst.text()),
            (Some(_), _) => (format!("**missed** in {} of {}", missed.len(), target.cases.len()), missed.join("; ")),
            (None, _) => ("not measured".to_owned(), String::new()),
        };
        writeln!(text, "| {} | {word} | {where_} |", target.what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(row: &str, measured: Option<f64>, limit: Limit) -> Case {
        Case::new(row, "x", measured, limit, "ms")
    }

    fn line(cases: Vec<Case>) -> String {
        let mut text = String::new();
        write_targets(&mut text, &[Target::new("fast", cases)]).unwrap();
        text.lines().last().unwrap().to_owned()
    }

    #[test]
    fn a_limit_is_good_itself() {
        for (limit, good, bad) in [(Limit::AtMost(2.0), 1.9, 2.1), (Limit::AtLeast(2.0), 2.1, 1.9)] {
            for (measured, met) in [(Some(2.0), true), (Some(good), true), (Some(bad), false), (None, false)] {
                assert_eq!(case("r", measured, limit).met, met, "{limit:?} {measured:?}");
            }
        }
    }

    #[test]
    fn the_nearest_or_all_that_miss() {
        let near = case("near", Some(1.9), Limit::AtMost(2.0));
        let far = case("far", Some(30.0), Limit::AtLeast(2.0));
        assert_eq!(line(vec![far.clone(), near.clone()]), "| fast | met in 2 | 1.90 ms (`x`, near) |");
        let missed = ["a", "b"].map(|row| case(row, Some(9.0), Limit::AtMost(2.0)));
        let [a, b] = missed;
        let text = line(vec![near, a, far, b]);
        assert_eq!(text, "| fast | **missed** in 2 of 4 | 9.00 ms (`x`, a); 9.00 ms (`x`, b) |");
        assert_eq!(line(vec![]), "| fast | not measured |  |");
    }
}
