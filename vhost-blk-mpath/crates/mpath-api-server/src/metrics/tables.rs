//! Decides: a metric has this name.
//!
//! The metrics. docs/operating/metrics.md has the same table.

use std::fmt::Display;

use monotonic::Duration;
use mpath_api::types::{
    AnaState, Condition, DiscoveryController, DiscoveryState, Disk, GuestErrorCount, GuestIo, IoThread, MovedRequests,
    OpStats, Path, PathState, QueueTurns, SchedulerDetail, Status, Tier,
};
use mpath_config::address::Transport;

use super::metric::{Metric, Number, counter, gauge, info, states, times};
use super::subflow_groups::SubflowGroup;

/// One flag for each of `all`. None is set if the state is unknown.
fn one_of<S: Copy + PartialEq + Display>(all: &[S], now: Option<S>) -> Vec<(String, bool)> {
    all.iter().map(|&state| (state.to_string(), Some(state) == now)).collect()
}

pub(super) const DAEMON: &[Metric<Status>] = &[
    info("build_info", "The daemon", |daemon| vec![("version", daemon.version.clone())]),
    gauge("uptime_seconds", "Time since the daemon started", |daemon| Some(daemon.uptime_s.into())),
];

/// By `disk`.
pub(super) const DISKS: &[Metric<Disk>] = &[
    info("disk_info", "The disk, and the disk that has its paths, which may be itself", |disk| {
        let paths_of = disk.shares_paths_of.as_ref().unwrap_or(&disk.name);
        let (socket_path, subsystem) = (disk.socket_path.clone(), disk.subsystem.clone());
        vec![("socket_path", socket_path), ("subsystem", subsystem), ("paths_of", paths_of.clone())]
    }),
    info("disk_policy_info", "The policies in force: of reads, and of all other requests", |disk| {
        vec![("read", disk.policy.read.kind().to_string()), ("write", disk.policy.write.kind().to_string())]
    }),
    gauge("disk_connected", "Whether a front-end is connected", |disk| Some(disk.connected.into())),
    gauge(
        "disk_held_seconds",
        "How much longer the disk is held for the fence of an earlier daemon or of a removed disk",
        |disk| Some(Duration::from_millis(disk.held_ms.unwrap_or(0)).into()),
    ),
    gauge("disk_capacity_bytes", "Size; 0 until a path has been connected", |disk| Some(disk.capacity_bytes.into())),
    gauge("disk_queued_requests", "Requests that wait for a path with room", |disk| Some(disk.queued.into())),
    gauge("disk_weight", "Share among the disks over the same paths", |disk| Some(disk.weight.into())),
    gauge("disk_paths", "Paths of the disk, which may be another disk's", |disk| Some(disk.path_counts.total.into())),
    gauge("disk_paths_expected", "Paths that are neither drained, nor disabled, nor being removed", |disk| {
        Some(disk.path_counts.expected.into())
    }),
    gauge("disk_paths_usable", "Expected paths that requests of the disk can go to now", |disk| {
        Some(disk.path_counts.usable.into())
    }),
    states("disk_condition", "The worst condition that applies to the disk", "condition", |disk| {
        one_of(&Condition::ALL, Some(disk.health.condition))
    }),
    gauge("disk_outstanding_requests", "Requests of the guest without an answer", |disk| {
        Some(disk.health.outstanding.into())
    }),
    gauge("disk_paths_missing", "Paths that the disk has fewer than it is to have (`min-paths`)", |disk| {
        Some(disk.path_counts.missing.into())
    }),
    gauge(
        "disk_oldest_request_seconds",
        "Age of the oldest request without an answer, waits for limits left out; no sample: none is open",
        |disk| disk.guest.oldest_request_ms.map(|ms| Duration::from_millis(ms).into()),
    ),
    counter("disk_fence_waits_total", "Requests that have waited for a fence", |disk| disk.fence_waits.ios.into()),
    counter(
        "disk_fence_wait_seconds_total",
        "Time that requests have waited for fences: the sum over the requests",
        |disk| Duration::from_millis(disk.fence_waits.total_ms).into(),
    ),
];

/// By `disk` and `operation`.
pub(super) const GUEST_IO: &[Metric<GuestIo>] = &[
    times("disk_latency_seconds", "Time of the guest's requests from the virtqueue to the answer", |of| of.histogram),
    counter("disk_bytes_total", "Payload of the guest's requests that succeeded", |of| of.bytes.into()),
];

/// By `disk` and `stage`.
pub(super) const STAGES: &[Metric<Duration>] = &[counter(
    "disk_long_request_seconds_total",
    "Time of the guest's requests that took 10 ms or more, by stage: the sum over the requests",
    |time| (*time).into(),
)];

/// By `disk`, `operation` and `reason`.
pub(super) const GUEST_ERRORS: &[Metric<GuestErrorCount>] =
    &[counter("disk_guest_errors_total", "Errors that the guest got", |errors| errors.count.into())];

/// By `disk`, for disks with paths of their own. They count for every disk over the paths.
pub(super) const WITH_PATHS: &[Metric<Disk>] = &[
    counter("disk_hedgeable_reads_total", "Reads submitted while hedging was on", |disk| {
        disk.hedge.hedgeable_reads.into()
    }),
    times(
        "disk_first_failover_seconds",
        "Time until the first request moved to another path, for each failure of a path in each I/O thread",
        |disk| disk.first_moved.histogram,
    ),
];

/// By `thread`, for threads that serve a disk.
pub(super) const IO_THREADS: &[Metric<IoThread>] = &[
    counter(
        "io_thread_running_seconds_total",
        "Time that the I/O thread ran; 0 if the kernel does not count it",
        |of| Duration::from_millis(of.ran_ms.unwrap_or(0)).into(),
    ),
    counter(
        "io_thread_processor_wait_seconds_total",
        "Time that the I/O thread waited for a processor (run-queue wait); 0 if the kernel does not count it",
        |of| Duration::from_millis(of.processor_wait_ms.unwrap_or(0)).into(),
    ),
    counter("io_thread_polled_seconds_total", "Time that the I/O thread has polled", |of| {
        Duration::from_millis(of.polled_ms).into()
    }),
    counter("io_thread_stalls_total", "Times of 5 ms and more in which the host did not run the I/O thread", |of| {
        of.stalls.into()
    }),
    counter("io_thread_stalled_seconds_total", "Sum of these times", |of| Duration::from_millis(of.stalled_ms).into()),
    times("io_thread_lateness_seconds", "How late the I/O thread was woken by its timers", |of| of.lateness),
];

/// By `disk` and `class`, for disks with paths of their own. They count for every disk over the paths.
pub(super) const FAILOVERS: &[Metric<MovedRequests>] = &[times(
    "disk_failover_seconds",
    "Time from the choice of a path that failed to the choice of the next one",
    |moved| moved.histogram,
)];

/// By `disk`.
pub(super) const SCHEDULING: &[Metric<SchedulerDetail>] = &[
    info("disk_scheduler_info", "The scheduler in force", |of| vec![("scheduler", of.scheduler.kind().to_string())]),
    states("disk_tier", "Tier of the next request among the disks over the same paths", "tier", |of| {
        one_of(&Tier::ALL, of.tier)
    }),
    gauge("disk_limit_iops", "Limit in requests per second; no sample: off", |of| {
        of.limits.limits.limits().iops.map(|limit| limit.get().into())
    }),
    gauge("disk_limit_bandwidth_bytes_per_second", "Limit in bytes per second; no sample: off", |of| {
        of.limits.limits.limits().bytes_per_s.map(|limit| limit.get().into())
    }),
    gauge("disk_limit_burst_seconds", "Burst that may be saved up: what the limits allow in this time", |of| {
        Some(of.limits.limits.burst.duration().into())
    }),
    gauge("disk_limit_balance_requests", "Requests that may be sent at once; below 0: sent in excess", |of| {
        of.limits.balance_ios.map(Number::from)
    }),
    gauge("disk_limit_balance_bytes", "Bytes that may be sent at once; below 0: sent in excess", |of| {
        of.limits.balance_bytes.map(Number::from)
    }),
    counter("disk_throttled_seconds_total", "Time in which limits kept requests waiting", |of| {
        Duration::from_millis(of.limits.throttled_ms).into()
    }),
];

/// By `disk` and `queue`.
pub(super) const VIRTQUEUES: &[Metric<QueueTurns>] = &[
    states("virtqueue_tier", "Tier of the next request of the virtqueue", "tier", |queue| {
        one_of(&Tier::ALL, Some(queue.tier))
    }),
    gauge(
        "virtqueue_credit_requests",
        "Burst credit in requests of 4 KiB; no sample: the scheduler has no credit",
        |queue| queue.credit.map(Number::from),
    ),
    gauge("virtqueue_queued_requests", "Requests that wait for their turn and for a path with room", |queue| {
        Some(queue.queued.into())
    }),
    gauge("virtqueue_in_flight_requests", "Requests sent and not finished", |queue| Some(queue.in_flight.into())),
    counter("virtqueue_attempts_total", "Attempts sent to paths", |queue| queue.served.into()),
    counter("virtqueue_attempt_bytes_total", "Bytes of attempts sent to paths", |queue| queue.served_bytes.into()),
    times("virtqueue_wait_seconds", "Time that attempts waited for their turn and for a path with room", |queue| {
        queue.histogram
    }),
];

/// By `disk` and `path`.
pub(super) const PATHS: &[Metric<Path>] = &[
    info("path_info", "The path, its index, and where it comes from", |path| {
        let (transport, origin) = (path.transport.to_string(), path.origin.to_string());
        vec![("index", path.index.to_string()), ("transport", transport), ("origin", origin)]
    }),
    states("path_state", "State of the path", "state", |path| one_of(&PathState::ALL, Some(path.state))),
    states("path_ana_state", "ANA state of the namespace on the path; all 0: unknown", "state", |path| {
        one_of(&AnaState::ALL, path.ana_state)
    }),
    gauge("path_suspect", "Whether the path owes answers and has been silent for too long", |path| {
        Some(path.suspect.into())
    }),
    gauge("path_usable", "Whether requests of the disk that has the path can go there now", |path| {
        Some(path.unusable.is_none().into())
    }),
    counter("path_losses_total", "How often the path was lost after it was live", |path| path.losses.into()),
    counter("path_reconnects_total", "How often the path became live again after a loss", |path| {
        path.reconnects.into()
    }),
    gauge("path_resting", "Whether the path gets no requests for a while after a path error", |path| {
        Some(path.resting.into())
    }),
    gauge("path_fenced_requests", "Requests in doubt on a lost association, which wait for its fence", |path| {
        Some(path.fenced.into())
    }),
    gauge(
        "path_fallback_connections",
        "Connections that fell back to plain TCP; no sample: unknown, or not MPTCP",
        |path| {
            let known = path.transport == Transport::Mptcp && path.knows_connections();
            known.then(|| (path.fallbacks() as u64).into())
        },
    ),
    gauge("path_subflows", "Established subflows of the path, or its TCP connections; no sample: unknown", |path| {
        path.established().map(|established| (established as u64).into())
    }),
    gauge("path_injections", "Injections in force on the path", |path| Some((path.injections.len() as u64).into())),
    counter("path_suspicions_total", "How often the path became suspect, in each I/O thread", |path| {
        path.suspicions.into()
    }),
    counter("path_recalls_total", "Reads recalled because the path was suspect or the read overdue", |path| {
        path.recalled.into()
    }),
    counter("path_probes_total", "Probes sent on the path", |path| path.probes.into()),
    counter("path_hedges_total", "Hedges sent on the path", |path| path.hedges.into()),
    counter("path_hedges_won_total", "Hedges on the path that answered first", |path| path.hedges_won.into()),
];

/// By `disk`, `path`, `local` and `remote` address. A TCP connection is its own only subflow.
pub(super) const SUBFLOWS: &[Metric<SubflowGroup>] = &[
    gauge("subflow_rtt_seconds", "Smoothed round-trip time: the longest of these subflows", |group| {
        group.rtt_us.map(|us| Duration::from_micros(us).into())
    }),
    gauge("subflow_cwnd_bytes", "Sum of the congestion windows", |group| group.cwnd_bytes.map(Number::from)),
    // Gauges, because they drop when an association or a subflow ends.
    gauge("subflow_sent_bytes", "Bytes sent, including retransmissions", |group| group.bytes_sent.map(Number::from)),
    gauge("subflow_received_bytes", "Bytes received", |group| group.bytes_received.map(Number::from)),
    gauge("subflow_retransmitted_bytes", "Bytes retransmitted", |group| group.bytes_retransmitted.map(Number::from)),
    gauge("subflow_backup", "Whether these subflows are used only if no others work; no sample: unknown", |group| {
        group.backup.map(Number::from)
    }),
];

/// By `disk`, `path` and `class`.
pub(super) const CLASSES: &[Metric<OpStats>] = &[
    counter("path_requests_total", "Requests completed successfully", |of| of.ios.into()),
    counter("path_bytes_total", "Bytes of requests completed successfully", |of| of.bytes.into()),
    counter("path_errors_total", "Attempts that failed", |of| of.errors.into()),
    counter("path_repeated_attempts_total", "Attempts that failed and were followed by another attempt", |of| {
        of.retries.into()
    }),
    gauge("path_in_flight_requests", "Requests in flight on the path", |of| Some(of.in_flight.into())),
    gauge("path_window_bytes", "Window that the policy gives the path; no sample: the configured window", |of| {
        of.estimate.window_bytes.map(Number::from)
    }),
    times("path_latency_seconds", "Latency of successful requests from the choice of the path to completion", |of| {
        of.histogram
    }),
];

/// By `disk`, `controller` and `subnqn`.
pub(super) const DISCOVERY: &[Metric<DiscoveryController>] =
    &[states("discovery_state", "Whether the discovery controller answers", "state", |of| {
        one_of(&DiscoveryState::ALL, Some(of.state))
    })];
