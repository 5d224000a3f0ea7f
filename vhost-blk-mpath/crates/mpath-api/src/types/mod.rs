//! What travels over the API as JSON.
//!
//! Field names are `snake_case` and end in their unit (`_us` microseconds, `_ms` milliseconds, `_s` seconds, `_bytes`);
//! words with a fixed set of values (policies, states, transports) are kebab-case, as in the
//! configuration file. Requests refuse unknown fields; answers may gain fields in later versions.

mod convert;
mod discovery;
mod error;
mod event;
mod hedge;
mod impairment;
mod injection;
mod mptcp;
mod parameter;
mod policy;
mod removal;
mod scheduler;
mod steering;
mod weight;

use std::fmt;

use mpath_core::ClassPolicies;
use serde::{Deserialize, Serialize};

pub use self::discovery::{DiscoveryController, DiscoveryState};
pub use self::error::{ErrorBody, ErrorCode, ErrorInfo};
pub use self::event::{Event, EventKind, EventPath, Events};
pub use self::hedge::{DiskHedge, HedgeStatus, SetHedge};
pub use self::impairment::{
    InjectedClass, InjectedDirection, InjectedDistribution, InjectedLatency, InjectedLatencyError, InjectedRangeError,
    InjectedRate, InjectedShare, InjectedStatus, Injection, InjectionError, UnknownWord,
};
pub use self::injection::{InjectedPath, PathSelector, PathSelectorError, SetInjection};
pub use self::mptcp::{Mptcp, MptcpConnection, Subflow, SubflowState};
pub use self::parameter::Parameter;
pub use self::policy::{DiskPolicy, PathEstimate, PathView, Policy, PolicyDetail, PolicyInForce, SetPolicy};
pub use self::removal::{DiskState, REMOVING_MAX, RemovedDisk};
pub use self::scheduler::{
    DiskLimits, DiskScheduler, LimitStatus, QueueTurns, Scheduler, SchedulerDetail, SetLimits, SetScheduler, Tier,
};
pub use self::steering::{AddPath, Controller, Origin, PathAction, PathWindow, SteerPaths, WaitsFor};
pub use self::weight::{DiskWeight, SetWeight};
use crate::address::{PathAddress, Transport};
use crate::policy_form;

/// `GET /v1/status`: the daemon and its disks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process identifier.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// Every disk, in the order of the configuration, those that share paths after the one that has them.
    pub disks: Vec<Disk>,
    /// Every discovery controller of every disk, those that were referred to after those that refer to them.
    #[serde(default)]
    pub discovery: Vec<DiscoveryController>,
}

/// One disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// The path of its vhost-user socket.
    pub socket: String,
    /// The NQN of its subsystem.
    pub subsystem: String,
    /// The disk whose paths it uses, and with them its policy, scheduler and hedging; `null` if it has paths of its own.
    pub shares_paths_of: Option<String>,
    /// Its namespace, `null` until a path has told.
    pub nsid: Option<u32>,
    /// Whether it is served, or on its way out.
    pub state: DiskState,
    /// Whether a front-end (QEMU) is connected to the socket; one that was hung up on counts until its requests in flight have ended.
    pub connected: bool,
    /// How much longer it takes no requests, because who served it before, or had its namespace, did not end in order; `null` if it takes them.
    pub held_ms: Option<u64>,
    /// The policies in use, written as in the configuration file.
    #[serde(with = "policy_form")]
    pub policy: ClassPolicies,
    /// Size, 0 until a path has told.
    pub capacity_bytes: u64,
    /// Logical block size, 0 until a path has told.
    pub block_size_bytes: u32,
    /// Whether the guest may only read.
    pub read_only: bool,
    /// The most virtqueues the guest may use.
    pub queues: u32,
    /// Whether front-ends can read of paths and policy, and set this, in the configuration space.
    pub mpath_window: bool,
    /// Its part of the service beside the other disks over its paths, 1 to 1000.
    pub weight: u32,
    /// Requests that wait for a path with room.
    pub queued: u64,
    /// Reads whose path failed them and that went to another one, since the daemon started. Those of all disks over the same
    /// paths count on the disk that has these.
    pub moved_reads: Moved,
    /// The same of writes. One whose fate on the lost path was unknown waited for the fence before.
    pub moved_writes: Moved,
    /// How slow reads are hedged. Those of all disks over the same paths count on the disk that has these.
    pub hedge: HedgeStatus,
    /// How many paths there are, be they those of another disk, and how many work for this one.
    pub paths: PathCounts,
}

/// The paths of a disk, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounts {
    /// All there are, however they came.
    pub total: u32,
    /// Those in [`PathState::Live`] that lead to the disk's namespace.
    pub live: u32,
}

/// `GET /v1/paths`: one path of one disk. One that several disks use is listed once, as that of the disk that has it, and
/// its counters count for all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// The disk's name.
    pub disk: String,
    /// Its number on the disk, from 0. That of a path that was removed may be another one's later.
    pub index: u16,
    /// Where it leads, as configured.
    pub address: PathAddress,
    /// What carries it.
    pub transport: Transport,
    /// Who wanted it.
    pub origin: Origin,
    /// Whether it works.
    pub state: PathState,
    /// Since when it is in this state: UTC, RFC 3339 with milliseconds.
    pub since: String,
    /// What a path that drains, or is removed, still waits for; empty otherwise.
    pub waits_for: Vec<WaitsFor>,
    /// What last went wrong on it, one line; `null` if nothing has since it became live.
    pub last_error: Option<String>,
    /// When that was the last time: UTC, RFC 3339 with milliseconds.
    pub last_error_at: Option<String>,
    /// Its namespace's ANA state, `null` until the controller has told.
    pub ana_state: Option<AnaState>,
    /// The other disks that use it, and what it is to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharers: Vec<PathSharer>,
    /// Whether it answered with a path error and is left alone for a while.
    pub resting: bool,
    /// Whether it owes answers and has been silent for too long: it is used only while there is no better one.
    pub suspect: bool,
    /// How often it became suspect, since the daemon started; each I/O thread counts for itself.
    pub suspicions: u64,
    /// Requests, almost all of them reads, that were recalled from it and sent elsewhere: it was suspect, or a read was overdue.
    pub recalled: u64,
    /// Reads of the daemon's own that measure it while it is not used; counted nowhere else.
    pub probes: u64,
    /// Reads sent there a second time while another path had them: hedges, counted nowhere else.
    pub hedges: u64,
    /// Those of them that answered first. The read counts on no path then.
    pub hedges_won: u64,
    /// Requests of a lost association whose fate is unknown and that wait for its fence.
    pub fenced: u64,
    /// The controller at its other end, `null` while not connected.
    pub cntlid: Option<u16>,
    /// What is known of that controller, `null` while not connected.
    pub controller: Option<Controller>,
    /// Its connections, if its transport is MPTCP and it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mptcp: Option<Mptcp>,
    /// What it may hold in each I/O thread.
    pub window: PathWindow,
    /// Its part of its disk's successful I/Os since the daemon started, 0 to 1. Filled in by the
    /// server, from the counters below.
    pub io_share: f64,
    /// The same of the last second.
    pub io_share_1s: f64,
    /// The same of the last minute.
    pub io_share_60s: f64,
    /// Reads.
    pub read: OpStats,
    /// Writes.
    pub write: OpStats,
    /// Flush, discard and write zeroes.
    pub other: OpStats,
    /// The impairments in force: at most one for every class, and one per class.
    pub injections: Vec<Injection>,
}

impl Path {
    /// Connections that are plain TCP, though MPTCP was wanted.
    #[must_use]
    pub fn fallbacks(&self) -> usize {
        self.mptcp.as_ref().map_or(0, Mptcp::fallbacks)
    }

    /// I/Os completed, of every class.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.sum(|class| class.ios)
    }

    /// I/Os completed in the last second, of every class.
    #[must_use]
    pub fn ios_1s(&self) -> u64 {
        self.sum(|class| class.ios_1s)
    }

    /// I/Os completed in the last minute, of every class.
    #[must_use]
    pub fn ios_60s(&self) -> u64 {
        self.sum(|class| class.ios_60s)
    }

    /// I/Os in flight, of every class.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.sum(|class| class.in_flight)
    }

    /// Errors, of every class.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.sum(|class| class.errors)
    }

    /// Its operations by class.
    #[must_use]
    pub fn classes(&self) -> [(&'static str, &OpStats); 3] {
        [("read", &self.read), ("write", &self.write), ("other", &self.other)]
    }

    fn sum(&self, of: impl Fn(&OpStats) -> u64) -> u64 {
        self.classes().iter().map(|(_, stats)| of(stats)).sum()
    }
}

/// A path, as a disk sees it that uses those of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSharer {
    /// The disk's name.
    pub disk: String,
    /// Its namespace's ANA state there, `null` until the controller has told.
    pub ana_state: Option<AnaState>,
    /// Why it cannot use the path, one line; `null` if it can, or if the path is not live.
    pub error: Option<String>,
}

/// The life of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathState {
    /// Has not worked yet, or not since it was enabled; attempts go on.
    Connecting,
    /// Works: the controller and every I/O queue are connected.
    Live,
    /// Is live and to be given no new I/O, by `drain` or on its way to `disabled`.
    Draining,
    /// Closed by the operator; no attempts until it is enabled.
    Disabled,
    /// Worked once and was lost; attempts to bring it back go on.
    Lost,
    /// Leads to another namespace than the disk's; tried again when the operator resets or enables it.
    Refused,
    /// Could not be connected for the disk's `ctrl-loss-tmo`; attempts have ended.
    GaveUp,
    /// Is to be removed: drained, closed, and gone when nothing sent on it can be executed any more.
    Removing,
}

impl PathState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Connecting,
        Self::Live,
        Self::Draining,
        Self::Disabled,
        Self::Lost,
        Self::Refused,
        Self::GaveUp,
        Self::Removing,
    ];
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Disabled => "disabled",
            Self::Lost => "lost",
            Self::Refused => "refused",
            Self::GaveUp => "gave-up",
            Self::Removing => "removing",
        })
    }
}

/// Asymmetric namespace access state of a path (NVMe Base specification, "ANA States").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnaState {
    /// To be preferred.
    Optimized,
    /// Works; used when no optimized path does.
    NonOptimized,
    /// Cannot be used now.
    Inaccessible,
    /// Cannot be used any more.
    PersistentLoss,
    /// Is moving between the others.
    Change,
}

impl AnaState {
    /// Every state.
    pub const ALL: [Self; 5] =
        [Self::Optimized, Self::NonOptimized, Self::Inaccessible, Self::PersistentLoss, Self::Change];
}

impl fmt::Display for AnaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        })
    }
}

/// Counters of one class of operations on one path, since the daemon started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OpStats {
    /// I/Os that the path completed successfully.
    pub ios: u64,
    /// Of these, the ones of the last second.
    pub ios_1s: u64,
    /// And of the last minute.
    pub ios_60s: u64,
    /// Payload of these.
    pub bytes: u64,
    /// I/Os bound to the path now, those held by an injection included.
    pub in_flight: u64,
    /// Attempts that ended otherwise, whether or not another one then saved the I/O. Recalled ones are
    /// counted apart, by path.
    pub errors: u64,
    /// Of these, the attempts that were followed by another one.
    pub retries: u64,
    /// Latency of the successful ones from binding to completion: an injection counts, waiting for
    /// a path does not. `null` before the first sample.
    pub latency: Option<Latency>,
    /// What the policy of these operations thinks of the path.
    #[serde(default)]
    pub estimate: PathEstimate,
}

/// Requests that moved from a path that failed them to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moved {
    /// How often that happened.
    pub ios: u64,
    /// From when the failing path was given the request until another one was; `null` before the first.
    pub time: Option<Latency>,
}

/// A latency distribution in whole microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// The longest.
    pub max_us: u64,
    /// All of them together. Each is up to 1 % longer than it counts here.
    #[serde(default)]
    pub sum_us: u64,
}
