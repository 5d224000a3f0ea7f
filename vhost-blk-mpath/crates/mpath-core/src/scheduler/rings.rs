//! The flows that have something to send, in tiers, and in each tier but one in turn by deficit round-robin.
//!
//! The second tier is another one: there bursts go whole, and the first to go is the one that would have sent all first if all had their parts at
//! the same time. So of equal ones the first to come is served first and the mean wait is shorter, and a small one has not to wait for a large one.
//! It would have sent all at its finish tag, in virtual time, of which a request's cost is divided among those that send. The tag is of what a flow has
//! when its first request comes, as far as its credit covers that, and grows by what has come since whenever one has gone.
//!
//! In the others a flow whose turn it is sends while its deficit covers its next request, at least one; then it goes to the end and is given
//! a quantum, or its share of one. A large request may leave it in debt: it is passed over until it is out of that again. The quantum is the
//! mean cost of a request, so that equal requests alternate one by one, and there are as many turns as requests in the mean.
//!
//! Source: Shreedhar, Varghese: Efficient Fair Queuing using Deficit Round-Robin (1995); the form with debts is Adiseshu,
//! Parulkar, Varghese: surplus round-robin (1996). Whole bursts: Friedman, Henderson: Fairness and Efficiency in Web Server Protocols (2003),
//! with a virtual time that is simpler, by how many wait.

use std::collections::VecDeque;

use super::turns::WHOLE;
use super::{Tier, by_flow};
use crate::{DiskId, FlowId};

/// The quantum is the mean over so many requests, and then stays for as many: one that followed each request would favour the flow
/// that has just sent a large one.
const BLOCK_MAX: u64 = 256;

/// Costs are kept with so many bits behind the point: a small share of a small quantum is one all the same.
const FRACTION_BITS: u32 = 12;

/// What stands in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Flow(FlowId),
    /// All of the disk's [`Lane`], one after the other.
    Lane(DiskId),
}

/// The flows of a disk in a tier that its limits have kept, in the order in which they would have had their turns. They come and go
/// together, however many they are.
#[derive(Debug, Default)]
struct Lane {
    flows: VecDeque<FlowId>,
    /// It has its place in the ring. Otherwise the limits keep it.
    stands: bool,
    /// What the limits have kept since, as its turn came before that of the lane.
    ahead: Vec<FlowId>,
}

/// When a flow would have sent all that it has.
#[derive(Clone, Copy, Debug, Default)]
struct FinishTag {
    /// In virtual time; of equal ones the one that was made first counts as the earlier one.
    at: (u128, u64),
    /// How many requests that is, and what one of them adds.
    ios: u64,
    each: u128,
}

/// What a flow has to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    /// Requests that credit covers.
    pub(super) ios: u64,
    /// Of the first one.
    pub(super) cost: u64,
}

#[derive(Debug, Default)]
pub(super) struct Rings {
    tiers: [VecDeque<Entry>; 3],
    /// The flows in each, those of lanes too.
    waiting: [usize; 3],
    /// By disk.
    lanes: Vec<[Lane; 3]>,
    /// What each flow may send in its turn. One that leaves keeps its debt, not what it has saved.
    deficits: Vec<i64>,
    /// By flow. The second tier stands in order of these.
    tags: Vec<FinishTag>,
    tags_made: u64,
    virtual_time: u128,
    quantum: u64,
    /// Requests until the quantum is made anew, how many these are in all, and their cost so far.
    left: u64,
    block: u64,
    cost: u64,
    /// Entries that were put in or taken out, and flows that were.
    #[cfg(test)]
    pub(super) moves: u64,
}

impl Rings {
    pub(super) fn is_empty(&self) -> bool {
        self.tiers.iter().all(VecDeque::is_empty)
    }

    pub(super) fn waits_in(&self, tier: Tier) -> bool {
        !self.tiers[tier as usize].is_empty()
    }

    /// Adds a flow that was in none.
    pub(super) fn add(&mut self, flow: FlowId, tier: Tier, share: u32, queued: Queued) {
        let grant = self.grant(share);
        let deficit = by_flow(&mut self.deficits, flow);
        *deficit = (*deficit).min(0) + grant;
        *by_flow(&mut self.tags, flow) = FinishTag { at: (self.virtual_time, 0), ios: 0, each: 0 };
        self.tag(flow, share, queued);
        self.put_in(flow, tier, false);
    }

    /// Makes a finish tag anew, if the flow has more to send.
    fn tag(&mut self, flow: FlowId, share: u32, queued: Queued) {
        let tag = by_flow(&mut self.tags, flow);
        if queued.ios > tag.ios {
            tag.each = u128::from(queued.cost) * u128::from(WHOLE) / u128::from(share.max(1));
            self.tags_made += 1;
            tag.at = (tag.at.0 + u128::from(queued.ios - tag.ios) * tag.each, self.tags_made);
        }
        tag.ios = queued.ios;
    }

    /// The flow is idle: its debt is forgotten.
    pub(super) fn forgive(&mut self, flow: FlowId) {
        *by_flow(&mut self.deficits, flow) = 0;
    }

    /// The flow in front of a tier.
    pub(super) fn front(&self, tier: Tier) -> Option<Place> {
        self.place(tier, 0, 0)
    }

    /// The flow whose turn comes after that of another one, or before all others.
    pub(super) fn next(&self, after: Option<Place>, order: [Tier; 3]) -> Option<Place> {
        let Some(last) = after else { return order.into_iter().find_map(|tier| self.front(tier)) };
        let mut behind = order.into_iter().skip_while(|tier| *tier != last.tier).skip(1);
        self.place(last.tier, last.index, last.within + 1)
            .or_else(|| self.place(last.tier, last.index + 1, 0))
            .or_else(|| behind.find_map(|tier| self.front(tier)))
    }

    fn place(&self, tier: Tier, index: usize, within: usize) -> Option<Place> {
        let flow = match *self.tiers[tier as usize].get(index)? {
            Entry::Flow(flow) => (within == 0).then_some(flow)?,
            Entry::Lane(disk) => *self.lanes[disk.index()][tier as usize].flows.get(within)?,
        };
        Some(Place { flow, tier, index, within })
    }

    /// The turn of a flow has come, but it is in debt.
    pub(super) fn owes(&self, place: Place) -> bool {
        place.tier != Tier::Second && place.is_front() && self.deficits[usize::from(place.flow.0)] <= 0
    }

    /// Brings a flow to the front of a tier that is not in debt.
    pub(super) fn settle(&mut self, tier: Tier, share: impl Fn(FlowId) -> u32) {
        for _ in 0..self.waiting[tier as usize] {
            let Some(front) = self.front(tier).filter(|front| self.owes(*front)) else { return };
            self.deficits[usize::from(front.flow.0)] += self.grant(share(front.flow));
            self.remove(front);
            self.put_in(front.flow, tier, false);
        }
        // All of them have been given a quantum, each for itself, and may be in debt yet: as many more as the first one out needs.
        let ring = || self.tiers[tier as usize].iter().filter_map(|entry| entry.flow());
        let needed = |flow: FlowId| grants_needed(self.deficits[usize::from(flow.0)], self.grant(share(flow)));
        let rounds = ring().map(needed).min().unwrap_or(0);
        for at in 0..self.tiers[tier as usize].len() {
            let Some(flow) = self.tiers[tier as usize][at].flow() else { continue };
            self.deficits[usize::from(flow.0)] += rounds * self.grant(share(flow));
        }
        let ring = self.tiers[tier as usize].iter().filter_map(|entry| entry.flow());
        let first = ring.map(|flow| self.deficits[usize::from(flow.0)]).position(|deficit| deficit > 0);
        self.tiers[tier as usize].rotate_left(first.unwrap_or(0));
    }

    /// Takes a flow out that [`Rings::next`] has shown, for a request of this cost.
    pub(super) fn take(&mut self, place: Place, cost: u64) {
        let cost = cost << FRACTION_BITS;
        self.remove(place);
        let tag = &mut self.tags[usize::from(place.flow.0)];
        tag.ios = tag.ios.saturating_sub(1);
        if place.tier != Tier::Normal {
            // This one is out at the moment. And one that has sent all would be there for longer if all had their parts at the same time.
            let bursts = self.waiting[Tier::First as usize] + self.waiting[Tier::Second as usize] + 2;
            self.virtual_time += tag.each / bursts as u128;
        }
        if place.tier != Tier::Second {
            // One that goes out of turn, as those before it find no path, would be ever deeper in debt for what nobody else could have had.
            let deficit = &mut self.deficits[usize::from(place.flow.0)];
            *deficit = (*deficit - cost.cast_signed()).max(-(cost + self.quantum).cast_signed());
        }
        self.cost += cost;
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.quantum = self.cost / self.block.max(1);
            self.block = (2 * self.block).clamp(1, BLOCK_MAX);
            (self.left, self.cost) = (self.block, 0);
        }
    }

    /// Puts it back: its next request belongs to this tier.
    pub(super) fn put_back(&mut self, place: Place, tier: Tier, share: u32, queued: Queued) {
        self.tag(place.flow, share, queued);
        let next_cost = (queued.cost << FRACTION_BITS).cast_signed();
        let is_covered = self.deficits[usize::from(place.flow.0)] >= next_cost;
        self.put_in(place.flow, tier, is_covered && place.is_front() && place.tier == tier);
        // One that went out of turn, as those before it found no path, saves nothing up by that.
        if !is_covered && tier != Tier::Second {
            self.deficits[usize::from(place.flow.0)] += self.grant(share);
        }
    }

    /// Puts a flow back that [`Rings::remove`] has taken out, at the end, with what it had.
    pub(super) fn bring_back(&mut self, flow: FlowId, tier: Tier) {
        // All are forgotten when the costs change.
        let _ = (by_flow(&mut self.deficits, flow), by_flow(&mut self.tags, flow));
        self.put_in(flow, tier, false);
    }

    fn put_in(&mut self, flow: FlowId, tier: Tier, goes_on: bool) {
        let at = self.position(Entry::Flow(flow), tier, goes_on);
        self.tiers[tier as usize].insert(at, Entry::Flow(flow));
        self.waiting[tier as usize] += 1;
        self.moved();
    }

    /// Where it belongs in a tier.
    fn position(&self, entry: Entry, tier: Tier, goes_on: bool) -> usize {
        let ring = &self.tiers[tier as usize];
        match tier {
            Tier::Second => ring.partition_point(|other| self.finish(*other) < self.finish(entry)),
            _ if goes_on => 0,
            _ => ring.len(),
        }
    }

    /// In the second tier. A lane stands there by its first flow.
    fn finish(&self, entry: Entry) -> (u128, u64) {
        let flow = match entry {
            Entry::Flow(flow) => Some(flow),
            Entry::Lane(disk) => self.first_kept(disk, Tier::Second),
        };
        flow.map_or((0, 0), |flow| self.tags[usize::from(flow.0)].at)
    }

    /// Takes a flow out that [`Rings::next`] has shown.
    pub(super) fn remove(&mut self, place: Place) {
        let Place { flow, tier, index, within } = place;
        let taken = match self.tiers[tier as usize].get(index) {
            Some(&Entry::Lane(disk)) => {
                let lane = &mut self.lanes[disk.index()][tier as usize];
                let taken = lane.flows.remove(within);
                if lane.flows.is_empty() {
                    self.withdraw(tier, index, disk);
                } else if tier == Tier::Second {
                    self.tiers[tier as usize].remove(index);
                    let at = self.position(Entry::Lane(disk), tier, false);
                    self.tiers[tier as usize].insert(at, Entry::Lane(disk));
                }
                taken
            }
            _ => self.tiers[tier as usize].remove(index).and_then(Entry::flow),
        };
        assert_eq!(taken, Some(flow), "a flow is taken from where it was seen");
        self.waiting[tier as usize] -= 1;
        self.moved();
    }

    /// The limits of its disk keep a flow that [`Rings::next`] has shown, and that belongs to `tier`; with it its lane, if it is in one.
    pub(super) fn keep(&mut self, place: Place, disk: DiskId, tier: Tier) {
        let Place { flow, index, .. } = place;
        if let Some(&Entry::Lane(disk)) = self.tiers[place.tier as usize].get(index) {
            self.withdraw(place.tier, index, disk);
            return;
        }
        self.remove(place);
        if self.lanes.len() <= disk.index() {
            self.lanes.resize_with(disk.index() + 1, Default::default);
        }
        let lane = &mut self.lanes[disk.index()][tier as usize];
        if lane.stands {
            lane.ahead.push(flow);
        } else if tier == Tier::Second {
            let finish = self.tags[usize::from(flow.0)].at;
            let at = lane.flows.partition_point(|other| self.tags[usize::from(other.0)].at < finish);
            lane.flows.insert(at, flow);
        } else if place.tier == tier {
            lane.flows.push_back(flow);
        } else {
            // It was raised, and has not had that turn.
            lane.flows.push_front(flow);
        }
    }

    /// Takes a lane out of its ring.
    fn withdraw(&mut self, tier: Tier, index: usize, disk: DiskId) {
        self.tiers[tier as usize].remove(index);
        let lane = &mut self.lanes[disk.index()][tier as usize];
        lane.stands = false;
        self.waiting[tier as usize] -= lane.flows.len();
        lane.ahead.drain(..).rev().for_each(|flow| lane.flows.push_front(flow));
        self.moved();
    }

    /// The flow whose turn comes first of those in a tier that the limits of their disk have kept.
    pub(super) fn first_kept(&self, disk: DiskId, tier: Tier) -> Option<FlowId> {
        self.lanes.get(disk.index())?[tier as usize].flows.front().copied()
    }

    /// Takes it out, whether its lane stands in the ring or is kept.
    pub(super) fn release(&mut self, disk: DiskId, tier: Tier) -> Option<FlowId> {
        let flow = self.first_kept(disk, tier)?;
        if self.lanes[disk.index()][tier as usize].stands {
            let index = self.tiers[tier as usize].iter().position(|entry| *entry == Entry::Lane(disk))?;
            self.remove(Place { flow, tier, index, within: 0 });
        } else {
            self.lanes[disk.index()][tier as usize].flows.pop_front();
            self.moved();
        }
        Some(flow)
    }

    /// Takes the first flow out of a tier that stands there by itself and is of this kind. Searches.
    pub(super) fn take_out(&mut self, tier: Tier, is_wanted: impl Fn(FlowId) -> bool) -> Option<FlowId> {
        let ring = &mut self.tiers[tier as usize];
        let index = ring.iter().position(|entry| entry.flow().is_some_and(&is_wanted))?;
        let flow = ring.remove(index).and_then(Entry::flow)?;
        self.waiting[tier as usize] -= 1;
        self.moved();
        Some(flow)
    }

    /// Puts a flow before all others. Its disk owes it a turn, whatever it owes others for requests larger than theirs.
    pub(super) fn raise(&mut self, flow: FlowId) {
        let deficit = by_flow(&mut self.deficits, flow);
        *deficit = (*deficit).max(1);
        self.tiers[Tier::First as usize].push_front(Entry::Flow(flow));
        self.waiting[Tier::First as usize] += 1;
        self.moved();
    }

    /// The limits of a disk let its flows go: they come back, at the end, with what they had.
    pub(super) fn open(&mut self, disk: DiskId) {
        if self.lanes.len() <= disk.index() {
            return;
        }
        for tier in Tier::ALL {
            let lane = &mut self.lanes[disk.index()][tier as usize];
            if lane.stands {
                for flow in std::mem::take(&mut lane.ahead) {
                    self.put_in(flow, tier, false);
                }
            } else if !lane.flows.is_empty() {
                lane.stands = true;
                self.waiting[tier as usize] += lane.flows.len();
                let at = self.position(Entry::Lane(disk), tier, false);
                self.tiers[tier as usize].insert(at, Entry::Lane(disk));
                self.moved();
            }
        }
    }

    /// The same, each flow for itself from now on. For rare events.
    pub(super) fn open_each(&mut self, disk: DiskId) {
        self.open(disk);
        for tier in Tier::ALL {
            let ring = &mut self.tiers[tier as usize];
            let Some(index) = ring.iter().position(|entry| *entry == Entry::Lane(disk)) else { continue };
            let behind = ring.split_off(index + 1);
            ring.pop_back();
            let lane = std::mem::take(&mut self.lanes[disk.index()][tier as usize]);
            ring.extend(lane.flows.into_iter().map(Entry::Flow));
            ring.extend(behind);
            if tier == Tier::Second {
                let mut ring = std::mem::take(ring);
                ring.make_contiguous().sort_by_key(|entry| self.finish(*entry));
                self.tiers[tier as usize] = ring;
            }
        }
    }

    /// Takes all of them out, in order.
    pub(super) fn clear(&mut self) -> Vec<FlowId> {
        (0..self.lanes.len()).for_each(|disk| self.open_each(DiskId(disk as u16)));
        self.waiting = [0; 3];
        self.tiers.iter_mut().flat_map(|tier| tier.drain(..)).filter_map(Entry::flow).collect()
    }

    /// Takes flows out that are not in a lane, wherever they are. For rare events.
    pub(super) fn remove_all(&mut self, gone: impl Fn(FlowId) -> bool) {
        for (ring, waiting) in self.tiers.iter_mut().zip(&mut self.waiting) {
            let before = ring.len();
            ring.retain(|entry| !entry.flow().is_some_and(&gone));
            *waiting -= before - ring.len();
        }
    }

    #[cfg_attr(not(test), allow(clippy::unused_self))]
    fn moved(&mut self) {
        #[cfg(test)]
        {
            self.moves += 1;
        }
    }

    /// The quantum of a flow with this part of [`WHOLE`].
    fn grant(&self, share: u32) -> i64 {
        let grant = u128::from(self.quantum) * u128::from(share) / u128::from(WHOLE);
        // No request costs as much as 2^34.
        (grant as i64).max(1)
    }
}

/// Where a flow stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(super) flow: FlowId,
    pub(super) tier: Tier,
    index: usize,
    /// Its place in the lane that stands there.
    within: usize,
}

impl Place {
    fn is_front(self) -> bool {
        (self.index, self.within) == (0, 0)
    }

    /// Others of its lane are before it.
    pub(super) fn is_behind_in_lane(self) -> bool {
        self.within > 0
    }
}

impl Entry {
    fn flow(self) -> Option<FlowId> {
        match self {
            Self::Flow(flow) => Some(flow),
            Self::Lane(_) => None,
        }
    }
}

/// How many grants it takes to have more than nothing again.
fn grants_needed(deficit: i64, grant: i64) -> i64 {
    if deficit > 0 { 0 } else { -deficit / grant + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u32 = WHOLE;

    fn one(cost: u64) -> Queued {
        Queued { ios: 1, cost }
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
            rings.add(flow, Tier::Normal, weight(flow), one(4096));
        }
        for _ in 0..turns {
            let place = at(&mut rings, 0, Tier::ALL, weight).expect("all wait");
            let index = usize::from(place.flow.0);
            rings.take(place, costs[index]);
            served[index] += costs[index];
            rings.put_back(place, Tier::Normal, weight(place.flow), one(costs[index]));
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
            rings.add(flow, Tier::Normal, ONE, one(4096));
        }
        for _ in 0..100_000 {
            let place = at(&mut rings, 1, Tier::ALL, |_| ONE).expect("all wait");
            rings.take(place, large(place.flow));
            rings.put_back(place, Tier::Normal, ONE, one(large(place.flow)));
        }
        // It is owed for one request: a quantum is half of it.
        let mut turns = 0;
        while at(&mut rings, 0, Tier::ALL, |_| ONE).expect("all wait").flow != FlowId(1) {
            let place = at(&mut rings, 0, Tier::ALL, |_| ONE).expect("all wait");
            rings.take(place, 4096);
            rings.put_back(place, Tier::Normal, ONE, one(4096));
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
            rings.add(FlowId(flow), tier, ONE, one(4096));
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
        (0..3).for_each(|flow| rings.add(FlowId(flow), Tier::Normal, ONE, one(4096)));
        // The flow in front waits for a path with room, the others are served meanwhile, one of them in small requests.
        for _ in 0..1000 {
            let place = at(&mut rings, 1, Tier::ALL, |_| ONE).unwrap();
            let cost = if place.flow == FlowId(1) { 512 } else { 65_536 };
            rings.take(place, cost);
            rings.put_back(place, Tier::Normal, ONE, one(cost));
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
                rings.put_back(place, Tier::Second, ONE, Queued { ios: *left, cost: 4096 });
            }
        }
        order
    }

    #[test]
    fn in_the_second_tier_bursts_go_whole_and_small_ones_need_not_wait_for_large_ones() {
        let mut rings = Rings::default();
        let ios = vec![4, 4, 2];
        for (flow, ios) in (0..).zip(&ios) {
            rings.add(FlowId(flow), Tier::Second, ONE, Queued { ios: *ios, cost: 4096 });
        }
        assert_eq!(serve_second(&mut rings, ios), [2, 2, 0, 0, 0, 0, 1, 1, 1, 1]);
    }

    /// Its finish tag is that of what it had when it came.
    #[test]
    fn a_burst_that_grows_lets_those_go_that_came_meanwhile() {
        let mut rings = Rings::default();
        rings.add(FlowId(0), Tier::Second, ONE, Queued { ios: 2, cost: 4096 });
        rings.add(FlowId(1), Tier::Second, ONE, Queued { ios: 4, cost: 4096 });
        let first = rings.front(Tier::Second).unwrap();
        rings.take(first, 4096);
        rings.put_back(first, Tier::Second, ONE, Queued { ios: 6, cost: 4096 });
        assert_eq!(serve_second(&mut rings, vec![6, 4]), [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_flow_passed_over_keeps_its_turn() {
        let mut rings = Rings::default();
        (0..3).for_each(|flow| rings.add(FlowId(flow), Tier::Normal, ONE, one(4096)));
        let second = at(&mut rings, 1, Tier::ALL, |_| ONE).unwrap();
        rings.take(second, 4096);
        rings.put_back(second, Tier::Normal, ONE, one(4096));
        assert_eq!(rings.clear(), [0, 2, 1].map(FlowId));
    }
}
