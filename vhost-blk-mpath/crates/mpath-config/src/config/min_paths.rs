//! The paths that a disk is to have.

use std::fmt;
use std::str::FromStr;

use mpath_core::{MAX_PATHS, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::text::{ValueError, word_or_number};

/// The paths that a disk is to have: `auto`, or 1 to 64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MinPaths {
    /// As many as it has had since the daemon started, less those that an operator has removed by a command.
    #[default]
    Auto,
    /// This number of usable ones.
    Count(u16),
}

const EXPECTED: &str = "`auto` or a number of paths from 1 to 64";

impl FromStr for MinPaths {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let is_plain = text.starts_with(|first| matches!(first, '1'..='9'));
        let count = if is_plain { text.parse().ok() } else { None };
        let count = count.filter(|count| (1..=MAX_PATHS).contains(&usize::from(*count)));
        count.map(Self::Count).ok_or_else(|| ValueError::not(text, EXPECTED))
    }
}

impl fmt::Display for MinPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl Serialize for MinPaths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.collect_str(self),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de> Deserialize<'de> for MinPaths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word_or_number(deserializer, EXPECTED)
    }
}

json_schema!(
    MinPaths,
    "MinPaths",
    json!({
        "description": format!("The paths that a disk is to have: {EXPECTED}."),
        "anyOf": [
            {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_PATHS},
            {"type": "string", "pattern": r"^(auto|[1-9]|[1-5][0-9]|6[0-4])$"},
        ],
        "examples": ["auto", 1, 64],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_paths_are_read_and_written_again() {
        for (yaml, count) in [("auto", MinPaths::Auto), ("1", MinPaths::Count(1)), ("'64'", MinPaths::Count(64))] {
            let read: MinPaths = serde_yaml::from_str(yaml).unwrap();
            assert_eq!(read, count);
            assert_eq!(serde_json::from_value::<MinPaths>(serde_json::to_value(read).unwrap()).unwrap(), read);
        }
        for text in ["0", "65", "007", "+5", "-1", "off", ""] {
            let error = text.parse::<MinPaths>().unwrap_err().to_string();
            assert_eq!(error, format!("`{text}` is not {EXPECTED}"));
        }
    }
}
