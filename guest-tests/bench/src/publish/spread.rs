//! Medians, and how far the rounds lie apart.

use serde::Serialize;

/// Median, least and most of the rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[allow(missing_docs)] // The names say it all.
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of no values: zeroes.
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

    /// `median (min–max)` with so many decimals.
    #[must_use]
    pub fn text(&self, decimals: usize) -> String {
        let number = |value: f64| if decimals == 0 { grouped(value) } else { format!("{value:.decimals$}") };
        format!("{} ({}–{})", number(self.median), number(self.min), number(self.max))
    }
}

/// 1234567 as `1 234 567`.
#[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(spread(&[]), Spread::default());
        assert_eq!(spread(&[1000.0, 3.0, 5.0]).text(0), "5 (3–1\u{202f}000)");
        assert_eq!(spread(&[1.25]).text(1), "1.2 (1.2–1.2)");
    }

    #[test]
    fn groups_digits() {
        assert_eq!(grouped(7.4), "7");
        assert_eq!(grouped(1_234_567.0), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(123.0), "123");
    }
}
