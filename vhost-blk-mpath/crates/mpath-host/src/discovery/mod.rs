//! Paths that discovery controllers list: which controllers are asked, and which paths are added and removed as their logs change.
//!
//! ```text
//!  sessions ── logs, losses ──▶ controllers ── addresses listed ──▶ reconcile ──▶ paths to add, to remove, to keep
//!      ▲                          │                                     ▲
//!      └── started and ended ─────┘ referrals                           └── the paths there are
//! ```
//! A controller that is lost takes nothing with it: what it listed last counts until it says otherwise.

mod controller;
mod reconcile;
mod session;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::hash::Hash;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpath_core::PathId;
use nvme_tcp::host::DiscoveryLog;
use nvme_tcp::wire::Nqn;

pub use self::controller::{ASK_AGAIN, Controller, ControllerState, FIRST_LOG_MAX, Source};
use self::reconcile::reconcile;
pub use self::reconcile::{Changes, Have};
pub use self::session::Session;

/// How often paths are looked at while one of them is leaving, or stays only for want of another.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Names a session with a discovery controller. No two have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(u64);

/// What a session has to say.
#[derive(Debug)]
pub enum SessionNews {
    /// The log was read.
    Log {
        /// All of it.
        log: Box<DiscoveryLog>,
        /// Where the connection leads.
        peer: SocketAddr,
    },
    /// It is over in order: the log was read and its connection was not to stay, or it was ended.
    Asked,
    /// It is over.
    Lost {
        /// Why, one line.
        error: String,
        /// The controller keeps no connections.
        refuses_to_stay: bool,
    },
}

/// What is to be done, and to be told.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<A> {
    /// Start a session: connect and read the log. [`SessionNews`] follow.
    Start {
        /// Its name.
        session: SessionId,
        /// Where to.
        source: Source<A>,
        /// Keep the connection and hear of changes. Otherwise the session ends when the log was read.
        stays: bool,
    },
    /// End a session. What it still says is not heard.
    End {
        /// Its name.
        session: SessionId,
    },
    /// A controller's log is another one than before, or the first since the controller was lost.
    Read {
        /// The controller's address.
        at: A,
        /// The controller had given none before, or was lost.
        was_lost: bool,
        /// NUMREC.
        records: usize,
        /// GENCTR.
        generation: u64,
    },
    /// A controller does not answer, or fails in another way than before.
    Lost {
        /// The controller's address.
        at: A,
        /// Why, one line.
        error: String,
    },
    /// Something in the logs is of no use. It is told again with every log.
    Useless(String),
}

/// The discovery of one subsystem. Addresses of controllers and paths are `A`.
#[derive(Debug)]
pub struct Discovery<A> {
    subsystem: String,
    reconnect_delay: Duration,
    /// Another address that is connected in the same way.
    with_peer: fn(&A, SocketAddr) -> A,
    controllers: Vec<Controller<A>>,
    next_session: u64,
    /// Listed addresses whose path the operator has removed since they were listed.
    removed_by_operator: HashSet<A>,
    /// Kept for want of another one.
    kept: Option<PathId>,
    /// A path is leaving, was kept, was not let go, or not let in.
    look_at: Option<Instant>,
    actions: VecDeque<Action<A>>,
}

impl<A: Clone + Eq + Hash + Display> Discovery<A> {
    /// Asks the configured controllers for paths to `subsystem`. `with_peer` is to give an address that is connected in the
    /// same way as another one.
    pub fn new(
        now: Instant,
        subsystem: String,
        reconnect_delay: Duration,
        configured: impl IntoIterator<Item = A>,
        with_peer: fn(&A, SocketAddr) -> A,
    ) -> Self {
        let controller = |address| Controller::new(now, Source { address, subnqn: Nqn::discovery() }, None);
        Self {
            subsystem,
            reconnect_delay,
            with_peer,
            controllers: configured.into_iter().map(controller).collect(),
            next_session: 0,
            removed_by_operator: HashSet::new(),
            kept: None,
            look_at: None,
            actions: VecDeque::new(),
        }
    }

    /// The controllers: the configured ones first.
    #[must_use]
    pub fn controllers(&self) -> &[Controller<A>] {
        &self.controllers
    }

    /// Whether the first attempt to ask one of the controllers is not over.
    #[must_use]
    pub fn is_any_untried(&self) -> bool {
        self.controllers.iter().any(Controller::is_untried)
    }

    /// Takes what a session says.
    pub fn heard(&mut self, now: Instant, session: SessionId, news: SessionNews) {
        let of = |controller: &&mut Controller<A>| controller.session() == Some(session);
        let Some(controller) = self.controllers.iter_mut().find(of) else { return };
        let is_log = matches!(news, SessionNews::Log { .. });
        controller.heard(now, session, news, self.reconnect_delay, &mut self.actions);
        if is_log {
            let useless = sources::useless(controller, &self.subsystem).into_iter();
            self.actions.extend(useless.map(Action::Useless));
            let moved = sources::follow(now, &mut self.controllers, self.with_peer);
            self.actions.extend(moved.ended.into_iter().map(|session| Action::End { session }));
            if moved.cut {
                self.actions.push_back(Action::Useless("there are more referrals than are followed".into()));
            }
        }
    }

    /// What is to be done now; `None` until something else has happened, or [`next_timeout`](Self::next_timeout).
    pub fn poll(&mut self, now: Instant) -> Option<Action<A>> {
        for controller in &mut self.controllers {
            controller.go_on(now, &mut self.next_session, self.reconnect_delay, &mut self.actions);
        }
        self.actions.pop_front()
    }

    /// When [`poll`](Self::poll) or [`changes`](Self::changes) has something to do though nothing else has happened.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.controllers.iter().filter_map(Controller::next_timeout).chain(self.look_at).min()
    }

    /// The addresses listed, each once, in the order of controllers and records.
    #[must_use]
    pub fn listed(&self) -> Vec<A> {
        sources::listed(&self.controllers, &self.subsystem, self.with_peer)
    }

    /// The operator removes the path to an address. Discovery adds no path to the address until it has been listed anew.
    pub fn operator_removes(&mut self, address: A) {
        self.removed_by_operator.insert(address);
    }

    /// What is to become of the paths there are. [`not_added`](Self::not_added) and [`not_removed`](Self::not_removed) are to
    /// follow for what cannot be done.
    pub fn changes(&mut self, now: Instant, have: &[Have<A>]) -> Changes<A> {
        let mut wanted = self.listed();
        self.removed_by_operator.retain(|address| wanted.contains(address));
        let is_there = |address: &A| have.iter().any(|path| path.address == *address);
        wanted.retain(|address| is_there(address) || !self.removed_by_operator.contains(address));
        let mut changes = reconcile(&wanted, have);
        let again = changes.keep.is_some() || have.iter().any(|path| path.leaving);
        self.look_at = again.then(|| now + LOOK_AGAIN);
        let before = std::mem::replace(&mut self.kept, changes.keep);
        changes.keep.take_if(|path| before == Some(*path));
        changes
    }

    /// A path was not let in. There may be room for it later.
    pub fn not_added(&mut self, now: Instant) {
        self.look_at = Some(now + LOOK_AGAIN);
    }

    /// A path was not let go. It may be later.
    pub fn not_removed(&mut self, now: Instant) {
        self.look_at = Some(now + LOOK_AGAIN);
    }
}
