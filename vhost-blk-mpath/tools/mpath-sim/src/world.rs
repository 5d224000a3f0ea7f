//! One run: everything together, event by event.

use std::time::{Duration, Instant};

use mpath_core::{DiskId, Limits};
use mpath_host::DesiredState;

use crate::check::{Checker, Counts, Kind, Violation};
use crate::clock::{Clock, Event};
use crate::controllers::Controllers;
use crate::ending::Stage;
use crate::guest::Guest;
use crate::host::{Daemon, Message, RecordFiles};
use crate::machine::{Answer, Asked, Machine};
use crate::net::{ConnId, Net, Side};
use crate::plan::{GuestPlan, Plan};
use crate::rng::Rng;
use crate::target::{Ctx, Target};

/// Events in a run at most; only one that goes round in circles has more.
const EVENTS_MAX: u64 = 20_000_000;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What went wrong, if anything did.
    pub violation: Option<Violation>,
    /// The history of the block concerned, if it was recorded.
    pub history: Vec<String>,
    /// What it was made of.
    pub counts: Counts,
    /// Virtual time it took.
    pub virtual_time: Duration,
    /// A number that two runs of the same seed share.
    pub fingerprint: u64,
}

pub(crate) struct World {
    seed: u64,
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) check: Checker,
    pub(crate) target: Target,
    pub(crate) controllers: Option<Controllers>,
    /// `None` between two of them.
    pub(crate) daemon: Option<Daemon>,
    /// How many daemons there have been.
    daemons: u64,
    /// What the last one left.
    record: RecordFiles,
    /// By disk.
    pub(crate) machines: Vec<Machine>,
    /// The fences are over that the daemon has inherited.
    pub(crate) serves: bool,
    /// By disk: the daemon may still execute what a front-end before this one has left.
    pub(crate) unsettled: Vec<bool>,
    /// When the fences are over that the daemon has inherited.
    serves_at: Option<Instant>,
    /// By disk, as the next.
    pub(crate) guests: Vec<Guest>,
    /// The flush of the last stage has succeeded.
    pub(crate) flushed: Vec<bool>,
    pub(crate) plan: Plan,
    pub(crate) stage: Stage,
    pub(crate) verbose: bool,
    fingerprint: u64,
}

impl World {
    pub(crate) fn new(seed: u64, record: bool, verbose: bool) -> Self {
        let plan = Plan::new(seed);
        let mut clock = Clock::new();
        for (index, planned) in plan.faults.iter().enumerate() {
            clock.after(planned.begins, Event::Begin(index));
            clock.after(planned.begins + planned.lasts, Event::End(index));
        }
        clock.after(plan.quiet, Event::Quiet);
        let disks = plan.guests.len();
        let guest = |(disk, guest): (usize, &GuestPlan)| {
            Guest::new(disk, disks, guest.clone(), Rng::new(seed, [3, 4, 5][disk]), &mut clock)
        };
        let guests = plan.guests.iter().enumerate().map(guest).collect();
        let guests_of_disks = || plan.guests.iter().zip(plan.host.disks.iter().map(|disk| disk.block_bytes));
        let blocks = guests_of_disks().map(|(guest, block_bytes)| (guest.blocks, block_bytes.into()));
        let machine = |(disk, (guest, block_bytes)): (u64, (&GuestPlan, u32))| {
            Machine::new(guest.clone(), block_bytes as usize, Rng::new(seed, 10 + disk))
        };
        Self {
            seed,
            net: Net::new(Rng::new(seed, 1), plan.links.clone()),
            check: Checker::new(blocks, plan.spared, &plan.host.group, record),
            machines: (0..).zip(guests_of_disks()).map(machine).collect(),
            target: Target::new(plan.target.clone(), Rng::new(seed, 2)),
            controllers: plan
                .controllers
                .clone()
                .map(|controllers| Controllers::new(controllers, plan.target.nqn.clone(), plan.target.limits)),
            guests,
            flushed: vec![false; disks],
            daemon: None,
            daemons: 0,
            record: RecordFiles::default(),
            serves: false,
            unsettled: vec![false; disks],
            serves_at: None,
            clock,
            plan,
            stage: Stage::Work,
            verbose,
            fingerprint: seed,
        }
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>13.6} {}", self.clock.elapsed().as_secs_f64(), what());
        }
    }

    pub(crate) fn target(&mut self) -> (&mut Target, Ctx<'_>) {
        let Self { clock, net, check, verbose, .. } = self;
        (&mut self.target, Ctx { clock, net, check, verbose: *verbose })
    }

    fn daemon(&mut self) -> Option<(&mut Daemon, Ctx<'_>)> {
        let Self { clock, net, check, verbose, .. } = self;
        let ctx = Ctx { clock, net, check, verbose: *verbose };
        self.daemon.as_mut().map(|daemon| (daemon, ctx))
    }

    /// The operator wants a path to be used so; one that was removed is added again for that.
    pub(crate) fn order(&mut self, path: usize, wanted: DesiredState) {
        if let Some((daemon, mut ctx)) = self.daemon() {
            daemon.order(&mut ctx, path, wanted);
        }
    }

    /// The discovery controllers, if there are any.
    pub(crate) fn controllers(&mut self) -> Option<(&mut Controllers, Ctx<'_>)> {
        let Self { clock, net, check, verbose, .. } = self;
        let ctx = Ctx { clock, net, check, verbose: *verbose };
        self.controllers.as_mut().map(|controllers| (controllers, ctx))
    }

    pub(crate) fn post_all(&mut self, message: impl Fn() -> Message) {
        if let Some((daemon, mut ctx)) = self.daemon() {
            daemon.post_all(&mut ctx, message);
        }
    }

    /// The operator changes the limits of a disk.
    pub(crate) fn limit(&mut self, disk: usize, limits: Limits) {
        if let Some((daemon, mut ctx)) = self.daemon() {
            daemon.limit(&mut ctx, disk, limits);
            self.check.limit(self.clock.elapsed(), disk, limits);
        }
    }

    /// Starts a daemon, unless there is one.
    pub(crate) fn start_daemon(&mut self) {
        if self.daemon.is_some() {
            return;
        }
        let record = std::mem::take(&mut self.record);
        let (number, seed, plan) = (self.daemons, self.seed, self.plan.host.clone());
        let Self { clock, net, check, verbose, machines, .. } = self;
        let mut ctx = Ctx { clock, net, check, verbose: *verbose };
        let controllers = self.controllers.as_ref();
        let (daemon, fence) = Daemon::start(&mut ctx, number, &plan, record, machines, controllers, seed);
        self.daemon = Some(daemon);
        self.daemons += 1;
        self.serves_at = Some(self.clock.now() + fence);
        self.clock.after(fence, Event::Serve);
    }

    /// The daemon is killed; some time after that the kernel has closed its sockets.
    pub(crate) fn kill_daemon(&mut self, resubmits: bool, exit: Duration) {
        if self.daemon.is_none() {
            return;
        }
        self.end_daemon(!resubmits);
        self.check.killed(self.clock.elapsed());
        for id in self.net.of_host() {
            self.clock.after(exit, Event::Exit(id));
        }
    }

    /// The daemon begins to end in order; the next one follows as soon as it has.
    pub(crate) fn stop_daemon(&mut self) {
        let Self { clock, net, check, verbose, machines, .. } = self;
        let mut ctx = Ctx { clock, net, check, verbose: *verbose };
        if let Some(daemon) = &mut self.daemon
            && !daemon.is_ending()
        {
            (0..machines.len()).for_each(|disk| ctx.check.limits_lifted(disk));
            daemon.end(&mut ctx, machines);
        }
    }

    /// Guests see what their disks have grown to.
    fn grow(&mut self) {
        let Some((daemon, mut ctx)) = self.daemon() else { return };
        for (disk, blocks) in daemon.grow(&mut ctx) {
            self.say(|| format!("disk {disk} has grown to {blocks} blocks"));
            self.check.counts.grown += 1;
            self.machines[disk].grow(blocks);
            self.guests[disk].grow(blocks);
        }
    }

    /// Has a daemon that ends do so, and the next one begin.
    fn turn_end(&mut self) {
        let Some((daemon, mut ctx)) = self.daemon() else { return };
        if !daemon.has_ended(&mut ctx) {
            return;
        }
        let Some(daemon) = self.daemon.take() else { return };
        let Self { clock, net, check, verbose, .. } = self;
        let (record, is_written) = daemon.leave(&mut Ctx { clock, net, check, verbose: *verbose });
        self.check.ended(self.clock.elapsed(), is_written);
        self.record = record;
        (self.serves, self.serves_at) = (false, None);
        self.unsettled.fill(false);
        for id in self.net.of_host() {
            self.net.close(&mut self.clock, id, Side::Host);
        }
        self.start_daemon();
    }

    /// The front-end of a disk hangs up.
    pub(crate) fn hang_up(&mut self, disk: usize, is_reset: bool) {
        let Self { clock, net, check, verbose, machines, .. } = self;
        check.limits_lifted(disk);
        let mut ctx = Ctx { clock, net, check, verbose: *verbose };
        if let Some(daemon) = &mut self.daemon {
            self.unsettled[disk] = true;
            ctx.check.counts.hang_ups += 1;
            daemon.hang_up(&mut ctx, disk, &mut machines[disk], is_reset);
            ctx.check.unheard(machines[disk].given_up());
        }
    }

    /// The front-end of a disk stops its virtqueues.
    pub(crate) fn stop_queues(&mut self, disk: usize) {
        let Self { clock, net, check, verbose, machines, .. } = self;
        check.limits_lifted(disk);
        if let Some(daemon) = &mut self.daemon {
            daemon.stop_queues(&mut Ctx { clock, net, check, verbose: *verbose }, disk, &mut machines[disk]);
        }
    }

    /// It has them run again.
    pub(crate) fn start_queues(&mut self, disk: usize) {
        if let Some((daemon, _)) = self.daemon() {
            daemon.start_queues(disk);
        }
        self.turn_doors();
    }

    /// It connects again, or another one does.
    pub(crate) fn connect(&mut self, disk: usize) {
        if let Some((daemon, _)) = self.daemon() {
            daemon.connect(disk);
        }
        self.turn_doors();
    }

    fn turn_doors(&mut self) {
        let Self { clock, net, check, verbose, machines, .. } = self;
        let mut ctx = Ctx { clock, net, check, verbose: *verbose };
        let Some(daemon) = &mut self.daemon else { return };
        let (reset, settled) = daemon.turn_doors(&mut ctx, machines);
        for disk in reset {
            self.unsettled[disk] = true;
        }
        for disk in settled {
            self.unsettled[disk] = false;
        }
        self.give_up();
    }

    /// Events that have no effect from now on.
    fn give_up(&mut self) {
        // Requests to an earlier daemon may be executed until the fences for them are over.
        let machines =
            self.machines.iter_mut().zip(&self.unsettled).filter(|(_, unsettled)| self.serves && !**unsettled);
        for asked in machines.flat_map(|(machine, _)| machine.take_given_up()).collect::<Vec<_>>() {
            let at = self.clock.elapsed();
            self.check.given_up(at, asked.id);
            self.guests[asked.disk].answered(&mut self.clock, asked.user);
        }
    }

    /// Nothing is left of the daemon but what others keep for it. The guests may be reset then.
    fn end_daemon(&mut self, is_reset: bool) {
        let Some(daemon) = self.daemon.take() else { return };
        let Self { clock, net, check, verbose, machines, .. } = self;
        let mut ctx = Ctx { clock, net, check, verbose: *verbose };
        self.record = daemon.kill(&mut ctx, machines, is_reset);
        (self.serves, self.serves_at) = (false, None);
        self.unsettled.fill(false);
    }

    fn serve(&mut self) {
        if self.serves_at.take_if(|at| *at == self.clock.now()).is_none() {
            return;
        }
        let Some((daemon, ctx)) = self.daemon() else { return };
        daemon.begin_to_serve();
        ctx.say(|| "the daemon serves".into());
        self.serves = true;
        self.give_up();
    }

    /// Runs to the end or to the first violation.
    pub(crate) fn run(mut self, seed: u64) -> Report {
        if self.verbose {
            println!("{:#?}", self.plan);
        }
        self.check.counts.several = u64::from(self.guests.len() > 1);
        self.check.counts.shared_caches = u64::from(self.plan.host.group.shared_write_cache);
        self.check.counts.spared = u64::from(self.plan.spared.is_some());
        self.start_daemon();
        let end = self.plan.quiet + self.plan.patience;
        while self.check.violation.is_none() && self.stage != Stage::Over {
            let Some(event) = self.clock.next() else { break };
            self.check.counts.events += 1;
            self.fingerprint = crate::rng::mix(self.fingerprint ^ self.clock.elapsed().as_nanos() as u64);
            if self.clock.elapsed() > end || self.check.counts.events > EVENTS_MAX {
                break;
            }
            self.on(event);
            self.grow();
            self.turn_end();
            self.next_stage();
        }
        self.finish(seed)
    }

    fn finish(mut self, seed: u64) -> Report {
        let at = self.clock.elapsed();
        let now = self.clock.now();
        if self.stage == Stage::Over {
            if let Some(left) = self.daemon.as_ref().and_then(|daemon| daemon.leaks(now)) {
                self.check.violate(at, None, format_args!("leak: {left}"));
            }
            let controllers = self.controllers.as_ref().map_or(0, Controllers::len);
            let most = self.plan.host.paths * (1 + self.plan.host.threads) + controllers;
            if self.net.open() > most * 2 {
                self.check.violate(at, None, format_args!("leak: {} connections are open", self.net.open()));
            }
        } else if self.check.violation.is_none() {
            let open: Vec<u64> = self.check.open().collect();
            let what = format_args!(
                "no progress: requests {open:?} unanswered {:?} after the last fault, stage {:?}, {}",
                at.saturating_sub(self.plan.quiet),
                self.stage,
                self.daemon.as_ref().map_or_else(|| "no daemon".into(), |daemon| daemon.state(now))
            );
            self.check.violate(at, None, what);
        }
        self.end_daemon(false);
        let block = self.check.violation.as_ref().and_then(|violation| violation.block);
        Report {
            seed,
            history: self.check.history_of(block),
            violation: self.check.violation,
            counts: self.check.counts,
            virtual_time: at,
            fingerprint: self.fingerprint,
        }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Deliver(id, side) => {
                let (readable, room) = self.net.on_deliver(&mut self.clock, id, side);
                if readable {
                    self.notify(id, side);
                }
                if room {
                    self.notify(id, side.other());
                }
            }
            Event::Established(id) => {
                if self.net.on_established(&mut self.clock, id) {
                    let (paths, link) = (self.plan.host.paths, self.net.path_of(id));
                    let (node, now) = (link, self.clock.now());
                    match (self.controllers(), link.checked_sub(paths)) {
                        (Some((controllers, mut ctx)), Some(controller)) => {
                            controllers.on_accept(&mut ctx, id, controller);
                        }
                        _ => self.target.on_accept(now, id, node),
                    }
                }
                self.notify(id, Side::Host);
            }
            Event::Reset(id, side) => {
                if self.net.on_reset(id, side) {
                    match side {
                        Side::Host => self.notify(id, side),
                        Side::Target => match self.controllers() {
                            Some((controllers, mut ctx)) if controllers.owns(id) => controllers.close(&mut ctx, id),
                            _ => {
                                let (target, mut ctx) = self.target();
                                target.on_reset(&mut ctx, id);
                            }
                        },
                    }
                }
            }
            Event::Exit(id) => self.net.close(&mut self.clock, id, Side::Host),
            Event::Serve => self.serve(),
            Event::Thread(index) => self.turn(index),
            Event::Discovery => {
                if let Some((daemon, mut ctx)) = self.daemon() {
                    daemon.turn_discovery(&mut ctx);
                }
            }
            Event::Path(index) => {
                if let Some((daemon, mut ctx)) = self.daemon() {
                    daemon.turn_path(&mut ctx, index);
                }
            }
            Event::Fences => {
                if let Some((daemon, mut ctx)) = self.daemon() {
                    daemon.turn_fences(&mut ctx);
                }
            }
            Event::Execute(number) => {
                let (target, mut ctx) = self.target();
                target.on_execute(&mut ctx, number);
            }
            Event::CrossReset(number) => {
                let (target, mut ctx) = self.target();
                target.on_cross_reset(&mut ctx, number);
            }
            Event::KeepAlive(id) => match self.controllers() {
                Some((controllers, mut ctx)) if controllers.owns(id) => controllers.on_keep_alive(&mut ctx, id),
                _ => {
                    let (target, mut ctx) = self.target();
                    target.on_keep_alive(&mut ctx, id);
                }
            },
            Event::Begin(index) => self.begin(self.plan.faults[index].fault),
            Event::End(index) => self.end(self.plan.faults[index].fault),
            Event::Guest { disk, user } => {
                if let Some(asked) = self.guests[disk].ask(&mut self.clock, user) {
                    self.submit(asked);
                }
            }
            Event::Quiet => {
                self.say(|| "quiet".into());
                self.on_quiet();
            }
        }
    }

    /// Something to read, or room to write, at this end of a connection.
    fn notify(&mut self, id: ConnId, side: Side) {
        if let Some((controllers, mut ctx)) = self.controllers()
            && controllers.owns(id)
            && side == Side::Target
        {
            controllers.on_ready(&mut ctx, id);
        } else if side == Side::Target {
            let (target, mut ctx) = self.target();
            target.on_ready(&mut ctx, id);
        } else if let Some((daemon, mut ctx)) = self.daemon() {
            daemon.notify(&mut ctx, id);
        }
    }

    fn turn(&mut self, index: usize) {
        let Some((daemon, mut ctx)) = self.daemon() else { return };
        daemon.turn_thread(&mut ctx, index);
        for disk in 0..self.machines.len() {
            let id = DiskId(disk as u16);
            for queue in 0..self.plan.host.disks[disk].queues {
                let Some(daemon) = self.daemon.as_ref().filter(|daemon| daemon.thread_of(id, queue) == index) else {
                    continue;
                };
                let intact = daemon.is_intact(id);
                let answers = self.machines[disk].reap(queue.into());
                self.answer(answers, intact);
            }
        }
        self.turn_faults(index);
        self.turn_doors();
    }

    /// The guest of a disk is answered; `intact` if flushes have reached every controller.
    fn answer(&mut self, answers: Vec<Answer>, intact: bool) {
        for Answer { asked, result, data } in answers {
            let (at, disk) = (self.clock.elapsed(), asked.disk);
            self.say(|| format!("{asked} answered: {result:?}"));
            let flushed = asked.kind == Kind::Flush && result.is_ok();
            if flushed && intact {
                self.check.recovered(disk);
            }
            self.check.answered(at, asked.id, result, &data);
            if flushed {
                self.check.flushed(at, disk, self.target.cached(disk));
                self.flushed[disk] |= matches!(self.stage, Stage::Flush(_));
            }
            self.guests[disk].answered(&mut self.clock, asked.user);
        }
    }

    pub(crate) fn submit(&mut self, asked: Asked) {
        let range = asked.lba..asked.lba + u64::from(asked.blocks);
        self.say(|| asked.to_string());
        self.check.submitted(self.clock.elapsed(), asked.disk, asked.id, asked.kind, range);
        let machine = &mut self.machines[asked.disk];
        if !machine.is_left_alone(asked.user) {
            let what = format_args!(
                "memory of disk {}, user {}, was written after its read was answered",
                asked.disk, asked.user
            );
            self.check.violate(self.clock.elapsed(), None, what);
        }
        if machine.is_cut_off() {
            self.check.cut_off(self.clock.elapsed(), std::iter::once(asked.id));
        }
        let queue = machine.queue_of(asked.user) as u16;
        if machine.ask(asked)
            && let Some((daemon, mut ctx)) = self.daemon()
        {
            daemon.kick(&mut ctx, DiskId(asked.disk as u16), queue);
        }
    }
}
