//! Checks the health of all disks twice a second, so that events tell of a new condition at once.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mpath_api::types::EventKind;
use tokio::time::sleep;

use crate::host_stalls::BEAT;
use crate::service::disks::Disks;

/// Watches all disks, and this host.
pub(crate) async fn watch(disks: Arc<Disks>) {
    let (stalls, events) = (&disks.common.stalls, &disks.common.events);
    loop {
        stalls.beat(Instant::now());
        sleep(BEAT).await;
        stalls.beat(Instant::now());
        if let Some(message) = stalls.untold(Instant::now(), SystemTime::now()) {
            events.record_of_daemon(EventKind::HostStalled, message);
        }
        for service in disks.services() {
            let is_leaving = disks.is_leaving(&service.subsystem);
            for disk in &service.subsystem.disks {
                service.check_health(disk, 0, is_leaving);
            }
        }
    }
}
