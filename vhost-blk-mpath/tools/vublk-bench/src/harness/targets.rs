//! The targets of a measurement, and whether it reaches them. A person has to say why a target is missed.

/// The most cases that are named where a target is missed.
const NAMED: usize = 2;

/// A property that some cells must have.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub description: String,
    /// A case for each cell that must have the property. Without cases the target was not measured.
    pub cases: Vec<Case>,
}

/// A target in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub row: String,
    contender: String,
    measured: f64,
    limit: Limit,
    unit: &'static str,
}

/// A value that a figure must reach, or must not exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    pub fn new(description: impl Into<String>, cases: impl IntoIterator<Item = Case>) -> Self {
        Self { description: description.into(), cases: cases.into_iter().collect() }
    }

    /// Whether every case is met; `None` if there is none.
    pub fn is_met(&self) -> Option<bool> {
        (!self.cases.is_empty()).then(|| self.cases.iter().all(Case::is_met))
    }

    /// One sentence: the verdict, the property, and the cases that are nearest to the limit or furthest beyond.
    pub fn text(&self) -> String {
        let mut cases: Vec<&Case> = self.cases.iter().collect();
        cases.sort_by(|one, other| other.strain().total_cmp(&one.strain()));
        let missed = cases.iter().filter(|case| !case.is_met()).count();
        let (verdict, figures) = match cases.first() {
            None => ("Not measured".to_owned(), String::new()),
            Some(nearest) if missed == 0 => {
                (format!("Met in {}", counted(cases.len())), format!(" Nearest to the limit: {}.", nearest.text()))
            }
            Some(_) => {
                let worst = cases.iter().take(missed.min(NAMED)).map(|case| case.text()).collect::<Vec<_>>();
                (
                    format!("**Missed** in {missed} of {}", counted(cases.len())),
                    format!(" Furthest: {}.", worst.join("; ")),
                )
            }
        };
        format!("{verdict}: {}.{figures}", self.description)
    }
}

fn counted(cases: usize) -> String {
    format!("{cases} case{}", if cases == 1 { "" } else { "s" })
}

impl Case {
    /// A measured value and its limit. `unit` is `ms`, `s`, `times`, or words that follow the number.
    pub fn new(row: &str, contender: &str, measured: f64, limit: Limit, unit: &'static str) -> Self {
        Self { row: row.to_owned(), contender: contender.to_owned(), measured, limit, unit }
    }

    /// Whether the measured value is within the limit.
    pub fn is_met(&self) -> bool {
        match self.limit {
            Limit::AtLeast(limit) => self.measured >= limit,
            Limit::AtMost(limit) => self.measured <= limit,
        }
    }

    fn text(&self) -> String {
        let measured = match self.unit {
            _ if self.measured.is_infinite() => "never".to_owned(),
            unit if unit.starts_with("ms") => format!("{:.2} {unit}", self.measured),
            "times" => format!("{:.2} ×", self.measured),
            unit => format!("{:.1} {unit}", self.measured),
        };
        format!("{measured} (`{}`, {})", self.contender, self.row)
    }

    /// How near the value is to its limit, or how far beyond: the larger the worse.
    fn strain(&self) -> f64 {
        let (Limit::AtLeast(limit) | Limit::AtMost(limit)) = self.limit;
        let ratio = if limit > 0.0 && self.measured > 0.0 { self.measured / limit } else { 0.0 };
        if self.is_met() == (ratio <= 1.0) { ratio } else { ratio.recip() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(row: &str, measured: f64, limit: Limit) -> Case {
        Case::new(row, "bdp", measured, limit, "%")
    }

    #[test]
    fn a_target_is_met_if_every_case_is() {
        let [good, bad] = [96.0, 94.0].map(|measured| case("r", measured, Limit::AtLeast(95.0)));
        assert_eq!(Target::new("t", [good.clone()]).is_met(), Some(true));
        assert_eq!(Target::new("t", [good, bad]).is_met(), Some(false));
        assert_eq!(Target::new("t", []).is_met(), None);
        assert!(!case("r", f64::INFINITY, Limit::AtMost(1.0)).is_met());
    }

    #[test]
    fn the_text_has_the_nearest_case_or_those_that_miss_most() {
        let cases = [
            case("far", 50.0, Limit::AtMost(100.0)),
            case("near", 99.0, Limit::AtMost(100.0)),
            case("below", 120.0, Limit::AtLeast(100.0)),
        ];
        let met = Target::new("t", cases.clone()).text();
        assert_eq!(met, "Met in 3 cases: t. Nearest to the limit: 99.0 % (`bdp`, near).");
        let missed = [case("never", f64::INFINITY, Limit::AtMost(1.0)), case("low", 90.0, Limit::AtLeast(95.0))];
        let missed = Target::new("t", cases.into_iter().chain(missed)).text();
        assert_eq!(missed, "**Missed** in 2 of 5 cases: t. Furthest: never (`bdp`, never); 90.0 % (`bdp`, low).");
        assert_eq!(Target::new("t", []).text(), "Not measured: t.");
    }
}
