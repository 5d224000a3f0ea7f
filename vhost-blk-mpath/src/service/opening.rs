//! Opens disks: when a path has shown a disk's namespace, its front-ends are served.
//!
//! [`Subsystem::admit`] has checked before that the disk may use the namespace. The fences that removed disks have left
//! on the namespace, and its name, are in the fence record before a front-end can submit a request.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use mpath_api::types::EventKind;
use mpath_core::DiskId;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until};

use crate::disk::{Disk, InheritedFence};
use crate::service::Service;
use crate::service::disks::Disks;
use crate::service::start_error::StartError;
use crate::subsystem::Subsystem;

impl Service {
    /// Opens each disk when its namespace is known, until all are open or the subsystem ends.
    pub(crate) async fn open_disks(self: Arc<Self>, disks: Arc<Disks>) {
        let (mut changes, mut ending) = (self.subsystem.changes(), self.ends.subscribe());
        while self.subsystem.disks.iter().any(|disk| !disk.is_served()) {
            changes.borrow_and_update();
            let result = self.open_known(&disks).await;
            if let Err(error) = &result {
                tracing::error!(disk = %self.subsystem.name(), %error, "front-ends have to wait; trying again");
            }
            tokio::select! {
                _ = changes.changed(), if result.is_ok() => {}
                () = sleep(self.subsystem.config.reconnect_delay.duration()), if result.is_err() => {}
                _ = ending.wait_for(|ends| *ends) => return,
            }
        }
    }

    /// Opens the disks with a known namespace. The future must not be dropped, as fence and record would differ.
    pub(crate) async fn open_known(&self, disks: &Disks) -> Result<(), StartError> {
        let _one_at_a_time = self.opening.lock().await;
        let subsystem = &self.subsystem;
        let known: Vec<DiskId> = subsystem.known().map(|disk| disk.id).collect();
        for disk in known.into_iter().map(|id| subsystem.disk(id)).filter(|disk| !disk.is_served()) {
            self.inherit_pending(disk, disks).await?;
            // Before a front-end can submit requests, which no other namespace may receive.
            subsystem.records.write_namespace(disk.id.0.into()).await?;
            announce_hold(subsystem, disk);
            disk.set_served();
            let frontends = self.frontends();
            // At the end of the daemon there are no more.
            if let Some(frontend) = frontends.get(usize::from(disk.id.0)) {
                frontend.open();
                tracing::info!(disk = disk.name(), socket = %disk.settings.socket_path, "front-ends are served");
            }
        }
        subsystem.signal_change();
        Ok(())
    }

    /// Has the disk wait for fences that removed disks left on its namespace.
    async fn inherit_pending(&self, disk: &Disk, disks: &Disks) -> Result<(), StartError> {
        let namespace = self.subsystem.namespace_name(disk).expect("its namespace is known");
        while let Some(left) = disks.pending_fence(&namespace, Instant::now()) {
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

/// Reports that the disk takes no requests until the fence has passed, and later that it does. If the fence has passed
/// already, reports nothing.
fn announce_hold(subsystem: &Arc<Subsystem>, disk: &Disk) {
    let Some(InheritedFence { until, of }) = disk.inherited_fence() else { return };
    let (subsystem, id) = (Arc::clone(subsystem), disk.id);
    let wait = until.saturating_duration_since(Instant::now());
    if wait.is_zero() {
        tokio::spawn(async move { forget_inherited(&subsystem, id).await });
        return;
    }
    let wait = wait.as_secs_f64();
    let whose = match of {
        None => "the previous daemon, or the disk that was on this socket, did not end in order, and its".to_owned(),
        Some(of) => format!("the removed disk `{of}` used this namespace, and its"),
    };
    let message = format!("requests wait for {wait:.1} s: {whose} writes may be executed until then");
    disk.event(EventKind::DiskHeld, message);
    tokio::spawn(announce_resume(subsystem, id, until));
}

async fn announce_resume(subsystem: Arc<Subsystem>, disk: DiskId, until: Instant) {
    let mut shutdown = subsystem.shutdown.clone();
    tokio::select! {
        biased;
        // The next daemon waits for the rest.
        _ = shutdown.wait_for(|ends| *ends) => return,
        () = sleep_until(until.into()) => {}
    }
    let message = "requests resume: no earlier write can be executed any more";
    subsystem.disk(disk).event(EventKind::DiskResumed, message);
    forget_inherited(&subsystem, disk).await;
}

async fn forget_inherited(subsystem: &Subsystem, disk: DiskId) {
    if let Err(error) = subsystem.records.remove_inherited(disk.0.into()).await {
        let disk = subsystem.disk(disk).name();
        tracing::warn!(disk, %error, "cannot update the fence record; the next daemon may have to wait longer");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use mpath_core::{Epoch, PathId};
    use mpath_host::RecordedAssociation;
    use nvme_tcp::host::HostIdentity;
    use tokio::sync::{Mutex as AsyncMutex, watch};

    use super::*;
    use crate::disk::geometry;
    use crate::events::EventLog;
    use crate::fence_record::FenceRecords;
    use crate::subsystem::shared_context::SharedContext;

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
        let service = Service {
            subsystem: Arc::clone(&subsystem),
            places: vec![None],
            discovery: None,
            ends,
            frontends: Mutex::default(),
            opening: AsyncMutex::default(),
            in_doubt: AtomicBool::new(false),
            tasks: Mutex::default(),
        };
        let config = "/tmp/api".parse().unwrap();
        let disks = Disks::new(common, config, Arc::default());
        service.open_known(&disks).await.unwrap();
        assert!(named() && subsystem.disks[0].is_served());
    }
}
