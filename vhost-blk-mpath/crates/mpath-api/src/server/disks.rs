//! Which disks a request means: those it names or all, and whether they have to have paths of their own.

use super::error::ControlError;
use crate::types::{Disk, SchedulerDetail};

/// Something said of a disk.
pub(super) trait OfDisk {
    /// The disk's name.
    fn disk(&self) -> &str;
    /// The disk whose paths it uses, unless it has paths of its own.
    fn shares_paths_of(&self) -> Option<&str>;
}

impl OfDisk for Disk {
    fn disk(&self) -> &str {
        &self.name
    }

    fn shares_paths_of(&self) -> Option<&str> {
        self.shares_paths_of.as_deref()
    }
}

impl OfDisk for SchedulerDetail {
    fn disk(&self) -> &str {
        &self.disk
    }

    fn shares_paths_of(&self) -> Option<&str> {
        self.shares_paths_of.as_deref()
    }
}

/// Of the disk named, or of all.
pub(super) fn meant<T: OfDisk>(mut all: Vec<T>, disk: Option<String>) -> Result<Vec<T>, ControlError> {
    if let Some(disk) = disk {
        all.retain(|of| of.disk() == disk);
        if all.is_empty() {
            return Err(ControlError::UnknownDisk { disk });
        }
    }
    Ok(all)
}

/// The same for what belongs to paths: a disk that uses those of another one cannot be named, and is left out of all.
pub(super) fn with_paths<T: OfDisk>(all: Vec<T>, disk: Option<String>) -> Result<Vec<T>, ControlError> {
    let named = disk.is_some();
    let mut meant = meant(all, disk)?;
    if let Some(sharer) = meant.first().filter(|_| named)
        && let Some(owner) = sharer.shares_paths_of()
    {
        return Err(ControlError::SharesPaths { disk: sharer.disk().into(), owner: owner.into() });
    }
    meant.retain(|of| of.shares_paths_of().is_none());
    Ok(meant)
}
