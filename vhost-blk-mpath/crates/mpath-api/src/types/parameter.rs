//! Parameters of policies and schedulers.

use mpath_core::Param;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A parameter of a policy or a scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// The value in force. The default in `GET /v1/policies` and `GET /v1/schedulers`.
    pub value: String,
    /// The default.
    pub default: String,
    /// The values allowed.
    pub range: String,
    /// What a value is: a unit, `ratio`, `time` (with its unit in the value: us, ms or s), `word` or `per path`.
    pub unit: String,
    /// What the parameter does, one line.
    pub description: String,
}

impl Parameter {
    /// Parameters with their values.
    #[must_use]
    pub fn all(params: impl Iterator<Item = (&'static Param, String)>) -> Vec<Self> {
        let describe = |(param, value): (&Param, String)| Self {
            name: param.name().into(),
            value,
            default: param.default_text(),
            range: param.range(),
            unit: param.unit().into(),
            description: param.description().into(),
        };
        params.map(describe).collect()
    }
}
