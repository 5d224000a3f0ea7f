//! The settings of one disk.

use mpath_api::config::{Bounded, DiskConfig, DiskName, LimitsConfig, QueueCount, SharerConfig, SocketPath, Weight};

/// What is configured of a disk, whether it has paths of its own or uses another one's.
#[derive(Debug, Clone)]
pub(crate) struct DiskSettings {
    pub(crate) name: DiskName,
    pub(crate) socket_path: SocketPath,
    /// The subsystem's only one if `None`.
    pub(crate) nsid: Option<u32>,
    pub(crate) read_only: bool,
    pub(crate) queues: QueueCount,
    pub(crate) limits: LimitsConfig,
    pub(crate) weight: Weight,
    pub(crate) mpath_window: bool,
}

impl From<&SharerConfig> for DiskSettings {
    fn from(config: &SharerConfig) -> Self {
        Self {
            name: config.name.clone(),
            socket_path: config.socket_path.clone(),
            nsid: Some(config.namespace.get()),
            read_only: config.read_only,
            queues: config.queues,
            limits: config.limits,
            weight: config.weight,
            mpath_window: config.mpath_window,
        }
    }
}

impl DiskSettings {
    /// Of the disk that has the paths, and of those that use them.
    pub(crate) fn all(config: &DiskConfig) -> Vec<Self> {
        let first = Self {
            name: config.name.clone(),
            socket_path: config.socket_path.clone(),
            nsid: config.namespace.map(Bounded::get),
            read_only: config.read_only,
            queues: config.queues,
            limits: config.limits,
            weight: config.weight,
            mpath_window: config.mpath_window,
        };
        std::iter::once(first).chain(config.share_paths_with.iter().map(Self::from)).collect()
    }
}
