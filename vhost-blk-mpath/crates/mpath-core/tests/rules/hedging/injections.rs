//! Hedges, and reads with hedges, under injections.

use super::*;

#[test]
fn a_read_that_an_injection_keeps_is_hedged() {
    let error = Some(InjectedError { per_million: 1_000_000, outcome: Outcome::Failed(IoError::Controller) });
    let slow = Injection::latency(1000 * MS);
    let stall = Injection { stall: true, ..Injection::default() };
    for injection in [slow, stall, Injection { error, ..slow }] {
        for direction in [Direction::Request, Direction::Response] {
            let mut t = Test::learned();
            t.group.set_injection(t.now, P0, None, Injection { direction, ..injection });
            let answered = direction == Direction::Response;
            if answered {
                assert_eq!(t.read(0), [issue(P0, 0)]);
                assert_eq!(t.complete(P0, 0, Outcome::Success), []);
            } else {
                assert_eq!(t.read(0), []);
            }
            assert_eq!(t.sleep_for(2 * MS), [hedge(P1, 0)]);
            assert_eq!(t.hedged(P1, 0, Outcome::Success), [adopt(P1, 0), ok(0)], "{direction} {injection:?}");
            assert_eq!(t.path(P0).class(OpClass::Read).in_flight, 0);
            // Nothing of the hedge is left behind.
            assert_eq!(t.sleep_for(2000 * MS), []);
            t.group.clear_injection(t.now, P0);
            assert_eq!(t.actions(), []);
        }
    }
}

#[test]
fn a_hedged_read_that_its_injection_has_just_released_is_not_sent() {
    for stall in [false, true] {
        let mut t = Test::learned();
        t.group.set_injection(t.now, P0, None, Injection { stall, ..Injection::latency(1000 * MS) });
        assert_eq!(t.read(0), []);
        assert_eq!(t.sleep_for(2 * MS), [hedge(P1, 0)]);
        t.group.clear_injection(t.now, P0);
        assert_eq!(t.hedged(P1, 0, Outcome::Success), [adopt(P1, 0), ok(0)]);
    }
}

#[test]
fn injections_apply_to_hedges() {
    let error = |outcome| Some(InjectedError { per_million: 1_000_000, outcome });
    let failing = Injection { error: error(Outcome::PathError), ..Injection::default() };
    // The hedge fails at once, and is not sent.
    let mut t = Test::learned();
    t.group.set_injection(t.now, P1, None, failing);
    t.read(0);
    assert_eq!(t.sleep_for(2 * MS), []);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0)]);
    // Its answer fails too.
    let mut t = Test::learned();
    t.group.set_injection(t.now, P1, None, Injection { direction: Direction::Response, ..failing });
    t.hedge(0, P1);
    assert_eq!(t.hedged(P1, 0, Outcome::Success), [dropped(P1, 0)]);
    // The injection delays both.
    let mut t = Test::learned();
    t.group.set_injection(t.now, P1, None, Injection::latency(3 * MS));
    t.read(0);
    assert_eq!(t.sleep_for(2 * MS), []);
    assert_eq!(t.sleep(), (3 * MS, vec![hedge(P1, 0)]));
    let response = Injection { direction: Direction::Response, ..Injection::latency(3 * MS) };
    t.group.set_injection(t.now, P1, None, response);
    assert_eq!(t.hedged(P1, 0, Outcome::Success), []);
    assert_eq!(t.sleep(), (3 * MS, vec![recall(P0, 0)]));
    assert_eq!(t.complete(P0, 0, ABANDONED), [adopt(P1, 0), ok(0)]);
    // Delayed hedges are forgotten with their reads, and go on when the injection ends.
    for direction in [Direction::Request, Direction::Response] {
        for clear in [false, true] {
            let mut t = Test::learned();
            let stall = Injection { direction, stall: true, ..Injection::default() };
            t.group.set_injection(t.now, P1, None, stall);
            t.read(0);
            let sent = t.sleep_for(2 * MS);
            if direction == Direction::Response {
                assert_eq!(sent, [hedge(P1, 0)]);
                assert_eq!(t.hedged(P1, 0, Outcome::Success), []);
            } else {
                assert_eq!(sent, []);
            }
            if clear {
                t.group.clear_injection(t.now, P1);
                let next = if direction == Direction::Response { recall(P0, 0) } else { hedge(P1, 0) };
                assert_eq!(t.actions(), [next]);
            } else {
                let told = if direction == Direction::Response { vec![dropped(P1, 0)] } else { vec![] };
                assert_eq!(t.complete(P0, 0, Outcome::Success), [told, vec![ok(0)]].concat());
                t.group.clear_injection(t.now, P1);
                assert_eq!(t.actions(), []);
            }
        }
    }
}
