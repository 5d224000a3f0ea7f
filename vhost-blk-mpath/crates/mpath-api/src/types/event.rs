//! Decides: an event is a warning or an error (`severity`).
//!
//! Events that the daemon keeps.

use std::fmt;

use mpath_config::PathAddress;
use mpath_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/events?after=SEQ`, and the data of each message of its stream: events in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Events {
    /// A random UUID of this count of numbers. It stays after an end in order, when the next daemon has the events and numbers go on.
    /// After a kill it is another one: numbers may have been given twice, so ask for all events.
    pub boot_id: String,
    /// Events after SEQ that the daemon still keeps.
    pub events: Vec<Event>,
    /// Number of events after SEQ that the daemon has dropped.
    pub lost: u64,
    /// The number of the last event: the SEQ of the next request.
    pub last: u64,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Event {
    /// The event's number: 1, 2, 3, …
    pub seq: u64,
    /// The time, by the host's clock: UTC, RFC 3339 with milliseconds.
    pub time: String,
    /// The kind, for programs.
    pub kind: EventKind,
    /// How serious it is.
    pub severity: Severity,
    /// The disk's name. `null` if the event concerns the daemon.
    pub disk: Option<String>,
    /// The path, if the event concerns one.
    pub path: Option<EventPath>,
    /// One line for people.
    pub message: String,
    /// The client of the API whose request it comes from. Left out if it comes from no request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Caller>,
    /// The number of earlier events of the same kind, disk and path that the daemon dropped because there were too many of them. Left
    /// out if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u64,
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A client of the API, as the kernel knew it when it connected, and its process at its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Caller {
    /// The user id.
    pub uid: u32,
    /// The user who logged in, which `sudo` keeps (`/proc/PID/loginuid`). Left out without a login, and if the daemon cannot read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_uid: Option<u32>,
    /// The process id. `null` if the process is in another PID namespace.
    pub pid: Option<u32>,
    /// The program and its arguments, 256 bytes at most. Left out if the daemon cannot read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The systemd service or scope of the process. Left out if there is none, and if the daemon cannot read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Caller {
    /// A client of whose process nothing is known.
    #[must_use]
    pub fn new(uid: u32, pid: Option<u32>) -> Self {
        Self { uid, login_uid: None, pid, command: None, unit: None }
    }

    /// The name of the program, without its directory and arguments.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        self.command.as_ref()?.split(' ').next()?.rsplit('/').next().filter(|name| !name.is_empty())
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}", self.uid)?;
        if let Some(login) = self.login_uid.filter(|login| *login != self.uid) {
            write!(f, " (login {login})")?;
        }
        if let Some(pid) = self.pid {
            write!(f, ", pid {pid}")?;
        }
        self.program().map_or(Ok(()), |program| write!(f, " {program}"))
    }
}

/// The path of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct EventPath {
    /// The path's number on the disk, from 0.
    pub index: u16,
    /// The path's address.
    pub address: PathAddress,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A path is live.
    PathLive,
    /// A path was lost or cannot be connected.
    PathLost,
    /// A path leads to another namespace.
    PathRefused,
    /// Attempts to connect a path have ended: it was disconnected for `ctrl-loss-tmo`.
    PathGaveUp,
    /// A path owes answers and sends nothing.
    PathSuspect,
    /// A suspect path has sent something.
    PathRecovered,
    /// A data digest was wrong on a path. The command is repeated.
    DigestError,
    /// A controller answered a command with an error that has it repeated. Told once a minute at most for each path and
    /// I/O thread, and again after a reconnect.
    CommandError,
    /// The operator enabled a path.
    PathEnable,
    /// The operator drained a path.
    PathDrain,
    /// The operator disabled a path. The path drains.
    PathDisable,
    /// A disabled path is drained, flushed and closed.
    PathDisabled,
    /// The operator reset a path.
    PathReset,
    /// The operator or discovery added a path.
    PathAdded,
    /// The operator or discovery removes a path: the path drains, or is dropped.
    PathRemove,
    /// A path is gone.
    PathRemoved,
    /// The ANA state of a namespace changed on a path.
    AnaChanged,
    /// A disk must not use the namespace that a path leads to.
    DiskRefused,
    /// A disk's controllers have a volatile write cache each, as far as the daemon knows. Told once, at the first path.
    VolatileWriteCache,
    /// A disk grew with its namespace.
    DiskResized,
    /// A disk is held: it takes no requests until the fence of an earlier daemon or of a removed disk has passed.
    DiskHeld,
    /// A held disk takes requests again.
    DiskResumed,
    /// The guest got an error. Further errors of the same operation and reason within a minute are not told. Or a
    /// virtqueue stands still until the guest resets the device.
    DiskFailing,
    /// The guest got an error that the medium reported. Further ones of the same operation within a minute are not told.
    MediumError,
    /// No path of a disk is usable. Requests wait.
    DiskWaiting,
    /// A disk has fewer usable paths than expected.
    DiskDegraded,
    /// A disk that was failing, waiting or degraded has all its paths.
    DiskOk,
    /// This host did not run the daemon for 100 ms or more. Told every ten seconds at most.
    HostStalled,
    /// Connections of a path fell back to plain TCP.
    MptcpFallback,
    /// MPTCP connections of a path have a new subflow.
    SubflowUp,
    /// MPTCP connections of a path have lost a subflow.
    SubflowDown,
    /// The discovery log was read, for the first time or after the controller was lost.
    DiscoveryConnected,
    /// The discovery log changed.
    DiscoveryChanged,
    /// A discovery controller does not answer. Its last log still applies.
    DiscoveryLost,
    /// A fence has passed: no command of a lost association can be executed any more.
    FenceLifted,
    /// The operator declared void what a disk's fence record keeps.
    FenceCleared,
    /// The operator or a front-end set the policy.
    PolicySet,
    /// The operator set hedging.
    HedgeSet,
    /// The operator set how many paths a disk is to have.
    MinPathsSet,
    /// The operator set the scheduler.
    SchedulerSet,
    /// The operator set limits.
    LimitsSet,
    /// The operator set a weight.
    WeightSet,
    /// The operator set an injection.
    InjectionSet,
    /// The operator cleared the injections of a path.
    InjectionCleared,
    /// An injection ended by itself, after the time that the operator gave.
    InjectionEnded,
    /// The operator added a disk.
    DiskAdded,
    /// A disk that the operator wanted to add could not be added.
    DiskNotAdded,
    /// The operator removes a disk.
    DiskRemove,
    /// A disk is gone.
    DiskRemoved,
    /// A front-end connected.
    FrontEndConnected,
    /// A front-end disconnected.
    FrontEndDisconnected,
    /// Front-ends leave one after the other before they start a virtqueue.
    FrontEndFlapping,
    /// A front-end waits on the socket until the connected one has left.
    FrontEndWaiting,
    /// The daemon has started, and the events before are those of another one.
    Restarted,
    /// The file of a socket is gone or is another one, so no client can connect.
    SocketLost,
    /// An operator has begun an upgrade of the daemon.
    UpgradeBegun,
    /// The new process of an upgrade does not take over. The daemon goes on.
    UpgradeFailed,
    /// A new process takes over, or has taken over.
    Upgraded,
    /// The configuration file was reloaded. Some changes may have failed.
    ConfigReloaded,
    /// The configuration file was not reloaded, and nothing was changed.
    ConfigNotReloaded,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

words! {
    /// How serious an event is.
    #[derive(PartialOrd, Ord)]
    Severity as "Severity", "severity", {
        /// A change.
        Info = "info",
        /// A problem that the guest need not notice.
        Warning = "warning",
        /// The guest notices: it got an error, or its requests wait.
        Error = "error",
    }
}

impl EventKind {
    /// How serious the event is.
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Self::DiskFailing | Self::DiskWaiting | Self::DiskRefused => Severity::Error,
            Self::PathLost
            | Self::PathRefused
            | Self::PathGaveUp
            | Self::PathSuspect
            | Self::DigestError
            | Self::CommandError
            | Self::MptcpFallback
            | Self::SubflowDown
            | Self::DiscoveryLost
            | Self::DiskHeld
            | Self::FenceCleared
            | Self::DiskNotAdded
            | Self::DiskDegraded
            | Self::MediumError
            | Self::HostStalled
            | Self::FrontEndFlapping
            | Self::FrontEndWaiting
            | Self::VolatileWriteCache
            | Self::SocketLost
            | Self::UpgradeFailed
            | Self::ConfigNotReloaded => Severity::Warning,
            _ => Severity::Info,
        }
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
            Self::DigestError => "digest-error",
            Self::CommandError => "command-error",
            Self::PathEnable => "path-enable",
            Self::PathDrain => "path-drain",
            Self::PathDisable => "path-disable",
            Self::PathDisabled => "path-disabled",
            Self::PathReset => "path-reset",
            Self::PathAdded => "path-added",
            Self::PathRemove => "path-remove",
            Self::PathRemoved => "path-removed",
            Self::AnaChanged => "ana-changed",
            Self::DiskRefused => "disk-refused",
            Self::VolatileWriteCache => "volatile-write-cache",
            Self::DiskResized => "disk-resized",
            Self::DiskHeld => "disk-held",
            Self::DiskResumed => "disk-resumed",
            Self::DiskFailing => "disk-failing",
            Self::MediumError => "medium-error",
            Self::DiskWaiting => "disk-waiting",
            Self::DiskDegraded => "disk-degraded",
            Self::DiskOk => "disk-ok",
            Self::HostStalled => "host-stalled",
            Self::MptcpFallback => "mptcp-fallback",
            Self::SubflowUp => "subflow-up",
            Self::SubflowDown => "subflow-down",
            Self::DiscoveryConnected => "discovery-connected",
            Self::DiscoveryChanged => "discovery-changed",
            Self::DiscoveryLost => "discovery-lost",
            Self::FenceLifted => "fence-lifted",
            Self::FenceCleared => "fence-cleared",
            Self::PolicySet => "policy-set",
            Self::HedgeSet => "hedge-set",
            Self::MinPathsSet => "min-paths-set",
            Self::SchedulerSet => "scheduler-set",
            Self::LimitsSet => "limits-set",
            Self::WeightSet => "weight-set",
            Self::InjectionSet => "injection-set",
            Self::InjectionCleared => "injection-cleared",
            Self::InjectionEnded => "injection-ended",
            Self::DiskAdded => "disk-added",
            Self::DiskNotAdded => "disk-not-added",
            Self::DiskRemove => "disk-remove",
            Self::DiskRemoved => "disk-removed",
            Self::FrontEndConnected => "front-end-connected",
            Self::FrontEndDisconnected => "front-end-disconnected",
            Self::FrontEndFlapping => "front-end-flapping",
            Self::FrontEndWaiting => "front-end-waiting",
            Self::Restarted => "restarted",
            Self::SocketLost => "socket-lost",
            Self::UpgradeBegun => "upgrade-begun",
            Self::UpgradeFailed => "upgrade-failed",
            Self::Upgraded => "upgraded",
            Self::ConfigReloaded => "config-reloaded",
            Self::ConfigNotReloaded => "config-not-reloaded",
            Self::Other => "other",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_named_in_a_few_words() {
        let command = Some("/usr/bin/mpathctl policy set bdp".into());
        let unit = Some("session-3.scope".into());
        let caller = Caller { uid: 0, login_uid: Some(1000), pid: Some(812), command, unit };
        assert_eq!(caller.to_string(), "uid 0 (login 1000), pid 812 mpathctl");
        let same = Caller { login_uid: Some(0), command: Some("bin/ x".into()), ..caller.clone() };
        assert_eq!(same.to_string(), "uid 0, pid 812");
        let unknown = Caller::new(7, None);
        assert_eq!(unknown.to_string(), "uid 7");
        assert_eq!(serde_json::to_string(&unknown).unwrap(), r#"{"uid":7,"pid":null}"#);
        assert_eq!(serde_json::from_str::<Caller>(r#"{"uid":7,"pid":null,"more":1}"#).unwrap(), unknown);
    }

    #[test]
    fn kinds_are_shown_as_they_travel_and_later_ones_are_understood() {
        for kind in [
            EventKind::PathLive,
            EventKind::FrontEndDisconnected,
            EventKind::FrontEndFlapping,
            EventKind::FrontEndWaiting,
            EventKind::AnaChanged,
            EventKind::PathRemoved,
            EventKind::WeightSet,
            EventKind::MinPathsSet,
            EventKind::InjectionEnded,
            EventKind::FenceCleared,
            EventKind::DiskRefused,
            EventKind::VolatileWriteCache,
            EventKind::DiskResized,
            EventKind::DiskHeld,
            EventKind::DiskResumed,
            EventKind::DiskFailing,
            EventKind::MediumError,
            EventKind::DigestError,
            EventKind::CommandError,
            EventKind::DiskWaiting,
            EventKind::DiskDegraded,
            EventKind::DiskOk,
            EventKind::HostStalled,
            EventKind::MptcpFallback,
            EventKind::SubflowUp,
            EventKind::SubflowDown,
            EventKind::DiscoveryLost,
            EventKind::DiskAdded,
            EventKind::DiskNotAdded,
            EventKind::DiskRemove,
            EventKind::DiskRemoved,
            EventKind::Restarted,
            EventKind::SocketLost,
            EventKind::UpgradeBegun,
            EventKind::UpgradeFailed,
            EventKind::Upgraded,
            EventKind::ConfigReloaded,
            EventKind::ConfigNotReloaded,
        ] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        assert_eq!(serde_json::from_str::<EventKind>("\"quota\"").unwrap(), EventKind::Other);
    }
}
