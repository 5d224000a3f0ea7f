//! Which paths are impaired, and how paths are named to set that.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Injection, Path};
use crate::address::{AddressError, PathAddress};
use crate::text::text_serde;

/// `GET /v1/injections`, and the answer to `PUT` and `DELETE`: a path and what impairs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedPath {
    /// The disk's name.
    pub disk: String,
    /// Its number on the disk, from 0.
    pub index: u16,
    /// Where the path leads.
    pub address: PathAddress,
    /// The impairment; in the answer to `DELETE` the one that was in force.
    pub injection: Injection,
}

/// The body of `PUT /v1/injections`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetInjection {
    /// Which paths.
    pub path: PathSelector,
    /// Of which disk, which has to have paths of its own; of every such disk if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The impairment, in place of every earlier one, or of that of its class if it is for a class.
    pub injection: Injection,
}

/// Names one path or all of them: `all`, an index (`1`), or an address, with or without `tcp://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSelector {
    /// Every path.
    All,
    /// The path of this number of each disk meant.
    Index(u16),
    /// The path that leads there.
    Address(PathAddress),
}

impl PathSelector {
    /// Whether `path` is meant.
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

/// A text that is no [`PathSelector`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathSelectorError {
    /// There is nothing.
    #[error("an empty text names no path; give an index, an address or `all`")]
    Empty,
    /// It looks like an index, and is none: signed, too large, or with zeros in front.
    #[error("`{text}` is no index of a path; give one as `path list` shows it, an address or `all`")]
    Index {
        /// What was given.
        text: String,
    },
    /// It is no address.
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
            // As it is shown and not otherwise: who writes 00 or +1 may mean something else.
            let index = text.parse().ok().filter(|index: &u16| index.to_string() == text);
            return index.map(Self::Index).ok_or_else(|| PathSelectorError::Index { text: text.into() });
        }
        let address = if text.contains("://") { text.parse() } else { format!("tcp://{text}").parse() };
        Ok(Self::Address(address?))
    }
}

text_serde!(PathSelector, "`all`, the index of a path or its address");

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
