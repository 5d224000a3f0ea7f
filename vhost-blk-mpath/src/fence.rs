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

/// Begins the fence of an association whose sockets are all closed, and sees to its end.
pub(crate) fn begin(disk: &Arc<Disk>, path: PathId, epoch: Epoch, info: &ControllerInfo) {
    let disk = Arc::clone(disk);
    let time = if cfg!(feature = "without-fence") { Duration::ZERO } else { info.fence_time() };
    let instance = info.instance();
    tokio::spawn(async move {
        let begun = Instant::now();
        let by = tokio::select! {
            by = reset(&disk, instance) => Some(by),
            () = sleep(time) => None,
        };
        disk.path_fence_lifted(path, by, begun.elapsed());
        lift(&disk, path, epoch).await;
    });
}

/// Nothing of an association that has ended can be executed any more.
pub(crate) async fn lift(disk: &Disk, path: PathId, epoch: Epoch) {
    disk.threads().iter().for_each(|thread| thread.fence_lifted(path, epoch));
    if let Err(error) = disk.record.remove(path, epoch).await {
        // It stays until the next change, and would only make the next daemon wait.
        tracing::warn!(disk = %disk.config.name, %error, "fence record not brought up to date");
    }
}

/// Waits until another path's controller has reset the lost one, perhaps for ever; which path that was.
async fn reset(disk: &Disk, instance: Option<ControllerInstance>) -> PathId {
    match instance {
        Some(instance) => disk.resetters.reset(instance).await,
        None => std::future::pending().await,
    }
}
