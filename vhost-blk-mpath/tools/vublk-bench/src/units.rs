//! Sizes and durations as people type them on a command line.

use std::time::Duration;

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a size below 16 EiB, as in 512, 4k or 128KiB; units are k, M, G, T, KiB, MiB, GiB and TiB")]
pub struct SizeError(String);

/// Parses `512`, `4k`, `128KiB`, `1M`, `2GiB` into bytes. As in fio, every unit is a power of 1024.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &*text[digits.len()..].trim().to_ascii_lowercase() {
        "" | "b" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        "t" | "tib" => Some(40),
        _ => None,
    };
    let bytes = digits.parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| SizeError(text.to_owned()))
}

/// Parses `500ms`, `10s`, `2m`, `1h`; a bare number means seconds.
pub fn parse_duration(text: &str) -> Result<Duration, humantime::DurationError> {
    text.parse().map(Duration::from_secs).or_else(|_| humantime::parse_duration(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("512", 512), ("4k", 4096), ("128KiB", 131_072), ("1GiB", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["k", "4q", "-1", "99999999999T", "99999999999999999999999"] {
            assert_eq!(parse_size(text), Err(SizeError(text.to_owned())));
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [("10s", 10_000), ("10", 10_000), ("250ms", 250), ("2m", 120_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)));
        }
        assert!(parse_duration("2x").is_err());
    }
}
