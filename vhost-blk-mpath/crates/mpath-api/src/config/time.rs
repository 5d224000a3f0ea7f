//! Times of settings: [`Seconds`] for the `-tmo` and `-delay` options of nvme-cli, [`Time`] for all others.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::json;

use super::value::Bounded;
use crate::schema::json_schema;

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

/// A text that is no [`Seconds`], or out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {}", ExpectedSeconds { min: *.min, max: *.max, optional: *.optional })]
pub struct SecondsError {
    /// The text.
    pub text: String,
    /// The smallest value accepted.
    pub min: u32,
    /// The largest value accepted.
    pub max: u32,
    /// Whether the setting may be left out, which means no limit.
    pub optional: bool,
}

struct ExpectedSeconds {
    min: u32,
    max: u32,
    optional: bool,
}

impl fmt::Display for ExpectedSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, max, optional } = self;
        write!(f, "a whole number of seconds from {min} to {max}, such as 5 or 5s")?;
        // nvme-cli writes -1 or `off`.
        if *optional { f.write_str("; leave the setting out for no limit") } else { Ok(()) }
    }
}

impl<const MIN: u32, const MAX: u32, const OPTIONAL: bool> FromStr for Seconds<MIN, MAX, OPTIONAL> {
    type Err = SecondsError;

    fn from_str(text: &str) -> Result<Self, SecondsError> {
        let digits = text.strip_suffix('s').map_or(text, str::trim_end);
        let seconds = digits.parse().ok().and_then(Bounded::new).map(Self);
        seconds.ok_or_else(|| SecondsError { text: text.into(), min: MIN, max: MAX, optional: OPTIONAL })
    }
}

impl<'de, const MIN: u32, const MAX: u32, const OPTIONAL: bool> Deserialize<'de> for Seconds<MIN, MAX, OPTIONAL> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Reads a number of any size, so that every wrong number gets the same message.
        struct Visitor<const MIN: u32, const MAX: u32, const OPTIONAL: bool>;
        impl<const MIN: u32, const MAX: u32, const OPTIONAL: bool> de::Visitor<'_> for Visitor<MIN, MAX, OPTIONAL> {
            type Value = Seconds<MIN, MAX, OPTIONAL>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                ExpectedSeconds { min: MIN, max: MAX, optional: OPTIONAL }.fmt(f)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_u128<E: de::Error>(self, value: u128) -> Result<Self::Value, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_i128<E: de::Error>(self, value: i128) -> Result<Self::Value, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Err(E::invalid_value(de::Unexpected::Other("nothing"), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

json_schema!(
    [const MIN: u32, const MAX: u32, const OPTIONAL: bool] Seconds<MIN, MAX, OPTIONAL>,
    format!("Seconds{MIN}To{MAX}"),
    json!({
        "description": format!("A number of seconds from {MIN} to {MAX}."),
        "anyOf": [
            {"type": "integer", "format": "int64", "minimum": MIN, "maximum": MAX},
            {"type": "string", "pattern": r"^[0-9]+\s*s$|^[0-9]+$"},
        ],
        "examples": [MIN, MAX, format!("{MAX}s")],
    })
);

/// A time from `MIN` to `MAX` milliseconds, with its unit: a whole number of `ms` or `s`, such as `300ms`.
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
        Milliseconds(self.0.get()).fmt(f)
    }
}

/// Milliseconds in their largest unit: `1500ms`, `2s`.
struct Milliseconds(u32);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms > 0 && ms.is_multiple_of(1000) => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

/// A text that is no [`Time`], or out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {}", ExpectedTime { min: *.min, max: *.max })]
pub struct TimeError {
    /// The text.
    pub text: String,
    /// The shortest time accepted, in ms.
    pub min: u32,
    /// The longest time accepted, in ms.
    pub max: u32,
}

struct ExpectedTime {
    min: u32,
    max: u32,
}

impl fmt::Display for ExpectedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (Milliseconds(self.min), Milliseconds(self.max));
        write!(f, "a time from {min} to {max}; give a whole number and its unit, such as 300ms or 2s")
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Time<MIN, MAX> {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let number = |digits: &str, unit_ms: u32| digits.trim_end().parse::<u32>().ok()?.checked_mul(unit_ms);
        let ms = match text.strip_suffix("ms") {
            Some(digits) => number(digits, 1),
            None => text.strip_suffix('s').and_then(|digits| number(digits, 1000)),
        };
        let time = ms.and_then(Bounded::new).map(Self);
        time.ok_or_else(|| TimeError { text: text.into(), min: MIN, max: MAX })
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Time<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Time<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> de::Visitor<'_> for Visitor<MIN, MAX> {
            type Value = Time<MIN, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                ExpectedTime { min: MIN, max: MAX }.fmt(f)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

json_schema!(
    [const MIN: u32, const MAX: u32] Time<MIN, MAX>,
    format!("Time{}To{}", Milliseconds(MIN), Milliseconds(MAX)),
    json!({
        "type": "string",
        "description": format!("A time from {} to {}, with its unit.", Milliseconds(MIN), Milliseconds(MAX)),
        "pattern": r"^[0-9]+\s*(ms|s)$",
        "examples": [Milliseconds(MIN).to_string(), Milliseconds(MAX).to_string(), format!("{MAX} ms")],
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
        ] {
            assert_eq!(text.parse::<Silence>().unwrap().to_string(), shown);
        }
        assert_eq!("2s".parse::<Silence>().unwrap().duration(), Duration::from_secs(2));
        for text in ["", "ms", "s", "49ms", "61s", "300", "-1s", "1.5s", "300us", "4294968s", "1m", "5000000000ms"] {
            let error = text.parse::<Silence>().unwrap_err().to_string();
            let expected = format!(
                "`{text}` is not a time from 50ms to 60s; give a whole number and its unit, such as 300ms or 2s"
            );
            assert_eq!(error, expected);
        }
        let error = serde_yaml::from_str::<Silence>("300").unwrap_err().to_string();
        assert!(error.starts_with("`300` is not a time from 50ms to 60s; give a whole number and its unit"), "{error}");
    }
}
