//! Whether this host is set up so that MPTCP uses all of its network cards, and endpoints that follow the state of their links.
//!
//! For the check, what the host has is gathered (`gather`) into plain data (`host`), of which findings are made without any look at the host
//! (`judge`).

mod follow;
mod gather;
mod host;
mod ip;
mod judge;

use std::fmt;

use serde::Serialize;

pub(crate) use self::follow::{Done, FollowError, What, follow};
pub(crate) use self::gather::{GatherError, gather};
pub(crate) use self::judge::judge;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Works, but may be worth a change.
    Note,
    /// MPTCP does not work, or leaves a card unused.
    Problem,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        })
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// What was looked at.
    pub(crate) check: &'static str,
    pub(crate) found: String,
    /// Why it matters; none if all is well.
    pub(crate) why: Option<String>,
    /// What mends it, each a command as it is typed, in this order.
    pub(crate) commands: Vec<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Ok, check, found: found.into(), why: None, commands: Vec::new() }
    }

    fn note(check: &'static str, found: impl Into<String>, why: impl Into<String>) -> Self {
        Self { level: Level::Note, why: Some(why.into()), ..Self::ok(check, found) }
    }

    fn problem(check: &'static str, found: impl Into<String>, why: impl Into<String>) -> Self {
        Self { level: Level::Problem, why: Some(why.into()), ..Self::ok(check, found) }
    }

    fn mended_by(self, commands: impl IntoIterator<Item = String>) -> Self {
        Self { commands: commands.into_iter().collect(), ..self }
    }
}
