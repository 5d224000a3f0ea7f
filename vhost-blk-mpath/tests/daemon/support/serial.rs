//! Test helpers: the `GET_ID` request, which the benchmark's front-end does not have.

use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use virtio_driver::virtqueue::{Virtqueue, VirtqueueLayout};
use virtio_driver::{VhostUser, VirtioBlkConfig, VirtioFeatureFlags, VirtioTransport, iovec};

const GET_ID: u32 = 8;
const QUEUE_SIZE: u16 = 8;

/// `struct virtio_blk_req` with the data of `GET_ID` (VIRTIO 1.2, 5.2.6).
#[derive(Clone, Copy)]
#[repr(C)]
struct IdRequest {
    kind: u32,
    reserved: u32,
    sector: u64,
    id: [u8; 20],
    status: u8,
}

fn part<T>(field: &mut T) -> iovec {
    iovec { iov_base: std::ptr::from_mut(field).cast(), iov_len: size_of::<T>() }
}

/// The disk's answer to `GET_ID`, and its status.
pub(crate) fn get_id(socket: &Path) -> ([u8; 20], u8) {
    let features = VirtioFeatureFlags::VERSION_1;
    let transport = VhostUser::<VirtioBlkConfig, IdRequest>::new(socket.to_str().unwrap(), features.bits());
    let mut transport = transport.unwrap();
    let layout = VirtqueueLayout::new::<IdRequest>(1, QUEUE_SIZE.into(), features).unwrap();
    let memory = transport.alloc_queue_mem(&layout).unwrap();
    // SAFETY: all of the transport's mapping, which nobody else here uses and which stays until the transport is dropped,
    // after the ring.
    let memory = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr(), memory.len()) };
    let mut ring = Virtqueue::<IdRequest>::new(transport.iova_translator(), memory, QUEUE_SIZE, features).unwrap();
    transport.setup_queues(std::slice::from_ref(&ring)).unwrap();
    ring.set_used_notif_enabled(true);
    let request = IdRequest { kind: GET_ID, reserved: 0, sector: 0, id: [0xee; 20], status: 0xff };
    let added = ring.add_request(|area, add| {
        *area = request;
        let mut header = part(&mut area.kind);
        header.iov_len = 16;
        add(header, false)?;
        add(part(&mut area.id), true)?;
        add(part(&mut area.status), true)
    });
    added.unwrap();
    transport.get_submission_notifier(0).notify().unwrap();
    let call = transport.get_completion_fd(0);
    loop {
        if let Some(used) = ring.completions().next() {
            return (used.req.id, used.req.status);
        }
        poll(&mut [PollFd::new(&*call, PollFlags::IN)], None).unwrap();
        call.read().unwrap();
    }
}
