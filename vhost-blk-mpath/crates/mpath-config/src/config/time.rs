//! Times of settings: [`Seconds`] for the `-tmo` and `-delay` options of nvme-cli, [`Time`] for all others.

use std::fmt;
use std::str::FromStr;

use monotonic::Duration;
use mpath_core::{json_schema, parse_time, time_text};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::value::Bounded;
use crate::text::{ValueError, text_or_number};

/// The usual forms of a time.
const TIME_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?\s*(us|ms|s|m|min|h)\s*)+$";

/// Whole seconds from `MIN` to `MAX`, `5` or `5s`. An `OPTIONAL` setting that is left out means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Seconds<const MIN: u32, const MAX: u32, const OPTIONAL: bool = false>(Bounded<MIN, MAX>);

impl<const MIN: u32, const MAX: u32, const OPTIONAL: bool> Seconds<MIN, MAX, OPTIONAL> {
    pub(super) const fn constant(value: u32) -> Self {
        Self(Bounded::constant(value))
    }

    /// The time.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0.get() as u64)
    }
}

impl<const MIN: u32, const MAX: u32, const OPTIONAL: bool> fmt::Display for Seconds<MIN, MAX, OPTIONAL> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MIN: u32, const MAX: u32, const OPTIONAL: bool> Seconds<MIN, MAX, OPTIONAL> {
    fn expected() -> String {
        // nvme-cli writes -1 or `off`.
        let no_limit = if OPTIONAL { "; leave the setting out for no limit" } else { "" };
        format!("a whole number of seconds from {MIN} to {MAX}, such as 5 or 5s{no_limit}")
    }
}

impl<const MIN: u32, const MAX: u32, const OPTIONAL: bool> FromStr for Seconds<MIN, MAX, OPTIONAL> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let time = text.parse().ok().map(Duration::from_secs).or_else(|| parse_time(text));
        let seconds = time.filter(|time| time.subsec_nanos() == 0).and_then(|time| u32::try_from(time.as_secs()).ok());
        seconds.and_then(Bounded::new).map(Self).ok_or_else(|| ValueError::not(text, Self::expected()))
    }
}

impl<'de, const MIN: u32, const MAX: u32, const OPTIONAL: bool> Deserialize<'de> for Seconds<MIN, MAX, OPTIONAL> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer, Self::expected())
    }
}

json_schema!(
    [const MIN: u32, const MAX: u32, const OPTIONAL: bool] Seconds<MIN, MAX, OPTIONAL>,
    format!("Seconds{MIN}To{MAX}"),
    json!({
        "description": format!("A number of seconds from {MIN} to {MAX}."),
        "anyOf": [
            {"type": "integer", "format": "int64", "minimum": MIN, "maximum": MAX},
            {"type": "string", "pattern": r"^([0-9]+|([0-9]+(\.[0-9]+)?\s*(s|m|min|h)\s*)+)$"},
        ],
        "examples": [MIN, MAX, format!("{MAX}s")],
    })
);

/// A time from `MIN` to `MAX` milliseconds, in whole milliseconds, with its unit, such as `300ms`, `1.5s` or `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time<const MIN: u32, const MAX: u32>(Bounded<MIN, MAX>);

impl<const MIN: u32, const MAX: u32> Time<MIN, MAX> {
    pub(super) const fn constant(ms: u32) -> Self {
        Self(Bounded::constant(ms))
    }

    /// The time.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0.get() as u64)
    }
}

impl<const MIN: u32, const MAX: u32> fmt::Display for Time<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ms_text(self.0.get()))
    }
}

fn ms_text(ms: u32) -> String {
    if ms == 0 { "0ms".into() } else { time_text(u64::from(ms) * 1000) }
}

impl<const MIN: u32, const MAX: u32> Time<MIN, MAX> {
    fn expected() -> String {
        let (min, max) = (ms_text(MIN), ms_text(MAX));
        format!("a time from {min} to {max}; give a number and its unit, such as 300ms, 1.5s or 5m")
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Time<MIN, MAX> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let is_whole = |time: &Duration| time.subsec_nanos().is_multiple_of(1_000_000);
        let ms = parse_time(text).filter(is_whole).and_then(|time| u32::try_from(time.as_millis()).ok());
        ms.and_then(Bounded::new).map(Self).ok_or_else(|| ValueError::not(text, Self::expected()))
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Time<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Time<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer, Self::expected())
    }
}

json_schema!(
    [const MIN: u32, const MAX: u32] Time<MIN, MAX>,
    format!("Time{}To{}", ms_text(MIN), ms_text(MAX)),
    json!({
        "type": "string",
        "description": format!("A time from {} to {}, with its unit.", ms_text(MIN), ms_text(MAX)),
        "pattern": TIME_PATTERN,
        "examples": [ms_text(MIN), ms_text(MAX), format!("{MAX} ms")],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_number_or_a_number_and_its_unit() {
        type Limit = Seconds<1, 9, true>;
        for text in ["5", "5s", "5 s"] {
            assert_eq!(text.parse::<Limit>().unwrap().duration(), Duration::from_secs(5));
            assert_eq!(serde_yaml::from_str::<Limit>(text).unwrap(), Limit::constant(5));
        }
        assert_eq!(serde_yaml::to_string(&Limit::constant(5)).unwrap(), "5\n");
        for text in ["-1", "0", "10", "10s", "off", "5ms", "5m", "99999999999999999999", "-99999999999999999999"] {
            let expected = format!(
                "`{text}` is not a whole number of seconds from 1 to 9, such as 5 or 5s; leave the setting out for no limit"
            );
            assert_eq!(text.parse::<Limit>().unwrap_err().to_string(), expected);
            assert_eq!(serde_yaml::from_str::<Limit>(text).unwrap_err().to_string(), expected);
        }
        let nothing = serde_yaml::from_str::<Seconds<1, 9>>("~").unwrap_err().to_string();
        assert_eq!(nothing, "invalid value: nothing, expected a whole number of seconds from 1 to 9, such as 5 or 5s");
    }

    #[test]
    fn times_have_a_unit_and_a_range() {
        type Silence = Time<50, 60_000>;
        for (text, shown) in [
            ("50ms", "50ms"),
            ("1s", "1s"),
            ("60s", "60s"),
            ("60000ms", "60s"),
            ("300 ms", "300ms"),
            ("1500ms", "1500ms"),
            ("1.5s", "1500ms"),
            ("1m", "60s"),
        ] {
            assert_eq!(text.parse::<Silence>().unwrap().to_string(), shown);
        }
        assert_eq!("2s".parse::<Silence>().unwrap().duration(), Duration::from_secs(2));
        for text in ["", "ms", "s", "49ms", "61s", "300", "-1s", "1.5ms", "300us", "4294968s", "2m", "5000000000ms"] {
            let error = text.parse::<Silence>().unwrap_err().to_string();
            let expected = format!(
                "`{text}` is not a time from 50ms to 60s; give a number and its unit, such as 300ms, 1.5s or 5m"
            );
            assert_eq!(error, expected);
        }
        let error = serde_yaml::from_str::<Silence>("300").unwrap_err().to_string();
        assert!(error.starts_with("`300` is not a time from 50ms to 60s; give a number and its unit"), "{error}");
    }
}
