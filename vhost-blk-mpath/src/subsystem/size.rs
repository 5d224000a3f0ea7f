//! Decides: the steps of growth are carried out (`grow_disk`).
//!
//! The size of a disk. It grows with its namespace and never shrinks: [`mpath_host::Growth`] decides how.

use std::io;
use std::path::PathBuf;

use mpath_api::types::EventKind;
use mpath_host::{Growth, GrowthStep};

use crate::disk::{Backing, Disk, geometry};
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::State;

/// The file that describes a disk cannot be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "disk {disk}: cannot write {}: {source}; until that succeeds, front-ends wait, and the disk does not grow",
    file.display()
)]
pub(crate) struct SaveError {
    disk: String,
    file: PathBuf,
    source: io::Error,
}

impl Subsystem {
    /// Saves a disk with a known namespace as the next daemon shows it.
    pub(crate) async fn save_current(&self, disk: &Disk) -> Result<(), SaveError> {
        let _one_at_a_time = self.saving.lock().await;
        let Some(backing) = disk.backing() else { return Ok(()) };
        self.save_shown(disk, backing.frontend.capacity_sectors()).await
    }

    /// Saves the disk as the next daemon shows it, with this size.
    async fn save_shown(&self, disk: &Disk, capacity_sectors: u64) -> Result<(), SaveError> {
        let Some(shown) = self.to_be_shown(disk, capacity_sectors) else { return Ok(()) };
        let file = self.records.shown(disk.id.0.into());
        let failed = |source| SaveError { disk: disk.name().into(), file: file.path().into(), source };
        file.save(shown).await.map_err(failed)
    }

    /// Grows the disks that can grow. To be called when a path has reported a size or is gone, and after the I/O
    /// threads were told.
    ///
    /// Returns false if a disk could not be saved, and so did not grow.
    pub(crate) async fn grow(&self) -> bool {
        let mut are_saved = true;
        for disk in &self.disks {
            are_saved &= self.grow_disk(disk).await;
        }
        are_saved
    }

    async fn grow_disk(&self, disk: &Disk) -> bool {
        let Some(backing) = disk.backing() else { return true };
        let begin = |state: &State| Growth::begin(backing.served_namespace()?, state.sizes(disk.id));
        if begin(&self.state()).is_none() {
            return true;
        }
        let _one_at_a_time = self.saving.lock().await;
        // The disk may have grown meanwhile.
        let Some(mut growth) = begin(&self.state()) else { return true };
        let mut are_saved = true;
        while let Some(step) = growth.step() {
            match step {
                GrowthStep::TellThreads => {
                    self.paths_known().await;
                    growth.threads_told();
                }
                GrowthStep::Save { blocks } => {
                    let saved = self.save_shown(disk, geometry::sectors(blocks, backing.block_bytes())).await;
                    if let Err(error) = &saved {
                        tracing::warn!(%error, "the disk keeps its size; trying again");
                    }
                    are_saved &= saved.is_ok();
                    growth.saved(saved.is_ok());
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
        are_saved
    }
}

/// Shows guests this many blocks.
fn show(disk: &Disk, backing: &Backing, blocks: u64) {
    let before = backing.bytes();
    match backing.grow(blocks) {
        Ok(Some(is_told)) => {
            let front_end = match (is_told, disk.is_connected()) {
                (true, _) => "the front-end was told",
                (false, true) => {
                    "the front-end takes no notices and was not told; it reads the size when it connects again"
                }
                (false, false) => "no front-end is connected",
            };
            let message = format!("disk resized from {before} to {} bytes; {front_end}", backing.bytes());
            disk.event(EventKind::DiskResized, message);
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(disk = disk.name(), %error, "cannot resize the disk, though its namespace has grown");
        }
    }
}
