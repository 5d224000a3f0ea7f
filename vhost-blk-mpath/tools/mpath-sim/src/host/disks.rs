//! The disks, for the paths that lead to them.
//!
//! For most disks, an earlier daemon has recorded the namespace. Otherwise the first path decides, and the operator makes sure
//! that this path leads to the disk's namespace.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpath_core::{DiskId, PathId, SharedDisk, UnflushedPaths};
use mpath_host::{
    Admissions, AdmitError, AnotherRemembered, DiskOpening, NamespaceName, NamespaceUpdate, PathNamespaces, Remembered,
    ServedNamespace, Unusable,
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
    shared: SharedDisk,
    /// The shipping state machine, which decides when front-ends are served.
    opening: DiskOpening,
    /// The namespace as the first path has found it.
    found: Option<NamespaceIdentity>,
    /// The blocks that its guest sees. `None`: no earlier daemon has saved them, and no path has found them.
    shown: Option<u64>,
    /// The opening or a growth of the disk is saving it. The other of the two waits.
    is_being_saved: bool,
}

impl Disks {
    /// The disks of this plan, as an earlier daemon has saved them.
    pub(super) fn new(
        now: Instant,
        host: &HostPlan,
        shared: &[SharedDisk],
        fences: &Fences,
        (files, virtqueues): (ShownFiles, Virtqueues),
        rng: Rng,
    ) -> Self {
        let disk = |(index, ((meant, shared), saved)): (usize, ((NamespaceName, &SharedDisk), &Option<ShownDisk>))| {
            let mut opening = DiskOpening::new(now, host.reconnect_delay);
            let of_guest = fences.namespace_of_guest(index).cloned();
            let remembered = Remembered { shown: None, of_guest: of_guest.as_ref() };
            let saved = saved.as_ref().filter(|saved| remembered.check(&saved.namespace).is_ok());
            if saved.is_some() {
                opening.restored();
            }
            let (namespace, shown) = saved.map(|saved| (saved.namespace.clone(), saved.blocks)).unzip();
            Disk {
                meant,
                of_guest,
                namespace,
                shared: shared.clone(),
                opening,
                found: None,
                shown,
                is_being_saved: false,
            }
        };
        let by_id = host.namespaces().zip(shared).zip(&files.0).enumerate().map(disk).collect();
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

    /// Begins to save a disk, unless it is being saved. Returns whether it has begun.
    pub(super) fn begin_to_save(&mut self, disk: usize) -> bool {
        !std::mem::replace(&mut self.by_id[disk].is_being_saved, true)
    }

    /// The disk is not being saved any more.
    pub(super) fn end_to_save(&mut self, disk: usize) {
        self.by_id[disk].is_being_saved = false;
    }

    /// The time that the next write of a file takes.
    pub(super) fn time_to_write(&mut self) -> Duration {
        self.rng.tail(WRITE)
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

    /// Decides when front-ends of a disk are served.
    pub(super) fn opening(&mut self, disk: usize) -> &mut DiskOpening {
        &mut self.by_id[disk].opening
    }

    /// Whether front-ends of a disk are served.
    pub(super) fn is_open(&self, disk: usize) -> bool {
        self.by_id[disk].opening.is_open()
    }

    /// The namespace of a disk, once it is known.
    pub(super) fn namespace(&self, disk: usize) -> Option<&NamespaceName> {
        self.by_id[disk].namespace.as_ref()
    }

    /// The blocks that the guest of a disk sees, once that is known.
    pub(super) fn shown(&self, disk: usize) -> Option<u64> {
        self.by_id[disk].shown
    }

    /// The blocks that each path to a disk reports.
    pub(super) fn sizes(&self, disk: usize) -> impl Iterator<Item = u64> {
        self.namespaces.values().filter_map(move |path| path.blocks(DiskId(disk as u16)))
    }

    /// Guests see `blocks` blocks from now on.
    pub(super) fn grow(&mut self, disk: usize, blocks: u64) {
        self.by_id[disk].shown = Some(blocks);
    }

    /// A live path reports a change of a namespace.
    pub(super) fn update(&mut self, path: PathId, update: NamespaceUpdate) {
        self.namespaces.get_mut(&path).expect("the path has an association").update(update);
    }

    /// The unflushed writes of a disk.
    pub(super) fn unflushed(&self, disk: DiskId) -> &UnflushedPaths {
        &self.by_id[usize::from(disk.0)].shared.unflushed
    }

    /// Whether a path leads to the namespace of a disk.
    pub(super) fn leads_to(&self, path: PathId, disk: DiskId) -> bool {
        self.namespaces.get(&path).is_some_and(|path| path.leads_to(disk))
    }

    /// The I/O queues of a path count no more: it is removed, or leads elsewhere.
    pub(super) fn forget_grant(&self, path: PathId) {
        self.virtqueues.with(|virtqueues| virtqueues.forget_path(path));
    }

    /// Decides whether a path that has found this namespace may be used for the disk.
    fn admit_disk(&mut self, disk: usize, found: &NamespaceIdentity) -> Result<(), AdmitError<IoFailure>> {
        if let Some(served) = mpath_host::Disks::served(self, DiskId(disk as u16)) {
            return Ok(served.check(found)?);
        }
        let Disk { meant, of_guest, namespace, opening, found: known, shown, .. } = &mut self.by_id[disk];
        let name = NamespaceName::new(&self.subsystem, found);
        let remembered = Remembered { shown: namespace.as_ref(), of_guest: of_guest.as_ref() };
        let is_first = namespace.is_none() && of_guest.is_none();
        let checked = remembered.check(&name);
        if matches!(checked, Err(AnotherRemembered::Unverified(_))) || is_first && !found.has_identifier() {
            return Err(Unusable::from(IdentityMismatch::Unverified).into());
        }
        if checked.is_err() || is_first && !name.is_same(meant) {
            return Err(AdmitError::NoDisk(IoFailure));
        }
        namespace.get_or_insert(name);
        *shown = Some(match *shown {
            Some(shown) => opening.size_when_found(shown, found.blocks)?,
            None => found.blocks,
        });
        *known = Some(*found);
        opening.found();
        Ok(())
    }
}

impl mpath_host::Disks for Disks {
    type Error = IoFailure;

    fn name(&self, disk: DiskId) -> String {
        format!("disk {}", disk.0)
    }

    fn served(&self, disk: DiskId) -> Option<ServedNamespace> {
        let Disk { found, shown, .. } = &self.by_id[usize::from(disk.0)];
        Some(ServedNamespace { namespace: (*found)?, shown_blocks: (*shown)? })
    }

    fn admit(&mut self, info: &ControllerInfo) -> Result<Admissions<IoFailure>, IoFailure> {
        let admitted = info.namespaces.iter().enumerate().map(|(disk, found)| {
            let found = found.clone().map_err(Unusable::from)?.identity;
            self.admit_disk(disk, &found)
        });
        Ok(admitted.collect())
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
        self.by_id.iter().any(|disk| disk.shared.unflushed.is_unflushed(path))
    }
}
