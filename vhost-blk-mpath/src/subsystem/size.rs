//! The size of a disk. It grows with its namespace and never shrinks: `growth.rs` of `mpath-lifecycle` decides how.

use std::io;
use std::path::PathBuf;

use mpath_api::types::{EventKind, Growth, LaggingPath};
use vhost_user_blk::GeometryError;

use crate::disk::{Backing, Disk, geometry};
use crate::subsystem::Subsystem;

/// Why a disk cannot be saved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveError {
    /// The file that describes a disk cannot be written.
    #[error(
        "disk {disk}: cannot write {}: {source}; until that succeeds, front-ends wait, and the disk does not grow",
        file.display()
    )]
    Write { disk: String, file: PathBuf, source: io::Error },
    /// Guests cannot see the size to which the disk grows.
    #[error(transparent)]
    Size(#[from] GeometryError),
}

impl Subsystem {
    /// Saves a disk with a known namespace as the next daemon shows it: with the blocks to which it grows, or those that
    /// guests see.
    pub(crate) async fn save(&self, disk: &Disk, grow_to: Option<u64>) -> Result<(), SaveError> {
        let Some(backing) = disk.backing() else { return Ok(()) };
        let blocks = grow_to.unwrap_or_else(|| backing.blocks());
        // The next daemon cannot use a file with a size that no disk can have.
        backing.check_size(blocks)?;
        let capacity_sectors = geometry::sectors(blocks, backing.block_bytes());
        let Some(shown) = self.to_be_shown(disk, capacity_sectors) else { return Ok(()) };
        let file = self.records.shown(disk.id.0.into());
        let failed = |source| SaveError::Write { disk: disk.name().into(), file: file.path().into(), source };
        file.save(shown).await.map_err(failed)
    }

    /// The growth of a namespace that some paths report and others do not.
    pub(crate) fn growth(&self, disk: &Disk) -> Option<Growth> {
        let block_bytes = u64::from(disk.backing()?.block_bytes());
        let state = self.state();
        let largest = state.sizes(disk.id).max()?;
        let lagging = state.paths().filter_map(|path| {
            let blocks = path.namespaces.blocks(disk.id).filter(|blocks| *blocks < largest)?;
            let (index, address) = (path.id.0, path.address.clone());
            Some(LaggingPath { index, address, capacity_bytes: blocks.saturating_mul(block_bytes) })
        });
        let growth = Growth { capacity_bytes: largest.saturating_mul(block_bytes), lagging: lagging.collect() };
        (!growth.lagging.is_empty()).then_some(growth)
    }

    /// Shows guests the blocks to which the disk grows.
    pub(crate) fn show_growth(&self, disk: &Disk) -> Result<(), GeometryError> {
        let Some((backing, served)) = disk.backing().and_then(|it| Some((it, it.served_namespace()?))) else {
            return Ok(());
        };
        // Under this lock no path with a smaller size can become live.
        let state = self.state();
        let to_show = disk.driver().to_show(served, state.sizes(disk.id));
        to_show.map_or(Ok(()), |blocks| show(disk, backing, blocks))
    }
}

/// Shows guests this many blocks.
fn show(disk: &Disk, backing: &Backing, blocks: u64) -> Result<(), GeometryError> {
    let before = backing.bytes();
    if let Some(is_told) = backing.grow(blocks)? {
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
    Ok(())
}
