//! Every metric there is. docs/operating/metrics.md has the same table.

use std::fmt::Display;
use std::time::Duration;

use super::text::{Metric, counter, gauge, info, number, states, times};
use super::ways::Way;
use crate::types::{
    AnaState, DiscoveryController, DiscoveryState, Disk, Moved, OpStats, Path, PathState, QueueTurns, SchedulerDetail,
    Status, Tier,
};

/// Which of `all` it is; none of them if it is not known.
fn which<S: Copy + PartialEq + Display>(all: &[S], now: Option<S>) -> Vec<(String, bool)> {
    all.iter().map(|&state| (state.to_string(), Some(state) == now)).collect()
}

pub(super) const DAEMON: &[Metric<Status>] = &[
    info("build_info", "The daemon", |daemon| vec![("version", daemon.version.clone())]),
    gauge("uptime_seconds", "Time since the daemon started", |daemon| Some(number(daemon.uptime_s))),
];

/// By `disk`.
pub(super) const DISKS: &[Metric<Disk>] = &[
    info("disk_info", "The disk, and the one that has its paths: itself, or another one", |disk| {
        let paths_of = disk.shares_paths_of.as_ref().unwrap_or(&disk.name);
        let (socket, subsystem) = (disk.socket.clone(), disk.subsystem.clone());
        vec![("socket", socket), ("subsystem", subsystem), ("paths_of", paths_of.clone())]
    }),
    info("disk_policy_info", "The policies in force: that of reads, and that of all other requests", |disk| {
        vec![("read", disk.policy.read.kind().to_string()), ("write", disk.policy.write.kind().to_string())]
    }),
    gauge("disk_connected", "Whether a front-end is connected", |disk| Some(number(disk.connected))),
    gauge(
        "disk_held_seconds",
        "How much longer requests wait for the fence that an earlier daemon or a removed disk left",
        |disk| Some(Duration::from_millis(disk.held_ms.unwrap_or(0)).as_secs_f64()),
    ),
    gauge("disk_capacity_bytes", "Size; 0 until a path has told", |disk| Some(number(disk.capacity_bytes))),
    gauge("disk_queued_requests", "Requests that wait for a path with room", |disk| Some(number(disk.queued))),
    gauge("disk_weight", "The disk's part beside the others over its paths", |disk| Some(number(disk.weight))),
    gauge("disk_paths", "Paths there are, be they another disk's", |disk| Some(number(disk.paths.total))),
    gauge("disk_paths_live", "Paths that are live and lead to the disk's namespace", |disk| {
        Some(number(disk.paths.live))
    }),
];

/// By `disk`, of those that have paths, for all that use these.
pub(super) const HEDGING: &[Metric<Disk>] =
    &[counter("disk_hedgeable_reads_total", "Reads submitted while slow ones were hedged", |disk| {
        number(disk.hedge.reads)
    })];

/// By `disk`, of those that have paths, for all that use these, and `class`.
pub(super) const MOVED: &[Metric<Moved>] = &[times(
    "disk_moved_seconds",
    "How long requests that a path had failed took to be given to another one",
    |moved| (moved.ios, moved.time),
)];

/// By `disk`.
pub(super) const SCHEDULING: &[Metric<SchedulerDetail>] = &[
    info("disk_scheduler_info", "The scheduler in force", |of| vec![("scheduler", of.scheduler.kind().to_string())]),
    states("disk_tier", "Where the next request of the disk belongs among the disks over its paths", "tier", |of| {
        which(&Tier::ALL, of.tier)
    }),
    gauge("disk_limit_iops", "Limit of requests per second; none: off", |of| {
        of.limits.limits.limits().iops.map(|limit| number(limit.get()))
    }),
    gauge("disk_limit_bytes_per_second", "Limit of bytes per second; none: off", |of| {
        of.limits.limits.limits().bytes_per_s.map(|limit| number(limit.get()))
    }),
    gauge("disk_limit_burst_seconds", "What may be saved up: what the limits allow in this time", |of| {
        Some(of.limits.limits.burst.duration().as_secs_f64())
    }),
    gauge("disk_limit_balance_ios", "Requests that may go at once; below 0: too many went", |of| {
        of.limits.balance_ios.map(number)
    }),
    gauge("disk_limit_balance_bytes", "Bytes that may go at once; below 0: too many went", |of| {
        of.limits.balance_bytes.map(number)
    }),
    counter("disk_throttled_seconds_total", "Time in which limits kept requests waiting", |of| {
        Duration::from_millis(of.limits.throttled_ms).as_secs_f64()
    }),
];

/// By `disk` and `queue`.
pub(super) const VIRTQUEUES: &[Metric<QueueTurns>] = &[
    states("virtqueue_tier", "Where the next request of the virtqueue belongs", "tier", |queue| {
        which(&Tier::ALL, Some(queue.tier))
    }),
    gauge(
        "virtqueue_credit_requests",
        "Requests of 4 KiB that the virtqueue may send before it is bulk; none: no such notion",
        |queue| queue.credit.map(number),
    ),
    gauge("virtqueue_queued_requests", "Requests that wait for their turn and for a path with room", |queue| {
        Some(number(queue.queued))
    }),
    gauge("virtqueue_in_flight_requests", "Requests that were sent and are not finished", |queue| {
        Some(number(queue.in_flight))
    }),
    counter("virtqueue_served_requests_total", "Requests sent to paths, each attempt for itself", |queue| {
        number(queue.served)
    }),
    counter("virtqueue_served_bytes_total", "Bytes of requests sent to paths, each attempt for itself", |queue| {
        number(queue.served_bytes)
    }),
    times(
        "virtqueue_waited_seconds",
        "How long requests had waited for their turn and for a path with room",
        |queue| (queue.served, queue.waited),
    ),
];

/// By `disk` and `path`.
pub(super) const PATHS: &[Metric<Path>] = &[
    info("path_info", "The path, its index now, and who wanted it", |path| {
        let (transport, origin) = (path.transport.to_string(), path.origin.to_string());
        vec![("index", path.index.to_string()), ("transport", transport), ("origin", origin)]
    }),
    states("path_state", "State of the path", "state", |path| which(&PathState::ALL, Some(path.state))),
    states("path_ana_state", "ANA state of the namespace on the path; all 0: not known", "state", |path| {
        which(&AnaState::ALL, path.ana_state)
    }),
    gauge("path_suspect", "Whether the path owes answers and has been silent for too long", |path| {
        Some(number(path.suspect))
    }),
    gauge("path_resting", "Whether the path answered with a path error and is left alone for a while", |path| {
        Some(number(path.resting))
    }),
    gauge("path_fenced_requests", "Requests of a lost association of the path that wait for its fence", |path| {
        Some(number(path.fenced))
    }),
    gauge(
        "path_fallback_connections",
        "Connections that are plain TCP though MPTCP was wanted; none: not known",
        |path| path.mptcp.as_ref().filter(|mptcp| mptcp.error.is_none()).map(|mptcp| number(mptcp.fallbacks() as u64)),
    ),
    gauge("path_subflows", "Established subflows of all connections of the path; none: not known", |path| {
        path.mptcp.as_ref().filter(|mptcp| mptcp.error.is_none()).map(|mptcp| number(mptcp.established() as u64))
    }),
    gauge("path_injections", "Injections in force on the path", |path| Some(number(path.injections.len() as u64))),
    counter("path_suspicions_total", "How often the path became suspect, in each I/O thread", |path| {
        number(path.suspicions)
    }),
    counter("path_recalled_total", "Requests recalled from the path: it was suspect, or a read was overdue", |path| {
        number(path.recalled)
    }),
    counter("path_probes_total", "Reads of the daemon's own that measured the path while it was not used", |path| {
        number(path.probes)
    }),
    counter("path_hedges_total", "Reads sent on the path while another one had them", |path| number(path.hedges)),
    counter("path_hedges_won_total", "Reads sent on the path while another one had them, and answered first", |path| {
        number(path.hedges_won)
    }),
];

/// By `disk`, `path`, `local` and `remote` address: of all subflows that take this way.
pub(super) const WAYS: &[Metric<Way>] = &[
    gauge("subflow_rtt_seconds", "Smoothed round-trip time, the longest of them", |way| {
        Some(Duration::from_micros(way.rtt_us).as_secs_f64())
    }),
    gauge("subflow_cwnd_bytes", "Congestion windows, together", |way| Some(number(way.cwnd_bytes))),
    // These begin anew with each association, and when a subflow ends.
    gauge("subflow_sent_bytes", "Bytes sent, those sent again included", |way| Some(number(way.bytes_sent))),
    gauge("subflow_received_bytes", "Bytes received", |way| Some(number(way.bytes_received))),
    gauge("subflow_retransmitted_bytes", "Bytes sent again", |way| Some(number(way.bytes_retransmitted))),
    gauge("subflow_backup", "Whether the way is used only if no other one works; none: not known", |way| {
        way.backup.map(number)
    }),
];

/// By `disk`, `path` and `class`.
pub(super) const CLASSES: &[Metric<OpStats>] = &[
    counter("path_ios_total", "I/Os completed successfully", |of| number(of.ios)),
    counter("path_bytes_total", "Bytes of I/Os completed successfully", |of| number(of.bytes)),
    counter("path_errors_total", "Attempts that ended otherwise than in success", |of| number(of.errors)),
    counter(
        "path_retries_total",
        "Attempts that ended otherwise than in success and were followed by another one",
        |of| number(of.retries),
    ),
    gauge("path_in_flight_requests", "Requests bound to the path now", |of| Some(number(of.in_flight))),
    gauge("path_window_bytes", "What the policy lets the path have in flight; none: what is configured", |of| {
        of.estimate.window_bytes.map(number)
    }),
    times("path_latency_seconds", "Latency of successful I/Os from binding to completion", |of| (of.ios, of.latency)),
];

/// By `disk`, `controller` and `subnqn`.
pub(super) const DISCOVERY: &[Metric<DiscoveryController>] =
    &[states("discovery_state", "Whether the discovery controller answers", "state", |of| {
        which(&DiscoveryState::ALL, Some(of.state))
    })];
