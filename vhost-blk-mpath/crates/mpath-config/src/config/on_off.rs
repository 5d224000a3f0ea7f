//! Settings that are on or off.

use std::fmt;

use serde::{Deserializer, de};

/// Reads `true` or `false`. The error for another value names both: `yes`, `on` and `1` are no booleans in YAML 1.2.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    struct Visitor;
    impl de::Visitor<'_> for Visitor {
        type Value = bool;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true or false")
        }
        fn visit_bool<E: de::Error>(self, value: bool) -> Result<bool, E> {
            Ok(value)
        }
        fn visit_unit<E: de::Error>(self) -> Result<bool, E> {
            Err(E::invalid_value(de::Unexpected::Other("nothing"), &self))
        }
    }
    deserializer.deserialize_any(Visitor)
}
