//! An ANA state as its name, `null` if unknown, for `#[serde(with = "ana_state")]`: mpath-core does not depend on serde.

use mpath_core::AnaState;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::schema::json_schema;

/// Every ANA state.
pub(crate) const ANA_STATES: [AnaState; 5] =
    [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible, AnaState::PersistentLoss, AnaState::Change];

/// Stands for the state in the OpenAPI document.
pub(super) struct AnaStateSchema;

json_schema!(
    AnaStateSchema,
    "AnaState",
    json!({"type": "string", "description": "An ANA state.", "enum": ANA_STATES.map(|state| state.to_string())})
);

// The signature is serde's.
#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)]
pub(super) fn serialize<S: Serializer>(state: &Option<AnaState>, serializer: S) -> Result<S::Ok, S::Error> {
    state.map(|state| state.to_string()).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<AnaState>, D::Error> {
    let state = |name: String| {
        let found = ANA_STATES.into_iter().find(|state| state.to_string() == name);
        found.ok_or_else(|| D::Error::custom(format_args!("`{name}` is no ANA state")))
    };
    Option::deserialize(deserializer)?.map(state).transpose()
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct State(#[serde(with = "super")] Option<AnaState>);

    #[test]
    fn every_state_and_null_are_read_as_they_are_written() {
        for state in ANA_STATES.map(Some).into_iter().chain([None]) {
            let json = serde_json::to_string(&State(state)).unwrap();
            assert_eq!(json, state.map_or("null".into(), |state| format!("\"{state}\"")));
            assert_eq!(serde_json::from_str::<State>(&json).unwrap(), State(state));
        }
        let error = serde_json::from_str::<State>("\"gone\"").unwrap_err().to_string();
        assert!(error.contains("`gone` is no ANA state"), "{error}");
    }
}
