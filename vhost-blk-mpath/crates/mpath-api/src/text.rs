//! Decides: an unknown key is taken for a misspelt one (`name_meant_key`).
//!
//! Texts: types that are read and written as one word, numbers of bytes, and errors about keys.

/// Implements `Serialize` by `Display` and `Deserialize` by `FromStr`.
///
/// The visitor parses, so that the YAML reader gives an error the line and column of the value and not those of its parent.
#[macro_export]
macro_rules! text_serde {
    ($type:ty, $expected:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }
    };
}

pub(crate) use text_serde;

/// The least similarity of a misspelt name and the name that is meant, from 0 to 1.
const SIMILAR: f64 = 0.8;

/// Parses a number of bytes: digits, then KiB, MiB, GiB, TiB or nothing.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

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
pub(crate) fn name_meant_key(message: &str) -> String {
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
