//! The promises of `bdp` for the most important cells, with fixed seeds.

use monotonic::Duration;
use mpath_core::PolicyKind::{Bdp, Numa, QueueDepth};
use mpath_core::PolicySpec;
use mpath_sim::policies::scenario::{eight_disks, fastest, link, two_paths};
use mpath_sim::policies::{Measured, Model, Sim, Workload, bound};

const SEED: u64 = 1;

fn run(policy: impl Into<mpath_core::ClassPolicies>, paths: &[Model], workload: Workload) -> Measured {
    let mut sim = Sim::new(policy, paths, workload, SEED);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(2))
}

fn links(name: &str) -> Vec<Model> {
    let all = two_paths(1.0);
    all.into_iter().find(|(of, _)| *of == name).map(|(_, paths)| paths).expect("a scenario of this name")
}

/// Percent of the bound.
fn reached(paths: &[Model], workload: Workload) -> f64 {
    100.0 * run(Bdp, paths, workload).bytes_per_s() / bound(paths, &workload)
}

#[test]
fn uniform_sizes_reach_the_bound() {
    for (name, paths) in two_paths(1.0) {
        for depth in [1, 32] {
            for workload in [Workload::small(depth), Workload::medium(depth)] {
                let percent = reached(&paths, workload);
                assert!(percent >= 95.0, "{name}, {workload:?}: {percent} %");
            }
        }
    }
}

#[test]
fn mixed_sizes_come_near_it() {
    for (name, paths) in two_paths(1.0) {
        for depth in [8, 64] {
            let percent = reached(&paths, Workload::mixed(depth));
            assert!(percent >= 90.0, "{name}, depth {depth}: {percent} %");
        }
    }
}

/// The first requests of a path may all be large. That must not make the path count as slow.
#[test]
fn paths_are_compared_at_the_same_size() {
    let paths = links("+2 ms on the second");
    for (depth, least) in [(1, 95.0), (4, 88.0)] {
        let workload = Workload::mixed(depth);
        for seed in 1..=8 {
            let mut sim = Sim::new(Bdp, &paths, workload, seed);
            sim.run(Duration::from_secs(1));
            let percent = 100.0 * sim.run(Duration::from_secs(2)).bytes_per_s() / bound(&paths, &workload);
            assert!(percent >= least, "depth {depth}, seed {seed}: {percent} %");
        }
    }
}

#[test]
fn a_slow_path_leaves_iops_and_tail_of_the_fast_one_alone() {
    for name in ["+30 ms on the first", "+30 ms on the second"] {
        let paths = links(name);
        let fast = [fastest(&paths)];
        for depth in [1, 32] {
            let workload = Workload::small(depth);
            let (mut alone, mut both) = (run(Numa, &fast, workload), run(Bdp, &paths, workload));
            assert!(both.iops() >= 0.99 * alone.iops(), "{name}, depth {depth}: {} IOPS", both.iops());
            assert!(both.quantile(0.999) <= alone.quantile(0.999).mul_f64(1.1), "{name}, depth {depth}");
            assert!(both.probe_share() <= 0.01, "{}", both.probe_share());
        }
    }
}

#[test]
fn for_latency_the_tail_stays_at_every_size() {
    let paths = links("+30 ms on the first");
    let policy = PolicySpec::new(Bdp, [("objective", "latency")]).expect("a parameter of bdp");
    for workload in [Workload::small(64), Workload::medium(16), Workload::mixed(4)] {
        let (mut alone, mut both) = (run(Numa, &paths[1..], workload), run(policy, &paths, workload));
        assert!(both.iops() >= 0.9 * alone.iops(), "{workload:?}: {} of {}", both.iops(), alone.iops());
        assert!(both.quantile(0.999) <= alone.quantile(0.999).mul_f64(1.1), "{workload:?}");
    }
}

#[test]
fn changes_are_followed_within_a_second() {
    let (near, far) = (link(1.0, 0.2), link(1.0, 30.2));
    for (before, after) in [([near, far], [far, near]), ([near, near], [near, far]), ([near, far], [near, near])] {
        for depth in [1, 32] {
            let workload = Workload::small(depth);
            let mut sim = Sim::new(Bdp, &before, workload, SEED);
            sim.run(Duration::from_secs(2));
            (0..).zip(after).for_each(|(index, model)| sim.change(index, model));
            let time = sim.time_to(0.9 * bound(&after, &workload), Duration::from_secs(5));
            assert!(time.is_some_and(|time| time <= Duration::from_secs(1)), "{after:?}, depth {depth}: {time:?}");
        }
    }
}

#[test]
fn an_awful_disk_does_not_spoil_the_others() {
    let paths = eight_disks();
    for depth in [8, 32] {
        let measure = |policy| {
            let mut sim = Sim::new(policy, &paths, Workload::small(depth), SEED);
            sim.run(Duration::from_secs(20));
            sim.run(Duration::from_secs(100))
        };
        let (mut bdp, mut queue_depth) = (measure(Bdp), measure(QueueDepth));
        assert!(bdp.iops() >= 0.97 * queue_depth.iops(), "depth {depth}: {} IOPS", bdp.iops());
        assert!(bdp.quantile(0.9999) <= queue_depth.quantile(0.9999) / 2, "depth {depth}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut measured = run(Bdp, &links("4:1"), Workload::mixed(16).with_reads(70));
        (measured.iops().to_bits(), measured.shares(), measured.quantile(0.99))
    };
    assert_eq!(run(), run());
}
