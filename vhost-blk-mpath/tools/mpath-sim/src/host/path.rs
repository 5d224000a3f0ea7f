//! What a path's task does in the daemon: it drives the path that ships over simulated sockets.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use mpath_core::{Epoch, PathId};
use mpath_host::{
    Action, AssociationId, DesiredState, LiveAssociation, Order, Path, RemovalStep, Report, SHUTDOWN_MAX,
};
use nvme_tcp::host::{ControllerEvent, HostController};
use reactor::{CloseMode, ConnectedQueuePair, PathEvent, PathEventKind};

use super::disks::Disks;
use super::fences::Fences;
use super::{HostPlan, Message};
use crate::clock::Event;
use crate::net::{ConnId, Side};
use crate::rng::Rng;
use crate::target::Ctx;

/// How soon the control thread does what it has to, typically.
const WAKE: Duration = Duration::from_micros(50);
/// How long it takes to write an association down, typically.
const RECORD: Duration = Duration::from_millis(2);
/// When the operator looks why a path is not used.
const OPERATOR: Duration = Duration::from_secs(2);

/// A socket failed, or a write of the record did.
#[derive(Debug)]
pub(crate) struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed")
    }
}

impl std::error::Error for Failed {}

fn report_of(kind: &PathEventKind<ConnId>) -> Report<Failed> {
    match *kind {
        PathEventKind::Lost(_) => Report::Lost(Failed),
        PathEventKind::Closed { ref draining, in_doubt } => Report::Closed { drains: draining.is_some(), in_doubt },
        PathEventKind::Suspect => Report::Suspect,
        PathEventKind::Recovered => Report::Recovered,
        PathEventKind::AnaError => Report::AnaError,
        PathEventKind::SmallerTransfer { bytes } => Report::SmallerTransfer { bytes },
    }
}

#[derive(Debug)]
struct Socket {
    qid: u16,
    conn: ConnId,
    is_connected: bool,
    out: VecDeque<u8>,
}

/// The association is being written down.
#[derive(Debug, Clone, Copy)]
struct Recording {
    epoch: Epoch,
    fence_time: Duration,
    until: Instant,
}

/// An association whose controller is being shut down in order.
struct Leaver {
    admin: HostController,
    conn: ConnId,
    out: VecDeque<u8>,
    until: Instant,
}

impl Leaver {
    /// Whether the controller has answered, or is waited for no longer.
    fn is_over(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let now = ctx.clock.now();
        let mut out = Vec::new();
        self.admin.fill_tx(&mut out);
        self.out.extend(out);
        send_all(ctx, self.conn, &mut self.out);
        let bytes = ctx.net.receive(ctx.clock, self.conn, Side::Host, 16 * 1024);
        if bytes.is_empty() && ctx.net.is_reset(self.conn, Side::Host) || self.until <= now {
            return true;
        }
        if self.admin.receive(now, &bytes).is_err() || self.admin.handle_timeout(now).is_err() {
            return true;
        }
        let is_shut_down = |event| matches!(event, ControllerEvent::ShutdownComplete);
        std::iter::from_fn(|| self.admin.poll_event()).any(is_shut_down)
    }
}

pub(super) fn send_all(ctx: &mut Ctx<'_>, conn: ConnId, out: &mut VecDeque<u8>) {
    while !out.is_empty() {
        let sent = ctx.net.send(ctx.clock, conn, Side::Host, out.make_contiguous());
        out.drain(..sent);
        if sent == 0 {
            break;
        }
    }
}

pub(crate) struct PathTask {
    id: PathId,
    plan: HostPlan,
    rng: Rng,
    path: Path<Failed>,
    order: Order,
    sockets: Vec<Socket>,
    recording: Option<Recording>,
    /// The operator finds it refused then.
    refused_until: Option<Instant>,
    /// The step of its removal that is to be taken.
    pub(super) leaving: Option<RemovalStep>,
    is_gone: bool,
    /// The daemon ends.
    is_ending: bool,
    /// Every I/O thread knows the path.
    pub(super) known: bool,
    /// Whether it owes anything is to be found out, at once or not.
    pub(super) look: Option<bool>,
    reports: VecDeque<PathEvent<ConnId>>,
    wake_at: Option<Instant>,
    /// Controllers that are told that the host leaves.
    leavers: Vec<Leaver>,
    /// For the I/O threads, to be posted after the turn.
    pub(crate) mail: Vec<(usize, Message)>,
}

impl PathTask {
    /// A path that begins to connect; its associations are counted from after `epoch` on.
    pub(crate) fn new(now: Instant, id: PathId, epoch: Epoch, plan: HostPlan, rng: Rng) -> Self {
        Self {
            id,
            path: Path::new(now, id, epoch, Order::default(), plan.path_settings()),
            plan,
            rng,
            order: Order::default(),
            sockets: Vec::new(),
            recording: None,
            refused_until: None,
            leaving: None,
            is_gone: false,
            is_ending: false,
            known: false,
            look: None,
            reports: VecDeque::new(),
            wake_at: None,
            leavers: Vec::new(),
            mail: Vec::new(),
        }
    }

    pub(crate) fn owns(&self, id: ConnId) -> bool {
        let leaving = self.leavers.iter().map(|leaver| leaver.conn);
        self.sockets.iter().map(|socket| socket.conn).chain(leaving).any(|conn| conn == id)
    }

    /// What the operator wants of it.
    pub(super) fn order(&mut self, ctx: &mut Ctx<'_>, wanted: DesiredState) {
        self.order.wanted = wanted;
        self.path.order(self.order);
        self.wake(ctx);
    }

    pub(super) fn is_removing(&self) -> bool {
        matches!(self.order.wanted, DesiredState::Removed { .. })
    }

    /// There is no such path.
    pub(super) fn set_gone(&mut self) {
        self.is_gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The step of its removal is taken.
    pub(super) fn step_taken(&mut self, ctx: &mut Ctx<'_>) {
        self.leaving = None;
        self.path.removal_step_done();
        self.wake(ctx);
    }

    /// Whether it is to be used as well as it can be.
    pub(super) fn is_enabled(&self) -> bool {
        self.order.wanted == DesiredState::Enabled
    }

    /// Whether the operator finds that it leads elsewhere.
    pub(super) fn is_refused(&self, now: Instant) -> bool {
        self.refused_until.is_some_and(|until| until <= now)
    }

    /// The same path anew, after it was removed.
    pub(super) fn again(self, now: Instant) -> Self {
        Self::new(now, self.id, self.path.latest().epoch, self.plan, self.rng)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.path.is_live()
    }

    pub(crate) fn report(&mut self, ctx: &mut Ctx<'_>, report: PathEvent<ConnId>) {
        self.reports.push_back(report);
        self.wake(ctx);
    }

    pub(crate) fn wake(&mut self, ctx: &mut Ctx<'_>) {
        let late = if self.rng.percent(2) { Duration::from_millis(10) } else { WAKE };
        let at = ctx.clock.now() + self.rng.tail(late);
        self.wake_at(ctx, at);
    }

    fn wake_at(&mut self, ctx: &mut Ctx<'_>, at: Instant) {
        if self.wake_at.is_none_or(|wake| at < wake) {
            self.wake_at = Some(at);
            ctx.clock.at(at, Event::Path(usize::from(self.id.0)));
        }
    }

    /// [`Event::Path`] has come.
    pub(super) fn turn(&mut self, ctx: &mut Ctx<'_>, fences: &mut Fences, disks: &mut Disks) {
        let now = ctx.clock.now();
        if self.wake_at != Some(now) {
            return;
        }
        self.wake_at = None;
        self.turn_leavers(ctx);
        if self.is_ending {
            return;
        }
        while let Some(PathEvent { epoch, kind, .. }) = self.reports.pop_front() {
            self.path.reported(now, epoch, report_of(&kind));
        }
        if let Some(Recording { epoch, fence_time, .. }) = self.recording.take_if(|it| self.known && it.until <= now) {
            let is_written = fences.record(AssociationId { path: self.id, epoch }, fence_time);
            self.path.recorded(now, is_written.then_some(()).ok_or(Failed));
        }
        // What has arrived comes before the timeouts: it is what they wait for.
        while self.exchange(ctx) {}
        loop {
            self.go_on(ctx, fences, disks);
            let reset = fences.next_reset(now, self.id);
            if reset.is_some_and(|other| !self.path.reset_other(other)) {
                fences.reset_answered(ctx, self.id, None);
            }
            if !self.exchange(ctx) && reset.is_none() {
                break;
            }
        }
        let refused = self.refused_until.filter(|until| now < *until);
        let recording = self.recording.filter(|_| self.known).map(|it| it.until);
        if let Some(at) = super::earliest([self.path.next_timeout(), recording, refused]) {
            self.wake_at(ctx, at.max(now));
        }
    }

    /// The daemon ends, and its I/O threads have.
    pub(super) fn end(&mut self, ctx: &mut Ctx<'_>) {
        let admin = self.path.end();
        self.close_but(ctx, admin);
        self.is_ending = true;
        self.wake(ctx);
    }

    /// Whether nothing more comes of it, once it was ended.
    pub(super) fn is_over(&self) -> bool {
        self.leavers.is_empty()
    }

    /// Closes all sockets, and that of the admin queue when its controller has been told that the host leaves.
    fn close_but(&mut self, ctx: &mut Ctx<'_>, admin: Option<HostController>) {
        let mut sockets = self.sockets.drain(..);
        if let Some(mut admin) = admin
            && let Some(Socket { conn, out, .. }) = sockets.next()
        {
            admin.shutdown(ctx.clock.now());
            self.leavers.push(Leaver { admin, conn, out, until: ctx.clock.now() + SHUTDOWN_MAX });
        }
        sockets.for_each(|socket| ctx.net.close(ctx.clock, socket.conn, Side::Host));
    }

    fn turn_leavers(&mut self, ctx: &mut Ctx<'_>) {
        for mut leaver in std::mem::take(&mut self.leavers) {
            if leaver.is_over(ctx) {
                ctx.net.close(ctx.clock, leaver.conn, Side::Host);
            } else {
                self.wake_at(ctx, leaver.until);
                self.leavers.push(leaver);
            }
        }
    }

    /// The I/O threads have told whether it owes anything.
    pub(super) fn looked(&mut self, ctx: &mut Ctx<'_>, owes_nothing: bool) {
        self.path.outstanding_checked(ctx.clock.now(), owes_nothing);
        self.wake(ctx);
    }

    /// Moves bytes between the path and its sockets: whether there were any, or anything else new.
    fn exchange(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let (now, mut is_new) = (ctx.clock.now(), false);
        for index in 0..self.sockets.len() {
            let Some(Socket { qid, conn, .. }) = self.sockets.get(index) else { break };
            let (qid, conn) = (*qid, *conn);
            if ctx.net.is_reset(conn, Side::Host) && !ctx.net.has_received(conn, Side::Host) {
                ctx.net.close(ctx.clock, conn, Side::Host);
                self.sockets.remove(index);
                self.path.failed(now, qid, Failed);
                return true;
            }
            let socket = &mut self.sockets[index];
            if !socket.is_connected {
                if !ctx.net.is_established(conn) {
                    continue;
                }
                socket.is_connected = true;
                self.path.connected(now, qid);
                is_new = true;
            }
            let mut out = Vec::new();
            self.path.fill_tx(now, qid, &mut out);
            socket.out.extend(out);
            send_all(ctx, conn, &mut socket.out);
            let most = self.rng.pick(&[7, 512, 16 * 1024]);
            let bytes = ctx.net.receive(ctx.clock, conn, Side::Host, most);
            if !bytes.is_empty() {
                self.path.received(now, qid, &bytes);
                is_new = true;
            }
        }
        is_new
    }

    fn go_on(&mut self, ctx: &mut Ctx<'_>, fences: &mut Fences, disks: &mut Disks) {
        let now = ctx.clock.now();
        while let Some(action) = self.path.poll(now, disks) {
            ctx.say(|| format!("path {}: {action:?}", self.id));
            match action {
                Action::Connect { qid } => {
                    self.protect_queues(ctx);
                    let conn = ctx.net.connect(ctx.clock, usize::from(self.id.0));
                    self.sockets.push(Socket { qid, conn, is_connected: false, out: VecDeque::new() });
                }
                Action::Close => {
                    self.recording = None;
                    for socket in self.sockets.drain(..) {
                        ctx.net.close(ctx.clock, socket.conn, Side::Host);
                    }
                }
                Action::Record { epoch, fence_time, .. } => {
                    self.protect_queues(ctx);
                    let until = now + self.rng.tail(RECORD);
                    self.recording = Some(Recording { epoch, fence_time, until });
                }
                Action::RemoveRecord { epoch } => fences.forget(AssociationId { path: self.id, epoch }),
                Action::GoLive(up) => self.up(fences, *up),
                Action::UpdateNamespace { epoch, update: news } => {
                    let (path, disk, state) = (self.id, news.disk, news.state);
                    disks.told(path, &news);
                    ctx.check.counts.disks_lost += u64::from(news.unusable.is_some());
                    if let Some(limits) = news.added {
                        ctx.check.counts.namespaces_added += 1;
                        self.mail_all(|| Message::AddNamespace { path, epoch, disk, limits });
                    }
                    self.mail_all(|| Message::Ana { path, epoch, disk, state });
                }
                Action::CloseQueues { epoch, .. } => {
                    fences.withdraw_resets(self.id);
                    disks.path_down(self.id);
                    ctx.check.association_lost(ctx.clock.elapsed());
                    let path = self.id;
                    self.mail_all(|| Message::PathDown { path, epoch, close_mode: CloseMode::Reset });
                }
                Action::Ended(left) => {
                    ctx.check.counts.closed_in_order += u64::from(left.is_clean);
                    fences.ended(now, self.id, &left);
                    self.close_but(ctx, left.is_clean.then_some(left.admin));
                }
                Action::ResetAnswered(outcome) => fences.reset_answered(ctx, self.id, Some(outcome)),
                Action::CheckOutstanding { at_once } => self.look = Some(at_once),
                Action::Failed(error) => {
                    let of_one = matches!(error, mpath_host::PathError::Changed { .. }) && self.plan.disks.len() > 1;
                    ctx.check.counts.unanswered += u64::from(matches!(error, mpath_host::PathError::ConnectTimeout));
                    ctx.check.counts.ended_by_another += u64::from(of_one);
                }
                Action::Refused(_) => self.refused_until = Some(now + OPERATOR),
                Action::TakeRemovalStep(step) => {
                    self.leaving = Some(step);
                    if step == RemovalStep::RemoveFromThreads {
                        let path = self.id;
                        self.mail_all(|| Message::RemovePath(path));
                    }
                }
                Action::RemovalDone => {
                    ctx.check.counts.removals += 1;
                    self.is_gone = true;
                }
                Action::SendTermReq { .. }
                | Action::Suspect
                | Action::Recovered
                | Action::SmallerTransfer { .. }
                | Action::Connecting
                | Action::GaveUp { .. }
                | Action::Disabled
                | Action::RemovalBegun => {}
            }
        }
    }

    /// The handshakes of the I/O queues are over: their digests protect what follows.
    fn protect_queues(&self, ctx: &mut Ctx<'_>) {
        for socket in self.sockets.iter().filter(|socket| socket.qid > 0) {
            ctx.net.protect(socket.conn, self.plan.controller.digests);
        }
    }

    fn up(&mut self, fences: &mut Fences, LiveAssociation { association, queues, info, .. }: LiveAssociation) {
        let path = self.id;
        let sockets = self.sockets.split_off(1);
        for ((thread, queue), socket) in queues.into_iter().enumerate().zip(sockets) {
            let link = ConnectedQueuePair {
                socket: socket.conn,
                queue,
                retry_delays: info.retry_delays,
                close_mode: CloseMode::Reset,
            };
            let link = Box::new(link);
            self.mail.push((thread, Message::PathUp { path, association, link }));
        }
        if info.cross_resets > 0 {
            fences.offer_resets(self.path.latest());
        }
    }

    fn mail_all(&mut self, message: impl Fn() -> Message) {
        (0..self.plan.threads).for_each(|thread| self.mail.push((thread, message())));
    }
}
