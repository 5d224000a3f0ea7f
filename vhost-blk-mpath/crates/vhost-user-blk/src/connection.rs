//! The vhost-user messages (QEMU `docs/interop/vhost-user.rst`) of one connection.
//!
//! A queue runs while its ring is *started* (it has a kick descriptor) and *enabled*. It is the I/O thread's then; whatever
//! changes its set-up first takes it back, drained, and hands over a new one afterwards:
//!
//! ```text
//!            kick and enabled and addresses and size
//!   stopped ─────────────────────────────────────────► running in the sink
//!      ▲                                                    │
//!      └──── GET_VRING_BASE, disable, hang-up ◄─────────────┤
//!                                                           │
//!   new memory map, features, addresses, size, position, in-flight memory, dirty log: stop, change, start
//! ```
//!
//! A queue that cannot be drained ends the connection without an answer, as does all else after which front-end and back-end do not
//! agree: a QEMU before 10.1 that gets an error for an answer while a migration begins calls `abort()`. What a queue had in flight
//! stays in the in-flight log, if the front-end keeps one, and is resubmitted when that connects again.

use std::fs::File;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vhost::VhostUserMemoryRegionBase as RegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error as MessageError, GpuBackend, Result as MessageResult, VhostUserBackendReqHandlerMut,
    VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_FLUSH};
use virtio_bindings::virtio_config::{VIRTIO_F_ANY_LAYOUT, VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::area::AreaError;
use crate::config_space;
use crate::dirty::{DirtyLog, QueueLog};
use crate::disk::Disk;
use crate::error::{RequestError, ServeError};
use crate::inflight::{InflightMemory, InflightShape};
use crate::memory::{GuestMemory, MAX_MEMORY_REGIONS, MemoryFault, RegionLayout, SharedMemory};
use crate::notify::{Alarm, Kick};
use crate::ring::{Queue, QueueParts, RingError, RingLayout};
use crate::sink::QueueSink;
use crate::vring::{RingAddresses, Vring};
use crate::window;

const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
/// A migration is under way: whatever is written to guest memory is to be marked in the dirty log.
const LOG_ALL: u64 = VhostUserVirtioFeatures::LOG_ALL.bits();

/// What to do after a message that was answered with an error.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The front-end can go on as if it had not asked.
    Refused(RequestError),
    /// The front-end and we do not agree about the state any more.
    End(ServeError),
}

pub(crate) struct Connection<'a> {
    disk: Arc<Disk>,
    sink: &'a dyn QueueSink,
    /// The socket, to hang up on.
    socket: UnixStream,
    memory: GuestMemory,
    /// Where the front-end keeps what is in flight.
    inflight: Option<InflightMemory>,
    features: u64,
    vrings: Vec<Vring>,
    /// Used while [`LOG_ALL`] is among the features. It may come before that, and after it, too.
    log: Option<Arc<DirtyLog>>,
    /// A queue waits for it, which was said once.
    log_missed: bool,
    protocol_features: VhostUserProtocolFeatures,
    /// The size that the front-end was told last. A QEMU that has lost its back-end for a while reads it only when told to.
    told_capacity: Option<u64>,
    /// Rings when memory of the front-end could not be accessed.
    alarm: Arc<Alarm>,
    /// Why the last message failed; the message layer's own error says less.
    verdict: Option<Verdict>,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(disk: Arc<Disk>, sink: &'a dyn QueueSink, socket: UnixStream, alarm: Arc<Alarm>) -> Self {
        let vrings = std::iter::repeat_with(Vring::default).take(disk.geometry().num_queues.into()).collect();
        Self {
            disk,
            sink,
            socket,
            memory: GuestMemory::default(),
            inflight: None,
            features: 0,
            vrings,
            log: None,
            log_missed: false,
            protocol_features: VhostUserProtocolFeatures::empty(),
            told_capacity: None,
            alarm,
            verdict: None,
        }
    }

    pub(crate) fn take_verdict(&mut self) -> Option<Verdict> {
        self.verdict.take()
    }

    pub(crate) fn has_protocol_feature(&self, feature: VhostUserProtocolFeatures) -> bool {
        self.protocol_features.contains(feature)
    }

    /// What is to be said of memory of the front-end that could not be accessed, if there is any.
    pub(crate) fn memory_fault(&self) -> Option<MemoryFault> {
        let inflight = || self.inflight.as_ref().and_then(InflightMemory::fault);
        let log = || self.log.as_ref().and_then(|log| log.fault());
        self.memory.fault(SharedMemory::Guest).or_else(inflight).or_else(log)
    }

    /// Takes all queues back that run. Tries all, even when one fails.
    pub(crate) fn stop_all(&mut self) -> Result<(), ServeError> {
        let indices: Vec<u16> = (0..).zip(&self.vrings).filter(|(_, vring)| vring.running).map(|(at, _)| at).collect();
        let queues = self.sink.stop(&indices);
        let taken = indices.into_iter().zip(queues).map(|(index, queue)| self.take_back(index, queue));
        taken.fold(Ok(()), Result::and)
    }

    fn offered_features(&self) -> u64 {
        self.disk.features()
            | 1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_F_RING_PACKED
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            // Of drivers from before virtio 1.0, whose acknowledgement QEMU passes on. Any layout is understood anyway.
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
        // Found, so the index is below `num_queues`.
        vring
            .map(|vring| (index as u16, vring))
            .ok_or(ServeError::Request(RequestError::QueueIndex { index, num_queues }))
    }

    /// Takes queue `index` back if it runs.
    fn stop(&mut self, index: u16) -> Result<(), ServeError> {
        if !self.vring(index.into())?.1.running {
            return Ok(());
        }
        let queue = self.sink.stop(&[index]).pop().flatten();
        self.take_back(index, queue)
    }

    /// A queue that ran, as its I/O thread gave it back, or did not.
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

    /// Starts queue `index` if it does not run and everything it needs is there.
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
            // QEMU, when a device starts during a migration, passes the log last: nothing runs until it is there.
            let Some(dirty_log) = self.log.clone() else {
                self.warn_of_missing_log(index);
                return Ok(());
            };
            self.log_missed = false;
            let queue_log = QueueLog { log: dirty_log, used_ring };
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
        self.sink.start(queue).map_err(|_| ServeError::NotStarted(index))?;
        self.vring(index.into())?.1.running = true;
        // QEMU passes a change on only while the device runs: one that came before is lost.
        let capacity = Some(self.disk.capacity_sectors());
        if self.told_capacity != capacity {
            self.told_capacity = capacity;
            self.disk.tell_of_change();
        }
        let RingLayout { size, position, .. } = layout;
        tracing::debug!(queue = index, size, packed, position = format_args!("{position:#x}"), "queue started");
        Ok(())
    }

    /// QEMU enables queues after it has passed the log, so this one may wait for ever.
    fn warn_of_missing_log(&mut self, queue: u16) {
        if !std::mem::replace(&mut self.log_missed, true) {
            tracing::warn!(
                queue,
                "LOG_ALL is set, but the front-end has passed no dirty log: virtqueues wait for its SET_LOG_BASE"
            );
        }
    }

    /// Changes the set-up of one queue, which does not run meanwhile.
    fn change_vring(&mut self, index: u32, change: impl FnOnce(&mut Vring)) -> Result<(), ServeError> {
        let (index, _) = self.vring(index)?;
        self.stop(index)?;
        change(self.vring(index.into())?.1);
        self.start_if_ready(index)
    }

    /// Changes what all queues depend on; none runs meanwhile.
    fn change_all(&mut self, change: impl FnOnce(&mut Self)) -> Result<(), ServeError> {
        self.stop_all()?;
        change(self);
        (0..self.vrings.len() as u16).try_for_each(|index| self.start_if_ready(index))
    }

    /// The largest in-flight memory that this disk can have.
    fn inflight_max(&self) -> InflightShape {
        let queue_size = self.disk.geometry().queue_size_max;
        InflightShape { packed: self.is_packed(), num_queues: self.vrings.len() as u16, queue_size }
    }

    fn make_inflight(&self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File), RequestError> {
        let &VhostUserInflight { num_queues, queue_size, .. } = asked;
        let (shape, max) = (InflightShape { packed: self.is_packed(), num_queues, queue_size }, self.inflight_max());
        shape.check(max)?;
        let shape = shape.for_queues_of(max.queue_size);
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
            (window::POLICY, &[low, high]) if self.disk.has_window() => {
                Ok(self.sink.set_policy(u16::from_le_bytes([low, high]))?)
            }
            _ => Err(RequestError::ConfigWrite { offset, bytes: bytes.len() }),
        }
    }

    /// Hands the reason of a failure past the message layer, which knows only its own; and hangs up, as it would answer.
    fn report<T>(&mut self, result: Result<T, ServeError>) -> MessageResult<T> {
        result.map_err(|error| {
            // Before that: a front-end that finds us gone counts on its memory not to change any more.
            if let Err(also) = self.stop_all() {
                tracing::debug!(error = %also, "at the end of the connection");
            }
            // Fails only if the front-end was quicker.
            let _ = self.socket.shutdown(Shutdown::Both);
            self.verdict = Some(Verdict::End(error));
            MessageError::BackendInternalError
        })
    }
}

/// The answer to a message of a feature that was not offered.
fn not_offered<T>() -> MessageResult<T> {
    Err(MessageError::InvalidOperation("feature not offered"))
}

fn map_regions<'r>(
    memory: GuestMemory,
    regions: impl Iterator<Item = (&'r VhostUserMemoryRegion, File)>,
) -> Result<GuestMemory, RequestError> {
    let mut regions = regions;
    regions.try_fold(memory, |memory, (region, file)| Ok(memory.with_region(layout(region), file)?))
}

fn layout(region: &VhostUserMemoryRegion) -> RegionLayout {
    RegionLayout {
        guest_start: region.guest_phys_addr,
        user_start: region.user_addr,
        bytes: region.memory_size,
        file_offset: region.mmap_offset,
    }
}

impl VhostUserBackendReqHandlerMut for Connection<'_> {
    fn set_owner(&mut self) -> MessageResult<()> {
        Ok(())
    }

    /// Deprecated; the document recommends to ignore it.
    fn reset_owner(&mut self) -> MessageResult<()> {
        Ok(())
    }

    fn get_features(&mut self) -> MessageResult<u64> {
        Ok(self.offered_features())
    }

    fn set_features(&mut self, features: u64) -> MessageResult<()> {
        let unknown = features & !self.offered_features();
        if unknown != 0 {
            return self.report(Err(RequestError::Features(unknown).into()));
        }
        tracing::debug!(features = format_args!("{features:#x}"), "features negotiated");
        let changed = self.change_all(|connection| {
            connection.features = features;
            if features & LOG_ALL == 0 {
                connection.log = None;
            }
            // Without the protocol features there is no message to enable a ring.
            if features & PROTOCOL_FEATURES == 0 {
                connection.vrings.iter_mut().for_each(|vring| vring.enabled = true);
            }
        });
        self.report(changed)
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> MessageResult<Option<Vec<RegionBase>>> {
        let mapped = map_regions(GuestMemory::default(), regions.iter().zip(files));
        let changed = mapped.map_err(ServeError::from).and_then(|memory| self.change_all(|this| this.memory = memory));
        self.report(changed).map(|()| None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> MessageResult<()> {
        let max = self.disk.geometry().queue_size_max;
        let packed = self.is_packed();
        let possible = |size: &u16| (1..=max).contains(size) && (packed || size.is_power_of_two());
        let size = u16::try_from(num).ok().filter(possible);
        let changed = size
            .ok_or(ServeError::Request(RequestError::QueueSize { size: num, max }))
            .and_then(|size| self.change_vring(index, |vring| vring.size = size));
        self.report(changed)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> MessageResult<()> {
        let used_logged_at = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG).then_some(log);
        let addresses = RingAddresses { descriptors, available, used, used_logged_at };
        let changed = self.change_vring(index, |vring| vring.addresses = Some(addresses));
        self.report(changed)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> MessageResult<()> {
        // What it means depends on the features; the start of the queue looks at it.
        let changed = self.change_vring(index, |vring| vring.position = Some(base));
        self.report(changed)
    }

    fn get_vring_base(&mut self, index: u32) -> MessageResult<VhostUserVringState> {
        let packed = self.is_packed();
        let stopped = self.vring(index).map(|(index, _)| index).and_then(|index| {
            self.stop(index)?;
            let (_, vring) = self.vring(index.into())?;
            if vring.left_in_flight {
                return Err(ServeError::NotTakenUp(index));
            }
            vring.kick = None;
            let position = vring.position(packed);
            if !self.vrings.iter().any(|vring| vring.running) {
                // What starts again during a migration is told of a log of its own, perhaps only after the start.
                self.log = None;
            }
            Ok(position)
        });
        self.report(stopped).map(|base| VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> MessageResult<()> {
        let kick = file
            .ok_or(RequestError::NoKick(index.into()))
            .and_then(|file| Kick::new(file).map_err(RequestError::Descriptor))
            .map_err(ServeError::from);
        let changed = kick.and_then(|kick| self.change_vring(index.into(), |vring| vring.kick = Some(Arc::new(kick))));
        self.report(changed)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> MessageResult<()> {
        let set = self.vring(index.into()).and_then(|(_, vring)| {
            vring.notifier.set_call(file).map_err(RequestError::Descriptor)?;
            // An earlier daemon may have been killed between the used index and its signal. One too many hurts nobody.
            vring.notifier.signal();
            Ok(())
        });
        self.report(set)
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> MessageResult<()> {
        let set = self
            .vring(index.into())
            .and_then(|(_, vring)| Ok(vring.notifier.set_error(file).map_err(RequestError::Descriptor)?));
        self.report(set)
    }

    fn get_protocol_features(&mut self) -> MessageResult<VhostUserProtocolFeatures> {
        Ok(Self::offered_protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> MessageResult<()> {
        let unknown = features & !Self::offered_protocol_features().bits();
        if unknown != 0 {
            return self.report(Err(RequestError::ProtocolFeatures(unknown).into()));
        }
        self.protocol_features = VhostUserProtocolFeatures::from_bits_retain(features);
        Ok(())
    }

    fn get_queue_num(&mut self) -> MessageResult<u64> {
        Ok(self.vrings.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> MessageResult<()> {
        let already = self.vring(index).is_ok_and(|(_, vring)| vring.enabled == enable);
        let changed = if already { Ok(()) } else { self.change_vring(index, |vring| vring.enabled = enable) };
        self.report(changed)
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> MessageResult<Vec<u8>> {
        // 5.2.5.2: with CONFIG_WCE but not FLUSH the mode is write-through.
        let no_flush = self.has_feature(VIRTIO_BLK_F_CONFIG_WCE) && !self.has_feature(VIRTIO_BLK_F_FLUSH);
        let capacity = self.disk.capacity_sectors();
        let mut space = config_space::bytes(self.disk.geometry(), capacity, self.disk.writeback() && !no_flush);
        // Who reads less of the space does not use the window. Who reads all of it wants the window: a QEMU that does keeps no
        // size from that, not even while its device does not run.
        if config_space::reaches(&window::PLACE, offset, size) {
            if let Some(window) = self.disk.read_window() {
                space[window::PLACE].copy_from_slice(&window);
            }
        } else if config_space::CAPACITY.contains(&(offset as usize)) {
            self.told_capacity = Some(capacity);
        }
        Ok(config_space::read(&space, offset, size))
    }

    /// A refusal must not end the connection: it is the guest that writes here, or whoever operates the front-end.
    fn set_config(&mut self, offset: u32, bytes: &[u8], _flags: VhostUserConfigFlags) -> MessageResult<()> {
        self.write_config(offset, bytes).map_err(|error| {
            self.verdict = Some(Verdict::Refused(error));
            MessageError::InvalidParam
        })
    }

    fn get_max_mem_slots(&mut self) -> MessageResult<u64> {
        Ok(MAX_MEMORY_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy_listening: Option<bool>,
    ) -> MessageResult<Option<RegionBase>> {
        let mapped = map_regions(self.memory.clone(), std::iter::once((&**region, file)));
        let changed = mapped.map_err(ServeError::from).and_then(|memory| self.change_all(|this| this.memory = memory));
        self.report(changed).map(|()| None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> MessageResult<()> {
        let rest = self.memory.without_region(&layout(region)).map_err(RequestError::from);
        let changed = rest.map_err(ServeError::from).and_then(|memory| {
            self.stop_all()?;
            self.memory = memory;
            (0..self.vrings.len() as u16).try_for_each(|index| match self.start_if_ready(index) {
                // The region may come back, larger or elsewhere: QEMU removes what changes before it adds it.
                Err(ServeError::Ring { error: RingError::Area(AreaError::Unmapped { .. }), .. }) => Ok(()),
                started => started,
            })
        });
        self.report(changed)
    }

    /// While queues run with another log, they are stopped first: when this is answered the front-end reads that one for the
    /// last time.
    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> MessageResult<()> {
        let mapped = DirtyLog::map(file, log.mmap_offset, log.mmap_size).map_err(RequestError::from);
        let changed = mapped.map_err(ServeError::from).and_then(|log| {
            if self.features & LOG_ALL == 0 {
                self.log = Some(Arc::new(log));
                return Ok(());
            }
            self.change_all(|this| this.log = Some(Arc::new(log)))
        });
        self.report(changed)
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> MessageResult<(VhostUserInflight, File)> {
        let made = self.make_inflight(asked).map_err(ServeError::from);
        self.report(made)
    }

    /// Also with what a front-end has kept since an earlier daemon.
    fn set_inflight_fd(&mut self, told: &VhostUserInflight, file: File) -> MessageResult<()> {
        let mapped = self.map_inflight(told, file).map_err(ServeError::from);
        let changed = mapped.and_then(|inflight| self.change_all(|this| this.inflight = Some(inflight)));
        self.report(changed)
    }

    // The rest belongs to features that are not offered; the message layer wants an answer to each all the same.

    fn reset_device(&mut self) -> MessageResult<()> {
        not_offered()
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> MessageResult<()> {
        not_offered()
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> MessageResult<File> {
        not_offered()
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> MessageResult<Option<File>> {
        not_offered()
    }

    fn check_device_state(&mut self) -> MessageResult<()> {
        not_offered()
    }

    fn get_shmem_config(&mut self) -> MessageResult<VhostUserShMemConfig> {
        not_offered()
    }
}
