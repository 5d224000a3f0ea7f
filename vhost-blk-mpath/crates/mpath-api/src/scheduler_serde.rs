//! Schedulers in configuration and API, for `#[serde(with = "scheduler_serde")]`: a name, or a mapping of `name` and parameters.
//!
//! ```yaml
//! scheduler: fifo
//! scheduler: {name: burst-credit, share: 0.5}
//! ```

use std::fmt;

use mpath_core::{SchedulerKind, SchedulerSpec};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserializer, Serializer};
use serde_json::{Value, json};

use crate::policy_serde::{name_and_params, named, serialize_named};
use crate::schema::json_schema;

/// Stands for [`SchedulerSpec`] in the OpenAPI document.
pub(crate) struct SchedulerSchema;
/// Stands for [`SchedulerKind`] in the OpenAPI document.
pub(crate) struct SchedulerNameSchema;

json_schema!(
    SchedulerSchema,
    "SchedulerSpec",
    json!({
        "description": "A scheduler: its name, or a mapping of `name` and its parameters.",
        "oneOf": [scheduler_name(), named(&scheduler_name())],
        "examples": ["fifo", {"name": "burst-credit", "share": 0.5}],
    })
);
json_schema!(SchedulerNameSchema, "SchedulerName", scheduler_name());

fn scheduler_name() -> Value {
    let names = SchedulerKind::ALL.map(SchedulerKind::name);
    json!({"type": "string", "description": "The name of a scheduler.", "enum": names})
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn serialize<S: Serializer>(spec: &SchedulerSpec, serializer: S) -> Result<S::Ok, S::Error> {
    serialize_named(spec.kind().name(), spec.changed_params(), serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SchedulerSpec, D::Error> {
    struct SpecVisitor;
    impl<'de> Visitor<'de> for SpecVisitor {
        type Value = SchedulerSpec;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the name of a scheduler, or a mapping of `name` and its parameters")
        }
        fn visit_str<E: Error>(self, name: &str) -> Result<SchedulerSpec, E> {
            name.parse().map(|kind: SchedulerKind| kind.into()).map_err(E::custom)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SchedulerSpec, A::Error> {
            let first = map.next_key()?.ok_or_else(|| A::Error::missing_field("name"))?;
            let (name, params) = name_and_params(first, &mut map)?;
            let kind: SchedulerKind = name.parse().map_err(A::Error::custom)?;
            let params = params.iter().map(|(name, value)| (&**name, &**value));
            SchedulerSpec::new(kind, params).map_err(A::Error::custom)
        }
    }
    deserializer.deserialize_any(SpecVisitor)
}

/// A scheduler as its name, for `#[serde(with = "scheduler_serde::kind")]`.
pub(crate) mod kind {
    use mpath_core::SchedulerKind;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    // The signature is serde's.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(crate) fn serialize<S: Serializer>(kind: &SchedulerKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(kind)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SchedulerKind, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Form(#[serde(with = "super")] SchedulerSpec);

    #[test]
    fn every_form_is_read_and_written_again() {
        for (yaml, shown, written) in [
            ("fifo", "fifo", "fifo\n"),
            ("published", "published", "published\n"),
            ("{name: burst-credit, share: 0.75}", "burst-credit", "burst-credit\n"),
            ("{share: 0.5, name: burst-credit}", "burst-credit share=0.5", "name: burst-credit\nshare: '0.5'\n"),
        ] {
            let Form(spec) = serde_yaml::from_str(yaml).unwrap();
            assert_eq!((&*spec.to_string(), &*serde_yaml::to_string(&Form(spec)).unwrap()), (shown, written));
            assert_eq!(serde_yaml::from_str::<Form>(written).unwrap(), Form(spec));
        }
    }

    #[test]
    fn errors_name_what_is_wrong_and_what_there_is() {
        for (yaml, part) in [
            ("cfq", "unknown scheduler 'cfq', expected one of: burst-credit, published, fifo"),
            ("{name: cfq}", "unknown scheduler 'cfq'"),
            ("{share: 1}", "missing field `name`"),
            ("{}", "missing field `name`"),
            ("{name: fifo, share: 0.5}", "scheduler 'fifo' has no parameter 'share'"),
            ("{name: burst-credit, share: 2}", "'share' is '2'"),
            ("7", "the name of a scheduler"),
        ] {
            let error = serde_yaml::from_str::<Form>(yaml).unwrap_err().to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
