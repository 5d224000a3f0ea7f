//! Changes while requests run.

use monotonic::Duration;
use mpath_core::{ClassPolicies, Injection, LatencyCounts, Op, OpClass, PathId, PolicyKind, PolicySpec, Window};

use super::sim::{FAST, MS, Model, SLOW, Sim};

#[test]
fn an_injection_has_the_effect_of_a_slower_path() {
    let mut sim = Sim::reads(PolicyKind::RoundRobin, &[Model::Fixed(FAST), Model::Fixed(FAST)], 32);
    sim.group.set_injection(sim.now, PathId(0), None, Injection::latency(SLOW));
    sim.run(Duration::from_secs(1));
    let round_robin = sim.finished;
    let stats = sim.group.stats(sim.now);
    let slow = stats.paths[0].class(OpClass::Read).latency.ns();
    assert!(slow.value_at_quantile(0.5) >= 30_000_000, "injections are measured");
    // A live switch of the policy.
    sim.group.set_policy(PolicyKind::LatencyRr);
    sim.run(Duration::from_secs(1));
    assert!(sim.finished > 20 * round_robin, "{} after {round_robin}", sim.finished);
    // Both paths are good again. Both are used after one probe at the latest.
    sim.group.clear_injection(sim.now, PathId(0));
    sim.run(Duration::from_millis(1200));
    sim.run(Duration::from_secs(1));
    assert!((49..=51).contains(&sim.share_of_first()), "{}", sim.share_of_first());
}

#[test]
fn a_slow_second_is_in_the_latencies_of_that_second_and_not_in_those_after_it() {
    let mut sim = Sim::reads(PolicyKind::RoundRobin, &[Model::Fixed(FAST), Model::Fixed(FAST)], 32);
    let medians = |sim: &Sim| {
        [0, 1].map(|path| {
            let stats = sim.group.stats(sim.now);
            let reads = stats.paths[path].class(OpClass::Read);
            let of = |recent: Option<&LatencyCounts>| recent.and_then(|recent| recent.quantile(0.5));
            let since_start = Duration::from_nanos(reads.latency.ns().value_at_quantile(0.5));
            (of(reads.latency_1s.as_deref()), of(reads.latency_60s.as_deref()), since_start)
        })
    };
    assert_eq!(medians(&sim).map(|(second, minute, _)| (second, minute)), [(None, None); 2]);
    sim.run(Duration::from_secs(3));
    for path in [0, 1] {
        sim.group.set_injection(sim.now, PathId(path), None, Injection::latency(SLOW));
    }
    sim.run(Duration::from_secs(1));
    for (second, minute, since_start) in medians(&sim) {
        assert!(second >= Some(SLOW) && second <= Some(2 * SLOW), "{second:?}");
        assert!(minute < Some(SLOW) && since_start < SLOW, "most reads were fast: {minute:?} {since_start:?}");
    }
    for path in [0, 1] {
        sim.group.clear_injection(sim.now, PathId(path));
    }
    sim.run(Duration::from_millis(1100));
    for (second, ..) in medians(&sim) {
        assert!(second < Some(SLOW), "{second:?}");
    }
}

#[test]
fn a_policy_that_stays_in_force_keeps_its_estimates() {
    let slow = |sim: &mut Sim, policies: ClassPolicies| {
        sim.group.set_policy(policies);
        assert_eq!(*sim.group.policy(), policies);
        sim.run(100 * MS);
        sim.issued[1]
    };
    let latency_rr = |threshold| PolicySpec::new(PolicyKind::LatencyRr, [("threshold", threshold)]).expect("valid");
    let mut sim = Sim::reads(PolicyKind::LatencyRr, &[Model::Fixed(FAST), Model::Fixed(SLOW)], 4);
    sim.run(100 * MS);
    // No path is measured again: not without a change, and not when a parameter or the other class changes.
    assert_eq!(slow(&mut sim, PolicyKind::LatencyRr.into()), 0);
    assert_eq!(slow(&mut sim, latency_rr("1.5").into()), 0);
    let split = ClassPolicies { read: latency_rr("1.5"), write: PolicyKind::RoundRobin.into() };
    assert_eq!(slow(&mut sim, split), 0);
    // The policy of reads takes over all requests.
    assert_eq!(slow(&mut sim, latency_rr("1.5").into()), 0);
    sim.group.set_policy(PolicyKind::Numa);
    assert_eq!(slow(&mut sim, PolicyKind::LatencyRr.into()), 1, "a policy that is put into force knows nothing");
}

/// From any policy to one that uses only the first path. The switch affects the next request, and requests that
/// already wait.
#[test]
fn a_switch_counts_for_the_next_request() {
    let window = Window { ios: 4, bytes: 1 << 20 };
    let models = [Model::Fixed(FAST), Model::Fixed(FAST)];
    for kind in PolicyKind::ALL.into_iter().filter(|kind| *kind != PolicyKind::Numa) {
        let mut sim = Sim::new(kind, window, &models, 32, |tag| if tag % 3 == 0 { Op::Write } else { Op::Read });
        sim.run(5 * MS);
        let before = sim.issued.clone();
        sim.record();
        let switched_at = sim.now;
        sim.group.set_policy(PolicyKind::Numa);
        sim.run(5 * MS);
        let (first_at, _) = *sim.recorded().first().expect("a request a path is answered every 0.2 ms");
        assert!(first_at - switched_at < MS, "{kind}");
        assert!(sim.recorded().iter().all(|(_, path)| *path == 0), "{kind}: {before:?} and then {:?}", sim.issued);
    }
}

#[test]
fn reads_and_writes_have_separate_policies() {
    let models = [Model::Fixed(FAST), Model::Fixed(SLOW)];
    let op = |tag| if tag % 2 == 0 { Op::Read } else { Op::Write };
    let mut sim = Sim::new(PolicyKind::Numa, Window::default(), &models, 16, op);
    let policies = ClassPolicies { read: PolicyKind::LatencyRr.into(), write: PolicyKind::RoundRobin.into() };
    sim.group.set_policy(policies);
    sim.run(Duration::from_secs(2));
    let stats = sim.group.stats(sim.now);
    let ios = |path: usize, class| stats.paths[path].class(class).ios;
    assert!(ios(1, OpClass::Read) <= 6, "the first ones, and probes: {}", ios(1, OpClass::Read));
    assert!(ios(1, OpClass::Write).abs_diff(ios(0, OpClass::Write)) <= 16, "in turn");
}
