//! Which reads are hedged, on which path, and how many.

use super::*;

#[test]
fn a_hedge_takes_the_path_with_the_lowest_read_latency() {
    let mut t = Test::new();
    t.learn(P1, 4096, MS * 9 / 10);
    t.learn(P2, 4096, MS * 5 / 10);
    t.learn(P0, 4096, MS);
    t.hedge(0, P2);
    t.complete(P0, 0, Outcome::Success);
    t.group.set_draining(t.now, P2, true);
    t.hedge(1, P1);
    t.complete(P0, 1, Outcome::Success);
    // No other path is as good.
    t.group.ana_changed(t.now, P1, DiskId(0), AnaState::NonOptimized);
    t.read(2);
    assert_eq!(t.sleep_for(2 * MS), []);
}

#[test]
fn no_hedge_goes_to_a_path_known_to_take_longer() {
    let mut t = Test::new();
    t.learn(P2, 4096, 40 * MS);
    for _ in 0..20 {
        t.learn(P0, 4096, MS / 10);
    }
    // P1 has no known latency. A hedge that is only just late does not give P1 one. A hedge that takes long does.
    for late in [MS / 100, 50 * MS] {
        for _ in 0..8 {
            t.hedge(0, P1);
            t.sleep_for(late);
            t.complete(P0, 0, Outcome::Success);
            t.group.progress(t.now, P1, 1, None);
        }
        t.learn(P0, 4096, MS / 10);
        t.learn(P0, 4096, MS / 10);
    }
    t.read(1);
    assert_eq!(t.sleep_for(2 * MS), []);
}

#[test]
fn hedges_do_not_take_room_that_a_large_request_waits_for() {
    let mut t = Test::learned();
    t.group.set_policy(PolicyKind::RoundRobin);
    t.group.set_draining(t.now, P2, true);
    // One small read on each path.
    let mut on: Vec<PathId> = (0..2)
        .flat_map(|tag| t.read(tag))
        .map(|action| match action {
            Action::Issue { path, .. } => path,
            other => panic!("{other:?}"),
        })
        .collect();
    on.sort_unstable();
    assert_eq!(on, [P0, P1]);
    assert_eq!(t.submit_io(2, Op::Write, 64 << 20), [], "larger than what there is room for beside any other");
    assert_eq!(t.sleep_for(2 * MS), []);
}

#[test]
fn a_hedge_takes_up_room_on_its_path() {
    let mut t = Test::learned();
    t.hedge(0, P1);
    for path in [P0, P2] {
        t.group.set_draining(t.now, path, true);
    }
    let issued = (1..=u32::from(QUEUE_DEPTH)).flat_map(|tag| t.submit_io(tag, Op::Write, 4096)).count();
    assert_eq!(issued, usize::from(QUEUE_DEPTH) - 1);
    let failed = t.hedged(P1, 0, Outcome::Failed(IoError::Controller));
    assert_eq!(failed, [dropped(P1, 0), issue(P1, QUEUE_DEPTH.into())]);
}

#[test]
fn only_small_reads_of_a_known_size_are_hedged() {
    let mut t = Test::learned();
    t.learn(P0, MAX_HEDGE_BYTES, MS);
    t.submit_io(0, Op::Write, 4096);
    t.submit_io(1, Op::Read, MAX_HEDGE_BYTES + 512);
    t.submit_io(2, Op::Flush, 0);
    t.submit_io(3, Op::Read, 65_536);
    assert_eq!(t.sleep_for(10 * MS), []);
    t.submit_io(4, Op::Read, MAX_HEDGE_BYTES);
    assert_eq!(t.sleep_for(2 * MS), [hedge(P1, 4)]);
    // When hedging is off, nothing is hedged. Hedges under way go on.
    t.group.set_hedging(None);
    t.read(5);
    assert_eq!(t.sleep_for(10 * MS), []);
    assert_eq!(t.hedged(P1, 4, Outcome::Success), [recall(P0, 4)]);
    assert_eq!(t.complete(P0, 4, ABANDONED), [adopt(P1, 4), ok(4)]);
}

#[test]
fn nothing_is_hedged_before_read_latencies_are_known() {
    let mut t = Test::new();
    for _ in 0..99 {
        t.read(0);
        t.now += MS;
        t.complete(P0, 0, Outcome::Success);
    }
    t.now += 200 * MS;
    t.read(0);
    assert_eq!(t.sleep_for(50 * MS), []);
}

#[test]
fn eight_hedges_at_a_time_and_the_next_read_follows() {
    let mut t = Test::learned();
    t.group.set_hedging(Some(Hedging { quantile_permille: 950, budget_permille: 1000 }));
    t.learn(P0, 4096, MS);
    for tag in 0..10 {
        t.read(tag);
    }
    assert_eq!(t.sleep_for(2 * MS).len(), 8);
    assert_eq!(t.read(10), [issue(P0, 10)]);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [dropped(P1, 0), ok(0), hedge(P1, 8)]);
    // The budget is used up.
    assert_eq!(t.complete(P0, 1, Outcome::Success), [dropped(P1, 1), ok(1)]);
    assert_eq!(t.read(11), [issue(P0, 11), hedge(P1, 9)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// With any latencies and any changes of the settings.
    #[test]
    fn no_more_is_hedged_than_the_budget_allows(
        budget_permille in 1..=50_u16,
        reads in prop::collection::vec((0..20_u64, 0..100_u32), 200..1500),
    ) {
        let mut t = Test::new();
        let hedging = Hedging { quantile_permille: 500, budget_permille };
        t.group.set_hedging(Some(hedging));
        let (mut hedges, mut submitted) = (0, 0);
        for (ms, what) in reads {
            if what == 0 {
                t.group.set_hedging(None);
                t.group.set_hedging(Some(hedging));
            }
            submitted += 1;
            t.read(0);
            let slept = t.sleep_for(Duration::from_millis(ms));
            // Most hedges win, so that no path counts as slow.
            let hedge = slept.iter().find_map(|action| match action {
                Action::Hedge { path, .. } => Some(*path),
                _ => None,
            });
            hedges += u64::from(hedge.is_some());
            if let Some(path) = hedge.filter(|_| what % 10 != 0) {
                t.hedged(path, 0, Outcome::Success);
                t.complete(P0, 0, ABANDONED);
                t.group.progress(t.now, P0, 1, None);
            } else {
                t.complete(P0, 0, Outcome::Success);
                if let Some(path) = hedge {
                    t.group.progress(t.now, path, 1, None);
                }
            }
            prop_assert!(hedges * 1000 <= submitted * u64::from(budget_permille) + 8000);
        }
    }
}
