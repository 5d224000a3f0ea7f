//! Checks the health of all disks twice a second, so that events tell of a new condition at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::service::disks::Disks;

const PERIOD: Duration = Duration::from_millis(500);

/// Watches all disks.
pub(crate) async fn watch(disks: Arc<Disks>) {
    loop {
        sleep(PERIOD).await;
        for service in disks.services() {
            let is_leaving = disks.is_leaving(&service.subsystem);
            for disk in &service.subsystem.disks {
                service.check_health(disk, 0, is_leaving);
            }
        }
    }
}
