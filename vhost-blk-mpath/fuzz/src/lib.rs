//! A front-end for fuzz targets. It sends all messages before the back-end reads, so one thread is enough, and the same
//! input always has the same effect.

pub mod controller;
pub mod host;
mod pdu;
pub mod server;

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, memfd_create};
use vhost_user_blk::{
    BlkStatus, DiskGeometry, Op, Queue, QueueRunner, SetPolicyError, VendorWindow, VirtioDisk, serve_connection,
};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Bytes of guest memory.
pub const MEMORY_BYTES: u64 = 0x1_0000;
/// First guest address.
pub const GUEST_START: u64 = 0x10_0000;
/// First front-end address.
pub const USER_START: u64 = 0x7f00_0000_0000;

/// Messages that fit into the socket's buffer without a reader, with answers of up to a configuration space each.
const MESSAGES_MAX: usize = 64;
const BODY_BYTES_MAX: usize = 512;

/// Requests of vhost-user (QEMU `docs/interop/vhost-user.rst`) that targets name.
pub mod request {
    /// Set the features.
    pub const SET_FEATURES: u32 = 2;
    /// Set the regions of guest memory.
    pub const SET_MEM_TABLE: u32 = 5;
    /// Set the size of a ring.
    pub const SET_VRING_NUM: u32 = 8;
    /// Set the addresses of a ring.
    pub const SET_VRING_ADDR: u32 = 9;
    /// Set the start position in a ring.
    pub const SET_VRING_BASE: u32 = 10;
    /// Stop a ring and get its position.
    pub const GET_VRING_BASE: u32 = 11;
    /// Set the kick eventfd.
    pub const SET_VRING_KICK: u32 = 12;
    /// Set the protocol features.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// Enable or disable a ring.
    pub const SET_VRING_ENABLE: u32 = 18;
}

/// `VHOST_USER_F_PROTOCOL_FEATURES`.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// `VIRTIO_F_VERSION_1`.
pub const VERSION_1: u64 = 1 << 32;

/// A front-end, its guest's memory, and the messages that it has sent.
pub struct FrontEnd {
    stream: UnixStream,
    theirs: UnixStream,
    /// Guest memory.
    pub memory: File,
    event: EventFd,
    messages: usize,
}

impl FrontEnd {
    /// A front-end that has sent nothing. Its memory is zero.
    #[must_use]
    pub fn new() -> Self {
        let (stream, theirs) = UnixStream::pair().expect("a pair of sockets");
        let memory = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd"));
        memory.set_len(MEMORY_BYTES).expect("its length");
        Self { stream, theirs, memory, event: EventFd::new(0).expect("an eventfd"), messages: 0 }
    }

    /// A descriptor to send: of the memory if `memory`, otherwise of an eventfd.
    #[must_use]
    pub fn descriptor(&self, memory: bool) -> RawFd {
        if memory { self.memory.as_raw_fd() } else { self.event.as_raw_fd() }
    }

    /// Sends a message if there is room. The header has the real length of the body.
    pub fn send(&mut self, request: u32, flags: u32, body: &[u8], descriptors: &[RawFd]) {
        let body = &body[..body.len().min(BODY_BYTES_MAX)];
        self.send_raw(&[request, flags, body.len() as u32].map(u32::to_ne_bytes).concat(), body, descriptors);
    }

    /// Sends a message with any header, if there is room.
    pub fn send_raw(&mut self, header: &[u8], body: &[u8], descriptors: &[RawFd]) {
        if self.messages < MESSAGES_MAX && !(header.is_empty() && body.is_empty()) {
            self.messages += 1;
            let body = &body[..body.len().min(BODY_BYTES_MAX)];
            self.stream.send_with_fds(&[header, body], descriptors).expect("room in the socket");
        }
    }

    /// Sends a message as QEMU does: version 1, without a request for an answer.
    pub fn say(&mut self, request: u32, body: &[u64], descriptors: &[RawFd]) {
        let body: Vec<u8> = body.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.send(request, 1, &body, descriptors);
    }

    /// Negotiates features and shares the memory.
    pub fn begin(&mut self, features: u64) {
        self.say(request::SET_FEATURES, &[features | PROTOCOL_FEATURES | VERSION_1], &[]);
        let region = [1, GUEST_START, MEMORY_BYTES, USER_START, 0];
        self.say(request::SET_MEM_TABLE, &region, &[self.descriptor(true)]);
    }

    /// Sets up a queue and starts it. Addresses are offsets in memory.
    pub fn start_queue(&mut self, index: u32, size: u32, base: u32, parts: [u64; 3]) {
        let [descriptors, used, available] = parts.map(|offset| USER_START.wrapping_add(offset));
        let state = |num: u32| u64::from(index) | u64::from(num) << 32;
        self.say(request::SET_VRING_NUM, &[state(size)], &[]);
        self.say(request::SET_VRING_BASE, &[state(base)], &[]);
        self.say(request::SET_VRING_ADDR, &[index.into(), descriptors, used, available, 0], &[]);
        self.say(request::SET_VRING_KICK, &[index.into()], &[self.descriptor(false)]);
        self.say(request::SET_VRING_ENABLE, &[state(1)], &[]);
    }

    /// Hangs up, then lets the back-end handle all messages.
    pub fn end(self, runner: &Turns) {
        self.stream.shutdown(Shutdown::Write).expect("an open socket");
        let geometry = DiskGeometry {
            max_discard_sectors: 1 << 10,
            max_write_zeroes_sectors: 1 << 10,
            num_queues: 4,
            queue_size_max: 256,
            ..DiskGeometry::new(1 << 10, 4096)
        };
        let disk = Arc::new(VirtioDisk::new(geometry).expect("a valid geometry").with_vendor_window());
        let runner = PolicyRunner { turns: runner, disk: &disk };
        // A connection may end with an error or without.
        let _ = serve_connection(self.theirs, &disk, &runner);
    }

    /// Writes guest memory. Bytes beyond its end are dropped.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let room = MEMORY_BYTES.saturating_sub(at).min(bytes.len() as u64) as usize;
        self.memory.write_all_at(&bytes[..room], at).expect("it fits");
    }
}

impl Default for FrontEnd {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs queues, and shows path policies in the vendor window.
struct PolicyRunner<'a> {
    turns: &'a Turns,
    disk: &'a VirtioDisk,
}

/// The largest policy id. The smallest is 1.
const POLICIES: u16 = 9;

impl QueueRunner for PolicyRunner<'_> {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        self.turns.start(queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        self.turns.stop(indices)
    }

    fn set_policy(&self, id: u16) -> Result<(), SetPolicyError> {
        if !(1..=POLICIES).contains(&id) {
            return Err(SetPolicyError::Unknown(id));
        }
        self.disk.set_vendor_window(VendorWindow { policy: id, paths_total: 2, paths_live: 2, paths_optimized: 1 });
        Ok(())
    }
}

/// Stands for an I/O thread, without a thread. Each queue has one turn when it starts, and one when it stops.
#[derive(Default)]
pub struct Turns {
    queues: Mutex<Vec<Queue>>,
}

impl Turns {
    /// Completes all requests of a queue, in reverse order.
    fn turn(queue: &mut Queue) {
        queue.clear_kick();
        let mut requests = Vec::new();
        while let Ok(Some(request)) = queue.pop() {
            requests.push(request);
        }
        // Requests that are answered without I/O are outstanding too, so there may be more.
        assert!(usize::from(queue.outstanding()) >= requests.len(), "a chain that was taken is not outstanding");
        for request in requests.into_iter().rev() {
            let segments = &request.segments;
            assert!(segments.bytes() == 0 || segments.bytes() == u64::from(request.bytes), "{request:?}");
            let mut data = vec![0; segments.bytes() as usize];
            let status = match request.op {
                Op::Read => {
                    segments.copy_from(0, &data);
                    BlkStatus::Ok
                }
                Op::Write { .. } => {
                    segments.copy_to(0, &mut data);
                    BlkStatus::Ok
                }
                Op::Flush | Op::Discard | Op::WriteZeroes { .. } => BlkStatus::IoErr,
            };
            queue.complete(request, status);
        }
        queue.publish();
        assert_eq!(queue.outstanding(), 0, "all is completed");
        let _ = queue.enable_notifications();
    }
}

impl QueueRunner for Turns {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        let mut queue = queue;
        Self::turn(&mut queue);
        self.queues.lock().expect("one thread").push(queue);
        Ok(())
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        let mut queues = self.queues.lock().expect("one thread");
        let mut take = |index: &u16| {
            let at = queues.iter().position(|queue| queue.index() == *index)?;
            let mut queue = queues.remove(at);
            Self::turn(&mut queue);
            Some(queue)
        };
        indices.iter().map(&mut take).collect()
    }
}
