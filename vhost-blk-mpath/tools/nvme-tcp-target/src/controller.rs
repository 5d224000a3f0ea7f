//! One controller, as the admin queue of one host has set it up.

use std::collections::BTreeSet;

use monotonic::{Duration, Instant};
use nvme_tcp::wire::{ControllerConfiguration, ControllerInstance, ControllerStatus, Nqn, ShutdownStatus};

use super::events::Events;

/// KAS: the granularity to which keep-alive timeouts are rounded up.
pub(super) const KEEP_ALIVE_GRANULARITY: Duration = Duration::from_millis(100);

/// CC fields that matter when EN is set: IOCQES, IOSQES, AMS, MPS, CSS.
const CC_FORMAT: u32 = 0x00ff_3ff0;

/// The readiness that follows from CC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Disabled,
    Ready,
    /// Enabled with an unsupported configuration (CSTS.CFS).
    Fatal,
}

#[derive(Debug)]
pub(super) struct Controller {
    /// The current instance. Each reset starts another.
    pub(super) instance: ControllerInstance,
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
    /// ACRE of Host Behavior Support: the host honours CRD.
    pub(super) retry_delays: bool,
    pub(super) events: Events,
}

/// The action that a write of CC requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigurationAction {
    None,
    /// The controller was reset and needs a new instance.
    Reset,
    /// All data must reach stable media before the write of CC completes.
    Shutdown,
}

impl Controller {
    pub(super) fn new(
        now: Instant,
        instance: ControllerInstance,
        port: u16,
        hostid: [u8; 16],
        hostnqn: Nqn,
        kato: Duration,
    ) -> Self {
        let mut controller = Self {
            instance,
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
            retry_delays: false,
            events: Events::default(),
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
        self.restart_keep_alive(now);
    }

    /// Restarts the keep-alive timer.
    pub(super) fn restart_keep_alive(&mut self, now: Instant) {
        let is_running = !self.keep_alive_timeout.is_zero() && !self.shut_down;
        self.keep_alive_deadline = is_running.then(|| now + self.keep_alive_timeout);
    }

    /// Writes CC (Base 3.1.3.5).
    pub(super) fn write_configuration(&mut self, now: Instant, value: ControllerConfiguration) -> ConfigurationAction {
        let was_enabled = self.configuration.is_enabled();
        self.configuration = value;
        match (was_enabled, value.is_enabled()) {
            (false, true) => {
                let format = ControllerConfiguration::ENABLED.0 & CC_FORMAT;
                let supported = value.0 & CC_FORMAT == format;
                self.readiness = if supported { Readiness::Ready } else { Readiness::Fatal };
                self.restart_keep_alive(now);
            }
            (true, false) => {
                self.reset(now);
                return ConfigurationAction::Reset;
            }
            _ => {}
        }
        if self.is_ready() && value.requests_shutdown() && !self.shut_down {
            self.shut_down = true;
            self.restart_keep_alive(now);
            return ConfigurationAction::Shutdown;
        }
        ConfigurationAction::None
    }

    /// Returns to the state of a fresh controller. The identity of the host and KATO stay.
    fn reset(&mut self, now: Instant) {
        self.readiness = Readiness::Disabled;
        self.shut_down = false;
        self.io_queues_granted = None;
        self.io_queues.clear();
        self.write_cache = true;
        self.retry_delays = false;
        self.events.reset();
        self.restart_keep_alive(now);
    }
}
