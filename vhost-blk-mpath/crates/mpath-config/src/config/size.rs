//! Sizes of settings: numbers of bytes, plain or with their unit.

use std::fmt;
use std::str::FromStr;

use mpath_core::{bytes_text, json_schema, parse_bytes};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::value::Bounded;
use crate::text::{ValueError, text_or_number};

/// A number of bytes from `MIN` to `MAX`, such as `4096`, `512KiB` or `1MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size<const MIN: u32, const MAX: u32>(Bounded<MIN, MAX>);

impl<const MIN: u32, const MAX: u32> Size<MIN, MAX> {
    pub(super) const fn constant(bytes: u32) -> Self {
        Self(Bounded::constant(bytes))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    fn expected() -> String {
        let (min, max) = (bytes_text(MIN.into()), bytes_text(MAX.into()));
        format!("a number of bytes from {min} to {max}, such as 512KiB or 1MiB")
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Size<MIN, MAX> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bytes = parse_bytes(text).and_then(|bytes| Bounded::new(bytes.try_into().ok()?));
        bytes.map(Self).ok_or_else(|| ValueError::not(text, Self::expected()))
    }
}

impl<const MIN: u32, const MAX: u32> fmt::Display for Size<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bytes_text(self.get().into()))
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Size<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Size<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer, Self::expected())
    }
}

json_schema!(
    [const MIN: u32, const MAX: u32] Size<MIN, MAX>,
    format!("Size{}To{}", bytes_text(MIN.into()), bytes_text(MAX.into())),
    json!({
        "description": format!("A size: {}.", Self::expected()),
        "anyOf": [
            {"type": "integer", "format": "int64", "minimum": MIN, "maximum": MAX},
            {"type": "string", "pattern": format!("^[0-9]+(KiB|MiB{})?$", if MAX < 1 << 30 { "" } else { "|GiB" })},
        ],
        "examples": [MIN, bytes_text(MIN.into()), bytes_text(MAX.into())],
    })
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MaxTransfer, WindowBytes};

    #[test]
    fn sizes_are_read_and_written_again() {
        for (yaml, bytes, shown) in [
            ("4096", 4096, "4KiB"),
            ("512KiB", 512 << 10, "512KiB"),
            ("32MiB", 32 << 20, "32MiB"),
            ("5000", 5000, "5000"),
        ] {
            let read: MaxTransfer = serde_yaml::from_str(yaml).unwrap();
            assert_eq!((read.get(), read.to_string().as_str()), (bytes, shown));
            assert_eq!(serde_yaml::from_str::<MaxTransfer>(&serde_yaml::to_string(&read).unwrap()).unwrap(), read);
        }
        for text in ["4095", "33MiB", "1GiB", "1MB", "", "off", "-1", "99999999999999999999"] {
            assert_eq!(text.parse::<MaxTransfer>(), Err(ValueError::not(text, MaxTransfer::expected())), "{text}");
        }
        for text in ["65536", "64KiB", "1GiB"] {
            assert_eq!(serde_yaml::from_str::<WindowBytes>(text).unwrap(), text.parse().unwrap());
        }
        let error = "1025MiB".parse::<WindowBytes>().unwrap_err().to_string();
        assert_eq!(error, "`1025MiB` is not a number of bytes from 64KiB to 1GiB, such as 512KiB or 1MiB");
    }
}
