//! Small worlds in every order of their events. Each has the shipping core, two paths to two controllers with a volatile write cache
//! each, a few requests, a lost connection or a failed controller, and steps of time.
//!
//! The parts of a world cannot be copied, so a world is made anew for each order. Two orders that lead to equal states are continued
//! only once.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, DiskId, Epoch, FlowId, Group, GroupConfig, Io, IoError, Op, Outcome, PathConfig,
    PathId, PolicyKind, SharedDisk, Tag,
};

/// The length of a step of time, longer than the short timers of the core.
const STEP: Duration = Duration::from_secs(1);
/// The steps of time after which no timer of the core runs any more.
const END_STEPS: u32 = 40;
const PATHS: usize = 2;

/// The events of a world, which happen in any order.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The requests of the guest, in this order. It does not wait for answers.
    pub program: &'static [Op],
    /// The number of connections that break.
    pub losses: u32,
    /// The number of controllers that fail.
    pub crashes: u32,
    /// The number of steps of time.
    pub steps: u32,
}

const fn plan(program: &'static [Op], losses: u32, crashes: u32, steps: u32) -> Plan {
    Plan { program, losses, crashes, steps }
}

/// The worlds that are explored.
pub const PLANS: [Plan; 6] = [
    plan(&[Op::Write, Op::Flush], 1, 1, 1),
    plan(&[Op::Write, Op::Flush, Op::Flush], 1, 0, 1),
    plan(&[Op::Write, Op::Flush, Op::Flush], 0, 1, 1),
    plan(&[Op::Write, Op::Flush, Op::Write], 1, 0, 0),
    plan(&[Op::Write, Op::Write, Op::Flush], 1, 0, 0),
    plan(&[Op::Write, Op::Write, Op::Flush], 0, 1, 0),
];

/// The findings in all worlds of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explored {
    /// The number of different states.
    pub states: usize,
    /// The broken promise, and the events that lead there.
    pub violation: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The guest submits its next request.
    Submit,
    /// A controller executes a command of the present connection, or of a lost one.
    Execute { path: usize, command: usize },
    /// The host receives the answer of an executed command.
    Answer { path: usize, command: usize },
    /// A connection breaks. Its commands may still be executed.
    Lose(usize),
    /// A controller fails: its connection breaks, and its cache is gone.
    Crash(usize),
    /// The fence lifts: no command of the lost connection is executed any more.
    Lift(usize),
    /// The path has a new association.
    Up(usize),
    /// Time passes.
    Step,
}

/// A command at a controller.
#[derive(Debug, Clone, Copy, Hash)]
struct Command {
    tag: Tag,
    epoch: Epoch,
    is_executed: bool,
    /// Its connection is lost.
    is_late: bool,
    /// The host has recalled it.
    is_recalled: bool,
}

#[derive(Debug, Default, Hash)]
struct Controller {
    epoch: u64,
    is_up: bool,
    /// The lost association, until its fence lifts.
    lost: Option<Epoch>,
    commands: Vec<Command>,
    /// The writes that a crash takes.
    cache: BTreeSet<Tag>,
}

#[derive(Debug)]
struct Request {
    op: Op,
    submitted: u32,
    answered: Option<(u32, Result<(), IoError>)>,
    is_durable: bool,
}

struct World {
    now: Instant,
    group: Group,
    plan: Plan,
    requests: Vec<Request>,
    controllers: [Controller; PATHS],
    moment: u32,
    losses: u32,
    crashes: u32,
    steps: u32,
    violation: Option<String>,
}

impl World {
    fn new(start: Instant, plan: Plan) -> Self {
        let policy = PolicyKind::RoundRobin.into();
        let mut group = Group::new(start, GroupConfig { policy, ..GroupConfig::default() }, &[SharedDisk::default()]);
        (0..PATHS as u16).for_each(|path| group.add_path(PathId(path), PathConfig::default()));
        let mut world = Self {
            now: start,
            group,
            plan,
            requests: Vec::new(),
            controllers: Default::default(),
            moment: 0,
            losses: 0,
            crashes: 0,
            steps: 0,
            violation: None,
        };
        (0..PATHS).for_each(|path| world.apply(Event::Up(path)));
        world
    }

    /// The events that can happen next.
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.requests.len() < self.plan.program.len() {
            events.push(Event::Submit);
        }
        for (path, controller) in self.controllers.iter().enumerate() {
            for (command, state) in controller.commands.iter().enumerate() {
                if !state.is_executed {
                    events.push(Event::Execute { path, command });
                } else if !state.is_late {
                    events.push(Event::Answer { path, command });
                }
            }
            if controller.is_up {
                if self.losses < self.plan.losses {
                    events.push(Event::Lose(path));
                }
                if self.crashes < self.plan.crashes {
                    events.push(Event::Crash(path));
                }
            } else if controller.lost.is_some() {
                events.push(Event::Lift(path));
            } else {
                events.push(Event::Up(path));
            }
        }
        if self.steps < self.plan.steps && self.group.open() > 0 {
            events.push(Event::Step);
        }
        events
    }

    fn apply(&mut self, event: Event) {
        self.moment += 1;
        match event {
            Event::Submit => self.submit(),
            Event::Execute { path, command } => self.execute(path, command),
            Event::Answer { path, command } => {
                let Command { tag, is_recalled, .. } = self.controllers[path].commands.remove(command);
                let id = PathId(path as u16);
                if is_recalled {
                    self.group.progress(self.now, id, 1, None);
                } else {
                    self.group.progress(self.now, id, 0, None);
                    self.group.complete(self.now, id, tag, Outcome::Success);
                }
            }
            Event::Lose(path) => {
                self.losses += 1;
                self.lose(path, false);
            }
            Event::Crash(path) => {
                self.crashes += 1;
                self.controllers[path].cache.clear();
                self.lose(path, true);
            }
            Event::Lift(path) => {
                let controller = &mut self.controllers[path];
                controller.commands.retain(|command| !command.is_late);
                if let Some(epoch) = controller.lost.take() {
                    self.group.fence_lifted(self.now, PathId(path as u16), epoch);
                }
            }
            Event::Up(path) => {
                let controller = &mut self.controllers[path];
                controller.epoch += 1;
                controller.is_up = true;
                let association = Association {
                    epoch: Epoch(controller.epoch),
                    ana: AnaState::Optimized.into(),
                    volatile_write_cache: true,
                    queue_depth: 8,
                };
                self.group.path_up(self.now, PathId(path as u16), association);
            }
            Event::Step => {
                self.steps += 1;
                self.now += STEP;
            }
        }
        self.act();
    }

    fn submit(&mut self) {
        let (tag, op) = (Tag(self.requests.len() as u32), self.plan.program[self.requests.len()]);
        self.requests.push(Request { op, submitted: self.moment, answered: None, is_durable: false });
        let bytes = if op == Op::Flush { 0 } else { 4096 };
        self.group.submit(self.now, Io { tag, op, bytes, disk: DiskId(0), flow: FlowId(0), fua: false });
    }

    fn execute(&mut self, path: usize, command: usize) {
        let controller = &mut self.controllers[path];
        let command = &mut controller.commands[command];
        command.is_executed = true;
        let (tag, is_late) = (command.tag, command.is_late);
        if is_late {
            controller.commands.retain(|command| !(command.is_late && command.is_executed));
        }
        let request = &self.requests[tag.0 as usize];
        if request.op == Op::Flush {
            let flushed = std::mem::take(&mut controller.cache);
            for tag in flushed {
                self.requests[tag.0 as usize].is_durable = true;
            }
            return;
        }
        controller.cache.insert(tag);
        if request.answered.is_some() {
            self.violate(format!("write {} is executed after it was answered", tag.0));
        }
    }

    /// A connection ends. Its commands may be executed until the fence is lifted, unless their controller is gone with them.
    fn lose(&mut self, path: usize, is_gone: bool) {
        let (now, id) = (self.now, PathId(path as u16));
        let controller = &mut self.controllers[path];
        controller.is_up = false;
        controller.lost = Some(Epoch(controller.epoch));
        let epoch = Epoch(controller.epoch);
        let open: Vec<_> =
            controller.commands.iter().filter(|command| !command.is_late && !command.is_recalled).copied().collect();
        controller.commands.iter_mut().for_each(|command| command.is_late = true);
        controller.commands.retain(|command| !is_gone && !command.is_executed && command.epoch == epoch);
        self.group.path_lost(now, id);
        for Command { tag, .. } in open {
            let indeterminate = self.requests[tag.0 as usize].op != Op::Flush;
            self.group.complete(now, id, tag, Outcome::Lost { indeterminate });
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.group.poll_action(self.now) {
            match action {
                Action::Issue { path, tag } => {
                    let controller = &mut self.controllers[usize::from(path.0)];
                    let epoch = Epoch(controller.epoch);
                    let command = Command { tag, epoch, is_executed: false, is_late: false, is_recalled: false };
                    controller.commands.push(command);
                    if !controller.is_up {
                        self.violate(format!("request {} is sent on path {path}, which is down", tag.0));
                    }
                }
                Action::Recall { path, tag } => {
                    let controller = &mut self.controllers[usize::from(path.0)];
                    let of = |command: &&mut Command| command.tag == tag && !command.is_late && !command.is_recalled;
                    if let Some(command) = controller.commands.iter_mut().find(of) {
                        command.is_recalled = true;
                        self.group.complete(self.now, path, tag, Outcome::Recalled { abandoned: true });
                    }
                }
                Action::Probe { path, .. } => self.group.probed(self.now, path, false),
                Action::Finish { tag, result } => self.finish(tag, result),
                Action::Hedge { .. } | Action::DropHedge { .. } | Action::Adopt { .. } => {
                    self.violate("a read is hedged without hedging".into());
                }
            }
        }
    }

    fn finish(&mut self, tag: Tag, result: Result<(), IoError>) {
        let Request { op, submitted, .. } = self.requests[tag.0 as usize];
        self.requests[tag.0 as usize].answered = Some((self.moment, result));
        if op != Op::Flush {
            if result.is_err() {
                self.violate(format!("write {} fails", tag.0));
            }
            return;
        }
        if result.is_err() {
            if self.losses + self.crashes == 0 {
                self.violate(format!("flush {} fails, and nothing was lost", tag.0));
            }
            return;
        }
        for (write, request) in self.requests.iter().enumerate() {
            let Some((acknowledged, Ok(()))) = request.answered else { continue };
            let excuses = |flush: &Request| {
                let told = flush.answered.is_some_and(|(at, result)| result.is_err() && at < submitted);
                flush.op == Op::Flush && flush.submitted > acknowledged && told
            };
            let is_promised = request.op != Op::Flush && acknowledged < submitted && !self.requests.iter().any(excuses);
            if is_promised && !request.is_durable {
                let what = format!("flush {} succeeds, and write {write} is not durable", tag.0);
                return self.violate(what);
            }
        }
    }

    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Runs on without further breaks and failures. All requests must be answered then.
    fn run_to_end(&mut self) {
        while self.violation.is_none() {
            let goes_on = |event: &Event| !matches!(event, Event::Lose(_) | Event::Crash(_) | Event::Step);
            let Some(event) = self.events().into_iter().find(goes_on) else { break };
            self.apply(event);
        }
        for _ in 0..END_STEPS {
            self.apply(Event::Step);
        }
        let open = self.group.open();
        let is_waiting = self.controllers.iter().any(|controller| !controller.commands.is_empty());
        if open > 0 && !is_waiting {
            self.violate(format!("{open} requests are never answered"));
        }
    }

    /// A hash that is the same for equal states.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.controllers, self.losses, self.crashes, self.steps).hash(&mut hasher);
        // Only the order of moments counts.
        let answered = |request: &Request| request.answered.map(|(at, _)| at);
        let moments: BTreeSet<u32> =
            self.requests.iter().flat_map(|request| [Some(request.submitted), answered(request)]).flatten().collect();
        let rank = |moment: u32| moments.range(..moment).count();
        for request in &self.requests {
            let answered = request.answered.map(|(at, result)| (rank(at), result));
            (request.is_durable, rank(request.submitted), answered).hash(&mut hasher);
        }
        let mut group = String::new();
        write!(group, "{:?}", self.group).expect("a string takes everything");
        group.hash(&mut hasher);
        hasher.finish()
    }
}

/// Explores every order of the events of a plan, up to the first violation.
#[must_use]
pub fn explore(plan: Plan) -> Explored {
    let start = Instant::now();
    let world_of = |events: &[Event]| {
        let mut world = World::new(start, plan);
        for event in events {
            world.apply(*event);
        }
        world
    };
    let (mut seen, mut to_visit): (HashSet<u64>, Vec<Vec<Event>>) = (HashSet::new(), vec![Vec::new()]);
    while let Some(events) = to_visit.pop() {
        let world = world_of(&events);
        let following = world.events();
        let violation = world.violation.or_else(|| {
            let mut world = world_of(&events);
            world.run_to_end();
            world.violation
        });
        if let Some(what) = violation {
            return Explored { states: seen.len(), violation: Some(format!("{what} after {events:?}")) };
        }
        for event in following {
            let mut longer = events.clone();
            longer.push(event);
            if seen.insert(world_of(&longer).fingerprint()) {
                to_visit.push(longer);
            }
        }
    }
    Explored { states: seen.len(), violation: None }
}
