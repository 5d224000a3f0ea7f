//! The size of a disk. It grows when its namespace does, and never shrinks: [`mpath_host::Served::growth`] says when.

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
        mpath_host::check_sizes(&namespaces, |disk| self.disk(disk).served().map(Served::as_seen))?;
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
        let agreed = |state: &State| served.as_seen().growth(state.sizes(disk.id));
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
