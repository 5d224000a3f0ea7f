//! The disks as paths see them.
//!
//! The daemon takes the namespace that a disk's first path has led to for the disk's. This one knows it from the start, or a
//! fault at its start would make another one of the disk.

use std::collections::BTreeMap;

use mpath_core::{DiskId, PathId};
use mpath_host::{Admissions, NamespaceUpdate, ServedNamespace, Unusable};
use nvme_tcp::host::ControllerInfo;

use super::DiskPlan;
use super::path::Failed;

pub(super) struct Disks(Vec<Disk>);

struct Disk {
    plan: DiskPlan,
    /// The blocks that its guest sees.
    shown: u64,
    /// The blocks by each path that leads to its namespace.
    sizes: BTreeMap<PathId, u64>,
}

impl Disks {
    /// The disks of this plan. Guests see `blocks` blocks of each.
    pub(super) fn new(plans: &[DiskPlan], shown: &[u64]) -> Self {
        let disk = |(plan, &shown): (&DiskPlan, _)| Disk { plan: plan.clone(), shown, sizes: BTreeMap::new() };
        Self(plans.iter().zip(shown).map(disk).collect())
    }

    fn disk(&mut self, disk: DiskId) -> &mut Disk {
        &mut self.0[usize::from(disk.0)]
    }

    /// The blocks that the guest of a disk sees.
    pub(super) fn shown(&self, disk: usize) -> u64 {
        self.0[disk].shown
    }

    /// The blocks that it may be shown, if these are more.
    pub(super) fn growth(&self, disk: usize) -> Option<u64> {
        let sizes = self.0[disk].sizes.values().copied();
        mpath_host::Disks::served(self, DiskId(disk as u16))?.growth(sizes)
    }

    /// Guests see `blocks` blocks from now on.
    pub(super) fn grow(&mut self, disk: usize, blocks: u64) {
        self.0[disk].shown = blocks;
    }

    /// A live path has news of a namespace.
    pub(super) fn told(&mut self, path: PathId, news: &NamespaceUpdate) {
        let sizes = &mut self.disk(news.disk).sizes;
        if news.unusable.is_none() {
            sizes.insert(path, news.blocks);
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
    type Error = Failed;

    fn name(&self, disk: DiskId) -> String {
        format!("disk {}", disk.0)
    }

    fn served(&self, disk: DiskId) -> Option<ServedNamespace> {
        let Disk { plan, shown, .. } = &self.0[usize::from(disk.0)];
        Some(ServedNamespace { namespace: plan.namespace, shown_blocks: *shown })
    }

    fn admit(&mut self, info: &ControllerInfo) -> Result<Admissions<Failed>, Failed> {
        let admitted = info.namespaces.iter().zip((0..).map(DiskId)).map(|(found, disk)| {
            let found = found.clone().map_err(Unusable::from)?.identity;
            let served = self.served(disk).expect("it is known from the start");
            Ok(served.check(&found)?)
        });
        Ok(admitted.collect())
    }

    fn path_up(&mut self, path: PathId, namespaces: Vec<NamespaceUpdate>) -> Result<(), (DiskId, Unusable)> {
        mpath_host::check_sizes(&namespaces, |disk| self.served(disk))?;
        for news in &namespaces {
            self.told(path, news);
        }
        Ok(())
    }
}
