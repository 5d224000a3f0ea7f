//! Sizes and durations as people type them on a command line.

use std::time::Duration;

/// An error in a size or a duration on the command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No digits in front.
    #[error("'{0}' does not start with a number")]
    NoNumber(String),
    /// The unit is unknown.
    #[error("unknown unit '{unit}' (known: {known})")]
    UnknownUnit {
        /// As typed.
        unit: String,
        /// What would have been understood.
        known: &'static str,
    },
    /// The value does not fit.
    #[error("'{0}' is too large")]
    TooLarge(String),
}

fn split(text: &str) -> Result<(u64, &str), UnitError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(UnitError::NoNumber(text.to_owned()));
    }
    let number = number.parse().map_err(|_| UnitError::TooLarge(text.to_owned()))?;
    Ok((number, unit.trim()))
}

/// Parses `512`, `4k`, `128KiB`, `1M`, `2GiB` into bytes. As in fio, every unit is a power of 1024.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => {
            return Err(UnitError::UnknownUnit { unit: unit.to_owned(), known: "k, M, G, T, KiB, MiB, GiB, TiB" });
        }
    };
    number.checked_mul(1 << shift).ok_or_else(|| UnitError::TooLarge(text.to_owned()))
}

/// Parses `500ms`, `10s`, `2m`, `1h`; a bare number means seconds.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text)?;
    let millis_per_unit = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => {
            return Err(UnitError::UnknownUnit { unit: unit.to_owned(), known: "ms, s, m, h" });
        }
    };
    let millis = number.checked_mul(millis_per_unit);
    millis.map(Duration::from_millis).ok_or_else(|| UnitError::TooLarge(text.to_owned()))
}

/// What is wrong with a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecondsError {
    /// Something else.
    #[error("is not a number of seconds, as in 3 or 0.5")]
    NoNumber,
    /// Too little to measure anything, or too much to wait for.
    #[error("must be from 0.1 to 600")]
    OutOfRange,
}

/// Parses `3` or `0.5`.
pub fn parse_seconds(text: &str) -> Result<Duration, SecondsError> {
    let seconds: f64 = text.parse().map_err(|_| SecondsError::NoNumber)?;
    if (0.1..=600.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(SecondsError::OutOfRange) }
}

/// For people who wait.
#[must_use]
pub fn about(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("about {} s", seconds + 1),
        seconds => format!("about {} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("128KiB"), Ok(131_072));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert!(matches!(parse_size("k"), Err(UnitError::NoNumber(_))));
        assert!(matches!(parse_size("4q"), Err(UnitError::UnknownUnit { .. })));
        assert!(matches!(parse_size("-1"), Err(UnitError::NoNumber(_))));
        assert!(matches!(parse_size("99999999999T"), Err(UnitError::TooLarge(_))));
        assert!(matches!(parse_size("99999999999999999999999"), Err(UnitError::TooLarge(_))));
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(matches!(parse_duration("2y"), Err(UnitError::UnknownUnit { .. })));
    }

    #[test]
    fn seconds_and_words_for_them() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for (text, error) in
            [("0", SecondsError::OutOfRange), ("nan", SecondsError::OutOfRange), ("3s", SecondsError::NoNumber)]
        {
            assert_eq!(parse_seconds(text), Err(error), "{text}");
        }
        assert_eq!(about(Duration::from_secs(59)), "about 60 s");
        assert_eq!(about(Duration::from_secs(3301)), "about 56 min");
    }
}
