//! The task of a path: the shipping driver of the path, over simulated surroundings.

mod surroundings;

use std::collections::VecDeque;

use monotonic::Instant;
use mpath_core::{Epoch, PathId};
use mpath_lifecycle::{DesiredState, Order, Path, PathDriver, PathTrial};
use reactor::{PathEvent, PathEventKind};

use self::surroundings::{Surroundings, Turn};
use super::control_socket::ControlSocket;
use super::disks::Disks;
use super::fences::Fences;
use super::plan::HostPlan;
use super::socket::IoFailure;
use super::stats_question::StatsQuestion;
use super::turn_timer::TurnTimer;
use crate::clock::{Event, earliest};
use crate::connection::ConnId;
use crate::context::Ctx;
use crate::rng::Rng;

/// The task of a path.
pub(crate) struct PathTask {
    driver: PathDriver<IoFailure, ControlSocket, ConnId>,
    pub(crate) own: Surroundings,
    /// The daemon ends.
    is_ending: bool,
    /// Its task has ended, as all its controllers are shut down.
    has_ended: bool,
    reports: VecDeque<PathEvent<ConnId>>,
    timer: TurnTimer,
}

impl PathTask {
    /// A path that begins to connect. Its first association has the epoch after `epoch`.
    pub(crate) fn new(now: Instant, id: PathId, epoch: Epoch, plan: HostPlan, rng: Rng) -> Self {
        Self {
            driver: PathDriver::new(Path::new(now, id, epoch, Order::default(), plan.path_settings())),
            own: Surroundings::new(id, plan, rng),
            is_ending: false,
            has_ended: false,
            reports: VecDeque::new(),
            timer: TurnTimer::new(Event::Path(usize::from(id.0))),
        }
    }

    pub(crate) fn owns(&self, id: ConnId) -> bool {
        self.own.is_connecting(id)
            || self.driver.sockets().any(|socket| socket.conn == id)
            || self.driver.half_closed_sockets().any(|socket| *socket == id)
    }

    /// The operator orders a state.
    pub(crate) fn order(&mut self, ctx: &mut Ctx, wanted: DesiredState) {
        self.own.order.wanted = wanted;
        self.driver.path_mut().order(self.own.order);
        self.wake(ctx);
    }

    /// The operator resets the path.
    pub(crate) fn reset(&mut self, ctx: &mut Ctx) {
        self.own.order.resets += 1;
        self.driver.path_mut().order(self.own.order);
        self.wake(ctx);
    }

    pub(crate) fn is_removing(&self) -> bool {
        self.own.order.wanted.is_removal()
    }

    /// Whether its removal can be taken back. The operator who removes a path at once means it.
    pub(crate) fn can_return(&self) -> bool {
        let at_once = self.own.order.wanted == DesiredState::Removed { at_once: true };
        self.is_removing() && !at_once && !self.own.is_leaving && !self.own.is_gone
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.own.is_leaving
    }

    /// The order that it has.
    pub(crate) fn wanted(&self) -> DesiredState {
        self.own.order.wanted
    }

    /// There is no such path.
    pub(crate) fn set_gone(&mut self) {
        self.own.is_gone = true;
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.own.is_gone
    }

    /// No I/O thread knows the path.
    pub(crate) fn removed_from_threads(&mut self, ctx: &mut Ctx) {
        self.own.awaits_removal = false;
        self.driver.path_mut().removal_step_done();
        self.wake(ctx);
    }

    /// Whether the operator wants it to be used.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.own.order.wanted.is_draining()
    }

    /// Whether the operator finds that it is refused.
    pub(crate) fn is_refused(&self, now: Instant) -> bool {
        self.own.refused_until.is_some_and(|until| until <= now)
    }

    /// The same path, which is added again after its removal.
    pub(crate) fn added_again(self, now: Instant) -> Self {
        let Surroundings { id, plan, rng, .. } = self.own;
        Self::new(now, id, self.driver.path().latest().epoch, plan, rng)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.driver.path().is_live()
    }

    pub(crate) fn trial(&self) -> PathTrial {
        self.driver.path().trial()
    }

    /// Whether the path was found to lead to another namespace.
    pub(crate) fn was_refused(&self) -> bool {
        self.own.refused_until.is_some()
    }

    /// Whether the I/O threads were told that the path can be used for a disk, and none of them has lost the path.
    pub(crate) fn reaches(&self, disk: usize) -> bool {
        let is_loss = |kind: &_| matches!(kind, PathEventKind::Lost(_) | PathEventKind::Closed { .. });
        let is_lost = self.reports.iter().any(|report| is_loss(&report.kind));
        self.is_enabled() && !is_lost && self.could_serve(disk)
    }

    /// Whether the path leads to an accessible namespace of a disk, as far as its task knows.
    pub(crate) fn could_serve(&self, disk: usize) -> bool {
        self.is_live() && self.own.leads_to(disk)
    }

    pub(crate) fn report(&mut self, ctx: &mut Ctx, report: PathEvent<ConnId>) {
        self.reports.push_back(report);
        self.wake(ctx);
    }

    pub(crate) fn wake(&mut self, ctx: &mut Ctx) {
        self.timer.wake_task(&mut ctx.clock, &mut self.own.rng);
    }

    /// [`Event::Path`] has come.
    pub(crate) fn turn(&mut self, ctx: &mut Ctx, fences: &mut Fences, disks: &mut Disks) {
        let now = ctx.clock.now();
        if !self.timer.take_due(now) {
            return;
        }
        self.take_reports(now);
        let Self { driver, own, is_ending, has_ended, timer, .. } = self;
        let mut host = Turn { ctx, fences, disks, own };
        if *is_ending {
            *has_ended = driver.has_ended();
            // As the daemon's task does: nobody looks again until a socket or timeout is due.
            while !*has_ended && driver.exchange(now, &mut host) {
                *has_ended = driver.has_ended();
            }
        } else {
            take_turn(now, driver, &mut host);
        }
        let refused = own.refused_until.filter(|until| now < *until);
        if let Some(at) = earliest([driver.next_timeout(), own.recorded_at(), refused]) {
            timer.set(&mut ctx.clock, at.max(now));
        }
    }

    fn take_reports(&mut self, now: Instant) {
        for PathEvent { epoch, kind, .. } in self.reports.drain(..) {
            self.driver.reported(now, epoch, kind.map(|_| IoFailure, |socket| socket));
        }
    }

    /// The daemon ends, and its I/O threads have ended.
    pub(crate) fn end(&mut self, ctx: &mut Ctx, fences: &mut Fences, disks: &mut Disks) {
        let now = ctx.clock.now();
        self.take_reports(now);
        self.driver.end(now, &mut Turn { ctx, fences, disks, own: &mut self.own });
        self.is_ending = true;
        self.wake(ctx);
    }

    /// Whether all its controllers are shut down, once the daemon ends.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Wakes the task once all I/O threads have answered its question.
    pub(crate) fn wake_if_answered(&mut self, ctx: &mut Ctx) {
        if self.own.question.as_mut().is_some_and(StatsQuestion::has_last_answer) {
            self.wake(ctx);
        }
    }
}

/// A turn of a path, as in `vhost-blk-mpath/src/path/task.rs`.
fn take_turn(now: Instant, driver: &mut PathDriver<IoFailure, ControlSocket, ConnId>, host: &mut Turn<'_>) {
    if let Some(outcome) = host.take_recorded() {
        driver.path_mut().recorded(now, outcome);
    }
    if let Some(question) = host.own.question.take_if(|question| question.is_answered()) {
        let stats = question.into_sum();
        driver.path_mut().threads_answered(now, stats.as_ref().and_then(|stats| stats.path(host.own.id)));
    }
    // Bytes that have arrived come before timeouts, which wait for them.
    while exchange(now, driver, host) {}
    loop {
        while driver.act(now, host) {}
        if !exchange(now, driver, host) {
            break;
        }
    }
}

/// Connects and moves bytes. Returns whether anything was new.
fn exchange(now: Instant, driver: &mut PathDriver<IoFailure, ControlSocket, ConnId>, host: &mut Turn<'_>) -> bool {
    let connected = host.take_connected();
    let is_new = connected.is_some();
    match connected {
        Some((qid, Ok(socket))) => driver.connected(now, qid, socket),
        Some((qid, Err(failure))) => driver.path_mut().failed(now, qid, failure),
        None => {}
    }
    driver.exchange(now, host) | is_new
}
