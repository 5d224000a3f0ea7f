//! A disk in memory behind a real socket, driven by front-ends of other projects.

#![allow(clippy::unwrap_used)] // a panic is the right end here

mod faults;
mod frontend;
mod guest;
mod inflight;
mod mem_table;
mod migration;
mod queue_runners;
#[path = "../../examples/ram_disk/ram_disk.rs"]
mod ram_disk;
mod resize;
mod vendor_window;
mod virtio_driver;

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use patience::PATIENCE;
use ram_disk::RamDisk;
use tempfile::TempDir;
use vhost_user_blk::{DiskGeometry, ServeError, VirtioDisk, serve_connection};

pub(crate) struct Server {
    folder: TempDir,
    pub(crate) disk: Arc<VirtioDisk>,
    pub(crate) ram: Arc<RamDisk>,
    outcomes: Receiver<Result<(), ServeError>>,
}

impl Server {
    /// Serves one connection after the other.
    pub(crate) fn start(geometry: DiskGeometry) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let disk = Arc::new(VirtioDisk::new(geometry).unwrap());
        let ram = Arc::new(RamDisk::new(&disk));
        let (report, outcomes) = channel();
        let (served, runner) = (Arc::clone(&disk), Arc::clone(&ram));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let outcome = serve_connection(stream.unwrap(), &served, &*runner);
                assert_eq!(runner.running(), 0, "all queues come back when a front-end is gone");
                if report.send(outcome).is_err() {
                    return;
                }
            }
        });
        Self { folder, disk, ram, outcomes }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// How the next connection ended.
    pub(crate) fn outcome(&self) -> Result<(), ServeError> {
        self.outcomes.recv_timeout(PATIENCE).expect("the connection ends")
    }
}

pub(crate) fn geometry() -> DiskGeometry {
    DiskGeometry {
        num_queues: 4,
        serial: *b"from the test\0\0\0\0\0\0\0",
        max_discard_sectors: 1024,
        max_write_zeroes_sectors: 1024,
        ..DiskGeometry::new(8192, 512)
    }
}
