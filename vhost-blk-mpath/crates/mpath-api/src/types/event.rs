//! What has happened, as the daemon remembers it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::address::PathAddress;

/// `GET /v1/events?after=SEQ&wait=SECONDS`: events in the order they happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Those after the one asked for, as far as they are still kept.
    pub events: Vec<Event>,
    /// How many after the one asked for are not kept any more.
    pub lost: u64,
    /// What to ask for next.
    pub last: u64,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number: 1, 2, 3, … since the daemon started.
    pub seq: u64,
    /// When, by the host's clock: UTC, RFC 3339 with milliseconds.
    pub time: String,
    /// What, for programs.
    pub kind: EventKind,
    /// The disk's name.
    pub disk: String,
    /// The path, if it is about one.
    pub path: Option<EventPath>,
    /// What, in one line for people.
    pub message: String,
}

/// The path that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPath {
    /// Its number on the disk, from 0.
    pub index: u16,
    /// Where it leads.
    pub address: PathAddress,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A path has a live association.
    PathLive,
    /// A path was lost, or cannot be connected.
    PathLost,
    /// A path leads to another namespace.
    PathRefused,
    /// No attempt is made any more to connect a path: it had no connection for `ctrl-loss-tmo`.
    PathGaveUp,
    /// A path owes answers and has gone silent.
    PathSuspect,
    /// A suspect path has given a sign of life.
    PathRecovered,
    /// The operator takes a path into use again.
    PathEnable,
    /// The operator drains a path.
    PathDrain,
    /// The operator disables a path: it drains.
    PathDisable,
    /// A path that was to be disabled is drained, clean and closed.
    PathDisabled,
    /// The operator resets a path.
    PathReset,
    /// A path was added by the operator or by discovery.
    PathAdded,
    /// A path is to be removed: it drains, or is dropped.
    PathRemove,
    /// A path is gone.
    PathRemoved,
    /// The ANA state of the namespace on a path has changed.
    AnaChanged,
    /// A disk has grown with its namespace.
    DiskResized,
    /// A disk takes no requests before the fence that an earlier daemon, or a removed disk, left.
    DiskHeld,
    /// A disk takes requests again.
    DiskResumed,
    /// Connections of a path are plain TCP, though MPTCP was wanted.
    MptcpFallback,
    /// MPTCP connections of a path have got another subflow.
    SubflowUp,
    /// MPTCP connections of a path have lost a subflow.
    SubflowDown,
    /// A discovery controller has given its log, the first time or again after it was lost.
    DiscoveryConnected,
    /// A discovery controller's log has changed.
    DiscoveryChanged,
    /// A discovery controller does not answer; what it listed last still counts.
    DiscoveryLost,
    /// Nothing sent under a lost association can be executed any more.
    FenceLifted,
    /// The operator, or a front-end, set the policy.
    PolicySet,
    /// The operator set how reads are hedged.
    HedgeSet,
    /// The operator set the scheduler.
    SchedulerSet,
    /// The operator set the limits.
    LimitsSet,
    /// The operator set the weight.
    WeightSet,
    /// The operator impaired a path.
    InjectionSet,
    /// The operator ended the impairment of a path.
    InjectionCleared,
    /// A disk was added by the operator.
    DiskAdded,
    /// A disk that the operator wanted to be added was not.
    DiskNotAdded,
    /// The operator has a disk removed.
    DiskRemove,
    /// A disk is gone.
    DiskRemoved,
    /// A front-end has connected.
    FrontEndConnected,
    /// A front-end has left.
    FrontEndDisconnected,
    /// A kind of a later daemon.
    #[serde(other)]
    Other,
}

impl EventKind {
    /// Whether something is wrong, and not just different.
    #[must_use]
    pub fn is_trouble(self) -> bool {
        matches!(
            self,
            Self::PathLost
                | Self::PathRefused
                | Self::PathGaveUp
                | Self::PathSuspect
                | Self::MptcpFallback
                | Self::SubflowDown
                | Self::DiscoveryLost
                | Self::DiskHeld
                | Self::DiskNotAdded
        )
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PathLive => "path-live",
            Self::PathLost => "path-lost",
            Self::PathRefused => "path-refused",
            Self::PathGaveUp => "path-gave-up",
            Self::PathSuspect => "path-suspect",
            Self::PathRecovered => "path-recovered",
            Self::PathEnable => "path-enable",
            Self::PathDrain => "path-drain",
            Self::PathDisable => "path-disable",
            Self::PathDisabled => "path-disabled",
            Self::PathReset => "path-reset",
            Self::PathAdded => "path-added",
            Self::PathRemove => "path-remove",
            Self::PathRemoved => "path-removed",
            Self::AnaChanged => "ana-changed",
            Self::DiskResized => "disk-resized",
            Self::DiskHeld => "disk-held",
            Self::DiskResumed => "disk-resumed",
            Self::MptcpFallback => "mptcp-fallback",
            Self::SubflowUp => "subflow-up",
            Self::SubflowDown => "subflow-down",
            Self::DiscoveryConnected => "discovery-connected",
            Self::DiscoveryChanged => "discovery-changed",
            Self::DiscoveryLost => "discovery-lost",
            Self::FenceLifted => "fence-lifted",
            Self::PolicySet => "policy-set",
            Self::HedgeSet => "hedge-set",
            Self::SchedulerSet => "scheduler-set",
            Self::LimitsSet => "limits-set",
            Self::WeightSet => "weight-set",
            Self::InjectionSet => "injection-set",
            Self::InjectionCleared => "injection-cleared",
            Self::DiskAdded => "disk-added",
            Self::DiskNotAdded => "disk-not-added",
            Self::DiskRemove => "disk-remove",
            Self::DiskRemoved => "disk-removed",
            Self::FrontEndConnected => "front-end-connected",
            Self::FrontEndDisconnected => "front-end-disconnected",
            Self::Other => "other",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_shown_as_they_travel_and_later_ones_are_understood() {
        for kind in [
            EventKind::PathLive,
            EventKind::FrontEndDisconnected,
            EventKind::AnaChanged,
            EventKind::PathRemoved,
            EventKind::WeightSet,
            EventKind::DiskResized,
            EventKind::DiskHeld,
            EventKind::DiskResumed,
            EventKind::MptcpFallback,
            EventKind::SubflowUp,
            EventKind::SubflowDown,
            EventKind::DiscoveryLost,
            EventKind::DiskAdded,
            EventKind::DiskNotAdded,
            EventKind::DiskRemove,
            EventKind::DiskRemoved,
        ] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        assert_eq!(serde_json::from_str::<EventKind>("\"quota\"").unwrap(), EventKind::Other);
    }
}
