//! The types of single settings. A value out of range cannot be built, from YAML or from a flag.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::text::text_serde;

/// An integer from `MIN` to `MAX`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    /// The value, or `None` out of range.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value >= MIN && value <= MAX { Some(Self(value)) } else { None }
    }

    /// A default of our own: out of range fails the build.
    pub(super) const fn constant(value: u32) -> Self {
        match Self::new(value) {
            Some(bounded) => bounded,
            None => panic!("a default is outside its own range"),
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

/// A number outside its range, or no number at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {}{}", Range { min: *.min, max: *.max }, if *.optional { NO_LIMIT } else { "" })]
pub struct RangeError {
    /// What was given.
    pub text: String,
    /// The smallest value accepted.
    pub min: u32,
    /// The largest value accepted.
    pub max: u32,
    /// Whether the setting may be left out, which means that there is no limit.
    pub optional: bool,
}

/// What nvme-cli writes as -1 or `off`.
const NO_LIMIT: &str = "; leave the setting out for no limit";

struct Range {
    min: u32,
    max: u32,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an integer from {} to {}", self.min, self.max)
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Bounded<MIN, MAX> {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| RangeError {
            text: text.into(),
            min: MIN,
            max: MAX,
            optional: false,
        })
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Bounded<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor { optional: false })
    }
}

/// Reads a number of any size, so that each is refused in the same words.
struct NumberVisitor<const MIN: u32, const MAX: u32> {
    optional: bool,
}

impl<const MIN: u32, const MAX: u32> NumberVisitor<MIN, MAX> {
    fn refuse<E: de::Error>(&self, value: &str) -> E {
        E::invalid_value(de::Unexpected::Other(value), self)
    }
}

impl<const MIN: u32, const MAX: u32> de::Visitor<'_> for NumberVisitor<MIN, MAX> {
    type Value = Bounded<MIN, MAX>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Range { min: MIN, max: MAX }, if self.optional { NO_LIMIT } else { "" })
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

/// Whole seconds from `MIN` to `MAX`, as nvme-cli takes them. Of an `OPTIONAL` setting none means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Seconds<const MIN: u32, const MAX: u32, const OPTIONAL: bool = false>(Bounded<MIN, MAX>);

impl<'de, const MIN: u32, const MAX: u32, const OPTIONAL: bool> Deserialize<'de> for Seconds<MIN, MAX, OPTIONAL> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor { optional: OPTIONAL }).map(Self)
    }
}

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

impl<const MIN: u32, const MAX: u32, const OPTIONAL: bool> FromStr for Seconds<MIN, MAX, OPTIONAL> {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        text.parse().map(Self).map_err(|error| RangeError { optional: OPTIONAL, ..error })
    }
}

/// A time from `MIN` to `MAX` milliseconds: a whole number of `ms` or `s`, such as `300ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis<const MIN: u32, const MAX: u32>(Bounded<MIN, MAX>);

impl<const MIN: u32, const MAX: u32> Millis<MIN, MAX> {
    pub(super) const fn constant(ms: u32) -> Self {
        Self(Bounded::constant(ms))
    }

    /// The time.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0.get() as u64)
    }
}

impl<const MIN: u32, const MAX: u32> fmt::Display for Millis<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// A text that is no time, or one out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time from {min}ms to {max}ms; give a whole number and a unit, such as 300ms or 2s")]
pub struct TimeError {
    /// What was given.
    pub text: String,
    /// The shortest time accepted, in ms.
    pub min: u32,
    /// The longest time accepted, in ms.
    pub max: u32,
}

impl<const MIN: u32, const MAX: u32> FromStr for Millis<MIN, MAX> {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let number = |digits: &str, unit_ms: u32| digits.trim_end().parse::<u32>().ok()?.checked_mul(unit_ms);
        let ms = match text.strip_suffix("ms") {
            Some(digits) => number(digits, 1),
            None => text.strip_suffix('s').and_then(|digits| number(digits, 1000)),
        };
        let bounded = ms.and_then(Bounded::new).map(Self);
        bounded.ok_or_else(|| TimeError { text: text.into(), min: MIN, max: MAX })
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Millis<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Millis<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> de::Visitor<'_> for Visitor<MIN, MAX> {
            type Value = Millis<MIN, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time with its unit, such as 300ms or 2s")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// The path of a Unix socket: 1 to 107 bytes, what `sockaddr_un` holds besides its final NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketPath(String);

impl SocketPath {
    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no [`SocketPath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no socket path; use 1 to 107 bytes, such as /run/vhost-blk-mpath/disk0.sock")]
pub struct SocketPathError {
    /// What was given.
    pub text: String,
}

impl FromStr for SocketPath {
    type Err = SocketPathError;

    fn from_str(text: &str) -> Result<Self, SocketPathError> {
        if (1..=107).contains(&text.len()) && !text.contains('\0') && !text.ends_with('/') {
            Ok(Self(text.into()))
        } else {
            Err(SocketPathError { text: text.into() })
        }
    }
}

text_serde!(SocketPath, "the path of a Unix socket");

/// The name of a disk: 1 to 64 bytes of letters, digits, `.`, `_` and `-`, not starting with `-`, and neither `.` nor `..`.
///
/// So it is a plain word on command lines, in metrics and in URLs, in which `..` would be a step up.
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

/// A text that is no [`DiskName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no disk name; use 1 to 64 letters, digits, `.`, `_` and `-`, no `-` in front, and not `.` or `..`"
)]
pub struct DiskNameError {
    /// What was given.
    pub text: String,
}

impl FromStr for DiskName {
    type Err = DiskNameError;

    fn from_str(text: &str) -> Result<Self, DiskNameError> {
        let word = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let is_step = [".", ".."].contains(&text);
        if (1..=64).contains(&text.len()) && !text.starts_with('-') && !is_step && text.bytes().all(word) {
            Ok(Self(text.into()))
        } else {
            Err(DiskNameError { text: text.into() })
        }
    }
}

text_serde!(DiskName, "a disk name");

/// An NVMe qualified name, 1 to 223 bytes (NVMe Base specification, "NVMe Qualified Names").
///
/// Only what would break the protocol or a log line is refused: Linux nvmet and others give subsystems names
/// that do not start with `nqn.`, and so must we. What else a name has to be, [`Nqn::has_form`] tells.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nqn(String);

impl Nqn {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it starts with `nqn.`, as every name does that keeps to the specification.
    #[must_use]
    pub fn has_form(&self) -> bool {
        self.0.starts_with("nqn.")
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no [`Nqn`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no NVMe qualified name; use 1 to 223 bytes without spaces, such as nqn.2014-08.org.example:disk")]
pub struct NqnError {
    /// What was given.
    pub text: String,
}

impl FromStr for Nqn {
    type Err = NqnError;

    fn from_str(text: &str) -> Result<Self, NqnError> {
        let bad = |c: char| c.is_whitespace() || c.is_control();
        if (1..=223).contains(&text.len()) && !text.contains(bad) {
            Ok(Self(text.into()))
        } else {
            Err(NqnError { text: text.into() })
        }
    }
}

text_serde!(Nqn, "an NVMe qualified name");

/// A host identifier: a UUID that is not all zero (NVMe Base specification, "Host Identifier").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostId(Uuid);

impl HostId {
    /// The 16 bytes as they go into the Connect command's data.
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

/// A text that is no [`HostId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no host identifier; give a UUID that is not all zero, as /etc/nvme/hostid holds")]
pub struct HostIdError {
    /// What was given.
    pub text: String,
}

impl FromStr for HostId {
    type Err = HostIdError;

    fn from_str(text: &str) -> Result<Self, HostIdError> {
        match Uuid::try_parse(text) {
            Ok(id) if !id.is_nil() => Ok(Self(id)),
            _ => Err(HostIdError { text: text.into() }),
        }
    }
}

text_serde!(HostId, "a UUID");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_takes_its_ends_and_nothing_beyond() {
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
    fn no_limit_is_no_number() {
        type Limit = Seconds<1, 9, true>;
        for text in ["-1", "0", "off"] {
            let said = text.parse::<Limit>().unwrap_err().to_string();
            assert_eq!(said, format!("`{text}` is not an integer from 1 to 9; leave the setting out for no limit"));
            let said = serde_yaml::from_str::<Limit>(text).unwrap_err().to_string();
            assert!(said.ends_with(", expected an integer from 1 to 9; leave the setting out for no limit"), "{said}");
        }
        assert_eq!(serde_yaml::from_str::<Limit>("9").unwrap(), "9".parse().unwrap());
    }

    #[test]
    fn times_have_a_unit_and_a_range() {
        type Time = Millis<50, 60_000>;
        for (text, shown) in
            [("50ms", "50ms"), ("1s", "1000ms"), ("60s", "60000ms"), ("60000ms", "60000ms"), ("300 ms", "300ms")]
        {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), shown);
        }
        assert_eq!("2s".parse::<Time>().unwrap().duration(), Duration::from_secs(2));
        for text in ["", "ms", "s", "49ms", "61s", "300", "-1s", "1.5s", "300us", "4294968s", "1m", "5000000000ms"] {
            let error = text.parse::<Time>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "`{text}` is not a time from 50ms to 60000ms; give a whole number and a unit, such as 300ms or 2s"
                )
            );
        }
        assert!(serde_yaml::from_str::<Time>("300").is_err(), "a number without a unit");
    }

    #[test]
    fn disk_names() {
        for good in ["disk0", "a", "0", ".x_y-z", "...", &"n".repeat(64)] {
            assert_eq!(good.parse::<DiskName>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a b", "a/b", ".", "..", "\u{e4}", &"n".repeat(65)] {
            assert_eq!(bad.parse::<DiskName>(), Err(DiskNameError { text: bad.into() }));
        }
    }

    #[test]
    fn socket_paths() {
        for good in ["/run/a.sock", "a", &"n".repeat(107)] {
            assert_eq!(good.parse::<SocketPath>().unwrap().to_string(), good);
        }
        for bad in ["", "/run/", "a\0b", &"n".repeat(108)] {
            assert_eq!(bad.parse::<SocketPath>(), Err(SocketPathError { text: bad.into() }));
        }
    }

    #[test]
    fn nqns() {
        for good in ["nqn.2014-08.org.nvmexpress.discovery", "testnqn", &"n".repeat(223)] {
            assert_eq!(good.parse::<Nqn>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a\n", "a\0", &"n".repeat(224)] {
            assert_eq!(bad.parse::<Nqn>(), Err(NqnError { text: bad.into() }));
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
