//! Prometheus metrics under load: counters never decrease.

#![allow(clippy::cast_precision_loss, clippy::float_cmp)] // what was written is read again

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mpath_api::types::{ActOnPaths, PathAction, PathSelector};
use mpath_config::{PolicyKind, SchedulerKind};

use crate::scheduler::switch;
use crate::support::{Daemon, Target, Verification, VerificationSetup, eventually, inject, set_policy};

/// The samples by name and labels.
pub(crate) struct Scrape {
    samples: HashMap<String, f64>,
    /// The type of each metric.
    types: HashMap<String, String>,
}

impl Scrape {
    pub(crate) fn of(daemon: &Daemon) -> Self {
        let mut stream = UnixStream::connect(daemon.place.api()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
        let (mut samples, mut types) = (HashMap::new(), HashMap::new());
        for line in text.lines() {
            let (of, value) = line.rsplit_once(' ').unwrap();
            if let Some(name) = of.strip_prefix("# TYPE ") {
                assert_eq!(types.insert(name.into(), value.into()), None, "{line}");
            } else if !line.starts_with('#') {
                assert_eq!(samples.insert(of.into(), value.parse().unwrap()), None, "{line}");
            }
        }
        Self { samples, types }
    }

    /// Counters, and the buckets, sums and counts of histograms.
    fn counters(&self) -> impl Iterator<Item = (&String, f64)> {
        let counts = |series: &str| {
            let name = series.split('{').next().unwrap();
            let part_of = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
            self.types.get(name).is_some_and(|kind| kind == "counter")
                || part_of.and_then(|name| self.types.get(name)).is_some_and(|kind| kind == "histogram")
        };
        self.samples.iter().filter(move |(series, _)| counts(series)).map(|(series, value)| (series, *value))
    }

    pub(crate) fn get(&self, series: &str) -> f64 {
        let found = self.samples.get(&format!("vhost_blk_mpath_{series}"));
        *found.unwrap_or_else(|| panic!("no {series}"))
    }

    /// All series of a metric with this in their labels.
    pub(crate) fn sum(&self, metric: &str, labels: &str) -> f64 {
        let of = |series: &str| series.starts_with(&format!("vhost_blk_mpath_{metric}{{")) && series.contains(labels);
        self.samples.iter().filter(|(series, _)| of(series)).map(|(_, value)| value).sum()
    }
}

/// Through everything that might reset a counter.
#[test]
fn counters_grow_under_load_and_never_shrink() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy round-robin --io-threads 2");
    let shape = VerificationSetup { flush: false, ..VerificationSetup::default() };
    let verification = Verification::start(&daemon.socket(), shape);
    verification.goes_on(300);
    let mut last = Scrape::of(&daemon);
    let mut scrape = |what: &str| {
        let now = Scrape::of(&daemon);
        for (series, before) in last.counters() {
            let after = now.samples.get(series).unwrap_or_else(|| panic!("{what}: {series} is gone"));
            assert!(*after >= before, "{what}: {series} was {before} and is {after}");
        }
        for metric in ["path_requests_total", "path_bytes_total", "path_latency_seconds_sum"] {
            let (before, after) = (last.sum(metric, "class=\"read\""), now.sum(metric, "class=\"read\""));
            assert!(after > before, "{what}: {metric} stays at {before}");
        }
        for metric in ["virtqueue_attempts_total", "virtqueue_attempt_bytes_total"] {
            assert!(now.sum(metric, "") > last.sum(metric, ""), "{what}: {metric} stays");
        }
        assert!(now.get("uptime_seconds") >= last.get("uptime_seconds"));
        last = now;
    };
    verification.goes_on(300);
    scrape("load");
    daemon.api.set(&set_policy(PolicyKind::Bdp)).unwrap();
    verification.goes_on(300);
    scrape("another policy");
    switch(&daemon, SchedulerKind::Fifo, &[]);
    daemon.api.set_injection(&inject(PathSelector::Index(1), Duration::from_millis(1))).unwrap();
    verification.goes_on(300);
    scrape("another scheduler and an injection");
    let reset =
        ActOnPaths { path: PathSelector::Index(1), disk: None, all: false, action: PathAction::Reset, force: false };
    daemon.api.act_on_paths(&reset).unwrap();
    eventually("the path is live again", || daemon.is_live(1));
    verification.goes_on(300);
    scrape("a reset");
    verification.finish();
    let verification = Verification::start(&daemon.socket(), shape);
    verification.goes_on(300);
    scrape("another front-end");
    verification.finish();

    // At rest the metrics equal the API's values.
    let (seen, paths) = (Scrape::of(&daemon), daemon.paths());
    for path in &paths {
        let of = format!("disk=\"disk0\",path=\"{}\"", path.address);
        for (class, stats) in path.classes() {
            let labels = format!("{of},class=\"{class}\"");
            assert_eq!(seen.get(&format!("path_requests_total{{{labels}}}")), stats.ios as f64);
            assert_eq!(seen.get(&format!("path_latency_seconds_count{{{labels}}}")), stats.ios as f64);
            assert_eq!(seen.get(&format!("path_in_flight_requests{{{labels}}}")), 0.0);
        }
        let upto = |le: &str| seen.get(&format!("path_latency_seconds_bucket{{{of},class=\"read\",le=\"{le}\"}}"));
        assert!(upto("5e-05") <= upto("0.001") && upto("0.001") <= upto("10"), "{path:?}");
        assert_eq!(upto("+Inf"), path.read.ios as f64);
        assert_eq!(seen.get(&format!("path_state{{{of},state=\"live\"}}")), 1.0);
        assert_eq!(seen.sum("path_state", &of), 1.0);
    }
    assert_eq!(seen.sum("path_injections", ""), 1.0);
    assert_eq!(seen.get("disk_policy_info{disk=\"disk0\",read=\"bdp\",write=\"bdp\"}"), 1.0);
    assert_eq!(seen.get("disk_scheduler_info{disk=\"disk0\",scheduler=\"fifo\"}"), 1.0);
    assert_eq!(seen.get("disk_paths_usable{disk=\"disk0\"}"), 2.0);
    assert_eq!(seen.get("virtqueue_in_flight_requests{disk=\"disk0\",queue=\"0\"}"), 0.0);
    assert_eq!(seen.sum("virtqueue_tier", "queue=\"0\""), 1.0);
    let version = format!("build_info{{version=\"{}\"}}", env!("VHOST_BLK_MPATH_VERSION"));
    assert_eq!(seen.get(&version), 1.0);
}
