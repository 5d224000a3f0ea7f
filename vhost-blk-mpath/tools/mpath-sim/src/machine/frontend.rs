//! The front-end of a virtual machine, which sends the vhost-user messages that QEMU sends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

use super::dirty_log::DirtyLog;
use super::driver::{AVAILABLE, Driver, QUEUE_BYTES, USED};
use super::memory::{GUEST_START, Memory, USER_START};
use crate::guest::GuestPlan;

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
    pub(super) bases: &'a [u32],
    pub(super) plan: &'a GuestPlan,
    /// The dirty log, during a migration.
    pub(super) log: Option<&'a DirtyLog>,
}

/// Connects a front-end.
pub(super) fn connect(stream: UnixStream, plan: &GuestPlan) -> Result<Frontend, vhost::Error> {
    let mut frontend = Frontend::from_stream(stream, plan.flows as u64);
    frontend.set_owner()?;
    frontend.get_features()?;
    let protocol = frontend.get_protocol_features()?;
    let mut wanted = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::LOG_SHMFD;
    wanted.set(VhostUserProtocolFeatures::INFLIGHT_SHMFD, plan.rings.have_log);
    frontend.set_protocol_features(protocol & wanted)?;
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    Ok(frontend)
}

impl Device<'_> {
    /// Starts all virtqueues, with the present in-flight log or a new one, if there is to be one.
    pub(super) fn start(
        &self,
        frontend: &mut Frontend,
        stream: &UnixStream,
        inflight: &mut Option<Inflight>,
    ) -> Result<(), vhost::Error> {
        set_features(frontend, self.plan, self.log.is_some())?;
        frontend.set_config(WRITEBACK, VhostUserConfigFlags::WRITABLE, &[u8::from(self.plan.writeback)])?;
        if inflight.is_none() && self.plan.rings.have_log {
            let size = self.queues.iter().map(|queue| queue.ring.size()).max().unwrap_or(1);
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
            let size = queue.ring.size();
            frontend.set_vring_num(index, size)?;
            set_vring_base(stream, index, self.bases[index])?;
            frontend.set_vring_addr(index, &addresses(index, size, self.log.is_some()))?;
            frontend.set_vring_kick(index, &queue.kick)?;
            frontend.set_vring_enable(index, true)?;
        }
        // QEMU passes the log last.
        self.log.map_or(Ok(()), |log| frontend.set_log_base(0, Some(log.region())))
    }
}

/// Passes a dirty log, or none any more, to a device whose virtqueues, of these sizes, run.
pub(super) fn set_logging(
    frontend: &Frontend,
    plan: &GuestPlan,
    log: Option<&DirtyLog>,
    sizes: &[u16],
) -> Result<(), vhost::Error> {
    if let Some(log) = log {
        frontend.set_log_base(0, Some(log.region()))?;
    }
    set_features(frontend, plan, log.is_some())?;
    let addresses = |(index, &size)| (index, addresses(index, size, log.is_some()));
    sizes
        .iter()
        .enumerate()
        .map(addresses)
        .try_for_each(|(index, addresses)| frontend.set_vring_addr(index, &addresses))
}

fn set_features(frontend: &Frontend, plan: &GuestPlan, is_logged: bool) -> Result<(), vhost::Error> {
    let wanted = [(EVENT_IDX, plan.rings.has_event_idx), (PACKED, plan.rings.are_packed), (LOG_ALL, is_logged)];
    let unwanted: u64 = wanted.iter().filter(|(_, is_wanted)| !is_wanted).map(|(feature, _)| feature).sum();
    frontend.set_features(frontend.get_features()? & !unwanted)
}

/// The addresses of a virtqueue. `is_logged`: its used ring is to be marked in the dirty log.
fn addresses(index: usize, size: u16, is_logged: bool) -> VringConfigData {
    let offset = (index * QUEUE_BYTES) as u64;
    let at = USER_START + offset;
    VringConfigData {
        queue_max_size: size,
        queue_size: size,
        flags: is_logged.into(),
        desc_table_addr: at,
        used_ring_addr: at + USED as u64,
        avail_ring_addr: at + AVAILABLE as u64,
        log_addr: is_logged.then_some(GUEST_START + offset + USED as u64),
    }
}

/// Sets the base of a virtqueue. The `vhost` crate sends only 16 bits of it.
fn set_vring_base(mut stream: &UnixStream, index: usize, base: u32) -> Result<(), vhost::Error> {
    // SET_VRING_BASE, version 1 with a reply wanted, 8 bytes.
    let message: Vec<u8> = [10, 9, 8, index as u32, base].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut reply = [0xff; 20];
    stream.write_all(&message).and_then(|()| stream.read_exact(&mut reply)).map_err(vhost::Error::IOError)?;
    if reply[12..] == [0; 8] { Ok(()) } else { Err(vhost::Error::IOError(io::ErrorKind::InvalidInput.into())) }
}
