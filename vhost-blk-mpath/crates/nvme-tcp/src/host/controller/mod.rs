//! Decides: after an asynchronous event a log page, or the namespaces, are read again.
//!
//! The admin connection of an association: the connect sequence, then keep-alives and asynchronous events.
//!
//! ```text
//! Connect → CAP → VS → CC.EN → CSTS.RDY → Identify Controller → [command limits] → Number of Queues → [event configuration]
//!   → active namespaces → { Identify Namespace → descriptors } for each → [ANA log] → Live
//! Live ⇄ { ANA log, changed namespaces → { Identify Namespace → descriptors } for each → ANA log } → Shutdown
//! ```
//! Steps in square brackets depend on the controller's capabilities. After an ANA log that does not list the namespaces, each is
//! asked for its group.

mod ana_log;
mod answers;
mod cross_reset;
mod error;
mod info;
mod namespaces;
mod step;

use std::collections::VecDeque;

use ana_log::AnaLogReader;
pub use cross_reset::{CrossResetOutcome, CrossResetRefusal};
pub use error::{ControllerError, NamespaceError, Unsupported};
use info::ControllerFacts;
pub use info::{ControllerConfig, ControllerEvent, ControllerInfo, Namespace};
use monotonic::{Duration, Instant};
use namespaces::{ChangeLimit, Identified, Namespaces, Update};

use super::admin::{AdminConfig, AdminSession, Answer, ShutdownOutcome, Step};
use super::config::{CommandLimits, ConfigError, QueueConfig, check_entries};
use crate::wire::{AnaLog, AsyncEvent, Capabilities, IdentifyController, IdentifyNamespace, Version};

/// Work that starts when no step is under way.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    ana_log: bool,
    /// After an event: its log is read first.
    namespaces: bool,
    /// Without an event. A controller may not have the log.
    identification: bool,
}

/// An ANA log that was read, and is not applied yet.
#[derive(Debug)]
struct AnaUpdate {
    log: AnaLog,
    /// The limit of an ANA state "change".
    change: ChangeLimit,
    /// Namespaces, from the first, whose groups are known.
    groups_known: usize,
}

/// An association with one controller, seen from its admin queue. The module describes the sequence of steps.
#[derive(Debug)]
pub struct HostController {
    config: ControllerConfig,
    session: AdminSession<ControllerError>,
    wanted: Wanted,
    facts: ControllerFacts,
    /// Active namespaces read so far.
    active: Vec<u32>,
    /// The namespaces to identify: the configured ones, or the only active one. Empty until the active ones are known.
    nsids: Vec<u32>,
    /// Results of the identification under way, in the order of `nsids`. Kept until the ANA log was read too.
    identified: Vec<Identified>,
    /// Identify Namespace of the namespace whose descriptors are being read.
    identify_namespace: Option<Box<IdentifyNamespace>>,
    /// The reading of the ANA log that is under way.
    ana_reader: Option<AnaLogReader>,
    ana_update: Option<AnaUpdate>,
    namespaces: Namespaces,
    /// How long an ANA state "change" may last that the association begins with, if not for twice ANATT.
    first_change_limit: Option<Duration>,
    /// When to read the ANA log again if a namespace is in the state "change" then. The notice of its end may be lost.
    reread_ana_at: Instant,
    live: Option<Box<ControllerInfo>>,
    /// A Cross-Controller Reset is sent and not answered.
    is_reset_outstanding: bool,
    events: VecDeque<ControllerEvent>,
}

impl HostController {
    /// The admin side of a fresh connection.
    pub fn new(config: ControllerConfig, now: Instant) -> Result<Self, ConfigError> {
        let admin = AdminConfig {
            host: config.host.clone(),
            subnqn: config.subnqn.clone(),
            keep_alive_tmo: Some(config.keep_alive_tmo),
            digests: config.digests,
            command_timeout: config.command_timeout,
            authentication: config.authentication.clone(),
            is_encrypted: config.is_encrypted,
        };
        let session = AdminSession::new(admin, now)?;
        if config.io_queues == 0 {
            return Err(ConfigError::NoIoQueue);
        }
        check_entries(config.queue_entries)?;
        let mut nsids = config.nsids.clone();
        nsids.sort_unstable();
        if let Some(&[nsid, ..]) = nsids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::NamespaceTwice(nsid));
        }
        Ok(Self {
            session,
            wanted: Wanted::default(),
            facts: ControllerFacts {
                cap: Capabilities::default(),
                version: Version::default(),
                identify: Box::new(IdentifyController::blank()),
                io_queues: 0,
                command_limits: CommandLimits::NONE,
            },
            active: Vec::new(),
            nsids: Vec::new(),
            identified: Vec::new(),
            identify_namespace: None,
            ana_reader: None,
            ana_update: None,
            namespaces: Namespaces::default(),
            first_change_limit: None,
            reread_ana_at: now,
            live: None,
            is_reset_outstanding: false,
            events: VecDeque::new(),
            config,
        })
    }

    /// Limits an ANA state "change" that the association begins with, if `limit` is more than twice ANATT. For an association after
    /// one that has ended for that state.
    pub fn limit_first_change(&mut self, limit: Duration) {
        self.first_change_limit = Some(limit);
    }

    /// Appends all bytes that are ready to send. They count as handed to the socket.
    pub fn fill_tx(&mut self, out: &mut Vec<u8>) {
        self.session.fill_tx(out);
    }

    /// Takes bytes from the connection, split at any place. An error ends the association.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), ControllerError> {
        self.session.check()?;
        let outcome = self.on_bytes(now, bytes);
        self.session.keep_error(outcome)
    }

    /// After an error of [`receive`](Self::receive): the PDU that reports the error to the controller, an `H2CTermReq` or
    /// the end of an authentication. Send it only if all appended bytes have been sent. `None` if there is nothing to report.
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        self.session.queue.term_req()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let reread = self.namespaces.is_any_changing().then_some(self.reread_ana_at);
        self.session.next_timeout(self.namespaces.next_timeout().into_iter().chain(reread).min())
    }

    /// Sends commands that are due, and fails if an answer is late. A call after the due time is fine.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), ControllerError> {
        self.session.check()?;
        let outcome = self.on_time(now);
        self.session.keep_error(outcome)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ControllerEvent> {
        self.events.pop_front()
    }

    /// The facts about the association, once it is live. Each event updates them.
    #[must_use]
    pub fn info(&self) -> Option<&ControllerInfo> {
        self.live.as_deref()
    }

    /// The configuration of I/O queue `qid`, from 1 to [`ControllerInfo::io_queues`], once live.
    #[must_use]
    pub fn queue_config(&self, qid: u16) -> Option<QueueConfig> {
        self.info().map(|info| info.queue_config(&self.config, qid))
    }

    /// Reads the ANA log again, for example after an I/O completion with an ANA status. [`ControllerEvent::AnaChanged`]
    /// follows, unless the controller does not report ANA.
    pub fn reread_ana(&mut self, now: Instant) {
        if !self.session.has_failed() {
            self.wanted.ana_log |= self.facts.has_ana();
            self.proceed(now, None);
        }
    }

    /// Whether the ANA log is being read. Once it is read, [`poll_event`](Self::poll_event) returns what it reports.
    #[must_use]
    pub fn is_reading_ana(&self) -> bool {
        self.ana_reader.is_some() || self.ana_update.is_some()
    }

    /// Identifies the namespaces again, for example after an I/O completion with [`Status::INVALID_NAMESPACE`](crate::wire::Status::INVALID_NAMESPACE).
    /// [`ControllerEvent::NamespaceChanged`] follows for each.
    pub fn reread_namespaces(&mut self, now: Instant) {
        if !self.session.has_failed() {
            self.wanted.identification = true;
            self.proceed(now, None);
        }
    }

    /// Shuts the controller down in order (CC.SHN). [`ControllerEvent::ShutdownComplete`] follows. Stop all I/O before the call.
    pub fn shutdown(&mut self, now: Instant) {
        match self.session.request_shutdown() {
            ShutdownOutcome::Requested => self.proceed(now, None),
            ShutdownOutcome::NotConnected => self.events.push_back(ControllerEvent::ShutdownComplete),
            ShutdownOutcome::Ignored => {}
        }
    }

    fn on_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), ControllerError> {
        self.session.receive(bytes)?;
        while let Some(answer) = self.session.poll_answer(now)? {
            match answer {
                Answer::Step { step, status, result } => {
                    let next = self.on_step(now, step, status, result)?;
                    self.proceed(now, next);
                }
                Answer::AsyncEvent(event) => {
                    match event {
                        AsyncEvent::ANA_CHANGED => self.wanted.ana_log |= self.facts.has_ana(),
                        AsyncEvent::NAMESPACE_CHANGED => self.wanted.namespaces = true,
                        // The log of this event stays unread, so the controller does not report the event again.
                        _ => {}
                    }
                    self.proceed(now, None);
                }
                Answer::CrossControllerReset { status, result } => self.on_cross_reset(status, result),
            }
        }
        Ok(())
    }

    /// Starts the shutdown if it is requested, or `next`, or wanted work. A step under way is finished first.
    fn proceed(&mut self, now: Instant, next: Option<Step>) {
        if self.session.is_idle()
            && let Some(step) = self.session.shutdown_step().or(next).or_else(|| self.wanted_step())
        {
            self.start(now, step);
        }
    }

    fn wanted_step(&self) -> Option<Step> {
        if self.live.is_none() || self.session.is_shutting_down() {
            None
        } else if self.wanted.namespaces {
            Some(Step::ChangedNamespaces)
        } else if self.wanted.identification {
            Some(Step::IdentifyNamespace)
        } else {
            self.wanted.ana_log.then_some(Step::AnaLog)
        }
    }

    fn on_time(&mut self, now: Instant) -> Result<(), ControllerError> {
        self.session.check_step(now)?;
        if self.namespaces.expire(now) {
            self.report(Update::default())?;
        }
        if self.reread_ana_at <= now && self.namespaces.is_any_changing() {
            self.reread_ana_at = now + self.facts.anatt() * 2;
            self.reread_ana(now);
        }
        Ok(self.session.check_keep_alive(now)?)
    }
}
