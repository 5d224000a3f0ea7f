//! The state of discovery controllers, for the API.

use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mpath_api::PathAddress;
use mpath_api::types::{DiscoveryController, DiscoveryState};
use mpath_host::discovery::{Controller, ControllerState};

use crate::events;

/// The state of a disk's discovery controllers, for the API.
#[derive(Default)]
pub(crate) struct DiscoveryStatus(Mutex<Vec<DiscoveryController>>);

impl DiscoveryStatus {
    pub(crate) fn get(&self) -> Vec<DiscoveryController> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, disk: &str, controllers: &[Controller<PathAddress>]) {
        let status = controllers.iter().map(|controller| status(disk, controller)).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

fn status(disk: &str, controller: &Controller<PathAddress>) -> DiscoveryController {
    let (log, read_at) = controller.log.as_ref().map(|(log, at)| (log, utc(*at))).unzip();
    let (last_error, last_error_at) = controller.last_error.clone().map(|(text, at)| (text, utc(at))).unzip();
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
        generation: log.map(|log| log.generation),
        records: log.map(|log| log.records() as u32),
        read_at,
        last_error,
        last_error_at,
    }
}

/// A past moment in the format of events. The system clock may have been set back since.
fn utc(at: Instant) -> String {
    events::utc((SystemTime::now() - at.elapsed()).max(UNIX_EPOCH))
}
