//! Decides: a single value of the configuration is valid.
//!
//! The types of single settings. A value out of range cannot be built, neither from YAML nor from a flag.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use mpath_core::json_schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::json;
use uuid::Uuid;

use crate::text::{ValueError, text_serde};

/// An integer from `MIN` to `MAX`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    /// The value, or `None` out of range.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value >= MIN && value <= MAX { Some(Self(value)) } else { None }
    }

    /// A default. Out of range fails the build.
    pub(super) const fn constant(value: u32) -> Self {
        match Self::new(value) {
            Some(bounded) => bounded,
            None => panic!("a default is out of its range"),
        }
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Bounded<MIN, MAX> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bounded = text.parse().ok().and_then(Self::new);
        bounded.ok_or_else(|| ValueError::not(text, format_args!("an integer from {MIN} to {MAX}")))
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Bounded<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Reads a number of any size, so that every number out of range gets the same message.
        struct Visitor<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> Visitor<MIN, MAX> {
            fn refuse<E: de::Error>(self, value: &str) -> E {
                E::invalid_value(de::Unexpected::Other(value), &self)
            }
        }
        impl<const MIN: u32, const MAX: u32> de::Visitor<'_> for Visitor<MIN, MAX> {
            type Value = Bounded<MIN, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an integer from {MIN} to {MAX}")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
                let bounded = u32::try_from(value).ok().and_then(Bounded::new);
                bounded.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(value), &self))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
                Err(E::invalid_value(de::Unexpected::Signed(value), &self))
            }
            fn visit_u128<E: de::Error>(self, value: u128) -> Result<Self::Value, E> {
                Err(self.refuse(&format!("integer `{value}`")))
            }
            fn visit_i128<E: de::Error>(self, value: i128) -> Result<Self::Value, E> {
                Err(self.refuse(&format!("integer `{value}`")))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Err(self.refuse("nothing"))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

json_schema!(
    [const MIN: u32, const MAX: u32] Bounded<MIN, MAX>,
    format!("Integer{MIN}To{MAX}"),
    json!({"type": "integer", "format": "int64", "minimum": MIN, "maximum": MAX, "examples": [MIN, MAX]})
);

/// The path of a Unix socket: 1 to 107 bytes, which is what `sockaddr_un` holds before its final NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketPath(String);

impl SocketPath {
    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The error for a text that is no path of a socket.
    #[must_use]
    pub fn refused(text: &str) -> ValueError {
        ValueError::new(text, "no socket path; give 1 to 107 bytes, such as /run/vhost-blk-mpath/disk0.sock")
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SocketPath {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if (1..=107).contains(&text.len()) && !text.contains(char::is_control) && !text.ends_with('/') {
            Ok(Self(text.into()))
        } else {
            Err(Self::refused(text))
        }
    }
}

text_serde!(SocketPath, "the path of a Unix socket");
json_schema!(
    SocketPath,
    "SocketPath",
    json!({
        "type": "string",
        "description": "The path of a Unix socket, at most 107 bytes.",
        "minLength": 1,
        "maxLength": 107,
        "pattern": r"^[^\x00-\x1f\x7f-\x9f]*[^/\x00-\x1f\x7f-\x9f]$",
        "examples": ["/run/vhost-blk-mpath/disk0.sock"],
    })
);

/// The name of a disk: 1 to 64 bytes of letters, digits, `.`, `_` and `-`, not starting with `-`, and neither `.` nor `..`.
///
/// Such a name needs no quotes on command lines, in metrics and in URLs. In a URL, `..` would mean the parent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskName(String);

impl DiskName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for DiskName {
    /// `disk0`.
    fn default() -> Self {
        Self("disk0".into())
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DiskName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let word = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let is_step = [".", ".."].contains(&text);
        if (1..=64).contains(&text.len()) && !text.starts_with('-') && !is_step && text.bytes().all(word) {
            Ok(Self(text.into()))
        } else {
            Err(ValueError::new(
                text,
                "no disk name; give 1 to 64 letters, digits, `.`, `_` and `-`, not starting with `-`, and not `.` or `..`",
            ))
        }
    }
}

text_serde!(DiskName, "a disk name");
json_schema!(
    DiskName,
    "DiskName",
    json!({
        "type": "string",
        "description": "The name of a disk.",
        "pattern": r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,63}|\.[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}|\.\.[A-Za-z0-9._-]{1,62})$",
        "examples": ["disk0", ".x_y-z", "..."],
    })
);

/// An NVMe qualified name, 1 to 223 bytes (NVMe Base specification, "NVMe Qualified Names").
///
/// Refuses only names that would break the protocol or a log line: targets such as Linux nvmet allow subsystem names that do not
/// start with `nqn.`. [`Nqn::has_form`] says whether a name conforms.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nqn(String);

impl Nqn {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name starts with `nqn.`, as the specification requires.
    #[must_use]
    pub fn has_form(&self) -> bool {
        self.0.starts_with("nqn.")
    }

    /// The host identifier in the name of a host, where libnvme finds it: the UUID after `uuid:`, up to the end.
    #[must_use]
    pub fn host_id(&self) -> Option<HostId> {
        self.0.split_once("uuid:")?.1.parse().ok()
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Nqn {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bad = |c: char| c.is_whitespace() || c.is_control();
        if (1..=223).contains(&text.len()) && !text.contains(bad) {
            Ok(Self(text.into()))
        } else {
            Err(ValueError::new(
                text,
                "no NVMe qualified name; give 1 to 223 bytes without spaces, such as nqn.2014-08.org.example:disk",
            ))
        }
    }
}

text_serde!(Nqn, "an NVMe qualified name");
json_schema!(
    Nqn,
    "Nqn",
    json!({
        "type": "string",
        "description": "An NVMe qualified name, at most 223 bytes.",
        "minLength": 1,
        "maxLength": 223,
        "pattern": r"^[^\s\x00-\x1f\x7f-\x9f]+$",
        "examples": ["nqn.2014-08.org.example:disk", "testnqn"],
    })
);

/// A host identifier: a UUID that is not all zero (NVMe Base specification, "Host Identifier").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostId(Uuid);

impl HostId {
    /// The 16 bytes of the Connect command's data.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for HostId {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match Uuid::try_parse(text) {
            Ok(id) if !id.is_nil() => Ok(Self(id)),
            _ => Err(ValueError::new(
                text,
                "no host identifier; give a UUID that is not all zero, as /etc/nvme/hostid holds",
            )),
        }
    }
}

text_serde!(HostId, "a UUID");
json_schema!(
    HostId,
    "HostId",
    json!({
        "type": "string",
        "description": "The identifier of a host, a UUID.",
        "pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$",
        "examples": ["6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21"],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_nqn_has_the_host_identifier_where_libnvme_finds_it() {
        const ID: &str = "6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";
        let host_id = |name: &str| name.parse::<Nqn>().unwrap().host_id().map(|id| id.to_string());
        assert_eq!(host_id(&format!("nqn.2014-08.org.nvmexpress:uuid:{ID}")), Some(ID.into()));
        assert_eq!(host_id(&format!("nqn.2014-08.org.example:host:uuid:{}", ID.to_uppercase())), Some(ID.into()));
        for name in ["nqn.2014-08.org.example:host", "nqn.host:uuid:", &format!("nqn.host:uuid:{ID}:rack7")] {
            assert_eq!(host_id(name), None, "{name}");
        }
    }

    #[test]
    fn a_bounded_number_includes_its_bounds() {
        type Small = Bounded<2, 4>;
        for text in ["2", "4"] {
            assert_eq!(text.parse::<Small>().unwrap().to_string(), text);
        }
        for text in ["1", "5", "", "-1", "x", "3.0", "99999999999999999999"] {
            let error = text.parse::<Small>().unwrap_err().to_string();
            assert_eq!(error, format!("`{text}` is not an integer from 2 to 4"));
        }
        let yaml = |text: &str| serde_yaml::from_str::<Small>(text).unwrap_err().to_string();
        for text in ["5", "-1", "99999999999999999999", "-99999999999999999999"] {
            assert_eq!(yaml(text), format!("invalid value: integer `{text}`, expected an integer from 2 to 4"));
        }
        assert_eq!(yaml("~"), "invalid value: nothing, expected an integer from 2 to 4");
        assert_eq!(yaml("1.5"), "invalid type: floating point `1.5`, expected an integer from 2 to 4");
    }

    #[test]
    fn disk_names() {
        for good in ["disk0", "a", "0", ".x_y-z", "...", &"n".repeat(64)] {
            assert_eq!(good.parse::<DiskName>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a b", "a/b", ".", "..", "\u{e4}", &"n".repeat(65)] {
            assert!(bad.parse::<DiskName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn socket_paths() {
        for good in ["/run/a.sock", "a", &"n".repeat(107)] {
            assert_eq!(good.parse::<SocketPath>().unwrap().to_string(), good);
        }
        for bad in ["", "/run/", "a\0b", &"n".repeat(108)] {
            assert_eq!(bad.parse::<SocketPath>(), Err(SocketPath::refused(bad)));
        }
    }

    #[test]
    fn nqns() {
        for good in ["nqn.2014-08.org.nvmexpress.discovery", "testnqn", &"n".repeat(223)] {
            assert_eq!(good.parse::<Nqn>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a\n", "a\0", &"n".repeat(224)] {
            assert!(bad.parse::<Nqn>().is_err(), "{bad}");
        }
        let has_form = |text: &str| text.parse::<Nqn>().unwrap().has_form();
        assert!(has_form("nqn.2014-08.org.nvmexpress.discovery") && !has_form("testnqn") && !has_form("NQN.x"));
    }

    #[test]
    fn host_ids() {
        let text = "6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";
        let id: HostId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(id.bytes()[..4], [0x6f, 0x2a, 0x1d, 0x0e]);
        for bad in ["", "x", "00000000-0000-0000-0000-000000000000"] {
            assert!(bad.parse::<HostId>().is_err(), "{bad}");
        }
    }
}
