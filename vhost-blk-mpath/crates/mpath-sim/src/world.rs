//! One run: everything together, event by event.

use std::sync::Arc;
use std::time::Duration;

use mpath_core::{DirtyPaths, PathId};

use crate::check::{Checker, Counts, Kind, Violation};
use crate::clock::{Clock, Event};
use crate::guest::Guest;
use crate::host::path::PathTask;
use crate::host::thread::IoThread;
use crate::host::{Answer, Asked, Message};
use crate::net::{ConnId, Net, Side};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::target::{Ctx, Target};

/// Events in a run at most; only one that goes round in circles has more.
const EVENTS_MAX: u64 = 20_000_000;

/// Before a flush that failed is repeated: a loss is reported to every flush that may have been under way.
const FLUSH_AGAIN: Duration = Duration::from_millis(200);

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What went wrong, if anything did.
    pub violation: Option<Violation>,
    /// What is known of the block concerned, if it was recorded.
    pub history: Vec<String>,
    /// What it was made of.
    pub counts: Counts,
    /// Virtual time it took.
    pub virtual_time: Duration,
    /// A number that two runs of the same seed share.
    pub fingerprint: u64,
}

/// After the last fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The guest goes about its business.
    Work,
    /// It flushes, up to so many times more: a loss is reported once a path.
    Flush(usize),
    /// It waits before it flushes again.
    Wait(usize),
    /// It reads everything.
    ReadBack,
    Over,
}

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) check: Checker,
    pub(crate) target: Target,
    threads: Vec<IoThread>,
    paths: Vec<PathTask>,
    guest: Guest,
    plan: Plan,
    stage: Stage,
    verbose: bool,
    fingerprint: u64,
}

impl World {
    pub(crate) fn new(seed: u64, record: bool, verbose: bool) -> Self {
        let plan = Plan::new(seed);
        let mut clock = Clock::new();
        let now = clock.now();
        let dirty = Arc::new(DirtyPaths::new());
        let threads = (0..plan.host.threads)
            .map(|index| IoThread::new(now, index, &plan.host, &dirty, Rng::new(seed, 100 + index as u64)));
        let paths = (0..plan.host.paths)
            .map(|path| PathTask::new(now, PathId(path as u16), plan.host.clone(), Rng::new(seed, 200 + path as u64)));
        let (threads, paths) = (threads.collect(), paths.collect());
        for (index, planned) in plan.faults.iter().enumerate() {
            clock.after(planned.begins, Event::Begin(index));
            clock.after(planned.begins + planned.lasts, Event::End(index));
        }
        clock.after(plan.quiet, Event::Quiet);
        Self {
            net: Net::new(Rng::new(seed, 1), plan.links.clone()),
            check: Checker::new(plan.target.blocks, record),
            target: Target::new(plan.target.clone(), Rng::new(seed, 2)),
            guest: Guest::new(plan.guest.clone(), Rng::new(seed, 3), &mut clock),
            threads,
            paths,
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
        (&mut self.target, Ctx { clock: &mut self.clock, net: &mut self.net, check: &mut self.check })
    }

    fn thread(&mut self, index: usize) -> (&mut IoThread, Ctx<'_>) {
        let ctx = Ctx { clock: &mut self.clock, net: &mut self.net, check: &mut self.check };
        (&mut self.threads[index], ctx)
    }

    fn path(&mut self, index: usize) -> (&mut PathTask, Ctx<'_>) {
        let ctx = Ctx { clock: &mut self.clock, net: &mut self.net, check: &mut self.check };
        (&mut self.paths[index], ctx)
    }

    pub(crate) fn post_all(&mut self, message: impl Fn() -> Message) {
        for index in 0..self.threads.len() {
            let (thread, mut ctx) = self.thread(index);
            thread.post(&mut ctx, message());
        }
    }

    /// Runs to the end or to the first violation.
    pub(crate) fn run(mut self, seed: u64) -> Report {
        if self.verbose {
            println!("{:#?}", self.plan);
        }
        for index in 0..self.paths.len() {
            let (path, mut ctx) = self.path(index);
            path.wake(&mut ctx);
        }
        let end = self.plan.quiet + self.plan.patience;
        while self.check.violation.is_none() && self.stage != Stage::Over {
            let Some(event) = self.clock.next() else { break };
            self.check.counts.events += 1;
            self.fingerprint = crate::rng::mix(self.fingerprint ^ self.clock.elapsed().as_nanos() as u64);
            if self.clock.elapsed() > end || self.check.counts.events > EVENTS_MAX {
                break;
            }
            self.on(event);
            self.next_stage();
        }
        self.finish(seed)
    }

    fn finish(mut self, seed: u64) -> Report {
        let at = self.clock.elapsed();
        if self.stage == Stage::Over {
            let now = self.clock.now();
            if let Some(left) = self.threads.iter().find_map(|thread| thread.leaks(now)) {
                self.check.violate(at, None, format_args!("leak: {left}"));
            }
            let most = self.paths.len() * (1 + self.threads.len());
            if self.net.open() > most * 2 {
                self.check.violate(at, None, format_args!("leak: {} connections are open", self.net.open()));
            }
        } else if self.check.violation.is_none() {
            let open: Vec<u64> = self.check.open().collect();
            let now = self.clock.now();
            let states: Vec<String> = self.threads.iter().map(|thread| thread.state(now)).collect();
            let live = self.paths.iter().filter(|path| path.is_live()).count();
            let what = format_args!(
                "no progress: requests {open:?} unanswered {:?} after the last fault, {live} paths live, stage {:?}\n  {}",
                at.saturating_sub(self.plan.quiet),
                self.stage,
                states.join("\n  ")
            );
            self.check.violate(at, None, what);
        }
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
                    let node = self.net.path_of(id);
                    self.target.on_accept(id, node);
                }
                self.notify(id, Side::Host);
            }
            Event::Reset(id, side) => {
                if self.net.on_reset(id, side) {
                    match side {
                        Side::Host => self.notify(id, side),
                        Side::Target => {
                            let (target, mut ctx) = self.target();
                            target.on_reset(&mut ctx, id);
                        }
                    }
                }
            }
            Event::Thread(index) => self.turn(index),
            Event::Path(index) => {
                let (path, mut ctx) = self.path(index);
                path.turn(&mut ctx);
                for (to, message) in std::mem::take(&mut self.paths[index].mail) {
                    self.say(|| format!("to thread {to}: {message:?}").chars().take(150).collect());
                    let (thread, mut ctx) = self.thread(to);
                    thread.post(&mut ctx, message);
                }
            }
            Event::Execute(number) => {
                let (target, mut ctx) = self.target();
                target.on_execute(&mut ctx, number);
            }
            Event::KeepAlive(id) => {
                let (target, mut ctx) = self.target();
                target.on_keep_alive(&mut ctx, id);
            }
            Event::Begin(index) => self.begin(self.plan.faults[index].fault),
            Event::End(index) => self.end(self.plan.faults[index].fault),
            Event::Guest(user) => {
                if let Some(asked) = self.guest.ask(&mut self.clock, user) {
                    self.submit(asked);
                }
            }
            Event::Quiet => {
                self.say(|| "quiet".into());
                if let Stage::Wait(left) = self.stage {
                    self.stage = self.flush_again(left);
                }
            }
        }
    }

    /// Something to read, or room to write, at this end of a connection.
    fn notify(&mut self, id: ConnId, side: Side) {
        if side == Side::Target {
            let (target, mut ctx) = self.target();
            return target.on_ready(&mut ctx, id);
        }
        if let Some(index) = self.paths.iter().position(|path| path.owns(id)) {
            let (path, mut ctx) = self.path(index);
            path.wake(&mut ctx);
        } else if let Some(index) = self.threads.iter().position(|thread| thread.owns(id)) {
            let (thread, mut ctx) = self.thread(index);
            thread.wake(&mut ctx);
        }
    }

    fn turn(&mut self, index: usize) {
        let (thread, mut ctx) = self.thread(index);
        thread.turn(&mut ctx);
        for report in std::mem::take(&mut self.threads[index].reports) {
            self.say(|| format!("thread {index}: {report:?}"));
            let (path, mut ctx) = self.path(usize::from(report.path.0));
            path.report(&mut ctx, report);
        }
        for Answer { asked, result, data } in std::mem::take(&mut self.threads[index].answers) {
            let at = self.clock.elapsed();
            self.say(|| format!("#{} {:?} {}+{} answered: {result:?}", asked.id, asked.kind, asked.lba, asked.blocks));
            self.check.answered(at, asked.id, result, &data);
            if asked.kind == Kind::Flush && result.is_ok() {
                self.check.flushed(at, self.target.store.cached());
                if let Stage::Flush(_) = self.stage {
                    self.stage = Stage::Flush(0);
                }
            }
            self.guest.answered(&mut self.clock, asked.user);
        }
    }

    fn submit(&mut self, asked: Asked) {
        let range = asked.lba..asked.lba + u64::from(asked.blocks);
        self.say(|| format!("#{} {:?} {}+{}", asked.id, asked.kind, asked.lba, asked.blocks));
        self.check.submitted(self.clock.elapsed(), asked.id, asked.kind, range);
        let index = usize::from(asked.flow) % self.threads.len();
        let (thread, mut ctx) = self.thread(index);
        thread.ask(&mut ctx, asked);
    }

    /// When the guest has nothing out any more: the next thing for it to do.
    fn next_stage(&mut self) {
        let whole = self.threads.iter().all(|thread| thread.live_paths() == self.paths.len());
        if !self.guest.is_over(&self.clock) || !whole {
            return;
        }
        self.stage = match self.stage {
            Stage::Work => self.flush_again(self.paths.len() + 1),
            Stage::Flush(0) => {
                let blocks = self.plan.target.blocks;
                for user in 0..self.guest.flows() {
                    let read = self.guest.asked(user, Kind::Read, 0..blocks);
                    self.submit(read);
                }
                Stage::ReadBack
            }
            Stage::Flush(1) => {
                self.check.violate(self.clock.elapsed(), None, "flushes go on failing after the last fault");
                Stage::Over
            }
            Stage::Flush(left) => {
                self.clock.after(FLUSH_AGAIN, Event::Quiet);
                Stage::Wait(left - 1)
            }
            Stage::Wait(left) => Stage::Wait(left),
            Stage::ReadBack | Stage::Over => Stage::Over,
        };
    }

    fn flush_again(&mut self, left: usize) -> Stage {
        let flush = self.guest.asked(0, Kind::Flush, 0..0);
        self.submit(flush);
        Stage::Flush(left)
    }
}
