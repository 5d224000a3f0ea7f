//! The paths that have to be live before the daemon reports that it is ready.

use std::fmt;
use std::str::FromStr;

use mpath_core::json_schema;
use serde_json::json;

use crate::text::{ValueError, text_serde};

/// The paths that have to be live before the daemon reports that it is ready. The API and the sockets do not wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WaitFor {
    /// Nothing: the API and the sockets of all disks listen.
    #[default]
    None,
    /// Each disk has a live path that leads to its namespace. If the first attempts bring about none, the daemon ends.
    Any,
    /// Each disk has a live path that leads to its namespace, and every configured path is live. If the first attempts do not bring
    /// that about, the daemon ends.
    All,
}

impl FromStr for WaitFor {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "none" => Ok(Self::None),
            "any" => Ok(Self::Any),
            "all" => Ok(Self::All),
            _ => Err(ValueError::not(text, "none, any or all")),
        }
    }
}

impl fmt::Display for WaitFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Any => "any",
            Self::All => "all",
        })
    }
}

text_serde!(WaitFor, "none, any or all");
json_schema!(
    WaitFor,
    "WaitFor",
    json!({
        "type": "string",
        "description": "The paths that have to be live before the daemon reports that it is ready.",
        "enum": ["none", "any", "all"],
    })
);
