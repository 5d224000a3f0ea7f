//! The surroundings of a path, for the shipping driver: simulated sockets, I/O threads and fence records, and the checker.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};
use mpath_core::{AnaState, Association, DiskId, Epoch, PathId, UnflushedPaths};
use mpath_lifecycle::{
    Action, AdmitError, AssociationId, ClosedAssociation, DesiredState, IoThreads, Order, Path, PathError, PathNews,
    PathSurroundings, ThreadMessage, Unusable,
};
use nvme_tcp::host::{AdminError, ControllerError, ControllerInfo, HostQueue};
use nvme_tls::Session;
use reactor::{CloseMode, ConnectedQueuePair};

use crate::checker::is_accessible;
use crate::connection::{ConnId, Side};
use crate::context::Ctx;
use crate::host::control_socket::ControlSocket;
use crate::host::disks::Disks;
use crate::host::fences::Fences;
use crate::host::io_thread::Message;
use crate::host::plan::HostPlan;
use crate::host::socket::IoFailure;
use crate::host::stats_question::StatsQuestion;
use crate::rng::Rng;
use crate::tls::TlsPlan;

/// The typical time of a write of the fence record.
const RECORD_WRITE: Duration = Duration::from_millis(2);
/// When the operator removes a refused path and adds it again.
const OPERATOR_DELAY: Duration = Duration::from_secs(2);

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
            format!("Ended({:?}, is_clean: {}, is_half_closed: {})", left.epoch, left.is_clean, left.is_half_closed)
        }
        Action::News(news) => format!("{news:?}"),
        action => format!("{action:?}"),
    }
}

/// A write of the association to the fence record.
#[derive(Debug, Clone, Copy)]
struct PendingRecord {
    epoch: Epoch,
    fence_time: Duration,
    until: Instant,
}

/// The work that a path has begun outside of its driver, and its state as others know it.
#[expect(clippy::struct_excessive_bools, reason = "what it still has to do")]
pub(crate) struct Surroundings {
    pub(super) id: PathId,
    pub(super) plan: HostPlan,
    pub(super) rng: Rng,
    pub(super) order: Order,
    /// The socket of this queue, which is being connected.
    connecting: Option<(u16, ControlSocket)>,
    /// The connection of the I/O queue that was connected last.
    last_queue: Option<ConnId>,
    /// The sockets of I/O queues once the association is being recorded, until the I/O threads take them.
    queues: VecDeque<(ConnId, Option<Session>)>,
    pending_record: Option<PendingRecord>,
    /// When the operator finds that the path is refused.
    pub(super) refused_until: Option<Instant>,
    /// The I/O threads are removing the path.
    pub(crate) awaits_removal: bool,
    pub(super) is_gone: bool,
    /// It is being removed, and gets no association any more.
    pub(super) is_leaving: bool,
    /// Every I/O thread knows the path.
    pub(crate) is_known: bool,
    /// Its association has ended, and the next one has not begun.
    has_ended: bool,
    /// The association that the operator had closed at once, with its unflushed writes.
    closed_at_once: Option<Epoch>,
    /// The question to the I/O threads that the path waits for.
    pub(super) question: Option<StatsQuestion>,
    /// By disk: the state that the I/O threads were told last.
    ana: Vec<AnaState>,
    /// Messages to I/O threads, which the daemon posts after the turn.
    pub(crate) outbox: Vec<(usize, Message)>,
}

impl Surroundings {
    pub(super) fn new(id: PathId, plan: HostPlan, rng: Rng) -> Self {
        Self {
            id,
            plan,
            rng,
            order: Order::default(),
            connecting: None,
            last_queue: None,
            queues: VecDeque::new(),
            pending_record: None,
            refused_until: None,
            awaits_removal: false,
            is_gone: false,
            is_leaving: false,
            is_known: false,
            has_ended: false,
            closed_at_once: None,
            question: None,
            ana: Vec::new(),
            outbox: Vec::new(),
        }
    }

    pub(super) fn is_connecting(&self, id: ConnId) -> bool {
        self.connecting.as_ref().is_some_and(|(_, socket)| socket.conn == id)
    }

    /// Whether the I/O threads were told that the namespace of a disk is accessible.
    pub(super) fn leads_to(&self, disk: usize) -> bool {
        self.ana.get(disk).is_some_and(|state| is_accessible(*state))
    }

    /// When the association is recorded, once every I/O thread knows the path.
    pub(super) fn recorded_at(&self) -> Option<Instant> {
        self.pending_record.filter(|_| self.is_known).map(|record| record.until)
    }
}

/// The surroundings during a turn of the path.
pub(super) struct Turn<'a> {
    pub(super) ctx: &'a mut Ctx,
    pub(super) fences: &'a mut Fences,
    pub(super) disks: &'a mut Disks,
    pub(super) own: &'a mut Surroundings,
}

impl Turn<'_> {
    /// Writes the record of the association, once the write is due. Returns the outcome.
    pub(super) fn take_recorded(&mut self) -> Option<Result<(), IoFailure>> {
        let now = self.ctx.clock.now();
        let PendingRecord { epoch, fence_time, .. } =
            self.own.pending_record.take_if(|it| self.own.is_known && it.until <= now)?;
        let is_written = self.fences.record(AssociationId { path: self.own.id, epoch }, fence_time);
        self.ctx.checker.counts.records_not_written += u64::from(!is_written);
        Some(is_written.then_some(()).ok_or(IoFailure))
    }

    /// Goes on with the handshakes of the socket that is being connected. Returns the socket or the failure, with its QID.
    pub(super) fn take_connected(&mut self) -> Option<(u16, Result<ControlSocket, IoFailure>)> {
        let (qid, mut socket) = self.own.connecting.take()?;
        let connected = if self.is_lost(&socket) {
            Err(IoFailure)
        } else {
            let connected = socket.connect(self.ctx);
            self.ctx.checker.counts.handshakes_failed += u64::from(connected.is_err());
            connected
        };
        match connected {
            Ok(true) => Some((qid, Ok(socket))),
            Ok(false) => {
                self.own.connecting = Some((qid, socket));
                None
            }
            Err(failure) => {
                self.close(socket);
                Some((qid, Err(failure)))
            }
        }
    }

    fn is_lost(&self, socket: &ControlSocket) -> bool {
        let net = &self.ctx.net;
        net.is_reset(socket.conn, Side::Host) && !net.has_received(socket.conn, Side::Host)
    }

    fn close_conn(&mut self, conn: ConnId) {
        self.ctx.net.close(&mut self.ctx.clock, conn, Side::Host);
    }

    /// Protects the following bytes of the last I/O queue by digests. Its handshake is over. With TLS, all bytes are protected.
    fn protect_last_queue(&mut self) {
        if let Some(conn) = self.own.last_queue.take() {
            self.ctx.net.protect(conn, self.own.plan.controller.digests);
        }
    }

    fn association_ended(&mut self, left: &ClosedAssociation) {
        self.own.has_ended = true;
        let (path, checker) = (self.own.id, &mut self.ctx.checker);
        checker.counts.closed_in_order += u64::from(left.is_clean);
        checker.counts.associations_drained += u64::from(left.is_half_closed);
        let may_lose_writes = self.own.closed_at_once == Some(left.epoch)
            || self.own.plan.group.shared_write_cache
            || checker.closed_paths.has_failed_flush(path, left.epoch);
        if let Some(controller) = left.info.instance().filter(|_| left.is_clean && !may_lose_writes) {
            checker.closed_paths.closed(usize::from(path.0), controller);
        }
    }

    fn failed(&mut self, error: &PathError<IoFailure>) {
        let (own, checker, elapsed) = (&self.own, &mut self.ctx.checker, self.ctx.clock.elapsed());
        if own.has_ended
            && let Some(allowed) = time_allowed(error)
        {
            checker.association_timed_out(elapsed, allowed, own.plan.controller.keep_alive_tmo);
        }
        let (of_one, counts) = (matches!(error, PathError::Changed { .. }), &mut checker.counts);
        counts.handshakes_unanswered += u64::from(matches!(error, PathError::ConnectTimeout));
        counts.ended_by_replaced_namespace += u64::from(of_one && own.plan.disks.len() > 1);
        counts.unverified += u64::from(is_unverified(error));
        counts.queues_lacking += u64::from(matches!(error, PathError::Queues { .. }));
    }
}

impl IoThreads for Turn<'_> {
    fn count(&self) -> usize {
        self.own.plan.threads
    }

    fn post(&mut self, thread: usize, message: ThreadMessage) {
        self.own.outbox.push((thread, message.into()));
    }
}

impl PathSurroundings<IoFailure, ControlSocket, ConnId> for Turn<'_> {
    fn poll(&mut self, now: Instant, path: &mut Path<IoFailure>) -> Option<Action<IoFailure>> {
        path.poll(now, self.disks)
    }

    fn now(&self) -> Instant {
        self.ctx.clock.now()
    }

    fn before(&mut self, action: &Action<IoFailure>) {
        self.ctx.say(|| format!("path {}: {}", self.own.id, described(action)));
        let (own, checker, elapsed) = (&mut *self.own, &mut self.ctx.checker, self.ctx.clock.elapsed());
        let path = usize::from(own.id.0);
        match action {
            Action::Connect { qid: 0 } => {
                own.has_ended = false;
                checker.first_attempts.begun(elapsed, path);
            }
            Action::Close => checker.first_attempts.closed(path),
            Action::GoLive(live) => {
                let usable = live.namespaces.iter().filter(|namespace| namespace.unusable.is_none());
                checker.first_attempts.succeeded(path, usable.map(|namespace| usize::from(namespace.disk.0)));
                checker.counts.fewer_queues += u64::from(live.queues.len() < own.plan.threads);
                own.ana = live.namespaces.iter().map(|namespace| namespace.state).collect();
            }
            Action::UpdateNamespace { epoch, update } => {
                let disk = usize::from(update.disk.0);
                if update.unusable.is_none() {
                    checker.first_attempts.leads_to(path, disk);
                }
                own.ana[disk] = update.state;
                if update.state == AnaState::PersistentLoss {
                    checker.flushes.association_ended((disk, own.id, *epoch));
                }
                checker.counts.disk_paths_lost += u64::from(update.unusable.is_some());
                checker.counts.namespaces_added += u64::from(update.added.is_some());
            }
            Action::CloseQueues { epoch, .. } => {
                checker.first_attempts.closed(path);
                let at_once = own.order.wanted == DesiredState::Removed { at_once: true };
                own.closed_at_once = at_once.then_some(*epoch);
                checker.association_lost(elapsed);
            }
            Action::Ended(left) => self.association_ended(left),
            Action::DaemonFlush => checker.counts.daemon_flushes += 1,
            _ => {}
        }
    }

    fn news(&mut self, news: PathNews<IoFailure>) {
        let (path, now) = (self.own.id, self.ctx.clock.now());
        match news {
            PathNews::Namespace(update) => self.disks.update(path, update),
            PathNews::Failed(error) => self.failed(&error),
            PathNews::Refused(_) => {
                self.disks.forget_grant(path);
                self.ctx.checker.path_refused(self.ctx.clock.elapsed(), usize::from(path.0));
                self.own.refused_until = Some(now + OPERATOR_DELAY);
            }
            PathNews::RemovalBegun => self.own.is_leaving = true,
            PathNews::Gone { .. } => {
                self.disks.forget_grant(path);
                self.ctx.checker.counts.removals += 1;
                self.own.is_gone = true;
            }
            PathNews::Live { .. }
            | PathNews::Suspect
            | PathNews::Recovered
            | PathNews::DigestError
            | PathNews::CommandError(_)
            | PathNews::SmallerTransfer { .. }
            | PathNews::Connecting
            | PathNews::GaveUp { .. }
            | PathNews::Disabled => {}
        }
    }

    fn connect(&mut self, qid: u16) {
        self.protect_last_queue();
        let conn = self.ctx.net.connect(&mut self.ctx.clock, usize::from(self.own.id.0));
        let session = self.own.plan.tls.as_ref().map(TlsPlan::host);
        self.own.last_queue = (qid > 0).then_some(conn);
        self.own.connecting = Some((qid, ControlSocket::new(conn, session)));
    }

    fn give_up(&mut self) {
        let own = &mut *self.own;
        own.pending_record = None;
        let connecting = own.connecting.take().map(|(_, socket)| socket.conn);
        let queues = std::mem::take(&mut own.queues).into_iter().map(|(conn, _)| conn);
        for conn in queues.chain(connecting) {
            self.close_conn(conn);
        }
    }

    fn exchange<'s>(
        &mut self,
        socket: &'s mut ControlSocket,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<&'s [u8]>, IoFailure> {
        if self.is_lost(socket) {
            return Err(IoFailure);
        }
        let mut out = Vec::new();
        fill(&mut out);
        socket.send(self.ctx, &out)?;
        let bytes = socket.receive(self.ctx, self.own.rng.pick(&[7, 512, 16 * 1024]))?;
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    fn send_term_req(&mut self, socket: &mut ControlSocket, term_req: &[u8]) {
        // A session that has ended can send nothing.
        let _ = socket.send(self.ctx, term_req);
    }

    fn close(&mut self, socket: ControlSocket) {
        self.close_conn(socket.conn);
    }

    fn read_to_end(&mut self, socket: &mut ConnId) -> Option<bool> {
        let Ctx { net, clock, .. } = &mut *self.ctx;
        while !net.receive(clock, *socket, Side::Host, 16 * 1024).is_empty() {}
        net.end_of_stream(*socket, Side::Host).map(|end| end.is_ok())
    }

    fn close_half_closed(&mut self, socket: ConnId) {
        self.close_conn(socket);
    }

    fn record(&mut self, epoch: Epoch, _: u16, fence_time: Duration, sockets: Vec<ControlSocket>) {
        self.protect_last_queue();
        let until = self.ctx.clock.now() + self.own.rng.tail(RECORD_WRITE);
        self.own.queues = sockets.into_iter().map(ControlSocket::into_parts).collect();
        self.own.pending_record = Some(PendingRecord { epoch, fence_time, until });
    }

    fn remove_record(&mut self, epoch: Epoch) -> bool {
        self.fences.forget(AssociationId { path: self.own.id, epoch });
        true
    }

    fn path_up(&mut self, thread: usize, association: Association, queue: HostQueue, info: &ControllerInfo) {
        let (socket, tls) = self.own.queues.pop_front().expect("there is one for each queue");
        self.ctx.net.handed_over(socket);
        let close_mode = CloseMode::with_half_close(self.own.plan.drain_fence);
        let link = Box::new(ConnectedQueuePair { socket, queue, tls, retry_delays: info.retry_delays, close_mode });
        self.own.outbox.push((thread, Message::PathUp { path: self.own.id, association, link }));
    }

    fn unflushed(&self, disk: DiskId) -> &UnflushedPaths {
        self.disks.unflushed(disk)
    }

    fn of_fences(&self, is: impl FnOnce(&mpath_lifecycle::Fences) -> bool) -> bool {
        is(&self.fences.inner)
    }

    fn change_fences(&mut self, change: impl FnOnce(&mut mpath_lifecycle::Fences)) {
        change(&mut self.fences.inner);
    }

    fn ask_threads(&mut self) {
        let (question, reply) = StatsQuestion::new(self.own.plan.threads);
        self.own.outbox.extend((0..self.own.plan.threads).map(|thread| (thread, Message::Stats(reply()))));
        self.own.question = Some(question);
    }

    fn await_removal(&mut self) {
        self.own.awaits_removal = true;
    }
}
