//! Policies in configuration and API, for `#[serde(with = "policy_serde")]`: mpath-core does not depend on serde.
//!
//! A policy is a name, or a mapping of `name` and parameters. Policies are one policy, or a mapping of `read` and `write` to one
//! each:
//!
//! ```yaml
//! policy: latency-rr
//! policy: {name: latency-rr, threshold: 1.5}
//! policy: {read: {name: latency-rr, threshold: 1.5}, write: queue-depth}
//! ```

use std::fmt;

use mpath_core::{ClassPolicies, Param, PolicyClass, PolicyKind, PolicySpec};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::schema::json_schema;

/// The forms of policies, for errors.
const EXPECTED: &str =
    "the name of a policy, a mapping of `name` and its parameters, or a mapping of `read` and `write`";

/// Stands for [`ClassPolicies`] in the OpenAPI document.
pub(crate) struct PoliciesSchema;
/// Stands for [`PolicyKind`] in the OpenAPI document.
pub(crate) struct PolicyNameSchema;
/// Stands for [`PolicyClass`] in the OpenAPI document.
pub(crate) struct ClassSchema;
/// Stands for parameters by name in the OpenAPI document.
pub(crate) struct ParamsSchema;

json_schema!(
    PoliciesSchema,
    "Policies",
    json!({
        "description": format!("The policies of a disk: {EXPECTED} to one each."),
        "oneOf": [
            policy_name(),
            named(&policy_name()),
            {
                "type": "object",
                "properties": {
                    "read": {"oneOf": [policy_name(), named(&policy_name())]},
                    "write": {"oneOf": [policy_name(), named(&policy_name())]},
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
json_schema!(PolicyNameSchema, "PolicyName", policy_name());
json_schema!(
    ClassSchema,
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

fn policy_name() -> Value {
    let names: Vec<_> = PolicyKind::ALL
        .iter()
        .flat_map(|kind| [kind.name()].into_iter().chain(kind.aliases().iter().copied()))
        .collect();
    json!({"type": "string", "description": "The name of a policy.", "enum": names})
}

/// The value of a parameter.
fn param() -> Value {
    json!({"type": ["string", "number"]})
}

/// A mapping of `name` and parameters.
pub(crate) fn named(name: &Value) -> Value {
    json!({"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": param()})
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn serialize<S: Serializer>(policies: &ClassPolicies, serializer: S) -> Result<S::Ok, S::Error> {
    if let Some(spec) = policies.single() {
        return NamedPolicy(*spec).serialize(serializer);
    }
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("read", &NamedPolicy(policies.read))?;
    map.serialize_entry("write", &NamedPolicy(policies.write))?;
    map.end()
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ClassPolicies, D::Error> {
    deserializer.deserialize_any(PoliciesVisitor)
}

/// One policy.
struct NamedPolicy(PolicySpec);

impl Serialize for NamedPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_named(self.0.kind().name(), self.0.changed_params(), serializer)
    }
}

/// Writes a name, or a mapping of `name` and parameters if there are any.
pub(crate) fn serialize_named<S: Serializer>(
    name: &str,
    params: impl Iterator<Item = (&'static Param, String)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut params = params.peekable();
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

impl<'de> Deserialize<'de> for NamedPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamedPolicyVisitor)
    }
}

struct NamedPolicyVisitor;

impl<'de> Visitor<'de> for NamedPolicyVisitor {
    type Value = NamedPolicy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a policy, or a mapping of `name` and its parameters")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<NamedPolicy, E> {
        name.parse().map(|kind: PolicyKind| NamedPolicy(kind.into())).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedPolicy, A::Error> {
        match map.next_key::<String>()? {
            Some(first) => spec_of(first, &mut map).map(NamedPolicy),
            None => Err(A::Error::missing_field("name")),
        }
    }
}

fn spec_of<'de, A: MapAccess<'de>>(first: String, map: &mut A) -> Result<PolicySpec, A::Error> {
    let (name, params) = name_and_params(first, map)?;
    let kind: PolicyKind = name.parse().map_err(A::Error::custom)?;
    PolicySpec::new(kind, params.iter().map(|(name, value)| (&**name, &**value))).map_err(A::Error::custom)
}

/// Names and values of parameters.
type Params = Vec<(String, String)>;

/// Reads a mapping of `name` and parameters after its first key.
pub(crate) fn name_and_params<'de, A: MapAccess<'de>>(
    first: String,
    map: &mut A,
) -> Result<(String, Params), A::Error> {
    let mut name: Option<String> = None;
    let mut params = Params::new();
    let mut key = Some(first);
    while let Some(this) = key {
        if this == "name" {
            if name.replace(map.next_value()?).is_some() {
                return Err(A::Error::duplicate_field("name"));
            }
        } else {
            let Text(value) = map.next_value()?;
            params.push((this, value));
        }
        key = map.next_key()?;
    }
    let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
    Ok((name, params))
}

struct PoliciesVisitor;

impl<'de> Visitor<'de> for PoliciesVisitor {
    type Value = ClassPolicies;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<ClassPolicies, E> {
        NamedPolicyVisitor.visit_str(name).map(|NamedPolicy(spec)| spec.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClassPolicies, A::Error> {
        let (mut read, mut write) = (None, None);
        let mut key: Option<String> = map.next_key()?;
        if key.as_deref().is_none_or(|key| key != "read" && key != "write") {
            let first = key.ok_or_else(|| A::Error::missing_field("name"))?;
            return spec_of(first, &mut map).map(Into::into);
        }
        while let Some(this) = key {
            let (field, slot) = match &*this {
                "read" => ("read", &mut read),
                "write" => ("write", &mut write),
                other => return Err(A::Error::unknown_field(other, &["read", "write"])),
            };
            let NamedPolicy(spec) = map.next_value()?;
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
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the value of a parameter: a word or a number")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.into()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// Parameters by name.
pub(crate) mod params {
    use std::fmt;

    use serde::de::{MapAccess, Visitor};
    use serde::{Deserializer, Serializer};

    use super::{Params, Text};

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
                while let Some((name, Text(value))) = map.next_entry::<String, Text>()? {
                    params.push((name, value));
                }
                Ok(params)
            }
        }
        deserializer.deserialize_map(ParamsVisitor)
    }
}

/// A policy as its name, for `#[serde(with = "policy_serde::kind")]`.
pub(crate) mod kind {
    use std::fmt;

    use mpath_core::PolicyKind;
    use serde::{Deserializer, Serializer, de};

    // The signature is serde's.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(crate) fn serialize<S: Serializer>(policy: &PolicyKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(policy)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicyKind, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = PolicyKind;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a policy")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<PolicyKind, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// The class of requests of a policy.
pub(crate) mod class {
    use mpath_core::PolicyClass;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    // The signature is serde's.
    #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)]
    pub(crate) fn serialize<S: Serializer>(class: &Option<PolicyClass>, serializer: S) -> Result<S::Ok, S::Error> {
        class.map(PolicyClass::name).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PolicyClass>, D::Error> {
        let name: Option<String> = Deserialize::deserialize(deserializer)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Policies(#[serde(with = "super")] ClassPolicies);

    fn parse(yaml: &str) -> Result<ClassPolicies, String> {
        serde_yaml::from_str(yaml).map(|Policies(policies)| policies).map_err(|error| error.to_string())
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
            assert_eq!(serde_yaml::to_string(&Policies(policies)).unwrap(), written);
            assert_eq!(parse(written), Ok(policies));
            let json = serde_json::to_string(&Policies(policies)).unwrap();
            assert_eq!(serde_json::from_str::<Policies>(&json).unwrap(), Policies(policies));
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
}
