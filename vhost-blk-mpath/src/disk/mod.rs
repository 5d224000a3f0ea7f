//! One disk, as a guest sees it. Its paths belong to its [`Subsystem`](crate::subsystem::Subsystem), which may have
//! other disks.

pub(crate) mod geometry;
pub(crate) mod health;
pub(crate) mod settings;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use mpath_api::config::{LimitsConfig, Weight};
use mpath_api::types::EventKind;
use mpath_core::{DiskId, FlowId, SharedDisk};
use mpath_host::Suspension;
use nvme_tcp::host::NamespaceIdentity;
use reactor::UnansweredQueues;
use vhost_user_blk::{GeometryError, SECTOR_BYTES, VirtioDisk};

use crate::disk::health::HealthHistory;
use crate::disk::settings::DiskSettings;
use crate::events::EventLog;

pub(crate) struct Disk {
    pub(crate) id: DiskId,
    /// The id of its first virtqueue. The others follow.
    pub(crate) first_flow: FlowId,
    pub(crate) settings: DiskSettings,
    /// The part shared with the I/O threads. [`DiskTuning::limits`] has its limits as configured.
    pub(crate) shared: SharedDisk,
    /// Requests that a guest may come back for. The I/O threads keep the count.
    pub(crate) unanswered: Arc<UnansweredQueues>,
    pub(crate) suspension: Mutex<Suspension>,
    backing: OnceLock<Backing>,
    connected: AtomicBool,
    tuning: Mutex<DiskTuning>,
    health: Mutex<HealthHistory>,
    events: Arc<EventLog>,
}

/// The namespace behind the disk and the virtio disk shown for it, known once a path has led there.
pub(crate) struct Backing {
    /// The namespace at that time. It may have grown since.
    pub(crate) namespace: NamespaceIdentity,
    pub(crate) frontend: Arc<VirtioDisk>,
}

impl Backing {
    /// The namespace as paths compare theirs with it.
    pub(crate) fn served_namespace(&self) -> mpath_host::ServedNamespace {
        mpath_host::ServedNamespace { namespace: self.namespace, shown_blocks: self.blocks() }
    }

    /// The size that guests see, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.frontend.capacity_sectors() * SECTOR_BYTES
    }

    /// The size that guests see, in blocks of the namespace.
    pub(crate) fn blocks(&self) -> u64 {
        self.bytes() / u64::from(self.namespace.block_bytes)
    }

    /// Shows guests this many blocks, if they see fewer. Returns whether the size has changed.
    pub(crate) fn grow(&self, blocks: u64) -> Result<bool, GeometryError> {
        self.frontend.grow(geometry::sectors(blocks, self.namespace.block_bytes))
    }
}

/// The settings of the disk alone that the API shows and changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskTuning {
    pub(crate) limits: LimitsConfig,
    pub(crate) weight: Weight,
}

impl Disk {
    pub(crate) fn new(
        id: DiskId,
        first_flow: FlowId,
        settings: DiskSettings,
        shared: SharedDisk,
        unanswered: Arc<UnansweredQueues>,
        events: Arc<EventLog>,
    ) -> Self {
        shared.limits.set(Instant::now(), settings.limits.limits());
        let tuning = Mutex::new(DiskTuning { limits: settings.limits, weight: settings.weight });
        Self {
            id,
            first_flow,
            settings,
            shared,
            unanswered,
            suspension: Mutex::default(),
            backing: OnceLock::new(),
            connected: AtomicBool::new(false),
            tuning,
            health: Mutex::default(),
            events,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.settings.name.as_str()
    }

    /// The flow of one of its virtqueues.
    pub(crate) fn flow(&self, queue: u16) -> FlowId {
        FlowId(self.first_flow.0 + queue)
    }

    /// The namespace behind it, once a path has led there.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        self.backing.get()
    }

    /// Sets the namespace, when the first path has led there.
    pub(crate) fn set_backing(&self, backing: Backing) {
        assert!(self.backing.set(backing).is_ok(), "set once, under the admission lock");
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }

    pub(crate) fn tuning(&self) -> MutexGuard<'_, DiskTuning> {
        self.tuning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen of its health.
    pub(crate) fn health(&self) -> MutexGuard<'_, HealthHistory> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event of the disk.
    pub(crate) fn event(&self, kind: EventKind, message: impl Into<String>) {
        self.events.record(self.name(), None, kind, message.into());
    }
}
