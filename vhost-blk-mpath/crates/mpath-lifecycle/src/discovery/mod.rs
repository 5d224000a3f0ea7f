//! Decides: the first logs of discovery were tried since a kill (`first_logs_are_done`).
//!
//! Paths from discovery controllers: which controllers are asked, and which paths are added and removed when logs
//! change.
//!
//! ```text
//!  sessions ── logs, losses ──▶ controllers ── addresses listed ──▶ reconcile ──▶ paths to add, to remove, to keep
//!      ▲                          │                                     ▲
//!      └── started and ended ─────┘ referrals                           └── the paths there are
//! ```
//! A lost controller removes nothing: its last log counts until it gives another. This holds over the end of the daemon too: what
//! a controller listed to an earlier daemon counts until this daemon has read its log.

mod controller;
mod reconcile;
mod saved_logs;
mod session;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::hash::Hash;
use std::net::SocketAddr;

use monotonic::{Duration, Instant};
use mpath_core::PathId;
use nvme_tcp::host::{DiscoveryLog, REFERRAL_DEPTH_MAX, REFERRALS_MAX};
use nvme_tcp::wire::Nqn;

pub use self::controller::{Controller, ControllerState, FIRST_LOG_MAX, POLL_INTERVAL, Source};
use self::reconcile::reconcile;
pub use self::reconcile::{Changes, KnownPath};
pub use self::saved_logs::SavedLog;
pub use self::session::Session;

/// How often paths are compared again while one of them is leaving, or stays only because there is no other.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Identifies a session with a discovery controller. Ids are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(u64);

/// The other end of a connection to a discovery controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address of the controller.
    pub address: SocketAddr,
    /// The cipher suite. `None` in clear text.
    pub tls_suite: Option<&'static str>,
}

/// An event of a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// The log was read.
    Log {
        /// The complete log.
        log: Box<DiscoveryLog>,
        /// The peer of the connection.
        peer: Peer,
    },
    /// The session is over in order: its log was read and its connection is not persistent, or the host ended it.
    Finished,
    /// The session has failed.
    Lost {
        /// Why, in one line.
        error: String,
        /// The controller accepts no persistent connections.
        refuses_persistence: bool,
    },
}

/// What the caller has to do or report.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<A> {
    /// Start a session: connect and read the log. [`SessionEvent`]s follow.
    Start {
        /// Its id.
        session: SessionId,
        /// The controller.
        source: Source<A>,
        /// Keep the connection and report changes. Otherwise the session ends once the log was read.
        persistent: bool,
    },
    /// End a session. Its later events are ignored.
    End {
        /// Its id.
        session: SessionId,
    },
    /// Report a log that differs from the last one, or the first log after a loss.
    LogChanged {
        /// The controller's address.
        at: A,
        /// The controller was lost, or had given no log before.
        was_lost: bool,
        /// NUMREC.
        records: usize,
        /// GENCTR.
        generation: u64,
    },
    /// Report that a controller does not answer, or fails with another error than before.
    Lost {
        /// The controller's address.
        at: A,
        /// Why, in one line.
        error: String,
    },
    /// Report a part of a log that cannot be used. It is repeated with every log.
    Warn(String),
}

/// Which connections use TLS 1.3. Discovery ignores a record that requires TLS if its connection would be in clear text. With a
/// generated key, the first connection is in clear text: a port that requires TLS is then a path that fails with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TlsUse {
    /// The connections of paths use TLS.
    pub paths: bool,
    /// The connections to discovery controllers use TLS.
    pub discovery: bool,
}

/// Builds an address that is connected in the same way as another one. `None` if the host cannot connect to it in that way.
pub type WithPeer<A> = fn(&A, SocketAddr) -> Option<A>;

/// The discovery of one subsystem. `A` is the address type of controllers and paths.
#[derive(Debug)]
pub struct Discovery<A> {
    subsystem: String,
    tls: TlsUse,
    reconnect_delay: Duration,
    with_peer: WithPeer<A>,
    controllers: Vec<Controller<A>>,
    /// The logs of an earlier daemon that still count.
    saved: Vec<SavedLog<A>>,
    next_session: u64,
    /// The end of the time for first logs; `None` once all first logs have come or the time is over.
    first_logs_until: Option<Instant>,
    /// Listed addresses whose path the operator has removed since they were listed.
    removed_by_operator: HashSet<A>,
    /// Paths of earlier logs that the disk still has.
    unlisted: Vec<A>,
    /// The path that stays only because there is no other.
    kept_path: Option<PathId>,
    /// When to compare again, because a path is leaving, stays for lack of another, or could not be added or removed.
    recheck_at: Option<Instant>,
    actions: VecDeque<Action<A>>,
}

impl<A: Clone + Eq + Hash + Display> Discovery<A> {
    /// Asks the configured controllers for paths to `subsystem`. `saved` is what an earlier daemon
    /// [has left](Self::to_save).
    pub fn new(
        now: Instant,
        subsystem: String,
        tls: TlsUse,
        reconnect_delay: Duration,
        configured: impl IntoIterator<Item = A>,
        with_peer: WithPeer<A>,
        saved: Vec<SavedLog<A>>,
    ) -> Self {
        let controller = |address| Controller::new(now, Source { address, subnqn: Nqn::discovery() }, None);
        Self {
            subsystem,
            tls,
            reconnect_delay,
            with_peer,
            controllers: configured.into_iter().map(controller).collect(),
            saved,
            next_session: 0,
            first_logs_until: Some(now + FIRST_LOG_MAX),
            removed_by_operator: HashSet::new(),
            unlisted: Vec::new(),
            kept_path: None,
            recheck_at: None,
            actions: VecDeque::new(),
        }
    }

    /// The controllers, the configured ones first.
    #[must_use]
    pub fn controllers(&self) -> &[Controller<A>] {
        &self.controllers
    }

    /// Whether every controller has sent its log or has failed, or the time for first logs is over. Call it after
    /// [`changes`](Self::changes) are made, so that the paths in these logs have been added.
    pub fn first_logs_are_done(&mut self, now: Instant) -> bool {
        let is_open = |until: &Instant| now < *until && self.controllers.iter().any(Controller::is_untried);
        self.first_logs_until = self.first_logs_until.filter(is_open);
        self.first_logs_until.is_none()
    }

    /// Handles an event of a session.
    pub fn session_event(&mut self, now: Instant, session: SessionId, event: SessionEvent) {
        let of = |controller: &&mut Controller<A>| controller.session() == Some(session);
        let Some(controller) = self.controllers.iter_mut().find(of) else { return };
        let is_log = matches!(event, SessionEvent::Log { .. });
        if let SessionEvent::Log { log, .. } = &event {
            controller.paths_without_key = sources::paths_without_key(log, &self.subsystem, self.tls);
        }
        controller.session_event(now, session, event, self.reconnect_delay, &mut self.actions);
        if is_log {
            let useless = sources::useless(controller, &self.subsystem, self.tls, self.with_peer).into_iter();
            self.actions.extend(useless.map(Action::Warn));
            let changes = sources::follow(now, &mut self.controllers, self.tls, self.with_peer);
            self.actions.extend(changes.ended.into_iter().map(|session| Action::End { session }));
            if changes.cut {
                self.actions.push_back(Action::Warn(format!(
                    "some referrals are ignored: at most {REFERRALS_MAX} are followed, {REFERRAL_DEPTH_MAX} levels deep"
                )));
            }
            saved_logs::forget_heard(&mut self.saved, &self.controllers);
        }
    }

    /// The next action. `None` until something else has happened, or until [`next_timeout`](Self::next_timeout).
    pub fn poll(&mut self, now: Instant) -> Option<Action<A>> {
        for controller in &mut self.controllers {
            controller.advance(now, &mut self.next_session, self.reconnect_delay, &mut self.actions);
        }
        self.actions.pop_front()
    }

    /// When [`poll`](Self::poll), [`changes`](Self::changes) or [`first_logs_are_done`](Self::first_logs_are_done) is due
    /// though nothing else has happened.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let controllers = self.controllers.iter().filter_map(Controller::next_timeout);
        controllers.chain(self.recheck_at).chain(self.first_logs_until).min()
    }

    /// The listed addresses, each once, in the order of controllers and records. Saved ones come last.
    #[must_use]
    pub fn listed(&self) -> Vec<A> {
        let mut listed = self.listed_by(&self.controllers);
        let mut known: HashSet<A> = listed.iter().cloned().collect();
        let saved = self.saved.iter().flat_map(|log| &log.paths);
        listed.extend(saved.filter(|address| known.insert((*address).clone())).cloned());
        listed
    }

    fn listed_by(&self, controllers: &[Controller<A>]) -> Vec<A> {
        sources::listed(controllers, &self.subsystem, self.tls, self.with_peer)
    }

    /// The last logs, for the next daemon, with paths that the disk has although no log lists them: one of them may be its last.
    /// At most as many addresses as a disk has paths.
    #[must_use]
    pub fn to_save(&self) -> Vec<SavedLog<A>> {
        let heard = self.controllers.iter().filter(|controller| controller.log.is_some()).map(|controller| {
            let Source { address, subnqn } = controller.source.clone();
            SavedLog { address, subnqn: subnqn.to_string(), paths: self.listed_by(std::slice::from_ref(controller)) }
        });
        let unlisted = self.controllers.first().map(|controller| SavedLog {
            address: controller.source.address.clone(),
            subnqn: controller.source.subnqn.to_string(),
            paths: self.unlisted.clone(),
        });
        saved_logs::bounded(heard.chain(self.saved.iter().cloned()).chain(unlisted))
    }

    /// Records that the operator removes the path to an address. Discovery adds no path to the address until it is
    /// listed again.
    pub fn operator_removes(&mut self, address: A) {
        self.removed_by_operator.insert(address);
    }

    /// What to do with the `known` paths. Call [`not_added`](Self::not_added) and [`not_removed`](Self::not_removed)
    /// for changes that fail.
    pub fn changes(&mut self, now: Instant, known: &[KnownPath<A>]) -> Changes<A> {
        let mut wanted = self.listed();
        if !self.removed_by_operator.is_empty() {
            let listed: HashSet<&A> = wanted.iter().collect();
            self.removed_by_operator.retain(|address| listed.contains(address));
        }
        let is_there = |address: &A| known.iter().any(|path| path.address == *address);
        wanted.retain(|address| !self.removed_by_operator.contains(address) || is_there(address));
        let is_unlisted = |path: &&KnownPath<A>| path.discovered && !wanted.contains(&path.address);
        self.unlisted = known.iter().filter(is_unlisted).map(|path| path.address.clone()).collect();
        let mut changes = reconcile(&wanted, known);
        let by_operator = |address: &A| self.removed_by_operator.contains(address);
        changes.take_back.retain(|id| !known.iter().any(|path| path.path == *id && by_operator(&path.address)));
        let again = changes.keep.is_some() || known.iter().any(|path| path.leaving);
        self.recheck_at = again.then(|| now + RECHECK_INTERVAL);
        let before = std::mem::replace(&mut self.kept_path, changes.keep);
        changes.keep.take_if(|path| before == Some(*path));
        changes
    }

    /// Records that a path could not be added. It is tried again later.
    pub fn not_added(&mut self, now: Instant) {
        self.recheck_at = Some(now + RECHECK_INTERVAL);
    }

    /// Records that a path could not be removed. It is tried again later.
    pub fn not_removed(&mut self, now: Instant) {
        self.recheck_at = Some(now + RECHECK_INTERVAL);
    }
}
