//! What the daemon's task does for discovery: it drives the state machine that ships. Sessions are made of their outcomes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpath_host::discovery::{self, Action, Changes, Have, SessionId, SessionNews};

use super::{HostPlan, earliest};
use crate::clock::Event;
use crate::controllers::{self, Controllers, Lost};
use crate::rng::Rng;
use crate::target::Ctx;

/// How long news of a session take, typically.
const NEWS: Duration = Duration::from_millis(2);
/// How long they take when they are late.
const LATE_NEWS: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Session {
    id: SessionId,
    controller: usize,
    stays: bool,
    /// On their way; `None` stands for the attempt to connect.
    news: VecDeque<(Instant, Option<SessionNews>)>,
}

pub(crate) struct Discovery {
    decides: discovery::Discovery<SocketAddr>,
    sessions: Vec<Session>,
    /// By controller, and node: what the host has heard last, for the judge.
    heard: Vec<Vec<bool>>,
    late_percent: u64,
    rng: Rng,
    wake_at: Option<Instant>,
}

impl Discovery {
    /// A daemon begins with what the controllers list then. It waits for their logs.
    pub(super) fn start(ctx: &mut Ctx<'_>, plan: &HostPlan, controllers: &Controllers, rng: Rng) -> Self {
        let now = ctx.clock.now();
        let configured = if controllers.plan.refers { 0..1 } else { 0..controllers.len() };
        let subsystem = plan.controller.subnqn.to_string();
        let configured = configured.map(controllers::address);
        let mut discovery = Self {
            decides: discovery::Discovery::new(now, subsystem, plan.reconnect_delay, configured, |_, peer| peer),
            sessions: Vec::new(),
            heard: vec![vec![false; plan.paths]; controllers.len()],
            late_percent: 0,
            rng,
            wake_at: None,
        };
        while discovery.decides.is_any_untried() {
            discovery.act(ctx);
            for session in &mut discovery.sessions {
                session.news.iter_mut().for_each(|(at, _)| *at = now);
            }
            discovery.hear(ctx, controllers, true);
        }
        discovery.late_percent = controllers.plan.late_percent;
        discovery.wake(ctx, now);
        discovery
    }

    /// Whether the host has been told of a node.
    pub(super) fn has_heard_of(&self, node: usize) -> bool {
        self.heard.iter().any(|nodes| nodes[node])
    }

    /// Something about a controller has changed.
    pub(super) fn changed(&mut self, ctx: &mut Ctx<'_>, controllers: &Controllers, controller: usize) {
        let is_connected = |session: &&mut Session| {
            let is_connecting = session.news.iter().any(|(_, news)| news.is_none());
            session.controller == controller && session.stays && !is_connecting
        };
        let now = ctx.clock.now();
        for session in self.sessions.iter_mut().filter(is_connected) {
            let news = if controllers.lost(controller).is_some() {
                SessionNews::Lost { error: "connection lost".into(), refuses_to_stay: false }
            } else {
                log(controllers, controller)
            };
            let after = session.news.back().map_or(now, |(at, _)| *at);
            session.news.push_back((after.max(now + delay(&mut self.rng, self.late_percent)), Some(news)));
        }
        self.wake(ctx, now);
    }

    /// [`Event::Discovery`] has come; what it means for the paths.
    pub(super) fn turn(
        &mut self,
        ctx: &mut Ctx<'_>,
        controllers: &Controllers,
        have: &[Have<SocketAddr>],
    ) -> Option<Changes<SocketAddr>> {
        let now = ctx.clock.now();
        self.wake_at.take_if(|at| *at == now)?;
        self.hear(ctx, controllers, false);
        self.act(ctx);
        let changes = self.decides.changes(now, have);
        let news = self.sessions.iter().filter_map(|session| Some(session.news.front()?.0)).min();
        if let Some(at) = earliest([self.decides.next_timeout(), news]) {
            self.wake(ctx, at.max(now));
        }
        Some(changes)
    }

    fn wake(&mut self, ctx: &mut Ctx<'_>, at: Instant) {
        if self.wake_at.is_none_or(|wake| at < wake) {
            self.wake_at = Some(at);
            ctx.clock.at(at, Event::Discovery);
        }
    }

    /// Hands over what has arrived. Controllers answer a daemon that starts.
    fn hear(&mut self, ctx: &mut Ctx<'_>, controllers: &Controllers, starts: bool) {
        let now = ctx.clock.now();
        for index in (0..self.sessions.len()).rev() {
            while self.sessions[index].news.front().is_some_and(|(at, _)| *at <= now) {
                let Session { id, controller, stays, ref mut news } = self.sessions[index];
                let Some((_, news)) = news.pop_front() else { break };
                let keeps = controllers.plan.keeps[controller];
                let news = match (news, controllers.lost(controller).filter(|_| !starts)) {
                    (Some(news), _) => news,
                    (None, Some(Lost::IsSilent)) => continue,
                    (None, Some(Lost::Refuses)) => {
                        SessionNews::Lost { error: "refused".into(), refuses_to_stay: false }
                    }
                    (None, None) if stays && !keeps => {
                        SessionNews::Lost { error: "KATO".into(), refuses_to_stay: true }
                    }
                    (None, None) => {
                        if !stays {
                            self.sessions[index].news.push_back((now, Some(SessionNews::Asked)));
                        }
                        log(controllers, controller)
                    }
                };
                ctx.say(|| format!("discovery controller {controller}: {news:?}"));
                let is_over = !matches!(news, SessionNews::Log { .. });
                if let SessionNews::Log { log, .. } = &news {
                    let is_in = |node| {
                        log.entries
                            .iter()
                            .any(|entry| entry.trsvcid == controllers::path_address(node).port().to_string())
                    };
                    self.heard[controller] = (0..self.heard[controller].len()).map(is_in).collect();
                }
                self.decides.heard(now, id, news);
                if is_over {
                    self.sessions.remove(index);
                    break;
                }
            }
        }
    }

    fn act(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.clock.now();
        while let Some(action) = self.decides.poll(now) {
            ctx.say(|| format!("discovery: {action:?}"));
            match action {
                Action::Start { session: id, source, stays } => {
                    let controller = controllers::controller_at(source.address);
                    let at = now + delay(&mut self.rng, self.late_percent);
                    self.sessions.push(Session { id, controller, stays, news: VecDeque::from([(at, None)]) });
                }
                Action::End { session } => self.sessions.retain(|other| other.id != session),
                Action::Read { .. } | Action::Lost { .. } | Action::Useless(_) => {}
            }
        }
    }
}

fn log(controllers: &Controllers, controller: usize) -> SessionNews {
    SessionNews::Log { log: Box::new(controllers.log(controller)), peer: controllers::address(controller) }
}

fn delay(rng: &mut Rng, late_percent: u64) -> Duration {
    if rng.percent(late_percent) { rng.up_to(LATE_NEWS) } else { rng.tail(NEWS) }
}
