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
//!   new memory map, features, addresses, size, position, in-flight memory: stop, change, start
//! ```
//!
//! A queue that cannot be drained ends the connection without an answer. What it had in flight stays in the in-flight log, if the
//! front-end keeps one, and is resubmitted when that connects again.

use std::fs::File;
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
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::config_space;
use crate::disk::Disk;
use crate::inflight::{InflightMemory, InflightShape};
use crate::memory::{GuestMemory, MAX_MEMORY_REGIONS, RegionLayout};
use crate::notify::Kick;
use crate::ring::{Queue, QueueParts};
use crate::server::{QueueSink, RequestError, ServeError};
use crate::vring::{RingAddresses, Vring};

const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

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
    memory: GuestMemory,
    /// Where the front-end keeps what is in flight.
    inflight: Option<InflightMemory>,
    features: u64,
    vrings: Vec<Vring>,
    /// Why the last message failed; the message layer's own error says less.
    verdict: Option<Verdict>,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(disk: Arc<Disk>, sink: &'a dyn QueueSink) -> Self {
        let vrings = std::iter::repeat_with(Vring::default).take(disk.geometry().num_queues.into()).collect();
        Self { disk, sink, memory: GuestMemory::default(), inflight: None, features: 0, vrings, verdict: None }
    }

    pub(crate) fn take_verdict(&mut self) -> Option<Verdict> {
        self.verdict.take()
    }

    /// Takes all queues back. Tries all, even when one fails.
    pub(crate) fn stop_all(&mut self) -> Result<(), ServeError> {
        let indices = 0..self.vrings.len() as u16;
        indices.map(|index| self.stop(index).map(|_| ())).fold(Ok(()), Result::and)
    }

    fn offered_features(&self) -> u64 {
        self.disk.features()
            | 1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | PROTOCOL_FEATURES
    }

    fn offered_protocol_features() -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
    }

    fn has_feature(&self, feature: u32) -> bool {
        self.features & (1 << feature) != 0
    }

    fn vring(&mut self, index: u32) -> Result<(u16, &mut Vring), ServeError> {
        let num_queues = self.vrings.len() as u16;
        let vring = self.vrings.get_mut(index as usize);
        // Found, so the index is below `num_queues`.
        vring
            .map(|vring| (index as u16, vring))
            .ok_or(ServeError::Request(RequestError::QueueIndex { index, num_queues }))
    }

    /// Takes queue `index` back if it runs; whether it did.
    fn stop(&mut self, index: u16) -> Result<bool, ServeError> {
        let (_, vring) = self.vring(index.into())?;
        if !vring.running {
            return Ok(false);
        }
        vring.running = false;
        let mut queue = self.sink.stop(index).ok_or(ServeError::NotDrained(index))?;
        queue.publish();
        if queue.outstanding() > 0 {
            return Err(ServeError::NotDrained(index));
        }
        let (_, vring) = self.vring(index.into())?;
        vring.next_available = queue.next_available();
        vring.left_in_flight = queue.to_resubmit() > 0;
        tracing::debug!(queue = index, next_available = vring.next_available, "queue stopped");
        Ok(true)
    }

    /// Starts queue `index` if it does not run and everything it needs is there.
    fn start_if_ready(&mut self, index: u16) -> Result<(), ServeError> {
        let (disk, features) = (Arc::clone(&self.disk), self.features);
        let event_idx = self.has_feature(VIRTIO_RING_F_EVENT_IDX);
        let (_, vring) = self.vring(index.into())?;
        if vring.running {
            return Ok(());
        }
        let Some((layout, kick)) = vring.ready(event_idx) else { return Ok(()) };
        let notifier = Arc::clone(&vring.notifier);
        let ring_error = |error| ServeError::Ring { index, error };
        let area = self.inflight.as_ref().map(|inflight| inflight.area(index)).transpose();
        let inflight = area.map_err(|error| ring_error(error.into()))?;
        let parts = QueueParts { index, layout, disk, features, kick, notifier, inflight };
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
        tracing::debug!(queue = index, size = layout.size, next_available = layout.next_available, "queue started");
        Ok(())
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
        InflightShape { num_queues: self.vrings.len() as u16, queue_size: self.disk.geometry().queue_size_max }
    }

    fn make_inflight(&self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File), RequestError> {
        let &VhostUserInflight { num_queues, queue_size, .. } = asked;
        let shape = InflightShape { num_queues, queue_size };
        shape.check(self.inflight_max())?;
        Ok((VhostUserInflight::new(shape.bytes(), 0, num_queues, queue_size), shape.create()?))
    }

    fn map_inflight(&self, told: &VhostUserInflight, file: File) -> Result<InflightMemory, RequestError> {
        let &VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = told;
        let shape = InflightShape { num_queues, queue_size };
        shape.check(self.inflight_max())?;
        Ok(InflightMemory::map(shape, file, mmap_offset, mmap_size)?)
    }

    /// Hands the reason of a failure past the message layer, which knows only its own.
    fn report<T>(&mut self, result: Result<T, ServeError>) -> MessageResult<T> {
        result.map_err(|error| {
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
        let size = u16::try_from(num).ok().filter(|size| size.is_power_of_two() && *size <= max);
        let changed = size
            .ok_or(ServeError::Request(RequestError::QueueSize { size: num, max }))
            .and_then(|size| self.change_vring(index, |vring| vring.size = size));
        self.report(changed)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> MessageResult<()> {
        let addresses = RingAddresses { descriptors, available, used };
        let changed = self.change_vring(index, |vring| vring.addresses = Some(addresses));
        self.report(changed)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> MessageResult<()> {
        let changed = u16::try_from(base)
            .map_err(|_| ServeError::Request(RequestError::RingPosition(base)))
            .and_then(|base| self.change_vring(index, |vring| vring.next_available = base));
        self.report(changed)
    }

    fn get_vring_base(&mut self, index: u32) -> MessageResult<VhostUserVringState> {
        let stopped = self.vring(index).map(|(index, _)| index).and_then(|index| {
            self.stop(index)?;
            let (_, vring) = self.vring(index.into())?;
            if vring.left_in_flight {
                return Err(ServeError::NotDrained(index));
            }
            vring.kick = None;
            Ok(vring.next_available)
        });
        self.report(stopped).map(|base| VhostUserVringState::new(index, base.into()))
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
        let checked =
            if unknown == 0 { Ok(()) } else { Err(ServeError::Request(RequestError::ProtocolFeatures(unknown))) };
        self.report(checked)
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
        let space = config_space::bytes(self.disk.geometry(), self.disk.writeback() && !no_flush);
        Ok(config_space::read(&space, offset, size))
    }

    /// A refusal must not end the connection: it is the guest that writes here, not the front-end.
    fn set_config(&mut self, offset: u32, bytes: &[u8], _flags: VhostUserConfigFlags) -> MessageResult<()> {
        match bytes {
            [writeback] if offset as usize == config_space::WRITEBACK && self.has_feature(VIRTIO_BLK_F_CONFIG_WCE) => {
                self.disk.set_writeback(*writeback != 0);
                tracing::debug!(writeback = *writeback != 0, "cache mode set");
                Ok(())
            }
            _ => {
                let error = RequestError::ConfigWrite { offset, bytes: bytes.len() };
                self.verdict = Some(Verdict::Refused(error));
                Err(MessageError::InvalidParam)
            }
        }
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
        let changed = rest.map_err(ServeError::from).and_then(|memory| self.change_all(|this| this.memory = memory));
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

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> MessageResult<()> {
        not_offered()
    }
}
