//! What the API shows of the discovery controllers of a disk.

use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mpath_api::PathAddress;
use mpath_api::types::{DiscoveryController, DiscoveryState};
use mpath_host::discovery::{Controller, ControllerState};

use crate::events;

/// See the module.
#[derive(Default)]
pub(crate) struct Shown(Mutex<Vec<DiscoveryController>>);

impl Shown {
    pub(crate) fn get(&self) -> Vec<DiscoveryController> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, disk: &str, controllers: &[Controller<PathAddress>]) {
        let shown = controllers.iter().map(|controller| shown(disk, controller)).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }
}

fn shown(disk: &str, controller: &Controller<PathAddress>) -> DiscoveryController {
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

/// A moment of the past as events show it. The clock may have been set back since.
fn utc(at: Instant) -> String {
    events::utc((SystemTime::now() - at.elapsed()).max(UNIX_EPOCH))
}
