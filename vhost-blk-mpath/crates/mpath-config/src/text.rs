//! Decides: an unknown key is taken for a misspelt one (`name_meant_key`).
//!
//! Texts: types that are read and written as one word, and errors about keys.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// A text that is no value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is {verdict}")]
pub struct ValueError {
    /// The text.
    pub text: String,
    /// What it is not, and what to give.
    pub verdict: String,
}

impl ValueError {
    /// The error for a text, with a verdict of any form.
    pub fn new(text: &str, verdict: impl Into<String>) -> Self {
        Self { text: text.into(), verdict: verdict.into() }
    }

    /// The error for a text that is not what is expected.
    #[must_use]
    pub fn not(text: &str, expected: impl Display) -> Self {
        Self::new(text, format!("not {expected}"))
    }
}

/// Reads a value by `FromStr`.
///
/// The visitor parses, so that the YAML reader gives an error the line and column of the value and not those of its parent.
struct TextVisitor<E, T> {
    expected: E,
    /// Whether a number stands for its text.
    takes_numbers: bool,
    /// Whether a truth value stands for `on` or `off`.
    takes_truth: bool,
    of: PhantomData<T>,
}

impl<E: Display, T: FromStr<Err: Display>> TextVisitor<E, T> {
    /// A number of any size, so that every wrong number gets the same message.
    fn number<F: Error>(self, number: impl Display, kind: Unexpected<'_>) -> Result<T, F> {
        if self.takes_numbers { self.visit_str(&number.to_string()) } else { Err(F::invalid_type(kind, &self)) }
    }
}

impl<E: Display, T: FromStr<Err: Display>> Visitor<'_> for TextVisitor<E, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expected.fmt(f)
    }

    fn visit_str<F: Error>(self, text: &str) -> Result<T, F> {
        text.parse().map_err(F::custom)
    }

    fn visit_u64<F: Error>(self, number: u64) -> Result<T, F> {
        self.number(number, Unexpected::Unsigned(number))
    }

    fn visit_i64<F: Error>(self, number: i64) -> Result<T, F> {
        self.number(number, Unexpected::Signed(number))
    }

    fn visit_u128<F: Error>(self, number: u128) -> Result<T, F> {
        self.number(number, Unexpected::Other("integer"))
    }

    fn visit_i128<F: Error>(self, number: i128) -> Result<T, F> {
        self.number(number, Unexpected::Other("integer"))
    }

    // `off` is false in YAML 1.1.
    fn visit_bool<F: Error>(self, value: bool) -> Result<T, F> {
        let word = if value { "on" } else { "off" };
        let meant = self.takes_truth.then(|| word.parse().ok()).flatten();
        meant.ok_or_else(|| F::invalid_type(Unexpected::Bool(value), &self))
    }

    fn visit_unit<F: Error>(self) -> Result<T, F> {
        Err(F::invalid_value(Unexpected::Other("nothing"), &self))
    }
}

/// Reads a text by `FromStr`.
pub fn deserialize_text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
    expected: impl Display,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(TextVisitor { expected, takes_numbers: false, takes_truth: false, of: PhantomData })
}

/// Reads a text, or the text of a number, by `FromStr`.
pub(crate) fn text_or_number<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
    expected: impl Display,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(TextVisitor { expected, takes_numbers: true, takes_truth: false, of: PhantomData })
}

/// As [`text_or_number`], for a type with the word `off` or `on`, which YAML 1.1 reads as a truth value.
pub(crate) fn word_or_number<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
    expected: impl Display,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(TextVisitor { expected, takes_numbers: true, takes_truth: true, of: PhantomData })
}

/// The schema of `off` as YAML 1.1 reads it, for types that [`word_or_number`] reads.
pub(crate) fn off_in_yaml_1_1() -> serde_json::Value {
    serde_json::json!({"type": "boolean", "enum": [false]})
}

/// Implements `Serialize` by `Display` and `Deserialize` by `FromStr`.
#[macro_export]
macro_rules! text_serde {
    ($type:ty, $expected:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::deserialize_text(deserializer, $expected)
            }
        }
    };
}

pub(crate) use text_serde;

/// The least similarity of a misspelt name and the name that is meant, from 0 to 1.
const SIMILAR: f64 = 0.8;

/// The name that a misspelt one is most similar to, if any is similar enough to be meant.
#[must_use]
pub fn similar_name<'a>(misspelt: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let rated = names.into_iter().map(|name| (strsim::jaro_winkler(misspelt, name), name));
    // Of several names that are equally similar, the first counts.
    let best = rated.reduce(|best, other| if other.0 > best.0 { other } else { best });
    best.filter(|(similarity, _)| *similarity >= SIMILAR).map(|(_, name)| name.to_owned())
}

/// Rewords serde's error about an unknown key, so that the error names the key that is meant. That is the key with hyphens in
/// place of underscores, or else the most similar known key.
#[must_use]
pub fn name_meant_key(message: &str) -> String {
    let reworded = || {
        let (place, rest) = message.split_once("unknown field `")?;
        let (key, expected) = rest.split_once("`, expected ")?;
        let known = || expected.split('`').skip(1).step_by(2);
        let hyphen_form = key.replace('_', "-");
        if hyphen_form != key && known().any(|name| name == hyphen_form) {
            let position = expected.rfind(" at line ").map_or("", |at| &expected[at..]);
            return Some(format!("{place}unknown field `{key}`: write `{hyphen_form}`{position}"));
        }
        let similar = similar_name(key, known())?;
        Some(format!("{place}unknown field `{key}`: did you mean `{similar}`? Expected {expected}"))
    };
    reworded().unwrap_or_else(|| message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_found() {
        let names = ["disk0", "disk1", "backup"];
        for (misspelt, similar) in [
            ("disk", Some("disk0")),
            ("dsik1", Some("disk1")),
            ("bakcup", Some("backup")),
            ("Backup", Some("backup")),
            ("scratch", None),
            ("", None),
        ] {
            assert_eq!(similar_name(misspelt, names).as_deref(), similar, "{misspelt}");
        }
        assert_eq!(similar_name("disk0", []), None);
    }

    #[test]
    fn an_unknown_key_is_told_the_key_that_is_meant() {
        for (message, reworded) in [
            (
                "disks[0]: unknown field `read_only`, expected one of `name`, `read-only` at line 3 column 5",
                "disks[0]: unknown field `read_only`: write `read-only` at line 3 column 5",
            ),
            ("unknown field `a_b`, expected `a-b` or `c`", "unknown field `a_b`: write `a-b`"),
            (
                "unknown field `polcy`, expected one of `name`, `policy` at line 3 column 5",
                "unknown field `polcy`: did you mean `policy`? Expected one of `name`, `policy` at line 3 column 5",
            ),
            ("unknown field `colour`, expected `ios` or `bytes`", "unknown field `colour`, expected `ios` or `bytes`"),
            ("missing field `a-b`", "missing field `a-b`"),
        ] {
            assert_eq!(name_meant_key(message), reworded);
        }
    }
}
