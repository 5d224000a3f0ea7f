//! Decides: a vhost-user message is accepted in this state.
//! Decides: a feature of vhost-user or of virtqueues is offered (`offered_features`, `offered_protocol_features`).
//! Decides: a virtqueue is stopped (`GET_VRING_BASE`, a hang-up) (`stop`, `stop_all`).
//!
//! The vhost-user messages (QEMU `docs/interop/vhost-user.rst`) of one connection.
//!
//! A queue runs while its ring is *started* (it has a kick descriptor) and *enabled*. Its I/O thread owns it then. A
//! change of its set-up first takes the queue back, drained, and starts a new one afterwards:
//!
//! ```text
//!            kick and enabled and addresses and size
//!   stopped ─────────────────────────────────────────► running in the runner
//!      ▲                                                    │
//!      └──── GET_VRING_BASE, disable, hang-up ◄─────────────┤
//!                                                           │
//!   new memory map, features, addresses, size, position, in-flight memory, dirty log: stop, change, start
//! ```
//!
//! A queue that cannot be drained ends the connection without an answer. So does every other disagreement about the
//! state: a QEMU before 10.1 calls `abort()` if it gets an error as an answer while a migration begins. The in-flight
//! log, if the front-end keeps one, still has the queue's requests. They are resubmitted when the front-end reconnects.

mod handlers;

use std::fs::File;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vhost::vhost_user::message::VhostUserInflight;
use vhost::vhost_user::{
    Error as MessageError, Result as MessageResult, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_CONFIG_WCE;
use virtio_bindings::virtio_config::{VIRTIO_F_ANY_LAYOUT, VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::config_space;
use crate::dirty_log::{DirtyLog, QueueDirtyLog};
use crate::disk::VirtioDisk;
use crate::error::{RequestError, ServeError};
use crate::inflight::{InflightMemory, InflightShape};
use crate::memory::{GuestMemory, MemoryFault, SharedMemory};
use crate::notify::Alarm;
use crate::queue_runner::QueueRunner;
use crate::ring::{Queue, QueueParts, RingLayout};
use crate::vendor_window;
use crate::vring::Vring;

const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
/// A migration is under way: all writes to guest memory must be marked in the dirty log.
const LOG_ALL: u64 = VhostUserVirtioFeatures::LOG_ALL.bits();

/// How the connection continues after a message failed.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// The message had no effect, and the connection goes on.
    Refused(RequestError),
    /// Front-end and back-end disagree about the state, and the connection ends.
    Fatal(ServeError),
}

pub(crate) struct Connection<'a> {
    disk: Arc<VirtioDisk>,
    runner: Box<dyn QueueRunner + 'a>,
    /// The socket, for hanging up.
    socket: UnixStream,
    memory: GuestMemory,
    /// The in-flight log, if the front-end keeps one.
    inflight: Option<InflightMemory>,
    features: u64,
    vrings: Vec<Vring>,
    /// The dirty log, used while [`LOG_ALL`] is among the features. It may arrive earlier and stay longer.
    log: Option<Arc<DirtyLog>>,
    /// The warning about a missing dirty log was given.
    warned_of_missing_log: bool,
    protocol_features: VhostUserProtocolFeatures,
    /// The capacity that the front-end read last. A QEMU that lost its back-end for a while reads it only when
    /// notified.
    reported_capacity: Option<u64>,
    /// Rings when an access to the front-end's memory failed.
    alarm: Arc<Alarm>,
    /// Why the last message failed. The message layer's own error has less detail.
    failure: Option<RequestFailure>,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(
        disk: Arc<VirtioDisk>,
        runner: Box<dyn QueueRunner + 'a>,
        socket: UnixStream,
        alarm: Arc<Alarm>,
    ) -> Self {
        let vrings = std::iter::repeat_with(Vring::default).take(disk.geometry().num_queues.into()).collect();
        Self {
            disk,
            runner,
            socket,
            memory: GuestMemory::default(),
            inflight: None,
            features: 0,
            vrings,
            log: None,
            warned_of_missing_log: false,
            protocol_features: VhostUserProtocolFeatures::empty(),
            reported_capacity: None,
            alarm,
            failure: None,
        }
    }

    pub(crate) fn take_failure(&mut self) -> Option<RequestFailure> {
        self.failure.take()
    }

    pub(crate) fn has_protocol_feature(&self, feature: VhostUserProtocolFeatures) -> bool {
        self.protocol_features.contains(feature)
    }

    /// The first fault in memory of the front-end, if there was one.
    pub(crate) fn memory_fault(&self) -> Option<MemoryFault> {
        let inflight = || self.inflight.as_ref().and_then(InflightMemory::fault);
        let log = || self.log.as_ref().and_then(|log| log.fault());
        self.memory.fault(SharedMemory::Guest).or_else(inflight).or_else(log)
    }

    /// Takes back all running queues. Tries all of them, even when one fails.
    pub(crate) fn stop_all(&mut self) -> Result<(), ServeError> {
        let indices: Vec<u16> = (0..).zip(&self.vrings).filter(|(_, vring)| vring.running).map(|(at, _)| at).collect();
        let queues = self.runner.stop(&indices);
        let taken = indices.into_iter().zip(queues).map(|(index, queue)| self.take_back(index, queue));
        taken.fold(Ok(()), Result::and)
    }

    fn offered_features(&self) -> u64 {
        self.disk.features()
            | 1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_F_RING_PACKED
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            // Drivers older than virtio 1.0 have this feature, and QEMU passes it on. Any layout is understood anyway.
            | 1 << VIRTIO_F_ANY_LAYOUT
            | PROTOCOL_FEATURES
            | LOG_ALL
    }

    fn offered_protocol_features() -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
    }

    fn has_feature(&self, feature: u32) -> bool {
        self.features & (1 << feature) != 0
    }

    fn is_packed(&self) -> bool {
        self.has_feature(VIRTIO_F_RING_PACKED)
    }

    fn vring(&mut self, index: u32) -> Result<(u16, &mut Vring), ServeError> {
        let num_queues = self.vrings.len() as u16;
        let vring = self.vrings.get_mut(index as usize);
        // The queue was found, so the index is below `num_queues`.
        vring
            .map(|vring| (index as u16, vring))
            .ok_or(ServeError::Request(RequestError::QueueIndex { index, num_queues }))
    }

    /// Takes queue `index` back if it runs.
    fn stop(&mut self, index: u16) -> Result<(), ServeError> {
        if !self.vring(index.into())?.1.running {
            return Ok(());
        }
        let queue = self.runner.stop(&[index]).pop().flatten();
        self.take_back(index, queue)
    }

    /// Records that a queue has stopped. `queue` is `None` if its I/O thread did not give it back.
    fn take_back(&mut self, index: u16, queue: Option<Queue>) -> Result<(), ServeError> {
        let (_, vring) = self.vring(index.into())?;
        vring.running = false;
        let mut queue = queue.ok_or(ServeError::NotDrained(index))?;
        queue.publish();
        if let Some(fault) = queue.fault() {
            return Err(fault.into());
        }
        if queue.outstanding() > 0 {
            return Err(ServeError::NotDrained(index));
        }
        let (_, vring) = self.vring(index.into())?;
        let position = queue.position();
        vring.position = Some(position);
        vring.left_in_flight = queue.to_resubmit() > 0;
        tracing::debug!(queue = index, position = format_args!("{position:#x}"), "queue stopped");
        Ok(())
    }

    /// Starts queue `index` if it does not run and its set-up is complete.
    fn start_if_ready(&mut self, index: u16) -> Result<(), ServeError> {
        let (disk, features) = (Arc::clone(&self.disk), self.features);
        let packed = self.is_packed();
        let event_idx = self.has_feature(VIRTIO_RING_F_EVENT_IDX);
        let (_, vring) = self.vring(index.into())?;
        if vring.running {
            return Ok(());
        }
        let Some((layout, kick)) = vring.ready(packed, event_idx) else { return Ok(()) };
        let notifier = Arc::clone(&vring.notifier);
        let used_ring = vring.addresses.and_then(|addresses| addresses.used_logged_at).filter(|_| !packed);
        let mut log = None;
        if features & LOG_ALL != 0 {
            // When a device starts during a migration, QEMU passes the log last. No queue runs until then.
            let Some(dirty_log) = self.log.clone() else {
                self.warn_of_missing_log(index);
                return Ok(());
            };
            self.warned_of_missing_log = false;
            let queue_log = QueueDirtyLog { log: dirty_log, used_ring };
            queue_log.check(&self.memory, layout.used_bytes()).map_err(RequestError::from)?;
            log = Some(queue_log);
        }
        let ring_error = |error| ServeError::Ring { index, error };
        let area = self.inflight.as_ref().map(|inflight| inflight.area(index)).transpose();
        let inflight = area.map_err(|error| ring_error(error.into()))?;
        let alarm = Arc::clone(&self.alarm);
        let parts = QueueParts { index, layout, disk, features, kick, notifier, inflight, log, alarm };
        let queue = Queue::new(&self.memory, parts).map_err(ring_error)?;
        let resubmitted = queue.to_resubmit();
        if resubmitted > 0 {
            tracing::info!(
                queue = index,
                "{resubmitted} requests were in flight when an earlier daemon ended, and go on"
            );
        }
        self.runner.start(queue).map_err(|_| ServeError::NotStarted(index))?;
        self.vring(index.into())?.1.running = true;
        // QEMU passes a notification on only while the device runs, so an earlier one may be lost.
        let capacity = Some(self.disk.capacity_sectors());
        if self.reported_capacity != capacity {
            self.reported_capacity = capacity;
            self.disk.notify_config_change();
        }
        let RingLayout { size, position, .. } = layout;
        tracing::debug!(queue = index, size, packed, position = format_args!("{position:#x}"), "queue started");
        Ok(())
    }

    /// Warns once. QEMU enables queues after it has passed the log, so this queue may wait for ever.
    fn warn_of_missing_log(&mut self, queue: u16) {
        if !std::mem::replace(&mut self.warned_of_missing_log, true) {
            tracing::warn!(
                queue,
                "LOG_ALL is set, but the front-end has passed no dirty log: virtqueues wait for its SET_LOG_BASE"
            );
        }
    }

    /// Stops one queue, changes its set-up, and starts it again.
    fn change_vring(&mut self, index: u32, change: impl FnOnce(&mut Vring)) -> Result<(), ServeError> {
        let (index, _) = self.vring(index)?;
        self.stop(index)?;
        change(self.vring(index.into())?.1);
        self.start_if_ready(index)
    }

    /// Stops all queues, changes a setting that they share, and starts them again.
    fn change_all(&mut self, change: impl FnOnce(&mut Self)) -> Result<(), ServeError> {
        self.stop_all()?;
        change(self);
        (0..self.vrings.len() as u16).try_for_each(|index| self.start_if_ready(index))
    }

    /// The largest in-flight memory of this disk.
    fn inflight_max(&self) -> InflightShape {
        let queue_size = self.disk.geometry().queue_size_max;
        InflightShape { packed: self.is_packed(), num_queues: self.vrings.len() as u16, queue_size }
    }

    fn make_inflight(&self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File), RequestError> {
        let &VhostUserInflight { num_queues, queue_size, .. } = asked;
        let (shape, max) = (InflightShape { packed: self.is_packed(), num_queues, queue_size }, self.inflight_max());
        shape.check(max)?;
        let shape = shape.enlarged_for(max.queue_size);
        Ok((VhostUserInflight::new(shape.bytes(), 0, num_queues, queue_size), shape.create()?))
    }

    fn map_inflight(&self, told: &VhostUserInflight, file: File) -> Result<InflightMemory, RequestError> {
        let &VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = told;
        let told = InflightShape { packed: self.is_packed(), num_queues, queue_size };
        let max = self.inflight_max();
        told.check(max)?;
        Ok(InflightMemory::map(told, max.queue_size, file, mmap_offset, mmap_size)?)
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> Result<(), RequestError> {
        match (offset as usize, bytes) {
            (config_space::WRITEBACK, [writeback]) if self.has_feature(VIRTIO_BLK_F_CONFIG_WCE) => {
                self.disk.set_writeback(*writeback != 0);
                tracing::debug!(writeback = *writeback != 0, "cache mode set");
                Ok(())
            }
            (vendor_window::POLICY_OFFSET, &[low, high]) if self.disk.has_vendor_window() => {
                Ok(self.runner.set_policy(u16::from_le_bytes([low, high]))?)
            }
            _ => Err(RequestError::ConfigWrite { offset, bytes: bytes.len() }),
        }
    }

    /// Keeps the reason of a failure, as the message layer knows only its own errors, and hangs up before that layer
    /// answers.
    fn report<T>(&mut self, result: Result<T, ServeError>) -> MessageResult<T> {
        result.map_err(|error| {
            // Before the hang-up: a front-end that finds the back-end gone relies on its memory not changing any more.
            if let Err(also) = self.stop_all() {
                tracing::debug!(error = %also, "stopping queues at the end of the connection failed");
            }
            // This fails only if the front-end has hung up first.
            let _ = self.socket.shutdown(Shutdown::Both);
            self.failure = Some(RequestFailure::Fatal(error));
            MessageError::BackendInternalError
        })
    }
}
