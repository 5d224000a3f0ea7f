//! The fence of an association that has ended: writes that it was sent and has not answered are held until none of them can
//! be executed any more. That is so when a cross-controller reset by way of another path has succeeded, or after a
//! time. Both are under way from the close of the last socket, and the first one counts.

use std::sync::Arc;
use std::time::Duration;

use mpath_core::{Epoch, PathId};
use nvme_tcp::host::ControllerInfo;
use nvme_tcp::wire::ControllerInstance;
use tokio::time::{Instant, sleep};

use crate::disk::Disk;

/// Added to the time fence of a controller that reports no command quiesce time (CQT, TP 4129): nothing is known of how
/// long it goes on after it has noticed the loss.
const UNKNOWN_QUIESCE_TIME: Duration = Duration::from_secs(1);

/// Begins the fence of an association whose sockets are all closed, and sees to its end.
pub(crate) fn begin(disk: &Arc<Disk>, path: PathId, epoch: Epoch, info: &ControllerInfo) {
    let disk = Arc::clone(disk);
    let (time, instance) = (time(info), info.instance());
    tokio::spawn(async move {
        let begun = Instant::now();
        let by = tokio::select! {
            by = reset(&disk, instance) => Some(by),
            () = sleep(time) => None,
        };
        let by = by.map(|by| tracing::field::display(disk.address(by)));
        tracing::info!(
            disk = %disk.config.name, path = %disk.address(path), cross_controller_reset_by = by, after = ?begun.elapsed(),
            "fence lifted"
        );
        disk.threads().iter().for_each(|thread| thread.fence_lifted(path, epoch));
        if let Err(error) = disk.record.remove(path, epoch).await {
            // It stays until the next change, and would only make the next daemon wait.
            tracing::warn!(disk = %disk.config.name, %error, "fence record not brought up to date");
        }
    });
}

/// Waits until another path's controller has reset the lost one, perhaps for ever; which path that was.
async fn reset(disk: &Disk, instance: Option<ControllerInstance>) -> PathId {
    match instance {
        Some(instance) => disk.resetters.reset(instance).await,
        None => std::future::pending().await,
    }
}

/// From the close of the last socket to the moment after which the controller executes nothing of this association: it has
/// noticed the loss by its keep-alive timer, and has quiesced (NVMe base specification 2.1, section 9.6).
pub(crate) fn time(info: &ControllerInfo) -> Duration {
    // With traffic-based keep-alive a controller may look at its timer only once in a whole KATO.
    let periods = if info.tbkas { 3 } else { 2 };
    let quiesce = if info.cqt.is_zero() { UNKNOWN_QUIESCE_TIME } else { info.cqt };
    info.kato * periods + quiesce
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::controller;

    /// In milliseconds: the fence of a controller with this KATO and CQT.
    fn fence(kato: u64, cqt: u64, tbkas: bool) -> u128 {
        let (kato, cqt) = (Duration::from_millis(kato), Duration::from_millis(cqt));
        time(&ControllerInfo { kato, cqt, tbkas, ..controller() }).as_millis()
    }

    #[test]
    fn a_fence_takes_two_keep_alive_times_and_the_quiesce_time() {
        assert_eq!(fence(5000, 300, false), 10_300);
        assert_eq!(fence(5000, 300, true), 15_300);
        // Not reported is not zero.
        assert_eq!(fence(5000, 0, false), 11_000);
        assert_eq!(fence(1000, 0, true), 4_000);
    }
}
