//! Parameters by name, for `#[serde(with = "params")]`.

use std::fmt;

use mpath_core::api::ParamText;
use serde::de::{MapAccess, Visitor};
use serde::{Deserializer, Serializer};

/// Names and values of parameters.
type Params = Vec<(String, String)>;

// The signature is serde's.
#[allow(clippy::ptr_arg)]
pub(crate) fn serialize<S: Serializer>(params: &Params, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(params.iter().map(|(name, value)| (name, value)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
    struct ParamsVisitor;
    impl<'de> Visitor<'de> for ParamsVisitor {
        type Value = Params;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a mapping of parameters to values")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
            let mut params = Params::new();
            while let Some((name, ParamText(value))) = map.next_entry::<String, ParamText>()? {
                params.push((name, value));
            }
            Ok(params)
        }
    }
    deserializer.deserialize_map(ParamsVisitor)
}
