//! The disks as paths see them.
//!
//! The daemon takes the namespace that a disk's first path has led to for the disk's. This one knows it from the start, or a
//! fault at its start would make another one of the disk.

use mpath_core::{DiskId, PathId};
use mpath_host::{Admitted, News, Served, Unusable};
use nvme_tcp::host::ControllerInfo;

use super::DiskPlan;
use super::path::Failed;

pub(super) struct Disks<'a>(pub(super) &'a [DiskPlan]);

impl mpath_host::Disks for Disks<'_> {
    type Error = Failed;

    fn name(&self, disk: DiskId) -> String {
        format!("disk {}", disk.0)
    }

    fn served(&self, disk: DiskId) -> Option<Served> {
        let namespace = self.0[usize::from(disk.0)].namespace;
        Some(Served { namespace, shown_blocks: namespace.blocks })
    }

    fn admit(&mut self, info: &ControllerInfo) -> Result<Admitted<Failed>, Failed> {
        let admitted = info.namespaces.iter().zip((0..).map(DiskId)).map(|(found, disk)| {
            let found = found.clone().map_err(Unusable::from)?.identity;
            let served = self.served(disk).expect("it is known from the start");
            Ok(served.check(&found)?)
        });
        Ok(admitted.collect())
    }

    fn path_up(&mut self, _: PathId, _: Vec<News>) -> Result<(), (DiskId, Unusable)> {
        Ok(())
    }
}
