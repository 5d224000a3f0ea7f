//! Medians, and how far the rounds lie apart.

use serde::{Deserialize, Serialize};

/// Median, least and most of the rounds. Infinity stands for "never".
///
/// Stored as `[median, least, most]` with five digits, or as one number where the three are equal; `null` is infinity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// The spread of these values. Zeroes if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Self { median, min, max }
    }

    /// The spread of a value that holds for all rounds.
    pub fn exactly(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }

    /// `median ± percent`: the percent of the median by which the least or the most is away. Only the median if all are equal to
    /// a percent, or if the percent says nothing.
    pub fn near(&self, decimals: usize) -> String {
        let median = number(self.median, decimals);
        let percent = (self.max - self.median).max(self.median - self.min) / self.median * 100.0;
        if percent.is_finite() && percent >= 0.5 { format!("{median} ± {percent:.0} %") } else { median }
    }

    /// `median (least–most)` with this many decimals.
    pub fn text(&self, decimals: usize) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(|value| number(value, decimals));
        if self.min.is_infinite() { median } else { format!("{median} ({min}–{max})") }
    }
}

/// A number with this many decimals. Without decimals, its thousands are grouped. Infinity is "never".
pub fn number(value: f64, decimals: usize) -> String {
    match decimals {
        _ if value.is_infinite() => "never".to_owned(),
        0 => grouped(value),
        _ => format!("{value:.decimals$}"),
    }
}

/// A number with its thousands grouped: 1234567 as `1 234 567`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// The form in the files.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    One(Option<f64>),
    Three([Option<f64>; 3]),
}

impl From<Spread> for Stored {
    fn from(Spread { median, min, max }: Spread) -> Self {
        let digits = |value: f64| value.is_finite().then(|| format!("{value:.4e}").parse().unwrap_or(value));
        let values = [median, min, max].map(digits);
        if values[1] == values[2] { Self::One(values[0]) } else { Self::Three(values) }
    }
}

impl From<Stored> for Spread {
    fn from(stored: Stored) -> Self {
        let values = match stored {
            Stored::One(value) => [value; 3],
            Stored::Three(values) => values,
        };
        let [median, min, max] = values.map(|value| value.unwrap_or(f64::INFINITY));
        Self { median, min, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_between_least_and_most() {
        let odd = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert!((Spread::of([4.0, 1.0, 2.0, 3.0].into_iter()).median - 2.5).abs() < 1e-9);
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
    }

    #[test]
    fn numbers_are_grouped_and_infinity_is_never() {
        assert_eq!(grouped(1_234_567.4), "1\u{202f}234\u{202f}567");
        assert_eq!((grouped(999.0), grouped(0.4)), ("999".into(), "0".into()));
        assert_eq!(Spread { median: 1.25, min: 1.0, max: f64::INFINITY }.text(1), "1.2 (1.0–never)");
    }

    #[test]
    fn a_stored_spread_is_read_back() {
        let spread = Spread { median: 12_345.678_9, min: 0.0, max: f64::INFINITY };
        let text = serde_json::to_string(&spread).unwrap();
        assert_eq!(text, "[12346.0,0.0,null]");
        assert_eq!(serde_json::from_str::<Spread>(&text).unwrap(), Spread { median: 12_346.0, ..spread });
        for spread in [Spread::exactly(2.5), Spread::exactly(f64::INFINITY)] {
            let text = serde_json::to_string(&spread).unwrap();
            assert_eq!(serde_json::from_str::<Spread>(&text).unwrap(), spread, "{text}");
        }
    }
}
