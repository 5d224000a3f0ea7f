//! The front-end of a virtual machine, which sends the vhost-user messages that QEMU sends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

use super::driver::{AVAILABLE, Driver, QUEUE_BYTES, USED};
use super::memory::{GUEST_START, Memory, USER_START};

/// Feature bits: event index; log all, for migrations; packed rings.
const EVENT_IDX: u64 = 1 << 29;
const LOG_ALL: u64 = 1 << 26;
const PACKED: u64 = 1 << 34;
/// The offset of the cache mode in the configuration space (virtio 1.2, 5.2.4).
const WRITEBACK: u32 = 32;

/// The in-flight log of a machine's virtqueues.
pub(super) type Inflight = (VhostUserInflight, File);

/// The settings of a device.
pub(super) struct Device<'a> {
    pub(super) memory: &'a Memory,
    pub(super) queues: &'a [Driver],
    /// The bases at which the virtqueues continue.
    pub(super) bases: &'a [u16],
    pub(super) has_event_idx: bool,
    pub(super) writeback: bool,
}

/// Connects a front-end of a device with `queues` virtqueues.
pub(super) fn connect(stream: UnixStream, queues: usize) -> Result<Frontend, vhost::Error> {
    let mut frontend = Frontend::from_stream(stream, queues as u64);
    frontend.set_owner()?;
    frontend.get_features()?;
    let protocol = frontend.get_protocol_features()?;
    let wanted = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
    frontend.set_protocol_features(protocol & wanted)?;
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    Ok(frontend)
}

impl Device<'_> {
    /// Starts all virtqueues, with the present in-flight log or a new one.
    pub(super) fn start(&self, frontend: &mut Frontend, inflight: &mut Option<Inflight>) -> Result<(), vhost::Error> {
        let offered = frontend.get_features()?;
        let event_idx = if self.has_event_idx { 0 } else { EVENT_IDX };
        frontend.set_features(offered & !(LOG_ALL | PACKED | event_idx))?;
        frontend.set_config(WRITEBACK, VhostUserConfigFlags::WRITABLE, &[u8::from(self.writeback)])?;
        if inflight.is_none() {
            let size = self.queues.iter().map(|queue| queue.size).max().unwrap_or(1);
            let wanted_log = VhostUserInflight::new(0, 0, self.queues.len() as u16, size);
            *inflight = Some(frontend.get_inflight_fd(&wanted_log)?);
        }
        if let Some((told, file)) = inflight {
            frontend.set_inflight_fd(told, file.as_raw_fd())?;
        }
        frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_START,
            memory_size: self.memory.bytes() as u64,
            userspace_addr: USER_START,
            mmap_offset: 0,
            mmap_handle: self.memory.file().as_raw_fd(),
        }])?;
        for (index, queue) in self.queues.iter().enumerate() {
            let at = USER_START + (index * QUEUE_BYTES) as u64;
            frontend.set_vring_num(index, queue.size)?;
            frontend.set_vring_base(index, self.bases[index])?;
            let addresses = VringConfigData {
                queue_max_size: queue.size,
                queue_size: queue.size,
                flags: 0,
                desc_table_addr: at,
                used_ring_addr: at + USED as u64,
                avail_ring_addr: at + AVAILABLE as u64,
                log_addr: None,
            };
            frontend.set_vring_addr(index, &addresses)?;
            frontend.set_vring_kick(index, &queue.kick)?;
            frontend.set_vring_enable(index, true)?;
        }
        Ok(())
    }
}
