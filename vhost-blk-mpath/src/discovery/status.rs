//! The state of discovery controllers, for the API.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use monotonic::Instant;
use mpath_api::types::{DiscoveryController, DiscoveryState};
use mpath_config::PathAddress;
use mpath_lifecycle::discovery::{Controller, ControllerState};

use crate::events;
use crate::subsystem::health::Undiscovered;

/// The most controllers that a reason names.
const NAMED_MAX: usize = 4;

/// The state of a disk's discovery controllers, for the API.
#[derive(Default)]
pub(crate) struct DiscoveryStatus {
    controllers: Mutex<Vec<DiscoveryController>>,
    /// The paths that first logs list are added.
    first_logs_done: AtomicBool,
}

impl DiscoveryStatus {
    pub(crate) fn get(&self) -> Vec<DiscoveryController> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, disk: &str, controllers: &[Controller<PathAddress>]) {
        let status = controllers.iter().map(|controller| status(disk, controller)).collect();
        *self.controllers.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Whether every controller has sent its log or has failed, or the time for first logs is over. The paths that
    /// these logs list are added then.
    pub(crate) fn first_logs_are_done(&self) -> bool {
        self.first_logs_done.load(Ordering::Relaxed)
    }

    pub(super) fn set_first_logs_done(&self) {
        self.first_logs_done.store(true, Ordering::Relaxed);
    }

    /// Why there is no path, one line for each controller.
    pub(crate) fn reasons(&self) -> Vec<(PathAddress, String)> {
        let reason = |controller: DiscoveryController| {
            let reason = match (controller.records, controller.last_error) {
                (_, Some(error)) => error,
                (Some(records), None) => format!("its log lists no path to the subsystem ({records} records)"),
                (None, None) => "no answer yet".into(),
            };
            (controller.address, reason)
        };
        self.get().into_iter().map(reason).collect()
    }

    /// Why a running disk has no path: the first controllers, and where all are shown. Paths of a log may have been removed.
    pub(crate) fn undiscovered(&self) -> Undiscovered {
        let reason = |controller: &DiscoveryController| match (&controller.last_error, controller.records) {
            (Some(error), _) => error.clone(),
            (None, Some(records)) => format!("no path of its log is used ({records} records)"),
            (None, None) => "no answer yet".into(),
        };
        let named = |of: &DiscoveryController| format!("discovery controller {}: {}; ", of.address, reason(of));
        let named: String = self.get().iter().take(NAMED_MAX).map(named).collect();
        let why = format!("{named}see `mpathctl discovery list`");
        Undiscovered { why, is_pending: !self.first_logs_are_done() }
    }
}

fn status(disk: &str, controller: &Controller<PathAddress>) -> DiscoveryController {
    let (log, read_at) = controller.log.as_ref().map(|(log, at)| (log, utc(*at))).unzip();
    let without_key = controller.log.as_ref().zip(without_key(controller)).map(|((_, at), text)| (text, *at));
    let last_error = controller.last_error.clone().or(without_key);
    let (last_error, last_error_at) = last_error.map(|(text, at)| (text, utc(at))).unzip();
    DiscoveryController {
        disk: disk.into(),
        address: controller.source.address.clone(),
        subnqn: controller.source.subnqn.to_string(),
        referred_by: controller.referred_by.clone(),
        state: match controller.state {
            ControllerState::Connecting => DiscoveryState::Connecting,
            ControllerState::Connected => DiscoveryState::Connected,
            ControllerState::Polled => DiscoveryState::Polled,
            ControllerState::Lost => DiscoveryState::Lost,
        },
        since: utc(controller.since),
        tls_suite: controller.peer.and_then(|peer| peer.tls_suite).map(ToOwned::to_owned),
        generation: log.map(|log| log.generation),
        records: log.map(|log| log.records() as u32),
        read_at,
        last_error,
        last_error_at,
    }
}

/// Why paths in the last log are not used, if they need a key that the disk does not have.
pub(super) fn without_key(controller: &Controller<PathAddress>) -> Option<String> {
    let count = controller.paths_without_key;
    (count > 0).then(|| format!("its log lists ports that require TLS ({count}); set tls-key-file"))
}

/// A past moment in the format of events. The system clock may have been set back since.
fn utc(at: Instant) -> String {
    events::utc((SystemTime::now() - at.elapsed().into()).max(UNIX_EPOCH))
}
