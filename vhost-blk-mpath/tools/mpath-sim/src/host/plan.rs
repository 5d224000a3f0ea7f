//! The plan of the host for a run.

use monotonic::Duration;
use mpath_core::FlowId;
use mpath_lifecycle::{NamespaceName, PathSettings};
use nvme_tcp::host::{ControllerConfig, NamespaceIdentity};

use crate::tls::TlsPlan;

/// The plan of the host for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct HostPlan {
    pub(crate) threads: usize,
    pub(crate) paths: usize,
    pub(crate) group: mpath_core::GroupConfig,
    pub(crate) controller: ControllerConfig,
    pub(crate) reconnect_delay: Duration,
    /// Controllers promise to execute everything before they close connections.
    pub(crate) drain_fence: bool,
    /// The key, if connections to the target use TLS. The configuration refuses TLS with `drain_fence`.
    pub(crate) tls: Option<TlsPlan>,
    /// Percentage of writes of fence records that fail.
    pub(crate) record_fails_percent: u64,
    pub(crate) disks: Vec<DiskPlan>,
}

impl HostPlan {
    /// The namespaces that the operator means, by disk.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = NamespaceName> {
        self.disks.iter().map(|disk| NamespaceName::new(self.controller.subnqn.as_str(), &disk.namespace))
    }

    /// The settings of every path.
    pub(super) fn path_settings(&self) -> PathSettings {
        PathSettings {
            controller: self.controller.clone(),
            reconnect_delay: self.reconnect_delay,
            ctrl_loss_tmo: None,
            drain_fence: self.drain_fence,
            shared_write_cache: self.group.shared_write_cache,
        }
    }
}

/// The plan of a disk for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct DiskPlan {
    /// The namespace that its paths have to lead to.
    pub(crate) namespace: NamespaceIdentity,
    pub(crate) block_bytes: u32,
    /// The flow of its first virtqueue. The flows of the others follow.
    pub(crate) first_flow: FlowId,
    /// The number of its virtqueues.
    pub(crate) queues: u16,
    /// The most requests that its guest has under way.
    pub(crate) requests_max: u64,
}
