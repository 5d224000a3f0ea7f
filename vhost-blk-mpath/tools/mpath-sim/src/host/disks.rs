//! The disks, for the paths that lead to them.
//!
//! The daemon learns the namespace of a disk from the first path. The simulator sets it from the start, as a fault at the start could
//! make another namespace the disk's.

use std::collections::BTreeMap;

use mpath_core::{DiskId, PathId, SharedDisk};
use mpath_host::{Admissions, NamespaceUpdate, ServedNamespace, Unusable};
use nvme_tcp::host::ControllerInfo;

use super::plan::DiskPlan;
use super::socket::IoFailure;

/// The disks of a daemon.
pub(super) struct Disks(Vec<Disk>);

struct Disk {
    plan: DiskPlan,
    shared: SharedDisk,
    /// The blocks that its guest sees.
    shown: u64,
    /// By path that leads to its namespace: the blocks that it reports.
    sizes: BTreeMap<PathId, u64>,
}

impl Disks {
    /// The disks of this plan, with the blocks that their guests see.
    pub(super) fn new(plans: &[DiskPlan], shared: &[SharedDisk], shown: &[u64]) -> Self {
        let disk = |((plan, shared), &shown): ((&DiskPlan, &SharedDisk), _)| Disk {
            plan: plan.clone(),
            shared: shared.clone(),
            shown,
            sizes: BTreeMap::new(),
        };
        Self(plans.iter().zip(shared).zip(shown).map(disk).collect())
    }

    fn disk(&mut self, disk: DiskId) -> &mut Disk {
        &mut self.0[usize::from(disk.0)]
    }

    /// The blocks that the guest of a disk sees.
    pub(super) fn shown(&self, disk: usize) -> u64 {
        self.0[disk].shown
    }

    /// The blocks that the guest of a disk may be shown, if these are more.
    pub(super) fn growth(&self, disk: usize) -> Option<u64> {
        let sizes = self.0[disk].sizes.values().copied();
        mpath_host::Disks::served(self, DiskId(disk as u16))?.growth(sizes)
    }

    /// Guests see `blocks` blocks from now on.
    pub(super) fn grow(&mut self, disk: usize, blocks: u64) {
        self.0[disk].shown = blocks;
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

    /// A path is not live any more.
    pub(super) fn path_down(&mut self, path: PathId) {
        for disk in &mut self.0 {
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
        let Disk { plan, shown, .. } = &self.0[usize::from(disk.0)];
        Some(ServedNamespace { namespace: plan.namespace, shown_blocks: *shown })
    }

    fn admit(&mut self, info: &ControllerInfo) -> Result<Admissions<IoFailure>, IoFailure> {
        let admitted = info.namespaces.iter().zip((0..).map(DiskId)).map(|(found, disk)| {
            let found = found.clone().map_err(Unusable::from)?.identity;
            let served = self.served(disk).expect("it is set from the start");
            Ok(served.check(&found)?)
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
        self.0.iter().any(|disk| disk.shared.unflushed.is_unflushed(path))
    }
}
