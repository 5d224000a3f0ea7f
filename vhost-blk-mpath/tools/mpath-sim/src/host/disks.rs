//! The disks, for the paths that lead to them.
//!
//! For most disks, an earlier daemon has recorded the namespace. Otherwise the first path decides, and the operator makes sure
//! that this path leads to the disk's namespace.

use std::collections::BTreeMap;

use monotonic::Duration;
use mpath_core::{DiskId, PathId, UnflushedPaths};
use mpath_lifecycle::{
    Admissions, AdmitError, DiskDriver, DiskHold, InheritedMismatch, InheritedNamespaces, NamespaceName,
    NamespaceUpdate, PathNamespaces, ServedNamespace, Size, Unusable,
};
use nvme_tcp::host::{ControllerInfo, IdentityMismatch, NamespaceIdentity};

use super::fences::Fences;
use super::files::{ShownDisk, ShownFiles};
use super::io_threads::Virtqueues;
use super::plan::HostPlan;
use super::socket::IoFailure;
use crate::rng::Rng;

/// Percentage of writes of a file that fail.
const SAVE_FAILS_PERCENT: u64 = 30;
/// The typical time of a write of a file.
const WRITE: Duration = Duration::from_millis(20);

/// The disks of a daemon.
pub(super) struct Disks {
    by_id: Vec<Disk>,
    subsystem: String,
    /// By path.
    namespaces: BTreeMap<PathId, PathNamespaces>,
    virtqueues: Virtqueues,
    files: ShownFiles,
    /// Nothing is saved any more.
    are_removed: bool,
    rng: Rng,
}

struct Disk {
    /// The namespace that the operator means.
    meant: NamespaceName,
    /// The namespace of a guest that may come back.
    of_guest: Option<NamespaceName>,
    /// Its namespace, once it is known.
    namespace: Option<NamespaceName>,
    /// The shipping driver, which decides about the disk.
    driver: DiskDriver,
    /// The namespace as the first path has found it.
    found: Option<NamespaceIdentity>,
    /// The blocks that its guest sees. `None`: no earlier daemon has saved them, and no path has found them.
    shown: Option<u64>,
}

impl Disks {
    /// The disks of this plan, as an earlier daemon has saved them.
    pub(super) fn new(
        host: &HostPlan,
        drivers: Vec<DiskDriver>,
        fences: &Fences,
        (files, virtqueues): (ShownFiles, Virtqueues),
        rng: Rng,
    ) -> Self {
        let disk = |(index, ((meant, mut driver), saved)): (usize, ((_, DiskDriver), &Option<ShownDisk>))| {
            let of_guest = fences.namespace_of_guest(index).cloned();
            let inherited = InheritedNamespaces { shown: None, of_guest: of_guest.as_ref() };
            let saved = saved.as_ref().filter(|saved| inherited.check(&saved.namespace).is_ok());
            if saved.is_some() {
                driver.opening.restored();
            }
            let (namespace, shown) = saved.map(|saved| (saved.namespace.clone(), saved.blocks)).unzip();
            Disk { meant, of_guest, namespace, driver, found: None, shown }
        };
        let by_id = host.namespaces().zip(drivers).zip(&files.0).enumerate().map(disk).collect();
        let subsystem = host.controller.subnqn.as_str().to_owned();
        Self { by_id, subsystem, namespaces: BTreeMap::new(), virtqueues, files, are_removed: false, rng }
    }

    /// The files that the daemon leaves. `under_way`: disks that were being saved with these blocks. Each of them may be saved or
    /// not.
    pub(super) fn into_files(mut self, under_way: Vec<(usize, u64)>) -> ShownFiles {
        for (disk, blocks) in under_way {
            if self.rng.percent(50) {
                self.files.0[disk] = self.to_be_saved(disk, blocks);
            }
        }
        self.files
    }

    /// Removes the files of all disks, because the disks are removed.
    pub(super) fn forget(&mut self) {
        self.are_removed = true;
        self.files.0.fill(None);
    }

    /// The time that the next write of a file takes. `blocks`: it saves the disk with these, unless it has them.
    pub(super) fn time_to_write(&mut self, disk: usize, blocks: Option<u64>) -> Duration {
        if blocks.is_some() && self.saved(disk) == blocks { Duration::ZERO } else { self.rng.tail(WRITE) }
    }

    /// The size in the file of a disk.
    pub(super) fn saved(&self, disk: usize) -> Option<u64> {
        self.files.0[disk].as_ref().map(|saved| saved.blocks)
    }

    /// The file of a disk with this size.
    fn to_be_saved(&self, disk: usize, blocks: u64) -> Option<ShownDisk> {
        let namespace = self.by_id[disk].namespace.clone().filter(|_| !self.are_removed)?;
        Some(ShownDisk { namespace, blocks })
    }

    /// Saves a disk with this size. Returns whether that has succeeded.
    pub(super) fn save(&mut self, disk: usize, blocks: u64) -> bool {
        if self.saved(disk) == Some(blocks) {
            return true;
        }
        let fails = self.rng.percent(SAVE_FAILS_PERCENT);
        if !fails {
            self.files.0[disk] = self.to_be_saved(disk, blocks);
        }
        !fails
    }

    /// Decides about a disk.
    pub(super) fn driver(&mut self, disk: usize) -> &mut DiskDriver {
        &mut self.by_id[disk].driver
    }

    /// Decides when requests of a disk are fetched.
    pub(super) fn hold(&self, disk: usize) -> &DiskHold {
        &self.by_id[disk].driver.hold
    }

    /// Whether front-ends of a disk are served.
    pub(super) fn is_open(&self, disk: usize) -> bool {
        self.by_id[disk].driver.opening.is_open()
    }

    /// The namespace of a disk, once it is known.
    pub(super) fn namespace(&self, disk: usize) -> Option<&NamespaceName> {
        self.by_id[disk].namespace.as_ref()
    }

    /// The blocks that the guest of a disk sees, once that is known.
    pub(super) fn shown(&self, disk: usize) -> Option<u64> {
        self.by_id[disk].shown
    }

    /// Shows guests the blocks to which a disk grows. Returns the disk and these blocks, if guests saw fewer.
    pub(super) fn grow(&mut self, disk: usize) -> Option<(usize, u64)> {
        let id = DiskId(disk as u16);
        let sizes = self.namespaces.values().filter_map(|path| path.blocks(id));
        let blocks = self.by_id[disk].driver.to_show(mpath_lifecycle::Disks::served(self, id)?, sizes)?;
        self.by_id[disk].shown = Some(blocks);
        Some((disk, blocks))
    }

    /// A live path reports a change of a namespace.
    pub(super) fn update(&mut self, path: PathId, update: NamespaceUpdate) {
        self.namespaces.get_mut(&path).expect("the path has an association").update(update);
    }

    /// The unflushed writes of a disk.
    pub(super) fn unflushed(&self, disk: DiskId) -> &UnflushedPaths {
        &self.by_id[usize::from(disk.0)].driver.shared().unflushed
    }

    /// The blocks of a disk's namespace on a path that leads there.
    pub(super) fn blocks(&self, path: PathId, disk: usize) -> Option<u64> {
        self.namespaces.get(&path)?.blocks(DiskId(disk as u16))
    }

    /// The I/O queues of a path count no more: it is removed, or leads elsewhere.
    pub(super) fn forget_grant(&self, path: PathId) {
        self.virtqueues.with(|virtqueues| virtqueues.forget_path(path));
    }

    /// Decides whether a path that has found this namespace may be used for the disk.
    fn admit_disk(&mut self, disk: usize, found: &NamespaceIdentity) -> Result<(), AdmitError<IoFailure>> {
        if let Some(served) = mpath_lifecycle::Disks::served(self, DiskId(disk as u16)) {
            return Ok(served.check(found)?);
        }
        let Disk { meant, of_guest, namespace, driver, found: known, shown } = &mut self.by_id[disk];
        let name = NamespaceName::new(&self.subsystem, found);
        let inherited = InheritedNamespaces { shown: namespace.as_ref(), of_guest: of_guest.as_ref() };
        let is_first = namespace.is_none() && of_guest.is_none();
        let checked = inherited.check(&name);
        if matches!(checked, Err(InheritedMismatch::Unverified(_))) || is_first && !found.has_identifier() {
            return Err(Unusable::from(IdentityMismatch::Unverified).into());
        }
        if checked.is_err() || is_first && !name.is_same(meant) {
            return Err(AdmitError::NoDisk(IoFailure));
        }
        namespace.get_or_insert(name);
        *shown = Some(match *shown {
            Some(shown) => driver.opening.size_when_found(shown, Size::of(found))?,
            None => found.blocks,
        });
        *known = Some(*found);
        driver.opening.found();
        Ok(())
    }
}

impl mpath_lifecycle::Disks for Disks {
    type Error = IoFailure;

    fn name(&self, disk: DiskId) -> String {
        format!("disk {}", disk.0)
    }

    fn served(&self, disk: DiskId) -> Option<ServedNamespace> {
        let Disk { found, shown, .. } = &self.by_id[usize::from(disk.0)];
        Some(ServedNamespace { namespace: (*found)?, shown_blocks: (*shown)? })
    }

    fn admit(&mut self, info: &ControllerInfo) -> Admissions<IoFailure> {
        let admitted = info.namespaces.iter().enumerate().map(|(disk, found)| {
            let found = found.clone().map_err(Unusable::from)?.identity;
            self.admit_disk(disk, &found)
        });
        admitted.collect()
    }

    fn io_queues_granted(&mut self, path: PathId, granted: u16) -> Result<(), u16> {
        self.virtqueues.with(|virtqueues| virtqueues.granted(path, granted))
    }

    fn path_up(&mut self, path: PathId, namespaces: Vec<NamespaceUpdate>) -> Result<(), (DiskId, Unusable)> {
        let mut admitted = PathNamespaces::default();
        admitted.begin(namespaces, |disk| self.served(disk))?;
        self.namespaces.insert(path, admitted);
        Ok(())
    }

    fn path_down(&mut self, path: PathId) {
        if let Some(namespaces) = self.namespaces.get_mut(&path) {
            namespaces.end();
        }
    }

    fn is_unflushed(&self, path: PathId) -> bool {
        self.by_id.iter().any(|disk| disk.driver.shared().unflushed.is_unflushed(path))
    }
}
