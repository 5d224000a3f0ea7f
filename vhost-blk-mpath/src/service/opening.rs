//! Opens disks: when a path has shown a disk's namespace, its front-ends are served.
//!
//! [`Subsystem::admit`] has checked before that the disk may use the namespace. The fences that removed disks have left
//! on the namespace, and its name, are in the fence record before a front-end can submit a request.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_core::DiskId;
use mpath_host::{DiskHold, InheritedFence, TriedPath};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until};

use crate::disk::Disk;
use crate::service::Service;
use crate::service::disks::Disks;
use crate::service::start_error::StartError;
use crate::subsystem::path_status::PathStatus;
use crate::transport::far_future;

/// How long front-ends are not answered from the description of an earlier daemon while paths make their first attempt.
/// If a path works, the description may have to change: a front-end should not see a size that a moment later is another.
const PATIENCE: Duration = Duration::from_secs(1);

impl Service {
    /// Opens each disk when its namespace is known, saves what its front-ends see, and lets their requests go on. Ends with
    /// the subsystem, or when nothing of that is left to do.
    pub(crate) async fn open_disks(self: Arc<Self>, disks: Arc<Disks>) {
        let (mut changes, mut ending) = (self.subsystem.changes(), self.ends.subscribe());
        let is_done = |disk: &Disk| disk.is_served() && is_found(disk) && disk.hold().is_over();
        let patient_until = Instant::now() + PATIENCE;
        loop {
            changes.borrow_and_update();
            let are_all_done = self.subsystem.disks.iter().all(is_done);
            let is_patient = self.is_untried() && Instant::now() < patient_until;
            let result = self.open_known(&disks, is_patient).await;
            self.update_holds().await;
            if are_all_done && result.is_ok() {
                return;
            }
            if let Err(error) = &result {
                tracing::error!(disk = self.subsystem.name(), %error, "front-ends have to wait; trying again");
            }
            let next_timeout = self.subsystem.disks.iter().filter_map(|disk| disk.hold().next_timeout()).min();
            tokio::select! {
                _ = changes.changed(), if result.is_ok() => {}
                () = sleep_until(patient_until.into()), if is_patient => {}
                () = sleep_until(next_timeout.unwrap_or_else(far_future).into()) => {}
                () = sleep(self.subsystem.config.reconnect_delay.duration()), if result.is_err() => {}
                _ = ending.wait_for(|ends| *ends) => return,
            }
        }
    }

    /// Opens the disks with a known namespace. If `is_patient`, only those that a path has led to. The future must not be
    /// dropped, as fence and record would differ.
    pub(crate) async fn open_known(&self, disks: &Disks, is_patient: bool) -> Result<(), StartError> {
        let subsystem = &self.subsystem;
        let mut some_opened = false;
        let known: Vec<DiskId> = subsystem.known().map(|disk| disk.id).collect();
        for disk in known.into_iter().map(|id| subsystem.disk(id)) {
            if disk.is_served() || is_patient && !is_found(disk) {
                if let Err(error) = subsystem.save_current(disk).await {
                    tracing::warn!(%error, "front-ends see the disk as it is now");
                }
                continue;
            }
            self.inherit_pending(disk, disks).await?;
            // Before a front-end can submit requests, which no other namespace may receive.
            subsystem.records.write_namespace(disk.id.0.into()).await?;
            // Last, as a path may lead there meanwhile and have the disk grow. Without a file, the next daemon lets front-ends wait.
            subsystem.save_current(disk).await?;
            self.change_hold(disk.id, DiskHold::open);
            disk.set_served();
            some_opened = true;
            let frontends = self.frontends();
            // At the end of the daemon there are no more.
            if let Some(frontend) = frontends.get(usize::from(disk.id.0)) {
                frontend.open();
                tracing::info!(disk = disk.name(), socket = %disk.settings.socket_path, "front-ends are served");
            }
        }
        if some_opened {
            subsystem.signal_change();
        }
        Ok(())
    }

    /// Tells the disks' holds of the present paths and time, and removes fences that have passed from the fence record.
    async fn update_holds(&self) {
        let is_released = |disk: &&Disk| self.change_hold(disk.id, DiskHold::update);
        let released: Vec<_> = self.subsystem.disks.iter().filter(is_released).collect();
        for disk in released {
            if let Err(error) = self.subsystem.records.remove_inherited(disk.id.0.into()).await {
                let disk = disk.name();
                tracing::warn!(disk, %error, "cannot update the fence record; the next daemon may have to wait longer");
            }
            self.subsystem.signal_change();
        }
    }

    /// Changes the hold of a disk, which depends on the time, the first logs and the paths.
    fn change_hold(&self, id: DiskId, change: impl FnOnce(&mut DiskHold, Instant, bool, &[TriedPath])) -> bool {
        let first_logs_are_done = self.discovery.as_ref().is_none_or(|discovery| discovery.first_logs_are_done());
        let tried = |path: &PathStatus| TriedPath { trial: path.trial, leads_to_disk: path.leads_to(id) };
        let paths: Vec<_> = self.subsystem.state().paths().map(tried).collect();
        self.subsystem.change_hold(id, |hold| change(hold, Instant::now(), first_logs_are_done, &paths))
    }

    /// Has the disk wait for fences that removed disks left on its namespace.
    async fn inherit_pending(&self, disk: &Disk, disks: &Disks) -> Result<(), StartError> {
        let namespace = &disk.backing().expect("its namespace is known").name;
        while let Some(left) = disks.pending_fence(namespace, Instant::now()) {
            if disk.inherited_fence().is_some_and(|fence| fence.until >= left.until) {
                break;
            }
            let (records, index, recorded) = (self.subsystem.records.clone(), disk.id.0, left.recorded(Instant::now()));
            // Writing to disk can take a while, and this thread must not block.
            let written = spawn_blocking(move || records.inherit(index.into(), recorded));
            written.await.map_err(io::Error::other)??;
            disk.inherit(InheritedFence { until: left.until, of: left.disk });
        }
        Ok(())
    }
}

/// Whether a path has led to the disk's namespace.
fn is_found(disk: &Disk) -> bool {
    disk.backing().is_some_and(|backing| backing.found().is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use mpath_core::{Epoch, PathId};
    use mpath_host::{NamespaceName, RecordedAssociation};
    use nvme_tcp::host::HostIdentity;
    use tokio::sync::watch;

    use super::*;
    use crate::disk::geometry;
    use crate::disk::settings::DiskSettings;
    use crate::events::EventLog;
    use crate::fence_record::FenceRecords;
    use crate::fence_record::shown_disk::ShownDisk;
    use crate::subsystem::Subsystem;
    use crate::subsystem::shared_context::SharedContext;

    /// One without front-ends and discovery.
    fn service(subsystem: &Arc<Subsystem>, ends: watch::Sender<bool>) -> Service {
        Service {
            subsystem: Arc::clone(subsystem),
            places: vec![None],
            discovery: None,
            ends,
            frontends: Mutex::default(),
            in_doubt: AtomicBool::new(false),
            tasks: Mutex::default(),
        }
    }

    /// The path that reported the disk's namespace may not have come up, while another path serves another disk.
    #[tokio::test]
    async fn the_record_names_the_namespace_before_front_ends_are_served() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let (records, _) = FenceRecords::open([socket.as_path()].into_iter()).unwrap();
        let association = RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms: 5_000 };
        records.add(PathId(0), Epoch(1), association).await.unwrap();
        let host = HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] };
        let common = SharedContext { host, io_threads: 1, events: Arc::new(EventLog::new()), writers: Arc::default() };
        let (ends, ending) = watch::channel(false);
        let subsystem = Arc::new(Subsystem::new(geometry::tests::config(), &common, records, None, ending));
        assert!(subsystem.admit(&geometry::tests::controller()).unwrap()[0].is_ok());
        let named = || std::fs::read_to_string(subsystem.records.file(0)).unwrap().contains("nqn.example");
        assert!(!named());
        let service = service(&subsystem, ends);
        let config = "/tmp/api".parse().unwrap();
        let disks = Disks::new(common, config, Arc::default());
        service.open_known(&disks, true).await.unwrap();
        assert!(named() && subsystem.disks[0].is_served());
    }

    /// A path may lead to the namespace of a restored disk while the fence record is written.
    #[tokio::test]
    async fn a_size_is_saved_before_front_ends_see_it() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let open = || FenceRecords::open([socket.as_path()].into_iter()).unwrap().0;
        let mut info = geometry::tests::controller();
        info.namespaces[0].as_mut().unwrap().identity.uuid = [7; 16];
        let identity = info.namespaces[0].as_ref().unwrap().identity;
        let settings = DiskSettings::all(&geometry::tests::config()).remove(0);
        let name = NamespaceName::new("nqn.example", &identity);
        let shown = ShownDisk::new("nqn.example", &settings, name, geometry::of(&settings, &info, &identity));
        open().shown(0).save(shown).await.unwrap();

        let host = HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] };
        let common = SharedContext { host, io_threads: 1, events: Arc::new(EventLog::new()), writers: Arc::default() };
        let (ends, ending) = watch::channel(false);
        let subsystem = Arc::new(Subsystem::new(geometry::tests::config(), &common, open(), None, ending));
        subsystem.restore_shown();
        let service = service(&subsystem, ends);
        let disks = Disks::new(common, "/tmp/api".parse().unwrap(), Arc::default());
        let mut opening = std::pin::pin!(service.open_known(&disks, false));
        tokio::select! {
            biased;
            _ = &mut opening => panic!("it writes the record first"),
            () = std::future::ready(()) => {}
        }
        info.namespaces[0].as_mut().unwrap().identity.blocks = 2000;
        assert!(subsystem.admit(&info).unwrap()[0].is_ok());
        opening.await.unwrap();
        let disk = &subsystem.disks[0];
        let seen = disk.backing().unwrap().frontend.capacity_sectors();
        let saved = std::fs::read_to_string(subsystem.records.shown(0).path()).unwrap();
        assert!(disk.is_served() && saved.contains(&format!("\"capacity_sectors\": {seen},")), "{seen}: {saved}");
        for thread in subsystem.threads() {
            thread.begin_shutdown();
            thread.join();
        }
    }
}
