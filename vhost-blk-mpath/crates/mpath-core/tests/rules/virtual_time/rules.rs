//! The rules of the other policies, and their results.

use std::fmt::Write;

use monotonic::Duration;
use mpath_core::{ClassPolicies, DiskId, FlowId, Hedging, Injection, Io, Op, PathId, PolicyKind, Tag, Window};

use proptest::prelude::*;

use super::sim::{FAST, MS, Model, SLOW, Sim, US, iops, with};

#[test]
fn a_full_slow_path_does_not_block_round_robin() {
    let window = Window { ios: 8, bytes: 1 << 20 };
    let models = [Model::Fixed(SLOW), Model::Fixed(FAST)];
    let mut sim = Sim::new(PolicyKind::RoundRobin, window, &models, 32, |_| Op::Read);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(1));
    // 8 at a time in 0.2 ms on the fast path alone.
    assert!(sim.finished > 39_000, "{}", sim.finished);
}

/// A hedge that wins is no reason to measure the rate of the slow path again.
#[test]
fn hedges_cost_no_throughput() {
    let models = [Model::Scattered(MS), Model::Scattered(MS)];
    for policy in [PolicyKind::Bdp, PolicyKind::LatencyRr, PolicyKind::QueueDepth] {
        let [plain, hedged] = [None, Some(Hedging { quantile_permille: 970, budget_permille: 50 })].map(|hedging| {
            let mut sim = Sim::reads(policy, &models, 32);
            sim.group.set_hedging(hedging);
            sim.run(Duration::from_secs(1));
            sim.run(Duration::from_secs(5));
            assert_eq!(sim.recalled > 100, hedging.is_some(), "{policy}: {}", sim.recalled);
            sim.finished
        });
        assert!(hedged * 100 >= plain * 95, "{policy}: {hedged} with hedges, {plain} without");
    }
}

/// Probes show that a hedge on the unused path would be too late.
#[test]
fn no_hedge_goes_to_a_path_known_to_be_slow() {
    let mut sim = Sim::reads(PolicyKind::Bdp, &[Model::Scattered(MS), Model::Fixed(SLOW), Model::Fixed(2 * MS)], 1);
    sim.group.set_hedging(Some(Hedging { quantile_permille: 990, budget_permille: 50 }));
    sim.run(Duration::from_secs(10));
    let stats = sim.group.stats(sim.now);
    assert_eq!(stats.paths[1].hedges, 0);
    assert!(stats.paths[2].hedges > 50, "{}", stats.paths[2].hedges);
}

#[test]
fn queue_depth_and_numa_follow_their_rules() {
    let models = [Model::Fixed(SLOW), Model::Fixed(FAST)];
    let mut sim = Sim::reads(PolicyKind::QueueDepth, &models, 32);
    sim.run(Duration::from_secs(1));
    // Half of the 32 are on the slow path, at any latency.
    assert!((530..=550).contains(&sim.issued[0]), "{:?}", sim.issued);
    let mut sim = Sim::reads(PolicyKind::Numa, &models, 32);
    sim.run(Duration::from_secs(1));
    assert_eq!(sim.issued[1], 0);
}

/// Two paths, one of them 30 ms slower, in either order.
const UNEQUAL: [[Model; 2]; 2] = [[Model::Fixed(FAST), Model::Fixed(SLOW)], [Model::Fixed(SLOW), Model::Fixed(FAST)]];

/// `adaptive` with intervals that fit into a short run.
fn adaptive() -> ClassPolicies {
    with(PolicyKind::Adaptive, &[("interval", "100ms")])
}

#[test]
fn adaptive_makes_in_flight_equal() {
    for slower in [2, 9] {
        let mut sim = Sim::reads(adaptive(), &[Model::Fixed(MS), Model::Fixed(slower * MS)], 64);
        sim.run(Duration::from_secs(5));
        sim.run(Duration::from_secs(5));
        // Little's law: in flight = rate × latency.
        let in_flight = [sim.issued[0], sim.issued[1] * u64::from(slower)].map(|product| product / 5000);
        let adaptive = sim.finished;
        let mut sim = Sim::reads(PolicyKind::QueueDepth, &[Model::Fixed(MS), Model::Fixed(slower * MS)], 64);
        sim.run(Duration::from_secs(5));
        sim.run(Duration::from_secs(5));
        println!("1:{slower}: {in_flight:?} in flight, {adaptive} I/Os, queue-depth {}", sim.finished);
        assert!(in_flight[0].abs_diff(in_flight[1]) <= 6, "{in_flight:?}");
        assert!(adaptive.abs_diff(sim.finished) * 10 <= sim.finished, "no better and no worse than queue-depth");
    }
}

#[test]
fn adaptive_is_far_ahead_of_numa_and_round_robin_on_unequal_paths() {
    for depth in [8, 32] {
        let [fast_first, slow_first] = UNEQUAL.map(|models| iops(adaptive(), &models, depth));
        let numa = iops(PolicyKind::Numa, &UNEQUAL[1], depth);
        let round_robin = iops(PolicyKind::RoundRobin, &UNEQUAL[1], depth);
        println!("depth {depth}: adaptive {fast_first} and {slow_first}, numa {numa}, round-robin {round_robin} IOPS");
        assert!(slow_first >= 7 * numa && slow_first * 10 >= round_robin * 33);
        assert!(fast_first.abs_diff(slow_first) * 10 <= fast_first, "whichever is first");
    }
    // Two thirds of the requests still wait on the slow path: its least weight sends it every 64th.
    let mut sim = Sim::reads(adaptive(), &UNEQUAL[0], 32);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(3));
    assert!((60..=66).contains(&(sim.issued.iter().sum::<u64>() / sim.issued[1])), "{:?}", sim.issued);
}

#[test]
fn adaptive_uses_equal_paths_equally() {
    let mut sim = Sim::reads(adaptive(), &[Model::Scattered(FAST); 2], 32);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(2));
    assert!((45..=55).contains(&sim.share_of_first()), "{}", sim.share_of_first());
}

/// A weakness that the documentation describes.
#[test]
fn adaptive_needs_many_intervals_to_notice_a_change() {
    let mut sim = Sim::reads(adaptive(), &[Model::Fixed(MS); 2], 32);
    sim.run(Duration::from_secs(1));
    sim.models[0] = Model::Fixed(10 * MS);
    let mut shares = Vec::new();
    for _ in 0..40 {
        sim.run(100 * MS);
        shares.push(sim.share_of_first());
    }
    println!("share of the path that became slow, by interval: {shares:?}");
    // Its fair share is 1/11.
    assert!(shares[1] > 25, "{shares:?}");
    assert!((5..=13).contains(&shares[39]), "{shares:?}");
}

#[test]
fn a_path_so_slow_that_its_samples_do_not_count_gets_one_request_at_a_time() {
    let mut sim = Sim::reads(adaptive(), &[Model::Fixed(FAST); 2], 8);
    sim.group.set_injection(sim.now, PathId(1), None, Injection::latency(Duration::from_secs(2)));
    sim.run(Duration::from_secs(10));
    assert!(sim.issued[1] <= 10 && sim.finished > 9 * 5000 * 7, "{:?}", sim.issued);
}

#[test]
fn latency_goes_to_the_fastest_path_and_follows_it() {
    for models in UNEQUAL {
        for (depth, fast_alone) in [(1, 5_000), (32, 160_000)] {
            let latency = iops(PolicyKind::Latency, &models, depth);
            println!("depth {depth}: {latency} IOPS");
            assert!(latency * 100 >= fast_alone * 95, "{latency} of {fast_alone}");
        }
    }
    let mut sim = Sim::reads(PolicyKind::Latency, &UNEQUAL[0], 8);
    sim.run(Duration::from_secs(1));
    sim.models.swap(0, 1);
    // Long enough for the next measurement of the path that is fast now.
    sim.run(Duration::from_millis(1200));
    sim.run(Duration::from_secs(1));
    assert!(sim.share_of_first() <= 1 && sim.finished > 38_000, "{:?}", sim.issued);
}

/// The published rehabilitation counts I/Os: of 10,100 I/Os, 100 take 30 ms each.
#[test]
fn rehabilitation_by_ios_costs_most_of_the_iops_and_by_time_little() {
    for kind in [PolicyKind::Latency, PolicyKind::LatencyRr] {
        let run = |rehabilitation| {
            let mut sim = Sim::reads(with(kind, &[("rehabilitation", rehabilitation)]), &UNEQUAL[0], 1);
            sim.run(Duration::from_secs(5));
            sim.run(Duration::from_secs(20));
            (sim.finished / 20, sim.issued[1], sim.quantile(0.999))
        };
        let (ios, time) = (run("ios"), run("time"));
        println!("{kind}: (IOPS, slow, p99.9) by I/Os {ios:?}, by time {time:?}, the fast path alone 5000");
        assert!((1900..=2100).contains(&ios.0), "10,000 × 0.2 ms + 100 × 30 ms per 10,100");
        assert!(ios.2 >= 29 * MS && time.2 <= FAST + 5 * US, "{ios:?} {time:?}");
        assert!(time.0 >= 4800 && (15..=25).contains(&time.1), "{time:?}");
    }
}

#[test]
fn pid_keeps_each_virtqueue_on_its_path() {
    let io =
        |n: u32| Io { tag: Tag(n), op: Op::Read, bytes: 4096, disk: DiskId(0), flow: FlowId(n as u16), fua: false };
    let mut sim = Sim::of(PolicyKind::Pid, Window::default(), &UNEQUAL[0], (0..4).map(io).collect());
    sim.run(Duration::from_secs(3));
    // Two virtqueues each, one request at a time.
    assert_eq!(sim.issued, [2 * (15_000 + 1), 2 * (100 + 1)]);
}

/// Four requests in five are small, but not the bytes.
fn mixed_sizes() -> Vec<Io> {
    let bytes = |n| if n % 5 == 0 { 256 << 10 } else { 4096 };
    (0..32)
        .map(|n| Io { tag: Tag(n), op: Op::Read, bytes: bytes(n), disk: DiskId(0), flow: FlowId(0), fua: false })
        .collect()
}

#[test]
fn service_time_fills_pipes_of_different_throughput() {
    let pipes = [Model::Pipe(400_000_000), Model::Pipe(100_000_000)];
    let throughput = |policy: PolicyKind| {
        let mut sim = Sim::of(policy, Window::default(), &pipes, mixed_sizes());
        sim.run(Duration::from_secs(1));
        sim.run(Duration::from_secs(4));
        sim.bytes / 4_000_000
    };
    let (service_time, round_robin) = (throughput(PolicyKind::ServiceTime), throughput(PolicyKind::RoundRobin));
    println!("MB/s of 500: service-time {service_time}, round-robin {round_robin}");
    assert!(service_time >= 495 && round_robin < 400, "{service_time} {round_robin}");
}

/// The figures of docs/design-notes/policies.md for every policy: IOPS and the 99.9th percentile on a path of 0.2 ms and one of 30
/// ms.
#[test]
fn every_policy_on_unequal_paths() {
    for kind in PolicyKind::ALL {
        let policies = if kind == PolicyKind::Adaptive { adaptive() } else { kind.into() };
        let mut line = format!("{policies}:");
        let [fast_first, slow_first] = UNEQUAL;
        for (order, models, depth, secs) in
            [("fast first", fast_first, 1, 20), ("slow first", slow_first, 1, 20), ("slow first", slow_first, 32, 1)]
        {
            let mut sim = Sim::reads(policies, &models, depth);
            // A new path is measured by requests of the guest, once. These are not counted here.
            sim.run(Duration::from_secs(1));
            let before = sim.latencies();
            sim.run(Duration::from_secs(secs));
            let mut latencies = sim.latencies();
            latencies.subtract(&before).expect("what came after");
            let tail = Duration::from_nanos(latencies.value_at_quantile(0.999));
            let iops = sim.finished / secs;
            // A write to a string cannot fail.
            let _ = write!(line, " {order}, depth {depth}: {iops} IOPS, p99.9 {tail:.1?};");
            // At least the slow path alone, at most both together.
            let (fast_alone, slow_alone) = (5000 * u64::from(depth), 33 * u64::from(depth));
            assert!((slow_alone..=fast_alone + 34 * u64::from(depth)).contains(&iops), "{line}");
            if matches!(kind, PolicyKind::Latency | PolicyKind::LatencyRr) {
                assert!(iops * 100 >= fast_alone * 97 && tail < MS, "{line}");
            }
        }
        println!("{line}");
    }
}

/// The longest time that an eligible path goes without a request or a probe, from docs/policies.md. It is in requests
/// and in time, and both must pass. `None`: the rule may leave a path alone for good.
fn starved_at_most(policies: &ClassPolicies, paths: usize) -> Option<(usize, Duration)> {
    let count = |name: &str| {
        let mut params = policies.read.params();
        let (_, value) = params.find(|(param, _)| param.name() == name).expect("a parameter of its own");
        value.parse::<usize>().expect("a count")
    };
    match policies.read.kind() {
        PolicyKind::RoundRobin => Some((paths - 1, Duration::ZERO)),
        // Each other path has at most all credits, if weights change at the wrong moment.
        PolicyKind::Adaptive => Some((count("credits") * (paths - 1) + paths - 1, Duration::ZERO)),
        PolicyKind::Latency | PolicyKind::LatencyRr if policies.to_string().contains("rehabilitation=ios") => {
            Some((count("age") + (paths + 1) * count("burst"), Duration::ZERO))
        }
        // One probe per two hundred requests if other paths use credit, in turns, and the time while probes are under
        // way.
        PolicyKind::Bdp => Some((200 * (paths + 1), Duration::from_millis(200 + 50))),
        // A probe at least every 4.5 s, in turns, and the time of one probe.
        PolicyKind::Latency | PolicyKind::LatencyRr => {
            Some((0, Duration::from_millis(4500 + 50) * u32::try_from(paths).expect("few")))
        }
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 54, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random paths with changing latencies, and a closed loop on them.
    #[test]
    fn no_path_starves_beyond_the_documented_time(
        which in 0..9_usize,
        latencies in prop::collection::vec(1_u32..50, 2..6),
        later in prop::collection::vec(1_u32..50, 6),
        depth in 1_u32..6,
    ) {
        let by_ios = |kind| with(kind, &[("rehabilitation", "ios"), ("age", "200"), ("burst", "10")]);
        let policies = [
            PolicyKind::RoundRobin.into(),
            adaptive(),
            with(PolicyKind::Adaptive, &[("interval", "20ms"), ("credits", "8"), ("shift", "0")]),
            PolicyKind::Latency.into(),
            PolicyKind::LatencyRr.into(),
            with(PolicyKind::LatencyRr, &[("threshold", "1"), ("memory", "10ms"), ("probe-cost", "200")]),
            by_ios(PolicyKind::Latency),
            by_ios(PolicyKind::LatencyRr),
            PolicyKind::Bdp.into(),
        ][which];
        let paths = latencies.len();
        let (requests, time) = starved_at_most(&policies, paths).expect("one that starves nobody");
        let models: Vec<Model> = latencies.iter().map(|ms| Model::Fixed(*ms * MS)).collect();
        let mut sim = Sim::reads(policies, &models, depth);
        sim.record();
        for round in 0..4 {
            sim.run(Duration::from_secs(8));
            for (model, ms) in sim.models.iter_mut().zip(&later[round % 3..]) {
                *model = Model::Fixed(*ms * MS);
            }
        }
        let mut last = vec![(0, sim.start); paths];
        for (n, (at, path)) in sim.recorded().iter().enumerate() {
            for (other, (since, when)) in last.iter().enumerate() {
                let passed_over = (n - since).saturating_sub((other == *path).into());
                let waited = *at - *when;
                // At first, a path that is busy with its one measurement gets no other request.
                let by_requests = requests == 0 || *when - sim.start > 100 * MS && passed_over > requests;
                let by_time = time.is_zero() || waited > time;
                prop_assert!(!(by_requests && by_time), "{policies}: path {other}: {passed_over} requests, {waited:?}");
            }
            last[*path] = (n, *at);
        }
        prop_assert!(sim.recorded().len() > 100);
    }
}
