//! Decides: a discovery controller is asked again.
//!
//! One discovery controller: when it is asked, and what it reported last.

use std::collections::VecDeque;
use std::fmt::Display;

use monotonic::{Duration, Instant};
use nvme_tcp::host::DiscoveryLog;
use nvme_tcp::wire::Nqn;

use super::{Action, Peer, SessionEvent, SessionId};

/// Limit from the first packet to the first log.
pub const FIRST_LOG_MAX: Duration = Duration::from_secs(10);

/// How often a controller that reports no changes is asked.
pub const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// A connection that ends this soon after its log is not persistent in practice.
const SHORT_SESSION_MAX: Duration = Duration::from_secs(10);

/// The number of such connections in a row after which the controller is polled.
const SHORT_SESSIONS_MAX: u32 = 2;

/// The address and NQN of a discovery controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source<A> {
    /// Its address.
    pub address: A,
    /// The well-known discovery NQN, or the NQN of a unique discovery subsystem.
    pub subnqn: Nqn,
}

/// The state of a discovery controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerState {
    /// It has given no log yet.
    Connecting,
    /// Its connection is persistent.
    Connected,
    /// It accepts no persistent connections and is polled.
    Polled,
    /// It has given a log and is not connected. That log still counts.
    Lost,
}

/// A discovery controller as the host knows it.
#[derive(Debug)]
pub struct Controller<A> {
    /// Where it is.
    pub source: Source<A>,
    /// The controller that refers to it; `None` if it is configured.
    pub referred_by: Option<A>,
    /// Whether it answers.
    pub state: ControllerState,
    /// Since when it is in this state.
    pub since: Instant,
    /// Its last log, and when that was read.
    pub log: Option<(Box<DiscoveryLog>, Instant)>,
    /// Paths of the disk's subsystem in the last log that require TLS, while the disk has no key.
    pub paths_without_key: usize,
    /// The last error since the log was read, and when it occurred.
    pub last_error: Option<(String, Instant)>,
    /// The peer of the last connection that has given a log.
    pub peer: Option<Peer>,
    contact: Contact,
    /// Whether to ask for persistent connections. False once the controller has refused one, or has ended some soon after
    /// their logs. Controllers without explicit persistent connections do either.
    persistent: bool,
    /// Persistent connections in a row that have ended soon after their logs.
    short_sessions: u32,
}

/// The session with a controller.
#[derive(Debug, Clone, Copy)]
enum Contact {
    /// No session. The next one starts at this time.
    None { until: Instant },
    /// A session that must give its first log by this time.
    AwaitingLog { session: SessionId, until: Instant },
    /// A session that has given its first log at this time.
    LogReceived { session: SessionId, at: Instant },
}

impl<A: Clone + Display> Controller<A> {
    pub(super) fn new(now: Instant, source: Source<A>, referred_by: Option<A>) -> Self {
        Self {
            source,
            referred_by,
            state: ControllerState::Connecting,
            since: now,
            log: None,
            paths_without_key: 0,
            last_error: None,
            peer: None,
            contact: Contact::None { until: now },
            persistent: true,
            short_sessions: 0,
        }
    }

    /// Whether the first attempt to read the log is still to end.
    pub(super) fn is_untried(&self) -> bool {
        self.state == ControllerState::Connecting && self.last_error.is_none()
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        match self.contact {
            Contact::None { .. } => None,
            Contact::AwaitingLog { session, .. } | Contact::LogReceived { session, .. } => Some(session),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.contact {
            Contact::None { until } | Contact::AwaitingLog { until, .. } => Some(until),
            Contact::LogReceived { .. } => None,
        }
    }

    /// Starts a session when it is time, and ends one without a log in time. `next` is the next session id.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        next: &mut u64,
        reconnect_delay: Duration,
        actions: &mut VecDeque<Action<A>>,
    ) {
        match self.contact {
            Contact::None { until } if until <= now => {
                let session = SessionId(*next);
                *next += 1;
                self.contact = Contact::AwaitingLog { session, until: now + FIRST_LOG_MAX };
                actions.push_back(Action::Start { session, source: self.source.clone(), persistent: self.persistent });
            }
            Contact::AwaitingLog { session, until } if until <= now => {
                actions.push_back(Action::End { session });
                let error = format!("no discovery log within {} s", FIRST_LOG_MAX.as_secs());
                self.lost(now, error, reconnect_delay, actions);
            }
            _ => {}
        }
    }

    /// Handles an event of its session.
    pub(super) fn session_event(
        &mut self,
        now: Instant,
        session: SessionId,
        event: SessionEvent,
        reconnect_delay: Duration,
        actions: &mut VecDeque<Action<A>>,
    ) {
        match event {
            SessionEvent::Log { log, peer } => {
                let was_lost = matches!(self.state, ControllerState::Connecting | ControllerState::Lost);
                if was_lost || self.log.as_ref().is_none_or(|(last, _)| *last != log) {
                    let (at, records, generation) = (self.source.address.clone(), log.records(), log.generation);
                    actions.push_back(Action::LogChanged { at, was_lost, records, generation });
                }
                if !matches!(self.contact, Contact::LogReceived { .. }) {
                    self.contact = Contact::LogReceived { session, at: now };
                }
                self.set_state(now, if self.persistent { ControllerState::Connected } else { ControllerState::Polled });
                self.log = Some((log, now));
                self.peer = Some(peer);
                self.last_error = None;
            }
            SessionEvent::Finished => self.contact = Contact::None { until: now + POLL_INTERVAL },
            SessionEvent::Lost { refuses_persistence: true, .. } if self.persistent => {
                self.persistent = false;
                self.contact = Contact::None { until: now };
            }
            SessionEvent::Lost { error, .. } => {
                let is_short = matches!(self.contact, Contact::LogReceived { at, .. } if now - at < SHORT_SESSION_MAX);
                self.short_sessions = if is_short && self.persistent { self.short_sessions + 1 } else { 0 };
                if self.short_sessions < SHORT_SESSIONS_MAX {
                    return self.lost(now, error, reconnect_delay, actions);
                }
                (self.persistent, self.short_sessions) = (false, 0);
                self.contact = Contact::None { until: now + POLL_INTERVAL };
                self.set_state(now, ControllerState::Polled);
                let (at, interval) = (&self.source.address, POLL_INTERVAL.as_secs());
                actions.push_back(Action::Warn(format!(
                    "{at} keeps no connection, and is asked every {interval} s: {error}"
                )));
            }
        }
    }

    fn lost(&mut self, now: Instant, error: String, reconnect_delay: Duration, actions: &mut VecDeque<Action<A>>) {
        self.persistent = true;
        self.contact = Contact::None { until: now + reconnect_delay };
        self.set_state(now, if self.log.is_some() { ControllerState::Lost } else { ControllerState::Connecting });
        // Report a repeated error once, not with every attempt.
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
