//! Sizes and durations as people type them on a command line.

use std::time::Duration;

/// An error in a size or a duration on the command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("'{0}' does not start with a number")]
    NoNumber(String),
    #[error("unknown unit '{unit}' (known: {known})")]
    UnknownUnit { unit: String, known: &'static str },
    #[error("'{0}' is too large")]
    TooLarge(String),
}

/// A number times what `unit` says of the word behind it.
fn parse(text: &str, known: &'static str, unit: impl Fn(&str) -> Option<u64>) -> Result<u64, UnitError> {
    let (number, word) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    if number.is_empty() {
        return Err(UnitError::NoNumber(text.to_owned()));
    }
    let word = word.trim();
    let unit = unit(word).ok_or_else(|| UnitError::UnknownUnit { unit: word.to_owned(), known })?;
    let value = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    value.ok_or_else(|| UnitError::TooLarge(text.to_owned()))
}

/// Parses `512`, `4k`, `128KiB`, `1M`, `2GiB` into bytes. As in fio, every unit is a power of 1024.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    parse(text, "k, M, G, T, KiB, MiB, GiB, TiB", |unit| match &*unit.to_ascii_lowercase() {
        "" | "b" => Some(1),
        "k" | "kib" => Some(1 << 10),
        "m" | "mib" => Some(1 << 20),
        "g" | "gib" => Some(1 << 30),
        "t" | "tib" => Some(1 << 40),
        _ => None,
    })
}

/// Parses `500ms`, `10s`, `2m`, `1h`; a bare number means seconds.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let millis = parse(text, "ms, s, m, h", |unit| match unit {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    });
    millis.map(Duration::from_millis)
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
}
