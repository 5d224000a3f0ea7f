//! The admin side of an association: the connect sequence, then keep-alives and asynchronous events.
//!
//! ```text
//! Connect → CAP → VS → CC.EN → CSTS.RDY → Identify Controller → [command limits] → Number of Queues → [event configuration]
//!   → active namespaces → { Identify Namespace → descriptors } for each → [ANA log] → Live
//! Live ⇄ { ANA log, changed namespaces → { Identify Namespace → descriptors } for each → ANA log } → Shutdown
//! ```
//! One step is under way at a time. Keep-alives run beside the steps once the controller is ready, and one Asynchronous
//! Event Request is outstanding once events are configured.

mod cross_reset;
mod error;
mod info;
mod learn;
mod namespaces;
mod step;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub use cross_reset::{CrossResetOutcome, CrossResetRefusal};
pub use error::{ControllerError, NamespaceError, Step, Unsupported};
use info::ControllerFacts;
pub use info::{ControllerConfig, ControllerEvent, ControllerInfo, Namespace};
use namespaces::{Cause, Identified, Namespaces};

use super::admin_queue::{ADMIN_ENTRIES, ADMIN_IN_CAPSULE_BYTES, AdminQueue, Owner};
use super::config::{CommandLimits, ConfigError, QueueConfig, check_entries};
use super::keep_alive::KeepAlive;
use super::pair::PairConfig;
use crate::wire::{
    AdminCommand, AsyncEvent, CNTLID_ANY, Capabilities, IdentifyController, IdentifyNamespace, Sgl, Status, Version,
};

/// How often CSTS is read while waiting for it to change.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The step under way.
#[derive(Debug, Clone, Copy)]
struct Pending {
    step: Step,
    deadline: Instant,
    /// The time it was allowed, for the error.
    after: Duration,
    /// When to ask again, for steps that wait for a property to change.
    poll_at: Option<Instant>,
}

/// What is to be done once no step is under way.
#[derive(Debug, Clone, Copy, Default)]
struct Wants {
    ana: bool,
    namespaces: bool,
    shutdown: bool,
}

/// An association with one controller, seen from its admin queue. See the module.
#[derive(Debug)]
pub struct HostController {
    config: ControllerConfig,
    queue: AdminQueue,
    pending: Option<Pending>,
    wants: Wants,
    facts: ControllerFacts,
    /// Active namespaces read so far.
    active: Vec<u32>,
    /// The namespaces asked for, once the only active one is known if it is that.
    nsids: Vec<u32>,
    /// What was found of them so far while they are being identified, in that order, and until the ANA log was read too.
    round: Vec<Identified>,
    /// Identify Namespace, while the descriptors of that namespace are being read.
    page: Option<Box<IdentifyNamespace>>,
    namespaces: Namespaces,
    live: Option<Box<ControllerInfo>>,
    keep_alive: KeepAlive,
    /// A Cross-Controller Reset that was sent has not been answered.
    resets_other: bool,
    shutdown_sent: bool,
    events: VecDeque<ControllerEvent>,
    failed: Option<ControllerError>,
}

impl HostController {
    /// The admin side of a fresh connection.
    pub fn new(config: ControllerConfig, now: Instant) -> Result<Self, ConfigError> {
        let kato = config.keep_alive_tmo;
        if kato.as_millis() == 0 || u32::try_from(kato.as_millis()).is_err() {
            return Err(ConfigError::KeepAlive);
        }
        if config.io_queues == 0 {
            return Err(ConfigError::NoIoQueue);
        }
        check_entries(config.queue_entries)?;
        let mut nsids = config.nsids.clone();
        nsids.sort_unstable();
        if let Some(&[nsid, ..]) = nsids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::NamespaceTwice(nsid));
        }
        let queue = AdminQueue::new(PairConfig {
            qid: 0,
            entries: ADMIN_ENTRIES,
            host: config.host.clone(),
            subnqn: config.subnqn.clone(),
            cntlid: CNTLID_ANY,
            kato,
            digests: config.digests,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
        });
        let after = config.command_timeout;
        Ok(Self {
            queue,
            pending: Some(Pending { step: Step::Connect, deadline: now + after, after, poll_at: None }),
            wants: Wants::default(),
            facts: ControllerFacts {
                cap: Capabilities::default(),
                version: Version::default(),
                identify: Box::new(IdentifyController::blank()),
                io_queues: 0,
                command_limits: CommandLimits::NONE,
            },
            active: Vec::new(),
            nsids: Vec::new(),
            round: Vec::new(),
            page: None,
            namespaces: Namespaces::default(),
            live: None,
            // Not answered within KATO, all told.
            keep_alive: KeepAlive::new(kato, config.command_timeout.min(kato / 2)),
            resets_other: false,
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

    /// Takes bytes off the connection, broken anywhere. After an error the association is over.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), ControllerError> {
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
        [step, self.keep_alive.next_timeout(), self.namespaces.next_timeout()].into_iter().flatten().min()
    }

    /// Time has come, or gone: sends what is due, and finds out what took too long.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), ControllerError> {
        self.check()?;
        let outcome = self.on_time(now);
        self.keep_error(outcome)
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<ControllerEvent> {
        self.events.pop_front()
    }

    /// What the association turned out to be, once live. Kept up to date with the events.
    #[must_use]
    pub fn info(&self) -> Option<&ControllerInfo> {
        self.live.as_deref()
    }

    /// The configuration of I/O queue `qid`, from 1 to [`ControllerInfo::io_queues`], once live.
    #[must_use]
    pub fn queue_config(&self, qid: u16) -> Option<QueueConfig> {
        self.info().map(|info| info.queue_config(&self.config, qid))
    }

    /// Reads the ANA log again, for an I/O completion that says the state has changed. [`ControllerEvent::AnaChanged`]
    /// follows, unless the controller does not report ANA.
    pub fn reread_ana(&mut self, now: Instant) {
        if self.failed.is_none() {
            self.wants.ana |= self.facts.has_ana();
            self.start_wanted(now);
        }
    }

    /// Shuts the controller down in order (CC.SHN). [`ControllerEvent::ShutdownComplete`] follows; stop all I/O before.
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
            self.events.push_back(ControllerEvent::ShutdownComplete);
        }
    }

    fn check(&self) -> Result<(), ControllerError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn keep_error(&mut self, outcome: Result<(), ControllerError>) -> Result<(), ControllerError> {
        outcome.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn on_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), ControllerError> {
        self.queue.receive(bytes)?;
        if self.queue.is_ready()
            && let Some(Pending { step: Step::Connect, .. }) = self.pending
        {
            self.go_on(now, Some(Step::Capabilities));
        }
        while let Some(done) = self.queue.poll_completion() {
            match done.owner {
                Owner::Step => {
                    let step = self.pending.take().expect("a step's command is in flight");
                    self.on_step(now, step, done.status, done.result)?;
                }
                Owner::KeepAlive => {
                    let step = Step::KeepAlive;
                    done.status.result().map_err(|status| ControllerError::Command { step, status })?;
                    self.keep_alive.answered();
                }
                Owner::AsyncEvent => self.on_async_event(now, done.status, done.result as u32),
                Owner::CrossControllerReset => self.on_cross_reset(done.status, done.result),
            }
        }
        Ok(())
    }

    fn on_async_event(&mut self, now: Instant, status: Status, dw0: u32) {
        if !status.is_success() {
            // The controller takes no more of these; ANA errors of I/O still lead to reading the log.
            return;
        }
        match AsyncEvent::from_dw0(dw0) {
            AsyncEvent::ANA_CHANGED => self.wants.ana |= self.facts.has_ana(),
            AsyncEvent::NAMESPACE_CHANGED => self.wants.namespaces = true,
            // Its log stays unread, so the controller does not report it again: nothing to do with it.
            _ => {}
        }
        self.await_event();
        self.start_wanted(now);
    }

    fn await_event(&mut self) {
        self.queue.submit(Owner::AsyncEvent, AdminCommand::AsyncEventRequest.to_sqe(0, Sgl::NONE), 0);
    }

    /// Goes on with `step`, or with whatever is wanted.
    fn go_on(&mut self, now: Instant, step: Option<Step>) {
        self.pending = None;
        match step {
            Some(step) if !self.wants.shutdown => self.start(now, step),
            _ => self.start_wanted(now),
        }
    }

    fn start_wanted(&mut self, now: Instant) {
        let idle = self.pending.is_none() && !self.shutdown_sent;
        if idle && self.wants.shutdown {
            self.start(now, Step::Shutdown);
        } else if idle && self.live.is_some() {
            if std::mem::take(&mut self.wants.namespaces) {
                self.start(now, Step::ChangedNamespaces);
            } else if self.wants.ana {
                self.start(now, Step::AnaLog);
            }
        }
    }

    fn on_time(&mut self, now: Instant) -> Result<(), ControllerError> {
        if let Some(pending) = &mut self.pending {
            if pending.deadline <= now {
                return Err(ControllerError::Timeout { step: pending.step, after: pending.after });
            }
            if pending.poll_at.is_some_and(|at| at <= now) {
                pending.poll_at = None;
                let step = pending.step;
                self.send(step);
            }
        }
        if self.namespaces.expire(now, self.facts.anatt() * 2) {
            self.tell(Cause::default())?;
        }
        if self.keep_alive.is_late(now) {
            return Err(ControllerError::Timeout { step: Step::KeepAlive, after: self.keep_alive.patience() });
        }
        if self.keep_alive.is_due(now) {
            self.keep_alive.sent(now);
            self.queue.submit(Owner::KeepAlive, AdminCommand::KeepAlive.to_sqe(0, Sgl::NONE), 0);
        }
        Ok(())
    }
}
