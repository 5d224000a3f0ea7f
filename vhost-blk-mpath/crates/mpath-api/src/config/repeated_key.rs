//! The place of a repeated key. Derived code finds that a key is repeated after it has read the key, so the reader gives
//! the error the place of the whole mapping.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The error about the first repeated key in a text, with the place of the key.
pub(super) fn repeated_key(text: &str) -> Option<serde_yaml::Error> {
    let error = serde_yaml::from_str::<Value>(text).err()?;
    error.to_string().contains("duplicate field `").then_some(error)
}

/// Any value, without repeated keys.
struct Value;

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut keys = HashSet::new();
        while let Some(()) = map.next_key_seed(NewKey(&mut keys))? {
            map.next_value::<Value>()?;
        }
        Ok(Value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<Value>()?.is_some() {}
        Ok(Value)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value)
    }
}

/// A key that the mapping does not have yet.
struct NewKey<'a>(&'a mut HashSet<String>);

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NewKey<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        let is_new = self.0.insert(key.to_owned());
        if is_new { Ok(()) } else { Err(E::custom(format_args!("duplicate field `{key}`"))) }
    }
}
