//! The host's side of a connection to a discovery controller, which lists the subsystems and their addresses.
//!
//! ```text
//! Connect → CAP → CC.EN → CSTS.RDY → Identify Controller → [event configuration] → log ⇄ idle → Shutdown
//! ```
//! There are no I/O queues. With a keep-alive timeout the connection is persistent: the log is read again whenever the
//! controller reports a change. Without a keep-alive timeout the owner shuts the connection down after the first log.

mod address;
mod error;
mod log;
mod referrals;
mod step;

use std::collections::VecDeque;

use monotonic::{Duration, Instant};

pub use address::{UnusableEntry, tcp_address};
pub use error::DiscoveryError;
use log::LogReader;
pub use log::{DiscoveryLog, DiscoveryLogError};
pub use referrals::{REFERRAL_DEPTH_MAX, REFERRALS_MAX, Referral, Referrals, referrals};

use super::admin::{AdminConfig, AdminSession, Answer, ShutdownOutcome, Step};
use super::config::{ConfigError, HostIdentity};
use crate::wire::{AsyncEvent, Capabilities, Digests, IDENTIFY_BYTES, Nqn};

/// The most records of a log.
pub const LOG_RECORDS_MAX: u32 = 1024;

/// How to connect to a discovery controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// The identity of this host.
    pub host: HostIdentity,
    /// [`Nqn::discovery`], or the unique name of a discovery subsystem.
    pub subnqn: Nqn,
    /// KATO of a persistent connection, at least 1 ms. `None` for a connection without keep-alives; older controllers accept
    /// no other.
    pub keep_alive_tmo: Option<Duration>,
    /// The longest any command may take.
    pub command_timeout: Duration,
}

/// An event of a discovery session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoveryEvent {
    /// The log was read: for the first time, after a change, or on request.
    Log(Box<DiscoveryLog>),
    /// The controller has shut down; the connection can be closed.
    ShutdownComplete,
}

/// Properties of the controller.
#[derive(Debug, Clone, Copy)]
struct Facts {
    cap: Capabilities,
    /// MDTS in bytes, or `u32::MAX` without a limit.
    max_transfer_bytes: u32,
    /// LPA: Get Log Page takes an offset.
    has_log_offsets: bool,
    /// OAES: the controller can report changes of its log.
    has_change_events: bool,
}

/// A session with one discovery controller. The module describes the sequence of steps.
#[derive(Debug)]
pub struct HostDiscovery {
    config: DiscoveryConfig,
    session: AdminSession<DiscoveryError>,
    facts: Facts,
    reader: LogReader,
    /// The log is to be read, for the first time or again.
    is_log_wanted: bool,
    /// The connect sequence is complete.
    is_ready: bool,
    events: VecDeque<DiscoveryEvent>,
}

impl HostDiscovery {
    /// A session on a fresh connection.
    pub fn new(config: DiscoveryConfig, now: Instant) -> Result<Self, ConfigError> {
        let admin = AdminConfig {
            host: config.host.clone(),
            subnqn: config.subnqn.clone(),
            keep_alive_tmo: config.keep_alive_tmo,
            digests: Digests::default(),
            command_timeout: config.command_timeout,
            authentication: None,
            is_encrypted: false,
        };
        Ok(Self {
            session: AdminSession::new(admin, now)?,
            facts: Facts {
                cap: Capabilities::default(),
                max_transfer_bytes: IDENTIFY_BYTES as u32,
                has_log_offsets: false,
                has_change_events: false,
            },
            reader: LogReader::new(IDENTIFY_BYTES as u32, false),
            is_log_wanted: true,
            is_ready: false,
            events: VecDeque::new(),
            config,
        })
    }

    /// Appends all bytes that are ready to send. They count as handed to the socket.
    pub fn fill_tx(&mut self, out: &mut Vec<u8>) {
        self.session.fill_tx(out);
    }

    /// Takes bytes from the connection, split at any place. An error ends the session.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DiscoveryError> {
        self.session.check()?;
        let outcome = self.on_bytes(now, bytes);
        self.session.keep_error(outcome)
    }

    /// After an error of [`receive`](Self::receive): the `H2CTermReq` that reports the error to the controller. Send it only
    /// if all appended bytes have been sent. `None` if there is nothing to report.
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        self.session.queue.term_req()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.session.next_timeout(None)
    }

    /// Sends commands that are due, and fails if an answer is late. A call after the due time is fine.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        self.session.check()?;
        let outcome = self.session.check_step(now).and_then(|()| self.session.check_keep_alive(now));
        self.session.keep_error(outcome.map_err(DiscoveryError::from))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<DiscoveryEvent> {
        self.events.pop_front()
    }

    /// Whether the controller reports changes of the log. If not, only [`reread`](Self::reread) shows them.
    #[must_use]
    pub fn receives_change_events(&self) -> bool {
        self.session.is_event_requested() && !self.session.has_failed()
    }

    /// Reads the log again; [`DiscoveryEvent::Log`] follows.
    pub fn reread(&mut self, now: Instant) {
        if !self.session.has_failed() {
            self.is_log_wanted = true;
            self.proceed(now, None);
        }
    }

    /// Shuts the controller down in order (CC.SHN). [`DiscoveryEvent::ShutdownComplete`] follows.
    pub fn shutdown(&mut self, now: Instant) {
        match self.session.request_shutdown() {
            ShutdownOutcome::Requested => self.proceed(now, None),
            ShutdownOutcome::NotConnected => self.events.push_back(DiscoveryEvent::ShutdownComplete),
            ShutdownOutcome::Ignored => {}
        }
    }

    fn on_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DiscoveryError> {
        self.session.receive(bytes)?;
        while let Some(answer) = self.session.poll_answer(now)? {
            let next = match answer {
                Answer::Step { step, status: _, result } => self.on_step(now, step, result)?,
                Answer::AsyncEvent(event) => {
                    self.is_log_wanted |= event == AsyncEvent::DISCOVERY_CHANGED;
                    None
                }
                Answer::CrossControllerReset { .. } => unreachable!("a discovery session resets no controller"),
            };
            self.proceed(now, next);
        }
        Ok(())
    }

    /// Starts the shutdown if it is requested, or `next`, or wanted work. A step under way is finished first.
    fn proceed(&mut self, now: Instant, next: Option<Step>) {
        if !self.session.is_idle() {
            return;
        }
        if let Some(step) = self.session.shutdown_step().or(next) {
            self.start(now, step);
        } else if self.is_ready && self.is_log_wanted && !self.session.is_shutting_down() {
            self.is_log_wanted = false;
            self.reader = LogReader::new(self.facts.max_transfer_bytes, self.facts.has_log_offsets);
            self.start(now, Step::DiscoveryLog);
        }
    }
}
