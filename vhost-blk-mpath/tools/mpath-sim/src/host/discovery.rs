//! What the daemon's tasks do for discovery: they drive the state machines that ship, over simulated sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpath_host::CONNECT_MAX;
use mpath_host::discovery::{self, Action, Changes, KnownPath, SessionEvent, SessionId, Source};

use super::path::send_all;
use super::{HostPlan, earliest};
use crate::clock::Event;
use crate::controllers::{self, Controllers, controller_at};
use crate::net::{ConnId, Side};
use crate::rng::Rng;
use crate::target::Ctx;

/// How soon a task does what it has to, typically.
const WAKE: Duration = Duration::from_micros(50);

/// A socket, and the session on it once it is connected.
struct Session {
    id: SessionId,
    conn: ConnId,
    source: Source<SocketAddr>,
    stays: bool,
    /// When it began, or gave its last log.
    heard_at: Instant,
    connects_until: Instant,
    on_wire: Option<discovery::Session>,
    out: VecDeque<u8>,
    /// Its events are ignored.
    is_ended: bool,
}

impl Session {
    fn next_timeout(&self) -> Option<Instant> {
        self.on_wire.as_ref().map_or(Some(self.connects_until), discovery::Session::next_timeout)
    }
}

pub(crate) struct Discovery {
    plan: HostPlan,
    decides: discovery::Discovery<SocketAddr>,
    sessions: Vec<Session>,
    /// By controller, and node: what the host has heard last, for the judge.
    heard: Vec<Vec<bool>>,
    rng: Rng,
    wake_at: Option<Instant>,
    /// The daemon ends: no paths are added or removed any more.
    ends: bool,
}

impl Discovery {
    pub(super) fn new(ctx: &mut Ctx<'_>, plan: &HostPlan, controllers: &Controllers, rng: Rng) -> Self {
        let now = ctx.clock.now();
        let configured = if controllers.plan.refers { 0..1 } else { 0..controllers.len() };
        let subsystem = plan.controller.subnqn.to_string();
        let configured = configured.map(controllers::address);
        let mut discovery = Self {
            decides: discovery::Discovery::new(now, subsystem, plan.reconnect_delay, configured, |_, peer| peer),
            sessions: Vec::new(),
            heard: vec![vec![false; plan.paths]; controllers.len()],
            plan: plan.clone(),
            rng,
            wake_at: None,
            ends: false,
        };
        discovery.wake(ctx);
        discovery
    }

    /// Whether the host has been told of a node.
    pub(super) fn has_heard_of(&self, node: usize) -> bool {
        self.heard.iter().any(|nodes| nodes[node])
    }

    pub(super) fn operator_removes(&mut self, path: usize) {
        self.decides.operator_removes(controllers::path_address(path));
    }

    pub(super) fn owns(&self, id: ConnId) -> bool {
        self.sessions.iter().any(|session| session.conn == id)
    }

    pub(super) fn wake(&mut self, ctx: &mut Ctx<'_>) {
        let late = if self.rng.percent(2) { Duration::from_millis(10) } else { WAKE };
        let at = ctx.clock.now() + self.rng.tail(late);
        self.wake_at(ctx, at);
    }

    fn wake_at(&mut self, ctx: &mut Ctx<'_>, at: Instant) {
        if self.wake_at.is_none_or(|wake| at < wake) {
            self.wake_at = Some(at);
            ctx.clock.at(at, Event::Discovery);
        }
    }

    /// [`Event::Discovery`] has come; what it means for the paths.
    pub(super) fn turn(&mut self, ctx: &mut Ctx<'_>, have: &[KnownPath<SocketAddr>]) -> Option<Changes<SocketAddr>> {
        let now = ctx.clock.now();
        self.wake_at.take_if(|at| *at == now)?;
        // What has arrived comes before the timeouts: it is what they wait for.
        for index in (0..self.sessions.len()).rev() {
            self.turn_session(ctx, index);
        }
        let mut changes = None;
        if !self.ends {
            self.act(ctx);
            changes = Some(self.decides.changes(now, have));
        }
        let decides = self.decides.next_timeout().filter(|_| !self.ends);
        let sessions = self.sessions.iter().filter_map(Session::next_timeout).min();
        if let Some(at) = earliest([decides, sessions]) {
            self.wake_at(ctx, at.max(now));
        }
        changes
    }

    /// Moves bytes between a session and its socket, and hears what it says.
    fn turn_session(&mut self, ctx: &mut Ctx<'_>, index: usize) {
        let now = ctx.clock.now();
        loop {
            let session = &mut self.sessions[index];
            let (id, conn) = (session.id, session.conn);
            if session.on_wire.is_none() && ctx.net.is_established(conn) {
                let Source { address, subnqn } = session.source.clone();
                let (host, kato) = (self.plan.controller.host.clone(), self.plan.controller.keep_alive_tmo);
                let on_wire = discovery::Session::new(now, address, host, subnqn, session.stays.then_some(kato));
                session.on_wire = Some(on_wire.expect("its configuration is in order"));
            }
            let has_ended = ctx.net.is_reset(conn, Side::Host) && !ctx.net.has_received(conn, Side::Host);
            let is_silent = session.on_wire.is_none() && session.connects_until <= now;
            let mut failed = (has_ended || is_silent).then(|| "no connection".to_owned());
            let mut is_idle = true;
            let news = session.on_wire.as_mut().and_then(|on_wire| {
                let mut out = Vec::new();
                on_wire.fill_tx(&mut out);
                session.out.extend(out);
                send_all(ctx, conn, &mut session.out);
                let most = self.rng.pick(&[7, 512, 16 * 1024]);
                let bytes = ctx.net.receive(ctx.clock, conn, Side::Host, most);
                // A timeout that is due may leave something to send.
                is_idle = bytes.is_empty() && on_wire.next_timeout().is_none_or(|at| at > now);
                let outcome = if bytes.is_empty() { on_wire.handle_timeout(now) } else { on_wire.receive(now, &bytes) };
                failed = failed.take().or(outcome.err().map(|error| error.to_string()));
                on_wire.poll(now)
            });
            let lost = failed.map(|error| match &session.on_wire {
                Some(on_wire) => on_wire.lost(error),
                None => SessionEvent::Lost { error, refuses_persistence: false },
            });
            is_idle &= news.is_none();
            let is_over = news.into_iter().chain(lost).fold(false, |is_over, news| is_over | self.hear(ctx, id, news));
            if is_over {
                ctx.net.close(ctx.clock, conn, Side::Host);
                self.sessions.remove(index);
            }
            if is_over || is_idle {
                return;
            }
        }
    }

    /// Hands over what a session says: whether that is its last word.
    fn hear(&mut self, ctx: &mut Ctx<'_>, id: SessionId, news: SessionEvent) -> bool {
        ctx.say(|| format!("session {id:?}: {news:?}"));
        let session = self.sessions.iter_mut().find(|session| session.id == id && !session.is_ended);
        if let (SessionEvent::Log { log, .. }, Some(session)) = (&news, session) {
            // The controller ends a connection that sends no keep-alive for as long as twice its timeout.
            let kept_alive = ctx.clock.now() - session.heard_at > 2 * self.plan.controller.keep_alive_tmo;
            ctx.check.counts.sessions_kept_alive += u64::from(session.stays && kept_alive);
            session.heard_at = ctx.clock.now();
            let heard = &mut self.heard[controller_at(session.source.address)];
            *heard = (0..heard.len()).map(|node| controllers::lists(log, node)).collect();
        }
        let is_over = !matches!(news, SessionEvent::Log { .. });
        self.decides.session_event(ctx.clock.now(), id, news);
        is_over
    }

    fn act(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.clock.now();
        while let Some(action) = self.decides.poll(now) {
            ctx.say(|| format!("discovery: {action:?}"));
            match action {
                Action::Start { session: id, source, persistent: stays } => {
                    let conn = ctx.net.connect(ctx.clock, self.plan.paths + controller_at(source.address));
                    let (connects_until, out) = (now + CONNECT_MAX, VecDeque::new());
                    let session = Session {
                        id,
                        conn,
                        source,
                        stays,
                        heard_at: now,
                        connects_until,
                        on_wire: None,
                        out,
                        is_ended: false,
                    };
                    self.sessions.push(session);
                }
                Action::End { session: id } => self.end(ctx, id),
                Action::LogChanged { .. } | Action::Lost { .. } | Action::Warn(_) => {}
            }
        }
    }

    /// The daemon ends: sessions leave in order.
    pub(super) fn end_all(&mut self, ctx: &mut Ctx<'_>) {
        let ids: Vec<_> = self.sessions.iter().map(|session| session.id).collect();
        for id in ids {
            self.end(ctx, id);
        }
        self.ends = true;
    }

    /// Whether nothing more comes of it.
    pub(super) fn is_over(&self) -> bool {
        self.ends && self.sessions.is_empty()
    }

    fn end(&mut self, ctx: &mut Ctx<'_>, id: SessionId) {
        let Some(index) = self.sessions.iter().position(|session| session.id == id) else { return };
        self.sessions[index].is_ended = true;
        if let Some(on_wire) = &mut self.sessions[index].on_wire {
            on_wire.shutdown(ctx.clock.now());
            self.wake(ctx);
        } else {
            ctx.net.close(ctx.clock, self.sessions[index].conn, Side::Host);
            self.sessions.remove(index);
        }
    }
}
