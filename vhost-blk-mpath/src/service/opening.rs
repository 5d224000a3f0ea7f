//! Decides: a front-end is served, as `disk_opening.rs` of `mpath-host` says.
//!
//! Opens disks, as their [`DiskOpening`](mpath_host::DiskOpening) decides.
//!
//! [`Subsystem::admit`] has checked before that the disk may use the namespace. The fences that removed disks have left
//! on the namespace, and its name, are in the fence record before a front-end can submit a request.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use mpath_core::DiskId;
use mpath_host::{DiskHold, OpeningStep, TriedPath};
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;

use crate::disk::Disk;
use crate::service::Service;
use crate::service::disks::Disks;
use crate::service::start_error::StartError;
use crate::subsystem::path_status::PathStatus;
use crate::transport::far_future;

impl Service {
    /// Opens each disk when its namespace is known, saves what its front-ends see, and lets their requests go on. Ends with
    /// the subsystem, or when nothing of that is left to do.
    pub(crate) async fn open_disks(self: Arc<Self>, disks: Arc<Disks>) {
        let (mut changes, mut ending) = (self.subsystem.changes(), self.ends.subscribe());
        loop {
            changes.borrow_and_update();
            if let Err(error) = self.open_known(&disks).await {
                tracing::error!(disk = self.subsystem.name(), %error, "front-ends have to wait; trying again");
            }
            self.update_holds().await;
            let disks = &self.subsystem.disks;
            if disks.iter().all(|disk| disk.opening().is_over() && disk.hold().is_over()) {
                return;
            }
            let next_timeout =
                |disk: &Disk| disk.hold().next_timeout().into_iter().chain(disk.opening().next_timeout());
            let next_timeout = disks.iter().flat_map(next_timeout).min();
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(next_timeout.unwrap_or_else(far_future).into()) => {}
                _ = ending.wait_for(|ends| *ends) => return,
            }
        }
    }

    /// Opens the disks with a known namespace that can be opened. Returns the first failure. The future must not be dropped,
    /// as fence and record would differ.
    pub(crate) async fn open_known(&self, disks: &Disks) -> Result<(), StartError> {
        let known: Vec<DiskId> = self.subsystem.known().map(|disk| disk.id).collect();
        let mut result = Ok(());
        for disk in known.into_iter().map(|id| self.subsystem.disk(id)) {
            result = result.and(self.open_disk(disk, disks).await);
        }
        result
    }

    /// Takes the steps that open a disk, as far as that is possible now.
    async fn open_disk(&self, disk: &Disk, disks: &Disks) -> Result<(), StartError> {
        while let Some(step) = self.next_step(disk) {
            if let Err(error) = self.open_step(disk, step, disks).await {
                let is_open = disk.is_served();
                disk.opening().failed(Instant::now());
                if !is_open {
                    return Err(error);
                }
                tracing::warn!(%error, "front-ends see the disk as it is now");
                continue;
            }
            disk.opening().done();
            if step == OpeningStep::Serve {
                self.subsystem.signal_change();
            }
        }
        Ok(())
    }

    fn next_step(&self, disk: &Disk) -> Option<OpeningStep> {
        let (logs_are_done, paths) = self.tried_paths(disk.id);
        disk.opening().step(Instant::now(), logs_are_done, &paths)
    }

    async fn open_step(&self, disk: &Disk, step: OpeningStep, disks: &Disks) -> Result<(), StartError> {
        match step {
            OpeningStep::InheritFences => self.inherit_pending(disk, disks).await?,
            OpeningStep::RecordNamespace => self.subsystem.records.write_namespace(disk.id.0.into()).await?,
            OpeningStep::Save => self.subsystem.save_current(disk).await?,
            OpeningStep::Serve => {
                self.change_hold(disk.id, DiskHold::open);
                // The list of front-ends is empty at the end of the daemon.
                if let Some(frontend) = self.frontends().get(usize::from(disk.id.0)) {
                    frontend.open();
                    tracing::info!(disk = disk.name(), socket = %disk.settings.socket_path, "front-ends are served");
                }
            }
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
        let (first_logs_are_done, paths) = self.tried_paths(id);
        self.subsystem.change_hold(id, |hold| change(hold, Instant::now(), first_logs_are_done, &paths))
    }

    /// Whether the first logs of discovery are done, and for each path whether it was tried and leads to the disk.
    fn tried_paths(&self, id: DiskId) -> (bool, Vec<TriedPath>) {
        let first_logs_are_done = self.discovery.as_ref().is_none_or(|discovery| discovery.first_logs_are_done());
        let tried = |path: &PathStatus| TriedPath { trial: path.trial, leads_to_disk: path.namespaces.leads_to(id) };
        (first_logs_are_done, self.subsystem.state().paths().map(tried).collect())
    }

    /// Has the disk wait for fences that removed disks left on its namespace.
    async fn inherit_pending(&self, disk: &Disk, disks: &Disks) -> Result<(), StartError> {
        let namespace = &disk.backing().expect("its namespace is known").name;
        while let Some(pending) = disks.to_inherit(disk, namespace) {
            let (records, index, recorded) =
                (self.subsystem.records.clone(), disk.id.0, pending.recorded(Instant::now()));
            // Writing to disk can take a while, and this thread must not block.
            let written = spawn_blocking(move || records.inherit(index.into(), recorded));
            written.await.map_err(io::Error::other)??;
            disk.hold().inherit(pending.fence, &disk.shared);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use mpath_config::Config;
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

    /// A service without front-ends and discovery.
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
        let disks = Disks::new(common, Config::new(Vec::new()), Arc::default());
        service.open_known(&disks).await.unwrap();
        assert!(named() && subsystem.disks[0].is_served());
    }

    /// A path may lead to the namespace of a restored disk while the fence record is written.
    #[test]
    fn a_size_is_saved_before_front_ends_see_it() {
        // Its only thread for files is occupied until the size has changed.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(grows_during_the_first_write());
    }

    async fn grows_during_the_first_write() {
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
        let disks = Disks::new(common, Config::new(Vec::new()), Arc::default());
        let (free, freed) = std::sync::mpsc::channel::<()>();
        spawn_blocking(move || freed.recv());
        let mut opening = std::pin::pin!(service.open_known(&disks));
        tokio::select! {
            biased;
            _ = &mut opening => panic!("it writes the record first"),
            () = std::future::ready(()) => {}
        }
        info.namespaces[0].as_mut().unwrap().identity.blocks = 2000;
        assert!(subsystem.admit(&info).unwrap()[0].is_ok());
        drop(free);
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
