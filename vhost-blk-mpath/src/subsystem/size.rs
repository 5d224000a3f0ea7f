//! The size of a disk. It grows with its namespace and never shrinks: [`mpath_host::ServedNamespace::growth`] decides
//! when.

use mpath_api::types::EventKind;
use mpath_core::{DiskId, PathId};
use mpath_host::{NamespaceUpdate, Unusable};

use crate::disk::{Backing, Disk};
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{NamespaceStatus, State};

impl Subsystem {
    /// Records the sizes on a path that is about to become live. From then on no disk grows beyond them. Fails if a
    /// disk has already grown beyond them.
    pub(crate) fn path_sized(&self, path: PathId, namespaces: Vec<NamespaceUpdate>) -> Result<(), (DiskId, Unusable)> {
        let mut state = self.state();
        mpath_host::check_sizes(&namespaces, |disk| self.disk(disk).backing().map(Backing::served_namespace))?;
        let status = state.path_mut(path).expect("a path is there as long as its task");
        status.namespaces = namespaces.into_iter().map(NamespaceStatus::from).collect();
        Ok(())
    }

    /// Grows the disks that can grow. To be called when a path has reported a size or is gone, and after the I/O
    /// threads were told.
    pub(crate) async fn grow(&self) {
        for disk in &self.disks {
            self.grow_disk(disk).await;
        }
    }

    async fn grow_disk(&self, disk: &Disk) {
        let Some(backing) = disk.backing() else { return };
        let agreed = |state: &State| backing.served_namespace().growth(state.sizes(disk.id));
        let Some(agreed_before) = agreed(&self.state()) else { return };
        // Queue pairs must know the size before the first request for the new blocks. Sizes reported since may still
        // be on their way.
        self.paths_known().await;
        // Under this lock no path with a smaller size can become live.
        let state = self.state();
        let Some(blocks) = agreed(&state).map(|blocks| blocks.min(agreed_before)) else { return };
        let before = backing.bytes();
        match backing.grow(blocks) {
            Ok(true) => {
                let message = format!("disk resized from {before} to {} bytes", backing.bytes());
                disk.event(EventKind::DiskResized, message);
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(disk = %disk.name(), %error, "cannot resize the disk, though its namespace has grown");
            }
        }
    }
}
