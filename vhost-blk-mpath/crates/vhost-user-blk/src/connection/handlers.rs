//! Decides: the content of a vhost-user message is accepted.
//!
//! The handler of each vhost-user message.

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
    VhostUserProtocolFeatures,
};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_FLUSH};

use super::{Connection, LOG_ALL, PROTOCOL_FEATURES, RequestFailure};
use crate::area::AreaError;
use crate::config_space;
use crate::dirty_log::DirtyLog;
use crate::error::{RequestError, ServeError};
use crate::memory::{GuestMemory, MAX_MEMORY_REGIONS, RegionLayout};
use crate::notify::Kick;
use crate::ring::RingError;
use crate::vendor_window;
use crate::vring::RingAddresses;

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

    /// Deprecated. The vhost-user document recommends to ignore it.
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
        // The meaning depends on the features. The position is checked when the queue starts.
        let changed = self.change_vring(index, |vring| vring.position = Some(base));
        self.report(changed)
    }

    fn get_vring_base(&mut self, index: u32) -> MessageResult<VhostUserVringState> {
        let packed = self.is_packed();
        let stopped = self.vring(index).map(|(index, _)| index).and_then(|index| {
            self.stop(index)?;
            let (_, vring) = self.vring(index.into())?;
            if vring.left_in_flight {
                return Err(ServeError::NotResubmitted(index));
            }
            vring.kick = None;
            let position = vring.position(packed);
            if !self.vrings.iter().any(|vring| vring.running) {
                // If the device starts again during the migration, the front-end passes another log, perhaps only after
                // the start.
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
        let set = self
            .vring(index.into())
            .and_then(|(_, vring)| Ok(vring.notifier.set_call_and_signal(file).map_err(RequestError::Descriptor)?));
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
        // A front-end that reads less of the space does not know the window. A front-end that reads all of it wants the
        // window: a QEMU that does keeps no capacity from this read, even while its device does not run.
        if config_space::reaches(&vendor_window::RANGE, offset, size) {
            if let Some(window) = self.disk.read_vendor_window() {
                space[vendor_window::RANGE].copy_from_slice(&window);
            }
        } else if config_space::CAPACITY.contains(&(offset as usize)) {
            self.reported_capacity = Some(capacity);
        }
        Ok(config_space::read(&space, offset, size))
    }

    /// A refusal must not end the connection: the guest or the operator of the front-end chose the value.
    fn set_config(&mut self, offset: u32, bytes: &[u8], _flags: VhostUserConfigFlags) -> MessageResult<()> {
        self.write_config(offset, bytes).map_err(|error| {
            self.failure = Some(RequestFailure::Refused(error));
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
                // QEMU removes a changed region before it adds it again, larger or elsewhere.
                Err(ServeError::Ring { error: RingError::Area(AreaError::Unmapped { .. }), .. }) => Ok(()),
                started => started,
            })
        });
        self.report(changed)
    }

    /// If queues run with another log, they are stopped first: after the answer the front-end reads that log for the
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

    /// The file may be one that the front-end has kept since an earlier daemon.
    fn set_inflight_fd(&mut self, told: &VhostUserInflight, file: File) -> MessageResult<()> {
        let mapped = self.map_inflight(told, file).map_err(ServeError::from);
        let changed = mapped.and_then(|inflight| self.change_all(|this| this.inflight = Some(inflight)));
        self.report(changed)
    }

    // The message layer requires handlers for features that are not offered.

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
