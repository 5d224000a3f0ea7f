//! The size of a disk. It grows with its namespace and never shrinks: [`mpath_host::Growth`] decides how.

use mpath_api::types::EventKind;
use mpath_core::{DiskId, PathId};
use mpath_host::{Growth, GrowthStep, NamespaceUpdate, Unusable};

use crate::disk::{Backing, Disk, geometry};
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{NamespaceStatus, State};

impl Subsystem {
    /// Records the sizes on a path that is about to become live. From then on no disk grows beyond them. Fails if a
    /// disk has already grown beyond them.
    pub(crate) fn path_sized(&self, path: PathId, namespaces: Vec<NamespaceUpdate>) -> Result<(), (DiskId, Unusable)> {
        let mut state = self.state();
        mpath_host::check_sizes(&namespaces, |disk| self.disk(disk).backing().and_then(Backing::served_namespace))?;
        let status = state.path_mut(path).expect("a path is there as long as its task");
        status.namespaces = namespaces.into_iter().map(NamespaceStatus::from).collect();
        Ok(())
    }

    /// Saves a disk with a known namespace as the next daemon shows it.
    pub(crate) async fn save_current(&self, disk: &Disk) {
        let _one_at_a_time = self.saving.lock().await;
        let Some(backing) = disk.backing() else { return };
        self.save_shown(disk, backing.frontend.capacity_sectors()).await;
    }

    /// Saves the disk as the next daemon shows it, with this size. Returns whether no file says otherwise.
    async fn save_shown(&self, disk: &Disk, capacity_sectors: u64) -> bool {
        let Some(shown) = self.to_be_shown(disk, capacity_sectors) else { return true };
        let file = self.records.shown(disk.id.0.into());
        let saved = file.save(shown).await;
        if let Err(error) = &saved {
            let (disk, file) = (disk.name(), file.path().display());
            tracing::warn!(disk, %file, %error, "cannot save the disk as front-ends see it; after a restart they wait until a path works");
        }
        saved.is_ok() || !file.path().exists()
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
        let begin = |state: &State| Growth::begin(backing.served_namespace()?, state.sizes(disk.id));
        if begin(&self.state()).is_none() {
            return;
        }
        let _one_at_a_time = self.saving.lock().await;
        // The disk may have grown meanwhile.
        let Some(mut growth) = begin(&self.state()) else { return };
        while let Some(step) = growth.step() {
            match step {
                GrowthStep::TellThreads => {
                    self.paths_known().await;
                    growth.threads_told();
                }
                GrowthStep::Save { blocks } => {
                    growth.saved(self.save_shown(disk, geometry::sectors(blocks, backing.block_bytes())).await);
                }
                GrowthStep::Show => {
                    // Under this lock no path with a smaller size can become live.
                    let state = self.state();
                    let served = backing.served_namespace();
                    if let Some(blocks) = served.and_then(|served| growth.to_show(served, state.sizes(disk.id))) {
                        show(disk, backing, blocks);
                    }
                    growth.shown(backing.blocks());
                }
            }
        }
    }
}

/// Shows guests this many blocks.
fn show(disk: &Disk, backing: &Backing, blocks: u64) {
    let before = backing.bytes();
    match backing.grow(blocks) {
        Ok(true) => {
            let message = format!("disk resized from {before} to {} bytes", backing.bytes());
            disk.event(EventKind::DiskResized, message);
        }
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(disk = disk.name(), %error, "cannot resize the disk, though its namespace has grown");
        }
    }
}
