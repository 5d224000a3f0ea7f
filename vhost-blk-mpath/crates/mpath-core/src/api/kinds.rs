//! Policies and schedulers in configuration and API.
//!
//! A policy or scheduler is a name, or a mapping of `name` and parameters. Policies are one policy, or a mapping of `read` and
//! `write` to one each:
//!
//! ```yaml
//! policy: latency-rr
//! policy: {name: latency-rr, threshold: 1.5}
//! policy: {read: {name: latency-rr, threshold: 1.5}, write: queue-depth}
//! scheduler: {name: burst-credit, share: 0.5}
//! ```

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::kind_with_params::{KindSpec, KindWithParams};
use crate::{ClassPolicies, PolicyClass, PolicyKind, PolicySpec, SchedulerKind, SchedulerSpec, json_schema};

/// The forms of policies, for errors.
const EXPECTED: &str =
    "the name of a policy, a mapping of `name` and its parameters, or a mapping of `read` and `write`";

/// Stands for parameters by name in the OpenAPI document.
#[derive(Debug)]
pub struct ParamsSchema;

json_schema!(
    ClassPolicies,
    "Policies",
    json!({
        "description": format!("The policies of a disk: {EXPECTED} to one each."),
        "oneOf": [
            name_of::<PolicyKind>(),
            named::<PolicyKind>(),
            {
                "type": "object",
                "properties": {
                    "read": {"oneOf": [name_of::<PolicyKind>(), named::<PolicyKind>()]},
                    "write": {"oneOf": [name_of::<PolicyKind>(), named::<PolicyKind>()]},
                },
                "required": ["read", "write"],
                "additionalProperties": false,
            },
        ],
        "examples": [
            "latency-rr",
            {"name": "latency-rr", "threshold": 1.5},
            {"read": {"name": "latency-rr", "threshold": "1.5"}, "write": "queue-depth"},
        ],
    })
);
json_schema!(PolicyKind, "PolicyName", name_of::<PolicyKind>());
json_schema!(
    SchedulerSpec,
    "SchedulerSpec",
    json!({
        "description": "A scheduler: its name, or a mapping of `name` and its parameters.",
        "oneOf": [name_of::<SchedulerKind>(), named::<SchedulerKind>()],
        "examples": ["fifo", {"name": "burst-credit", "share": 0.5}],
    })
);
json_schema!(SchedulerKind, "SchedulerName", name_of::<SchedulerKind>());
json_schema!(
    PolicyClass,
    "PolicyClass",
    json!({
        "type": "string",
        "description": "Reads, or every other request.",
        "enum": [PolicyClass::Read.name(), PolicyClass::Write.name()],
    })
);
json_schema!(
    ParamsSchema,
    "Params",
    json!({
        "type": "object",
        "description": "Parameters by name. Policies and schedulers list theirs with ranges.",
        "additionalProperties": param(),
        "examples": [{"threshold": 1.5}, {"threshold": "default"}, {}],
    })
);

fn name_of<K: KindWithParams>() -> Value {
    json!({"type": "string", "description": format!("The name of a {}.", K::NOUN), "enum": K::names()})
}

/// The value of a parameter.
fn param() -> Value {
    json!({"type": ["string", "number"]})
}

/// A mapping of `name` and parameters.
fn named<K: KindWithParams>() -> Value {
    let name = name_of::<K>();
    json!({"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": param()})
}

/// Types that are written as their names.
macro_rules! by_name {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

by_name!(PolicyKind, SchedulerKind, PolicyClass);

impl<K: KindWithParams> Serialize for KindSpec<K> {
    /// A name, or a mapping of `name` and the parameters that differ from their defaults.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = self.kind().params_of().name;
        let mut params = self.changed_params().peekable();
        if params.peek().is_none() {
            return serializer.serialize_str(name);
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        for (param, text) in params {
            map.serialize_entry(param.name(), &text)?;
        }
        map.end()
    }
}

impl<'de, K: KindWithParams + FromStr<Err: Display>> Deserialize<'de> for KindSpec<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor(PhantomData))
    }
}

struct SpecVisitor<K>(PhantomData<K>);

impl<'de, K: KindWithParams + FromStr<Err: Display>> Visitor<'de> for SpecVisitor<K> {
    type Value = KindSpec<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a {}, or a mapping of `name` and its parameters", K::NOUN)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<KindSpec<K>, E> {
        name.parse().map(|kind: K| kind.into()).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KindSpec<K>, A::Error> {
        let first = map.next_key()?.ok_or_else(|| A::Error::missing_field("name"))?;
        spec_of(first, &mut map)
    }
}

/// Reads a mapping of `name` and parameters after its first key.
fn spec_of<'de, K: KindWithParams + FromStr<Err: Display>, A: MapAccess<'de>>(
    first: String,
    map: &mut A,
) -> Result<KindSpec<K>, A::Error> {
    let mut name: Option<String> = None;
    let mut params = Vec::new();
    let mut key = Some(first);
    while let Some(this) = key {
        if this == "name" {
            if name.replace(map.next_value()?).is_some() {
                return Err(A::Error::duplicate_field("name"));
            }
        } else {
            let ParamText(value) = map.next_value()?;
            params.push((this, value));
        }
        key = map.next_key()?;
    }
    let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
    let kind = name.parse().map_err(A::Error::custom)?;
    KindSpec::new(kind, params.iter().map(|(name, value)| (&**name, &**value))).map_err(A::Error::custom)
}

impl Serialize for ClassPolicies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(spec) = self.single() {
            return spec.serialize(serializer);
        }
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("read", &self.read)?;
        map.serialize_entry("write", &self.write)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for ClassPolicies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PoliciesVisitor)
    }
}

struct PoliciesVisitor;

impl<'de> Visitor<'de> for PoliciesVisitor {
    type Value = ClassPolicies;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<ClassPolicies, E> {
        name.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClassPolicies, A::Error> {
        let (mut read, mut write) = (None, None);
        let mut key: Option<String> = map.next_key()?;
        if key.as_deref().is_none_or(|key| key != "read" && key != "write") {
            let first = key.ok_or_else(|| A::Error::missing_field("name"))?;
            return spec_of::<PolicyKind, A>(first, &mut map).map(Into::into);
        }
        while let Some(this) = key {
            let (field, slot) = match &*this {
                "read" => ("read", &mut read),
                "write" => ("write", &mut write),
                other => return Err(A::Error::unknown_field(other, &["read", "write"])),
            };
            let spec: PolicySpec = map.next_value()?;
            if slot.replace(spec).is_some() {
                return Err(A::Error::duplicate_field(field));
            }
            key = map.next_key()?;
        }
        let (read, write) = (
            read.ok_or_else(|| A::Error::missing_field("read"))?,
            write.ok_or_else(|| A::Error::missing_field("write"))?,
        );
        Ok(ClassPolicies { read, write })
    }
}

/// The value of a parameter: a text, or the text of a number.
#[derive(Debug)]
pub struct ParamText(pub String);

impl<'de> Deserialize<'de> for ParamText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = ParamText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the value of a parameter: a word or a number")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<ParamText, E> {
                Ok(ParamText(text.into()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<ParamText, E> {
                Ok(ParamText(number.to_string()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<ParamText, E> {
                Ok(ParamText(number.to_string()))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<ParamText, E> {
                Ok(ParamText(number.to_string()))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Result<ClassPolicies, String> {
        serde_yaml::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_is_read_and_written_again() {
        for (yaml, shown, written) in [
            ("numa", "numa", "numa\n"),
            ("{name: numa}", "numa", "numa\n"),
            ("{read: numa, write: {name: numa}}", "numa", "numa\n"),
            ("{threshold: 1.5, name: latency-rr}", "latency-rr threshold=1.5", "name: latency-rr\nthreshold: '1.5'\n"),
            ("{name: latency-rr, threshold: 2}", "latency-rr threshold=2", "name: latency-rr\nthreshold: '2'\n"),
            ("{name: latency-rr, threshold: 1.250}", "latency-rr", "latency-rr\n"),
            (
                "{write: queue-depth, read: {name: latency-rr, threshold: '3'}}",
                "read: latency-rr threshold=3, write: queue-depth",
                "read:\n  name: latency-rr\n  threshold: '3'\nwrite: queue-depth\n",
            ),
        ] {
            let policies = parse(yaml).unwrap();
            assert_eq!(policies.to_string(), shown);
            assert_eq!(serde_yaml::to_string(&policies).unwrap(), written);
            assert_eq!(parse(written), Ok(policies));
            let json = serde_json::to_string(&policies).unwrap();
            assert_eq!(serde_json::from_str::<ClassPolicies>(&json).unwrap(), policies);
        }
    }

    #[test]
    fn errors_name_the_fault_and_the_choices() {
        for (yaml, parts) in [
            ("fastest", &["unknown policy 'fastest'", "latency-rr"][..]),
            ("{name: fastest}", &["unknown policy 'fastest'", "latency-rr"]),
            ("{threshold: 1.5}", &["missing field `name`"]),
            ("{}", &["missing field `name`"]),
            ("{name: latency-rr, gain: 1}", &["'latency-rr' has no parameter 'gain'", "threshold"]),
            ("{name: latency-rr, threshold: 0.5}", &["'threshold' is '0.5'", "1 to 10", "default 1.25"]),
            ("{name: latency-rr, threshold: -1}", &["'threshold' is '-1'"]),
            ("{name: latency-rr, threshold: .inf}", &["'threshold' is 'inf'"]),
            ("{name: latency-rr, threshold: [1]}", &["a word or a number"]),
            ("{name: latency-rr, threshold: 2, threshold: 3}", &["'threshold' is given twice"]),
            ("{name: numa, name: numa}", &["duplicate field `name`"]),
            ("{read: numa}", &["missing field `write`"]),
            ("{write: numa}", &["missing field `read`"]),
            ("{read: numa, read: numa, write: numa}", &["duplicate field `read`"]),
            ("{read: numa, write: numa, other: numa}", &["unknown field `other`", "`read` or `write`"]),
            ("{read: numa, write: {name: numa, x: 1}}", &["'numa' has no parameter 'x'; it has none"]),
            ("7", &["invalid type: integer `7`", "`read` and `write`"]),
            ("[numa]", &["invalid type: sequence"]),
        ] {
            let error = parse(yaml).expect_err(yaml);
            for part in parts {
                assert!(error.contains(part), "{yaml}: {error}");
            }
        }
    }

    #[test]
    fn every_form_of_a_scheduler_is_read_and_written_again() {
        for (yaml, shown, written) in [
            ("fifo", "fifo", "fifo\n"),
            ("published", "published", "published\n"),
            ("{name: burst-credit, share: 0.75}", "burst-credit", "burst-credit\n"),
            ("{share: 0.5, name: burst-credit}", "burst-credit share=0.5", "name: burst-credit\nshare: '0.5'\n"),
        ] {
            let spec: SchedulerSpec = serde_yaml::from_str(yaml).unwrap();
            assert_eq!((&*spec.to_string(), &*serde_yaml::to_string(&spec).unwrap()), (shown, written));
            assert_eq!(serde_yaml::from_str::<SchedulerSpec>(written).unwrap(), spec);
        }
    }

    #[test]
    fn errors_about_schedulers_name_what_is_wrong_and_what_there_is() {
        for (yaml, part) in [
            ("cfq", "unknown scheduler 'cfq', expected one of: burst-credit, published, fifo"),
            ("{name: cfq}", "unknown scheduler 'cfq'"),
            ("{share: 1}", "missing field `name`"),
            ("{}", "missing field `name`"),
            ("{name: fifo, share: 0.5}", "scheduler 'fifo' has no parameter 'share'"),
            ("{name: burst-credit, share: 2}", "'share' is '2'"),
            ("7", "the name of a scheduler"),
        ] {
            let error = serde_yaml::from_str::<SchedulerSpec>(yaml).unwrap_err().to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
