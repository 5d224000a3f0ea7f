//! A guest that only reads or only writes, block by block. Its requests have one shape: a table with header, data and status.

use std::os::unix::net::UnixStream;

use monotonic::Duration;
use vhost::VhostBackend;
use vhost::vhost_user::Frontend;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::driver::{Driver, QUEUE_BYTES, buffer};
use super::frontend::{self, Device};
use super::memory::Memory;
use crate::guest::{GuestPlan, RingPlan};

/// The size of a block.
const BLOCK_BYTES: usize = 4096;
/// The parts of a request: header, status, table of descriptors and data.
const STATUS: usize = 0x10;
const TABLE: usize = 0x40;
const DATA: usize = 0x100;
const SLOT_BYTES: usize = DATA + BLOCK_BYTES;
/// A status that no device writes.
const UNTOUCHED: u8 = 0xee;

/// What a [`BlockGuest`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOp {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

impl BlockOp {
    /// The type of the request (virtio 1.3, 5.2.6).
    const fn kind(self) -> u8 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
        }
    }
}

/// A guest with one virtqueue that reads or writes blocks of 4 KiB.
pub struct BlockGuest {
    op: BlockOp,
    memory: Memory,
    queue: Driver,
    /// The connection ends with it.
    _frontend: Frontend,
}

impl BlockGuest {
    /// Connects to the back-end of a disk, and starts the virtqueue. At most `depth` requests are under way.
    ///
    /// # Panics
    ///
    /// If the back-end does not answer.
    #[must_use]
    pub fn connect(stream: &UnixStream, op: BlockOp, are_packed: bool, depth: usize) -> Self {
        let plan = GuestPlan {
            flows: 1,
            depth,
            think: Duration::ZERO,
            blocks: 1,
            first_blocks: 1,
            longest: 1,
            longest_zeroes: 1,
            shares: [1, 0, 0, 0, 0],
            writeback: true,
            rings: RingPlan { has_event_idx: true, are_packed, have_log: false, ignore_limits: false },
            until: Duration::MAX,
        };
        let memory = Memory::new(QUEUE_BYTES + depth * SLOT_BYTES);
        let queue = Driver::new(0, &plan);
        let own = stream.try_clone().expect("a descriptor for a socket");
        let mut frontend = frontend::connect(own, &plan).expect("the back-end answers");
        let bases = [queue.ring.position(0)];
        let queues = std::slice::from_ref(&queue);
        let device = Device { memory: &memory, queues, bases: &bases, plan: &plan, log: None };
        device.start(&mut frontend, &mut None).expect("the back-end answers");
        let call = EventFd::new(EFD_NONBLOCK).expect("a descriptor for a virtqueue");
        frontend.set_vring_call(0, &call).expect("the back-end answers");
        Self { op, memory, queue, _frontend: frontend }
    }

    fn slot(place: usize) -> usize {
        QUEUE_BYTES + place * SLOT_BYTES
    }

    /// Makes a request for the first block available at a place below `depth`, without a kick.
    pub fn submit(&mut self, place: usize) {
        let slot = Self::slot(place);
        let mut header = [0; STATUS + 1];
        (header[0], header[STATUS]) = (self.op.kind(), UNTOUCHED);
        self.memory.write(slot, &header);
        let buffers = [
            buffer(slot, STATUS, false),
            buffer(slot + DATA, BLOCK_BYTES, self.op == BlockOp::Read),
            buffer(slot + STATUS, 1, true),
        ];
        self.queue.within(&mut self.memory).submit(place, &buffers, Some(slot + TABLE));
    }

    /// Kicks the virtqueue.
    ///
    /// # Panics
    ///
    /// Never: the kick cannot overflow.
    pub fn kick(&self) {
        self.queue.kick.write(1).expect("a kick");
    }

    /// The requests that were answered since the last call.
    ///
    /// # Panics
    ///
    /// If one of them has failed.
    pub fn reap(&mut self) -> usize {
        let places = self.queue.within(&mut self.memory).reap();
        let has_succeeded = |(place, _): &(usize, u32)| self.memory.read(Self::slot(*place) + STATUS, 1) == [0];
        assert!(places.iter().all(has_succeeded), "a request has failed");
        places.len()
    }
}
