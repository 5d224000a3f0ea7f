//! The virtio-blk request layer on one virtqueue.

use super::device::{Device, QueueShape};
use crate::backend::{Backend, Head, Used};
use crate::request::{Kind, Request, SECTOR_BYTES, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;
use virtio_driver::virtqueue::Virtqueue;
use virtio_driver::{EventFd, QueueNotifier, iovec};

/// `struct virtio_blk_req` without its data (VIRTIO 1.2, 5.2.6); little endian.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Header {
    kind: u32,
    reserved: u32,
    sector: u64,
}

/// `struct virtio_blk_discard_write_zeroes`; little endian.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Segment {
    sector: u64,
    sectors: u32,
    flags: u32,
}

/// The part of the ring's memory that one request needs in addition to its data.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct RequestArea {
    header: Header,
    segment: Segment,
    status: u8,
}

const FLAG_UNMAP: u32 = 1;

/// One queue with its buffers: the real [`Backend`].
pub struct BlkQueue {
    // Declared before `device`, so that it is dropped before the memory it lies in.
    ring: Virtqueue<'static, RequestArea>,
    notifier: Box<dyn QueueNotifier>,
    call: Arc<EventFd>,
    first_byte: usize,
    slot_bytes: usize,
    device: Arc<Device>,
}

impl BlkQueue {
    pub(super) fn new(
        ring: Virtqueue<'static, RequestArea>,
        index: u16,
        shape: &QueueShape,
        device: &Arc<Device>,
    ) -> Self {
        let transport = device.transport();
        Self {
            ring,
            notifier: transport.get_submission_notifier(usize::from(index)),
            call: transport.get_completion_fd(usize::from(index)),
            first_byte: usize::from(index) * usize::from(shape.slots) * shape.slot_bytes,
            slot_bytes: shape.slot_bytes,
            device: Arc::clone(device),
        }
    }

    fn offset(&self, slot: u16, len: usize) -> usize {
        assert!(len <= self.slot_bytes, "the data fits its slot");
        self.first_byte + usize::from(slot) * self.slot_bytes
    }
}

/// Sleeps until something is used on any of these queues or `timeout` has passed.
pub fn wait_for_any(queues: &mut [&mut BlkQueue], timeout: Duration) -> io::Result<()> {
    for queue in queues.iter_mut() {
        queue.ring.set_used_notif_enabled(true);
    }
    let used = queues.iter_mut().any(|queue| queue.ring.completions().has_next());
    let result = if used { Ok(()) } else { sleep_for_any(queues, timeout) };
    for queue in queues.iter_mut() {
        queue.ring.set_used_notif_enabled(false);
    }
    result
}

/// Sleeps on the call eventfds; the caller has enabled notifications and found nothing after that.
fn sleep_for_any(queues: &[&mut BlkQueue], timeout: Duration) -> io::Result<()> {
    let mut fds: Vec<_> = queues.iter().map(|queue| PollFd::new(&*queue.call, PollFlags::IN)).collect();
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let called = queues.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
    called.map(|(queue, _)| queue.call.read()).try_for_each(|read| read.map(|_| ()))
}

fn part<T>(field: &mut T) -> iovec {
    iovec { iov_base: std::ptr::from_mut(field).cast(), iov_len: size_of::<T>() }
}

impl Backend for BlkQueue {
    fn fill(&mut self, slot: u16, data: &[u8]) {
        self.device.memory().copy_in(self.offset(slot, data.len()), data);
    }

    fn fetch(&mut self, slot: u16, data: &mut [u8]) {
        self.device.memory().copy_out(self.offset(slot, data.len()), data);
    }

    fn submit(&mut self, slot: u16, request: &Request) -> io::Result<Head> {
        let sector = request.offset / SECTOR_BYTES;
        let (kind, unmap, has_segment) = match request.kind {
            Kind::Read => (0, false, false),
            Kind::Write => (1, false, false),
            Kind::Flush => (4, false, false),
            Kind::Discard => (11, false, true),
            Kind::WriteZeroes { unmap } => (13, unmap, true),
        };
        let data = matches!(request.kind, Kind::Read | Kind::Write).then(|| iovec {
            iov_base: (self.device.memory().address() + self.offset(slot, request.len as usize)) as *mut _,
            iov_len: request.len as usize,
        });
        let area_now = RequestArea {
            header: Header {
                kind: u32::to_le(kind),
                reserved: 0,
                // 5.2.6.2: the sector is 0 for flush, discard and write-zeroes.
                sector: if data.is_some() { sector.to_le() } else { 0 },
            },
            segment: Segment {
                sector: sector.to_le(),
                sectors: ((u64::from(request.len) / SECTOR_BYTES) as u32).to_le(),
                flags: if unmap { FLAG_UNMAP.to_le() } else { 0 },
            },
            status: Status::NOT_WRITTEN,
        };
        self.ring.add_request(|area, add| {
            *area = area_now;
            add(part(&mut area.header), false)?;
            if has_segment {
                add(part(&mut area.segment), false)?;
            }
            if let Some(data) = data {
                add(data, request.kind == Kind::Read)?;
            }
            add(part(&mut area.status), true)
        })
    }

    fn kick(&mut self) -> io::Result<()> {
        if self.ring.avail_notif_needed() { self.notifier.notify() } else { Ok(()) }
    }

    fn next_used(&mut self) -> Option<Used> {
        self.ring.completions().next().map(|used| Used { head: used.id, status: Status::from_byte(used.req.status) })
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        wait_for_any(&mut [self], timeout)
    }
}
