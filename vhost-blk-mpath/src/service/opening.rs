//! Decides: a front-end is served, as `disk_opening.rs` of `mpath-lifecycle` says.
//!
//! Carries out the steps of disks, which their [`DiskDriver`](mpath_lifecycle::DiskDriver) decides.
//!
//! [`Subsystem::admit`](crate::subsystem::Subsystem::admit) has checked before that the disk may use the namespace. The
//! fences that removed disks have left on the namespace, and its name, are in the fence record before a front-end can submit
//! a request.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use monotonic::Instant;
use mpath_core::DiskId;
use mpath_lifecycle::{DiskStep, DiskView, TriedPath};
use tokio::task::spawn_blocking;

use crate::clock::sleep_until;
use crate::disk::Disk;
use crate::service::Service;
use crate::service::disks::Disks;
use crate::service::start_error::StartError;
use crate::subsystem::path_status::PathStatus;
use crate::transport::far_future;

impl Service {
    /// Starts a task for each disk, which takes its steps until the end of the subsystem.
    pub(crate) fn drive_disks(self: &Arc<Self>, disks: &Arc<Disks>) {
        for disk in &self.subsystem.disks {
            let task = tokio::spawn(Arc::clone(self).drive_disk(disk.id, Arc::clone(disks)));
            self.tasks().push(task);
        }
    }

    async fn drive_disk(self: Arc<Self>, id: DiskId, disks: Arc<Disks>) {
        let (mut changes, mut ending, disk) =
            (self.subsystem.changes(), self.ends.subscribe(), self.subsystem.disk(id));
        loop {
            changes.borrow_and_update();
            if let Err(error) = self.take_steps(disk, &disks).await {
                tracing::error!(disk = disk.name(), %error, "front-ends have to wait; trying again");
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = self.timeout(disk) => {}
                _ = ending.wait_for(|ends| *ends) => return,
            }
        }
    }

    /// Takes the steps of all disks that are possible now. Returns the first failure because of which front-ends have to wait.
    /// The future must not be dropped, as fence and record would differ.
    pub(crate) async fn open_known(&self, disks: &Disks) -> Result<(), StartError> {
        let mut result = Ok(());
        for disk in &self.subsystem.disks {
            result = result.and(self.take_steps(disk, disks).await);
        }
        result
    }

    /// Takes the steps of a disk that are possible now. Returns the failure because of which its front-ends have to wait. The
    /// future must not be dropped.
    async fn take_steps(&self, disk: &Disk, disks: &Disks) -> Result<(), StartError> {
        let (mut changes, mut result) = (self.subsystem.changes(), Ok(()));
        while let Some(step) = self.next_step(disk, disks).filter(|_| !*self.ends.borrow()) {
            let mut taking = pin!(self.take_step(disk, &step));
            let taken = loop {
                tokio::select! {
                    taken = &mut taking => break taken,
                    _ = changes.changed() => {}
                    () = self.timeout(disk) => {}
                }
                // The hold goes on while a file is written. The step stays.
                self.next_step(disk, disks);
            };
            let is_served = disk.is_served();
            disk.driver().done(Instant::now(), taken.is_ok());
            match (taken, &step) {
                (Err(error), DiskStep::Save { grow_to: Some(_) } | DiskStep::Show) => {
                    tracing::warn!(disk = disk.name(), %error, "the disk keeps its size; trying again");
                }
                (Err(error), _) if is_served => tracing::warn!(%error, "front-ends see the disk as it is now"),
                (Err(error), _) => result = Err(error),
                (Ok(()), DiskStep::Serve | DiskStep::ForgetFences) => self.subsystem.signal_change(),
                (Ok(()), _) => {}
            }
        }
        // A step that had failed may have been repeated meanwhile.
        if disk.is_served() { Ok(()) } else { result }
    }

    /// Waits until the disk may have a step though nothing has changed.
    async fn timeout(&self, disk: &Disk) {
        // Without I/O threads it takes no steps.
        let is_known = self.subsystem.is_known(disk);
        let at = disk.driver().next_timeout().filter(|_| is_known);
        sleep_until(at.unwrap_or_else(far_future)).await;
    }

    /// The next step of a disk, once its namespace is known.
    fn next_step(&self, disk: &Disk, disks: &Disks) -> Option<DiskStep> {
        let backing = disk.backing().filter(|_| self.subsystem.is_known(disk))?;
        let path = |path: &PathStatus| TriedPath { trial: path.trial, blocks: path.namespaces.blocks(disk.id) };
        let view = DiskView {
            first_logs_are_done: self.discovery.as_ref().is_none_or(|discovery| discovery.first_logs_are_done()),
            paths: self.subsystem.state().paths().map(path).collect(),
            served: backing.served_namespace(),
            pending_fence: disks.to_inherit(disk, &backing.name),
        };
        self.subsystem.change_disk(disk.id, |disk| disk.step(Instant::now(), &view))
    }

    async fn take_step(&self, disk: &Disk, step: &DiskStep) -> Result<(), StartError> {
        let (subsystem, index) = (&self.subsystem, usize::from(disk.id.0));
        // Files of many disks need no thread each.
        let _one_at_a_time = subsystem.stepping.lock().await;
        match step {
            DiskStep::InheritFence(pending) => {
                let (records, recorded) = (subsystem.records.clone(), pending.recorded(Instant::now()));
                // Writing to disk can take a while, and this thread must not block.
                let written = spawn_blocking(move || records.inherit(index, recorded));
                written.await.map_err(io::Error::other)??;
            }
            DiskStep::RecordNamespace => subsystem.records.write_namespace(index).await?,
            DiskStep::Save { grow_to } => subsystem.save(disk, *grow_to).await?,
            DiskStep::Serve => {
                // The list of front-ends is empty at the end of the daemon.
                if let Some(frontend) = self.frontends().get(index) {
                    frontend.open();
                    tracing::info!(disk = disk.name(), socket = %disk.settings.socket_path, "front-ends are served");
                }
            }
            DiskStep::TellThreads => subsystem.paths_known().await,
            DiskStep::Show => subsystem.show_growth(disk)?,
            DiskStep::ForgetFences => {
                if let Err(error) = subsystem.records.remove_inherited(index).await {
                    let disk = disk.name();
                    tracing::warn!(disk, %error, "cannot update the fence record; the next daemon may have to wait longer");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::future::ready;
    use std::path::PathBuf;
    use std::pin::Pin;

    use monotonic::Duration;
    use mpath_api::types::Origin;
    use mpath_core::{AnaState, Epoch, PathId};
    use mpath_lifecycle::{Disks as _, InheritedFence, NamespaceName, NamespaceUpdate, PathTrial, RecordedAssociation};
    use nvme_tcp::host::ControllerInfo;
    use patience::PATIENCE;
    use tempfile::TempDir;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::disk::geometry;
    use crate::disk::settings::DiskSettings;
    use crate::disk_files::fence_record::FenceRecords;
    use crate::disk_files::shown_disk::ShownDisk;
    use crate::service::testing::service;
    use crate::subsystem::Subsystem;

    /// A folder, and the socket of a disk there.
    fn place() -> (TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        (place, socket)
    }

    /// A controller with a namespace of this many blocks, which can be recognised.
    fn controller(blocks: u64) -> ControllerInfo {
        let mut info = geometry::tests::controller();
        let identity = &mut info.namespaces[0].as_mut().unwrap().identity;
        (identity.uuid, identity.blocks) = ([7; 16], blocks);
        info
    }

    /// Adds a path that was not tried.
    fn add_path(subsystem: &Subsystem) -> PathId {
        let address = subsystem.config.paths[0].clone();
        subsystem.state().insert(address, Origin::Configured).unwrap().id
    }

    /// The path is live and finds this many blocks.
    fn found(subsystem: &Subsystem, path: PathId, blocks: u64) {
        let (disk, state) = (DiskId(0), AnaState::Optimized);
        let update = NamespaceUpdate { disk, state, unusable: None, blocks, added: None, changed: true };
        subsystem.path(path, |status| {
            status.trial = PathTrial { tried_at: Some(Instant::now()), is_live: true, is_idle: false };
            status.namespaces.begin(vec![update], |_| None).unwrap();
        });
    }

    /// Lets a future go on as far as it comes now.
    async fn begin<T>(future: &mut Pin<&mut impl Future<Output = T>>) {
        tokio::select! {
            biased;
            _ = future => panic!("it has to wait"),
            () = ready(()) => {}
        }
    }

    async fn eventually(condition: impl Fn() -> bool) {
        let waiting = async {
            while !condition() {
                sleep(Duration::from_millis(1).into()).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("it happens");
    }

    fn end_threads(subsystem: &Subsystem) {
        for thread in subsystem.threads() {
            thread.begin_shutdown();
            thread.join();
        }
    }

    /// The path that reported the disk's namespace may not have come up, while another path serves another disk.
    #[tokio::test]
    async fn the_record_names_the_namespace_before_front_ends_are_served() {
        let (_place, socket) = place();
        let (service, disks) = service(&socket, None);
        let subsystem = &service.subsystem;
        let association = RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms: 5_000 };
        subsystem.records.add(PathId(0), Epoch(1), association).await.unwrap();
        assert!(subsystem.admit(&geometry::tests::controller())[0].is_ok());
        let named = || fs::read_to_string(subsystem.records.file(0)).unwrap().contains("nqn.example");
        assert!(!named());
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
        let (_place, socket) = place();
        let open = || FenceRecords::open([socket.as_path()].into_iter()).unwrap().0;
        let info = controller(1000);
        let identity = info.namespaces[0].as_ref().unwrap().identity;
        let settings = DiskSettings::all(&geometry::tests::config()).remove(0);
        let name = NamespaceName::new("nqn.example", &identity);
        let shown = ShownDisk::new("nqn.example", &settings, name, geometry::of(&settings, &info, &identity));
        open().shown(0).save(shown).await.unwrap();

        let (service, disks) = service(&socket, None);
        let subsystem = &service.subsystem;
        subsystem.restore_shown();
        let (free, freed) = std::sync::mpsc::channel::<()>();
        spawn_blocking(move || freed.recv());
        let mut opening = pin!(service.open_known(&disks));
        begin(&mut opening).await;
        assert!(subsystem.admit(&controller(2000))[0].is_ok());
        drop(free);
        opening.await.unwrap();
        let disk = &subsystem.disks[0];
        let seen = disk.backing().unwrap().frontend.capacity_sectors();
        let saved = fs::read_to_string(subsystem.records.shown(0).path()).unwrap();
        assert!(disk.is_served() && saved.contains(&format!("\"capacity_sectors\": {seen},")), "{seen}: {saved}");
        end_threads(subsystem);
    }

    /// A guest waits for the hold alone, and a file may take long.
    #[tokio::test]
    async fn the_hold_goes_on_while_a_step_is_under_way() {
        let (_place, socket) = place();
        let killed = InheritedFence { until: Instant::now() + Duration::from_millis(300), of: None };
        let (service, disks) = service(&socket, Some(&killed));
        let subsystem = &service.subsystem;
        let (disk, tried, untried) = (&subsystem.disks[0], add_path(subsystem), add_path(subsystem));
        assert!(subsystem.admit(&controller(1000))[0].is_ok());
        found(subsystem, tried, 1000);
        service.open_known(&disks).await.unwrap();
        let busy = subsystem.stepping.lock().await;
        found(subsystem, tried, 2000);
        let mut growing = pin!(service.open_known(&disks));
        begin(&mut growing).await;
        assert!(disk.is_served() && disk.inherited_fence().is_some());
        // Then only the fence is left to wait for.
        subsystem.path_gone(untried, Epoch(0));
        tokio::select! {
            _ = &mut growing => panic!("a step is under way"),
            () = eventually(|| disk.inherited_fence().is_none()) => {}
        }
        drop(busy);
        growing.await.unwrap();
        end_threads(subsystem);
    }

    /// An added disk would be removed again because of the failure.
    #[tokio::test]
    async fn the_failure_of_a_repeated_step_is_forgotten() {
        let (place, socket) = place();
        let obstacle = place.path().join("disk.sock.fence.new");
        fs::create_dir(&obstacle).unwrap();
        let (service, disks) = service(&socket, None);
        let subsystem = &service.subsystem;
        let (disk, path) = (&subsystem.disks[0], add_path(subsystem));
        assert!(subsystem.admit(&controller(1000))[0].is_ok());
        // The disk grows between the two attempts.
        found(subsystem, path, 2000);
        let busy = subsystem.stepping.lock().await;
        let mut opening = pin!(service.open_known(&disks));
        begin(&mut opening).await;
        // The lock is fair: the growth comes after this test.
        let mut lock = pin!(subsystem.stepping.lock());
        begin(&mut lock).await;
        drop(busy);
        let busy = tokio::select! {
            _ = &mut opening => panic!("the growth waits"),
            busy = lock => busy,
        };
        fs::remove_dir(&obstacle).unwrap();
        sleep(subsystem.config.reconnect_delay.duration().into()).await;
        assert!(!disk.is_served());
        drop(busy);
        opening.await.unwrap();
        assert!(disk.is_served());
        end_threads(subsystem);
    }

    /// No path reports anything again.
    #[tokio::test]
    async fn a_disk_grows_when_the_path_with_the_old_size_is_down_or_gone() {
        let down = |mut subsystem: &Subsystem, path| subsystem.path_down(path);
        let gone = |subsystem: &Subsystem, path| subsystem.path_gone(path, Epoch(0));
        for leaves in [down as fn(&Subsystem, PathId), gone] {
            let (_place, socket) = place();
            let (service, disks) = service(&socket, None);
            let subsystem = &service.subsystem;
            let (disk, large, small) = (&subsystem.disks[0], add_path(subsystem), add_path(subsystem));
            assert!(subsystem.admit(&controller(1000))[0].is_ok());
            found(subsystem, large, 2000);
            found(subsystem, small, 1000);
            disks.keep(Arc::clone(&service));
            eventually(|| disk.is_served()).await;
            leaves(subsystem, small);
            eventually(|| disk.backing().unwrap().blocks() == 2000).await;
            end_threads(subsystem);
        }
    }

    /// The next daemon could not use the file.
    #[tokio::test]
    async fn a_size_that_no_disk_can_have_is_not_saved() {
        let (_place, socket) = place();
        let (service, disks) = service(&socket, None);
        let subsystem = &service.subsystem;
        assert!(subsystem.admit(&controller(1000))[0].is_ok());
        service.open_known(&disks).await.unwrap();
        let saved = || fs::read_to_string(subsystem.records.shown(0).path()).unwrap();
        let before = saved();
        let save = DiskStep::Save { grow_to: Some(1 << 60) };
        assert!(service.take_step(&subsystem.disks[0], &save).await.is_err());
        assert_eq!(saved(), before);
        end_threads(subsystem);
    }
}
