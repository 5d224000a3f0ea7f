//! The disks, for the paths that lead to them.
//!
//! The daemon learns the namespace of a disk from the first path. The simulator sets it from the start, as a fault at the start could
//! make another namespace the disk's.

use std::collections::BTreeMap;

use mpath_core::{DiskId, PathId, SharedDisk};
use mpath_host::{Admissions, NamespaceUpdate, ServedNamespace, Unusable};
use nvme_tcp::host::ControllerInfo;

use super::files::ShownFiles;
use super::plan::{DiskPlan, HostPlan};
use super::socket::IoFailure;
use crate::rng::Rng;

/// Percentage of writes of a file that fail.
const SAVE_FAILS_PERCENT: u64 = 30;

/// The disks of a daemon.
pub(super) struct Disks {
    by_id: Vec<Disk>,
    files: ShownFiles,
    pub(super) rng: Rng,
}

struct Disk {
    plan: DiskPlan,
    shared: SharedDisk,
    /// The blocks that its guest sees. `None`: front-ends wait until a path works.
    shown: Option<u64>,
    /// By path that leads to its namespace: the blocks that it reports.
    sizes: BTreeMap<PathId, u64>,
}

impl Disks {
    /// The disks of this plan, as an earlier daemon has saved them.
    pub(super) fn new(plan: &HostPlan, shared: &[SharedDisk], files: ShownFiles, rng: Rng) -> Self {
        let disk = |((plan, shared), &shown): ((&DiskPlan, &SharedDisk), _)| Disk {
            plan: plan.clone(),
            shared: shared.clone(),
            shown,
            sizes: BTreeMap::new(),
        };
        let by_id = plan.disks.iter().zip(shared).zip(&files.0).map(disk).collect();
        Self { by_id, files, rng }
    }

    /// The daemon is gone, while these disks were saved with these blocks.
    pub(super) fn into_files(mut self, under_way: impl Iterator<Item = (usize, u64)>) -> ShownFiles {
        for (disk, blocks) in under_way {
            if self.rng.percent(50) {
                self.files.0[disk] = Some(blocks);
            }
        }
        self.files
    }

    /// Saves a disk with this size: whether no file says otherwise. If that fails, the file is removed, which may fail too.
    pub(super) fn save(&mut self, disk: usize, blocks: u64) -> bool {
        let file = &mut self.files.0[disk];
        let fails = *file != Some(blocks) && self.rng.percent(SAVE_FAILS_PERCENT);
        if !fails {
            *file = Some(blocks);
        } else if self.rng.percent(50) {
            *file = None;
        }
        !fails || file.is_none()
    }

    fn disk(&mut self, disk: DiskId) -> &mut Disk {
        &mut self.by_id[usize::from(disk.0)]
    }

    /// The blocks that the guest of a disk sees, once that is known.
    pub(super) fn shown(&self, disk: usize) -> Option<u64> {
        self.by_id[disk].shown
    }

    /// The blocks that each path to a disk reports.
    pub(super) fn sizes(&self, disk: usize) -> impl Iterator<Item = u64> {
        self.by_id[disk].sizes.values().copied()
    }

    /// Guests see `blocks` blocks from now on.
    pub(super) fn grow(&mut self, disk: usize, blocks: u64) {
        self.by_id[disk].shown = Some(blocks);
    }

    /// A live path reports a change of a namespace.
    pub(super) fn update(&mut self, path: PathId, update: &NamespaceUpdate) {
        let sizes = &mut self.disk(update.disk).sizes;
        if update.unusable.is_none() {
            sizes.insert(path, update.blocks);
        } else {
            sizes.remove(&path);
        }
    }

    /// Whether a path leads to the namespace of a disk.
    pub(super) fn leads_to(&self, path: PathId, disk: DiskId) -> bool {
        self.by_id[usize::from(disk.0)].sizes.contains_key(&path)
    }

    /// A path is not live any more.
    pub(super) fn path_down(&mut self, path: PathId) {
        for disk in &mut self.by_id {
            disk.sizes.remove(&path);
        }
    }
}

impl mpath_host::Disks for Disks {
    type Error = IoFailure;

    fn name(&self, disk: DiskId) -> String {
        format!("disk {}", disk.0)
    }

    fn served(&self, disk: DiskId) -> Option<ServedNamespace> {
        let Disk { plan, shown, .. } = &self.by_id[usize::from(disk.0)];
        Some(ServedNamespace { namespace: plan.namespace, shown_blocks: shown.unwrap_or_default() })
    }

    fn admit(&mut self, info: &ControllerInfo) -> Result<Admissions<IoFailure>, IoFailure> {
        let admitted = info.namespaces.iter().enumerate().map(|(disk, found)| {
            let found = found.clone().map_err(Unusable::from)?.identity;
            let served = self.served(DiskId(disk as u16)).expect("it is set from the start");
            served.check(&found)?;
            if self.by_id[disk].shown.is_none() {
                // No file says what front-ends have seen, so they see what the first path has.
                self.by_id[disk].shown = Some(found.blocks);
                self.save(disk, found.blocks);
            }
            Ok(())
        });
        Ok(admitted.collect())
    }

    fn path_up(&mut self, path: PathId, namespaces: Vec<NamespaceUpdate>) -> Result<(), (DiskId, Unusable)> {
        mpath_host::check_sizes(&namespaces, |disk| self.served(disk))?;
        for update in &namespaces {
            self.update(path, update);
        }
        Ok(())
    }

    fn is_unflushed(&self, path: PathId) -> bool {
        self.by_id.iter().any(|disk| disk.shared.unflushed.is_unflushed(path))
    }
}
