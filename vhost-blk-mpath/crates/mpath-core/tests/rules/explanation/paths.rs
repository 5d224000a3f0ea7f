//! Why the next request does not take a path.

use std::num::NonZeroU64;

use mpath_core::Injection;

use super::*;

/// The latency in an opinion, in ms.
fn latency_ms(opinion: Option<Opinion>) -> u64 {
    match opinion {
        Some(
            Opinion::Latency { latency: Some(latency) }
            | Opinion::NotAdmitted { latency: Some(latency) }
            | Opinion::AnsweredIn { answered_in: latency },
        ) => latency.as_millis(),
        other => panic!("{other:?} has no latency"),
    }
}

#[test]
fn paths_take_turns_and_explaining_takes_none() {
    let mut t = Test::new(PolicyKind::RoundRobin);
    for (next, other) in [(P0, P1), (P1, P0), (P0, P1)] {
        assert_eq!((t.read().next, t.read().next), (Next::Path(next), Next::Path(next)));
        assert_eq!((t.why_not(next), t.why_not(other)), (None, Some(WhyNot::NotPreferred)));
        assert_eq!(t.opinion(other), Some(Opinion::Turn));
        t.serve(Op::Read, 1, |_| MS);
    }
}

#[test]
fn an_injected_latency_shows_as_a_worse_estimate() {
    let mut t = Test::new(PolicyKind::Latency);
    t.group.set_injection(t.now, P1, None, Injection::latency(30 * MS));
    t.serve(Op::Read, 20, |_| MS);
    assert_eq!((t.read().next, t.why_not(P1)), (Next::Path(P0), Some(WhyNot::NotPreferred)));
    assert_eq!((latency_ms(t.opinion(P0)), latency_ms(t.opinion(P1))), (1, 31));
    let injected = [P0, P1].map(|path| t.read().path(path).expect("it exists").is_injected);
    assert_eq!(injected, [false, true]);
}

#[test]
fn an_injected_rate_shows_as_a_worse_estimate() {
    let mut t = Test::new(PolicyKind::Latency);
    let rate = NonZeroU64::new(100 * 4096);
    t.group.set_injection(t.now, P1, None, Injection { rate, ..Injection::default() });
    t.serve(Op::Read, 20, |_| MS);
    assert_eq!((t.read().next, t.why_not(P1)), (Next::Path(P0), Some(WhyNot::NotPreferred)));
    assert_eq!((latency_ms(t.opinion(P0)), latency_ms(t.opinion(P1))), (1, 11));
    assert!(t.read().path(P1).expect("it exists").is_injected);
}

#[test]
fn bdp_does_not_admit_a_path_that_would_add_little() {
    let mut t = Test::new(PolicyKind::Bdp);
    t.group.set_injection(t.now, P1, None, Injection::latency(30 * MS));
    t.serve(Op::Read, 2000, |_| MS);
    assert_eq!(t.read().next, Next::Path(P0));
    assert!(matches!(t.opinion(P1), Some(Opinion::NotAdmitted { .. })), "{:?}", t.opinion(P1));
    assert_eq!(latency_ms(t.opinion(P0)), 1);
}

#[test]
fn ana_states_say_why() {
    let mut t = Test::new(PolicyKind::Numa);
    for ana in [AnaState::Inaccessible, AnaState::Change, AnaState::PersistentLoss] {
        t.group.ana_changed(t.now, P0, DISK, ana);
        assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P1), Some(WhyNot::Ana(ana))));
    }
    t.group.ana_changed(t.now, P0, DISK, AnaState::NonOptimized);
    assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P1), Some(WhyNot::NonOptimized)));
}

#[test]
fn a_drained_path_and_a_disabled_path() {
    let mut t = Test::new(PolicyKind::Numa);
    t.group.set_draining(t.now, P0, true);
    assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P1), Some(WhyNot::Draining)));
    // The daemon closes a disabled path when it is drained.
    t.group.path_lost(t.now, P0);
    assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P1), Some(WhyNot::Down)));
}

#[test]
fn a_full_window() {
    let mut t = Test::with_window(PolicyKind::RoundRobin, 1, 1 << 20);
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P1), Some(WhyNot::WindowFull)));
    assert_eq!(t.read().path(P0).map(|of| (of.in_flight, of.in_flight_bytes)), Some((1, 4096)));
    assert_eq!(t.submit(1, Op::Read), [issue(P1, 1)]);
    assert_eq!((t.read().next, t.why_not(P1)), (Next::NoRoom, Some(WhyNot::WindowFull)));
}

#[test]
fn room_that_an_earlier_request_waits_for() {
    let mut t = Test::with_window(PolicyKind::Numa, 8, 8192);
    t.group.set_draining(t.now, P1, true);
    let io = |tag, bytes, flow| Io { tag: Tag(tag), op: Op::Read, bytes, disk: DISK, flow: FlowId(flow), fua: false };
    assert_eq!(t.submit_io(io(0, 4096, 0)), [issue(P0, 0)]);
    assert_eq!(t.submit_io(io(1, 8192, 0)), []);
    let write = t.group.explain(t.now, DISK).write;
    assert_eq!((write.next, write.waits), (Next::NoRoom, false));
    assert_eq!(write.path(P0).and_then(|of| of.why_not), Some(WhyNot::RoomReserved), "the large read goes first");
    assert_eq!((t.read().bytes, t.read().waits), (8192, true));
    assert_eq!(t.why_not(P0), Some(WhyNot::WindowFull));
}

#[test]
fn a_path_rests_after_a_path_error() {
    let mut t = Test::new(PolicyKind::Numa);
    t.submit(0, Op::Read);
    assert_eq!(t.complete(P0, 0, Outcome::PathError), [issue(P1, 0)]);
    t.now += 40 * MS;
    assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P1), Some(WhyNot::Resting { ends_in: 60 * MS })));
}

#[test]
fn a_suspect_path_is_left_out_while_another_is_usable() {
    let mut t = Test::new(PolicyKind::Numa);
    assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
    t.now += 301 * MS;
    t.actions();
    assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P1), Some(WhyNot::Suspect)));
    t.group.path_lost(t.now, P1);
    assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P0), None), "better than none");
    assert!(t.read().path(P0).expect("it exists").is_suspect);
}

#[test]
fn a_lost_path() {
    let mut t = Test::new(PolicyKind::Numa);
    t.group.path_lost(t.now, P0);
    assert_eq!((t.read().next, t.why_not(P0)), (Next::Path(P1), Some(WhyNot::Down)));
}

#[test]
fn a_controller_that_asked_for_a_delay() {
    let mut t = Test::with_window(PolicyKind::Numa, 1, 1 << 20);
    t.group.set_draining(t.now, P0, true);
    assert_eq!(t.submit(1, Op::Write), [issue(P1, 1)]);
    t.group.set_draining(t.now, P0, false);
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    t.complete(P0, 0, crate::retry(300 * MS));
    assert_eq!(t.only_retry().ends_in, Some(300 * MS));
    t.now += 299 * MS;
    assert_eq!(t.actions(), []);
    assert_eq!(t.only_retry().ends_in, Some(MS));
}

#[test]
fn a_path_that_has_just_failed_the_request_is_avoided() {
    let mut t = Test::with_window(PolicyKind::RoundRobin, 1, 1 << 20);
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!(t.submit(1, Op::Read), [issue(P1, 1)]);
    assert_eq!(t.complete(P0, 0, crate::retry(Duration::ZERO)), []);
    assert_eq!((t.read().next, t.read().waits), (Next::NoRoom, true));
    assert_eq!((t.why_not(P0), t.why_not(P1)), (Some(WhyNot::Avoided), Some(WhyNot::WindowFull)));
}

#[test]
fn other_policies_show_what_they_compare() {
    let mut t = Test::new(PolicyKind::QueueDepth);
    t.submit(0, Op::Read);
    assert_eq!((t.read().next, t.opinion(P0)), (Next::Path(P1), Some(Opinion::InFlight { in_flight: 1 })));
    t.group.set_policy(PolicyKind::ServiceTime);
    assert_eq!((t.read().next, t.opinion(P0)), (Next::Path(P1), Some(Opinion::Service { bytes: 8192 })));
    t.group.set_policy(PolicyKind::Numa);
    assert_eq!((t.read().next, t.opinion(P1)), (Next::Path(P0), Some(Opinion::NumaDistance { distance: 10 })));
    t.group.set_policy(PolicyKind::Pid);
    assert_eq!((t.read().next, t.opinion(P1)), (Next::Path(P0), Some(Opinion::Kept { here: false })));
    t.group.set_policy(PolicyKind::Adaptive);
    assert_eq!((t.read().next, t.opinion(P1)), (Next::Path(P0), Some(Opinion::Measurement)));
    // While one path is measured and the other is known, the new one gets a request at a time.
    t.group.set_policy(PolicyKind::LatencyRr);
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.submit(1, Op::Read), [issue(P1, 1)]);
    assert_eq!((t.read().next, t.opinion(P1)), (Next::Path(P0), Some(Opinion::BeingMeasured)));
}

impl Test {
    fn only_retry(&self) -> Waiting {
        let retries: Vec<_> = self.waiting().into_iter().filter(|of| of.cause == WaitCause::Retry).collect();
        let [retry] = retries[..] else { panic!("{:?}", self.waiting()) };
        assert_eq!((retry.path, retry.requests), (Some(P0), 1));
        retry
    }
}
