//! A read through the multipath core alone.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, DiskId, FlowId, Group, GroupConfig, Io, Op, Outcome, PathId, PolicyKind, SchedulerKind, SharedDisk, Tag,
    Window,
};
use mpath_sim::group;

use super::meter::{self, Meter, Work};

/// Most virtqueues of a disk.
const FLOWS_OF_DISK: u16 = 256;

/// The part of the work that is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// The scheduler takes the request.
    Submit,
    /// The scheduler and the policy decide, and find nothing more to do.
    Bind,
    /// The path has answered: statistics, and estimates of the policy.
    Complete,
    /// The request ends: records.
    Finish,
}

#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) policy: PolicyKind,
    pub(super) scheduler: SchedulerKind,
    pub(super) paths: usize,
    /// Most requests that are in flight on a path.
    pub(super) slots: u32,
    pub(super) flows: u16,
    /// Requests that a flow keeps outstanding.
    pub(super) depth: u32,
    /// Reads that are answered at once, in each turn.
    pub(super) answers: u32,
    /// The time before the n-th answer.
    pub(super) step: fn(u32) -> Duration,
    pub(super) part: Part,
}

/// Flows under load. Most flows always have requests waiting. Every fourth flow is sparse: it submits again only when all of its
/// requests have ended.
pub(super) struct Core {
    setup: Setup,
    now: Instant,
    group: Group,
    in_flight: VecDeque<(PathId, Tag)>,
    /// Unfinished requests of each flow.
    open: Vec<u32>,
    answers: u32,
}

impl Core {
    pub(super) fn work(setup: Setup) -> Work {
        let now = meter::start();
        let config = GroupConfig {
            policy: setup.policy.into(),
            scheduler: setup.scheduler.into(),
            window: Window { ios: setup.slots, bytes: 1 << 40 },
            ..GroupConfig::default()
        };
        let disks: Vec<_> = (0..setup.flows.div_ceil(FLOWS_OF_DISK)).map(|_| SharedDisk::default()).collect();
        let group = group::with_paths(now, config, &disks, setup.paths);
        let open = vec![setup.depth; setup.flows.into()];
        let mut core = Self { setup, now, group, in_flight: VecDeque::new(), open, answers: 0 };
        (0..u32::from(setup.flows) * setup.depth).for_each(|tag| core.submit(Meter::Off, tag));
        core.bind(Meter::Off);
        Box::new(move |meter, reads| {
            let end = core.answers + reads;
            while core.answers < end {
                core.turn(meter, end);
            }
        })
    }

    fn meter_of(&self, part: Part, meter: Meter) -> Meter {
        if [Part::All, part].contains(&self.setup.part) { meter } else { Meter::Off }
    }

    /// The flow of a tag. No two flows have the same tag.
    fn flow_of(&self, tag: u32) -> u16 {
        (tag % u32::from(self.setup.flows)) as u16
    }

    fn submit(&mut self, meter: Meter, tag: u32) {
        let flow = self.flow_of(tag);
        let disk = DiskId(flow / FLOWS_OF_DISK);
        let io = Io { tag: Tag(tag), op: Op::Read, bytes: 4096, disk, flow: FlowId(flow), fua: false };
        self.meter_of(Part::Submit, meter).count(|| self.group.submit(self.now, io));
    }

    fn bind(&mut self, meter: Meter) {
        let meter = self.meter_of(Part::Bind, meter);
        while let Some(action) = meter.count(|| self.group.poll_action(self.now)) {
            match action {
                Action::Issue { path, tag } => self.in_flight.push_back((path, tag)),
                Action::Probe { path, .. } => self.in_flight.push_back((path, Tag::PROBE)),
                other => unreachable!("no path is silent: {other:?}"),
            }
        }
    }

    /// The oldest reads are answered, and their flows go on. Probes before them are answered too.
    fn turn(&mut self, meter: Meter, end: u32) {
        let in_flight = self.in_flight.iter().filter(|(_, tag)| *tag != Tag::PROBE).count() as u32;
        let answers = self.setup.answers.min(in_flight).min(end - self.answers);
        (0..answers).for_each(|nth| self.now += (self.setup.step)(self.answers + nth));
        self.answers += answers;
        let complete = self.meter_of(Part::Complete, meter);
        for _ in 0..answers {
            let (path, tag) = loop {
                let (path, tag) = self.in_flight.pop_front().expect("there is always work");
                if tag != Tag::PROBE {
                    break (path, tag);
                }
                complete.count(|| self.group.probed(self.now, path, true));
            };
            complete.count(|| self.group.complete(self.now, path, tag, Outcome::Success));
        }
        let finish = self.meter_of(Part::Finish, meter);
        let finished = |core: &mut Self| finish.count(|| core.group.poll_action(core.now));
        let finished: Vec<_> = (0..answers).map(|_| finished(self)).collect();
        for action in finished {
            let Some(Action::Finish { tag, result: Ok(()) }) = action else { unreachable!("nothing fails here") };
            self.go_on(meter, tag.0);
        }
        self.bind(meter);
    }

    fn go_on(&mut self, meter: Meter, tag: u32) {
        let Setup { flows, depth, .. } = self.setup;
        let flow = self.flow_of(tag);
        let open = &mut self.open[usize::from(flow)];
        if !flow.is_multiple_of(4) {
            return self.submit(meter, tag);
        }
        *open -= 1;
        if *open == 0 {
            *open = depth;
            (0..depth).for_each(|nth| self.submit(meter, u32::from(flow) + nth * u32::from(flows)));
        }
    }
}
