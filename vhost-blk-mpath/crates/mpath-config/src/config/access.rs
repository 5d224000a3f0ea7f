//! Access to the Unix sockets that the daemon creates: mode, owner and group.

use std::fmt;
use std::str::FromStr;

use mpath_core::json_schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::json;

use crate::text::{ValueError, text_or_number};

/// The mode of a socket file: permission bits, 0000 to 0777. A client that may write to the socket may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMode(u32);

impl SocketMode {
    /// The permission bits.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for SocketMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let digits = text.strip_prefix('0').filter(|digits| digits.len() == 3 && !digits.contains('+'));
        let bits = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok());
        bits.map(Self).ok_or_else(|| {
            ValueError::new(text, "no socket mode; give a 0 and three octal digits in quotes, such as '0660'")
        })
    }
}

impl Serialize for SocketMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SocketMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = SocketMode;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an octal mode with a leading 0, such as 0660")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<SocketMode, E> {
                text.parse().map_err(E::custom)
            }
            // YAML 1.1 reads `0660` as 432. A number that may be a mode without its 0 is refused: one with the digits of usual modes,
            // and one that would be an odd mode, executable for some.
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<SocketMode, E> {
                let has_only = |digits: &[u8]| number.to_string().bytes().all(|digit| digits.contains(&digit));
                let is_odd = !matches!(number & 0o111, 0 | 0o111);
                let may_be_octal = has_only(b"0467") || is_odd && has_only(b"01234567");
                let bits = u32::try_from(number).ok().filter(|bits| *bits <= 0o777 && !may_be_octal);
                bits.map_or_else(|| self.visit_str(&number.to_string()), |bits| Ok(SocketMode(bits)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

json_schema!(
    SocketMode,
    "SocketMode",
    json!({
        "description": "The mode of a socket file: in octal as a text, in decimal as a number.",
        "anyOf": [
            {"type": "string", "pattern": "^0[0-7]{3}$"},
            {"type": "integer", "format": "int64", "minimum": 0, "maximum": 0o777},
        ],
        "examples": ["0660", 0o660],
    })
);

/// A user or a group: its number, or its name in the user database of the daemon's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
    /// The number, 0 to 4294967294.
    Id(u32),
    /// The name, 1 to 256 bytes.
    Name(String),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Account {
    /// The number means "unchanged" in system calls.
    const UNCHANGED: u32 = u32::MAX;
}

impl FromStr for Account {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let bad = |c: char| c.is_whitespace() || c.is_control() || c == ':';
        let account = match is_number {
            true => text.parse().ok().filter(|id| *id != Self::UNCHANGED).map(Self::Id),
            false if (1..=256).contains(&text.len()) && !text.starts_with('-') && !text.contains(bad) => {
                Some(Self::Name(text.into()))
            }
            false => None,
        };
        account.ok_or_else(|| ValueError::new(text, "no user or group; give a name, or a number from 0 to 4294967294"))
    }
}

impl Serialize for Account {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Id(id) => serializer.serialize_u32(*id),
            Self::Name(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Account {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer, "the name of a user or group, or a number from 0 to 4294967294")
    }
}

json_schema!(
    Account,
    "Account",
    json!({
        "description": "A user or a group: its name, or its number.",
        "anyOf": [
            {"type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX - 1},
            {"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^[^-\s:\x00-\x1f\x7f-\x9f][^\s:\x00-\x1f\x7f-\x9f]*$"},
        ],
        "examples": ["libvirt-qemu", 107, "107"],
    })
);

/// Access to a socket. `None` keeps the default of the socket's [`Role`](crate::socket::Role).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// The mode of the socket file, whatever the umask.
    pub mode: Option<SocketMode>,
    /// The owner of the socket file.
    pub owner: Option<Account>,
    /// The group of the socket file.
    pub group: Option<Account>,
}

impl SocketAccess {
    /// Whether every setting is left at its default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_say_so() {
        for (text, bits) in [("0660", 0o660), ("0000", 0), ("0777", 0o777)] {
            let mode: SocketMode = text.parse().unwrap();
            assert_eq!((mode.bits(), mode.to_string().as_str()), (bits, text));
            assert_eq!(serde_yaml::from_str::<SocketMode>(text).unwrap(), mode);
            assert_eq!(serde_yaml::from_str::<SocketMode>(&serde_yaml::to_string(&mode).unwrap()).unwrap(), mode);
        }
        for text in ["660", "0o660", "0680", "01777", "066", "", "0+66", "rw", "-0660"] {
            assert!(text.parse::<SocketMode>().is_err(), "{text}");
        }
        for (yaml, shown) in [("432", "0660"), ("0o660", "0660"), ("438", "0666"), ("511", "0777"), ("493", "0755")] {
            assert_eq!(serde_yaml::from_str::<SocketMode>(yaml).unwrap().to_string(), shown);
        }
        for yaml in ["660", "600", "500", "400", "440", "0", "512"] {
            let error = serde_yaml::from_str::<SocketMode>(yaml).unwrap_err().to_string();
            assert!(
                error.contains(&format!(
                    "`{yaml}` is no socket mode; give a 0 and three octal digits in quotes, such as '0660'"
                )),
                "{error}"
            );
        }
    }

    #[test]
    fn accounts_are_names_or_numbers() {
        for (text, account) in [
            ("0", Account::Id(0)),
            ("4294967294", Account::Id(u32::MAX - 1)),
            ("libvirt-qemu", Account::Name("libvirt-qemu".into())),
            ("9p", Account::Name("9p".into())),
        ] {
            assert_eq!(text.parse::<Account>().unwrap(), account);
            assert_eq!(serde_yaml::from_str::<Account>(text).unwrap(), account);
            assert_eq!(serde_yaml::from_str::<Account>(&serde_yaml::to_string(&account).unwrap()).unwrap(), account);
        }
        for text in ["", "a b", "a:b", "-1", "4294967295", "99999999999999999999", "a\n"] {
            assert!(text.parse::<Account>().is_err(), "{text}");
        }
    }
}
