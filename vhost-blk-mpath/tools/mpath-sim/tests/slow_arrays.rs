//! Arrays that take longer for each answer than `suspect-timeout`, on all paths alike.

use monotonic::Duration;
use mpath_core::PolicyKind;
use mpath_sim::policies::{Model, Sim, Workload};

const MS: Duration = Duration::from_millis(1);
/// The default `suspect-timeout`, and one with which no path is ever suspect.
const DEFAULT: Duration = Duration::from_millis(300);
const PATIENT: Duration = Duration::from_secs(3600);

/// Suspicion leaves this share of the requests per second.
const LEAST: f64 = 0.8;

fn assert_share(policy: PolicyKind, model: Model, mean: Duration, reads_percent: u32) {
    for depth in [1, 8, 32] {
        let workload = Workload::small(depth).with_reads(reads_percent);
        let iops = |suspect_timeout| {
            let mut sim = Sim::with_suspect_timeout(suspect_timeout, policy, &[model; 2], workload, 1);
            sim.run(20 * mean);
            sim.run(60 * mean).iops()
        };
        let share = iops(DEFAULT) / iops(PATIENT);
        assert!(
            share >= LEAST,
            "{policy:?}, answers after {mean:?}, depth {depth}, {reads_percent} % reads: {share:.2}"
        );
    }
}

/// Means above the timeout, and one a little below it.
fn means() -> impl Iterator<Item = Duration> {
    [250, 320, 400, 2000].into_iter().map(|ms| ms * MS)
}

#[test]
fn a_slow_array_gives_what_it_has() {
    for policy in PolicyKind::ALL {
        means().for_each(|mean| assert_share(policy, Model::pipe(10.0, mean), mean, 100));
    }
}

/// `bdp` is left out: its throughput on mixes of such requests varies by a quarter without suspicion.
#[test]
fn a_slow_array_gives_writes_what_it_has() {
    for policy in PolicyKind::ALL.into_iter().filter(|policy| *policy != PolicyKind::Bdp) {
        for reads_percent in [0, 70] {
            means().for_each(|mean| assert_share(policy, Model::pipe(10.0, mean), mean, reads_percent));
        }
    }
}

/// Each answer takes between half of the mean and one and a half times the mean. So a read is often overtaken, and recalled
/// without gain.
#[test]
fn late_answers_cost_a_slow_array_little() {
    for policy in PolicyKind::ALL {
        means().for_each(|mean| assert_share(policy, Model::disk(2000, mean), mean, 100));
    }
}

/// A trial shows that no path is faster, and is remembered for a minute.
#[test]
fn a_slow_array_makes_no_path_suspect_once_it_is_known() {
    let mut found = Vec::new();
    for policy in PolicyKind::ALL {
        for (mean, reads_percent, depth) in means()
            .flat_map(|mean| [0, 70, 100].map(|reads| (mean, reads)))
            .flat_map(|(mean, reads)| [1, 8].map(|depth| (mean, reads, depth)))
        {
            let workload = Workload::small(depth).with_reads(reads_percent);
            let mut sim = Sim::with_suspect_timeout(DEFAULT, policy, &[Model::pipe(10.0, mean); 2], workload, 1);
            sim.run(40 * mean);
            let before = sim.suspicions();
            sim.run(40 * mean);
            let more = sim.suspicions() - before;
            if more > 1 {
                found.push(format!(
                    "{policy:?}, {mean:?}, {reads_percent} % reads, depth {depth}: {more}, before {before}"
                ));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Each write takes between half of the mean and one and a half times the mean, so the other path is often faster.
#[test]
fn false_alarms_of_writes_are_a_tenth() {
    const WRITES: u32 = 400;
    for policy in PolicyKind::ALL {
        for (mean, depth) in means().flat_map(|mean| [1, 2].map(|depth| (mean, depth))) {
            let workload = Workload::small(depth).with_reads(0);
            let mut sim = Sim::new(policy, &[Model::disk(2000, mean); 2], workload, 1);
            sim.run(WRITES / depth * mean);
            let suspicions = sim.suspicions();
            assert!(
                suspicions <= u64::from(WRITES / 10 + 10),
                "{policy:?}, {mean:?}, depth {depth}: {suspicions} of {WRITES} writes"
            );
        }
    }
}
