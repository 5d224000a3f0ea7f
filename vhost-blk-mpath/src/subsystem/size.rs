//! The size of a disk. It grows when its namespace does, and never shrinks.
//!
//! The controllers of a subsystem tell of a namespace that has grown each in its own time, and one that does not know
//! of it yet fails requests for what is new. So guests are told when all paths that lead to the namespace agree; a path
//! that knows it smaller than guests do has not caught up, and is not used until it has.

use mpath_api::types::EventKind;
use mpath_core::{DiskId, PathId};
use mpath_host::{News, Unusable};

use crate::disk::{Disk, Served};
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{NamespaceStatus, State};

impl Subsystem {
    /// Has a path that is about to be live taken into account: from now on no disk grows beyond what its controller
    /// knows. An error if one has done so already.
    pub(crate) fn path_sized(&self, path: PathId, namespaces: Vec<News>) -> Result<(), (DiskId, Unusable)> {
        let mut state = self.state();
        for News { disk, blocks, .. } in namespaces.iter().filter(|news| news.unusable.is_none()) {
            let served = self.disk(*disk).served().map(Served::as_seen);
            served.map_or(Ok(()), |served| served.check_size(*blocks)).map_err(|error| (*disk, error))?;
        }
        let status = state.path_mut(path).expect("a path is there as long as its task");
        status.namespaces = namespaces.into_iter().map(NamespaceStatus::from).collect();
        Ok(())
    }

    /// Has disks grow that can. To be called when a path has told a size, or is gone, and the I/O threads have been
    /// told.
    pub(crate) async fn grow(&self) {
        for disk in &self.disks {
            self.grow_disk(disk).await;
        }
    }

    async fn grow_disk(&self, disk: &Disk) {
        let Some(served) = disk.served() else { return };
        let agreed = |state: &State| state.blocks(disk.id).filter(|blocks| *blocks > served.blocks());
        let Some(agreed_before) = agreed(&self.state()) else { return };
        // The queue pairs have to know it before the first request for what is new. What paths told since may not have
        // arrived.
        self.paths_known().await;
        // No path becomes live meanwhile that knows less.
        let state = self.state();
        let Some(blocks) = agreed(&state).map(|blocks| blocks.min(agreed_before)) else { return };
        let before = served.bytes();
        match served.grow(blocks) {
            Ok(true) => {
                let message = format!("disk resized from {before} to {} bytes", served.bytes());
                disk.event(EventKind::DiskResized, message);
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(disk = %disk.name(), %error, "the namespace has grown, the disk cannot"),
        }
    }
}
