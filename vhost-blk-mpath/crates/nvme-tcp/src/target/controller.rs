//! One controller: what one host's admin queue has set up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::command::CommandToken;
use crate::wire::{AsyncEvent, AsyncEventMask, ControllerConfiguration, ControllerStatus, Nqn, ShutdownStatus, Status};

/// KAS: keep-alive timeouts are rounded up to this.
pub(super) const KEEP_ALIVE_GRANULARITY: Duration = Duration::from_millis(100);
/// Asynchronous Event Requests held at once.
pub(super) const MAX_EVENT_REQUESTS: usize = 4;

/// CC fields that matter when EN is set: IOCQES, IOSQES, AMS, MPS, CSS.
const CC_FORMAT: u32 = 0x00ff_3ff0;

/// An event between its cause and the host's reading of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventState {
    Quiet,
    /// To be told with the next Asynchronous Event Request.
    Due,
    /// Told; masked until the log was read.
    Told,
}

impl EventState {
    pub(super) fn raise(&mut self) {
        if *self == Self::Quiet {
            *self = Self::Due;
        }
    }
}

/// What became of CC.EN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Disabled,
    Ready,
    /// Enabled with a configuration that is not supported.
    Fatal,
}

#[derive(Debug)]
pub(super) struct Controller {
    pub(super) port: u16,
    pub(super) hostid: [u8; 16],
    pub(super) hostnqn: Nqn,
    /// Zero for no keep-alive.
    pub(super) keep_alive_timeout: Duration,
    pub(super) keep_alive_deadline: Option<Instant>,
    pub(super) configuration: ControllerConfiguration,
    readiness: Readiness,
    shut_down: bool,
    /// I/O queues granted by Set Features.
    pub(super) io_queues_granted: Option<u16>,
    /// I/O queues connected.
    pub(super) io_queues: BTreeSet<u16>,
    pub(super) write_cache: bool,
    pub(super) event_mask: AsyncEventMask,
    pub(super) ana_event: EventState,
    event_requests: Vec<CommandToken>,
    /// Event requests that a reset has ended.
    aborted_requests: Vec<CommandToken>,
}

/// What writing CC has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Plain,
    /// Everything is to reach stable media before the write of CC completes.
    Shutdown,
}

impl Controller {
    pub(super) fn new(now: Instant, port: u16, hostid: [u8; 16], hostnqn: Nqn, kato: Duration) -> Self {
        let mut controller = Self {
            port,
            hostid,
            hostnqn,
            keep_alive_timeout: Duration::ZERO,
            keep_alive_deadline: None,
            configuration: ControllerConfiguration(0),
            readiness: Readiness::Disabled,
            shut_down: false,
            io_queues_granted: None,
            io_queues: BTreeSet::new(),
            write_cache: true,
            event_mask: AsyncEventMask(0),
            ana_event: EventState::Quiet,
            event_requests: Vec::new(),
            aborted_requests: Vec::new(),
        };
        controller.set_keep_alive(now, kato);
        controller
    }

    pub(super) fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    pub(super) fn status(&self) -> ControllerStatus {
        let shutdown = if self.shut_down { ShutdownStatus::Complete } else { ShutdownStatus::None };
        ControllerStatus::new(self.is_ready(), self.readiness == Readiness::Fatal, shutdown)
    }

    /// Sets KATO, rounded up to [`KEEP_ALIVE_GRANULARITY`].
    pub(super) fn set_keep_alive(&mut self, now: Instant, kato: Duration) {
        let units = kato.as_nanos().div_ceil(KEEP_ALIVE_GRANULARITY.as_nanos());
        // KATO has 32 bits of milliseconds, so there are fewer than 2³² units.
        self.keep_alive_timeout = KEEP_ALIVE_GRANULARITY * units as u32;
        self.kept_alive(now);
    }

    /// The host is alive at `now`.
    pub(super) fn kept_alive(&mut self, now: Instant) {
        let watched = !self.keep_alive_timeout.is_zero() && !self.shut_down;
        self.keep_alive_deadline = watched.then(|| now + self.keep_alive_timeout);
    }

    /// Writes CC (Base 3.1.3.5).
    pub(super) fn write_configuration(&mut self, now: Instant, value: ControllerConfiguration) -> Written {
        let was_enabled = self.configuration.enabled();
        self.configuration = value;
        match (was_enabled, value.enabled()) {
            (false, true) => {
                let format = ControllerConfiguration::ENABLED.0 & CC_FORMAT;
                let supported = value.0 & CC_FORMAT == format;
                self.readiness = if supported { Readiness::Ready } else { Readiness::Fatal };
                self.kept_alive(now);
            }
            (true, false) => self.reset(now),
            _ => {}
        }
        if self.is_ready() && value.shutdown_requested() && !self.shut_down {
            self.shut_down = true;
            self.kept_alive(now);
            return Written::Shutdown;
        }
        Written::Plain
    }

    /// Back to the state of a fresh controller; the host's identity and KATO stay.
    fn reset(&mut self, now: Instant) {
        self.readiness = Readiness::Disabled;
        self.shut_down = false;
        self.io_queues_granted = None;
        self.io_queues.clear();
        self.write_cache = true;
        self.event_mask = AsyncEventMask(0);
        self.ana_event = EventState::Quiet;
        self.aborted_requests.append(&mut self.event_requests);
        self.kept_alive(now);
    }

    /// Holds an Asynchronous Event Request until there is something to tell; gives it back if there are too many.
    pub(super) fn hold_event_request(&mut self, token: CommandToken) -> Result<(), CommandToken> {
        if self.event_requests.len() >= MAX_EVENT_REQUESTS {
            return Err(token);
        }
        self.event_requests.push(token);
        Ok(())
    }

    pub(super) fn poll_event(&mut self) -> Option<(CommandToken, Status, u64)> {
        if let Some(token) = self.aborted_requests.pop() {
            return Some((token, Status::ABORT_REQUESTED, 0));
        }
        if self.ana_event != EventState::Due {
            return None;
        }
        let token = self.event_requests.pop()?;
        self.ana_event = EventState::Told;
        Some((token, Status::SUCCESS, AsyncEvent::ANA_CHANGED.to_dw0().into()))
    }
}
