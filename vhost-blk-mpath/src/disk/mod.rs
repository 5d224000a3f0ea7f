//! One disk, as a guest sees it. Its paths belong to its [`Subsystem`](crate::subsystem::Subsystem), which may have
//! other disks.

pub(crate) mod front_ends;
pub(crate) mod geometry;
pub(crate) mod health;
pub(crate) mod refused_namespace;
pub(crate) mod settings;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use monotonic::Instant;
use mpath_api::types::{EventKind, FrontEndProcess};
use mpath_core::{DiskId, FlowId, SharedDisk};
use mpath_lifecycle::{DiskDriver, HoldReason, InheritedFence, NamespaceName};
use nvme_tcp::host::NamespaceIdentity;
use reactor::DiskQueues;
use vhost_user_blk::{DiskGeometry, GeometryError, SECTOR_BYTES, VirtioDisk};

use crate::disk::front_ends::{FrontEnds, WaitingFrontEnd};
use crate::disk::health::HealthHistory;
use crate::disk::refused_namespace::RefusedNamespace;
use crate::disk::settings::DiskSettings;
use crate::events::EventLog;

pub(crate) struct Disk {
    pub(crate) id: DiskId,
    /// The id of its first virtqueue. The others follow.
    pub(crate) first_flow: FlowId,
    pub(crate) settings: DiskSettings,
    /// The part shared with the I/O threads. [`LiveSettings::limits`](mpath_config::LiveSettings) has its limits as configured.
    pub(crate) shared: SharedDisk,
    /// Requests that a guest may come back for. The I/O threads keep the count.
    pub(crate) queues: Arc<DiskQueues>,
    backing: OnceLock<Backing>,
    driver: Mutex<DiskDriver>,
    /// The namespace that it must not use, unless another path has led to one that it may use.
    refused: Mutex<Option<RefusedNamespace>>,
    connected: AtomicBool,
    front_ends: Mutex<FrontEnds>,
    health: Mutex<HealthHistory>,
    events: Arc<EventLog>,
}

/// The namespace behind the disk and the virtio disk shown for it. Known once a path has led there, or from an earlier
/// daemon.
pub(crate) struct Backing {
    /// The name by which the namespace became known.
    pub(crate) name: NamespaceName,
    pub(crate) frontend: Arc<VirtioDisk>,
    /// Set when the first path of this daemon has led to the namespace.
    found: OnceLock<FoundNamespace>,
}

/// A namespace as the first path has found it.
pub(crate) struct FoundNamespace {
    /// The namespace at that time. It may have grown since.
    pub(crate) identity: NamespaceIdentity,
    /// The disk that the next daemon shows. Front-ends may see less until then.
    pub(crate) geometry: DiskGeometry,
}

impl Backing {
    /// A disk as front-ends see it from now on.
    pub(crate) fn new(name: NamespaceName, frontend: VirtioDisk) -> Self {
        Self { name, frontend: Arc::new(frontend), found: OnceLock::new() }
    }

    /// The namespace as the first path has found it; `None` if no path has.
    pub(crate) fn found(&self) -> Option<&FoundNamespace> {
        self.found.get()
    }

    /// Sets the namespace, when the first path has led there.
    pub(crate) fn set_found(&self, found: FoundNamespace) {
        assert!(self.found.set(found).is_ok(), "set once, under the admission lock");
    }

    /// The namespace as paths compare theirs with it, once a path has led there.
    pub(crate) fn served_namespace(&self) -> Option<mpath_lifecycle::ServedNamespace> {
        let namespace = self.found()?.identity;
        Some(mpath_lifecycle::ServedNamespace { namespace, shown_blocks: self.blocks() })
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.frontend.geometry().block_size
    }

    /// The size that guests see, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.frontend.capacity_sectors() * SECTOR_BYTES
    }

    /// The size that guests see, in blocks of the namespace.
    pub(crate) fn blocks(&self) -> u64 {
        self.bytes() / u64::from(self.block_bytes())
    }

    /// Checks that guests can see this many blocks.
    pub(crate) fn check_size(&self, blocks: u64) -> Result<(), GeometryError> {
        self.frontend.geometry().check_capacity(geometry::sectors(blocks, self.block_bytes()))
    }

    /// Shows guests this many blocks, if they see fewer. If the size has changed, returns whether a front-end was told.
    pub(crate) fn grow(&self, blocks: u64) -> Result<Option<bool>, GeometryError> {
        self.frontend.grow(geometry::sectors(blocks, self.block_bytes()))
    }
}

impl Disk {
    pub(crate) fn new(
        id: DiskId,
        first_flow: FlowId,
        settings: DiskSettings,
        queues: Arc<DiskQueues>,
        driver: DiskDriver,
        events: Arc<EventLog>,
    ) -> Self {
        Self {
            id,
            first_flow,
            settings,
            shared: driver.shared().clone(),
            queues,
            backing: OnceLock::new(),
            driver: Mutex::new(driver),
            refused: Mutex::default(),
            connected: AtomicBool::new(false),
            front_ends: Mutex::default(),
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

    /// The namespace behind it, once it is known.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        self.backing.get()
    }

    /// Sets the namespace to which a path has led, or which an earlier daemon has shown.
    pub(crate) fn set_backing(&self, backing: Backing) -> &Backing {
        assert!(self.backing.set(backing).is_ok(), "set once, under the admission lock");
        self.backing().expect("just set")
    }

    /// Records that a path has led to a namespace that the disk may use.
    pub(crate) fn accept(&self) {
        *self.refused_mut() = None;
    }

    /// The fence that requests of guests have to wait for.
    pub(crate) fn inherited_fence(&self) -> Option<InheritedFence> {
        self.driver().hold.inherited_fence().cloned()
    }

    /// Decides when front-ends are served and requests are fetched, and how the disk grows.
    /// [`Subsystem::change_disk`](crate::subsystem::Subsystem::change_disk) carries out changes of its hold.
    pub(crate) fn driver(&self) -> MutexGuard<'_, DiskDriver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the disk must not use the namespace that a path leads to.
    pub(crate) fn refuse(&self, refused: &RefusedNamespace) {
        let before = self.refused_mut().replace(refused.clone());
        if before.as_ref() != Some(refused) {
            self.event(EventKind::DiskRefused, format!("namespace refused: {refused}"));
        }
    }

    /// Why the disk must not use the namespace that a path leads to, if no path leads to another.
    pub(crate) fn refused(&self) -> Option<RefusedNamespace> {
        self.refused_mut().clone()
    }

    fn refused_mut(&self) -> MutexGuard<'_, Option<RefusedNamespace>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether front-ends are served.
    pub(crate) fn is_served(&self) -> bool {
        self.driver().opening.is_open()
    }

    /// Why it takes no requests because of an earlier daemon or a removed disk, and for how much longer if that is known.
    pub(crate) fn hold_reason(&self, now: Instant) -> Option<String> {
        self.driver().hold.reason(now).map(|reason| describe_hold(reason, now))
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Records that a front-end has come. `pid` is its process, if that is known.
    pub(crate) fn front_end_came(&self, pid: Option<u32>) {
        self.connected.store(true, Ordering::Relaxed);
        let starts = self.queues.starts();
        self.front_ends().came(pid, starts);
    }

    /// Records that the front-end has left.
    pub(crate) fn front_end_left(&self) {
        self.connected.store(false, Ordering::Relaxed);
        let starts = self.queues.starts();
        let trouble = self.front_ends().left(starts, Instant::now());
        if let Some(trouble) = trouble {
            self.event(EventKind::FrontEndFlapping, trouble);
        }
    }

    /// The process of the connected front-end, if that is known.
    pub(crate) fn front_end_process(&self) -> Option<FrontEndProcess> {
        self.front_ends().process()
    }

    /// Records whether another front-end was seen to wait on the socket.
    pub(crate) fn saw_waiting_front_end(&self, waiting: Option<WaitingFrontEnd>) {
        let told = self.front_ends().saw_waiting(waiting);
        if let Some(message) = told {
            self.event(EventKind::FrontEndWaiting, message);
        }
    }

    /// That a front-end waits on the socket, and for whom.
    pub(crate) fn waiting_front_end(&self) -> Option<String> {
        self.front_ends().waiting()
    }

    /// Why no front-end is connected.
    pub(crate) fn no_front_end(&self, now: Instant) -> String {
        let trouble = self.front_ends().trouble(now).map(|trouble| format!("; {trouble}"));
        format!("no front-end is connected{}", trouble.unwrap_or_default())
    }

    fn front_ends(&self) -> MutexGuard<'_, FrontEnds> {
        self.front_ends.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Why a disk is held, for events and the API.
pub(crate) fn describe_hold(reason: HoldReason, now: Instant) -> String {
    match reason {
        HoldReason::InheritedFence(InheritedFence { until, of }) => {
            let left = (until - now).as_secs_f64();
            let whose = match of {
                None => {
                    "the previous daemon, or the disk that was on this socket, was killed or left writes in doubt, and its".into()
                }
                Some(of) => format!("the removed disk `{of}` used this namespace, and its"),
            };
            format!("requests wait for {left:.1} s: {whose} writes may be executed until then")
        }
        HoldReason::UntriedPaths => {
            "requests wait until every path was tried: the previous daemon did not end in order, and any controller may have its unflushed \
             writes"
                .into()
        }
    }
}
