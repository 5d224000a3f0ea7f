#![allow(clippy::cast_precision_loss, clippy::float_cmp)] // what was written is read again

mod parser;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;

use monotonic::Duration;
use mpath_api::types::{
    AnaState, Condition, Connection, DiscoveryState, FenceWaits, GuestErrorCount, GuestErrorReason, GuestIo,
    GuestOperation, Injection, InjectionInForce, MovedRequests, OpStats, PathState, QueueTurns, Stages, Subflow,
    SubflowState, Tier, TimeHistogram,
};
use mpath_config::LimitsConfig;
use mpath_config::address::Transport;
use mpath_core::{SchedulerKind, SchedulerSpec, TIME_BUCKETS_NS};
use proptest::prelude::*;

use self::parser::{Family, parse};
use super::*;
use crate::Limits;
use crate::tests::{Fake, Running};

const PREFIX: &str = "vhost_blk_mpath_";

type Known = (Status, Vec<Path>, Vec<SchedulerDetail>);

/// The state of the fake daemon.
fn fake() -> Known {
    known(&Fake::new())
}

fn known(fake: &Fake) -> Known {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        (fake.status().await.unwrap(), fake.paths().await.unwrap(), fake.scheduling().await.unwrap())
    })
}

fn whole((status, paths, scheduling): Known) -> String {
    exposition(status, paths, scheduling).collect()
}

/// Two times in the first bucket, three in the fourth, and one that is longer than all buckets.
fn histogram() -> TimeHistogram {
    let mut counts = TimeHistogram::default().counts;
    (counts[0], counts[3], counts[17]) = (2, 3, 1);
    TimeHistogram { counts, sum: Duration::from_micros(12_000_800) }
}

/// One disk, one path, one virtqueue and one discovery controller, with every value set.
pub(crate) fn one() -> Known {
    let (mut status, mut paths, mut scheduling) = fake();
    status.disks.truncate(1);
    paths.truncate(1);
    scheduling.truncate(1);

    let disk = &mut status.disks[0];
    (disk.queued, disk.hedge.hedgeable_reads, disk.held_ms) = (3, 70, Some(2_600));
    disk.moved_reads = MovedRequests { ios: 6, time: None, histogram: histogram() };
    disk.first_moved = disk.moved_reads;
    disk.fence_waits = FenceWaits { ios: 4, total_ms: 8_400 };
    disk.io_threads = vec![IoThread {
        thread: 1,
        polled_ms: 1_700,
        ran_ms: Some(90_500),
        processor_wait_ms: Some(2_500),
        stalls: 3,
        stalled_ms: 1_250,
        lateness: histogram(),
    }];
    disk.guest.guest_io = vec![GuestIo {
        operation: GuestOperation::Flush,
        ios: 6,
        ios_1s: 2,
        bytes: 24_576,
        latency_1s: None,
        latency_60s: None,
        histogram: histogram(),
    }];
    disk.guest.long_requests = Stages { path: Duration::from_millis(2500), ..Stages::default() };
    (disk.guest.oldest_request_ms, disk.path_counts.missing) = (Some(1250), 1);
    (disk.health.condition, disk.health.outstanding) = (Condition::Failing, 8);
    let (operation, reason) = (GuestOperation::Write, GuestErrorReason::NoPath);
    disk.health.guest_errors = vec![GuestErrorCount { operation, reason, count: 9, last_at: String::new() }];
    let path = &mut paths[0];
    (path.state, path.ana_state, path.suspect) = (PathState::Draining, Some(AnaState::NonOptimized), true);
    (path.suspicions, path.recalled, path.probes, path.hedges, path.hedges_won) = (11, 12, 13, 15, 14);
    path.fenced = 1;
    let subflow = |port: u16, bytes_sent| Subflow {
        local: ([192, 0, 2, 1], port).into(),
        remote: ([192, 0, 2, 2], 4420).into(),
        state: SubflowState::Established,
        backup: Some(port == 50_001),
        rtt_us: Some(1500 + u64::from(port - 50_000)),
        rtt_var_us: None,
        cwnd_segments: Some(10),
        mss_bytes: Some(1448),
        bytes_sent: Some(bytes_sent),
        bytes_received: Some(7),
        bytes_retransmitted: Some(3),
        retransmitted_segments: Some(1),
        lost_segments: None,
    };
    let closing = Subflow { state: SubflowState::Closing, ..subflow(50_002, 1000) };
    let connection = |queue, subflows| Connection { queue, fallback: queue == 2, subflows_max: Some(8), subflows };
    path.transport = Transport::Mptcp;
    path.connections = vec![
        connection(0, vec![subflow(50_000, 10), closing]),
        connection(1, vec![subflow(50_001, 20)]),
        connection(2, vec![]),
    ];
    path.injections = vec![InjectionInForce {
        injection: Injection::latency(30_000.try_into().unwrap()),
        ends_in_ms: None,
        changed: None,
    }];
    path.read = OpStats {
        ios: 1000,
        bytes: 4_096_000,
        in_flight: 5,
        errors: 7,
        retries: 6,
        histogram: histogram(),
        ..OpStats::default()
    };
    path.read.estimate.window_bytes = Some(65_536);

    let of = &mut scheduling[0];
    of.scheduler = SchedulerSpec::from(SchedulerKind::BurstCredit);
    of.tier = Some(Tier::Bulk);
    of.limits.limits = LimitsConfig {
        iops: "500".parse().unwrap(),
        bandwidth: "1MiB".parse().unwrap(),
        burst: "1500ms".parse().unwrap(),
    };
    (of.limits.balance_ios, of.limits.balance_bytes, of.limits.throttled_ms) = (Some(20), Some(-4096), 1234);
    of.queues = vec![QueueTurns {
        queue: 3,
        tier: Tier::Sparse,
        credit: Some(17),
        queued: 2,
        in_flight: 4,
        served: 100,
        served_bytes: 409_600,
        waited: None,
        histogram: histogram(),
    }];
    status.discovery = vec![DiscoveryController {
        disk: "a".into(),
        address: "tcp://127.0.0.1:8009".parse().unwrap(),
        subnqn: "nqn.2014-08.org.nvmexpress.discovery".into(),
        referred_by: None,
        state: DiscoveryState::Lost,
        since: String::new(),
        tls_suite: None,
        generation: None,
        records: None,
        read_at: None,
        last_error: None,
        last_error_at: None,
    }];
    (status, paths, scheduling)
}

#[test]
fn the_text_of_one_disk() {
    assert_eq!(whole(one()), include_str!("tests/one.prom"));
}

#[test]
fn unknown_values_have_no_sample() {
    let families = parse(&whole(fake()));
    let count = |name: &str| {
        let family = families.iter().find(|family| family.name == format!("{PREFIX}{name}"));
        family.unwrap_or_else(|| panic!("no {name}")).samples.len()
    };
    // Two disks of two paths each; no virtqueue, no limit, no discovery controller.
    assert_eq!((count("disk_connected"), count("path_suspect"), count("path_requests_total")), (2, 4, 12));
    assert_eq!(count("disk_tier"), 2 * Tier::ALL.len());
    assert_eq!((count("path_state"), count("path_ana_state")), (4 * PathState::ALL.len(), 4 * AnaState::ALL.len()));
    for name in
        ["disk_limit_iops", "disk_limit_balance_bytes", "virtqueue_tier", "path_window_bytes", "discovery_state"]
    {
        assert_eq!(count(name), 0, "{name}");
    }
    // A histogram has samples before it has counted anything.
    let of_histogram = TIME_BUCKETS_NS.len() + 3;
    let times = (count("path_latency_seconds"), count("disk_failover_seconds"));
    assert_eq!(times, (12 * of_histogram, 4 * of_histogram));
    for name in ["path_ana_state", "disk_tier"] {
        let family = families.iter().find(|family| family.name.ends_with(name)).unwrap();
        assert!(family.samples.iter().all(|sample| sample.value == 0.0), "{family:?}");
    }
}

#[test]
fn tcp_connections_have_the_metrics_of_subflows_that_the_kernel_knows() {
    let (status, mut paths, scheduling) = one();
    let path = &mut paths[0];
    path.transport = Transport::Tcp;
    path.connections.truncate(2);
    for connection in &mut path.connections {
        (connection.subflows_max, connection.fallback) = (None, false);
        connection.subflows.truncate(1);
        let subflow = &mut connection.subflows[0];
        (subflow.backup, subflow.bytes_sent, subflow.bytes_retransmitted) = (None, None, None);
    }
    path.connections[1].subflows[0].bytes_received = None;
    let families = parse(&whole((status, paths, scheduling)));
    let family = |name: &str| families.iter().find(|family| family.name == format!("{PREFIX}{name}")).unwrap();
    for (name, value) in [
        ("path_subflows", 2.0),
        ("subflow_rtt_seconds", 0.001_501),
        ("subflow_cwnd_bytes", 2.0 * 14_480.0),
        ("subflow_received_bytes", 7.0),
    ] {
        assert_eq!(family(name).value(&[]), value, "{name}");
    }
    for name in ["path_fallback_connections", "subflow_sent_bytes", "subflow_retransmitted_bytes", "subflow_backup"] {
        assert_eq!(family(name).samples, [], "{name}");
    }
}

#[test]
fn values_of_shared_paths_are_counted_once() {
    let families = parse(&whole(known(&Fake::sharing())));
    let disks = |name: &str| -> Vec<String> {
        let family = families.iter().find(|family| family.name == format!("{PREFIX}{name}")).unwrap();
        let mut disks: Vec<_> = family.samples.iter().map(|sample| sample.labels[0].1.clone()).collect();
        disks.dedup();
        disks
    };
    for name in [
        "disk_connected",
        "disk_weight",
        "disk_paths_usable",
        "disk_limit_burst_seconds",
        "disk_scheduler_info",
        "disk_tier",
    ] {
        assert_eq!(disks(name), ["a", "b", "shares-a"], "{name}");
    }
    for name in [
        "disk_hedgeable_reads_total",
        "disk_first_failover_seconds",
        "disk_failover_seconds",
        "path_info",
        "path_requests_total",
    ] {
        assert_eq!(disks(name), ["a", "b"], "{name}");
    }
    let info = families.iter().find(|family| family.name.ends_with("disk_info")).unwrap();
    for (disk, paths_of) in [("a", "a"), ("b", "b"), ("shares-a", "a")] {
        assert_eq!(info.value(&[("disk", disk), ("paths_of", paths_of)]), 1.0);
    }
}

#[test]
fn the_route_answers_with_it() {
    let server = Running::start(Limits::default());
    let answer = server.raw(b"GET /metrics HTTP/1.0\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
    assert!(head.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert_eq!(body, whole(fake()));
    let (status, answer) = server.request("POST", "/metrics", "");
    assert!(status == 405 && answer.contains("/metrics does not take POST"), "{answer}");
}

/// The text grows by a known number of bytes with each path of which everything is known.
#[test]
fn a_path_takes_so_much_and_no_more() {
    let length = |count: u16| {
        let (status, mut paths, scheduling) = one();
        let mut path = paths.remove(0);
        let stats = path.read.clone();
        (path.write, path.other) = (stats.clone(), stats);
        let address = |index| format!("tcp://192.168.100.100:{}", 50_000 + index).parse().unwrap();
        paths.extend((0..count).map(|index| Path { index, address: address(index), ..path.clone() }));
        whole((status, paths, scheduling)).len()
    };
    let each = (length(64) - length(0)) / 64;
    assert!((11_000..12_500).contains(&each), "docs/operating/metrics.md says 12 kB, and it is {each}");
}

/// `| name | type | labels | help |`
fn row(family: &Family) -> String {
    let names: Vec<_> = family.samples.iter().flat_map(|sample| &sample.labels).map(|(name, _)| &**name).collect();
    let mut labels = String::new();
    let mut told = HashSet::new();
    for name in names.into_iter().filter(|name| *name != "le" && told.insert(*name)) {
        let _ = write!(labels, "{}`{name}`", if labels.is_empty() { "" } else { ", " });
    }
    format!("| `{}` | {} | {labels} | {} |", family.name, family.kind, family.help)
}

#[test]
fn the_documentation_has_every_metric_and_no_other() {
    let documentation = include_str!("../../../../../docs/operating/metrics.md");
    let families = parse(&whole(one()));
    let rows: Vec<_> = families.iter().map(row).collect();
    let written: Vec<_> = documentation.lines().filter(|line| line.starts_with(&format!("| `{PREFIX}"))).collect();
    assert_eq!(written, rows, "the tables in docs/operating/metrics.md should have the rows\n{}\n", rows.join("\n"));

    let samples = families.iter().flat_map(|family| &family.samples).map(|sample| &*sample.name);
    let known: BTreeSet<_> = samples.chain(families.iter().map(|family| &*family.name)).collect();
    let words = documentation.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|word| word.starts_with(PREFIX)) {
        assert!(known.contains(word), "docs/operating/metrics.md has {word}, and there is no such metric");
    }
}

#[test]
fn every_state_has_a_sample() {
    fn check<S: serde::de::DeserializeOwned + std::fmt::Display>(all: &[S]) {
        let error = serde_json::from_str::<S>("\"?\"").map(|_| ()).unwrap_err().to_string();
        let known: Vec<_> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(all.iter().map(ToString::to_string).collect::<Vec<_>>(), known, "{error}");
    }
    check(&PathState::ALL);
    check(&DiscoveryState::ALL);
    check(&Tier::ALL);
}

/// Text with characters that have a meaning in the format.
fn strange() -> impl Strategy<Value = String> {
    let special: Vec<_> = "\\\"\n\r\t\0{}=,# n".chars().collect();
    let char = prop_oneof![proptest::sample::select(special), any::<char>()];
    proptest::collection::vec(char, 0..12).prop_map(String::from_iter)
}

fn times() -> impl Strategy<Value = TimeHistogram> {
    let of =
        |(counts, us): ([u32; 18], _)| TimeHistogram { counts: counts.map(u64::from), sum: Duration::from_micros(us) };
    (any::<[u32; 18]>(), any::<u64>()).prop_map(of)
}

proptest! {
    #[test]
    fn any_values_make_well_formed_text(
        [version, name, socket, subsystem, subnqn] in std::array::from_fn(|_| strange()),
        host in "[a-z]{1,8}|\\[::[1-9a-f]\\]",
        numbers in any::<[u64; 8]>(),
        balance in any::<Option<i64>>(),
        window_bytes in any::<Option<u64>>(),
        times in times(),
        state in proptest::sample::select(PathState::ALL.to_vec()),
        ana_state in proptest::option::of(proptest::sample::select(AnaState::ALL.to_vec())),
        flags in any::<[bool; 3]>(),
    ) {
        let (mut status, mut paths, mut scheduling) = one();
        status.version = version.clone();
        status.discovery[0].subnqn = subnqn.clone();
        let disk = &mut status.disks[0];
        (disk.name, disk.socket_path, disk.subsystem) = (name.clone(), socket.clone(), subsystem.clone());
        (disk.connected, disk.capacity_bytes, disk.queued) = (flags[0], numbers[0], numbers[1]);
        disk.moved_writes = MovedRequests { ios: numbers[2], time: None, histogram: times };
        let path = &mut paths[0];
        (path.disk, path.address) = (name.clone(), format!("tcp://{host}").parse().unwrap());
        (path.state, path.ana_state, path.suspect, path.resting) = (state, ana_state, flags[1], flags[2]);
        (path.fenced, path.hedges) = (numbers[3], numbers[4]);
        (path.write.ios, path.write.bytes, path.write.histogram) = (numbers[5], numbers[6], times);
        path.write.estimate.window_bytes = window_bytes;
        let of = &mut scheduling[0];
        (of.disk, of.limits.balance_ios, of.limits.throttled_ms) = (name.clone(), balance, numbers[7]);
        of.queues[0].histogram = times;
        let address = path.address.to_string();

        let families = parse(&whole((status, paths, scheduling)));
        let family = |name: &str| families.iter().find(|family| family.name == format!("{PREFIX}{name}")).unwrap();
        let of_disk = ("disk", &*name);
        let of_path = [of_disk, ("path", &*address)];
        prop_assert_eq!(family("build_info").value(&[("version", &version)]), 1.0);
        prop_assert_eq!(family("disk_info").value(&[of_disk, ("socket_path", &socket), ("subsystem", &subsystem)]), 1.0);
        prop_assert_eq!(family("discovery_state").value(&[("subnqn", &subnqn), ("state", "lost")]), 1.0);
        prop_assert_eq!(family("disk_capacity_bytes").value(&[of_disk]), numbers[0] as f64);
        prop_assert_eq!(family("path_hedges_total").value(&of_path), numbers[4] as f64);
        prop_assert_eq!(family("path_resting").value(&of_path), f64::from(flags[2]));
        let now = |name: &str| {
            let is_now = |sample: &&parser::Sample| sample.value == 1.0;
            let states: Vec<_> = family(name).samples.iter().filter(is_now).collect();
            states.iter().map(|sample| sample.labels.last().unwrap().1.clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(now("path_state"), [state.to_string()]);
        prop_assert_eq!(now("path_ana_state"), Vec::from_iter(ana_state.map(|state| state.to_string())));
        if let Some(balance) = balance {
            prop_assert_eq!(family("disk_limit_balance_requests").value(&[of_disk]), balance as f64);
        }
        let latency = family("path_latency_seconds");
        let mut upto = 0;
        for (le, count) in TIME_BUCKETS_NS.map(|ns| Some(ns as f64 / 1e9)).into_iter().chain([None]).zip(times.counts) {
            upto += count;
            let is_bucket = |sample: &&parser::Sample| {
                sample.has("class", "write") && sample.label("le").is_some_and(|text| le == text.parse().ok().filter(|le: &f64| le.is_finite()))
            };
            let bucket = latency.samples.iter().find(is_bucket).unwrap_or_else(|| panic!("no bucket up to {le:?}"));
            prop_assert_eq!(bucket.value, upto as f64);
        }
        let part = |suffix: &str| {
            let of = |sample: &&parser::Sample| sample.has("class", "write") && sample.name.ends_with(suffix);
            latency.samples.iter().find(of).unwrap().value
        };
        prop_assert_eq!((part("_count"), part("_sum")), (upto as f64, times.sum.as_secs_f64()));
    }
}
