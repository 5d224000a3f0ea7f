//! Limits of a disk.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::Args;
use mpath_core::{Limits, bytes_text, json_schema, parse_bytes};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::time::Time;
use crate::text::{ValueError, off_in_yaml_1_1, word_or_number};

/// Requests per second: `off`, or 1 to 1,000,000,000.
pub type LimitIops = PerSecond<false>;
/// Bytes per second: `off`, or 4 KiB to 1 TiB, as a number or with KiB, MiB, GiB or TiB.
pub type LimitBandwidth = PerSecond<true>;
/// The time in which an idle disk saves up its whole burst, 0 to an hour.
pub type LimitBurst = Time<0, 3_600_000>;

/// The limits of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default, expecting = "a mapping of settings")]
#[group(skip)]
pub struct LimitsConfig {
    /// Requests per second, 1 to 1000000000. Every attempt counts. Default: `off`.
    #[arg(id = "limit_iops", long = "limit-iops", value_name = "N")]
    pub iops: LimitIops,
    /// Bytes per second, 4KiB to 1TiB. Default: `off`.
    #[arg(id = "limit_bandwidth", long = "limit-bandwidth", value_name = "SIZE")]
    pub bandwidth: LimitBandwidth,
    /// The burst that an idle disk may save up: what the limits allow in this time, 0ms to 3600s. Default: `1s`.
    #[arg(id = "limit_burst", long = "limit-burst", value_name = "TIME")]
    pub burst: LimitBurst,
}

/// Stands in the OpenAPI document for limits within an object that has more keys.
pub struct LimitsSchema;

impl PartialSchema for LimitsSchema {
    fn schema() -> RefOr<Schema> {
        let mut limits = LimitsConfig::schema();
        if let RefOr::T(Schema::Object(limits)) = &mut limits {
            limits.additional_properties = None;
        }
        limits
    }
}

impl ToSchema for LimitsSchema {
    fn name() -> Cow<'static, str> {
        "Limits".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        LimitsConfig::schemas(schemas);
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self { iops: PerSecond(None), bandwidth: PerSecond(None), burst: Time::constant(1000) }
    }
}

impl LimitsConfig {
    /// The limits as mpath-core takes them.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits { iops: self.iops.0, bytes_per_s: self.bandwidth.0, burst: self.burst.duration() }
    }
}

impl fmt::Display for LimitsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iops {}, bandwidth {}, burst {}", self.iops, self.bandwidth, self.burst)
    }
}

/// A limit per second, of `BYTES` or of requests. `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerSecond<const BYTES: bool>(Option<NonZeroU64>);

fn expected(bytes: bool) -> &'static str {
    if bytes {
        "off or a number of bytes per second from 4KiB to 1TiB, such as 100MiB"
    } else {
        "off or a number of requests per second from 1 to 1000000000"
    }
}

impl<const BYTES: bool> PerSecond<BYTES> {
    fn new(number: u64) -> Option<Self> {
        Self::range().contains(&number).then_some(Self(NonZeroU64::new(number)))
    }

    fn range() -> RangeInclusive<u64> {
        if BYTES { 4096..=1 << 40 } else { 1..=1_000_000_000 }
    }
}

impl<const BYTES: bool> FromStr for PerSecond<BYTES> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(Self(None));
        }
        let number = if BYTES { parse_bytes(text) } else { text.parse().ok() };
        number.and_then(Self::new).ok_or_else(|| ValueError::not(text, expected(BYTES)))
    }
}

impl<const BYTES: bool> fmt::Display for PerSecond<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(bytes) if BYTES => f.write_str(&bytes_text(bytes.get())),
            Some(number) => number.fmt(f),
        }
    }
}

impl<const BYTES: bool> Serialize for PerSecond<BYTES> {
    /// A number, or `off`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(number) => serializer.serialize_u64(number.get()),
            None => serializer.serialize_str("off"),
        }
    }
}

impl<'de, const BYTES: bool> Deserialize<'de> for PerSecond<BYTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word_or_number(deserializer, expected(BYTES))
    }
}

json_schema!(PerSecond<false>, "LimitIops", PerSecond::<false>::json_schema(""));
json_schema!(PerSecond<true>, "LimitBandwidth", PerSecond::<true>::json_schema("(KiB|MiB|GiB|TiB)?"));

impl<const BYTES: bool> PerSecond<BYTES> {
    fn json_schema(unit: &str) -> serde_json::Value {
        let range = Self::range();
        json!({
            "description": format!("A limit: {}.", expected(BYTES)),
            "anyOf": [
                {"type": "integer", "format": "int64", "minimum": range.start(), "maximum": range.end()},
                {"type": "string", "pattern": format!("^(off|[0-9]+{unit})$")},
                off_in_yaml_1_1(),
            ],
            "examples": ["off", range.start(), range.end(), range.end().to_string()],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written_again() {
        for (yaml, shown, iops, bytes_per_s, burst_ms) in [
            ("{}", "iops off, bandwidth off, burst 1s", None, None, 1000),
            ("{iops: 5000, burst: 2s}", "iops 5000, bandwidth off, burst 2s", Some(5000), None, 2000),
            ("{iops: '7', bandwidth: 4096}", "iops 7, bandwidth 4KiB, burst 1s", Some(7), Some(4096), 1000),
            ("{bandwidth: 100MiB, burst: 0ms}", "iops off, bandwidth 100MiB, burst 0ms", None, Some(100 << 20), 0),
            ("{bandwidth: 10000, iops: off}", "iops off, bandwidth 10000, burst 1s", None, Some(10_000), 1000),
        ] {
            let read: LimitsConfig = serde_yaml::from_str(yaml).unwrap();
            assert_eq!(read.to_string(), shown);
            let limits = read.limits();
            let told = (limits.iops.map(NonZeroU64::get), limits.bytes_per_s.map(NonZeroU64::get));
            assert_eq!((told, limits.burst.as_millis()), ((iops, bytes_per_s), burst_ms));
            let written = serde_json::to_string(&read).unwrap();
            assert_eq!(serde_json::from_str::<LimitsConfig>(&written).unwrap(), read, "{written}");
            assert_eq!(read.bandwidth.to_string().parse(), Ok(read.bandwidth));
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for yaml in ["{iops: 0}", "{iops: -1}", "{iops: 1000000001}", "{iops: 1k}", "{iops: ''}", "{iops: 1.5}"] {
            let error = serde_yaml::from_str::<LimitsConfig>(yaml).unwrap_err().to_string();
            assert!(error.contains("from 1 to 1000000000"), "{yaml}: {error}");
        }
        for yaml in ["{bandwidth: 4095}", "{bandwidth: 1MB}", "{bandwidth: 2TiB}", "{bandwidth: on}", "{bandwidth: []}"]
        {
            let error = serde_yaml::from_str::<LimitsConfig>(yaml).unwrap_err().to_string();
            assert!(error.contains("from 4KiB to 1TiB"), "{yaml}: {error}");
        }
        let error = serde_yaml::from_str::<LimitsConfig>("{burst: 2h}").unwrap_err().to_string();
        assert!(error.contains("from 0ms to 3600s"), "{error}");
        let error = serde_yaml::from_str::<LimitsConfig>("{iop: 5}").unwrap_err().to_string();
        assert!(error.contains("unknown field `iop`"), "{error}");
    }
}
