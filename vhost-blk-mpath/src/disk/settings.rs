//! The settings of one disk.

use mpath_config::{Bounded, DiskConfig, DiskName, QueueCount, SharerConfig, SocketAccess, SocketPath};

/// The settings of a disk that stay as long as it exists, whether it owns its paths or shares another disk's.
#[derive(Debug, Clone)]
pub(crate) struct DiskSettings {
    pub(crate) name: DiskName,
    pub(crate) socket_path: SocketPath,
    pub(crate) socket_access: SocketAccess,
    /// `None` for the subsystem's only namespace.
    pub(crate) nsid: Option<u32>,
    pub(crate) read_only: bool,
    pub(crate) queues: QueueCount,
    pub(crate) mpath_window: bool,
}

impl From<&SharerConfig> for DiskSettings {
    fn from(config: &SharerConfig) -> Self {
        Self {
            name: config.name.clone(),
            socket_path: config.socket_path.clone(),
            socket_access: config.socket_access(),
            nsid: Some(config.namespace.get()),
            read_only: config.read_only,
            queues: config.queues,
            mpath_window: config.mpath_window,
        }
    }
}

impl DiskSettings {
    /// The disk that owns the paths, and then the disks that share them.
    pub(crate) fn all(config: &DiskConfig) -> Vec<Self> {
        let first = Self {
            name: config.name.clone(),
            socket_path: config.socket_path.clone(),
            socket_access: config.socket_access(),
            nsid: config.namespace.map(Bounded::get),
            read_only: config.read_only,
            queues: config.queues,
            mpath_window: config.mpath_window,
        };
        std::iter::once(first).chain(config.share_paths_with.iter().map(Self::from)).collect()
    }
}
