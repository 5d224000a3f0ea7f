//! Turns, tiers and whole bursts.

use super::*;

const ONE: u32 = WHOLE;

fn burst(cost: u64) -> Burst {
    Burst { cost, weight: 1 << 20 }
}

/// The flow whose turn comes after `turn` others.
fn at(rings: &mut Rings, turn: usize, order: [Tier; 3], share: impl Fn(FlowId) -> u32) -> Option<Place> {
    let mut place = None;
    for _ in 0..=turn {
        place = rings.next(place, order);
        if place.is_some_and(|place| rings.owes(place)) {
            let tier = place?.tier;
            rings.settle(tier, &share);
            place = rings.front(tier);
        }
        place?;
    }
    place
}

/// Serves flows that always have another request of their cost; how much each got.
fn serve(costs: &[u64], weights: &[u32], turns: usize) -> Vec<u64> {
    let mut rings = Rings::default();
    let mut served = vec![0; costs.len()];
    let weight = |flow: FlowId| weights[usize::from(flow.0)];
    for flow in (0..costs.len() as u16).map(FlowId) {
        rings.add(flow, Tier::Normal, weight(flow), Burst::NONE);
    }
    for _ in 0..turns {
        let place = at(&mut rings, 0, Tier::ALL, weight).expect("all wait");
        let index = usize::from(place.flow.0);
        rings.take(place, costs[index]);
        served[index] += costs[index];
        rings.put_back(place, Tier::Normal, weight(place.flow), costs[index], Burst::NONE);
    }
    served
}

#[test]
fn equal_requests_alternate() {
    for (at, turns) in [(0, 9), (1, 10), (2, 11)] {
        let served = serve(&[4096; 3], &[ONE; 3], turns);
        assert_eq!(served.iter().map(|cost| cost / 4096).sum::<u64>(), turns as u64);
        assert!(served.iter().all(|cost| (3..=4).contains(&(cost / 4096))), "{at}: {served:?}");
    }
}

/// While the first one finds no path the others go, and one of them sends large requests.
#[test]
fn what_goes_out_of_turn_is_not_in_debt_for_ever() {
    let mut rings = Rings::default();
    let large = |flow: FlowId| if flow.0 == 1 { 1 << 20 } else { 4096 };
    for flow in (0..3).map(FlowId) {
        rings.add(flow, Tier::Normal, ONE, Burst::NONE);
    }
    for _ in 0..100_000 {
        let place = at(&mut rings, 1, Tier::ALL, |_| ONE).expect("all wait");
        rings.take(place, large(place.flow));
        rings.put_back(place, Tier::Normal, ONE, large(place.flow), Burst::NONE);
    }
    // It is owed for one request: a quantum is half of it.
    let mut turns = 0;
    while at(&mut rings, 0, Tier::ALL, |_| ONE).expect("all wait").flow != FlowId(1) {
        let place = at(&mut rings, 0, Tier::ALL, |_| ONE).expect("all wait");
        rings.take(place, 4096);
        rings.put_back(place, Tier::Normal, ONE, 4096, Burst::NONE);
        turns += 1;
        assert!(turns < 2000, "it never has its turn");
    }
}

#[test]
fn shares_are_of_cost_and_by_weight() {
    let served = serve(&[4096, 1 << 20, 512], &[ONE; 3], 200_000);
    let (least, most) = (served.iter().min().copied().unwrap(), served.iter().max().copied().unwrap());
    assert!(most - least <= 4 << 20, "{served:?}");
    let served = serve(&[4096, 65536], &[ONE, 3 * ONE], 100_000);
    let per_mille = 1000 * served[1] / served[0];
    assert!((2900..3100).contains(&per_mille), "{served:?}");
}

#[test]
fn tiers_in_order_and_the_normal_one_first_if_it_is_owed() {
    let mut rings = Rings::default();
    for (flow, tier) in [(0, Tier::Normal), (1, Tier::Second), (2, Tier::First), (3, Tier::Normal)] {
        rings.add(FlowId(flow), tier, ONE, burst(4096));
    }
    let mut seen = |order| -> Vec<u16> {
        (0..9).map_while(|turn| at(&mut rings, turn, order, |_| ONE)).map(|place| place.flow.0).collect()
    };
    assert_eq!(seen(Tier::ALL), [2, 1, 0, 3]);
    assert_eq!(seen(Tier::NORMAL_FIRST), [0, 3, 2, 1]);
}

#[test]
fn what_goes_out_of_turn_saves_nothing_up() {
    let mut rings = Rings::default();
    (0..3).for_each(|flow| rings.add(FlowId(flow), Tier::Normal, ONE, Burst::NONE));
    // The flow in front waits for a path with room, the others are served meanwhile, one of them in small requests.
    for _ in 0..1000 {
        let place = at(&mut rings, 1, Tier::ALL, |_| ONE).unwrap();
        let cost = if place.flow == FlowId(1) { 512 } else { 65_536 };
        rings.take(place, cost);
        rings.put_back(place, Tier::Normal, ONE, cost, Burst::NONE);
    }
    assert!(rings.deficits.iter().all(|deficit| *deficit <= 65_536 << FRACTION_BITS), "{:?}", rings.deficits);
}

/// Serves what the second tier has; the flows in the order in which their requests went.
fn serve_second(rings: &mut Rings, mut queued: Vec<u64>) -> Vec<u16> {
    let mut order = Vec::new();
    while let Some(place) = rings.front(Tier::Second) {
        let left = &mut queued[usize::from(place.flow.0)];
        order.push(place.flow.0);
        rings.take(place, 4096);
        *left -= 1;
        if *left > 0 {
            rings.put_back(place, Tier::Second, ONE, 4096, burst(*left * 4096));
        }
    }
    order
}

#[test]
fn in_the_second_tier_bursts_go_whole_and_small_ones_need_not_wait_for_large_ones() {
    let mut rings = Rings::default();
    let ios = vec![4, 4, 2];
    for (flow, ios) in (0..).zip(&ios) {
        rings.add(FlowId(flow), Tier::Second, ONE, burst(*ios * 4096));
    }
    assert_eq!(serve_second(&mut rings, ios), [2, 2, 0, 0, 0, 0, 1, 1, 1, 1]);
}

/// Its finish tag is that of what it had when it came.
#[test]
fn a_burst_that_grows_lets_those_go_that_came_meanwhile() {
    let mut rings = Rings::default();
    rings.add(FlowId(0), Tier::Second, ONE, burst(2 * 4096));
    rings.add(FlowId(1), Tier::Second, ONE, burst(4 * 4096));
    let first = rings.front(Tier::Second).unwrap();
    rings.take(first, 4096);
    rings.put_back(first, Tier::Second, ONE, 4096, burst(6 * 4096));
    assert_eq!(serve_second(&mut rings, vec![6, 4]), [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_flow_passed_over_keeps_its_turn() {
    let mut rings = Rings::default();
    (0..3).for_each(|flow| rings.add(FlowId(flow), Tier::Normal, ONE, Burst::NONE));
    let second = at(&mut rings, 1, Tier::ALL, |_| ONE).unwrap();
    rings.take(second, 4096);
    rings.put_back(second, Tier::Normal, ONE, 4096, Burst::NONE);
    assert_eq!(rings.clear(), [0, 2, 1].map(FlowId));
}

/// What the limits of a disk keep comes back in order, whatever came and went meanwhile.
#[test]
fn bursts_that_limits_keep_stay_in_order() {
    let mut rings = Rings::default();
    let disk = DiskId(0);
    let add = |rings: &mut Rings, flow: u16, ios: u64| rings.add(FlowId(flow), Tier::Second, ONE, burst(ios * 4096));
    let keep_front = |rings: &mut Rings| {
        let front = rings.front(Tier::Second).unwrap();
        rings.keep(front, disk, Tier::Second);
    };
    add(&mut rings, 9, 40);
    keep_front(&mut rings);
    rings.open(disk);
    add(&mut rings, 1, 30);
    keep_front(&mut rings);
    // One of another disk.
    add(&mut rings, 2, 35);
    add(&mut rings, 3, 5);
    keep_front(&mut rings);
    let other = rings.front(Tier::Second).unwrap();
    rings.remove(other);
    keep_front(&mut rings);
    add(&mut rings, 4, 32);
    for each in [false, true] {
        let mut order = Vec::new();
        if each {
            rings.open_each(disk);
        } else {
            rings.open(disk);
        }
        while let Some(front) = rings.front(Tier::Second) {
            order.push(front.flow.0);
            rings.remove(front);
        }
        assert_eq!(order, [3, 1, 4, 9], "{each}");
        for flow in order.into_iter().filter(|flow| *flow != 4) {
            rings.bring_back(FlowId(flow), Tier::Second);
        }
        while rings.front(Tier::Second).is_some() {
            keep_front(&mut rings);
        }
        rings.bring_back(FlowId(4), Tier::Second);
    }
}
