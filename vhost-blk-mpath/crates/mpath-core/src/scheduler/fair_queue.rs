//! Decides: this flow is next.
//!
//! A fair queue in two tiers: the turns of disks, or of the virtqueues of one disk. Both are called members.
//!
//! * **Sparse and bulk.** A member that was idle (nothing queued, nothing in flight) is sparse until it has sent
//!   `burst`. Then it is bulk until it is idle again.
//! * **Allowance.** Sparse members go before bulk while the allowance lasts. The allowance earns `share` of all
//!   service, or the fair part of the sparse members by weight if that is more. It pays for each sparse request that
//!   passes waiting bulk. It holds at most `(1 - share) · burst`. Once bulk has been passed for `gap`, the allowance
//!   is emptied.
//! * **Order.** In each tier the member with the least service by weight is first: start-time fair queueing. A turn
//!   is one request for a bulk member, and `burst / 32` for a sparse member. A member that returns is at most one
//!   turn ahead of the others.
//!
//! Sources: the tiers are ours, worked out by simulation. Start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM
//! 1996.

use std::collections::VecDeque;

use monotonic::Instant;

use super::settings::Settings;

/// The virtual time of a cost of 1 at weight 1. It is so large that the rounding of the division by weight does not
/// matter.
const SCALE: u64 = 1 << 48;

/// The two tiers of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The member was idle, and has not yet sent a burst.
    Sparse,
    /// The member has sent more than a burst since it was idle.
    Bulk,
}

impl Tier {
    const fn index(self) -> usize {
        self as usize
    }
}

/// Service divided by weight: the virtual time of start-time fair queueing.
type VirtualTime = u128;

/// A virtual time and a member, in this order, in one number. No service is so large that the time needs more than 112 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    fn new(tag: VirtualTime, member: u16) -> Self {
        Self(tag << 16 | u128::from(member))
    }

    fn tag(self) -> VirtualTime {
        self.0 >> 16
    }

    fn member(self) -> u16 {
        self.0 as u16
    }
}

/// The position of a waiting member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    tier: Tier,
    key: Key,
}

/// A disk or virtqueue in its fair queue.
#[derive(Clone, Debug)]
pub(super) struct Member {
    weight: u16,
    /// The virtual time of a cost of 1.
    unit: u64,
    /// The member has been active before.
    is_known: bool,
    tier: Tier,
    /// Its burst credit: the cost that it may send before it is bulk.
    credit: u64,
    /// The cost that it has sent in its turn.
    sent_in_turn: u64,
    /// By tier: its virtual time.
    tags: [VirtualTime; 2],
    waits: bool,
}

impl Member {
    pub(super) fn new(weight: u16) -> Self {
        Self {
            weight,
            unit: SCALE / u64::from(weight),
            is_known: false,
            tier: Tier::Bulk,
            credit: 0,
            sent_in_turn: 0,
            tags: [0; 2],
            waits: false,
        }
    }

    pub(super) fn weight(&self) -> u16 {
        self.weight
    }

    /// Its burst credit when it sends the next request.
    pub(super) fn credit(&self, settings: &Settings, is_idle: bool) -> u64 {
        match (is_idle, self.is_known) {
            (false, _) => self.credit,
            (true, true) => settings.burst,
            (true, false) => settings.first_burst,
        }
    }

    /// The tier of its next request.
    pub(super) fn tier(&self, settings: &Settings, is_idle: bool) -> Tier {
        if self.credit(settings, is_idle) > 0 { Tier::Sparse } else { Tier::Bulk }
    }

    /// Gives an idle member that gets a request its burst and its tier.
    pub(super) fn activate(&mut self, settings: &Settings) {
        assert!(!self.waits, "an idle member has nothing to send");
        (self.credit, self.tier) = (self.credit(settings, true), self.tier(settings, true));
        self.is_known = true;
    }

    fn key(&self, id: u16) -> Key {
        Key::new(self.tags[self.tier.index()], id)
    }

    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// The position of the member while it waits.
    pub(super) fn place(&self, id: u16) -> Place {
        Place { tier: self.tier, key: self.key(id) }
    }

    /// Uses up credit. Returns whether the member has become bulk.
    pub(super) fn spend(&mut self, cost: u64) -> bool {
        self.credit = self.credit.saturating_sub(cost);
        self.tier == Tier::Sparse && self.credit == 0
    }

    fn by_weight(&self, cost: u64) -> VirtualTime {
        VirtualTime::from(cost) * VirtualTime::from(self.unit)
    }
}

/// The waiting members of one tier.
#[derive(Clone, Debug, Default)]
struct TierQueue {
    /// In order. Most turns take the first member and put it back near the end. This moves little, and no request
    /// allocates memory.
    by_tag: VecDeque<Key>,
    /// The sum of their weights.
    weight: u64,
    /// The tag of the latest turn, and the largest tag.
    virtual_time: VirtualTime,
    largest_tag: VirtualTime,
}

impl TierQueue {
    fn insert(&mut self, key: Key) {
        if self.by_tag.back().is_none_or(|last| *last < key) {
            self.by_tag.push_back(key);
        } else {
            let at = self.by_tag.binary_search(&key).expect_err("a member is in the queue once");
            self.by_tag.insert(at, key);
        }
    }

    fn remove(&mut self, key: Key) {
        if self.by_tag.front() == Some(&key) {
            self.by_tag.pop_front();
        } else {
            let at = self.by_tag.binary_search(&key).expect("a waiting member is in the queue of its tier");
            self.by_tag.remove(at);
        }
    }
}

/// A fair queue. Its owner stores the members.
#[derive(Clone, Debug)]
pub(super) struct FairQueue {
    tiers: [TierQueue; 2],
    /// The allowance. Below 0, bulk goes first.
    allowance: i64,
    /// When the first sparse request passed bulk that still waits for its turn.
    passed_since: Option<Instant>,
}

impl FairQueue {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { tiers: Default::default(), allowance: settings.allowance_max, passed_since: None }
    }

    #[cfg(test)]
    pub(super) fn allowance(&self) -> i64 {
        self.allowance
    }

    pub(super) fn waits(&self) -> bool {
        !self.tiers[0].by_tag.is_empty() || !self.tiers[1].by_tag.is_empty()
    }

    /// Sets whether a member has a request to send.
    pub(super) fn set_waits(&mut self, settings: &Settings, id: u16, member: &mut Member, waits: bool) {
        match (member.waits, waits) {
            (false, true) => self.add(settings, id, member),
            (true, false) => self.remove(id, member),
            _ => {}
        }
    }

    /// Changes the weight of a member.
    pub(super) fn set_weight(&mut self, id: u16, member: &mut Member, weight: u16) {
        let waits = member.waits;
        if waits {
            self.take_out(id, member);
        }
        (member.weight, member.unit) = (weight.max(1), SCALE / u64::from(weight.max(1)));
        if waits {
            self.put_in(id, member);
        }
    }

    /// The member with the next turn, or with the turn after `after`. While `now` stays the same, only
    /// [`FairQueue::sent`] changes the order.
    #[inline]
    pub(super) fn next(&mut self, settings: &Settings, now: Instant, after: Option<Place>) -> Option<u16> {
        if self.passed_since.is_some_and(|since| now - since >= settings.gap) {
            self.allowance = self.allowance.min(-1);
        }
        let (first, second) = if self.allowance < 0 { (Tier::Bulk, Tier::Sparse) } else { (Tier::Sparse, Tier::Bulk) };
        let front = |tier: Tier| self.tiers[tier.index()].by_tag.front().map(|key| key.member());
        let Some(Place { tier, key }) = after else { return front(first).or_else(|| front(second)) };
        let waiting = &self.tiers[tier.index()].by_tag;
        let next = waiting.get(waiting.partition_point(|waits| *waits <= key)).map(|key| key.member());
        next.or_else(|| if tier == first { front(second) } else { None })
    }

    /// Charges a member for a request that it has sent; `more`: the member has another to send now.
    pub(super) fn sent(
        &mut self,
        settings: &Settings,
        now: Instant,
        id: u16,
        member: &mut Member,
        cost: u64,
        more: bool,
    ) {
        self.pay(settings, now, member.tier, cost);
        member.sent_in_turn += cost;
        let becomes_bulk = member.spend(cost);
        let ends_turn = member.tier == Tier::Bulk || becomes_bulk || !more || member.sent_in_turn >= settings.turn;
        let key = member.key(id);
        let tier = &mut self.tiers[member.tier.index()];
        let tag = &mut member.tags[member.tier.index()];
        if member.waits && more && !becomes_bulk && tier.by_tag.front() == Some(&key) {
            // The usual case: the first member moves back within its tier.
            tier.virtual_time = tier.virtual_time.max(*tag);
            if ends_turn {
                self.end_turn(member);
                let tier = &mut self.tiers[member.tier.index()];
                tier.by_tag.pop_front();
                tier.insert(member.key(id));
            }
            return self.end_wait_of_bulk();
        }
        if member.waits {
            tier.weight -= u64::from(member.weight);
            tier.remove(key);
        }
        // Members in front found no path with room. The queue owes them nothing for turns that they could not use.
        *tag = tier.by_tag.front().map_or(*tag, |first| (*tag).min(first.tag()));
        tier.virtual_time = tier.virtual_time.max(*tag);
        if ends_turn {
            self.end_turn(member);
        }
        member.waits = more;
        if becomes_bulk {
            member.tier = Tier::Bulk;
            if more {
                self.add(settings, id, member);
            }
        } else if more {
            self.put_in(id, member);
        }
        self.end_wait_of_bulk();
    }

    /// Charges a request to the allowance.
    fn pay(&mut self, settings: &Settings, now: Instant, tier: Tier, cost: u64) {
        let [sparse, bulk] = [Tier::Sparse, Tier::Bulk].map(|tier| self.tiers[tier.index()].weight);
        let fair = if sparse > 0 && bulk > 0 { 1000 * sparse / (sparse + bulk) } else { 0 };
        let (cost, part) = (cost.cast_signed(), settings.share.max(fair).cast_signed());
        let earned = cost * part / 1000;
        // If bulk is first and finds no path with room, sparse requests do not pass it.
        let passes = tier == Tier::Sparse && bulk > 0 && self.allowance >= 0;
        self.allowance = (self.allowance + earned - if passes { cost } else { 0 }).min(settings.allowance_max);
        if passes {
            self.passed_since.get_or_insert(now);
        } else {
            self.passed_since = None;
        }
    }

    fn end_turn(&mut self, member: &mut Member) {
        let sent = std::mem::take(&mut member.sent_in_turn);
        let service = member.by_weight(sent);
        let tag = &mut member.tags[member.tier.index()];
        *tag += service;
        let tier = &mut self.tiers[member.tier.index()];
        tier.largest_tag = tier.largest_tag.max(*tag);
    }

    fn add(&mut self, settings: &Settings, id: u16, member: &mut Member) {
        let tier = &mut self.tiers[member.tier.index()];
        if tier.by_tag.is_empty() {
            // The tier was empty: members are not compared with earlier ones.
            tier.virtual_time = tier.virtual_time.max(tier.largest_tag);
        }
        let ahead = if member.tier == Tier::Sparse { member.by_weight(settings.turn) } else { 0 };
        let tag = &mut member.tags[member.tier.index()];
        *tag = (*tag).max(tier.virtual_time.saturating_sub(ahead));
        member.waits = true;
        self.put_in(id, member);
    }

    fn remove(&mut self, id: u16, member: &mut Member) {
        self.take_out(id, member);
        member.waits = false;
        self.end_turn(member);
        self.end_wait_of_bulk();
    }

    /// Takes note that no member has turns for a while, so that no bulk is being passed.
    pub(super) fn interrupt(&mut self) {
        self.passed_since = None;
    }

    fn end_wait_of_bulk(&mut self) {
        if self.tiers[Tier::Bulk.index()].by_tag.is_empty() {
            self.passed_since = None;
        }
    }

    fn put_in(&mut self, id: u16, member: &Member) {
        let tier = &mut self.tiers[member.tier.index()];
        tier.weight += u64::from(member.weight);
        tier.insert(member.key(id));
    }

    fn take_out(&mut self, id: u16, member: &Member) {
        let tier = &mut self.tiers[member.tier.index()];
        tier.weight -= u64::from(member.weight);
        tier.remove(member.key(id));
    }
}
