//! The tables, each printed as it is made.

use std::time::Duration;

use mpath_core::{ClassPolicies, PolicyKind, PolicySpec};
use policy_sim::{Jitter, Measured, Model, Sim, Workload, bound, scenario};

/// Before anything is measured, and while it is.
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(5);
/// Longest wait for what a policy may never reach.
const LIMIT: Duration = Duration::from_secs(10);

fn measure(policy: impl Into<ClassPolicies>, paths: &[Model], workload: Workload, seed: u64) -> Measured {
    let mut sim = Sim::new(policy, paths, workload, seed);
    sim.run(WARM_UP);
    sim.run(MEASURED)
}

fn head(title: &str, first: &[&str], policies: &[PolicyKind], each: &str) {
    println!("\n{title}\n");
    let columns = policies.iter().map(|policy| format!("{policy}{each}"));
    let columns: Vec<String> = first.iter().map(ToString::to_string).chain(columns).collect();
    println!("| {} |", columns.join(" | "));
    println!("|{}", "---|".repeat(columns.len()));
}

/// Percent of the bound in each cell.
fn percents(policies: &[PolicyKind], paths: &[Model], workload: Workload, seed: u64) -> String {
    let bound = bound(paths, &workload);
    let percent = |policy: &PolicyKind| {
        let measured = measure(*policy, paths, workload, seed);
        format!("{:.1}", 100.0 * measured.bytes_per_s() / bound)
    };
    format!("{:.0} | {}", bound / 1e6, policies.iter().map(percent).collect::<Vec<_>>().join(" | "))
}

fn sizes(depth: u32) -> [(&'static str, Workload); 3] {
    [("4k", Workload::small(depth)), ("64k", Workload::medium(depth)), ("mixed", Workload::mixed(depth))]
}

pub(crate) fn links(policies: &[PolicyKind], seed: u64) {
    let first = ["Gb/s", "paths", "size", "depth", "bound, MB/s"];
    head("Throughput in percent of the bound, reads", &first, policies, "");
    for gbit_per_s in [1.0, 10.0] {
        for (name, paths) in scenario::two_paths(gbit_per_s) {
            for depth in [1, 4, 8, 32, 64, 256] {
                for (size, workload) in sizes(depth) {
                    let cells = percents(policies, &paths, workload, seed);
                    println!("| {gbit_per_s} | {name} | {size} | {depth} | {cells} |");
                }
            }
        }
    }
}

fn iops_and_tail(measured: &mut Measured, quantile: f64) -> String {
    format!("{:.0} / {:.2}", measured.iops(), measured.quantile(quantile).as_secs_f64() * 1e3)
}

pub(crate) fn slow(policies: &[PolicyKind], seed: u64) {
    let title = "One link of 1 Gb/s 30 ms slower than the other: IOPS / p99.9 in ms";
    let first = ["slow path", "size", "depth", "fast one alone", "bdp objective=latency"];
    head(title, &first, policies, "");
    let for_latency = PolicySpec::new(PolicyKind::Bdp, [("objective", "latency")]).expect("a parameter of bdp");
    for (name, paths) in scenario::two_paths(1.0).into_iter().filter(|(name, _)| name.starts_with("+30")) {
        let fast: Vec<Model> = paths.iter().copied().min_by_key(|path| path.delay).into_iter().collect();
        for depth in [1, 32, 256] {
            for (size, workload) in sizes(depth) {
                let mut cells = vec![
                    iops_and_tail(&mut measure(PolicyKind::Numa, &fast, workload, seed), 0.999),
                    iops_and_tail(&mut measure(for_latency, &paths, workload, seed), 0.999),
                ];
                let of = |policy: &PolicyKind| iops_and_tail(&mut measure(*policy, &paths, workload, seed), 0.999);
                cells.extend(policies.iter().map(of));
                println!("| {name} | {size} | {depth} | {} |", cells.join(" | "));
            }
        }
    }
}

pub(crate) fn changes(policies: &[PolicyKind], seed: u64) {
    let title = "Links of 1 Gb/s that change, reads of 4 KiB: seconds until 90 % of the new bound";
    head(title, &["change", "depth", "bound, MB/s"], policies, "");
    let path = |gbit_per_s, ms| Model::pipe(gbit_per_s, Duration::from_secs_f64(ms / 1000.0));
    let (near, far, thin) = (path(1.0, 0.2), path(1.0, 30.2), path(0.25, 0.2));
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
            let cells: Vec<String> = policies.iter().map(cell).collect();
            println!("| {name} | {depth} | {:.0} | {} |", bound / 1e6, cells.join(" | "));
        }
    }
}

pub(crate) fn disks(policies: &[PolicyKind], seed: u64) {
    let paths = scenario::eight_disks();
    let title = "Eight disks, 5.5 ms (3), 9 ms (2), 14 ms (2), 60 ms (1), reads of 4 KiB: IOPS / p99.99 in ms";
    head(title, &["depth", "bound, IOPS"], policies, "");
    for depth in [1, 8, 32] {
        let workload = Workload::small(depth);
        let cell = |policy: &PolicyKind| {
            let mut sim = Sim::new(*policy, &paths, workload, seed);
            sim.run(Duration::from_secs(20));
            iops_and_tail(&mut sim.run(Duration::from_secs(100)), 0.9999)
        };
        let cells: Vec<String> = policies.iter().map(cell).collect();
        println!("| {depth} | {:.0} | {} |", bound(&paths, &workload) / workload.mean_bytes(), cells.join(" | "));
    }
}

pub(crate) fn mixes(policies: &[PolicyKind], seed: u64) {
    let first = ["what", "paths", "size", "depth", "bound, MB/s"];
    head("Links of 1 Gb/s: throughput in percent of the bound", &first, policies, "");
    let jitter = Jitter::Exponential(Duration::from_micros(100));
    for (name, paths) in scenario::two_paths(1.0) {
        let jittery: Vec<Model> = paths.iter().map(|path| path.with_jitter(jitter)).collect();
        for depth in [4, 32] {
            for (size, workload) in sizes(depth) {
                let cells = percents(policies, &jittery, workload, seed);
                println!("| 0.1 ms jitter | {name} | {size} | {depth} | {cells} |");
                let cells = percents(policies, &paths, workload.with_reads(70), seed);
                println!("| 30 % writes | {name} | {size} | {depth} | {cells} |");
            }
        }
    }
}
