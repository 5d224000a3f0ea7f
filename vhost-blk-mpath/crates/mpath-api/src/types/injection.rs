//! Injected paths, and the selection of paths.

use std::fmt;
use std::str::FromStr;

use mpath_config::address::{AddressError, PEER_PATTERN};
use mpath_config::{PathAddress, text_serde};
use mpath_core::json_schema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::impairment::UncheckedInjection;
use super::{InjectedMilliseconds, Injection, InjectionInForce, Path};

/// `GET /v1/injections`, and the answer to `PUT` and `DELETE`: a path and its injection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct InjectedPath {
    /// The disk's name.
    pub disk: String,
    /// The path's number on the disk, from 0.
    pub index: u16,
    /// The path's address.
    pub address: PathAddress,
    /// The injection. In the answer to `DELETE`: the one that was cleared.
    pub injection: InjectionInForce,
}

/// The body of `PUT /v1/injections`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetInjection {
    /// The paths.
    pub path: PathSelector,
    /// The disk, which must have paths of its own. If left out: every such disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The injection. It replaces every earlier one, or the one of its class if it is for a class.
    #[schema(value_type = UncheckedInjection)]
    pub injection: Injection,
    /// The time after which the daemon ends the injection. If left out: when it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<InjectedMilliseconds>,
}

/// A selection of paths: `all`, an index (`1`), or an address with or without `tcp://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSelector {
    /// Every path.
    All,
    /// The path with this number, of each selected disk.
    Index(u16),
    /// The path with this address.
    Address(PathAddress),
}

impl PathSelector {
    /// Whether `path` is selected.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        match self {
            Self::All => true,
            Self::Index(index) => path.index == *index,
            Self::Address(address) => path.address == *address,
        }
    }
}

impl fmt::Display for PathSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Index(index) => index.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Why a text is no [`PathSelector`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathSelectorError {
    /// The text is empty.
    #[error("an empty text selects no path; give an index, an address or `all`")]
    Empty,
    /// An index with a sign, with leading zeros, or too large.
    #[error("`{text}` is no index of a path; give an index from `path list`, an address or `all`")]
    Index {
        /// What was given.
        text: String,
    },
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl FromStr for PathSelector {
    type Err = PathSelectorError;

    fn from_str(text: &str) -> Result<Self, PathSelectorError> {
        if text.is_empty() {
            return Err(PathSelectorError::Empty);
        }
        if text == "all" {
            return Ok(Self::All);
        }
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            // Only as it is shown: `00` or `+1` may be a slip for something else.
            let index = text.parse().ok().filter(|index: &u16| index.to_string() == text);
            return index.map(Self::Index).ok_or_else(|| PathSelectorError::Index { text: text.into() });
        }
        let address = if text.contains("://") { text.parse() } else { format!("tcp://{text}").parse() };
        Ok(Self::Address(address?))
    }
}

text_serde!(PathSelector, "`all`, the index of a path or its address");
json_schema!(
    PathSelector,
    "PathSelector",
    json!({
        "type": "string",
        "description": "A selection of paths: `all`, the index of a path, or its address with or without `tcp://`.",
        "pattern": format!("^(all|0|[1-9][0-9]{{0,4}}|(([Mm][Pp])?[Tt][Cc][Pp]://)?{PEER_PATTERN})$"),
        "examples": ["all", "0", "tcp://127.0.0.1:4421", "[::1]", "storage"],
    })
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selectors() {
        let address = |text: &str| PathSelector::Address(text.parse().unwrap());
        for (text, selector) in [
            ("all", PathSelector::All),
            ("0", PathSelector::Index(0)),
            ("65535", PathSelector::Index(65535)),
            ("tcp://127.0.0.1:4421", address("tcp://127.0.0.1:4421")),
            ("127.0.0.1:4421", address("tcp://127.0.0.1:4421")),
            ("[::1]", address("tcp://[::1]:4420")),
            ("storage", address("tcp://storage:4420")),
        ] {
            assert_eq!(text.parse(), Ok(selector), "{text}");
        }
        for bad in ["", "1.5", "rdma://127.0.0.1:4420", "a:b"] {
            assert!(bad.parse::<PathSelector>().is_err(), "{bad}");
        }
        for bad in ["65536", "-1", "+1", "00", "01"] {
            assert_eq!(bad.parse::<PathSelector>(), Err(PathSelectorError::Index { text: bad.into() }));
        }
    }

    proptest! {
        #[test]
        fn no_selector_panics_and_what_parses_is_stable(text in "\\PC{0,40}") {
            if let Ok(selector) = text.parse::<PathSelector>() {
                prop_assert_eq!(selector.to_string().parse(), Ok(selector));
            }
        }
    }
}
