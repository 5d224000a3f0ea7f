//! One entry of `share-paths-with:`.

use serde::{Deserialize, Serialize};

use super::disk::{NamespaceId, QueueCount, Weight, default_queues, default_weight};
use super::limits::LimitsConfig;
use super::on_off;
use super::value::{DiskName, SocketPath};

/// A disk over the paths of another one: a further namespace of its subsystem, with a vhost-user socket for a guest of its own.
///
/// Paths, policy, scheduler, hedging and I/O threads are those of the disk that has it in its `share-paths-with`, as is all else
/// that is not here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a mapping of settings")]
pub struct SharerConfig {
    /// The name in the API and in `mpathctl`, different for each disk. Required.
    pub name: DiskName,

    /// The vhost-user socket that the daemon creates and QEMU connects to. Required.
    pub socket_path: SocketPath,

    /// The namespace, another one than that of any disk over these paths. Required.
    pub namespace: NamespaceId,

    /// What the disk may do in a second, all virtqueues and I/O threads together. Default: no limits. Can be changed while I/O
    /// runs.
    #[serde(default)]
    pub limits: LimitsConfig,

    /// The disk's part of the service beside the others over these paths, 1 to 1000. Default: 100. Can be changed while I/O runs.
    #[serde(default = "default_weight")]
    pub weight: Weight,

    /// Whether the guest sees a read-only disk. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub read_only: bool,

    /// The most virtqueues that the guest may use, 1 to 256. Default: 64. QEMU's `num-queues`
    /// (by default the guest's number of CPUs) must not exceed it.
    #[serde(default = "default_queues")]
    pub queues: QueueCount,

    /// Whether front-ends can read of the paths and the policy in the last 64 bytes of the configuration space, as with the
    /// disk that has the paths. They cannot set the policy, which is that disk's. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub mpath_window: bool,
}

impl SharerConfig {
    /// A disk with every optional setting at its default.
    #[must_use]
    pub fn new(name: DiskName, socket_path: SocketPath, namespace: NamespaceId) -> Self {
        Self {
            name,
            socket_path,
            namespace,
            limits: LimitsConfig::default(),
            weight: default_weight(),
            read_only: false,
            queues: default_queues(),
            mpath_window: false,
        }
    }
}
