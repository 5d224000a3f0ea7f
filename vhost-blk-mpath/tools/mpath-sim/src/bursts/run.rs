//! The event loop.

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, DEFAULT_WEIGHT, DiskId, FlowId, Group, GroupConfig, Io, Limits, Op, Outcome, PathId, PolicyKind,
    SchedulerSpec, SharedDisk, Tag, Window,
};

use super::measure::{Done, Measured};
use crate::group;
use crate::rng::Rng;
use crate::timeline::{Step, Timeline};

const PATH: PathId = PathId(0);

/// What a flow does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Keeps `depth` requests outstanding.
    Bulk { depth: u32, bytes: u32 },
    /// Sends `count` requests at once, waits for all of them, pauses, and begins again.
    Burst {
        count: u32,
        bytes: u32,
        /// The mean pause. It varies by a tenth either way, so that bursts meet the slots in every phase.
        pause: Duration,
    },
}

/// The service that works on the requests.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The number of requests that are worked on at a time.
    pub slots: usize,
    /// How long a request takes. If `sizes_count`, a request of 64 KiB takes this time.
    pub time: Duration,
    /// The time of a request is proportional to its size plus 16 KiB.
    pub sizes_count: bool,
    /// A time, and the factor by which each request takes longer from then on.
    pub slower: Option<(Duration, u32)>,
}

impl Service {
    /// How long a request of `bytes` takes when `elapsed` has passed.
    pub fn takes(&self, bytes: u32, elapsed: Duration) -> Duration {
        let time = if self.sizes_count {
            self.time.mul_f64((16384.0 + f64::from(bytes)) / (80.0 * 1024.0))
        } else {
            self.time
        };
        match self.slower {
            Some((from, times)) if elapsed >= from => time * times,
            _ => time,
        }
    }

    /// The longest that a request of 4 KiB takes.
    pub fn slowest(&self) -> Duration {
        self.takes(4096, Duration::MAX)
    }

    /// The requests of 4 KiB that the service can do in a second, before `slower` applies.
    pub fn iops(&self) -> f64 {
        self.slots as f64 / self.takes(4096, Duration::ZERO).as_secs_f64()
    }
}

/// A disk, and its flows.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its weight among the disks that share the service.
    pub weight: u16,
    pub limits: Limits,
    /// Its flows. The numbers of flows go on from one disk to the next.
    pub flows: Vec<Load>,
}

impl Disk {
    /// A disk with these flows, without limits and with the default weight.
    pub fn of(flows: Vec<Load>) -> Self {
        Self { weight: DEFAULT_WEIGHT, limits: Limits::default(), flows }
    }
}

/// A service and its disks.
#[derive(Clone, Debug)]
pub struct Setup {
    pub scheduler: SchedulerSpec,
    pub service: Service,
    /// The requests that the path may have in flight. Requests beyond the slots of the service queue there, first in, first out.
    pub window: u32,
    pub disks: Vec<Disk>,
    /// Seed of pauses, and of the phases of the slots.
    pub seed: u64,
}

impl Setup {
    /// The load of each flow, and its disk.
    fn flows(&self) -> Vec<(DiskId, Load)> {
        let disks = self.disks.iter().zip((0..).map(DiskId));
        disks.flat_map(|(disk, id)| disk.flows.iter().map(move |load| (id, *load))).collect()
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answer(Tag),
    Begin(usize),
}

struct Open {
    flow: usize,
    bytes: u32,
}

struct Burst {
    /// Since the start.
    began: Duration,
    left: u32,
}

struct Sim<'a> {
    setup: &'a Setup,
    flows: Vec<(DiskId, Load)>,
    timeline: Timeline<Event>,
    group: Group,
    open: Vec<Open>,
    free: Vec<Tag>,
    bursts: Vec<Burst>,
    /// When each slot is free.
    slots: Vec<Instant>,
    rng: Rng,
    measured: Measured,
}

/// Lets the flows work for `warm_up` and then for `time`. Returns the results of `time`.
pub fn run(setup: &Setup, warm_up: Duration, time: Duration) -> Measured {
    let mut sim = Sim::new(setup);
    sim.run(warm_up);
    sim.measured = Measured::new(sim.flows.len(), sim.timeline.elapsed(), time);
    sim.run(time);
    sim.measured
}

impl<'a> Sim<'a> {
    fn new(setup: &'a Setup) -> Self {
        let timeline = Timeline::new();
        let now = timeline.now();
        let config = GroupConfig {
            policy: PolicyKind::Numa.into(),
            scheduler: setup.scheduler,
            window: Window { ios: setup.window, bytes: 1 << 40 },
            suspect_timeout: Duration::from_secs(3600),
            io_timeout: Duration::from_secs(1 << 20),
            ..GroupConfig::default()
        };
        let shared: Vec<SharedDisk> = setup.disks.iter().map(|_| SharedDisk::default()).collect();
        let mut group = group::with_paths(now, config, &shared, 1);
        for ((disk, of), id) in setup.disks.iter().zip(&shared).zip(0..) {
            group.set_weight(DiskId(id), disk.weight);
            of.limits.set(now, disk.limits);
        }
        let mut rng = Rng::single(setup.seed);
        let phase = setup.service.takes(4096, Duration::ZERO);
        let flows = setup.flows();
        let mut sim = Self {
            setup,
            timeline,
            group,
            open: Vec::new(),
            free: Vec::new(),
            bursts: flows.iter().map(|_| Burst { began: Duration::ZERO, left: 0 }).collect(),
            slots: (0..setup.service.slots).map(|_| now + rng.up_to(phase)).collect(),
            rng,
            measured: Measured::new(flows.len(), Duration::ZERO, Duration::ZERO),
            flows,
        };
        for index in 0..sim.flows.len() {
            match sim.flows[index].1 {
                Load::Bulk { depth, bytes } => (0..depth).for_each(|_| sim.submit(index, bytes)),
                Load::Burst { .. } => sim.begin(index),
            }
        }
        sim
    }

    fn run(&mut self, time: Duration) {
        let end = self.timeline.now() + time;
        loop {
            self.act();
            // One event at a time: what ends in the same moment ends in some order.
            match self.timeline.step(self.group.next_timeout(), end) {
                Step::Event(Event::Answer(tag)) => {
                    self.group.complete(self.timeline.now(), PATH, tag, Outcome::Success);
                }
                Step::Event(Event::Begin(flow)) => self.begin(flow),
                Step::Timeout => {}
                Step::End => return,
            }
        }
    }

    fn act(&mut self) {
        let now = self.timeline.now();
        while let Some(action) = self.group.poll_action(now) {
            match action {
                Action::Issue { tag, .. } => {
                    let service = self.takes(self.open[tag.0 as usize].bytes);
                    let slot = self.slots.iter_mut().min().expect("a service has a slot");
                    *slot = now.max(*slot) + service;
                    self.timeline.at(*slot, Event::Answer(tag));
                }
                Action::Finish { tag, result } => {
                    assert_eq!(result, Ok(()), "nothing fails here");
                    self.finished(tag);
                }
                other => unreachable!("one path, never silent: {other:?}"),
            }
        }
    }

    fn finished(&mut self, tag: Tag) {
        let Open { flow, bytes } = self.open[tag.0 as usize];
        self.free.push(tag);
        let work = self.takes(bytes);
        self.measured.done.push(Done { at: self.timeline.elapsed(), flow, work });
        match self.flows[flow].1 {
            Load::Bulk { bytes, .. } => self.submit(flow, bytes),
            Load::Burst { pause, .. } => {
                let burst = &mut self.bursts[flow];
                burst.left -= 1;
                if burst.left > 0 {
                    return;
                }
                if burst.began >= self.measured.from {
                    self.measured.bursts[flow].push(self.timeline.elapsed().saturating_sub(burst.began));
                }
                if pause.is_zero() {
                    self.begin(flow);
                } else {
                    let tenth = pause / 10;
                    self.timeline.after(self.rng.between(9 * tenth, 11 * tenth), Event::Begin(flow));
                }
            }
        }
    }

    fn begin(&mut self, flow: usize) {
        let Load::Burst { count, bytes, .. } = self.flows[flow].1 else { return };
        self.bursts[flow] = Burst { began: self.timeline.elapsed(), left: count };
        (0..count).for_each(|_| self.submit(flow, bytes));
    }

    fn submit(&mut self, flow: usize, bytes: u32) {
        let tag = self.free.pop().unwrap_or_else(|| {
            self.open.push(Open { flow, bytes });
            Tag(self.open.len() as u32 - 1)
        });
        self.open[tag.0 as usize] = Open { flow, bytes };
        let (disk, flow) = (self.flows[flow].0, FlowId(flow as u16));
        self.group.submit(self.timeline.now(), Io { tag, op: Op::Read, bytes, disk, flow, fua: false });
    }

    fn takes(&self, bytes: u32) -> Duration {
        self.setup.service.takes(bytes, self.timeline.elapsed())
    }
}
