//! The host's side of an admin connection: a sequence of steps with deadlines, and keep-alives in parallel.
//!
//! A step is one admin command, or a property that is read until it changes. One step is under way at a time. The owner
//! ([`HostController`](super::HostController) or [`HostDiscovery`](super::HostDiscovery)) picks the next step and interprets
//! the answers. Keep-alives start once the controller is ready. One Asynchronous Event Request stays outstanding once events
//! are configured.

mod error;
mod keep_alive;
mod queue;
mod step;

use monotonic::{Duration, Instant};

pub use error::AdminError;
use keep_alive::KeepAlive;
pub(super) use queue::Owner;
use queue::{ADMIN_ENTRIES, ADMIN_IN_CAPSULE_BYTES, AdminQueue};
pub use step::Step;

use super::config::{ConfigError, HostIdentity};
use super::queue_pair::QueuePairConfig;
use crate::authentication::Authentication;
use crate::wire::{
    AdminCommand, AsyncEvent, CNTLID_ANY, Capabilities, ControllerStatus, Digests, Nqn, Sgl, ShutdownStatus, Sqe,
    Status,
};

/// How often CSTS is read while the host waits for a change.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The parameters of an admin connection.
#[derive(Debug)]
pub(super) struct AdminConfig {
    pub(super) host: HostIdentity,
    pub(super) subnqn: Nqn,
    /// KATO, at least 1 ms; `None` for a connection without keep-alives.
    pub(super) keep_alive_tmo: Option<Duration>,
    pub(super) digests: Digests,
    /// The longest any command may take. Connect and the authentication count as one command.
    pub(super) command_timeout: Duration,
    pub(super) authentication: Option<Authentication>,
    /// The connection uses TLS.
    pub(super) is_encrypted: bool,
}

/// The step under way.
#[derive(Debug, Clone, Copy)]
struct CurrentStep {
    step: Step,
    deadline: Instant,
    /// The time from start to deadline, for the error.
    allowed: Duration,
    /// When to read the property again, for steps that wait for a change.
    poll_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    NotRequested,
    Requested,
    /// CC.SHN was set, or there was no controller to tell.
    Started,
}

/// What a request to shut down leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShutdownOutcome {
    /// The shutdown is the next step.
    Requested,
    /// Connect has not succeeded, so there is nothing to shut down.
    NotConnected,
    /// The shutdown was requested before, or the connection has failed.
    Ignored,
}

/// What the controller has answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// A step is complete. [`Step::may_fail`] says which steps can end with an error status.
    Step {
        step: Step,
        status: Status,
        result: u64,
    },
    AsyncEvent(AsyncEvent),
    CrossControllerReset {
        status: Status,
        result: u64,
    },
}

/// An admin connection whose owner fails with `E`.
#[derive(Debug)]
pub(super) struct AdminSession<E> {
    pub(super) queue: AdminQueue,
    keep_alive_tmo: Option<Duration>,
    command_timeout: Duration,
    /// CAP.TO, once it was read.
    ready_timeout: Duration,
    current: Option<CurrentStep>,
    keep_alive: KeepAlive,
    /// An Asynchronous Event Request is outstanding.
    is_event_requested: bool,
    shutdown: Shutdown,
    error: Option<E>,
}

impl<E: Clone + From<AdminError>> AdminSession<E> {
    /// A session on a fresh connection. Fails if KATO is out of range.
    pub(super) fn new(config: AdminConfig, now: Instant) -> Result<Self, ConfigError> {
        let AdminConfig { host, subnqn, keep_alive_tmo, digests, command_timeout, authentication, is_encrypted } =
            config;
        let is_valid = |kato: Duration| kato.as_millis() != 0 && u32::try_from(kato.as_millis()).is_ok();
        if !keep_alive_tmo.is_none_or(is_valid) {
            return Err(ConfigError::KeepAlive);
        }
        let kato = keep_alive_tmo.unwrap_or(Duration::ZERO);
        let queue = AdminQueue::new(QueuePairConfig {
            qid: 0,
            entries: ADMIN_ENTRIES,
            host,
            subnqn,
            cntlid: CNTLID_ANY,
            kato,
            digests,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
            authentication,
            is_encrypted,
        });
        let deadline = now + command_timeout;
        Ok(Self {
            queue,
            keep_alive_tmo,
            command_timeout,
            ready_timeout: Duration::ZERO,
            current: Some(CurrentStep { step: Step::Connect, deadline, allowed: command_timeout, poll_at: None }),
            keep_alive: KeepAlive::new(kato),
            is_event_requested: false,
            shutdown: Shutdown::NotRequested,
            error: None,
        })
    }

    /// See [`HostController::fill_tx`](super::HostController::fill_tx).
    pub(super) fn fill_tx(&mut self, out: &mut Vec<u8>) {
        if !self.has_failed() {
            self.queue.fill_tx(out);
        }
    }

    /// Takes bytes from the connection. Then call [`poll_answer`](Self::poll_answer) until it returns `None`.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), AdminError> {
        Ok(self.queue.receive(bytes)?)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Fails if an error has ended the connection, with that error.
    pub(super) fn check(&self) -> Result<(), E> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Remembers an error: it ends the connection.
    pub(super) fn keep_error(&mut self, outcome: Result<(), E>) -> Result<(), E> {
        outcome.inspect_err(|error| self.error = Some(error.clone()))
    }

    /// The next deadline or poll, or `other` if that is earlier. `None` after an error.
    pub(super) fn next_timeout(&self, other: Option<Instant>) -> Option<Instant> {
        if self.has_failed() {
            return None;
        }
        let step = self.current.map(|current| current.poll_at.unwrap_or(current.deadline).min(current.deadline));
        [step, self.keep_alive.next_timeout(), other].into_iter().flatten().min()
    }

    /// Whether no step is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Whether an Asynchronous Event Request is outstanding.
    pub(super) fn is_event_requested(&self) -> bool {
        self.is_event_requested
    }

    /// Starts `step` with its command, which returns `data_len` bytes.
    pub(super) fn start(&mut self, now: Instant, step: Step, sqe: Sqe, data_len: u32) {
        let allowed = match step {
            Step::Ready => self.ready_timeout.max(self.command_timeout),
            _ => self.command_timeout,
        };
        if step == Step::Shutdown {
            self.shutdown = Shutdown::Started;
            self.keep_alive.stop();
        }
        self.current = Some(CurrentStep { step, deadline: now + allowed, allowed, poll_at: None });
        self.queue.submit(Owner::Step, sqe, data_len);
    }

    /// The next answer.
    pub(super) fn poll_answer(&mut self, now: Instant) -> Result<Option<Answer>, AdminError> {
        let is_connecting = self.current.is_some_and(|current| current.step == Step::Connect);
        if is_connecting && self.queue.is_ready() {
            self.current = None;
            return Ok(Some(Answer::Step { step: Step::Connect, status: Status::SUCCESS, result: 0 }));
        }
        while let Some(done) = self.queue.poll_completion() {
            let (status, result) = (done.status, done.result);
            match done.owner {
                Owner::Step => {
                    let current = self.current.take().expect("a step's command is in flight");
                    if self.is_complete(now, current, status, result)? {
                        return Ok(Some(Answer::Step { step: current.step, status, result }));
                    }
                }
                Owner::KeepAlive => {
                    let step = Step::KeepAlive;
                    status.result().map_err(|status| AdminError::Command { step, status })?;
                    self.keep_alive.answered();
                }
                Owner::AsyncEvent => {
                    // After an error status the controller takes no more of these requests.
                    self.is_event_requested = false;
                    if status.is_success() {
                        self.request_event();
                        return Ok(Some(Answer::AsyncEvent(AsyncEvent::from_dw0(result as u32))));
                    }
                }
                Owner::CrossControllerReset => return Ok(Some(Answer::CrossControllerReset { status, result })),
            }
        }
        Ok(None)
    }

    /// Whether the step is complete. If it waits for a property that has not changed, the property is read again later.
    fn is_complete(
        &mut self,
        now: Instant,
        current: CurrentStep,
        status: Status,
        result: u64,
    ) -> Result<bool, AdminError> {
        let step = current.step;
        if !step.may_fail() {
            status.result().map_err(|status| AdminError::Command { step, status })?;
        }
        let csts = ControllerStatus(result as u32);
        let has_changed = match step {
            Step::Ready if csts.is_fatal() => return Err(AdminError::FatalStatus),
            Step::Ready => csts.is_ready(),
            Step::ShutdownStatus => csts.shutdown() == ShutdownStatus::Complete,
            _ => true,
        };
        match step {
            _ if !has_changed => self.current = Some(CurrentStep { poll_at: Some(now + POLL_INTERVAL), ..current }),
            Step::Capabilities => self.ready_timeout = Capabilities(result).timeout(),
            Step::Ready => self.start_keep_alive(now, false),
            Step::AsyncEventConfiguration if status.is_success() => self.request_event(),
            _ => {}
        }
        Ok(has_changed)
    }

    fn request_event(&mut self) {
        self.is_event_requested = true;
        self.queue.submit(Owner::AsyncEvent, AdminCommand::AsyncEventRequest.to_sqe(0, Sgl::NONE), 0);
    }

    /// Allows later commands as much time as the answer to a keep-alive, if that is longer. A silence that the keep-alive
    /// tolerates then ends no live association.
    pub(super) fn allow_keep_alive_time(&mut self) {
        self.command_timeout = self.command_timeout.max(self.keep_alive.answer_timeout());
    }

    /// Starts or adjusts the keep-alive timer. `tbkas`: the controller has traffic-based keep-alive.
    pub(super) fn start_keep_alive(&mut self, now: Instant, tbkas: bool) {
        if let Some(kato) = self.keep_alive_tmo {
            self.keep_alive.start(now, kato, tbkas);
        }
    }

    /// Fails if the step takes too long. Reads its property again if that is due.
    pub(super) fn check_step(&mut self, now: Instant) -> Result<(), AdminError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let (step, after) = (current.step, current.allowed);
        if current.deadline <= now {
            return Err(AdminError::Timeout { step, after });
        }
        if current.poll_at.take_if(|at| *at <= now).is_some()
            && let Some((sqe, data_len)) = step.command()
        {
            self.queue.submit(Owner::Step, sqe, data_len);
        }
        Ok(())
    }

    /// Fails if a keep-alive is not answered in time. Sends one if it is due.
    pub(super) fn check_keep_alive(&mut self, now: Instant) -> Result<(), AdminError> {
        if self.keep_alive.is_late(now) {
            return Err(AdminError::Timeout { step: Step::KeepAlive, after: self.keep_alive.answer_timeout() });
        }
        if self.keep_alive.is_due(now) {
            self.keep_alive.sent(now);
            self.queue.submit(Owner::KeepAlive, AdminCommand::KeepAlive.to_sqe(0, Sgl::NONE), 0);
        }
        Ok(())
    }

    /// Asks for the shutdown step. It comes after the step under way.
    pub(super) fn request_shutdown(&mut self) -> ShutdownOutcome {
        if self.has_failed() || self.is_shutting_down() {
            ShutdownOutcome::Ignored
        } else if self.queue.is_ready() {
            self.shutdown = Shutdown::Requested;
            ShutdownOutcome::Requested
        } else {
            self.current = None;
            self.shutdown = Shutdown::Started;
            ShutdownOutcome::NotConnected
        }
    }

    /// Whether a shutdown is requested or under way.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutdown != Shutdown::NotRequested
    }

    /// The shutdown step, if it is requested and not started.
    pub(super) fn shutdown_step(&self) -> Option<Step> {
        (self.shutdown == Shutdown::Requested).then_some(Step::Shutdown)
    }
}
