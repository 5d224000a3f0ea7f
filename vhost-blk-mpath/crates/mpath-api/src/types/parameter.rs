//! Parameters of policies and schedulers.

use mpath_core::Param;
use serde::{Deserialize, Serialize};

/// A parameter of a policy or a scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its value; where none is in force, as in `GET /v1/policies`, the default.
    pub value: String,
    /// The value it has unless it is set.
    pub default: String,
    /// The values it can have.
    pub range: String,
    /// What a value is: a unit, `ratio`, `time` (with its unit in the value: us, ms or s), `word` or `per path`.
    pub unit: String,
    /// One line on what it does.
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
