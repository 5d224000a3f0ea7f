//! The host's side of a connection to a discovery controller: where the subsystems are.
//!
//! ```text
//! Connect → CAP → CC.EN → CSTS.RDY → Identify Controller → [event configuration] → log ⇄ idle → Shutdown
//! ```
//! There are no I/O queues. With a keep-alive timeout the connection stays and the log is read again whenever the controller
//! says that it has changed; without one the session ends when its log was read.

mod error;
mod log;
mod referrals;
mod step;
mod usable;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub use error::{DiscoveryError, DiscoveryStep};
use log::LogReader;
pub use log::{DiscoveryLog, DiscoveryLogError};
pub use referrals::{REFERRAL_DEPTH_MAX, REFERRALS_MAX, Referral, Referrals, referrals};
pub use usable::{UnusableEntry, tcp_address};

use super::admin_queue::{ADMIN_ENTRIES, ADMIN_IN_CAPSULE_BYTES, AdminQueue, Owner};
use super::config::{ConfigError, HostIdentity};
use super::keep_alive::KeepAlive;
use super::pair::PairConfig;
use crate::wire::{AdminCommand, AsyncEvent, CNTLID_ANY, Capabilities, Digests, IDENTIFY_BYTES, Nqn, Sgl, Status};

/// The most records of a log.
pub const LOG_RECORDS_MAX: u32 = 1024;

/// How to ask a discovery controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// Who asks.
    pub host: HostIdentity,
    /// [`Nqn::discovery`], or the unique name of a discovery subsystem.
    pub subnqn: Nqn,
    /// KATO, at least 1 ms, of a connection that stays; `None` for one that does not, which is all that controllers before
    /// explicit persistent connections take.
    pub keep_alive_tmo: Option<Duration>,
    /// The longest any command may take.
    pub command_timeout: Duration,
}

/// What happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoveryEvent {
    /// The log was read: the first time, after a notice of the controller, or because it was asked for.
    Log(Box<DiscoveryLog>),
    /// The controller has shut down; the connection can be closed.
    ShutdownComplete,
}

/// The step under way.
#[derive(Debug, Clone, Copy)]
struct Pending {
    step: DiscoveryStep,
    deadline: Instant,
    /// The time it was allowed, for the error.
    after: Duration,
    /// When to ask again, for steps that wait for a property to change.
    poll_at: Option<Instant>,
}

/// What is to be done once no step is under way.
#[derive(Debug, Clone, Copy)]
struct Wants {
    /// The log is to be read, the first time or again.
    log: bool,
    shutdown: bool,
}

/// What the controller has told of itself.
#[derive(Debug, Clone, Copy)]
struct Facts {
    cap: Capabilities,
    /// MDTS, or what 32 bits count.
    max_transfer_bytes: u32,
    /// LPA: Get Log Page takes an offset.
    offsets: bool,
    /// OAES: it tells when its log changes.
    offers_events: bool,
}

/// A session with one discovery controller. See the module.
#[derive(Debug)]
pub struct HostDiscovery {
    config: DiscoveryConfig,
    queue: AdminQueue,
    pending: Option<Pending>,
    facts: Facts,
    /// An Asynchronous Event Request is outstanding.
    hears_changes: bool,
    reader: LogReader,
    keep_alive: KeepAlive,
    wants: Wants,
    /// The log can be read.
    ready: bool,
    shutdown_sent: bool,
    events: VecDeque<DiscoveryEvent>,
    failed: Option<DiscoveryError>,
}

impl HostDiscovery {
    /// A session on a fresh connection.
    pub fn new(config: DiscoveryConfig, now: Instant) -> Result<Self, ConfigError> {
        let kato = config.keep_alive_tmo;
        if kato.is_some_and(|kato| kato.as_millis() == 0 || u32::try_from(kato.as_millis()).is_err()) {
            return Err(ConfigError::KeepAlive);
        }
        let queue = AdminQueue::new(PairConfig {
            qid: 0,
            entries: ADMIN_ENTRIES,
            host: config.host.clone(),
            subnqn: config.subnqn.clone(),
            cntlid: CNTLID_ANY,
            kato: kato.unwrap_or(Duration::ZERO),
            digests: Digests::default(),
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
        });
        let after = config.command_timeout;
        Ok(Self {
            queue,
            pending: Some(Pending { step: DiscoveryStep::Connect, deadline: now + after, after, poll_at: None }),
            facts: Facts {
                cap: Capabilities::default(),
                max_transfer_bytes: IDENTIFY_BYTES as u32,
                offsets: false,
                offers_events: false,
            },
            hears_changes: false,
            reader: LogReader::new(IDENTIFY_BYTES as u32, false),
            keep_alive: KeepAlive::new(
                kato.unwrap_or_default(),
                config.command_timeout.min(kato.unwrap_or(Duration::MAX) / 2),
            ),
            wants: Wants { log: true, shutdown: false },
            ready: false,
            shutdown_sent: false,
            events: VecDeque::new(),
            failed: None,
            config,
        })
    }

    /// Appends everything ready to leave. What is appended counts as handed to the socket.
    pub fn fill_tx(&mut self, out: &mut Vec<u8>) {
        if self.failed.is_none() {
            self.queue.fill_tx(out);
        }
    }

    /// Takes bytes off the connection, broken anywhere. After an error the session is over.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DiscoveryError> {
        self.check()?;
        let outcome = self.on_bytes(now, bytes);
        self.keep_error(outcome)
    }

    /// After an error of [`receive`](Self::receive): the `H2CTermReq` that tells the controller what it did wrong, to be sent if all that
    /// was appended has been sent. `None` if there is nothing to tell.
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        self.queue.term_req()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        let step = self.pending.map(|pending| pending.poll_at.unwrap_or(pending.deadline).min(pending.deadline));
        [step, self.keep_alive.next_timeout()].into_iter().flatten().min()
    }

    /// Time has come, or gone: sends what is due, and finds out what took too long.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        self.check()?;
        let outcome = self.on_time(now);
        self.keep_error(outcome)
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<DiscoveryEvent> {
        self.events.pop_front()
    }

    /// Whether the connection stays and the controller tells of changes. If not, only reading the log again shows them.
    #[must_use]
    pub fn hears_changes(&self) -> bool {
        self.hears_changes && self.failed.is_none()
    }

    /// Reads the log again; [`DiscoveryEvent::Log`] follows.
    pub fn reread(&mut self, now: Instant) {
        if self.failed.is_none() {
            self.wants.log = true;
            self.start_wanted(now);
        }
    }

    /// Shuts the controller down in order (CC.SHN). [`DiscoveryEvent::ShutdownComplete`] follows.
    pub fn shutdown(&mut self, now: Instant) {
        if self.failed.is_some() || self.wants.shutdown || self.shutdown_sent {
            return;
        }
        if self.queue.is_ready() {
            self.wants.shutdown = true;
            self.start_wanted(now);
        } else {
            // Nothing was connected.
            self.pending = None;
            self.shutdown_sent = true;
            self.events.push_back(DiscoveryEvent::ShutdownComplete);
        }
    }

    fn check(&self) -> Result<(), DiscoveryError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn keep_error(&mut self, outcome: Result<(), DiscoveryError>) -> Result<(), DiscoveryError> {
        outcome.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn on_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DiscoveryError> {
        self.queue.receive(bytes)?;
        if self.queue.is_ready()
            && let Some(Pending { step: DiscoveryStep::Connect, .. }) = self.pending
        {
            self.go_on(now, Some(DiscoveryStep::Capabilities));
        }
        while let Some(done) = self.queue.poll_completion() {
            match done.owner {
                Owner::Step => {
                    let step = self.pending.take().expect("a step's command is in flight");
                    self.on_step(now, step, done.status, done.result)?;
                }
                Owner::KeepAlive => {
                    let step = DiscoveryStep::KeepAlive;
                    done.status.result().map_err(|status| DiscoveryError::Command { step, status })?;
                    self.keep_alive.answered();
                }
                Owner::AsyncEvent => self.on_async_event(now, done.status, done.result as u32),
                Owner::CrossControllerReset => unreachable!("a session resets no controller"),
            }
        }
        Ok(())
    }

    fn on_async_event(&mut self, now: Instant, status: Status, dw0: u32) {
        // The controller takes no more of these unless it succeeds.
        self.hears_changes = status.is_success();
        if status.is_success() {
            self.wants.log |= AsyncEvent::from_dw0(dw0) == AsyncEvent::DISCOVERY_CHANGED;
            self.await_event();
            self.start_wanted(now);
        }
    }

    fn await_event(&mut self) {
        self.hears_changes = true;
        self.queue.submit(Owner::AsyncEvent, AdminCommand::AsyncEventRequest.to_sqe(0, Sgl::NONE), 0);
    }

    /// Goes on with `step`, or with whatever is wanted.
    fn go_on(&mut self, now: Instant, step: Option<DiscoveryStep>) {
        self.pending = None;
        match step {
            Some(step) if !self.wants.shutdown => self.start(now, step),
            _ => self.start_wanted(now),
        }
    }

    fn start_wanted(&mut self, now: Instant) {
        if self.pending.is_some() || self.shutdown_sent {
            return;
        }
        if self.wants.shutdown {
            self.start(now, DiscoveryStep::Shutdown);
        } else if self.ready && std::mem::take(&mut self.wants.log) {
            self.reader = LogReader::new(self.facts.max_transfer_bytes, self.facts.offsets);
            self.start(now, DiscoveryStep::Log);
        }
    }

    fn on_time(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        if let Some(pending) = &mut self.pending {
            if pending.deadline <= now {
                return Err(DiscoveryError::Timeout { step: pending.step, after: pending.after });
            }
            if pending.poll_at.is_some_and(|at| at <= now) {
                pending.poll_at = None;
                let step = pending.step;
                self.send(step);
            }
        }
        if self.keep_alive.is_late(now) {
            let after = self.keep_alive.patience();
            return Err(DiscoveryError::Timeout { step: DiscoveryStep::KeepAlive, after });
        }
        if self.keep_alive.is_due(now) {
            self.keep_alive.sent(now);
            self.queue.submit(Owner::KeepAlive, AdminCommand::KeepAlive.to_sqe(0, Sgl::NONE), 0);
        }
        Ok(())
    }
}
