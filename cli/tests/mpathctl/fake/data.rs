//! The paths, virtqueues and discovery controllers of the fake daemon.

use std::collections::BTreeMap;

use mpath_api::types::{
    AnaState, Condition, ConditionReason, Connection, Controller, DiscoveryController, DiscoveryState, Disk,
    DiskFences, DiskHealth, DiskState, EventPath, FenceLift, FenceWaits, FrontEndProcess, Growth, GuestFigures,
    GuestIo, GuestOperation, HedgeStatus, InheritedFence, IoThread, LaggingPath, Latency, LimitStatus, MovedRequests,
    OpStats, Origin, Path, PathCounts, PathEstimate, PathFence, PathState, PathWindow, QueueTurns, SchedulerDetail,
    Subflow, SubflowState, Tier, TimeHistogram,
};
use mpath_config::address::Transport;
use mpath_config::{LimitsConfig, MinPaths, PathAddress, PolicyKind, SchedulerKind, SchedulerSpec, Weight};

pub(super) fn stats(ios: u64, p50_us: u64) -> OpStats {
    OpStats {
        ios,
        ios_1s: ios / 1000,
        ios_60s: ios / 100,
        bytes: ios * 4096,
        in_flight: 2,
        errors: 1,
        retries: 1,
        latency: Some(latency(p50_us)),
        // Recent requests are slower.
        latency_1s: (ios >= 1000).then(|| latency(p50_us * 4)),
        latency_60s: Some(latency(p50_us * 2)),
        histogram: TimeHistogram::default(),
        estimate: PathEstimate {
            latency_us: Some(f64::from(p50_us as u32)),
            age: Some(3),
            ignored: Some(ios / 2),
            checkpoints: Some(1),
            checkpoint_ios: Some(100),
            checkpoint_avg_us: Some(f64::from(p50_us as u32) + 0.5),
            ..PathEstimate::default()
        },
    }
}

/// A guest that reads and writes, and that waits for a write.
pub(super) fn guest() -> GuestFigures {
    let of = |operation, stats: OpStats| GuestIo {
        operation,
        ios: stats.ios,
        ios_1s: stats.ios_1s,
        bytes: stats.bytes,
        latency_1s: stats.latency_1s,
        latency_60s: stats.latency_60s,
        histogram: TimeHistogram::default(),
    };
    let guest_io =
        vec![of(GuestOperation::Read, stats(9_000_000, 70)), of(GuestOperation::Write, stats(1_200_000, 190))];
    GuestFigures { guest_io, oldest_request_ms: Some(1_250), ..GuestFigures::default() }
}

/// A disk that is served, without a guest, with one path that is usable.
pub(super) fn disk(name: &str) -> Disk {
    Disk {
        name: name.into(),
        socket_path: format!("/run/vhost-blk-mpath/{name}.sock"),
        subsystem: "nqn.2014-08.org.example:disks".into(),
        shares_paths_of: None,
        namespace: Some(1),
        state: DiskState::Served,
        health: health(Condition::Ok, ""),
        connected: false,
        held_ms: None,
        policy: PolicyKind::Bdp.into(),
        scheduler: Some(SchedulerKind::BurstCredit.into()),
        limits: Some(LimitStatus::new(LimitsConfig::default(), None)),
        capacity_bytes: 1 << 30,
        block_size_bytes: 512,
        read_only: false,
        queues: 64,
        mpath_window: false,
        weight: 100,
        queued: 0,
        moved_reads: MovedRequests::default(),
        moved_writes: MovedRequests::default(),
        first_moved: MovedRequests::default(),
        fence_waits: FenceWaits::default(),
        front_end: None,
        growth: None,
        io_threads: vec![],
        guest: GuestFigures::default(),
        hedge: HedgeStatus::default(),
        min_paths: MinPaths::Auto,
        changed: BTreeMap::new(),
        path_counts: PathCounts { total: 1, expected: 1, usable: 1, missing: 0 },
    }
}

pub(super) fn growth() -> Growth {
    let path = LaggingPath { index: 1, address: "tcp://127.0.0.1:4421".parse().unwrap(), capacity_bytes: 1 << 30 };
    Growth { capacity_bytes: 2 << 30, lagging: vec![path] }
}

pub(super) fn front_end() -> FrontEndProcess {
    FrontEndProcess { pid: 71, program: Some("qemu-system-x86".into()) }
}

pub(super) fn first_moved() -> MovedRequests {
    let time = Latency { p50_us: 12_000, p99_us: 304_000, p999_us: 304_000, max_us: 304_000 };
    MovedRequests { ios: 3, time: Some(time), histogram: TimeHistogram::default() }
}

/// `disk0` with a fence under way, `disk1` with all that an earlier daemon can leave.
pub(super) fn fences() -> Vec<DiskFences> {
    let path = EventPath { index: 1, address: "tcp://127.0.0.1:4421".parse().unwrap() };
    let none = |disk: &str| DiskFences {
        disk: disk.into(),
        record: format!("/run/vhost-blk-mpath/{disk}.sock.fence"),
        fences: vec![],
        inherited: None,
        guest_of: None,
        lost_writes: false,
    };
    let under_way = PathFence {
        path: Some(path),
        since: "2026-11-21T07:00:00.000Z".into(),
        ends_in_ms: Some(2001),
        lifts_by: vec![FenceLift::Time, FenceLift::CrossReset],
    };
    vec![
        DiskFences { fences: vec![under_way], ..none("disk0") },
        DiskFences {
            inherited: Some(InheritedFence { ends_in_ms: 9001, removed_disk: None }),
            guest_of: Some("namespace 1 of nqn.example".into()),
            lost_writes: true,
            ..none("disk1")
        },
    ]
}

fn latency(p50_us: u64) -> Latency {
    Latency { p50_us, p99_us: p50_us * 3, p999_us: p50_us * 7, max_us: p50_us * 20 }
}

pub(super) fn path(disk: &str, index: u16, address: &str) -> Path {
    let address: PathAddress = address.parse().unwrap();
    let is_mptcp = address.transport() == Transport::Mptcp;
    Path {
        tls_suite: is_mptcp.then(|| "TLS_AES_128_GCM_SHA256".into()),
        authentication: None,
        disk: disk.into(),
        index,
        transport: address.transport(),
        origin: Origin::Configured,
        address,
        state: PathState::Live,
        since: "2026-11-21T07:00:00.123Z".into(),
        waits_for: vec![],
        unusable: None,
        losses: 0,
        losses_1h: 0,
        reconnects: 0,
        last_error: None,
        last_error_at: None,
        ana_state: Some(AnaState::Optimized),
        sharers: vec![],
        resting: false,
        suspect: false,
        suspicions: 0,
        recalled: 0,
        probes: 0,
        hedges: 0,
        hedges_won: 0,
        fenced: 0,
        fence_left_ms: None,
        unflushed: false,
        cntlid: Some(1),
        connections: if is_mptcp { mptcp() } else { vec![] },
        connections_error: None,
        controller: Some(Controller {
            model: "Made-up Controller".into(),
            serial: "0042".into(),
            firmware: "7.1".into(),
            keep_alive_tmo_ms: 5000,
            max_transfer_bytes: 1 << 20,
            queue_depth: 127,
            volatile_write_cache: true,
            fence_ms: 11_000,
        }),
        window: PathWindow { ios: 64, bytes: 4 << 20 },
        io_share: 0.0,
        io_share_1s: 0.0,
        io_share_60s: 0.0,
        read: OpStats::default(),
        write: OpStats::default(),
        other: OpStats::default(),
        injections: Vec::new(),
    }
}

/// Two subflows of the admin connection, one of them a backup that closes, and an I/O connection that is plain TCP.
fn mptcp() -> Vec<Connection> {
    let subflow = |card, state| Subflow {
        local: ([10, 77, card, 1], 40_000).into(),
        remote: ([10, 77, card, 2], 4420).into(),
        state,
        backup: Some(card == 1),
        rtt_us: Some(250),
        rtt_var_us: Some(20),
        cwnd_segments: Some(12),
        mss_bytes: Some(1448),
        bytes_sent: Some(1000),
        bytes_received: Some(2000),
        bytes_retransmitted: Some(3),
        retransmitted_segments: Some(2),
        lost_segments: Some(4),
    };
    let both = vec![subflow(0, SubflowState::Established), subflow(1, SubflowState::Closing)];
    let admin = Connection { queue: 0, fallback: false, subflows_max: Some(8), subflows: both };
    let subflows = vec![subflow(0, SubflowState::Established)];
    let io = Connection { queue: 1, fallback: true, subflows_max: Some(8), subflows };
    vec![admin, io]
}

/// The admin connection over TCP, on a kernel that does not count bytes.
pub(super) fn tcp() -> Vec<Connection> {
    let mut admin = mptcp().swap_remove(0);
    (admin.subflows_max, admin.subflows) = (None, vec![admin.subflows.swap_remove(0)]);
    let of = &mut admin.subflows[0];
    (of.backup, of.bytes_sent, of.bytes_received, of.bytes_retransmitted) = (None, None, None, None);
    vec![admin]
}

/// A disk with this condition, for this reason.
pub(super) fn health(condition: Condition, message: &str) -> DiskHealth {
    let reasons = vec![ConditionReason { condition, message: message.into() }];
    DiskHealth {
        condition,
        condition_since: "2026-11-21T07:00:01.000Z".into(),
        reasons: if condition == Condition::Ok { vec![] } else { reasons },
        outstanding: 0,
        guest_errors: vec![],
    }
}

pub(super) fn discovery() -> Vec<DiscoveryController> {
    let first = DiscoveryController {
        disk: "disk0".into(),
        address: "tcp://192.0.2.1:8009".parse().unwrap(),
        subnqn: "nqn.2014-08.org.nvmexpress.discovery".into(),
        referred_by: None,
        state: DiscoveryState::Connected,
        since: "2026-11-21T07:00:00.123Z".into(),
        tls_suite: Some("TLS_AES_128_GCM_SHA256".into()),
        generation: Some(7),
        records: Some(3),
        read_at: Some("2026-11-21T07:00:00.123Z".into()),
        last_error: None,
        last_error_at: None,
    };
    let second = DiscoveryController {
        address: "tcp://[2001:db8::1]:8009".parse().unwrap(),
        referred_by: Some(first.address.clone()),
        state: DiscoveryState::Connecting,
        tls_suite: None,
        generation: None,
        records: None,
        read_at: None,
        last_error: Some("Connection refused (os error 111)".into()),
        last_error_at: Some("2026-11-21T07:00:01.000Z".into()),
        ..first.clone()
    };
    vec![first, second]
}

/// `disk0` with a busy virtqueue and one that was idle, and a limit; `disk1`, which nobody has used.
pub(super) fn scheduling() -> Vec<SchedulerDetail> {
    let spec = SchedulerSpec::new(SchedulerKind::BurstCredit, [("gap", "50ms")]).unwrap();
    let limits = LimitsConfig { bandwidth: "100MiB".parse().unwrap(), ..LimitsConfig::default() };
    let mut disk0 = SchedulerDetail::new("disk0".into(), None, spec, weight(100), limits, None);
    disk0.tier = Some(Tier::Bulk);
    (disk0.limits.balance_bytes, disk0.limits.throttled_ms) = (Some(-65_536), 1234);
    let queue = |queue, tier, credit, queued, waited| QueueTurns {
        queue,
        tier,
        credit: Some(credit),
        queued,
        in_flight: 13,
        served: 1000,
        served_bytes: 4 << 20,
        waited,
        histogram: TimeHistogram::default(),
    };
    disk0.queues = vec![queue(0, Tier::Bulk, 0, 32, Some(latency(250))), queue(3, Tier::Sparse, 17, 0, None)];
    let fifo = SchedulerKind::Fifo.into();
    let disk1 = SchedulerDetail::new("disk1".into(), None, fifo, weight(100), LimitsConfig::default(), None);
    vec![disk0, disk1]
}

pub(super) fn weight(weight: u32) -> Weight {
    Weight::new(weight).unwrap()
}

/// Two I/O threads, of which the host did not always run the second.
pub(super) fn io_threads() -> Vec<IoThread> {
    let first =
        IoThread { polled_ms: 1_700, ran_ms: Some(90_500), processor_wait_ms: Some(120), ..IoThread::default() };
    let (ran_ms, processor_wait_ms) = (Some(40_000), Some(2_500));
    vec![first, IoThread { thread: 1, ran_ms, processor_wait_ms, stalls: 3, stalled_ms: 2_430, ..IoThread::default() }]
}
