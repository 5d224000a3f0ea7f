//! A front-end for fuzz targets. All it has to say is sent before anybody listens, so that one thread is enough and the
//! same input always does the same.

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, memfd_create};
use vhost_user_blk::{BlkStatus, Disk, DiskGeometry, Op, PolicyRefused, Queue, QueueSink, Window, serve_connection};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Bytes of guest memory, and where guest and front-end see them.
pub const MEMORY_BYTES: u64 = 0x1_0000;
/// First guest address.
pub const GUEST_START: u64 = 0x10_0000;
/// First front-end address.
pub const USER_START: u64 = 0x7f00_0000_0000;

/// What fits into the socket's buffer without a reader: messages, and their answers of up to a configuration space each.
const MESSAGES_MAX: usize = 64;
const BODY_BYTES_MAX: usize = 512;

/// Requests of vhost-user (QEMU `docs/interop/vhost-user.rst`) that targets name.
pub mod request {
    /// The features that will be used.
    pub const SET_FEATURES: u32 = 2;
    /// All of guest memory.
    pub const SET_MEM_TABLE: u32 = 5;
    /// The size of a ring.
    pub const SET_VRING_NUM: u32 = 8;
    /// Where a ring is.
    pub const SET_VRING_ADDR: u32 = 9;
    /// Where in a ring to begin.
    pub const SET_VRING_BASE: u32 = 10;
    /// Stop a ring; where it stopped.
    pub const GET_VRING_BASE: u32 = 11;
    /// The driver's way to wake the device.
    pub const SET_VRING_KICK: u32 = 12;
    /// The protocol features that will be used.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// Let a ring run, or not.
    pub const SET_VRING_ENABLE: u32 = 18;
}

/// `VHOST_USER_F_PROTOCOL_FEATURES`.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// `VIRTIO_F_VERSION_1`.
pub const VERSION_1: u64 = 1 << 32;

/// A front-end, its guest's memory, and all that it has said so far.
pub struct FrontEnd {
    stream: UnixStream,
    theirs: UnixStream,
    /// What the guest sees.
    pub memory: File,
    event: EventFd,
    messages: usize,
}

impl FrontEnd {
    /// One that has said nothing yet. Its memory is zero.
    #[must_use]
    pub fn new() -> Self {
        let (stream, theirs) = UnixStream::pair().expect("a pair of sockets");
        let memory = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd"));
        memory.set_len(MEMORY_BYTES).expect("its length");
        Self { stream, theirs, memory, event: EventFd::new(0).expect("an eventfd"), messages: 0 }
    }

    /// A descriptor to send: of the memory, or an eventfd.
    #[must_use]
    pub fn descriptor(&self, memory: bool) -> RawFd {
        if memory { self.memory.as_raw_fd() } else { self.event.as_raw_fd() }
    }

    /// Says it, if there is room for more; the length of the body is what the header claims.
    pub fn send(&mut self, request: u32, flags: u32, body: &[u8], descriptors: &[RawFd]) {
        let body = &body[..body.len().min(BODY_BYTES_MAX)];
        self.send_raw(&[request, flags, body.len() as u32].map(u32::to_ne_bytes).concat(), body, descriptors);
    }

    /// As [`send`](Self::send), the header as it is.
    pub fn send_raw(&mut self, header: &[u8], body: &[u8], descriptors: &[RawFd]) {
        if self.messages < MESSAGES_MAX && !(header.is_empty() && body.is_empty()) {
            self.messages += 1;
            let body = &body[..body.len().min(BODY_BYTES_MAX)];
            self.stream.send_with_fds(&[header, body], descriptors).expect("room in the socket");
        }
    }

    /// A message as QEMU sends it: version 1, without a wish for an answer.
    pub fn say(&mut self, request: u32, body: &[u64], descriptors: &[RawFd]) {
        let body: Vec<u8> = body.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.send(request, 1, &body, descriptors);
    }

    /// Negotiates and shares the memory.
    pub fn begin(&mut self, features: u64) {
        self.say(request::SET_FEATURES, &[features | PROTOCOL_FEATURES | VERSION_1], &[]);
        let region = [1, GUEST_START, MEMORY_BYTES, USER_START, 0];
        self.say(request::SET_MEM_TABLE, &region, &[self.descriptor(true)]);
    }

    /// Sets a queue up and starts it. Addresses are offsets in memory.
    pub fn start_queue(&mut self, index: u32, size: u32, base: u32, parts: [u64; 3]) {
        let [descriptors, used, available] = parts.map(|offset| USER_START.wrapping_add(offset));
        let state = |num: u32| u64::from(index) | u64::from(num) << 32;
        self.say(request::SET_VRING_NUM, &[state(size)], &[]);
        self.say(request::SET_VRING_BASE, &[state(base)], &[]);
        self.say(request::SET_VRING_ADDR, &[index.into(), descriptors, used, available, 0], &[]);
        self.say(request::SET_VRING_KICK, &[index.into()], &[self.descriptor(false)]);
        self.say(request::SET_VRING_ENABLE, &[state(1)], &[]);
    }

    /// Hangs up, and has the device listen to all of it.
    pub fn end(self, sink: &Turns) {
        self.stream.shutdown(Shutdown::Write).expect("an open socket");
        let geometry = DiskGeometry {
            max_discard_sectors: 1 << 10,
            max_write_zeroes_sectors: 1 << 10,
            num_queues: 4,
            queue_size_max: 256,
            ..DiskGeometry::new(1 << 10, 4096)
        };
        let disk = Arc::new(Disk::new(geometry).expect("a geometry that is one").with_window());
        let sink = Steered { turns: sink, disk: &disk };
        // However it ends: nothing is to be learned from it.
        let _ = serve_connection(self.theirs, &disk, &sink);
    }

    /// Writes guest memory; what does not fit is left out.
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

/// Path policies, of which the window tells, beside an I/O thread.
struct Steered<'a> {
    turns: &'a Turns,
    disk: &'a Disk,
}

/// Their ids are 1 to that.
const POLICIES: u16 = 9;

impl QueueSink for Steered<'_> {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        self.turns.start(queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        self.turns.stop(indices)
    }

    fn set_policy(&self, id: u16) -> Result<(), PolicyRefused> {
        if !(1..=POLICIES).contains(&id) {
            return Err(PolicyRefused::Unknown(id));
        }
        self.disk.set_window(Window { policy: id, paths_total: 2, paths_live: 2, paths_optimized: 1 });
        Ok(())
    }
}

/// An I/O thread without a thread: each queue has one turn when it starts, and one when it stops.
#[derive(Default)]
pub struct Turns {
    queues: Mutex<Vec<Queue>>,
}

impl Turns {
    /// Does what there is to do in a queue, requests in reverse.
    fn turn(queue: &mut Queue) {
        queue.drain_kick();
        let mut requests = Vec::new();
        while let Ok(Some(request)) = queue.pop() {
            requests.push(request);
        }
        // Those that needed no I/O count too.
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
            queue.complete(request.token, status);
        }
        queue.publish();
        assert_eq!(queue.outstanding(), 0, "all is completed");
        let _ = queue.enable_notifications();
    }
}

impl QueueSink for Turns {
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
