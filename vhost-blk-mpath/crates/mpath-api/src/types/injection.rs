//! Impairments, and how paths are named to set them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Path;
use crate::address::{AddressError, PathAddress};
use crate::text::text_serde;

/// A deliberate impairment of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// Time added to every I/O on the path, 1 us to 60 s.
    pub latency_us: InjectedLatency,
}

/// Microseconds from 1 to 60 000 000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct InjectedLatency(u64);

/// A latency that cannot be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an injected latency is 1us to 60s, not {0:?}")]
pub struct InjectedLatencyError(pub Duration);

impl InjectedLatency {
    /// The time.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl TryFrom<u64> for InjectedLatency {
    type Error = InjectedLatencyError;

    fn try_from(us: u64) -> Result<Self, InjectedLatencyError> {
        if (1..=60_000_000).contains(&us) { Ok(Self(us)) } else { Err(InjectedLatencyError(Duration::from_micros(us))) }
    }
}

impl TryFrom<Duration> for InjectedLatency {
    type Error = InjectedLatencyError;

    /// Fractions of a microsecond are dropped.
    fn try_from(latency: Duration) -> Result<Self, InjectedLatencyError> {
        let us = u64::try_from(latency.as_micros()).map_err(|_| InjectedLatencyError(latency))?;
        Self::try_from(us).map_err(|_| InjectedLatencyError(latency))
    }
}

impl From<InjectedLatency> for u64 {
    fn from(latency: InjectedLatency) -> Self {
        latency.0
    }
}

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
    /// Of which disk; of every disk if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The impairment, in place of an earlier one.
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
        for bad in ["", "1.5", "mptcp://127.0.0.1:4420", "a:b"] {
            assert!(bad.parse::<PathSelector>().is_err(), "{bad}");
        }
        for bad in ["65536", "-1", "+1", "00", "01"] {
            assert_eq!(bad.parse::<PathSelector>(), Err(PathSelectorError::Index { text: bad.into() }));
        }
    }

    #[test]
    fn injected_latency_keeps_to_its_range() {
        for (latency, us) in
            [(Duration::from_micros(1), 1), (Duration::from_nanos(1999), 1), (Duration::from_secs(60), 60_000_000)]
        {
            assert_eq!(InjectedLatency::try_from(latency).map(u64::from), Ok(us));
        }
        for bad in [Duration::ZERO, Duration::from_nanos(999), Duration::from_micros(60_000_001), Duration::MAX] {
            assert_eq!(InjectedLatency::try_from(bad), Err(InjectedLatencyError(bad)));
        }
        let error = serde_json::from_str::<Injection>(r#"{"latency_us":0}"#).unwrap_err();
        assert_eq!(error.to_string(), "an injected latency is 1us to 60s, not 0ns at line 1 column 16");
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
