//! How long an I/O thread polls before it sleeps.

use std::fmt;
use std::str::FromStr;

use monotonic::Duration;
use mpath_core::{json_schema, parse_time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::text::{ValueError, off_in_yaml_1_1, word_or_number};

/// The limit of `auto`, in microseconds: above twice the round trip of a network within a data centre.
const AUTO_US: u16 = 200;
const MAX_US: u16 = 1000;

/// How long an I/O thread polls before it sleeps, if polling pays: `off`, `auto`, or 1 to 1000 microseconds, `50` or `50us`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PollUs {
    /// Never.
    #[default]
    Off,
    /// 200 microseconds.
    Auto,
    /// This number of microseconds.
    Limit(u16),
}

const EXPECTED: &str = "`off`, `auto` or a number of microseconds from 1 to 1000";

impl PollUs {
    /// The limit. Zero: never poll.
    #[must_use]
    pub fn limit(self) -> Duration {
        Duration::from_micros(match self {
            Self::Off => 0,
            Self::Auto => AUTO_US.into(),
            Self::Limit(us) => us.into(),
        })
    }
}

impl FromStr for PollUs {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            number => {
                let is_plain = number.starts_with(|first| matches!(first, '1'..='9'));
                let time = if is_plain { number.parse().ok().map(Duration::from_micros) } else { None };
                let time = time.or_else(|| parse_time(number)).filter(|time| time.subsec_nanos().is_multiple_of(1000));
                let us = time.and_then(|time| u16::try_from(time.as_micros()).ok());
                us.filter(|us| (1..=MAX_US).contains(us))
                    .map(Self::Limit)
                    .ok_or_else(|| ValueError::not(text, EXPECTED))
            }
        }
    }
}

impl fmt::Display for PollUs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Limit(us) => us.fmt(f),
        }
    }
}

impl Serialize for PollUs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Limit(us) => serializer.serialize_u16(*us),
            word => serializer.collect_str(word),
        }
    }
}

impl<'de> Deserialize<'de> for PollUs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word_or_number(deserializer, EXPECTED)
    }
}

json_schema!(
    PollUs,
    "PollUs",
    json!({
        "description": format!("How long an I/O thread polls before it sleeps: {EXPECTED}."),
        "anyOf": [
            {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_US},
            {"type": "string", "pattern": r"^(off|auto|[1-9][0-9]{0,2}|1000|[0-9]+(\.[0-9]+)?\s*(us|ms))$"},
            off_in_yaml_1_1(),
        ],
        "examples": ["off", "auto", 50],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_written_again() {
        for (yaml, limit_us, shown) in [
            ("off", 0, "off"),
            ("auto", 200, "auto"),
            ("1", 1, "1"),
            ("1000", 1000, "1000"),
            ("'50'", 50, "50"),
            ("50us", 50, "50"),
            ("1ms", 1000, "1000"),
        ] {
            let poll: PollUs = serde_yaml::from_str(yaml).unwrap();
            assert_eq!((poll.limit().as_micros(), &*poll.to_string()), (limit_us, shown), "{yaml}");
            assert_eq!(serde_json::from_value::<PollUs>(serde_json::to_value(poll).unwrap()).unwrap(), poll);
        }
        for text in ["0", "1001", "007", "+5", "-1", "1.5", "1.5us", "5ms", "on", ""] {
            let error = text.parse::<PollUs>().unwrap_err().to_string();
            assert_eq!(error, format!("`{text}` is not {EXPECTED}"));
        }
    }
}
