//! The front-end of a virtual machine, which sends the vhost-user messages that QEMU sends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use vhost::VhostBackend;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use virtio_guest::features::{EVENT_IDX, LOG_ALL, PACKED};
use virtio_guest::{DirtyLog, RingLayout, memory_region, ring_addresses, set_vring_base};

use super::driver::Driver;
use super::memory::Memory;
use crate::guest::GuestPlan;

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
    pub(super) fn start(&self, frontend: &mut Frontend, inflight: &mut Option<Inflight>) -> Result<(), vhost::Error> {
        set_features(frontend, self.plan, self.log.is_some())?;
        frontend.set_config(WRITEBACK, VhostUserConfigFlags::WRITABLE, &[u8::from(self.plan.writeback)])?;
        if inflight.is_none() && self.plan.rings.have_log {
            let size = self.queues.iter().map(|queue| queue.ring.layout.size).max().unwrap_or(1);
            let wanted_log = VhostUserInflight::new(0, 0, self.queues.len() as u16, size);
            *inflight = Some(frontend.get_inflight_fd(&wanted_log)?);
        }
        if let Some((told, file)) = inflight {
            frontend.set_inflight_fd(told, file.as_raw_fd())?;
        }
        frontend.set_mem_table(&[memory_region(self.memory.file(), self.memory.bytes() as u64)])?;
        for (index, queue) in self.queues.iter().enumerate() {
            frontend.set_vring_num(index, queue.ring.layout.size)?;
            set_vring_base(frontend, index, self.bases[index])?;
            frontend.set_vring_addr(index, &ring_addresses(&queue.ring.layout, self.log.is_some()))?;
            frontend.set_vring_kick(index, &queue.kick)?;
            frontend.set_vring_enable(index, true)?;
        }
        // QEMU passes the log last.
        self.log.map_or(Ok(()), |log| frontend.set_log_base(0, Some(log.region())))
    }
}

/// Passes a dirty log, or none any more, to a device whose virtqueues run.
pub(super) fn set_logging(
    frontend: &Frontend,
    plan: &GuestPlan,
    log: Option<&DirtyLog>,
    rings: &[RingLayout],
) -> Result<(), vhost::Error> {
    if let Some(log) = log {
        frontend.set_log_base(0, Some(log.region()))?;
    }
    set_features(frontend, plan, log.is_some())?;
    let pass = |(index, ring)| frontend.set_vring_addr(index, &ring_addresses(ring, log.is_some()));
    rings.iter().enumerate().try_for_each(pass)
}

fn set_features(frontend: &Frontend, plan: &GuestPlan, is_logged: bool) -> Result<(), vhost::Error> {
    let wanted = [(EVENT_IDX, plan.rings.has_event_idx), (PACKED, plan.rings.are_packed), (LOG_ALL, is_logged)];
    let unwanted: u64 = wanted.iter().filter(|(_, is_wanted)| !is_wanted).map(|(feature, _)| feature).sum();
    frontend.set_features(frontend.get_features()? & !unwanted)
}
