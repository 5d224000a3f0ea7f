//! The check of the MPTCP setup of this host, and the endpoints that follow the state of their links.
//!
//! The check reads the state of the host (`gather`) into plain data (`host`). Findings are made from that data alone (`judge`).

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

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Works, but a change may help.
    Note,
    /// MPTCP does not work, or does not use an interface.
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

/// A finding of the check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// The part of the setup that was checked.
    pub(crate) check: &'static str,
    pub(crate) found: String,
    /// Why it matters. `None` if nothing is wrong.
    pub(crate) why: Option<String>,
    /// The commands that correct it, in this order.
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

    fn corrected_by(self, commands: impl IntoIterator<Item = String>) -> Self {
        Self { commands: commands.into_iter().collect(), ..self }
    }
}
