//! Decides: a path is admitted to its disks: namespace, earlier daemons, other writers (`take_namespace`).
//! Decides: a front-end is answered before a path works (`restore_shown`).
//! Decides: a path that lacks something which front-ends were shown is refused (`check_shown`).
//!
//! Decides which namespace a disk has, and whether a path may be used for the disk.
//!
//! The first path of a disk decides, unless an earlier daemon has shown the disk to front-ends. No guest's data may be
//! harmed by that: see [`Subsystem::take_namespace`].

use std::sync::{Arc, PoisonError};

use mpath_api::types::EventKind;
use mpath_lifecycle::{Admissions, AdmitError, InheritedMismatch, InheritedNamespaces, NamespaceName, Size, Unusable};
use nvme_tcp::host::{ControllerInfo, IdentityMismatch, Namespace, NamespaceError};
use vhost_user_blk::{DiskGeometry, VirtioDisk};

use crate::disk::geometry;
use crate::disk::refused_namespace::RefusedNamespace;
use crate::disk::{Backing, Disk, FoundNamespace};
use crate::disk_files::shown_disk::ShownDisk;
use crate::subsystem::Subsystem;
use crate::subsystem::error::HostError;

/// The cost of a lost path if each controller has a volatile write cache.
const OWN_CACHES: &str = "the controller has a volatile write cache, and `shared-write-cache` is not set: once a path with unflushed \
    writes is lost, the guest's next flush fails, and its file system may become read-only; set `shared-write-cache: true` if all \
    controllers are of one kernel or process, as with Linux nvmet or SPDK on one node; leave it out if each controller has a cache of \
    its own";

impl Subsystem {
    /// Admits a path for each disk whose namespace it leads to. The first path of a disk decides which namespace that
    /// is. The first admitted path of all starts the I/O threads.
    pub(crate) fn admit(&self, info: &ControllerInfo) -> Admissions<HostError> {
        let _one_at_a_time = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.disks.iter().zip(&info.namespaces);
        let admitted: Vec<_> = found.map(|(disk, found)| self.admit_disk(disk, info, found)).collect();
        if admitted.iter().any(Result::is_ok) && self.threads.get().is_none() {
            self.start_threads();
        }
        self.add_disks();
        admitted
    }

    /// Tells the I/O threads of all known disks.
    fn add_disks(&self) {
        // A thread ignores a disk that it already knows.
        for (disk, backing) in self.disks.iter().filter_map(|disk| Some((disk, disk.backing()?))) {
            for thread in self.threads() {
                let queues = Arc::clone(&disk.queues);
                thread.add_disk(disk.id, disk.name().into(), backing.block_bytes(), queues);
            }
        }
    }

    fn admit_disk(
        &self,
        disk: &Disk,
        info: &ControllerInfo,
        found: &Result<Namespace, NamespaceError>,
    ) -> Result<(), AdmitError<HostError>> {
        let identity = found.clone().map_err(Unusable::from)?.identity;
        if let Some(served) = disk.backing().and_then(Backing::served_namespace) {
            return Ok(served.check(&identity)?);
        }
        let name = NamespaceName::new(self.config.subsystem.as_str(), &identity);
        let geometry = geometry::of(&disk.settings, info, &identity);
        let several = self.state().paths().nth(1).is_some();
        if several {
            identity.check_multipath().map_err(Unusable::from)?;
        }
        let backing = if let Some(backing) = disk.backing() {
            self.check_shown(disk, backing, &name, &geometry)?;
            backing
        } else {
            let frontend = VirtioDisk::new(geometry.clone());
            let frontend = frontend.map_err(|error| AdmitError::NoDisk(error.into()))?;
            self.take_namespace(disk, &name)?;
            self.set_known(disk, name, frontend)
        };
        {
            // No front-end is served meanwhile, which would see a size that is not saved.
            let mut driver = disk.driver();
            let blocks = driver.opening.size_when_found(backing.blocks(), Size::of(&identity))?;
            backing.grow(blocks).map_err(|error| AdmitError::NoDisk(error.into()))?;
            backing.set_found(FoundNamespace { identity, geometry });
            driver.opening.found();
        }
        if info.volatile_write_cache && !self.config.shared_write_cache && !disk.settings.read_only {
            disk.event(EventKind::VolatileWriteCache, OWN_CACHES);
        }
        disk.accept();
        Ok(())
    }

    /// Makes the namespace and the virtio disk known, before front-ends are served.
    fn set_known<'a>(&self, disk: &'a Disk, name: NamespaceName, frontend: VirtioDisk) -> &'a Backing {
        let index = usize::from(disk.id.0);
        let frontend = if disk.settings.mpath_window { frontend.with_vendor_window() } else { frontend };
        if self.records.has_lost_writes(index, &name) {
            disk.shared.unflushed.set_lost(disk.queues.served_since());
        }
        self.records.set_namespace(index, name.clone());
        let backing = disk.set_backing(Backing::new(name, frontend));
        self.update_vendor_windows(&self.state());
        backing
    }

    /// Makes disks known that an earlier daemon has shown to front-ends, so that front-ends are served before a path
    /// works. Their requests wait for a path that leads to the same namespace.
    pub(crate) fn restore_shown(&self) {
        let _one_at_a_time = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        for disk in &self.disks {
            self.restore_disk(disk);
        }
        if self.disks.iter().all(|disk| disk.backing().is_none()) {
            return;
        }
        self.start_threads();
        self.add_disks();
    }

    fn restore_disk(&self, disk: &Disk) {
        let file = self.records.shown(disk.id.0.into());
        let Some(shown) = file.load(self.config.subsystem.as_str(), &disk.settings) else { return };
        let frontend = match VirtioDisk::new(shown.geometry) {
            Ok(frontend) => frontend,
            Err(error) => {
                let file = file.path().display();
                tracing::warn!(disk = disk.name(), %file, %error, "cannot show front-ends the disk that they were shown; they wait until a path works");
                return;
            }
        };
        // A path will report the same reason.
        if self.take_namespace(disk, &shown.namespace).is_ok() {
            self.set_known(disk, shown.namespace, frontend);
            disk.driver().opening.restored();
        }
    }

    /// Makes the namespace the disk's again if it still has everything that front-ends were shown.
    fn check_shown(
        &self,
        disk: &Disk,
        backing: &Backing,
        found: &NamespaceName,
        geometry: &DiskGeometry,
    ) -> Result<(), AdmitError<HostError>> {
        self.take_namespace(disk, found)?;
        let Some(lost) = geometry::lost(backing.frontend.geometry(), geometry) else { return Ok(()) };
        let (name, file) = (disk.name().to_owned(), self.records.shown(disk.id.0.into()).path().to_owned());
        Err(refuse(disk, RefusedNamespace::Changed { disk: name, namespace: Box::new(found.clone()), lost, file }))
    }

    /// The disk as the next daemon shows it to front-ends, with this size. `None` if no path has led to the namespace,
    /// or if nothing identifies the namespace: another would not be noticed.
    pub(crate) fn to_be_shown(&self, disk: &Disk, capacity_sectors: u64) -> Option<ShownDisk> {
        let backing = disk.backing()?;
        let FoundNamespace { identity, geometry } = backing.found()?;
        let subsystem = self.config.subsystem.as_str();
        let name = NamespaceName::new(subsystem, identity);
        if !name.has_identifier() {
            return None;
        }
        let geometry = DiskGeometry { capacity_sectors, ..geometry.clone() };
        Some(ShownDisk::new(subsystem, &disk.settings, name, geometry))
    }

    /// Lets other disks write to the namespaces of these disks. To be called when no writes are left, or their fence is
    /// known to disks that are added.
    pub(crate) fn release_namespaces(&self) {
        self.writers.remove(self.name());
    }

    /// Makes the namespace the disk's, unless that could harm the data of another guest.
    fn take_namespace(&self, disk: &Disk, namespace: &NamespaceName) -> Result<(), AdmitError<HostError>> {
        let (name, index) = (disk.name().to_owned(), disk.id.0.into());
        let shown = disk.backing().map(|backing| &backing.name);
        let inherited = InheritedNamespaces { shown, of_guest: self.records.previous_namespace(index) };
        let refused = match inherited.check(namespace) {
            Err(InheritedMismatch::Shown(before)) => {
                let file = self.records.shown(index).path().to_owned();
                let (namespace, before) = (Box::new(namespace.clone()), Box::new(before.clone()));
                RefusedNamespace::NotShown { disk: name, namespace, before, file }
            }
            Err(InheritedMismatch::OfGuest(before)) => {
                let file = self.records.file(index).to_owned();
                let (namespace, before) = (Box::new(namespace.clone()), Box::new(before.clone()));
                RefusedNamespace::OfOtherGuest { disk: name, namespace, before, file }
            }
            // The path is tried again.
            Err(InheritedMismatch::Unverified(_)) => {
                return Err(Unusable::from(IdentityMismatch::Unverified).into());
            }
            Ok(()) if disk.settings.read_only => return Ok(()),
            Ok(()) => {
                let Err(of) = self.writers.add(self.name(), &name, namespace) else { return Ok(()) };
                let NamespaceName { subsystem, nsid, .. } = namespace.clone();
                RefusedNamespace::HasWriter { disk: name, of, nsid, subsystem }
            }
        };
        Err(refuse(disk, refused))
    }
}

/// Records and reports that a disk must not use a namespace.
fn refuse(disk: &Disk, refused: RefusedNamespace) -> AdmitError<HostError> {
    disk.refuse(&refused);
    AdmitError::NoDisk(refused.into())
}

#[cfg(test)]
mod tests {
    use crate::service::testing::service;

    use super::*;

    #[test]
    fn a_volatile_write_cache_is_told_at_the_first_path_alone() {
        let place = tempfile::tempdir().unwrap();
        let (service, _) = service(&place.path().join("socket"), None);
        let told = || {
            let events = service.subsystem.events.after(0).events.into_iter();
            events.filter(|event| event.kind == EventKind::VolatileWriteCache).collect::<Vec<_>>()
        };
        assert_eq!(told().len(), 0);
        for _ in 0..3 {
            assert!(service.subsystem.admit(&geometry::tests::controller())[0].is_ok());
        }
        let told = told();
        assert!(told.len() == 1 && told[0].message.contains("set `shared-write-cache: true`"), "{told:?}");
        reactor::IoThreadHandle::end_all(service.subsystem.threads());
    }
}
