//! A virtual machine with one disk: its memory with the virtqueues, the driver of each virtqueue, and the front-end. All of them
//! outlive the daemon.

mod block_guest;
mod driver;
mod frontend;
mod memory;

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vhost::VhostBackend;
use vhost::vhost_user::Frontend;
use virtio_guest::DirtyLog;

pub use self::block_guest::{BlockGuest, BlockOp};
use self::driver::{CHAIN_MAX, Driver, QUEUE_BYTES, buffer};
use self::frontend::{Device, Inflight};
use self::memory::Memory;
use crate::blocks::Operation;
use crate::blocks::pattern::fill;
use crate::guest::{GuestPlan, GuestRequest};
use crate::rng::Rng;

/// The parts of a request other than its data: header, status, range and a table of descriptors.
const SLOT_BYTES: usize = 0x200;
const STATUS: usize = 0x10;
const RANGE: usize = 0x20;
const TABLE: usize = 0x100;
/// The longest table of a driver that ignores limits, behind the data of a request.
const LONG_TABLE_BYTES: usize = 1024 * 16;
/// The initial value of a status byte, and of data, before the device writes.
const UNTOUCHED: u8 = 0xee;
const SECTOR_BYTES: u64 = 512;

/// An error as a guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestError {
    /// `VIRTIO_BLK_S_IOERR`.
    Io,
    /// `VIRTIO_BLK_S_UNSUPP`.
    Unsupported,
}

/// The answer to a request of the guest.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) request: GuestRequest,
    pub(crate) result: Result<(), GuestError>,
    /// The data of a read.
    pub(crate) data: Vec<u8>,
    /// The used length.
    pub(crate) used_bytes: u32,
}

impl Answer {
    /// The used length that this answer must have (virtio 1.2, 2.7.8.2): all bytes that the device may write, with the
    /// status. After a failed read the length is 0, because no byte before the status is certain.
    pub(crate) fn expected_used_bytes(&self) -> u32 {
        let data = self.data.len() as u32;
        if self.result.is_ok() { data + 1 } else { u32::from(data == 0) }
    }
}

/// A virtual machine.
pub(crate) struct Machine {
    plan: GuestPlan,
    block_bytes: usize,
    rng: Rng,
    memory: Memory,
    queues: Vec<Driver>,
    inflight: Option<Inflight>,
    /// The dirty log, during a migration.
    dirty_log: Option<Arc<DirtyLog>>,
    frontend: Option<Frontend>,
    /// The blocks of the disk that the guest sees.
    blocks: u64,
    /// The front-end's end of the connection, with which it can hang up.
    stream: Option<UnixStream>,
    /// By user: the request that is not answered.
    open: BTreeMap<usize, GuestRequest>,
    /// By user: the data of the last read. The device must not change the memory of that read any more.
    last_reads: BTreeMap<usize, Vec<u8>>,
    /// Requests that a reset of the guest gave up.
    given_up: Vec<GuestRequest>,
    /// Requests with a longer chain than disk and virtqueue allow, since the last look.
    long_chains: u64,
    /// Some requests will get no answer, because no in-flight log has kept them.
    has_lost_requests: bool,
}

impl Machine {
    pub(crate) fn new(plan: GuestPlan, block_bytes: usize, rng: Rng) -> Self {
        let users = plan.flows * plan.depth;
        let slots = users * slot_bytes(&plan, block_bytes);
        let blocks = plan.first_blocks;
        Self {
            memory: Memory::new(plan.flows * QUEUE_BYTES + slots),
            queues: drivers(&plan),
            plan,
            block_bytes,
            rng,
            inflight: None,
            dirty_log: None,
            frontend: None,
            blocks,
            stream: None,
            open: BTreeMap::new(),
            last_reads: BTreeMap::new(),
            given_up: Vec::new(),
            long_chains: 0,
            has_lost_requests: false,
        }
    }

    /// The blocks of the disk that the guest sees.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The disk has grown.
    pub(crate) fn grow(&mut self, blocks: u64) {
        self.blocks = blocks;
    }

    /// The disk is removed with its guest. The next guest may see as few blocks as the first one did.
    pub(crate) fn forget_size(&mut self) {
        self.blocks = self.plan.first_blocks;
    }

    /// The virtqueue of a user.
    pub(crate) fn queue_of(&self, user: usize) -> usize {
        user % self.plan.flows
    }

    /// Connects the front-end to a daemon, and starts all virtqueues.
    pub(crate) fn connect(&mut self, stream: UnixStream) {
        self.stream = Some(stream.try_clone().expect("a descriptor for a socket"));
        self.frontend = Some(frontend::connect(stream, &self.plan).expect("the daemon answers"));
        let mut bases = self.used();
        if self.plan.rings.are_packed && self.inflight.is_some() {
            // Like QEMU, this front-end does not know the position in a packed ring. The daemon takes it from the in-flight log.
            bases.clear();
            bases.extend(self.queues.iter().map(|queue| queue.ring.position(0)));
        }
        self.start_queues(&bases);
    }

    /// Starts all virtqueues at these bases.
    pub(crate) fn start_queues(&mut self, bases: &[u32]) {
        let Self { memory, queues, plan, dirty_log, .. } = self;
        let device = Device { memory, queues, bases, plan, log: dirty_log.as_deref() };
        let frontend = self.frontend.as_mut().expect("it is connected");
        device.start(frontend, &mut self.inflight).expect("the daemon answers");
    }

    /// Stops a virtqueue and returns its base. The call waits until the virtqueue has drained.
    pub(crate) fn stop_queue(&self, queue: usize) -> impl FnOnce() -> Result<u32, vhost::Error> + Send + 'static {
        let frontend = self.frontend.clone().expect("it is connected");
        move || frontend.get_vring_base(queue)
    }

    /// Passes a new dirty log, or takes it away. The call waits until each virtqueue has drained and knows of it.
    pub(crate) fn set_logging(
        &mut self,
        is_logged: bool,
    ) -> impl FnOnce() -> Result<u32, vhost::Error> + Send + 'static {
        self.end_migration();
        let log_bytes = DirtyLog::bytes_for(self.memory.bytes() as u64);
        let log = is_logged.then(|| Arc::new(DirtyLog::new(log_bytes, log_bytes)));
        self.dirty_log.clone_from(&log);
        let (frontend, plan) = (self.frontend.clone().expect("it is connected"), self.plan.clone());
        let rings: Vec<_> = self.queues.iter().map(|queue| queue.ring.layout).collect();
        move || frontend::set_logging(&frontend, &plan, log.as_deref(), &rings).map(|()| 0)
    }

    /// Whether the guest is being migrated.
    pub(crate) fn is_migrating(&self) -> bool {
        self.dirty_log.is_some()
    }

    /// If all virtqueues use a dirty log, the migration copies all of the memory.
    pub(crate) fn begin_copy(&mut self) {
        if self.is_migrating() {
            self.memory.begin_copy();
        }
    }

    /// Copies the pages that the device has marked again.
    pub(crate) fn copy_marked(&mut self) {
        if let Some(log) = &self.dirty_log {
            self.memory.copy_again(log.take());
        }
    }

    /// Whether a migration has copied all of the memory once.
    pub(crate) fn has_copy(&self) -> bool {
        self.memory.has_copy()
    }

    /// Once all virtqueues have stopped: the first byte that the migration has not copied.
    pub(crate) fn first_not_copied(&self) -> Option<usize> {
        self.memory.first_not_copied()
    }

    /// The guest goes on in the copy of its memory, if there is one. The next front-end has a new in-flight log.
    pub(crate) fn move_to_copy(&mut self) -> bool {
        let Some(copy) = self.memory.take_copy() else { return false };
        self.memory = Memory::new(copy.len());
        self.memory.write(0, &copy);
        self.inflight = None;
        true
    }

    /// The migration is over, or has failed.
    pub(crate) fn end_migration(&mut self) {
        self.dirty_log = None;
        self.memory.take_copy();
    }

    /// The position of each virtqueue behind its last answer, for a front-end.
    pub(crate) fn used(&mut self) -> Vec<u32> {
        self.queues.iter_mut().map(|queue| queue.within(&mut self.memory).position()).collect()
    }

    /// The front-end or the daemon is gone. The guest waits, or is reset and gives up its requests.
    pub(crate) fn disconnect(&mut self, is_reset: bool) {
        self.frontend = None;
        self.end_migration();
        if let Some(stream) = self.stream.take() {
            // A thread may wait for an answer on this stream. The shutdown fails only if the daemon has hung up first.
            let _ = stream.shutdown(Shutdown::Both);
        }
        if is_reset {
            // The guest gets new memory, because a daemon may still write to the old one.
            self.memory = Memory::new(self.memory.bytes());
            self.queues = drivers(&self.plan);
            self.inflight = None;
            self.last_reads.clear();
            self.has_lost_requests = false;
            self.given_up.extend(std::mem::take(&mut self.open).into_values());
        }
    }

    /// The memory is truncated at a page that this number chooses.
    pub(crate) fn truncate(&mut self, choice: u64) {
        self.memory.truncate(choice);
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.memory.is_truncated()
    }

    /// Notes that the daemon has ended or given up requests. Without an in-flight log, these requests are lost.
    pub(crate) fn lose_requests(&mut self) {
        self.has_lost_requests = !self.plan.rings.have_log;
    }

    /// Takes the number of long chains.
    pub(crate) fn take_long_chains(&mut self) -> u64 {
        std::mem::take(&mut self.long_chains)
    }

    /// Whether the guest cannot go on.
    pub(crate) fn must_be_reset(&self) -> bool {
        self.is_truncated() || self.has_lost_requests
    }

    /// Whether the guest waits for answers, and no in-flight log tells the next daemon of the requests.
    pub(crate) fn waits_without_log(&self) -> bool {
        !self.plan.rings.have_log && !self.open.is_empty()
    }

    /// The requests that are not answered.
    pub(crate) fn open_requests(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.values().map(|request| request.id)
    }

    /// Given-up requests that may still be executed.
    pub(crate) fn given_up(&self) -> impl Iterator<Item = u64> + '_ {
        self.given_up.iter().map(|request| request.id)
    }

    /// Takes the given-up requests, which no daemon can execute any more.
    pub(crate) fn take_given_up(&mut self) -> Vec<GuestRequest> {
        std::mem::take(&mut self.given_up)
    }

    /// The place of a user's request in the memory.
    fn slot(&self, user: usize) -> usize {
        self.queues.len() * QUEUE_BYTES + user * slot_bytes(&self.plan, self.block_bytes)
    }

    /// Whether the memory of a user's last read is unchanged since its answer. Each read is checked once.
    pub(crate) fn is_read_unchanged(&mut self, user: usize) -> bool {
        let Some(data) = self.last_reads.remove(&user) else { return true };
        self.memory.read(self.slot(user) + SLOT_BYTES, data.len()) == data
    }

    /// Submits a request of the guest. Returns whether the guest kicked the device.
    pub(crate) fn submit(&mut self, request: GuestRequest) -> bool {
        let (slot, data) = (self.slot(request.user), self.slot(request.user) + SLOT_BYTES);
        let to_sector = |blocks: u64| blocks * (self.block_bytes as u64 / SECTOR_BYTES);
        let bytes = request.blocks as usize * self.block_bytes;
        let is_range = request.operation.is_zeroing();
        let (number, payload) = match request.operation {
            Operation::Read => (0u32, Some((data, bytes, true))),
            Operation::Write { .. } => (1, Some((data, bytes, false))),
            Operation::Flush => (4, None),
            Operation::Discard => (11, Some((slot + RANGE, 16, false))),
            Operation::WriteZeroes { .. } => (13, Some((slot + RANGE, 16, false))),
        };
        let sector = if is_range { 0 } else { to_sector(request.lba) };
        let mut header = [0; 17];
        header[..4].copy_from_slice(&number.to_le_bytes());
        header[8..16].copy_from_slice(&sector.to_le_bytes());
        let ignores_limits = self.plan.rings.ignore_limits;
        header[STATUS] = if ignores_limits { 0 } else { UNTOUCHED };
        self.memory.write(slot, &header);
        if is_range {
            let range = u128::from(to_sector(request.lba)) | u128::from(to_sector(request.blocks.into())) << 64;
            self.memory.write(slot + RANGE, &range.to_le_bytes());
        }
        match request.operation {
            Operation::Read => self.memory.write(data, &vec![UNTOUCHED; bytes]),
            Operation::Write { .. } => {
                let mut payload = vec![0; bytes];
                fill(request.disk, request.id, request.lba, self.block_bytes, &mut payload);
                self.memory.write(data, &payload);
            }
            _ => {}
        }
        let mut buffers = vec![buffer(slot, 16, false)];
        let is_long = ignores_limits && self.rng.percent(20);
        if let (true, Some((at, bytes, is_written))) = (is_long, payload) {
            // As Windows, QEMU's limit, and the most that a disk serves with header and status.
            let pieces = self.rng.pick(&[129, 515, 1022]).min(bytes);
            let start = |piece| piece * bytes / pieces;
            let piece_of = |piece| buffer(at + start(piece), start(piece + 1) - start(piece), is_written);
            buffers.extend((0..pieces).map(piece_of));
        } else if let Some((at, bytes, is_written)) = payload {
            let mut done = 0;
            while done < bytes {
                let last = buffers.len() == CHAIN_MAX - 2;
                let part = if last || self.rng.percent(50) { bytes } else { self.rng.range(1, bytes as u64) as usize };
                let part = part.min(bytes - done);
                buffers.push(buffer(at + done, part, is_written));
                done += part;
            }
        }
        buffers.push(buffer(slot + STATUS, 1, true));
        self.long_chains += u64::from(buffers.len() > CHAIN_MAX);
        let table = if is_long {
            Some(data + self.plan.blocks as usize * self.block_bytes)
        } else {
            self.rng.percent(30).then_some(slot + TABLE)
        };
        let place = request.user / self.plan.flows;
        let before = self.open.insert(request.user, request);
        assert!(before.is_none(), "a user has one request under way");
        let queue = &mut self.queues[request.user % self.plan.flows];
        let is_kicked = queue.within(&mut self.memory).submit(place, &buffers, table);
        if is_kicked {
            queue.kick.write(1).expect("a kick");
        }
        is_kicked
    }

    /// Whether the front-end keeps an in-flight log, and no request of these virtqueues that has no answer changes data.
    pub(crate) fn may_be_hung_up_on(&self, queues: &[u16]) -> bool {
        let is_of = |request: &GuestRequest| queues.contains(&(self.queue_of(request.user) as u16));
        let mut unanswered = self.open.values().chain(&self.given_up);
        self.plan.rings.have_log && !unanswered.any(|request| is_of(request) && request.operation.changes_data())
    }

    /// The answers of a virtqueue since the last call.
    pub(crate) fn reap(&mut self, queue: usize) -> Vec<Answer> {
        let places = self.queues[queue].within(&mut self.memory).reap();
        places.into_iter().map(|(place, used_bytes)| self.answer(place * self.plan.flows + queue, used_bytes)).collect()
    }

    fn answer(&mut self, user: usize, used_bytes: u32) -> Answer {
        let request = self.open.remove(&user).expect("a used request was available");
        let slot = self.slot(user);
        let result = match self.memory.read(slot + STATUS, 1)[0] {
            0 => Ok(()),
            1 => Err(GuestError::Io),
            2 => Err(GuestError::Unsupported),
            status => panic!("{request} has the status {status}"),
        };
        let is_read = request.operation == Operation::Read;
        let bytes = if is_read { request.blocks as usize * self.block_bytes } else { 0 };
        let data = self.memory.read(slot + SLOT_BYTES, bytes);
        self.last_reads.insert(user, data.clone());
        Answer { request, result, data, used_bytes }
    }
}

/// The memory of a user's request.
fn slot_bytes(plan: &GuestPlan, block_bytes: usize) -> usize {
    let long_table = if plan.rings.ignore_limits { LONG_TABLE_BYTES } else { 0 };
    SLOT_BYTES + plan.blocks as usize * block_bytes + long_table
}

/// The drivers of all virtqueues, with new rings.
fn drivers(plan: &GuestPlan) -> Vec<Driver> {
    (0..plan.flows).map(|index| Driver::new(index, plan)).collect()
}
