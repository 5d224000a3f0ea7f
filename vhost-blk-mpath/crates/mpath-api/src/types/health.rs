//! The condition of a disk, and the errors that its guest got.

use std::fmt;

use mpath_core::{IoError, Op};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The health of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DiskHealth {
    /// The worst condition that applies.
    pub condition: Condition,
    /// When it began: UTC, RFC 3339 with milliseconds.
    pub condition_since: String,
    /// Why: every condition that applies, the worst first. Empty if the disk is `ok`.
    pub reasons: Vec<ConditionReason>,
    /// Requests of the guest without an answer.
    pub outstanding: u64,
    /// The errors that the guest got since the disk was added, by operation and reason.
    pub guest_errors: Vec<GuestErrorCount>,
}

/// The condition of a disk. A greater one is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// None of the others.
    Ok,
    /// Fewer paths are usable than expected.
    Degraded,
    /// No front-end is connected.
    NoFrontEnd,
    /// No path is usable. Requests wait.
    Waiting,
    /// The disk takes no requests until the fence of an earlier daemon or of a removed disk has passed and, after a kill, every path
    /// was tried.
    Held,
    /// In the last minute the guest got an error that neither the medium nor an unsupported operation explains.
    Failing,
}

impl Condition {
    /// Every condition, the best first.
    pub const ALL: [Self; 6] = [Self::Ok, Self::Degraded, Self::NoFrontEnd, Self::Waiting, Self::Held, Self::Failing];
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::NoFrontEnd => "no-front-end",
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Failing => "failing",
        })
    }
}

/// A condition that applies to a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ConditionReason {
    /// The condition.
    pub condition: Condition,
    /// Its reason, one line for people.
    pub message: String,
}

/// The errors of one operation and reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GuestErrorCount {
    /// The operation.
    pub operation: GuestOperation,
    /// The reason.
    pub reason: GuestErrorReason,
    /// How many since the disk was added.
    pub count: u64,
    /// When the daemon noticed the last of them, within half a second: UTC, RFC 3339 with milliseconds.
    pub last_at: String,
}

/// An operation of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestOperation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Write zeroes.
    WriteZeroes,
    /// Discard.
    Discard,
    /// A request that the daemon refused before it became an operation.
    Other,
}

impl From<Option<Op>> for GuestOperation {
    fn from(op: Option<Op>) -> Self {
        match op {
            Some(Op::Read) => Self::Read,
            Some(Op::Write) => Self::Write,
            Some(Op::Flush) => Self::Flush,
            Some(Op::WriteZeroes) => Self::WriteZeroes,
            Some(Op::Discard) => Self::Discard,
            None => Self::Other,
        }
    }
}

impl fmt::Display for GuestOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::WriteZeroes => "write-zeroes",
            Self::Discard => "discard",
            Self::Other => "other",
        })
    }
}

/// Why a guest got an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestErrorReason {
    /// The controller reported an error of the medium.
    Medium,
    /// The controller failed the command for another reason.
    Controller,
    /// The namespace or the disk does not support the operation.
    Unsupported,
    /// Every attempt failed.
    Attempts,
    /// No path was usable in time (`fast-io-fail-tmo`; for flushes 30 s), or none can come back.
    NoPath,
    /// A flush reported that unflushed writes were lost.
    LostWrites,
    /// The guest's request was malformed.
    Malformed,
}

impl GuestErrorReason {
    /// The reason of an error that a guest gets. `None` for requests that are given up: their guest gets no answer.
    #[must_use]
    pub fn of(error: IoError) -> Option<Self> {
        match error {
            IoError::Medium => Some(Self::Medium),
            IoError::Controller => Some(Self::Controller),
            IoError::Unsupported => Some(Self::Unsupported),
            IoError::Attempts => Some(Self::Attempts),
            IoError::NoPath => Some(Self::NoPath),
            IoError::LostWrites => Some(Self::LostWrites),
            IoError::Malformed => Some(Self::Malformed),
            IoError::GivenUp => None,
        }
    }

    /// Whether errors for this reason make a disk `failing`.
    #[must_use]
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Medium | Self::Unsupported)
    }
}

impl fmt::Display for GuestErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Medium => "medium",
            Self::Controller => "controller",
            Self::Unsupported => "unsupported",
            Self::Attempts => "attempts",
            Self::NoPath => "no-path",
            Self::LostWrites => "lost-writes",
            Self::Malformed => "malformed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shown_as_they_travel() {
        for condition in Condition::ALL {
            assert_eq!(serde_json::to_string(&condition).unwrap(), format!("\"{condition}\""));
        }
        for error in IoError::ALL.into_iter().filter_map(GuestErrorReason::of) {
            assert_eq!(serde_json::to_string(&error).unwrap(), format!("\"{error}\""));
        }
        for operation in Op::ALL.into_iter().map(Some).chain([None]).map(GuestOperation::from) {
            assert_eq!(serde_json::to_string(&operation).unwrap(), format!("\"{operation}\""));
        }
        assert!(Condition::ALL.is_sorted());
    }
}
