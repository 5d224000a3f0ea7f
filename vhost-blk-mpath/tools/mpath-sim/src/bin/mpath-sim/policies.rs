//! Path selection policies on modelled paths, compared with the bound. Each table is printed when it is measured.

use std::process::ExitCode;

use clap::ValueEnum;
use monotonic::Duration;
use mpath_core::{ClassPolicies, PolicyKind, PolicySpec};
use mpath_sim::policies::scenario::{eight_disks, fastest, link, two_paths};
use mpath_sim::policies::{Measured, Model, Sim, Workload, bound};

use crate::table::{head, row};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which tables; all by default
    #[arg(value_enum)]
    tables: Vec<Table>,
    /// Policies to compare, by name; the more interesting ones by default
    #[arg(long, value_delimiter = ',')]
    policies: Vec<PolicyKind>,
    /// Seed of sizes, delays and policies
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Two links, uniform and mixed sizes: throughput in percent of the bound
    Links,
    /// One link 30 ms slower than the other: IOPS and tail compared with the fast link alone
    Slow,
    /// Paths that change: time until 90 % of the new bound
    Changes,
    /// Eight disks: IOPS and tail
    Disks,
    /// Delays that vary, reads with writes: throughput in percent of the bound
    Mixes,
}

/// How long a policy runs before a measurement, and how long the measurement takes.
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(5);
/// The longest wait for a throughput that the policy may never reach.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args) -> ExitCode {
    let policies = match &args.policies[..] {
        [] => vec![
            PolicyKind::RoundRobin,
            PolicyKind::QueueDepth,
            PolicyKind::ServiceTime,
            PolicyKind::LatencyRr,
            PolicyKind::Bdp,
        ],
        named => named.to_vec(),
    };
    let tables = if args.tables.is_empty() { Table::value_variants() } else { &args.tables };
    for table in tables {
        match table {
            Table::Links => links(&policies, args.seed),
            Table::Slow => slow(&policies, args.seed),
            Table::Changes => changes(&policies, args.seed),
            Table::Disks => disks(&policies, args.seed),
            Table::Mixes => mixes(&policies, args.seed),
        }
    }
    ExitCode::SUCCESS
}

fn measure(policy: impl Into<ClassPolicies>, paths: &[Model], workload: Workload, seed: u64) -> Measured {
    let mut sim = Sim::new(policy, paths, workload, seed);
    sim.run(WARM_UP);
    sim.run(MEASURED)
}

/// A cell with the bound in MB/s, and a cell for each policy with its percentage of the bound.
fn percents(policies: &[PolicyKind], paths: &[Model], workload: Workload, seed: u64) -> Vec<String> {
    let bound = bound(paths, &workload);
    let percents = policies.iter().map(|policy| 100.0 * measure(*policy, paths, workload, seed).bytes_per_s() / bound);
    [format!("{:.0}", bound / 1e6)].into_iter().chain(percents.map(|percent| format!("{percent:.1}"))).collect()
}

fn sizes(depth: u32) -> [(&'static str, Workload); 3] {
    [("4k", Workload::small(depth)), ("64k", Workload::medium(depth)), ("mixed", Workload::mixed(depth))]
}

fn links(policies: &[PolicyKind], seed: u64) {
    let first = ["Gb/s", "paths", "size", "depth", "bound, MB/s"];
    head("Throughput in percent of the bound, reads", &first, policies);
    for gbit_per_s in [1.0, 10.0] {
        for (name, paths) in two_paths(gbit_per_s) {
            for depth in [1, 4, 8, 32, 64, 256] {
                for (size, workload) in sizes(depth) {
                    let cells = percents(policies, &paths, workload, seed);
                    row(&format!("{gbit_per_s} | {name} | {size} | {depth}"), cells);
                }
            }
        }
    }
}

fn iops_and_tail(measured: &mut Measured, quantile: f64) -> String {
    format!("{:.0} / {:.2}", measured.iops(), measured.quantile(quantile).as_secs_f64() * 1e3)
}

fn slow(policies: &[PolicyKind], seed: u64) {
    let title = "One link of 1 Gb/s 30 ms slower than the other: IOPS / p99.9 in ms";
    let first = ["slow path", "size", "depth", "fast one alone", "bdp objective=latency"];
    head(title, &first, policies);
    let for_latency = PolicySpec::new(PolicyKind::Bdp, [("objective", "latency")]).expect("a parameter of bdp");
    for (name, paths) in two_paths(1.0).into_iter().filter(|(name, _)| name.starts_with("+30")) {
        let fast = [fastest(&paths)];
        for depth in [1, 32, 256] {
            for (size, workload) in sizes(depth) {
                let cell = |measured: &mut Measured| iops_and_tail(measured, 0.999);
                let alone = cell(&mut measure(PolicyKind::Numa, &fast, workload, seed));
                let latency = cell(&mut measure(for_latency, &paths, workload, seed));
                let cells = policies.iter().map(|policy| cell(&mut measure(*policy, &paths, workload, seed)));
                row(&format!("{name} | {size} | {depth} | {alone} | {latency}"), cells);
            }
        }
    }
}

fn changes(policies: &[PolicyKind], seed: u64) {
    let title = "Links of 1 Gb/s that change, reads of 4 KiB: seconds until 90 % of the new bound";
    head(title, &["change", "depth", "bound, MB/s"], policies);
    let (near, far, thin) = (link(1.0, 0.2), link(1.0, 30.2), link(0.25, 0.2));
    let cases = [
        ("start, equal", None, [near, near]),
        ("start, +30 ms", None, [near, far]),
        ("flip", Some([near, far]), [far, near]),
        ("+30 ms on one of two", Some([near, near]), [near, far]),
        ("recovery from it", Some([near, far]), [near, near]),
        ("a quarter of the rate on one of two", Some([near, near]), [near, thin]),
        ("recovery from it", Some([near, thin]), [near, near]),
        ("both four times as fast", Some([thin, thin]), [near, near]),
    ];
    for (name, before, after) in cases {
        for depth in [1, 4, 32, 256] {
            let workload = Workload::small(depth);
            let bound = bound(&after, &workload);
            let cell = |policy: &PolicyKind| {
                let mut sim = Sim::new(*policy, before.as_ref().unwrap_or(&after), workload, seed);
                if before.is_some() {
                    sim.run(LIMIT);
                    (0..).zip(after).for_each(|(index, model)| sim.change(index, model));
                }
                let time = sim.time_to(0.9 * bound, LIMIT);
                time.map_or("never".into(), |time| format!("{:.2}", time.as_secs_f64()))
            };
            row(&format!("{name} | {depth} | {:.0}", bound / 1e6), policies.iter().map(cell));
        }
    }
}

fn disks(policies: &[PolicyKind], seed: u64) {
    let paths = eight_disks();
    let title = "Eight disks, 5.5 ms (3), 9 ms (2), 14 ms (2), 60 ms (1), reads of 4 KiB: IOPS / p99.99 in ms";
    head(title, &["depth", "bound, IOPS"], policies);
    for depth in [1, 8, 32] {
        let workload = Workload::small(depth);
        let cell = |policy: &PolicyKind| {
            let mut sim = Sim::new(*policy, &paths, workload, seed);
            sim.run(Duration::from_secs(20));
            iops_and_tail(&mut sim.run(Duration::from_secs(100)), 0.9999)
        };
        let iops = bound(&paths, &workload) / workload.mean_bytes();
        row(&format!("{depth} | {iops:.0}"), policies.iter().map(cell));
    }
}

fn mixes(policies: &[PolicyKind], seed: u64) {
    let first = ["what", "paths", "size", "depth", "bound, MB/s"];
    head("Links of 1 Gb/s: throughput in percent of the bound", &first, policies);
    let jitter = Duration::from_micros(100);
    for (name, paths) in two_paths(1.0) {
        let jittery: Vec<Model> = paths.iter().map(|path| path.with_jitter(jitter)).collect();
        for depth in [4, 32] {
            for (size, workload) in sizes(depth) {
                let cells = percents(policies, &jittery, workload, seed);
                row(&format!("0.1 ms jitter | {name} | {size} | {depth}"), cells);
                let cells = percents(policies, &paths, workload.with_reads(70), seed);
                row(&format!("30 % writes | {name} | {size} | {depth}"), cells);
            }
        }
    }
}
