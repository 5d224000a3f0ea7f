//! One entry of `share-paths-with:`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::{Account, SocketAccess, SocketMode};
use super::disk::{NamespaceId, QueueCount, Weight, default_queues, default_weight};
use super::limits::LimitsConfig;
use super::on_off;
use super::value::{DiskName, SocketPath};

/// A disk over the paths of another disk: another namespace of the same subsystem, with its own vhost-user socket.
///
/// Paths, policy, scheduler, hedging, I/O threads, and every other setting that is not here are those of the disk whose
/// `share-paths-with` lists this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a mapping of settings")]
pub struct SharerConfig {
    /// The name in the API and in `mpathctl`, unique in the daemon. Required.
    pub name: DiskName,

    /// The vhost-user socket that the daemon creates and QEMU connects to. Required.
    pub socket_path: SocketPath,

    /// The mode of the socket file, such as `0660`. Default: 0777 less the daemon's umask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<SocketMode>,

    /// The owner of the socket file, a name or a number. Default: the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_owner: Option<Account>,

    /// The group of the socket file, a name or a number. Default: the daemon's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<Account>,

    /// The namespace identifier, unique among the disks over these paths. Required.
    pub namespace: NamespaceId,

    /// Limits of the disk, over all virtqueues and I/O threads. Default: no limits. Can be changed while I/O runs.
    #[serde(default)]
    pub limits: LimitsConfig,

    /// Share of the service among the disks over the same paths, 1 to 1000. Default: 100. Can be changed while I/O runs.
    #[serde(default = "default_weight")]
    pub weight: Weight,

    /// Whether the guest sees a read-only disk. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub read_only: bool,

    /// The most virtqueues that the guest may use, 1 to 256. Default: 64. QEMU's `num-queues`, by default the number of the guest's
    /// CPUs, must not exceed it.
    #[serde(default = "default_queues")]
    pub queues: QueueCount,

    /// Whether front-ends see paths and policy in the vendor window, as with the disk that has the paths. They cannot set the policy,
    /// which belongs to that disk. Default: `false`.
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
            socket_mode: None,
            socket_owner: None,
            socket_group: None,
            namespace,
            limits: LimitsConfig::default(),
            weight: default_weight(),
            read_only: false,
            queues: default_queues(),
            mpath_window: false,
        }
    }

    /// Mode, owner and group of the vhost-user socket.
    #[must_use]
    pub fn socket_access(&self) -> SocketAccess {
        SocketAccess { mode: self.socket_mode, owner: self.socket_owner.clone(), group: self.socket_group.clone() }
    }
}
