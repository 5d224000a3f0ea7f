//! The host: what the daemon's I/O threads and path tasks do, with virtual time and a simulated network in place of
//! io_uring, tokio and sockets. I/O threads, virtqueues, the lives of paths and fences are the code that ships, driven here.

mod daemon;
mod discovery;
mod disks;
mod fences;
mod frontends;
mod path;
mod thread;
mod threads;
mod virtqueues;
mod wire;

use std::time::{Duration, Instant};

use mpath_core::FlowId;
use mpath_host::PathSettings;
use nvme_tcp::host::{ControllerConfig, NamespaceIdentity};

pub(crate) use self::daemon::Daemon;
pub(crate) use self::fences::RecordFiles;
pub(crate) use self::wire::What;
use crate::net::ConnId;

/// The plan of the host for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct HostPlan {
    pub(crate) threads: usize,
    pub(crate) paths: usize,
    pub(crate) group: mpath_core::GroupConfig,
    pub(crate) controller: ControllerConfig,
    pub(crate) reconnect_delay: Duration,
    /// How often the record of associations cannot be written.
    pub(crate) record_fails_percent: u64,
    pub(crate) disks: Vec<DiskPlan>,
}

impl HostPlan {
    /// What is set for every path.
    fn path_settings(&self) -> PathSettings {
        PathSettings {
            controller: self.controller.clone(),
            reconnect_delay: self.reconnect_delay,
            ctrl_loss_tmo: None,
            drain_fence: false,
        }
    }
}

/// A disk for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct DiskPlan {
    /// What its paths have to lead to.
    pub(crate) namespace: NamespaceIdentity,
    pub(crate) block_bytes: u32,
    /// The name of its first virtqueue; those of the others follow.
    pub(crate) first_flow: FlowId,
    /// How many it has.
    pub(crate) queues: u16,
}

/// An instruction to an I/O thread.
pub(crate) type Message = reactor::IoThreadMessage<ConnId>;

/// The earlier of two times that may not be set.
fn earliest(times: impl IntoIterator<Item = Option<Instant>>) -> Option<Instant> {
    times.into_iter().flatten().min()
}
