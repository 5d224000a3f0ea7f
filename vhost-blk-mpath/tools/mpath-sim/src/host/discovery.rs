//! The tasks of discovery: they drive the shipping state machines over simulated sockets.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use monotonic::{Duration, Instant};
use mpath_lifecycle::discovery::{self, Action, Changes, KnownPath, SavedLog, SessionEvent, SessionId, Source};

use super::plan::HostPlan;
use super::socket::send_all;
use super::turn_timer::TurnTimer;
use crate::clock::{Event, earliest};
use crate::connection::{ConnId, Side};
use crate::context::Ctx;
use crate::discovery_controllers::{self, DiscoveryControllers, controller_at, node_at, path_address};
use crate::rng::Rng;

/// How long requests wait at most for the first log of a controller.
const FIRST_LOG_MAX: Duration = Duration::from_secs(10);

/// A session and its socket.
struct Session {
    id: SessionId,
    conn: ConnId,
    source: Source<SocketAddr>,
    is_persistent: bool,
    /// When the session began, or read its last log.
    heard_at: Instant,
    is_connected: bool,
    /// The shipping session.
    protocol: discovery::Session,
    out: VecDeque<u8>,
    /// The host has ended the session, and its events are ignored.
    is_ended: bool,
}

/// Discovery, with its sessions.
pub(crate) struct Discovery {
    plan: HostPlan,
    /// The shipping state machine, which decides.
    inner: discovery::Discovery<SocketAddr>,
    sessions: Vec<Session>,
    /// By controller and node: the last log that the host read, or an earlier daemon, lists the node.
    listed: Vec<Vec<bool>>,
    began: Instant,
    /// Configured controllers with no log and no failed session.
    unheard: BTreeSet<usize>,
    /// Nodes that an earlier daemon had discovered, before this one has compared the paths first.
    untried: BTreeSet<usize>,
    /// What the next daemon finds.
    saved: Vec<SavedLog<SocketAddr>>,
    rng: Rng,
    timer: TurnTimer,
    /// The daemon ends, and no paths are added or removed any more.
    is_ending: bool,
}

impl Discovery {
    /// Discovery of a daemon to which an earlier one has left what it had discovered.
    pub(super) fn new(
        ctx: &mut Ctx,
        plan: &HostPlan,
        controllers: &DiscoveryControllers,
        left: Vec<SavedLog<SocketAddr>>,
        rng: Rng,
    ) -> Self {
        let now = ctx.clock.now();
        let configured = if controllers.plan.sends_referrals { 0..1 } else { 0..controllers.len() };
        let subsystem = plan.controller.subnqn.to_string();
        let addresses = configured.clone().map(discovery_controllers::address);
        let mut discovery = Self {
            inner: discovery::Discovery::new(
                now,
                subsystem,
                discovery::TlsUse::default(),
                plan.reconnect_delay,
                addresses,
                |_, peer| Some(peer),
                left.clone(),
            ),
            untried: left.iter().flat_map(|log| &log.paths).map(|path| node_at(*path)).collect(),
            saved: left,
            sessions: Vec::new(),
            listed: vec![vec![false; plan.paths]; controllers.len()],
            plan: plan.clone(),
            began: now,
            unheard: configured.collect(),
            rng,
            timer: TurnTimer::new(Event::Discovery),
            is_ending: false,
        };
        for log in &discovery.saved {
            let listed = &mut discovery.listed[controller_at(log.address)];
            log.paths.iter().for_each(|path| listed[node_at(*path)] = true);
        }
        discovery.wake(ctx);
        discovery
    }

    pub(super) fn first_logs_are_done(&mut self, now: Instant) -> bool {
        self.inner.first_logs_are_done(now)
    }

    /// Whether each configured controller was heard, or was given the time that it may take.
    pub(super) fn has_first_logs(&self, now: Instant) -> bool {
        now >= self.began + FIRST_LOG_MAX || self.unheard.is_empty()
    }

    /// What the daemon leaves for the next one.
    pub(super) fn into_file(self) -> Vec<SavedLog<SocketAddr>> {
        self.saved
    }

    /// Whether the logs that the host read list a node.
    pub(super) fn is_listed(&self, node: usize) -> bool {
        self.listed.iter().any(|nodes| nodes[node])
    }

    pub(super) fn operator_removes(&mut self, path: usize) {
        self.inner.operator_removes(discovery_controllers::path_address(path));
    }

    pub(super) fn owns(&self, id: ConnId) -> bool {
        self.sessions.iter().any(|session| session.conn == id)
    }

    pub(super) fn wake(&mut self, ctx: &mut Ctx) {
        self.timer.wake_task(&mut ctx.clock, &mut self.rng);
    }

    /// Handles [`Event::Discovery`]. Returns the paths to add and to remove.
    pub(super) fn turn(&mut self, ctx: &mut Ctx, have: &[KnownPath<SocketAddr>]) -> Option<Changes<SocketAddr>> {
        let now = ctx.clock.now();
        if !self.timer.take_due(now) {
            return None;
        }
        // Bytes that have arrived come before timeouts, which wait for them.
        for index in (0..self.sessions.len()).rev() {
            self.turn_session(ctx, index);
        }
        let mut changes = None;
        if !self.is_ending {
            self.carry_out_actions(ctx);
            let made = self.inner.changes(now, have);
            let is_tried = |node: &usize| {
                let address = path_address(*node);
                made.add.contains(&address) || have.iter().any(|path| path.address == address)
            };
            let is_heard = self.inner.controllers().iter().any(|controller| controller.log.is_some());
            ctx.checker.counts.tried_as_saved += self.untried.iter().filter(|_| !is_heard).count() as u64;
            if let Some(node) = std::mem::take(&mut self.untried).iter().find(|node| !is_heard && !is_tried(node)) {
                let what = format_args!("path {node}, which an earlier daemon had discovered, is not tried at once");
                ctx.checker.violate(ctx.clock.elapsed(), None, what);
            }
            changes = Some(made);
            self.saved = self.inner.to_save();
        }
        let decision = self.inner.next_timeout().filter(|_| !self.is_ending);
        let sessions = self.sessions.iter().filter_map(|session| session.protocol.next_timeout()).min();
        if let Some(at) = earliest([decision, sessions]) {
            self.timer.set(&mut ctx.clock, at.max(now));
        }
        changes
    }

    /// Moves bytes between a session and its socket, and takes its events.
    fn turn_session(&mut self, ctx: &mut Ctx, index: usize) {
        let now = ctx.clock.now();
        loop {
            let Session { id, conn, source, is_connected, protocol, out, .. } = &mut self.sessions[index];
            let (id, conn) = (*id, *conn);
            if !*is_connected && ctx.net.is_established(conn) {
                *is_connected = true;
                protocol.connected(now, discovery::Peer { address: source.address, tls_suite: None });
            }
            let mut bytes = Vec::new();
            protocol.fill_tx(&mut bytes);
            out.extend(bytes);
            send_all(ctx, conn, out);
            let most = self.rng.pick(&[7, 512, 16 * 1024]);
            let bytes = ctx.net.receive(&mut ctx.clock, conn, Side::Host, most);
            // A timeout that is due may leave something to send.
            let mut is_idle = bytes.is_empty() && protocol.next_timeout().is_none_or(|at| at > now);
            if ctx.net.is_reset(conn, Side::Host) && !ctx.net.has_received(conn, Side::Host) {
                protocol.failed("no connection".to_owned());
            } else if bytes.is_empty() {
                protocol.handle_timeout(now);
            } else {
                protocol.receive(now, &bytes);
            }
            let news = protocol.poll(now);
            is_idle &= news.is_none();
            let is_over = news.is_some_and(|news| self.take_event(ctx, id, news));
            if is_over {
                ctx.net.close(&mut ctx.clock, conn, Side::Host);
                self.sessions.remove(index);
            }
            if is_over || is_idle {
                return;
            }
        }
    }

    /// Passes on an event of a session. Returns whether it is the last one.
    fn take_event(&mut self, ctx: &mut Ctx, id: SessionId, news: SessionEvent) -> bool {
        ctx.say(|| format!("session {id:?}: {news:?}"));
        let session = self.sessions.iter_mut().find(|session| session.id == id);
        if let Some(session) = &session {
            let counts = &mut ctx.checker.counts;
            match news {
                SessionEvent::Log { .. } => counts.logs_polled += u64::from(!session.is_persistent),
                SessionEvent::Finished => {}
                SessionEvent::Lost { refuses_persistence, .. } => {
                    counts.persistence_refused += u64::from(refuses_persistence);
                    counts.sessions_silent += u64::from(ctx.net.is_silent(session.conn));
                }
            }
            self.unheard.remove(&controller_at(session.source.address));
        }
        let session = session.filter(|session| !session.is_ended);
        if let (SessionEvent::Log { log, .. }, Some(session)) = (&news, session) {
            // The controller ends a connection without keep-alives within twice its timeout.
            let kept_alive = ctx.clock.now() - session.heard_at > 2 * self.plan.controller.keep_alive_tmo;
            ctx.checker.counts.sessions_kept_alive += u64::from(session.is_persistent && kept_alive);
            session.heard_at = ctx.clock.now();
            let listed = &mut self.listed[controller_at(session.source.address)];
            *listed = (0..listed.len()).map(|node| discovery_controllers::lists(log, node)).collect();
        }
        let is_over = !matches!(news, SessionEvent::Log { .. });
        self.inner.session_event(ctx.clock.now(), id, news);
        is_over
    }

    /// Starts and ends sessions.
    fn carry_out_actions(&mut self, ctx: &mut Ctx) {
        let now = ctx.clock.now();
        while let Some(action) = self.inner.poll(now) {
            ctx.say(|| format!("discovery: {action:?}"));
            match action {
                Action::Start { session: id, source, persistent: is_persistent } => {
                    let conn = ctx.net.connect(&mut ctx.clock, self.plan.paths + controller_at(source.address));
                    let (host, kato) = (self.plan.controller.host.clone(), self.plan.controller.keep_alive_tmo);
                    let kato = is_persistent.then_some(kato);
                    let protocol = discovery::Session::new(now, host, source.subnqn.clone(), kato);
                    let session = Session {
                        id,
                        conn,
                        source,
                        is_persistent,
                        heard_at: now,
                        is_connected: false,
                        protocol,
                        out: VecDeque::new(),
                        is_ended: false,
                    };
                    self.sessions.push(session);
                }
                Action::End { session: id } => self.end(ctx, id),
                Action::LogChanged { .. } | Action::Lost { .. } | Action::Warn(_) => {}
            }
        }
    }

    /// The daemon ends, and sessions are closed in order.
    pub(super) fn end_all(&mut self, ctx: &mut Ctx) {
        let ids: Vec<_> = self.sessions.iter().map(|session| session.id).collect();
        for id in ids {
            self.end(ctx, id);
        }
        self.is_ending = true;
    }

    /// Whether all sessions have ended, once the daemon ends.
    pub(super) fn is_over(&self) -> bool {
        self.is_ending && self.sessions.is_empty()
    }

    fn end(&mut self, ctx: &mut Ctx, id: SessionId) {
        let Some(index) = self.sessions.iter().position(|session| session.id == id) else { return };
        self.sessions[index].is_ended = true;
        self.sessions[index].protocol.shutdown(ctx.clock.now());
        self.wake(ctx);
    }
}
