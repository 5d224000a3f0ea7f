//! Schedulers: which flow's turn it is. One file a rule, behind [`Rule`].
//!
//! A flow is first in, first out whatever the rule. [`Scheduler`] keeps the queues and the limits; [`rings`] has the turns: tiers, the first
//! one strictly before the second, deficit round-robin in each but the second, where bursts go whole. A rule says what a request costs, in which
//! tier a flow's next request belongs, and which tier goes first. It hears of what is dispatched and completed.
//!
//! The dispatcher walks the flows in order, [`Scheduler::candidate`], and takes the first one whose request finds a path. A flow
//! whose request finds none keeps its turn.
//!
//! A decision takes constant time as long as the first flow's request can go: no search, no allocation; in the second tier the place of a flow that
//! goes back is found by bisection, and what is not over yet stands in a tree. The flows of a disk that limits
//! keep leave the rings and come back together, so it is constant under limits too, on the average. Only for a busy flow that its limited disk
//! owes a turn beside other disks the ring is searched.

mod allowance;
#[cfg(test)]
mod beside;
mod burst_credit;
mod burst_credit_drr;
mod capacity;
mod census;
mod fifo;
mod finish;
mod flow;
mod kept;
mod kind;
mod last_second;
#[cfg(test)]
mod limited;
mod limits;
#[cfg(test)]
mod patience;
#[cfg(test)]
mod properties;
mod rings;
#[cfg(test)]
mod testing;
mod turns;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{DiskId, FlowId, Io, Param, Tag};
use finish::Burst;
pub use flow::FlowStats;
use flow::{Flow, Waiting};
pub use kind::{SchedulerChange, SchedulerKind, SchedulerSpec, UnknownScheduler};
pub use limits::{Balance, DiskLimits, Limits};
pub(crate) use rings::Place;
use rings::Rings;
pub use turns::DiskTurns;
use turns::{Disks, Part};

/// The weight of a disk that was given none.
pub const DEFAULT_WEIGHT: u16 = 100;

/// A flow that has sent nothing for so long owes nothing any more.
const FORGIVEN: Duration = Duration::from_secs(1);

/// Who waits in the second tier for too long is looked for this often: it means to look at all of them.
const LOOK_EACH: Duration = Duration::from_millis(20);

/// What is to be known of a scheduler before there is one: each file has its own.
struct About {
    name: &'static str,
    /// The rule in one line.
    description: &'static str,
    params: &'static [Param],
    build: fn(Instant, &SchedulerSpec) -> Box<dyn Rule>,
}

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Before all others: a flow that was idle and asks for no more than is its own.
    First,
    /// Before the normal one: a flow that was idle and asks for more.
    Second,
    /// All the others.
    Normal,
}

impl Tier {
    const ALL: [Self; 3] = [Self::First, Self::Second, Self::Normal];
    const SECOND_LAST: [Self; 3] = [Self::First, Self::Normal, Self::Second];
    const NORMAL_FIRST: [Self; 3] = [Self::Normal, Self::First, Self::Second];
}

/// A request that goes.
#[derive(Clone, Copy, Debug)]
struct Dispatched {
    now: Instant,
    flow: FlowId,
    disk: DiskId,
    /// Where it belonged.
    tier: Tier,
    cost: u64,
    /// Another flow waits in the normal tier.
    normal_waits: bool,
    /// One of the same disk belongs there, which may be kept.
    normal_of_disk_waits: bool,
}

/// A scheduler's rule.
trait Rule: fmt::Debug + Send {
    /// What a request of so many bytes costs. More than nothing.
    fn cost(&self, _bytes: u32) -> u64 {
        1 << 10
    }

    /// Work comes for a flow that has nothing queued and nothing outstanding.
    fn activated(&mut self, _now: Instant, _flow: FlowId, _part: Part) {}

    /// Where the next request of a flow belongs. Only `activated`, `dispatched` and `demote` of that flow and `configure` change it.
    fn tier(&self, flow: FlowId) -> Tier;

    /// Which tier goes first. Only `dispatched` and `backlog` change it.
    fn order(&self) -> [Tier; 3] {
        Tier::ALL
    }

    /// The same among the flows of a disk.
    fn owes_normal(&self, _disk: DiskId) -> bool {
        false
    }

    /// No flow of the disk had turns for a while; `all`: nor had any other.
    fn interrupted(&mut self, _disk: DiskId, _all: bool) {}

    /// How long a flow of the second tier may go without a turn for a request of mean cost. By then it is one of the next there, for a request; if none of them has a turn it is demoted.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// How many requests of mean cost this cost is worth, one at least.
    fn worth(&self, _cost: u64) -> u32 {
        1
    }

    /// Until it has been idle the flow belongs to the normal tier.
    fn demote(&mut self, _flow: FlowId) {}

    fn dispatched(&mut self, _sent: &Dispatched) {}

    /// A request has succeeded.
    fn completed(&mut self, _now: Instant, _bytes: u32) {}

    /// Something may be sent, or nothing more. `idle`: nothing is outstanding either.
    fn backlog(&mut self, _now: Instant, _waits: bool, _idle: bool) {}

    /// The cost of what the flow may send before it belongs to the normal tier.
    fn covered(&self, _flow: FlowId) -> u64 {
        0
    }

    /// See [`FlowStats::credit`].
    fn credit(&self, _flow: FlowId) -> Option<u64> {
        None
    }

    /// Takes on other parameters. `spec` is of its own kind.
    fn configure(&mut self, _spec: &SchedulerSpec) {}
}

/// The requests of a group that wait for a path.
#[derive(Debug)]
pub(crate) struct Scheduler {
    spec: SchedulerSpec,
    rule: Box<dyn Rule>,
    rings: Rings,
    flows: Vec<Flow>,
    len: usize,
    /// Those of them that need no path.
    without_path: usize,
    outstanding: usize,
    /// They keep flows with something queued that may not be sent.
    disks: Disks,
    /// When limits let go some of these.
    unpark_at: Option<Instant>,
    /// When it was seen for the last time who waits in the second tier for too long.
    looked_at: Option<Instant>,
    /// When the first request of the first tier went past the second one, which has had no turn since.
    passed_since: Option<Instant>,
}

impl Scheduler {
    pub(crate) fn new(now: Instant, spec: SchedulerSpec, limits: impl Iterator<Item = Arc<DiskLimits>>) -> Self {
        Self {
            rule: spec.build(now),
            spec,
            rings: Rings::default(),
            flows: Vec::new(),
            len: 0,
            without_path: 0,
            outstanding: 0,
            disks: Disks::new(now, limits),
            unpark_at: None,
            looked_at: None,
            passed_since: None,
        }
    }

    pub(crate) fn spec(&self) -> &SchedulerSpec {
        &self.spec
    }

    /// Requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether each of them needs a path.
    pub(crate) fn all_need_paths(&self) -> bool {
        self.without_path == 0
    }

    /// Those of one disk.
    pub(crate) fn len_of(&self, disk: DiskId) -> usize {
        self.disks.queued_of(disk)
    }

    /// Those that wait for nothing else than their turn and room.
    pub(crate) fn ready(&self) -> usize {
        self.len - self.disks.kept()
    }

    /// Changes the rule or its parameters. The order within each flow stays; a rule that was in force keeps what it knows.
    pub(crate) fn set(&mut self, now: Instant, spec: SchedulerSpec) {
        // What limits keep is kept again when its turn comes.
        let waiting = self.rings.clear();
        if spec.kind() == self.spec.kind() {
            if !waiting.is_empty() {
                self.begin_backlog(now, true);
            }
            self.rule.configure(&spec);
        } else {
            // Costs are others.
            self.rings = Rings::default();
            self.rule = spec.build(now);
            self.rule.backlog(now, !waiting.is_empty(), self.outstanding == 0);
            for (flow, id) in self.flows.iter().zip(0..).filter(|(flow, _)| !flow.is_idle()) {
                self.rule.activated(now, FlowId(id), self.disks.part(now, flow.disk));
            }
        }
        self.spec = spec;
        for id in waiting {
            self.add(id);
        }
        (0..self.flows.len()).for_each(|id| self.count(FlowId(id as u16)));
    }

    pub(crate) fn set_weight(&mut self, now: Instant, disk: DiskId, weight: u16) {
        self.disks.set_weight(now, disk, weight);
    }

    pub(crate) fn push_back(&mut self, now: Instant, io: &Io, needs_path: bool) {
        let id = io.flow;
        let flow = by_flow(&mut self.flows, id);
        if flow.is_idle() {
            // What it owes is not settled by being idle for a moment between two requests.
            let forgiven = flow.idle_for(now).is_none_or(|time| time >= FORGIVEN);
            (flow.disk, flow.unlimited) = (io.disk, false);
            self.disks.mark(now, io.disk, &mut flow.seen);
            self.begin_backlog(now, self.len > 0);
            if forgiven {
                self.rings.forgive(id);
            }
            self.rule.activated(now, id, self.disks.part(now, io.disk));
        }
        let flow = self.flow_mut(id);
        assert_eq!(flow.disk, io.disk, "a flow is of one disk");
        flow.push_back(Waiting { tag: io.tag, bytes: io.bytes, since: now, needs_path });
        self.without_path += usize::from(!needs_path);
        self.pushed(now, id);
    }

    /// For a request that was taken before.
    pub(crate) fn push_front(&mut self, now: Instant, io: &Io, needs_path: bool) {
        let flow = by_flow(&mut self.flows, io.flow);
        assert!(flow.outstanding > 0, "what comes back was taken");
        flow.outstanding -= 1;
        self.outstanding -= 1;
        flow.push_front(Waiting { tag: io.tag, bytes: io.bytes, since: now, needs_path });
        self.without_path += usize::from(!needs_path);
        self.pushed(now, io.flow);
        if !needs_path && self.disks.is_blocked(io.disk) {
            // Its flow may be kept, as what is next now needed a path.
            self.unpark(now, io.disk);
        }
    }

    fn pushed(&mut self, now: Instant, id: FlowId) {
        let flow = &self.flows[usize::from(id.0)];
        self.len += 1;
        self.disks.pushed(flow.disk);
        if flow.queue.len() == 1 {
            self.file(now, id);
        }
    }

    /// A flow has got something queued.
    fn file(&mut self, now: Instant, id: FlowId) {
        self.begin_backlog(now, self.len > 1);
        self.add(id);
        self.count(id);
    }

    fn add(&mut self, id: FlowId) {
        let flow = self.flow(id);
        assert!(!flow.queue.is_empty(), "only flows with something queued have turns");
        self.rings.add(id, self.rule.tier(id), self.share(id), self.burst(id));
    }

    /// What the flow has to send that credit covers.
    fn burst(&self, id: FlowId) -> Burst {
        let flow = self.flow(id);
        let all = flow.queue.len() as u64 * self.rule.cost(0) + flow.queued_bytes;
        Burst { cost: self.rule.covered(id).min(all), weight: self.disks.weight_each(flow.disk) }
    }

    /// What a flow has queued, or where that belongs, may be another.
    fn count(&mut self, id: FlowId) {
        let flow = &mut self.flows[usize::from(id.0)];
        let in_normal = !flow.queue.is_empty() && self.rule.tier(id) == Tier::Normal;
        if in_normal != flow.in_normal {
            flow.in_normal = in_normal;
            self.disks.count_in_normal(flow.disk, in_normal);
        }
    }

    fn end_backlog(&mut self, now: Instant) {
        // What limits let a disk have is what can be done for it.
        if self.rings.is_empty() && !self.disks.limits_keep_any() {
            self.rule.backlog(now, false, false);
        }
    }

    /// Something is about to wait for its turn; `others`: more than that waits, though not for the service.
    fn begin_backlog(&mut self, now: Instant, others: bool) {
        if self.rings.is_empty() {
            self.rule.backlog(now, true, self.outstanding == 0 && !others);
        }
    }

    /// The first request of the flow whose turn comes first, or after another one, and where that flow stands.
    pub(crate) fn candidate(&mut self, now: Instant, mut after: Option<Place>) -> Option<(Place, Tag)> {
        loop {
            let place = self.rings.next(after, self.rule.order())?;
            let flow = &self.flows[usize::from(place.flow.0)];
            let next = flow.queue.front().expect("only flows with something queued have turns");
            // Before it is seen what it owes: what is kept is given nothing.
            if let Some(keeper) = self.disks.keeps(now, flow.disk, next.needs_path, flow.unlimited) {
                if place.is_behind_in_lane() {
                    // Another group has just used up what there was, and the first one of the lane has been shown.
                    after = Some(place);
                } else {
                    self.park(now, place, keeper);
                }
            } else if self.rings.owes(place) {
                let (flows, disks) = (&self.flows, &self.disks);
                self.rings.settle(place.tier, |id| disks.share(flows[usize::from(id.0)].disk));
            } else {
                return Some((place, next.tag));
            }
        }
    }

    /// Takes what [`Scheduler::candidate`] has just shown. Flows passed over keep their turns.
    pub(crate) fn take(&mut self, now: Instant, place: Place) {
        let flow = &mut self.flows[usize::from(place.flow.0)];
        let sent = flow.pop_front().expect("what was shown is there");
        flow.sent(now, sent);
        (self.len, self.outstanding) = (self.len - 1, self.outstanding + 1);
        self.without_path -= usize::from(!sent.needs_path);
        let (disk, next) = (flow.disk, flow.queue.front().map(|next| next.bytes));
        self.disks.mark(now, disk, &mut flow.seen);
        self.disks.sent(now, disk, sent.bytes);
        self.disks.taken(disk, 1);
        // What needs no path is no work of the service.
        let cost = if sent.needs_path { self.rule.cost(sent.bytes) } else { 0 };
        self.rings.take(place, cost);
        let id = place.flow;
        if sent.needs_path {
            // One that is owed a turn has it in a higher tier.
            let tier = self.rule.tier(id);
            let normal_waits = self.rings.waits_in(Tier::Normal);
            let normal_of_disk_waits = self.disks.waits_in_normal(disk);
            self.rule.dispatched(&Dispatched { now, flow: id, disk, tier, cost, normal_waits, normal_of_disk_waits });
            pass(&mut self.passed_since, now, tier, self.rings.waits_in(Tier::Second));
            let second_is_kept = self.rings.first_kept(disk, Tier::Second).is_some();
            self.disks.pass(now, disk, tier, second_is_kept);
        }
        if let Some(bytes) = next {
            let share = self.disks.share(disk);
            self.rings.put_back(place, self.rule.tier(id), share, self.rule.cost(bytes), self.burst(id));
        } else {
            self.rings.emptied(id);
        }
        self.count(id);
        self.raise_owed(disk);
        self.end_backlog(now);
    }

    /// Takes everything of a disk, whatever rule and limits say: it is not going to be sent.
    pub(crate) fn take_all_of(&mut self, now: Instant, disk: DiskId) -> Vec<Tag> {
        self.take_all(now, disk, None)
    }

    /// The same of one flow.
    pub(crate) fn take_all_of_flow(&mut self, now: Instant, id: FlowId) -> Vec<Tag> {
        let disk = self.flows.get(usize::from(id.0)).map(|flow| flow.disk);
        disk.map_or_else(Vec::new, |disk| self.take_all(now, disk, Some(id)))
    }

    fn take_all(&mut self, now: Instant, disk: DiskId, only: Option<FlowId>) -> Vec<Tag> {
        let mut taken = Vec::new();
        self.unpark(now, disk);
        let flows = self.flows.iter_mut().zip((0..).map(FlowId));
        for (flow, _) in flows.filter(|(flow, id)| flow.disk == disk && only.is_none_or(|only| only == *id)) {
            let len = flow.queue.len();
            if len > 0 {
                flow.outstanding += len as u32;
                (self.len, self.outstanding) = (self.len - len, self.outstanding + len);
                for waiting in flow.drain() {
                    self.without_path -= usize::from(!waiting.needs_path);
                    taken.push(waiting.tag);
                }
            }
        }
        let flows = &self.flows;
        self.rings.remove_all(|id| flows[usize::from(id.0)].disk == disk && only.is_none_or(|only| only == id));
        (0..self.flows.len()).for_each(|id| self.count(FlowId(id as u16)));
        self.disks.taken(disk, taken.len());
        self.end_backlog(now);
        taken
    }

    /// A request that was taken is over; if it was one for a path, and succeeded, the service has done so much.
    pub(crate) fn finished(&mut self, now: Instant, id: FlowId, bytes: Option<u32>) {
        let flow = self.flow_mut(id);
        assert!(flow.outstanding > 0, "what is over was taken");
        flow.outstanding -= 1;
        self.outstanding -= 1;
        if let Some(bytes) = bytes {
            self.rule.completed(now, bytes);
        }
    }

    pub(crate) fn stats(&self, now: Instant) -> SchedulerStats {
        let flows = self.flows.iter().zip((0..).map(FlowId)).filter(|(flow, _)| flow.is_known());
        SchedulerStats {
            spec: self.spec,
            disks: self.disks.stats(now),
            flows: flows.map(|(flow, id)| flow.stats(id, self.rule.tier(id), self.rule.credit(id))).collect(),
        }
    }

    fn share(&self, id: FlowId) -> u32 {
        self.disks.share(self.flow(id).disk)
    }

    fn flow(&self, id: FlowId) -> &Flow {
        &self.flows[usize::from(id.0)]
    }

    fn flow_mut(&mut self, id: FlowId) -> &mut Flow {
        &mut self.flows[usize::from(id.0)]
    }
}

/// Snapshot of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerStats {
    /// The rule in force.
    pub spec: SchedulerSpec,
    /// The disks, by id.
    pub disks: Vec<DiskTurns>,
    /// The flows there were, in the order of their ids.
    pub flows: Vec<FlowStats>,
}

impl SchedulerStats {
    /// The disk, if it is one of the group's.
    #[must_use]
    pub fn disk(&self, disk: DiskId) -> Option<&DiskTurns> {
        self.disks.get(disk.index())
    }

    /// Its flows, in the order of their ids.
    pub fn flows_of(&self, disk: DiskId) -> impl Iterator<Item = &FlowStats> {
        self.flows.iter().filter(move |flow| flow.disk == disk)
    }

    /// Adds the counters of another group of the same disks.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.disks.iter_mut().zip(&other.disks) {
            mine.throttled = mine.throttled.max(theirs.throttled);
        }
        for theirs in &other.flows {
            match self.flows.binary_search_by_key(&theirs.flow, |mine| mine.flow) {
                Ok(index) => self.flows[index].merge(theirs),
                Err(index) => self.flows.insert(index, theirs.clone()),
            }
        }
    }
}

/// When the first request of the first tier went past what waits in the second one, which has had no turn since: one of this tier goes.
fn pass(since: &mut Option<Instant>, now: Instant, tier: Tier, second_waits: bool) {
    match tier {
        Tier::First if second_waits => _ = since.get_or_insert(now),
        Tier::First | Tier::Second => *since = None,
        Tier::Normal => {}
    }
}

/// What a table by flow has on a flow; it grows as needed.
fn by_flow<T: Default>(table: &mut Vec<T>, flow: FlowId) -> &mut T {
    by_index(table, flow.0.into())
}

fn by_index<T: Default>(table: &mut Vec<T>, index: usize) -> &mut T {
    if index >= table.len() {
        table.resize_with(index + 1, T::default);
    }
    &mut table[index]
}
