//! The flows that have something to send, in tiers, and in each tier but one in turn by deficit round-robin.
//!
//! In the second one bursts go whole ([`super::finish`]).
//!
//! In the others a flow whose turn it is sends while its deficit covers its next request, at least one; then it goes to the end and is given
//! a quantum, or its share of one. A large request may leave it in debt: it is passed over until it is out of that again. The quantum is the
//! mean cost of a request, so that equal requests alternate one by one, and there are as many turns as requests in the mean.
//!
//! Source: Shreedhar, Varghese: Efficient Fair Queuing using Deficit Round-Robin (1995); the form with debts is Adiseshu,
//! Parulkar, Varghese: surplus round-robin (1996).

use std::collections::VecDeque;

use super::finish::{Burst, FinishTags, Order};
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

impl Lane {
    /// In the second tier.
    fn insert(&mut self, flow: FlowId, finish: &FinishTags) {
        let order = finish.of(flow);
        let at = self.flows.partition_point(|other| finish.of(*other) < order);
        self.flows.insert(at, flow);
    }
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
    /// The second tier stands in order of these.
    finish: FinishTags,
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

    /// Adds a flow that was in none. `burst` is what it has to send before it belongs to the normal tier.
    pub(super) fn add(&mut self, flow: FlowId, tier: Tier, share: u32, burst: Burst) {
        let grant = self.grant(share);
        let deficit = by_flow(&mut self.deficits, flow);
        *deficit = (*deficit).min(0) + grant;
        self.finish.count(flow, burst);
        self.put_in(flow, tier, false);
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
        self.remove(place);
        self.finish.sent(place.flow, cost, place.tier != Tier::Normal);
        let cost = cost << FRACTION_BITS;
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

    /// Puts it back: its next request, of so much cost, belongs to this tier. For `burst` see [`Rings::add`].
    pub(super) fn put_back(&mut self, place: Place, tier: Tier, share: u32, next_cost: u64, burst: Burst) {
        self.finish.count(place.flow, burst);
        let next_cost = (next_cost << FRACTION_BITS).cast_signed();
        let is_covered = self.deficits[usize::from(place.flow.0)] >= next_cost;
        self.put_in(place.flow, tier, is_covered && place.is_front() && place.tier == tier);
        // One that went out of turn, as those before it found no path, saves nothing up by that.
        if !is_covered && tier != Tier::Second {
            self.deficits[usize::from(place.flow.0)] += self.grant(share);
        }
    }

    /// A flow that was taken out has nothing more to send.
    pub(super) fn emptied(&mut self, flow: FlowId) {
        self.finish.count(flow, Burst::NONE);
    }

    /// Puts a flow back that [`Rings::remove`] has taken out, at the end, with what it had.
    pub(super) fn bring_back(&mut self, flow: FlowId, tier: Tier) {
        // All are forgotten when the costs change.
        let _ = by_flow(&mut self.deficits, flow);
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
            Tier::Second => ring.partition_point(|other| self.order_of(*other) < self.order_of(entry)),
            _ if goes_on => 0,
            _ => ring.len(),
        }
    }

    /// In the second tier. A lane stands there by its first flow.
    fn order_of(&self, entry: Entry) -> Option<Order> {
        let flow = match entry {
            Entry::Flow(flow) => flow,
            Entry::Lane(disk) => self.first_kept(disk, Tier::Second)?,
        };
        Some(self.finish.of(flow))
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
            lane.insert(flow, &self.finish);
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
        for flow in std::mem::take(&mut lane.ahead).into_iter().rev() {
            if tier == Tier::Second {
                lane.insert(flow, &self.finish);
            } else {
                lane.flows.push_front(flow);
            }
        }
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

    /// Those flows of the second tier that have waited for too long are the next there, for a request each. Looks at all of them.
    pub(super) fn hurry(&mut self, mut is_late: impl FnMut(FlowId) -> bool) {
        let second = Tier::Second as usize;
        let kept = self.lanes.iter().flat_map(|lanes| lanes[second].flows.iter().chain(&lanes[second].ahead));
        let ring = self.tiers[second].iter().filter_map(|entry| entry.flow());
        let finish = &mut self.finish;
        let mut any = false;
        for flow in ring.chain(kept.copied()).filter(|flow| is_late(*flow)) {
            any |= finish.hurry(flow);
        }
        if any {
            for lanes in &mut self.lanes {
                lanes[second].flows.make_contiguous().sort_by_key(|flow| self.finish.of(*flow));
            }
            self.sort_second();
        }
    }

    fn sort_second(&mut self) {
        let mut ring = std::mem::take(&mut self.tiers[Tier::Second as usize]);
        ring.make_contiguous().sort_by_key(|entry| self.order_of(*entry));
        self.tiers[Tier::Second as usize] = ring;
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
                self.sort_second();
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
            ring.retain(|entry| match entry.flow().filter(|flow| gone(*flow)) {
                Some(flow) => {
                    self.finish.count(flow, Burst::NONE);
                    false
                }
                None => true,
            });
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
mod tests;
