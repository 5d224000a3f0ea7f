//! Test helpers: a service without front-ends, discovery and tasks of paths.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use mpath_config::Config;
use mpath_lifecycle::InheritedFence;
use tokio::sync::watch;

use crate::disk::geometry;
use crate::disk_files::fence_record::FenceRecords;
use crate::service::Service;
use crate::service::disks::Disks;
use crate::subsystem::Subsystem;
use crate::subsystem::shared_context::SharedContext;

/// The service of a disk with its files next to `socket`, and the disks of its daemon, without that disk.
pub(crate) fn service(socket: &Path, inherited: Option<&InheritedFence>) -> (Arc<Service>, Arc<Disks>) {
    let common = SharedContext::of_test(1);
    let (ends, ending) = watch::channel(false);
    let records = FenceRecords::open([socket].into_iter()).unwrap().0;
    let subsystem = Subsystem::new(geometry::tests::config(), &common, records, inherited, ending);
    let service = Service {
        subsystem: Arc::new(subsystem),
        places: vec![None],
        discovery: None,
        ends,
        frontends: Mutex::default(),
        in_doubt: AtomicBool::new(false),
        tasks: Mutex::default(),
    };
    (Arc::new(service), Arc::new(Disks::new(common, Config::new(Vec::new()), Arc::default())))
}
