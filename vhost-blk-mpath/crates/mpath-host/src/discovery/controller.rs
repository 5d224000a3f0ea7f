//! One discovery controller: when it is asked, and what it has said last.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nvme_tcp::host::DiscoveryLog;
use nvme_tcp::wire::Nqn;

use super::{Action, SessionId, SessionNews};

/// How long it may take from the first packet to the first log.
pub const FIRST_LOG_MAX: Duration = Duration::from_secs(10);

/// How often a controller that does not tell of changes is asked.
pub const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Where a discovery controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source<A> {
    /// Its address.
    pub address: A,
    /// The well-known NQN of discovery, or one of its own.
    pub subnqn: Nqn,
}

/// The life of a discovery controller, as this host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerState {
    /// Has given no log yet.
    Connecting,
    /// Its connection stays.
    Connected,
    /// It keeps no connections, and is asked from time to time.
    Polled,
    /// Has given a log and does not answer now. That log still counts.
    Lost,
}

/// What is known of a discovery controller.
#[derive(Debug)]
pub struct Controller<A> {
    /// Where it is.
    pub source: Source<A>,
    /// Who refers to it; `None` of a configured one.
    pub referred_by: Option<A>,
    /// Whether it answers.
    pub state: ControllerState,
    /// Since when it is in this state.
    pub since: Instant,
    /// Its last log, and when that was read.
    pub log: Option<(Box<DiscoveryLog>, Instant)>,
    /// What went wrong since then, and when.
    pub last_error: Option<(String, Instant)>,
    /// Where the last connection led.
    pub(super) peer: Option<SocketAddr>,
    asked: Asked,
    /// Connections are asked to stay, until it refuses: controllers before explicit persistent connections do.
    stays: bool,
}

/// How a controller is being asked.
#[derive(Debug, Clone, Copy)]
enum Asked {
    /// Not before then.
    Not { until: Instant },
    /// By a session that has to give its first log before then.
    First { session: SessionId, until: Instant },
    /// By a session that has given a log.
    Heard { session: SessionId },
}

impl<A: Clone> Controller<A> {
    pub(super) fn new(now: Instant, source: Source<A>, referred_by: Option<A>) -> Self {
        Self {
            source,
            referred_by,
            state: ControllerState::Connecting,
            since: now,
            log: None,
            last_error: None,
            peer: None,
            asked: Asked::Not { until: now },
            stays: true,
        }
    }

    /// Whether the first attempt to ask it is not over.
    pub(super) fn is_untried(&self) -> bool {
        self.state == ControllerState::Connecting && self.last_error.is_none()
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        match self.asked {
            Asked::Not { .. } => None,
            Asked::First { session, .. } | Asked::Heard { session } => Some(session),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.asked {
            Asked::Not { until } | Asked::First { until, .. } => Some(until),
            Asked::Heard { .. } => None,
        }
    }

    /// Starts a session if it is time, and gives up a silent one. `next` names sessions.
    pub(super) fn go_on(
        &mut self,
        now: Instant,
        next: &mut u64,
        reconnect_delay: Duration,
        actions: &mut VecDeque<Action<A>>,
    ) {
        match self.asked {
            Asked::Not { until } if until <= now => {
                let session = SessionId(*next);
                *next += 1;
                self.asked = Asked::First { session, until: now + FIRST_LOG_MAX };
                actions.push_back(Action::Start { session, source: self.source.clone(), stays: self.stays });
            }
            Asked::First { session, until } if until <= now => {
                actions.push_back(Action::End { session });
                let error = format!("no discovery log within {} s", FIRST_LOG_MAX.as_secs());
                self.lost(now, error, reconnect_delay, actions);
            }
            _ => {}
        }
    }

    /// Takes what its session says.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        session: SessionId,
        news: SessionNews,
        reconnect_delay: Duration,
        actions: &mut VecDeque<Action<A>>,
    ) {
        match news {
            SessionNews::Log { log, peer } => {
                let was_lost = matches!(self.state, ControllerState::Connecting | ControllerState::Lost);
                if was_lost || self.log.as_ref().is_none_or(|(last, _)| *last != log) {
                    let (at, records, generation) = (self.source.address.clone(), log.records(), log.generation);
                    actions.push_back(Action::Read { at, was_lost, records, generation });
                }
                self.asked = Asked::Heard { session };
                self.set_state(now, if self.stays { ControllerState::Connected } else { ControllerState::Polled });
                self.log = Some((log, now));
                self.peer = Some(peer);
                self.last_error = None;
            }
            SessionNews::Asked => self.asked = Asked::Not { until: now + ASK_AGAIN },
            SessionNews::Lost { refuses_to_stay: true, .. } if self.stays => {
                self.stays = false;
                self.asked = Asked::Not { until: now };
            }
            SessionNews::Lost { error, .. } => self.lost(now, error, reconnect_delay, actions),
        }
    }

    fn lost(&mut self, now: Instant, error: String, reconnect_delay: Duration, actions: &mut VecDeque<Action<A>>) {
        self.stays = true;
        self.asked = Asked::Not { until: now + reconnect_delay };
        self.set_state(now, if self.log.is_some() { ControllerState::Lost } else { ControllerState::Connecting });
        // It would be repeated with every attempt otherwise.
        if self.last_error.as_ref().is_none_or(|(last, _)| *last != error) {
            actions.push_back(Action::Lost { at: self.source.address.clone(), error: error.clone() });
        }
        self.last_error = Some((error, now));
    }

    fn set_state(&mut self, now: Instant, state: ControllerState) {
        if self.state != state {
            (self.state, self.since) = (state, now);
        }
    }
}
