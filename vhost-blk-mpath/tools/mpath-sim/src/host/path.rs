//! The task of a path: it drives the shipping path over simulated sockets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mpath_core::{AnaState, Epoch, PathId};
use mpath_host::{
    Action, AdmitError, AssociationId, ClosedAssociation, ControllerShutdown, DesiredState, LiveAssociation, Order,
    Path, PathError, PathTrial, Report, Unusable,
};
use nvme_tcp::host::{AdminError, ControllerError};
use reactor::{CloseMode, ConnectedQueuePair, PathEvent, PathEventKind};

use super::control_socket::ControlSocket;
use super::controller_shutdown::EndingController;
use super::disks::Disks;
use super::fences::Fences;
use super::io_thread::Message;
use super::plan::HostPlan;
use super::socket::IoFailure;
use super::stats_question::StatsQuestion;
use super::turn_timer::TurnTimer;
use crate::checker::is_accessible;
use crate::clock::{Event, earliest};
use crate::connection::{ConnId, Side};
use crate::context::Ctx;
use crate::rng::Rng;
use crate::tls::TlsPlan;

/// The typical time of a write of the fence record.
const RECORD_WRITE: Duration = Duration::from_millis(2);
/// When the operator removes a refused path and adds it again.
const OPERATOR_DELAY: Duration = Duration::from_secs(2);

fn report_of(kind: &PathEventKind<ConnId>) -> Option<Report<IoFailure>> {
    Some(match *kind {
        PathEventKind::Lost(_) => Report::Lost(IoFailure),
        PathEventKind::Closed { ref draining, in_doubt } => Report::Closed { drains: draining.is_some(), in_doubt },
        PathEventKind::Suspect => Report::Suspect,
        PathEventKind::Recovered => Report::Recovered,
        PathEventKind::AnaError => Report::AnaError,
        PathEventKind::InvalidNamespace => Report::InvalidNamespace,
        PathEventKind::SmallerTransfer { bytes } => Report::SmallerTransfer { bytes },
        // For operators alone.
        PathEventKind::DigestError | PathEventKind::CommandError(_) => return None,
    })
}

/// The time that the controller had for an answer, if it did not answer in time.
fn time_allowed(error: &PathError<IoFailure>) -> Option<Duration> {
    match error {
        PathError::Controller(ControllerError::Admin(AdminError::Timeout { after, .. })) => Some(*after),
        _ => None,
    }
}

/// Whether a path is not used because its controller does not name the namespace.
fn is_unverified(error: &PathError<IoFailure>) -> bool {
    matches!(
        error,
        PathError::Admit(AdmitError::Unusable(Unusable::Mismatch(mismatch)))
        | PathError::Changed { error: AdmitError::Unusable(Unusable::Mismatch(mismatch)), .. }
            if mismatch.may_pass()
    )
}

/// An action in one line, without the state of its controller.
fn described(action: &Action<IoFailure>) -> String {
    match action {
        Action::GoLive(live) => format!("GoLive({:?}, controller {})", live.association.epoch, live.info.cntlid),
        Action::Ended(left) => {
            format!("Ended({:?}, is_clean: {}, is_draining: {})", left.epoch, left.is_clean, left.is_draining)
        }
        action => format!("{action:?}"),
    }
}

/// A socket of the path while it connects, or that of its admin queue.
#[derive(Debug)]
struct Socket {
    qid: u16,
    inner: ControlSocket,
    is_connected: bool,
}

impl Socket {
    fn conn(&self) -> ConnId {
        self.inner.conn
    }
}

/// A write of the association to the fence record.
#[derive(Debug, Clone, Copy)]
struct PendingRecord {
    epoch: Epoch,
    fence_time: Duration,
    until: Instant,
}

/// A step of the removal, which the daemon takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalStep {
    AwaitFences,
    RemoveFromThreads,
}

/// The task of a path.
#[expect(clippy::struct_excessive_bools, reason = "what it still has to do")]
pub(crate) struct PathTask {
    id: PathId,
    plan: HostPlan,
    rng: Rng,
    path: Path<IoFailure>,
    order: Order,
    sockets: Vec<Socket>,
    pending_record: Option<PendingRecord>,
    /// When the operator finds that the path is refused.
    refused_until: Option<Instant>,
    /// The step of its removal that is under way.
    pub(super) removal_step: Option<RemovalStep>,
    is_gone: bool,
    /// It is being removed, and gets no association any more.
    is_leaving: bool,
    /// The daemon ends.
    is_ending: bool,
    /// Every I/O thread knows the path.
    pub(super) is_known: bool,
    /// Its association has ended, and the next one has not begun.
    has_ended: bool,
    /// The association that the operator had closed at once, with its unflushed writes.
    closed_at_once: Option<Epoch>,
    /// The question to the I/O threads that the path waits for.
    question: Option<StatsQuestion>,
    /// By disk: the state that the I/O threads were told last.
    ana: Vec<AnaState>,
    reports: VecDeque<PathEvent<ConnId>>,
    timer: TurnTimer,
    /// Draining sockets of the association that ends.
    draining: Vec<ConnId>,
    /// Controllers that end.
    ending: Vec<EndingController>,
    /// Messages to I/O threads, which the daemon posts after the turn.
    pub(crate) outbox: Vec<(usize, Message)>,
}

impl PathTask {
    /// A path that begins to connect. Its first association has the epoch after `epoch`.
    pub(crate) fn new(now: Instant, id: PathId, epoch: Epoch, plan: HostPlan, rng: Rng) -> Self {
        Self {
            id,
            path: Path::new(now, id, epoch, Order::default(), plan.path_settings()),
            plan,
            rng,
            order: Order::default(),
            sockets: Vec::new(),
            pending_record: None,
            refused_until: None,
            removal_step: None,
            is_gone: false,
            is_leaving: false,
            is_ending: false,
            is_known: false,
            has_ended: false,
            closed_at_once: None,
            question: None,
            ana: Vec::new(),
            reports: VecDeque::new(),
            timer: TurnTimer::new(Event::Path(usize::from(id.0))),
            draining: Vec::new(),
            ending: Vec::new(),
            outbox: Vec::new(),
        }
    }

    pub(crate) fn owns(&self, id: ConnId) -> bool {
        self.sockets.iter().any(|socket| socket.conn() == id) || self.ending.iter().any(|ending| ending.owns(id))
    }

    /// The operator orders a state.
    pub(super) fn order(&mut self, ctx: &mut Ctx, wanted: DesiredState) {
        self.order.wanted = wanted;
        self.path.order(self.order);
        self.wake(ctx);
    }

    /// The operator resets the path.
    pub(super) fn reset(&mut self, ctx: &mut Ctx) {
        self.order.resets += 1;
        self.path.order(self.order);
        self.wake(ctx);
    }

    pub(super) fn is_removing(&self) -> bool {
        self.order.wanted.is_removal()
    }

    /// Whether its removal can be taken back. The operator who removes a path at once means it.
    pub(super) fn can_return(&self) -> bool {
        let at_once = self.order.wanted == DesiredState::Removed { at_once: true };
        self.is_removing() && !at_once && !self.is_leaving && !self.is_gone
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// The order that it has.
    pub(super) fn wanted(&self) -> DesiredState {
        self.order.wanted
    }

    /// There is no such path.
    pub(super) fn set_gone(&mut self) {
        self.is_gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The step of its removal is taken.
    pub(super) fn removal_step_taken(&mut self, ctx: &mut Ctx) {
        self.removal_step = None;
        self.path.removal_step_done();
        self.wake(ctx);
    }

    /// Whether the operator wants it to be used.
    pub(super) fn is_enabled(&self) -> bool {
        !self.order.wanted.is_draining()
    }

    /// Whether the operator finds that it is refused.
    pub(super) fn is_refused(&self, now: Instant) -> bool {
        self.refused_until.is_some_and(|until| until <= now)
    }

    /// The same path, which is added again after its removal.
    pub(super) fn added_again(self, now: Instant) -> Self {
        let again = Self::new(now, self.id, self.path.latest().epoch, self.plan, self.rng);
        Self { ending: self.ending, ..again }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.path.is_live()
    }

    pub(super) fn trial(&self) -> PathTrial {
        self.path.trial()
    }

    /// Whether the path was found to lead to another namespace.
    pub(super) fn was_refused(&self) -> bool {
        self.refused_until.is_some()
    }

    /// Whether the I/O threads were told that the path can be used for a disk, and none of them has lost the path.
    pub(super) fn reaches(&self, disk: usize) -> bool {
        let is_loss = |kind: &_| matches!(kind, PathEventKind::Lost(_) | PathEventKind::Closed { .. });
        let is_lost = self.reports.iter().any(|report| is_loss(&report.kind));
        self.is_enabled() && !is_lost && self.could_serve(disk)
    }

    /// Whether the path leads to an accessible namespace of a disk, as far as its task knows.
    pub(super) fn could_serve(&self, disk: usize) -> bool {
        self.is_live() && self.ana.get(disk).is_some_and(|state| is_accessible(*state))
    }

    pub(crate) fn report(&mut self, ctx: &mut Ctx, report: PathEvent<ConnId>) {
        self.reports.push_back(report);
        self.wake(ctx);
    }

    pub(crate) fn wake(&mut self, ctx: &mut Ctx) {
        self.timer.wake_task(&mut ctx.clock, &mut self.rng);
    }

    /// [`Event::Path`] has come.
    pub(super) fn turn(&mut self, ctx: &mut Ctx, fences: &mut Fences, disks: &mut Disks) {
        let now = ctx.clock.now();
        if !self.timer.take_due(now) {
            return;
        }
        self.turn_ending(ctx, fences);
        if self.is_ending || self.ending.iter().any(|ending| ending.fence.is_none()) {
            return;
        }
        while let Some(PathEvent { epoch, kind, .. }) = self.reports.pop_front() {
            if let PathEventKind::Closed { draining: Some(socket), .. } = kind {
                self.draining.push(socket);
            }
            if let Some(report) = report_of(&kind) {
                self.path.reported(now, epoch, report);
            }
        }
        if let Some(PendingRecord { epoch, fence_time, .. }) =
            self.pending_record.take_if(|it| self.is_known && it.until <= now)
        {
            let is_written = fences.record(AssociationId { path: self.id, epoch }, fence_time);
            ctx.checker.counts.records_not_written += u64::from(!is_written);
            self.path.recorded(now, is_written.then_some(()).ok_or(IoFailure));
        }
        if let Some(question) = self.question.take_if(|question| question.is_answered()) {
            let stats = question.into_sum();
            self.path.threads_answered(now, stats.as_ref().and_then(|stats| stats.path(self.id)));
        }
        // Bytes that have arrived come before timeouts, which wait for them.
        while self.exchange(ctx) {}
        loop {
            self.carry_out_actions(ctx, fences, disks);
            let reset = fences.next_reset(now, self.id);
            if reset.is_some_and(|other| !self.path.reset_other(other)) {
                fences.reset_answered(ctx, self.id, None);
            }
            if !self.exchange(ctx) && reset.is_none() {
                break;
            }
        }
        let refused = self.refused_until.filter(|until| now < *until);
        let pending_record = self.pending_record.filter(|_| self.is_known).map(|it| it.until);
        if let Some(at) = earliest([self.path.next_timeout(), pending_record, refused]) {
            self.timer.set(&mut ctx.clock, at.max(now));
        }
    }

    /// The daemon ends, and its I/O threads have ended.
    pub(super) fn end(&mut self, ctx: &mut Ctx) {
        // The next daemon waits for the fences that are left, counted from the end of their sockets.
        for ending in self.ending.extract_if(.., |ending| ending.fence.is_some()) {
            ending.close(ctx);
        }
        let shutdown = self.path.end(ctx.clock.now());
        self.end_controller(ctx, shutdown, None);
        self.is_ending = true;
        self.wake(ctx);
    }

    /// Whether all its controllers are shut down, once the daemon ends.
    pub(super) fn has_ended(&self) -> bool {
        self.ending.is_empty()
    }

    /// Begins the fence and the orderly end of an association that is over. Every I/O thread has closed its queue pair.
    fn association_ended(&mut self, ctx: &mut Ctx, fences: &mut Fences, left: ClosedAssociation) {
        let may_lose_writes = self.closed_at_once == Some(left.epoch)
            || self.plan.group.shared_write_cache
            || ctx.checker.closed_paths.has_failed_flush(self.id, left.epoch);
        if let Some(controller) = left.info.instance().filter(|_| left.is_clean && !may_lose_writes) {
            ctx.checker.closed_paths.closed(usize::from(self.id.0), controller);
        }
        let now = ctx.clock.now();
        let draining = (!self.sockets.is_empty()).then_some(self.draining.len());
        let (ended, shutdown) = left.end(now, self.id, draining);
        ctx.checker.counts.closed_in_order += u64::from(ended.is_clean);
        ctx.checker.counts.associations_drained += u64::from(ended.is_draining);
        self.end_controller(ctx, shutdown, ended.is_draining.then_some(ended.of));
        fences.begin(now, ended);
        self.wake(ctx);
    }

    /// Closes all sockets. The sockets of a controller that ends in order are closed when it has ended. With a `fence`, its I/O
    /// sockets drain first, which may lift the fence of this association.
    fn end_controller(&mut self, ctx: &mut Ctx, shutdown: Option<ControllerShutdown>, fence: Option<AssociationId>) {
        let (mut queues, mut sockets) = (std::mem::take(&mut self.draining), self.sockets.drain(..));
        if let Some(shutdown) = shutdown
            && let Some(admin) = sockets.next()
        {
            let queues = if fence.is_some() { std::mem::take(&mut queues) } else { Vec::new() };
            self.ending.push(EndingController::new(shutdown, admin.inner, queues, fence));
        }
        for conn in sockets.map(|socket| socket.conn()).chain(queues) {
            ctx.net.close(&mut ctx.clock, conn, Side::Host);
        }
    }

    fn turn_ending(&mut self, ctx: &mut Ctx, fences: &mut Fences) {
        for mut ending in std::mem::take(&mut self.ending) {
            let confirmed = ending.turn(ctx);
            let fence = ending.fence;
            if confirmed.is_none() && fence.is_none_or(|of| fences.is_held(of)) {
                self.timer.set(&mut ctx.clock, ending.next_timeout());
                self.ending.push(ending);
                continue;
            }
            ending.close(ctx);
            if let Some((of, executed)) = fence.zip(confirmed) {
                fences.drained(ctx.clock.now(), of, executed);
            }
        }
    }

    /// Wakes the task once all I/O threads have answered its question.
    pub(super) fn wake_if_answered(&mut self, ctx: &mut Ctx) {
        if self.question.as_mut().is_some_and(StatsQuestion::has_last_answer) {
            self.wake(ctx);
        }
    }

    /// Moves bytes between the path and its sockets. Returns whether anything was new.
    fn exchange(&mut self, ctx: &mut Ctx) -> bool {
        let (now, mut is_new) = (ctx.clock.now(), false);
        for index in 0..self.sockets.len() {
            let Some(socket) = self.sockets.get(index) else { break };
            let (qid, conn) = (socket.qid, socket.conn());
            let has_received = ctx.net.has_received(conn, Side::Host);
            is_new |= has_received;
            let is_lost = ctx.net.is_reset(conn, Side::Host) && !has_received;
            let exchanged = if is_lost { Err(IoFailure) } else { self.exchange_one(ctx, index) };
            match exchanged {
                Ok(one_is_new) => is_new |= one_is_new,
                Err(failure) => {
                    ctx.net.close(&mut ctx.clock, conn, Side::Host);
                    self.sockets.remove(index);
                    self.path.failed(now, qid, failure);
                    return true;
                }
            }
        }
        is_new
    }

    /// Moves bytes between the path and one of its sockets. Returns whether anything was new.
    fn exchange_one(&mut self, ctx: &mut Ctx, index: usize) -> Result<bool, IoFailure> {
        let now = ctx.clock.now();
        let Socket { qid, inner, is_connected } = &mut self.sockets[index];
        let was_connected = *is_connected;
        if !was_connected {
            let connected = inner.connect(ctx);
            ctx.checker.counts.handshakes_failed += u64::from(connected.is_err());
            if !connected? {
                return Ok(false);
            }
            *is_connected = true;
            self.path.connected(now, *qid);
        }
        let mut out = Vec::new();
        self.path.fill_tx(now, *qid, &mut out);
        inner.send(ctx, &out)?;
        let bytes = inner.receive(ctx, self.rng.pick(&[7, 512, 16 * 1024]))?;
        if !bytes.is_empty() {
            self.path.received(now, *qid, &bytes);
        }
        Ok(!was_connected || !bytes.is_empty())
    }

    /// Carries out the actions of the path.
    fn carry_out_actions(&mut self, ctx: &mut Ctx, fences: &mut Fences, disks: &mut Disks) {
        let now = ctx.clock.now();
        while let Some(action) = self.path.poll(now, disks) {
            ctx.say(|| format!("path {}: {}", self.id, described(&action)));
            match action {
                Action::Connect { qid } => {
                    self.protect_queues(ctx);
                    let path = usize::from(self.id.0);
                    if qid == 0 {
                        self.has_ended = false;
                        ctx.checker.first_attempts.begun(ctx.clock.elapsed(), path);
                    }
                    let conn = ctx.net.connect(&mut ctx.clock, path);
                    let session = self.plan.tls.as_ref().map(TlsPlan::host);
                    self.sockets.push(Socket { qid, inner: ControlSocket::new(conn, session), is_connected: false });
                }
                Action::Close => {
                    ctx.checker.first_attempts.closed(usize::from(self.id.0));
                    self.pending_record = None;
                    for socket in self.sockets.drain(..) {
                        ctx.net.close(&mut ctx.clock, socket.conn(), Side::Host);
                    }
                }
                Action::Record { epoch, fence_time, .. } => {
                    self.protect_queues(ctx);
                    let until = now + self.rng.tail(RECORD_WRITE);
                    self.pending_record = Some(PendingRecord { epoch, fence_time, until });
                }
                Action::RemoveRecord { epoch } => fences.forget(AssociationId { path: self.id, epoch }),
                Action::GoLive(association) => {
                    let usable = association.namespaces.iter().filter(|namespace| namespace.unusable.is_none());
                    let disks = usable.map(|namespace| usize::from(namespace.disk.0));
                    ctx.checker.first_attempts.succeeded(usize::from(self.id.0), disks);
                    self.go_live(ctx, fences, *association);
                }
                Action::UpdateNamespace { epoch, update } => {
                    let (path, disk, state) = (self.id, update.disk, update.state);
                    if update.unusable.is_none() {
                        ctx.checker.first_attempts.leads_to(usize::from(path.0), usize::from(disk.0));
                    }
                    self.ana[usize::from(disk.0)] = state;
                    if state == AnaState::PersistentLoss {
                        ctx.checker.flushes.association_ended((usize::from(disk.0), path, epoch));
                    }
                    update.mark_loss(ctx.clock.now(), path, epoch, disks.unflushed(disk));
                    ctx.checker.counts.disk_paths_lost += u64::from(update.unusable.is_some());
                    if let Some(limits) = update.added {
                        ctx.checker.counts.namespaces_added += 1;
                        self.tell_threads(|| Message::AddNamespace { path, epoch, disk, limits });
                    }
                    self.tell_threads(|| Message::Ana { path, epoch, disk, state });
                    disks.update(path, update);
                }
                Action::CloseQueues { epoch, drain } => {
                    ctx.checker.first_attempts.closed(usize::from(self.id.0));
                    fences.withdraw_resets(self.id);
                    self.question = None;
                    let at_once = self.order.wanted == DesiredState::Removed { at_once: true };
                    self.closed_at_once = at_once.then_some(epoch);
                    ctx.checker.association_lost(ctx.clock.elapsed());
                    let path = self.id;
                    let close_mode = if drain { CloseMode::Drain } else { CloseMode::Reset };
                    self.tell_threads(|| Message::PathDown { path, epoch, close_mode });
                }
                Action::Ended(left) => {
                    self.has_ended = true;
                    self.association_ended(ctx, fences, *left);
                }
                Action::ResetAnswered(outcome) => fences.reset_answered(ctx, self.id, Some(outcome)),
                Action::AskThreads => {
                    let (question, reply) = StatsQuestion::new(self.plan.threads);
                    self.tell_threads(|| Message::Stats(reply()));
                    self.question = Some(question);
                }
                Action::WriteBack => {
                    ctx.checker.counts.write_backs += 1;
                    self.outbox.push((0, Message::WriteBack(self.id)));
                }
                Action::Failed(error) => {
                    if self.has_ended
                        && let Some(allowed) = time_allowed(&error)
                    {
                        let keep_alive_tmo = self.plan.controller.keep_alive_tmo;
                        ctx.checker.association_timed_out(ctx.clock.elapsed(), allowed, keep_alive_tmo);
                    }
                    let of_one = matches!(error, mpath_host::PathError::Changed { .. }) && self.plan.disks.len() > 1;
                    ctx.checker.counts.handshakes_unanswered +=
                        u64::from(matches!(error, mpath_host::PathError::ConnectTimeout));
                    ctx.checker.counts.ended_by_replaced_namespace += u64::from(of_one);
                    ctx.checker.counts.unverified += u64::from(is_unverified(&error));
                    ctx.checker.counts.queues_lacking += u64::from(matches!(error, PathError::Queues { .. }));
                }
                Action::Refused(_) => {
                    disks.forget_grant(self.id);
                    ctx.checker.path_refused(ctx.clock.elapsed(), usize::from(self.id.0));
                    self.refused_until = Some(now + OPERATOR_DELAY);
                }
                Action::RemovalBegun => self.is_leaving = true,
                Action::AwaitFences => self.removal_step = Some(RemovalStep::AwaitFences),
                Action::RemoveFromThreads => {
                    self.removal_step = Some(RemovalStep::RemoveFromThreads);
                    let path = self.id;
                    self.tell_threads(|| Message::RemovePath(path));
                }
                Action::RemovalDone => {
                    disks.forget_grant(self.id);
                    ctx.checker.counts.removals += 1;
                    self.is_gone = true;
                }
                Action::SendTermReq { .. }
                | Action::Suspect
                | Action::Recovered
                | Action::SmallerTransfer { .. }
                | Action::Connecting
                | Action::GaveUp { .. }
                | Action::Disabled => {}
            }
        }
    }

    /// Protects the following bytes of I/O queues by digests. The handshakes of these queues are over. With TLS, all bytes are
    /// protected.
    fn protect_queues(&self, ctx: &mut Ctx) {
        for socket in self.sockets.iter().filter(|socket| socket.qid > 0) {
            ctx.net.protect(socket.conn(), self.plan.controller.digests);
        }
    }

    /// Passes the queue pairs of an association to the I/O threads.
    fn go_live(
        &mut self,
        ctx: &mut Ctx,
        fences: &mut Fences,
        LiveAssociation { association, queues, info, namespaces }: LiveAssociation,
    ) {
        ctx.checker.counts.fewer_queues += u64::from(queues.len() < self.plan.threads);
        self.ana = namespaces.iter().map(|namespace| namespace.state).collect();
        let path = self.id;
        let sockets = self.sockets.split_off(1);
        for ((thread, queue), socket) in queues.into_iter().enumerate().zip(sockets) {
            let (socket, tls) = socket.inner.into_parts();
            ctx.net.handed_over(socket);
            let link = ConnectedQueuePair {
                socket,
                queue,
                tls,
                retry_delays: info.retry_delays,
                close_mode: if self.plan.drain_fence { CloseMode::Drain } else { CloseMode::Reset },
            };
            let link = Box::new(link);
            self.outbox.push((thread, Message::PathUp { path, association, link }));
        }
        if info.cross_resets > 0 {
            fences.offer_resets(self.path.latest());
        }
    }

    /// Sends a message to all I/O threads after the turn.
    fn tell_threads(&mut self, message: impl Fn() -> Message) {
        (0..self.plan.threads).for_each(|thread| self.outbox.push((thread, message())));
    }
}
