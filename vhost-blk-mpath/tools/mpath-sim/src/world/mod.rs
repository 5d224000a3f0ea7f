//! One run: all parts together, event by event.

mod daemons;
mod events;
mod faults;
mod front_ends;
mod requests;
mod stages;
mod truncation;

use monotonic::{Duration, Instant};

use crate::checker::{Checker, Counts, Violation};
use crate::clock::{Clock, Event};
use crate::context::Ctx;
use crate::discovery_controllers::DiscoveryControllers;
use crate::guest::{Guest, GuestPlan};
use crate::host::{Daemon, Files, Process};
use crate::machine::Machine;
use crate::net::Net;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::target::Target;

/// The most events of a run. Only an endless loop has more.
const EVENTS_MAX: u64 = 20_000_000;

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The broken invariant, if one was broken.
    pub violation: Option<Violation>,
    /// The history of the block concerned, if it was recorded.
    pub history: Vec<String>,
    /// The numbers of its events.
    pub counts: Counts,
    /// The virtual time that it took.
    pub virtual_time: Duration,
    /// A number that two runs of the same seed share.
    pub fingerprint: u64,
}

/// The stage of a run: the present activity of all guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Their users submit requests.
    Work,
    /// They flush. A failed flush is repeated up to this number of times, because each path may report a loss once.
    Flush(usize),
    /// They wait before they flush again.
    Wait(usize),
    /// They read all blocks.
    ReadBack,
    /// The run is over.
    Over,
}

/// A run.
pub(crate) struct World {
    seed: u64,
    ctx: Ctx,
    target: Target,
    controllers: Option<DiscoveryControllers>,
    /// `None` between two daemons.
    daemon: Option<Daemon>,
    /// The number of daemons that there have been.
    daemons: u64,
    /// The process of the daemon, while its disks are removed.
    idle: Option<Process>,
    /// The files that the last daemon has left, for each of the two sockets of a disk. All disks are on their first or on their
    /// second socket.
    files: [Files; 2],
    /// The socket on which the disks are served.
    socket: usize,
    /// The socket on which the disks were served before they were removed.
    last_socket: usize,
    /// When the fences of removed disks are over.
    fences_until: Option<Instant>,
    /// The socket on which removed disks are added.
    adds_on: usize,
    /// The operator has added the disks again.
    is_added: bool,
    /// By disk.
    machines: Vec<Machine>,
    /// By disk: it is open, and its inherited fences are over.
    serves: Vec<bool>,
    /// By disk: the daemon may still execute requests of an earlier front-end.
    unsettled: Vec<bool>,
    /// By disk.
    guests: Vec<Guest>,
    /// By disk: the flush after the last fault has succeeded.
    flushed: Vec<bool>,
    plan: Plan,
    stage: Stage,
    fingerprint: u64,
}

impl World {
    /// The run of a seed. `is_recorded`: with a history of each block.
    pub(crate) fn new(seed: u64, is_recorded: bool, verbose: bool) -> Self {
        let plan = Plan::new(seed);
        let mut clock = Clock::new();
        for (index, planned) in plan.faults.iter().enumerate() {
            clock.after(planned.begins, Event::BeginFault(index));
            clock.after(planned.begins + planned.lasts, Event::EndFault(index));
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
        let mut checker = Checker::new(blocks, plan.spared, &plan.host.group, is_recorded);
        checker.write_zeroes_max = plan.target.write_zeroes_limit.map(|(most, _)| most);
        Self {
            seed,
            ctx: Ctx { clock, net: Net::new(Rng::new(seed, 1), plan.links.clone()), checker, verbose },
            machines: (0..).zip(guests_of_disks()).map(machine).collect(),
            target: Target::new(plan.target.clone(), Rng::new(seed, 2)),
            controllers: plan
                .discovery
                .clone()
                .map(|discovery| DiscoveryControllers::new(discovery, plan.target.nqn.clone(), plan.target.limits)),
            guests,
            flushed: vec![false; disks],
            daemon: None,
            daemons: 0,
            idle: None,
            files: [
                Files::after_front_ends(&plan.host, plan.guests.iter().map(|guest| guest.first_blocks)),
                Files::new(&plan.host),
            ],
            socket: 0,
            last_socket: 0,
            fences_until: None,
            adds_on: 0,
            is_added: false,
            serves: vec![false; disks],
            unsettled: vec![false; disks],
            plan,
            stage: Stage::Work,
            fingerprint: seed,
        }
    }

    fn target(&mut self) -> (&mut Target, &mut Ctx) {
        (&mut self.target, &mut self.ctx)
    }

    fn daemon(&mut self) -> Option<(&mut Daemon, &mut Ctx)> {
        Some((self.daemon.as_mut()?, &mut self.ctx))
    }

    /// The discovery controllers, if there are any.
    fn controllers(&mut self) -> Option<(&mut DiscoveryControllers, &mut Ctx)> {
        Some((self.controllers.as_mut()?, &mut self.ctx))
    }

    /// Runs to the end or to the first violation.
    pub(crate) fn run(mut self, seed: u64) -> Report {
        if self.ctx.verbose {
            crate::print_line(format_args!("{:#?}", self.plan));
        }
        self.ctx.checker.counts.runs_with_several_disks = u64::from(self.guests.len() > 1);
        self.ctx.checker.counts.runs_with_shared_cache = u64::from(self.plan.host.group.shared_write_cache);
        self.ctx.checker.counts.runs_with_tls = u64::from(self.plan.host.tls.is_some());
        self.ctx.checker.counts.runs_with_spared_disk = u64::from(self.plan.spared.is_some());
        self.start_daemon();
        let end = self.plan.quiet + self.plan.patience;
        while self.ctx.checker.violation.is_none() && self.stage != Stage::Over {
            let Some(event) = self.ctx.clock.next() else { break };
            self.ctx.checker.counts.events += 1;
            self.fingerprint = crate::rng::mix(self.fingerprint ^ self.ctx.clock.elapsed().as_nanos());
            if self.ctx.clock.elapsed() > end || self.ctx.checker.counts.events > EVENTS_MAX {
                break;
            }
            self.take_event(event);
            self.next_stage();
        }
        self.finish(seed)
    }

    /// Handles an event, and what follows for the daemon.
    fn take_event(&mut self, event: Event) {
        self.handle(event);
        if let Some((daemon, ctx)) = self.daemon() {
            daemon.observe_attempts(ctx);
        }
        self.turn_disks();
        self.turn_fences();
        self.judge_closed_paths();
        self.turn_shutdown();
    }

    /// Judges paths that were closed in order.
    fn judge_closed_paths(&mut self) {
        while let Some(closed) = self.ctx.checker.closed_paths.next() {
            for disk in 0..self.machines.len() {
                self.ctx.checker.path_closed(self.ctx.clock.elapsed(), closed, disk, self.target.cached(disk));
            }
        }
    }

    fn finish(mut self, seed: u64) -> Report {
        let at = self.ctx.clock.elapsed();
        let now = self.ctx.clock.now();
        if self.stage == Stage::Over {
            if let Some(left) = self.daemon.as_ref().and_then(|daemon| daemon.leaks(now)) {
                self.ctx.checker.violate(at, None, format_args!("leak: {left}"));
            }
            let controllers = self.controllers.as_ref().map_or(0, DiscoveryControllers::len);
            let most = self.plan.host.paths * (1 + self.plan.host.threads) + controllers;
            // Only the host's ends count: a target that has not heard of the end of a connection keeps its own end.
            let open = self.ctx.net.connections_of_host().len();
            if self.plan.only_slow {
                self.ctx.checker.judge_slow_array(at, self.plan.host.threads);
            }
            if open > most * 2 {
                self.ctx.checker.violate(at, None, format_args!("leak: {open} connections are open"));
            }
        } else if self.ctx.checker.violation.is_none() {
            let open: Vec<u64> = self.ctx.checker.open_requests().collect();
            let what = format_args!(
                "no progress: requests {open:?} unanswered {:?} after the last fault, stage {:?}, {}",
                at.saturating_sub(self.plan.quiet),
                self.stage,
                self.daemon.as_ref().map_or_else(|| "no daemon".into(), |daemon| daemon.state(now))
            );
            self.ctx.checker.violate(at, None, what);
        }
        self.end_daemon(false);
        let counts = &mut self.ctx.checker.counts;
        (counts.pieces_delayed, counts.deliveries_frozen) =
            (self.ctx.net.pieces_delayed, self.ctx.net.deliveries_frozen);
        counts.sessions_failed = self.ctx.net.tls_failures;
        let block = self.ctx.checker.violation.as_ref().and_then(|violation| violation.block);
        Report {
            seed,
            history: self.ctx.checker.history.of(block),
            violation: self.ctx.checker.violation,
            counts: self.ctx.checker.counts,
            virtual_time: at,
            fingerprint: self.fingerprint,
        }
    }
}
