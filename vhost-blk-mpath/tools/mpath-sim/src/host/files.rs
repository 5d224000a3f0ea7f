//! The files next to the sockets of disks. They survive the daemon.

use std::net::SocketAddr;

use monotonic::Instant;
use mpath_lifecycle::NamespaceName;
use mpath_lifecycle::discovery::SavedLog;

use super::fences::RecordFiles;
use super::plan::HostPlan;
use super::process::Process;

/// All files of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(super) records: RecordFiles,
    pub(super) shown: ShownFiles,
    pub(super) discovered: Vec<SavedLog<SocketAddr>>,
}

/// By disk: the description of the disk that the next daemon shows to front-ends. `None`: front-ends wait until a path works.
#[derive(Debug, Default)]
pub(super) struct ShownFiles(pub(super) Vec<Option<ShownDisk>>);

/// A disk as front-ends were shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownDisk {
    pub(super) namespace: NamespaceName,
    pub(super) blocks: u64,
}

impl Files {
    /// Front-ends have seen the disks of this plan with these blocks.
    pub(crate) fn after_front_ends(plan: &HostPlan, shown: impl Iterator<Item = u64>) -> Self {
        let shown = plan.namespaces().zip(shown).map(|(namespace, blocks)| Some(ShownDisk { namespace, blocks }));
        Self { shown: ShownFiles(shown.collect()), ..Self::default() }
    }

    /// The sockets of the disks of this plan were never served.
    pub(crate) fn new(plan: &HostPlan) -> Self {
        Self { shown: ShownFiles(vec![None; plan.disks.len()]), ..Self::default() }
    }

    /// The fences that disks have left at their removal are over, as far as the process knows.
    pub(crate) fn expire(&mut self, process: &Process, now: Instant) {
        self.records.0.iter_mut().for_each(|record| _ = record.expire(&process.run, now));
    }
}
