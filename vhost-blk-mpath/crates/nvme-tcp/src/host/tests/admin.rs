//! Test helpers: both ends of an admin connection.

use monotonic::{Duration, Instant};

use super::admin_target::AdminTarget;
use super::{Dice, host_identity, subnqn};
use crate::host::{ControllerConfig, ControllerError, ControllerEvent, ControllerInfo, HostController, Namespace};
use crate::wire::{AnaState, Digests};

pub(super) const KATO: Duration = Duration::from_secs(10);
pub(super) const TIMEOUT: Duration = Duration::from_secs(6);

pub(super) fn config() -> ControllerConfig {
    ControllerConfig {
        host: host_identity(),
        subnqn: subnqn(),
        nsids: Vec::new(),
        keep_alive_tmo: KATO,
        digests: Digests::default(),
        io_queues: 8,
        queue_entries: 128,
        max_transfer_bytes: None,
        command_timeout: TIMEOUT,
        authentication: None,
        is_encrypted: false,
    }
}

/// The event of the namespace at position 0.
pub(super) fn ana_changed(state: AnaState) -> ControllerEvent {
    ControllerEvent::AnaChanged { namespace: 0, state }
}

/// Both ends of an admin connection, with a clock.
pub(super) struct Admin {
    pub(super) host: HostController,
    pub(super) target: AdminTarget,
    pub(super) now: Instant,
    dice: Dice,
}

impl Admin {
    pub(super) fn with(config: ControllerConfig, change: impl FnOnce(&mut AdminTarget)) -> Self {
        let now = Instant::now();
        let mut target = AdminTarget::new();
        change(&mut target);
        Self { host: HostController::new(config, now).unwrap(), target, now, dice: Dice(1) }
    }

    /// Exchanges bytes until there are none. The clock stands still.
    pub(super) fn exchange(&mut self) -> Result<(), ControllerError> {
        loop {
            let mut bytes = Vec::new();
            self.host.fill_tx(&mut bytes);
            let all = bytes.len();
            self.host.fill_tx(&mut bytes);
            assert_eq!(bytes.len(), all, "one call returns all bytes that are ready");
            self.target.receive(&bytes);
            if bytes.is_empty() && self.target.out.is_empty() {
                return Ok(());
            }
            let mut answer = std::mem::take(&mut self.target.out);
            while !answer.is_empty() {
                let rest = answer.split_off(1 + self.dice.below(answer.len()));
                self.host.receive(self.now, &answer)?;
                answer = rest;
            }
        }
    }

    /// Advances the clock by `time`.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), ControllerError> {
        let end = self.now + time;
        self.exchange()?;
        while let Some(at) = self.host.next_timeout().filter(|&at| at <= end) {
            assert!(at >= self.now, "a timeout in the past would spin");
            self.now = at;
            self.host.handle_timeout(at)?;
            self.exchange()?;
        }
        self.now = end;
        Ok(())
    }

    pub(super) fn event(&mut self) -> Option<ControllerEvent> {
        self.host.poll_event()
    }

    /// Connects, which must succeed.
    pub(super) fn live(&mut self) -> Box<ControllerInfo> {
        self.pass(Duration::from_secs(1)).unwrap();
        match self.event() {
            Some(ControllerEvent::Live(info)) => info,
            other => panic!("{other:?}"),
        }
    }

    /// The only namespace, as the host currently knows it.
    pub(super) fn only(&self) -> Namespace {
        let info = self.host.info().unwrap();
        assert_eq!(info.namespaces.len(), 1);
        info.namespaces[0].clone().unwrap()
    }

    pub(super) fn failure(&mut self) -> ControllerError {
        let error = self.pass(Duration::from_secs(60)).unwrap_err();
        assert_eq!(self.host.receive(self.now, &[]), Err(error.clone()), "the error is permanent");
        assert_eq!((self.host.next_timeout(), self.event()), (None, None));
        error
    }
}
