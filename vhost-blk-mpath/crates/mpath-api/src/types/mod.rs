//! Decides: a field of an API request is valid.
//!
//! The JSON of the API.
//!
//! Keys and words with a fixed set of values (policies, states, transports) are kebab-case, as in the configuration file. Numbers
//! with a unit have it as the last word of their key: `-us` microseconds, `-ms` milliseconds, `-s` seconds, `-bytes`. Requests
//! refuse unknown keys. Answers may gain keys in later versions.

mod authentication;
mod configuration;
mod connection;
mod convert;
mod discovery;
mod error;
mod event;
mod explanation;
mod fence;
mod guest_io;
mod health;
mod hedge;
mod history;
mod impairment;
mod injection;
mod last_change;
mod latency;
mod parameter;
mod paths;
mod policy;
mod removal;
mod scheduler;
mod slow;
mod upgrade;

use std::collections::BTreeMap;
use std::fmt;

use mpath_config::address::Transport;
use mpath_config::{LiveSetting, MinPaths, PathAddress};
pub use mpath_config::{SetLimits, SetPolicy, SetScheduler, SetSettings};
pub use mpath_core::{
    AnaState, Direction, Distribution, FlushTarget, OpClass, Opinion, PathId, Stages, WaitCause, Waiting,
};
use mpath_core::{ClassPolicies, SchedulerSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::authentication::{AuthenticatedSides, PathAuthentication};
pub use self::configuration::{Configuration, FailedChange, Reload};
pub use self::connection::{Connection, Subflow, SubflowState};
pub use self::discovery::{DiscoveryController, DiscoveryState};
pub use self::error::{ErrorBody, ErrorCode, ErrorInfo};
pub use self::event::{Caller, Event, EventKind, EventPath, Events, Severity};
pub use self::explanation::{Decision, ExplainedPath, Explanation, NextRequest, PathReason, ThreadExplanation};
pub use self::fence::{ClearedFence, ClearedFences, DiskFences, FenceLift, InheritedFence, PathFence};
pub use self::guest_io::{GuestFigures, GuestIo};
pub use self::health::{Condition, ConditionReason, DiskHealth, GuestErrorCount, GuestErrorReason, GuestOperation};
pub use self::hedge::HedgeStatus;
pub use self::history::{ClassFigures, HistoryMinute, MinuteFigures, PathMinute};
pub use self::impairment::{
    InjectedLatency, InjectedMilliseconds, InjectedRate, InjectedShare, InjectedStatus, Injection, InjectionError,
    InjectionInForce,
};
pub use self::injection::{InjectedPath, PathSelector, PathSelectorError, SetInjection};
pub use self::last_change::{ChangeSource, LastChange};
pub use self::latency::{Latency, TimeHistogram};
pub use self::parameter::Parameter;
pub use self::paths::{ActOnPaths, AddPath, Controller, Origin, PathAction, PathWindow, WaitsFor};
pub use self::policy::{PathEstimate, PathView, Policy, PolicyDetail, PolicyInForce};
pub use self::removal::{DiskState, REMOVING_MAX, RemovedDisk};
pub use self::scheduler::{LimitStatus, QueueTurns, Scheduler, SchedulerDetail, Tier};
pub use self::slow::SlowRequest;
pub use self::upgrade::Upgrade;

/// `GET /v1/status`: the daemon and its disks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// The daemon's version, with the commit if it is known.
    pub version: String,
    /// The daemon's process identifier.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// Every disk, in the order of the configuration. A disk that shares paths follows the disk that has them.
    pub disks: Vec<Disk>,
    /// Every discovery controller of every disk. A controller follows the one that refers to it.
    #[serde(default)]
    pub discovery: Vec<DiscoveryController>,
}

/// One disk. A setting has the key of the configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Disk {
    /// The disk's name.
    pub name: String,
    /// The path of its vhost-user socket.
    pub socket_path: String,
    /// The NQN of its subsystem.
    pub subsystem: String,
    /// The disk that has the paths, and with them the policy, scheduler and hedging of this disk. `null` if this disk has paths of
    /// its own.
    pub shares_paths_of: Option<String>,
    /// The namespace identifier. `null` until a path has been connected.
    pub namespace: Option<u32>,
    /// Whether the disk is served or being removed.
    pub state: DiskState,
    /// The condition of the disk, and the errors that its guest got.
    #[serde(flatten)]
    pub health: DiskHealth,
    /// Whether a front-end (QEMU) is connected to the socket. A front-end that the daemon has hung up on counts until its requests in
    /// flight have ended.
    pub connected: bool,
    /// The process of the connected front-end. `null` without one, and if it is in a PID namespace that the daemon cannot see.
    #[serde(default)]
    pub front_end: Option<FrontEndProcess>,
    /// How much longer the disk takes no requests, because an earlier daemon or a removed disk did not end in order. `null` if the disk
    /// takes requests.
    pub held_ms: Option<u64>,
    /// The policies in force, in the form of the configuration file.
    pub policy: ClassPolicies,
    /// The scheduler in force, in the form of the configuration file.
    #[serde(default)]
    pub scheduler: Option<SchedulerSpec>,
    /// The disk's limits, and how much of them is left.
    #[serde(default)]
    pub limits: Option<LimitStatus>,
    /// Size. 0 until a path has been connected.
    pub capacity_bytes: u64,
    /// Logical block size. 0 until a path has been connected.
    pub block_size_bytes: u32,
    /// The growth of the namespace that some paths report and others do not. `null` if all paths agree.
    #[serde(default)]
    pub growth: Option<Growth>,
    /// Whether the guest may only read.
    pub read_only: bool,
    /// The most virtqueues that the guest may use.
    pub queues: u32,
    /// Whether front-ends see paths and policy, and can set the policy, in the vendor window.
    pub mpath_window: bool,
    /// Share of the service among the disks over the same paths, 1 to 1000.
    pub weight: u32,
    /// Requests that wait for a path with room.
    pub queued: u64,
    /// Reads that failed over to another path since the daemon started. The disk that has the paths counts those of every disk over
    /// them.
    pub moved_reads: MovedRequests,
    /// Writes that failed over to another path since the daemon started. A write in doubt has waited for the fence first.
    pub moved_writes: MovedRequests,
    /// The first request that moved at each failure of a path, in each I/O thread: how long I/O stood still. A failure is a lost or a
    /// suspect path, or a path error. Writes that wait for a fence are left out.
    pub first_moved: MovedRequests,
    /// The waits of the disk's requests for fences of lost paths, once they are over. Time in which the disk was held does not count.
    pub fence_waits: FenceWaits,
    /// The I/O threads that serve the disk, and what this host gives them. They serve other disks, too. Empty for a disk that shares
    /// paths, and before the first path is live.
    #[serde(default)]
    pub io_threads: Vec<IoThread>,
    /// What the guest gets.
    #[serde(flatten)]
    pub guest: GuestFigures,
    /// How slow reads are hedged. The disk that has the paths counts the reads of every disk over them.
    #[serde(flatten)]
    pub hedge: HedgeStatus,
    /// The paths that the disk is to have.
    #[serde(default)]
    pub min_paths: MinPaths,
    /// The last change of each setting that was changed since the daemon started, by the setting's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed: BTreeMap<String, LastChange>,
    /// Numbers of paths, which may be another disk's.
    pub path_counts: PathCounts,
}

impl Disk {
    /// The last change of a setting. `None` if it was not changed since the daemon started.
    #[must_use]
    pub fn last_change(&self, setting: LiveSetting) -> Option<&LastChange> {
        self.changed.get(setting.name())
    }
}

/// A growth of a namespace that not all paths report. The disk grows as far as all paths agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Growth {
    /// The largest size that a path reports.
    pub capacity_bytes: u64,
    /// The paths that report less.
    pub lagging: Vec<LaggingPath>,
}

/// A path that reports a smaller namespace than another path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct LaggingPath {
    /// The path's number.
    pub index: u16,
    /// The address.
    #[schema(value_type = String)]
    pub address: PathAddress,
    /// The size that it reports.
    pub capacity_bytes: u64,
}

/// The process that has connected to a vhost-user socket. It may have passed the connection on since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FrontEndProcess {
    /// The process identifier, as the daemon sees it.
    pub pid: u32,
    /// The program's name, up to 15 bytes of it. `null` if the daemon cannot see the process.
    pub program: Option<String>,
}

impl fmt::Display for FrontEndProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        self.program.iter().try_for_each(|program| write!(f, " ({program})"))
    }
}

/// An I/O thread since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct IoThread {
    /// The thread's number in the daemon, from 0.
    pub thread: u16,
    /// How long the thread has polled (`poll-us`).
    #[serde(default)]
    pub polled_ms: u64,
    /// The time that the thread ran on a processor. `null` if the kernel does not count it.
    pub ran_ms: Option<u64>,
    /// The time that the thread waited for a processor, as the kernel counts it: the run-queue wait.
    pub processor_wait_ms: Option<u64>,
    /// How often this host did not run the thread for 5 ms or more: the thread was stopped, or waited for a processor.
    pub stalls: u64,
    /// The sum of these times.
    pub stalled_ms: u64,
    /// How late the thread was woken by its timers, for `/metrics`. The JSON does not have it.
    #[serde(skip)]
    pub lateness: TimeHistogram,
}

/// The paths of a disk, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PathCounts {
    /// All paths: configured, added and discovered.
    pub total: u32,
    /// Those of `total` that are neither drained, nor disabled, nor being removed.
    pub expected: u32,
    /// Those of `expected` that requests of the disk can go to now: live, accessible by the ANA state, neither suspect nor resting.
    pub usable: u32,
    /// Paths that the disk has fewer than it is to have (`min-paths`): usable ones, or of all those that it has had.
    #[serde(default)]
    pub missing: u32,
}

/// `GET /v1/paths`: one path of one disk.
///
/// A path of several disks is listed once, under the disk that has it. Its counters count for all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Path {
    /// The disk's name.
    pub disk: String,
    /// The path's number on the disk, from 0. A later path may get the number of a removed one.
    pub index: u16,
    /// The address, as configured.
    pub address: PathAddress,
    /// The transport of the address.
    pub transport: Transport,
    /// The cipher suite of the path's connections, `TLS_AES_128_GCM_SHA256` or `TLS_AES_256_GCM_SHA384`. `null` in clear text, and
    /// if the path is not live.
    #[serde(default)]
    pub tls_suite: Option<String>,
    /// How the path's queues were authenticated. `null` without authentication, and if the path is not live.
    #[serde(default)]
    pub authentication: Option<PathAuthentication>,
    /// Where the path comes from.
    pub origin: Origin,
    /// The path's state.
    pub state: PathState,
    /// When the path entered this state: UTC, RFC 3339 with milliseconds.
    pub since: String,
    /// What a draining or removed path waits for. Empty in other states.
    pub waits_for: Vec<WaitsFor>,
    /// Why requests cannot go to the path now, one line. `null` if they can.
    pub unusable: Option<String>,
    /// How often the path was lost after it was live, since it was added.
    pub losses: u64,
    /// Losses in the last hour, in steps of a minute.
    pub losses_1h: u64,
    /// How often it became live again after a loss.
    pub reconnects: u64,
    /// The last error, one line. It stays after the path is live again. `null` if there was none.
    pub last_error: Option<String>,
    /// The time of the last error: UTC, RFC 3339 with milliseconds.
    pub last_error_at: Option<String>,
    /// ANA state of the namespace on this path. `null` until the controller has reported it.
    #[serde(default)]
    pub ana_state: Option<AnaState>,
    /// The other disks that use the path, and how they see it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharers: Vec<PathSharer>,
    /// Whether the path gets no requests for a while, after it answered with a path error.
    pub resting: bool,
    /// Whether the path owes answers and has been silent for too long. It gets requests only if there is no better path.
    pub suspect: bool,
    /// How often the path became suspect since the daemon started. Each I/O thread counts by itself.
    pub suspicions: u64,
    /// Requests, almost all of them reads, recalled from the path and sent elsewhere: the path was suspect, or a read was overdue.
    pub recalled: u64,
    /// Probes sent on the path. No other counter has them.
    pub probes: u64,
    /// Hedges sent on the path. No other counter has them.
    pub hedges: u64,
    /// Hedges that answered first. Their reads count on no path.
    pub hedges_won: u64,
    /// Requests in doubt on a lost association, which wait for its fence.
    pub fenced: u64,
    /// The time until the last fence of the path lifts at the latest. `null` without a fence, and while its connections drain.
    #[serde(default)]
    pub fence_left_ms: Option<u64>,
    /// Whether the controller may cache completed writes that no flush has covered.
    #[serde(default)]
    pub unflushed: bool,
    /// Controller identifier (CNTLID). `null` while not connected.
    pub cntlid: Option<u16>,
    /// The controller. `null` while not connected.
    pub controller: Option<Controller>,
    /// The connections of a live path, in the order of their queues. Empty until the kernel has been asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<Connection>,
    /// Why the kernel did not report them, one line. `connections` are then those that it reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_error: Option<String>,
    /// The window of each I/O thread.
    pub window: PathWindow,
    /// Share of the disk's successful I/Os since the daemon started, 0 to 1. The server computes it from the counters below.
    pub io_share: f64,
    /// Share of the disk's successful I/Os in the last second, 0 to 1.
    pub io_share_1s: f64,
    /// Share of the disk's successful I/Os in the last minute, 0 to 1.
    pub io_share_60s: f64,
    /// Reads.
    pub read: OpStats,
    /// Writes.
    pub write: OpStats,
    /// Flush, discard and write zeroes.
    pub other: OpStats,
    /// The injections in force: at most one for every class, and one per class.
    pub injections: Vec<InjectionInForce>,
}

impl Path {
    /// Connections that are plain TCP although the address says MPTCP.
    #[must_use]
    pub fn fallbacks(&self) -> usize {
        self.connections.iter().filter(|connection| connection.fallback).count()
    }

    /// Established subflows of all connections. `None` if they are not known.
    #[must_use]
    pub fn established(&self) -> Option<usize> {
        let established = |(_, subflow): &(&Connection, &Subflow)| subflow.state == SubflowState::Established;
        self.knows_connections().then(|| self.subflows().filter(established).count())
    }

    /// Every subflow with its connection.
    pub fn subflows(&self) -> impl Iterator<Item = (&Connection, &Subflow)> {
        self.connections
            .iter()
            .flat_map(|connection| connection.subflows.iter().map(move |subflow| (connection, subflow)))
    }

    /// Whether the kernel reports the connections of the path.
    #[must_use]
    pub fn knows_connections(&self) -> bool {
        !self.connections.is_empty() && self.connections_error.is_none()
    }

    /// I/Os completed, all classes.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.sum(|class| class.ios)
    }

    /// I/Os completed in the last second, all classes.
    #[must_use]
    pub fn ios_1s(&self) -> u64 {
        self.sum(|class| class.ios_1s)
    }

    /// I/Os completed in the last minute, all classes.
    #[must_use]
    pub fn ios_60s(&self) -> u64 {
        self.sum(|class| class.ios_60s)
    }

    /// I/Os in flight, all classes.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.sum(|class| class.in_flight)
    }

    /// Errors, all classes.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.sum(|class| class.errors)
    }

    /// Counters by class.
    #[must_use]
    pub fn classes(&self) -> [(&'static str, &OpStats); 3] {
        [("read", &self.read), ("write", &self.write), ("other", &self.other)]
    }

    fn sum(&self, count: impl Fn(&OpStats) -> u64) -> u64 {
        self.classes().iter().map(|(_, stats)| count(stats)).sum()
    }
}

/// A path as seen by a disk that shares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PathSharer {
    /// The disk's name.
    pub disk: String,
    /// ANA state of this disk's namespace on the path. `null` until the controller has reported it.
    #[serde(default)]
    pub ana_state: Option<AnaState>,
    /// Why requests of this disk cannot go to the path now, one line. `null` if they can.
    pub unusable: Option<String>,
}

/// State of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathState {
    /// Being connected, and not yet live since it was added or enabled. Attempts go on.
    Connecting,
    /// The controller and every I/O queue are connected.
    Live,
    /// Live, but gets no new I/O: drained, or on its way to `disabled`.
    Draining,
    /// Disconnected by the operator. No attempts until the operator enables it.
    Disabled,
    /// Disconnected after it was live. Attempts to reconnect go on.
    Lost,
    /// Leads to another namespace than the disk's. Tried again when the operator resets or enables it.
    Refused,
    /// Disconnected for the disk's `ctrl-loss-tmo`. Attempts have ended.
    GaveUp,
    /// Being removed: drained, closed, and gone once nothing sent on it can be executed any more.
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

/// Counters of one class of operations on one path, since the daemon started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct OpStats {
    /// I/Os that the path completed successfully.
    pub ios: u64,
    /// I/Os that the path completed successfully in the last second.
    pub ios_1s: u64,
    /// I/Os that the path completed successfully in the last minute.
    pub ios_60s: u64,
    /// Payload of `ios`.
    pub bytes: u64,
    /// I/Os bound to the path, including those that an injection delays.
    pub in_flight: u64,
    /// Attempts that failed, even if another attempt then succeeded. Recalled attempts are in [`Path::recalled`].
    pub errors: u64,
    /// Failed attempts that were followed by another one.
    pub retries: u64,
    /// Latency of `ios` from binding to completion. It includes injected delay, and not the wait for a path. `null` before the first
    /// I/O.
    pub latency: Option<Latency>,
    /// Latency of the I/Os of the last 0.9 to 1 s. It is rounded up, by at most 6 % or 1 µs. `null` without an I/O.
    #[serde(default)]
    pub latency_1s: Option<Latency>,
    /// Latency of the I/Os of the last 50 to 60 s.
    #[serde(default)]
    pub latency_60s: Option<Latency>,
    /// The latency since the daemon started for `/metrics`. The JSON does not have it.
    #[serde(skip)]
    pub histogram: TimeHistogram,
    /// The estimate of the path by the policy of these operations.
    #[serde(default)]
    pub estimate: PathEstimate,
}

/// Waits for fences since the daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FenceWaits {
    /// Requests that have waited.
    pub ios: u64,
    /// The sum of their waits.
    pub total_ms: u64,
}

/// Requests that failed over from one path to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MovedRequests {
    /// Failovers.
    pub ios: u64,
    /// Time from binding to the failing path until binding to the next one. `null` before the first failover.
    pub time: Option<Latency>,
    /// The times as a histogram for `/metrics`. The JSON does not have it.
    #[serde(skip)]
    pub histogram: TimeHistogram,
}
