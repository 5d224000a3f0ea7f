//! Schedulers under random requests, compared with a model of plain queues.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use monotonic::{Duration, Instant};
use proptest::prelude::*;

use super::helpers::{Test, io};
use crate::scheduler::{Limits, SchedulerKind, SchedulerSpec, Tier};
use crate::{DiskId, FlowId, Tag};

const FLOWS: usize = 5;
/// The flows of the first of two disks.
const OF_FIRST: usize = 3;
const US: Duration = Duration::from_micros(1);

#[derive(Clone, Debug)]
enum Event {
    Push {
        flow: usize,
        bytes: u32,
        needs_path: bool,
    },
    /// Takes the request of the flow that comes after `turn` others.
    Take {
        turn: usize,
    },
    /// A request that was taken finishes, or is put back.
    Finish {
        which: usize,
        back: bool,
    },
    Pass {
        us: u32,
    },
    Set(SchedulerSpec),
    Weight {
        disk: u16,
        weight: u16,
    },
    Limit {
        disk: usize,
        limits: Limits,
    },
    Lift {
        flow: usize,
    },
    Block {
        disk: usize,
        blocked: bool,
    },
    TakeAll {
        disk: u16,
    },
}

/// A request, in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    flow: usize,
    tag: u32,
    bytes: u32,
    needs_path: bool,
}

fn disk_of(flow: usize) -> u16 {
    u16::from(flow >= OF_FIRST)
}

fn spec() -> impl Strategy<Value = SchedulerSpec> {
    let some = [
        ("fifo", &[][..]),
        ("published", &[]),
        ("burst-credit", &[]),
        ("burst-credit", &[("burst", "65536"), ("gap", "1ms"), ("share", "0.1"), ("io-cost", "512")]),
    ];
    (0..some.len()).prop_map(move |at| {
        let kind: SchedulerKind = some[at].0.parse().expect("a scheduler");
        SchedulerSpec::new(kind, some[at].1.iter().copied()).expect("parameters of it")
    })
}

fn bytes() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(512), Just(4096), Just(65_536), Just(1 << 20)]
}

fn event(limited: bool) -> impl Strategy<Value = Event> {
    let per_s = |much| prop_oneof![Just(None), Just(NonZeroU64::new(much))];
    let limits = (per_s(2000), per_s(50 << 20), 0..20_u64).prop_map(|(iops, bytes_per_s, burst)| Limits {
        iops,
        bytes_per_s,
        burst: Duration::from_millis(burst),
    });
    prop_oneof![
        10 => (0..FLOWS, bytes(), prop::bool::weighted(0.8))
            .prop_map(|(flow, bytes, needs_path)| Event::Push { flow, bytes, needs_path }),
        10 => prop_oneof![3 => Just(0), 1 => 0..FLOWS].prop_map(|turn| Event::Take { turn }),
        8 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(which, back)| Event::Finish { which, back }),
        4 => (0..50_000_u32).prop_map(|us| Event::Pass { us }),
        1 => spec().prop_map(Event::Set),
        1 => (0..2_u16, 0..1000_u16).prop_map(|(disk, weight)| Event::Weight { disk, weight }),
        1 => (0..2_usize, any::<bool>()).prop_map(|(disk, blocked)| Event::Block { disk, blocked }),
        1 => (0..2_u16).prop_map(|disk| Event::TakeAll { disk }),
        u32::from(limited) => (0..2_usize, limits).prop_map(|(disk, limits)| Event::Limit { disk, limits }),
        u32::from(limited) => (0..FLOWS).prop_map(|flow| Event::Lift { flow }),
    ]
}

struct Model {
    t: Test,
    queues: Vec<VecDeque<Sent>>,
    gone: Vec<Sent>,
    /// Requests taken by `take_all_of`, and not finished.
    failed: Vec<Sent>,
    tags: u32,
    /// The requests that were taken, in order.
    taken: Vec<u32>,
    /// Flows that are exempt from limits.
    exempt: [bool; FLOWS],
    /// Disks without a path.
    blocked: [bool; 2],
}

impl Model {
    fn new(spec: SchedulerSpec) -> Self {
        Self {
            t: Test::of(spec),
            queues: vec![VecDeque::new(); FLOWS],
            gone: Vec::new(),
            failed: Vec::new(),
            tags: 0,
            taken: Vec::new(),
            exempt: [false; FLOWS],
            blocked: [false; 2],
        }
    }

    fn run(&mut self, events: &[Event]) {
        for event in events {
            self.apply(event);
            self.check_counts();
        }
        self.finish_all();
    }

    fn apply(&mut self, event: &Event) {
        let now = self.t.now;
        match *event {
            Event::Push { flow, bytes, needs_path } => {
                self.exempt[flow] &= !self.is_idle(flow);
                self.queues[flow].push_back(Sent { flow, tag: self.tags, bytes, needs_path });
                self.t.scheduler.push_back(now, &io(disk_of(flow), flow as u16, self.tags, bytes), needs_path);
                self.tags += 1;
            }
            Event::Take { turn } => {
                self.take(turn);
            }
            Event::Finish { which, back } => {
                self.finish_failed();
                if self.gone.is_empty() {
                    return;
                }
                let sent = self.gone.remove(which % self.gone.len());
                if back {
                    let Sent { flow, tag, bytes, needs_path } = sent;
                    self.queues[flow].push_front(sent);
                    self.t.scheduler.push_front(now, &io(disk_of(flow), flow as u16, tag, bytes), needs_path);
                } else {
                    self.finish(sent);
                }
            }
            Event::Pass { us } => self.t.now += us * US,
            Event::Set(spec) => self.t.scheduler.set(spec),
            Event::Weight { disk, weight } => self.t.scheduler.set_weight(DiskId(disk), weight),
            Event::Limit { disk, limits } => self.t.limits[disk].set(now, limits),
            Event::Lift { flow } => {
                self.exempt[flow] = !self.is_idle(flow);
                self.t.scheduler.lift_limits_of(FlowId(flow as u16));
            }
            Event::Block { disk, blocked } => self.block(disk, blocked),
            Event::TakeAll { disk } => {
                let taken = self.t.scheduler.take_all_of(DiskId(disk));
                let queues = self.queues.iter_mut().enumerate().filter(|(flow, _)| disk_of(*flow) == disk);
                let all: Vec<Sent> = queues.flat_map(|(_, queue)| queue.drain(..)).collect();
                assert_eq!(taken, all.iter().map(|sent| Tag(sent.tag)).collect::<Vec<_>>(), "in order, by flow");
                self.failed.extend(all);
            }
        }
    }

    fn block(&mut self, disk: usize, blocked: bool) {
        self.blocked[disk] = blocked;
        self.t.scheduler.set_blocked(self.t.now, DiskId(disk as u16), blocked);
    }

    fn finish(&mut self, sent: Sent) {
        self.t.scheduler.finished(FlowId(sent.flow as u16));
    }

    fn finish_failed(&mut self) {
        for sent in std::mem::take(&mut self.failed) {
            self.finish(sent);
        }
    }

    fn is_idle(&self, flow: usize) -> bool {
        let mut open = self.gone.iter().chain(&self.failed);
        self.queues[flow].is_empty() && open.all(|sent| sent.flow != flow)
    }

    fn waiting(&self) -> impl Iterator<Item = &Sent> {
        self.queues.iter().flatten()
    }

    fn check_counts(&self) {
        let scheduler = &self.t.scheduler;
        assert_eq!(scheduler.len(), self.waiting().count());
        assert_eq!(scheduler.all_need_paths(), self.waiting().all(|sent| sent.needs_path));
        for disk in 0..2 {
            let per_disk = self.waiting().filter(|sent| disk_of(sent.flow) == disk).count();
            assert_eq!(scheduler.len_of(DiskId(disk)), per_disk);
        }
    }

    /// The requests that may go: the oldest request of each flow, if it has a path or needs none, and limits allow it
    /// then.
    fn allowed(&self, then: Instant) -> Vec<u32> {
        let allowed = |sent: &&Sent| {
            let disk = usize::from(disk_of(sent.flow));
            let closed = self.t.limits[disk].throttled_until(then).is_some();
            !(self.blocked[disk] && sent.needs_path || closed && !self.exempt[sent.flow])
        };
        self.queues.iter().filter_map(VecDeque::front).filter(allowed).map(|sent| sent.tag).collect()
    }

    /// Checks that the walk finds exactly the requests that may go. Takes one of them.
    fn take(&mut self, turn: usize) -> Option<u32> {
        let now = self.t.now;
        self.t.scheduler.handle_timeout(now);
        let shown: Vec<u32> = self.t.shown().map(|(_, tag)| tag.0).collect();
        // Limits may report a time that is a ns late.
        let [before, allowed] =
            [now.checked_sub(Duration::from_nanos(1)).unwrap_or(now), now].map(|then| self.allowed(then));
        assert!(shown.iter().all(|tag| allowed.contains(tag)), "shown: {shown:?}, may go: {allowed:?}");
        assert!(before.iter().all(|tag| shown.contains(tag)), "shown: {shown:?}, could go before: {before:?}");
        let kept_by_limits = |sent: &&Sent| {
            let disk = usize::from(disk_of(sent.flow));
            !(shown.contains(&sent.tag) || self.blocked[disk] && sent.needs_path)
        };
        if self.queues.iter().filter_map(VecDeque::front).any(|sent| kept_by_limits(&sent)) {
            let at = self.t.scheduler.next_timeout().expect("what limits keep goes later");
            assert!(at > now, "it could go now");
        }
        let turn = turn.min(shown.len().checked_sub(1)?);
        let tag = self.t.take_at(turn).expect("it was shown");
        assert_eq!(tag, shown[turn]);
        let flow = self.queues.iter().position(|queue| queue.front().is_some_and(|front| front.tag == tag))?;
        self.gone.extend(self.queues[flow].pop_front());
        self.taken.push(tag);
        self.check_counts();
        Some(tag)
    }

    /// Lifts all obstacles and checks that every request goes.
    fn finish_all(&mut self) {
        (0..2).for_each(|disk| self.block(disk, false));
        for _ in 0..100_000 {
            if self.take(0).is_none() {
                let Some(at) = self.t.scheduler.next_timeout() else { break };
                self.t.now = self.t.now.max(at);
            }
        }
        assert!(self.queues.iter().all(VecDeque::is_empty), "lost: {:?}", self.queues);
        assert!(self.t.scheduler.len() == 0 && self.t.shown().next().is_none());
        assert_eq!(self.t.scheduler.ready(), 0);
        for sent in std::mem::take(&mut self.gone) {
            self.finish(sent);
        }
        self.finish_failed();
        let stats = self.t.scheduler.stats(self.t.now);
        assert_eq!(stats.flows.iter().map(|flow| flow.served).sum::<u64>(), self.taken.len() as u64);
        assert!(stats.flows.iter().all(|flow| flow.queued + flow.outstanding == 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// The scheduler is never idle while a request could go. Each flow is first in, first out. Nothing is lost by a
    /// switch, by a disk that loses its path or by one that gives up.
    #[test]
    fn the_scheduler_is_never_idle_and_keeps_the_order_of_flows(spec in spec(), events in prop::collection::vec(event(false), 1..400)) {
        let mut model = Model::new(spec);
        model.run(&events);
    }

    #[test]
    fn limits_keep_the_order_and_a_run_can_be_repeated(spec in spec(), events in prop::collection::vec(event(true), 1..400)) {
        let taken = [(); 2].map(|()| {
            let mut model = Model::new(spec);
            model.run(&events);
            model.taken
        });
        prop_assert_eq!(&taken[0], &taken[1]);
    }
}

const LARGEST: u32 = 1 << 20;

/// The default cost of a request.
fn cost(bytes: u32) -> f64 {
    f64::from(bytes) + 16_384.0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bulk does not starve. Bulk has `1 - share` of the service or its fair part, less the allowance and one request
    /// of the largest size. The allowance keeps its bounds.
    #[test]
    fn bulk_keeps_its_share(
        share in 100_u32..=950,
        bursts in prop::collection::vec((1..4_u16, 1..100_usize, bytes(), 0..50_000_u32), 50..200),
    ) {
        let held = i64::from(1000 - share) * (5 << 20) / 1000;
        let share = f64::from(share) / 1000.0;
        let mut t = Test::new("burst-credit", &[("share", &share.to_string()), ("gap", "10s")]);
        let most = (1.0 - share) * f64::from(5 << 20);
        // By tag.
        let mut sent: Vec<(u16, u32)> = Vec::new();
        let push = |t: &mut Test, sent: &mut Vec<(u16, u32)>, flow: u16, bytes: u32| {
            t.push(flow, sent.len() as u32, bytes);
            sent.push((flow, bytes));
        };
        // Flow 0 is always busy.
        (0..100).for_each(|_| push(&mut t, &mut sent, 0, LARGEST));
        t.take(99);
        prop_assert_eq!(t.tier(0), Tier::Bulk);
        let (mut all, mut bulk) = (0.0, 0.0);
        for (flow, count, bytes, us) in bursts {
            (0..count).for_each(|_| push(&mut t, &mut sent, flow, bytes));
            while t.scheduler.len() > 1 {
                let others = (1..4).map(|flow| if t.tier(flow) == Tier::Sparse { 1.0 } else { 0.0 }).sum::<f64>();
                let (flow, bytes) = sent[t.shown().next().expect("something waits").1.0 as usize];
                let tier = t.tier(flow);
                t.take(1);
                // Each of at most three sparse flows may get as much as bulk.
                let least = (1.0 - share).min(1.0 / (others + 1.0));
                all += least * cost(bytes);
                if tier == Tier::Bulk {
                    bulk += cost(bytes);
                }
                if flow == 0 {
                    push(&mut t, &mut sent, 0, 4096);
                }
                t.complete(flow);
                prop_assert!(bulk >= all - most - cost(LARGEST), "{bulk} of {all}");
                let (allowance, largest) = (t.allowance_of_first_disk(), i64::from(LARGEST) + 16_384);
                prop_assert!((-largest..=held).contains(&allowance), "{allowance}");
            }
            t.now += us * US;
        }
    }

    /// No flow of a tier starves: between two turns of a flow, each other flow sends at most a turn and one request.
    #[test]
    fn no_flow_of_a_tier_starves(sizes in prop::collection::vec(bytes(), 2..8), turns in 100..2000_usize) {
        let mut t = Test::new("burst-credit", &[]);
        for (flow, bytes) in sizes.iter().enumerate() {
            (0..300).for_each(|_| t.push(flow as u16, flow as u32, *bytes));
        }
        // All flows are new to the scheduler: they are bulk after one turn.
        while (0..sizes.len()).any(|flow| t.tier(flow as u16) == Tier::Sparse) {
            t.take(1);
        }
        let mut since = vec![0.0; sizes.len()];
        let largest = sizes.iter().copied().map(cost).fold(0.0, f64::max);
        for _ in 0..turns {
            let flow = t.take(1)[0] as usize;
            t.push(flow as u16, flow as u32, sizes[flow]);
            for since in &mut since {
                *since += cost(sizes[flow]);
            }
            since[flow] = 0.0;
            let bound: f64 = sizes.iter().map(|_| 2.0 * largest).sum();
            prop_assert!(since.iter().all(|since| *since <= bound), "{since:?}, {bound}");
        }
    }

    /// Disks that always have queued requests are served by their weights, with any sizes of requests. Start-time
    /// fair queueing keeps two such disks within one request each.
    #[test]
    fn disks_are_served_by_their_weights(weights in prop::array::uniform2(1..1000_u16), sizes in prop::array::uniform2(bytes())) {
        let mut t = Test::new("burst-credit", &[]);
        for (disk, weight) in (0..).zip(weights) {
            t.scheduler.set_weight(DiskId(disk), weight);
            (0..2000).for_each(|_| t.push_of(disk, disk, disk.into(), sizes[usize::from(disk)]));
        }
        while (0..2).any(|disk| t.tier_of_disk(disk) == Tier::Sparse) {
            t.take(1);
        }
        let mut served = [0.0; 2];
        for _ in 0..1500 {
            let disk = t.take(1)[0] as usize;
            served[disk] += cost(sizes[disk]) / f64::from(weights[disk]);
            t.push_of(disk as u16, disk as u16, disk as u32, sizes[disk]);
            let bound: f64 = (0..2).map(|disk| cost(sizes[disk]) / f64::from(weights[disk])).sum();
            let apart = f64::abs(served[0] - served[1]);
            prop_assert!(apart <= 2.0 * bound, "{apart} apart, of {bound}");
        }
    }
}
