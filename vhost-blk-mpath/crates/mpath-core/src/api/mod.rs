//! The core's types in configuration and API, for the feature `api`.

mod kinds;
mod schema;

pub use kinds::{ParamText, ParamsSchema};
pub use schema::schema_of;
use serde_json::json;

use crate::{AnaState, json_schema};

json_schema!(
    AnaState,
    "AnaState",
    json!({"type": "string", "description": "An ANA state.", "enum": AnaState::ALL.map(|state| state.to_string())})
);
