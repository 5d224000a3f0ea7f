//! Checks the health of all disks twice a second, so that events tell of a new condition at once.

use std::sync::Arc;
use std::time::SystemTime;

use monotonic::{Duration, Instant};
use mpath_api::types::EventKind;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

use crate::host_stalls::BEAT;
use crate::service::disks::Disks;

/// Watches all disks, and this host.
pub(crate) async fn watch(disks: Arc<Disks>) {
    let events = &disks.common.events;
    let stalls = &events.stalls;
    let _watched = stalls.watch(Instant::now(), processor_time());
    loop {
        sleep(BEAT.into()).await;
        stalls.beat(Instant::now(), processor_time());
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

/// The time that the control thread has run.
fn processor_time() -> Duration {
    std::time::Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default().into()
}
