//! The most data of one read or write.

use std::fmt;
use std::str::FromStr;

use mpath_core::{bytes_text, json_schema, parse_bytes};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::text::{ValueError, text_or_number};

/// The most data of one NVMe command: 4 KiB to 32 MiB, as a number of bytes or of KiB or MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxTransfer(u32);

const EXPECTED: &str = "a number of bytes from 4KiB to 32MiB, such as 512KiB or 1MiB";

impl MaxTransfer {
    fn new(bytes: u64) -> Option<Self> {
        u32::try_from(bytes).ok().filter(|bytes| (4 << 10..=32 << 20).contains(bytes)).map(Self)
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.0
    }
}

impl FromStr for MaxTransfer {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        parse_bytes(text).and_then(Self::new).ok_or_else(|| ValueError::not(text, EXPECTED))
    }
}

impl fmt::Display for MaxTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bytes_text(self.0.into()))
    }
}

impl Serialize for MaxTransfer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MaxTransfer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer, EXPECTED)
    }
}

json_schema!(
    MaxTransfer,
    "MaxTransfer",
    json!({
        "description": format!("The most data of one NVMe command: {EXPECTED}."),
        "anyOf": [
            {"type": "integer", "format": "int64", "minimum": 4 << 10, "maximum": 32 << 20},
            {"type": "string", "pattern": "^[0-9]+(KiB|MiB)?$"},
        ],
        "examples": ["512KiB", "32MiB", 4096],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_again() {
        for (yaml, bytes, shown) in [
            ("4096", 4096, "4KiB"),
            ("512KiB", 512 << 10, "512KiB"),
            ("32MiB", 32 << 20, "32MiB"),
            ("5000", 5000, "5000"),
        ] {
            let read: MaxTransfer = serde_yaml::from_str(yaml).unwrap();
            assert_eq!((read.bytes(), read.to_string().as_str()), (bytes, shown));
            assert_eq!(serde_yaml::from_str::<MaxTransfer>(&serde_yaml::to_string(&read).unwrap()).unwrap(), read);
        }
        for text in ["4095", "33MiB", "1GiB", "1MB", "", "off", "-1", "99999999999999999999"] {
            assert_eq!(text.parse::<MaxTransfer>(), Err(ValueError::not(text, EXPECTED)), "{text}");
        }
    }
}
