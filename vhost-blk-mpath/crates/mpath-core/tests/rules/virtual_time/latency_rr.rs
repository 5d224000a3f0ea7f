//! `latency-rr` on modelled paths.

use monotonic::Duration;
use mpath_core::{Op, PolicyKind, Window};

use super::sim::{FAST, MS, Model, SLOW, Sim, US, iops};

#[test]
fn latency_rr_is_far_ahead_of_round_robin_on_unequal_paths() {
    for models in [[Model::Fixed(FAST), Model::Fixed(SLOW)], [Model::Fixed(SLOW), Model::Fixed(FAST)]] {
        for (depth, fast_alone) in [(1, 5_000), (32, 160_000)] {
            let round_robin = iops(PolicyKind::RoundRobin, &models, depth);
            let latency_rr = iops(PolicyKind::LatencyRr, &models, depth);
            println!("depth {depth}: round-robin {round_robin} IOPS, latency-rr {latency_rr} IOPS");
            assert!(latency_rr > 20 * round_robin);
            assert!(latency_rr * 100 >= fast_alone * 95, "{latency_rr} of {fast_alone}");
        }
    }
}

#[test]
fn latency_rr_leaves_a_path_that_becomes_slow_within_few_requests() {
    for (depth, most) in [(1, 2), (32, 26)] {
        let mut sim = Sim::reads(PolicyKind::LatencyRr, &[Model::Fixed(FAST), Model::Fixed(FAST)], depth);
        sim.run(Duration::from_secs(2));
        assert!((49..=51).contains(&sim.share_of_first()));
        sim.models[0] = Model::Fixed(SLOW);
        sim.run(400 * MS);
        assert!(sim.issued[0] <= most, "depth {depth}: {} requests", sim.issued[0]);
        sim.models[0] = Model::Fixed(FAST);
        sim.run(Duration::from_millis(1200));
        sim.run(Duration::from_secs(1));
        assert!((49..=51).contains(&sim.share_of_first()), "back in turn");
    }
}

#[test]
fn latency_rr_leaves_a_silent_path() {
    let mut sim = Sim::reads(PolicyKind::LatencyRr, &[Model::Fixed(FAST), Model::Fixed(FAST)], 64);
    sim.run(Duration::from_secs(1));
    sim.models[0] = Model::Silent;
    sim.run(Duration::from_secs(2));
    // The path holds its half of the 64 requests, and half of the others before its silence shows.
    assert!(sim.issued[0] <= 48, "{} requests are stuck", sim.issued[0]);
    assert!(sim.finished > 150_000, "{}", sim.finished);
}

#[test]
fn latency_rr_leaves_a_silent_path_with_a_full_window() {
    let window = Window { ios: 4, bytes: 1 << 20 };
    let models = [Model::Fixed(FAST), Model::Fixed(SLOW)];
    let mut sim = Sim::new(PolicyKind::LatencyRr, window, &models, 16, |_| Op::Read);
    sim.run(Duration::from_secs(1));
    sim.models[0] = Model::Silent;
    sim.run(Duration::from_secs(3));
    // The slow path serves 4 requests at a time in 30 ms, once the silence exceeds its latency.
    assert!(sim.finished > 350, "{}", sim.finished);
}

#[test]
fn latency_rr_uses_equal_paths_equally_despite_scatter() {
    for depth in [1, 8, 32] {
        let models = [Model::Scattered(FAST); 3];
        let mut sim = Sim::reads(PolicyKind::LatencyRr, &models, depth);
        sim.run(200 * MS);
        for _ in 0..8 {
            sim.run(Duration::from_millis(200));
            let all: u64 = sim.issued.iter().sum();
            for issued in &sim.issued {
                assert!((25..=42).contains(&(issued * 100 / all)), "depth {depth}: {:?}", sim.issued);
            }
        }
    }
}

#[test]
fn latency_rr_measures_slow_paths_at_a_bounded_rate() {
    let mut models = vec![Model::Fixed(SLOW); 6];
    models[3] = Model::Fixed(FAST);
    let mut sim = Sim::reads(PolicyKind::LatencyRr, &models, 1);
    sim.run(Duration::from_secs(2));
    sim.run(Duration::from_secs(30));
    let probes: u64 = (0..6).filter(|path| *path != 3).map(|path| sim.issued[path]).sum();
    // One in 32 × 30 ms, with jitter up to 1/8 more.
    assert!((27..=32).contains(&probes), "{probes}");
    assert!((0..6).all(|path| sim.issued[path] >= 4), "nobody is forgotten: {:?}", sim.issued);
}

#[test]
fn latency_rr_estimates_reads_and_writes_separately() {
    let models = [Model::ByClass(FAST, SLOW), Model::ByClass(SLOW, FAST)];
    let op = |tag| if tag % 2 == 0 { Op::Read } else { Op::Write };
    let mut sim = Sim::new(PolicyKind::LatencyRr, Window::default(), &models, 16, op);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(2));
    assert!(sim.finished > 150_000, "{} of 160,000", sim.finished);
}

#[test]
fn latency_rr_waits_for_the_fast_path_unless_the_slow_one_answers_sooner() {
    let slower = |latency| [Model::Fixed(FAST), Model::Fixed(latency)];
    let window = Window { ios: 4, bytes: 1 << 20 };
    let run = |models: [Model; 2], depth| {
        let mut sim = Sim::new(PolicyKind::LatencyRr, window, &models, depth, |_| Op::Read);
        sim.run(Duration::from_secs(2));
        sim.run(Duration::from_secs(2));
        sim.issued[1]
    };
    // 28 wait behind 4 on the fast path: the last ends after 8 × 0.2 ms.
    let probes_only = 4;
    assert!(run(slower(SLOW), 32) <= probes_only);
    assert!(run(slower(1700 * US), 32) <= probes_only);
    assert!(run(slower(1300 * US), 32) > 1000, "4 at a time in 1.3 ms is worth it");
    assert!(run(slower(1300 * US), 5) <= probes_only, "but not for a single waiting request");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let models = [Model::Scattered(FAST), Model::Scattered(SLOW), Model::Scattered(FAST)];
        let mut sim = Sim::reads(PolicyKind::LatencyRr, &models, 16);
        sim.run(Duration::from_secs(1));
        (sim.finished, sim.issued.clone(), sim.now - sim.start)
    };
    assert_eq!(run(), run());
}
