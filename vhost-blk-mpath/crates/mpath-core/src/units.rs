//! Times, sizes and decimal numbers as text: one grammar for configuration, parameters and command lines.

use monotonic::Duration;

/// Parses a time: a number with its unit, such as `300ms`, `1.5s` or `5m`, or a sum of them, such as `1h 30m`.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    // The library takes a lone 0 without a unit, and blanks within a number: `1 5s` is more likely a sum without a unit.
    let splits_number = |pair: &[&str]| {
        let ends_in_number = |part: &str| part.ends_with(|c: char| c.is_ascii_digit() || c == '.');
        ends_in_number(pair[0]) && pair[1].starts_with(|c: char| c.is_ascii_digit() || c == '.')
    };
    let parts: Vec<_> = text.split_whitespace().collect();
    if text == "0" || parts.windows(2).any(splits_number) {
        return None;
    }
    humantime::parse_duration(text).ok().map(Duration::from)
}

/// Parses a time of whole microseconds.
pub(crate) fn parse_us(text: &str) -> Option<u64> {
    let time = parse_time(text)?;
    let us = time.as_micros();
    (Duration::from_micros(us) == time).then_some(us)
}

/// Microseconds in the largest unit of `s`, `ms` and `us` that needs no fraction.
#[must_use]
pub fn time_text(us: u64) -> String {
    match us {
        _ if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        _ if us.is_multiple_of(1000) => format!("{}ms", us / 1000),
        _ => format!("{us}us"),
    }
}

/// The units of sizes, from the largest, and the powers of 2.
const SIZES: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("", 0)];

/// Parses a number of bytes: digits, then KiB, MiB, GiB, TiB or nothing.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let (_, shift) = SIZES.into_iter().find(|(unit, _)| *unit == &text[digits.len()..])?;
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A number of bytes in the largest unit that needs no fraction.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    let fits = SIZES.into_iter().find(|(_, shift)| bytes.is_multiple_of(1 << shift));
    fits.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// Parses a decimal number as a multiple of `10^-places`; `None` if it is not exactly one.
#[must_use]
pub fn parse_decimal(text: &str, places: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let kept = fraction.trim_end_matches('0');
    if !digits(whole) || !digits(fraction) || kept.len() > places {
        return None;
    }
    format!("{whole}{kept:0<places$}").parse().ok()
}

/// A multiple of `10^-places` as a decimal number, without zeros at its end.
#[must_use]
pub fn decimal_text(value: u64, places: u32) -> String {
    let one = 10_u64.pow(places);
    let text = format!("{}.{:0width$}", value / one, value % one, width = places as usize);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, us, shown) in [
            ("300ms", 300_000, "300ms"),
            ("1500 us", 1500, "1500us"),
            ("1.5s", 1_500_000, "1500ms"),
            ("5m", 300_000_000, "300s"),
            ("1h 30min", 5_400_000_000, "5400s"),
            ("0ms", 0, "0s"),
        ] {
            assert_eq!(parse_us(text).map(|us| (us, time_text(us))), Some((us, shown.into())), "{text}");
        }
        assert_eq!((parse_us("1ns"), parse_time("1ns")), (None, Some(Duration::from_nanos(1))));
        for bad in
            ["", "0", "5", "1 5s", "1. 5s", "1s 5", "s", "-1s", "+1s", "1.s", "1 parsec", "99999999999999999999s"]
        {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("5000", 5000), ("64KiB", 65536), ("3MiB", 3 << 20), ("1TiB", 1 << 40)] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        assert_eq!([5000, 65536, 3 << 20, 1 << 40].map(bytes_text), ["5000", "64KiB", "3MiB", "1TiB"]);
        for bad in ["", "KiB", "1MB", "1.5MiB", "1 KiB", "-1", "1Mi\u{e4}", "99999999999999999TiB"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn decimal_numbers() {
        for (text, places, value, shown) in
            [("1.500", 3, 1500, "1.5"), ("9.999", 3, 9999, "9.999"), ("20", 1, 200, "20"), ("0.05", 2, 5, "0.05")]
        {
            assert_eq!(parse_decimal(text, places), Some(value), "{text}");
            assert_eq!(decimal_text(value, places as u32), shown);
        }
        for bad in ["", "1.", ".5", "1.2345", "+1", "-1", "1e2", "inf", "1 ", "99999999999999999999"] {
            assert_eq!(parse_decimal(bad, 3), None, "{bad}");
        }
    }
}
