//! A virtual machine with one disk: its memory with the virtqueues, the driver of each, and the front-end. All of that outlives
//! the daemon.

mod driver;
mod frontend;
mod memory;

use std::collections::BTreeMap;
use std::fmt;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use mpath_core::IoError;
use vhost::VhostBackend;
use vhost::vhost_user::Frontend;

use self::driver::{CHAIN_MAX, Driver, QUEUE_BYTES, Segment};
use self::frontend::{Device, Inflight};
use self::memory::Memory;
use crate::check::{Kind, fill};
use crate::plan::GuestPlan;
use crate::rng::Rng;

/// The parts of a request other than its data: header, status, range and a table of descriptors.
const SLOT_BYTES: usize = 0x200;
const STATUS: usize = 0x10;
const RANGE: usize = 0x20;
const TABLE: usize = 0x100;
/// The initial value of a status byte, and of data, before the device writes.
const UNTOUCHED: u8 = 0xee;
const SECTOR_BYTES: u64 = 512;

/// A request of the guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Its number in the run, from 1.
    pub(crate) id: u64,
    pub(crate) disk: usize,
    pub(crate) kind: Kind,
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
    /// Who in the guest waits for it.
    pub(crate) user: usize,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, disk, kind, lba, blocks, .. } = self;
        write!(f, "#{id} of disk {disk} {kind:?} {lba}+{blocks}")
    }
}

/// What the guest is told.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) asked: Asked,
    pub(crate) result: Result<(), IoError>,
    /// The data of a read.
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Machine {
    plan: GuestPlan,
    block_bytes: usize,
    rng: Rng,
    memory: Memory,
    queues: Vec<Driver>,
    inflight: Option<Inflight>,
    frontend: Option<Frontend>,
    /// Blocks that the disk has for the guest.
    blocks: u64,
    /// Its end of the connection, to hang up.
    stream: Option<UnixStream>,
    /// By user: what is not answered.
    out: BTreeMap<usize, Asked>,
    /// By user: the data of the last read, whose memory is the guest's again.
    read: BTreeMap<usize, Vec<u8>>,
    /// What went with a reset of the guest.
    given_up: Vec<Asked>,
}

impl Machine {
    pub(crate) fn new(plan: GuestPlan, block_bytes: usize, rng: Rng) -> Self {
        let users = plan.flows * plan.depth;
        let slots = users * (SLOT_BYTES + plan.blocks as usize * block_bytes);
        let queues = (0..plan.flows).map(|index| Driver::new(index, plan.depth, plan.has_event_idx)).collect();
        let blocks = plan.first_blocks;
        Self {
            memory: Memory::new(plan.flows * QUEUE_BYTES + slots),
            plan,
            block_bytes,
            rng,
            queues,
            inflight: None,
            frontend: None,
            blocks,
            stream: None,
            out: BTreeMap::new(),
            read: BTreeMap::new(),
            given_up: Vec::new(),
        }
    }

    /// Blocks that the disk has for the guest.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The disk has grown.
    pub(crate) fn grow(&mut self, blocks: u64) {
        self.blocks = blocks;
    }

    /// The virtqueue of a user.
    pub(crate) fn queue_of(&self, user: usize) -> usize {
        user % self.plan.flows
    }

    /// Connects to a daemon: all virtqueues run then.
    pub(crate) fn connect(&mut self, stream: UnixStream) {
        self.stream = Some(stream.try_clone().expect("a descriptor for a socket"));
        self.frontend = Some(frontend::connect(stream, self.queues.len()).expect("the daemon answers"));
        let bases: Vec<_> = self.queues.iter().map(Driver::base).collect();
        self.start_queues(&bases);
    }

    /// Has all virtqueues run, from there on.
    pub(crate) fn start_queues(&mut self, bases: &[u16]) {
        let Self { memory, queues, plan, .. } = self;
        let GuestPlan { has_event_idx, writeback, .. } = *plan;
        let device = Device { memory, queues, bases, has_event_idx, writeback };
        let frontend = self.frontend.as_mut().expect("it is connected");
        device.start(frontend, &mut self.inflight).expect("the daemon answers");
    }

    /// Asks to stop a virtqueue and where it stands then. That waits until it has drained.
    pub(crate) fn ask_base(&self, queue: usize) -> impl FnOnce() -> Result<u32, vhost::Error> + Send + 'static {
        let frontend = self.frontend.clone().expect("it is connected");
        move || frontend.get_vring_base(queue)
    }

    /// How many requests each virtqueue has answered, as its ring has it.
    pub(crate) fn used(&self) -> Vec<u16> {
        self.queues.iter().map(|queue| queue.answered(&self.memory)).collect()
    }

    /// The front-end or the daemon is gone. The guest is another one then, and has given up what this one had asked, or it waits.
    pub(crate) fn disconnect(&mut self, is_reset: bool) {
        self.frontend = None;
        if let Some(stream) = self.stream.take() {
            // A thread may wait there for an answer. It fails only if the daemon was quicker.
            let _ = stream.shutdown(Shutdown::Both);
        }
        if is_reset {
            // That of another machine: a daemon that still has the old one may go on writing to it.
            self.memory = Memory::new(self.memory.bytes());
            self.queues.iter_mut().for_each(Driver::reset);
            self.inflight = None;
            self.read.clear();
            self.given_up.extend(std::mem::take(&mut self.out).into_values());
        }
    }

    /// Memory is gone from a page on that this number chooses.
    pub(crate) fn cut_off(&mut self, choice: u64) {
        self.memory.cut_off(choice);
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.memory.is_cut_off()
    }

    /// What is not answered.
    pub(crate) fn out(&self) -> impl Iterator<Item = u64> + '_ {
        self.out.values().map(|asked| asked.id)
    }

    /// Requests that were given up and may still be executed.
    pub(crate) fn given_up(&self) -> impl Iterator<Item = u64> + '_ {
        self.given_up.iter().map(|asked| asked.id)
    }

    /// Drops requests that were given up and that no daemon can execute.
    pub(crate) fn take_given_up(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.given_up)
    }

    /// Where a user's request lies.
    fn slot(&self, user: usize) -> usize {
        self.queues.len() * QUEUE_BYTES + user * (SLOT_BYTES + self.plan.blocks as usize * self.block_bytes)
    }

    /// Whether the memory of a user's last read is unchanged since its answer. Asked once.
    pub(crate) fn is_left_alone(&mut self, user: usize) -> bool {
        let Some(data) = self.read.remove(&user) else { return true };
        self.memory.read(self.slot(user) + SLOT_BYTES, data.len()) == data
    }

    /// The guest asks: whether the device was kicked.
    pub(crate) fn ask(&mut self, asked: Asked) -> bool {
        let (slot, data) = (self.slot(asked.user), self.slot(asked.user) + SLOT_BYTES);
        let to_sector = |blocks: u64| blocks * (self.block_bytes as u64 / SECTOR_BYTES);
        let bytes = asked.blocks as usize * self.block_bytes;
        let is_range = asked.kind.is_zeroing();
        let (number, payload) = match asked.kind {
            Kind::Read => (0u32, Some((data, bytes, true))),
            Kind::Write { .. } => (1, Some((data, bytes, false))),
            Kind::Flush => (4, None),
            Kind::Discard => (11, Some((slot + RANGE, 16, false))),
            Kind::WriteZeroes { .. } => (13, Some((slot + RANGE, 16, false))),
        };
        let sector = if is_range { 0 } else { to_sector(asked.lba) };
        let mut header = [0; 17];
        header[..4].copy_from_slice(&number.to_le_bytes());
        header[8..16].copy_from_slice(&sector.to_le_bytes());
        header[STATUS] = UNTOUCHED;
        self.memory.write(slot, &header);
        if is_range {
            let range = u128::from(to_sector(asked.lba)) | u128::from(to_sector(asked.blocks.into())) << 64;
            self.memory.write(slot + RANGE, &range.to_le_bytes());
        }
        match asked.kind {
            Kind::Read => self.memory.write(data, &vec![UNTOUCHED; bytes]),
            Kind::Write { .. } => {
                let mut payload = vec![0; bytes];
                fill(asked.disk, asked.id, asked.lba, self.block_bytes, &mut payload);
                self.memory.write(data, &payload);
            }
            _ => {}
        }
        let mut segments = vec![Segment { at: slot, bytes: 16, is_written: false }];
        if let Some((at, bytes, is_written)) = payload {
            let mut done = 0;
            while done < bytes {
                let last = segments.len() == CHAIN_MAX - 2;
                let part = if last || self.rng.percent(50) { bytes } else { self.rng.range(1, bytes as u64) as usize };
                let part = part.min(bytes - done);
                segments.push(Segment { at: at + done, bytes: part, is_written });
                done += part;
            }
        }
        segments.push(Segment { at: slot + STATUS, bytes: 1, is_written: true });
        let table = self.rng.percent(30).then_some(slot + TABLE);
        let place = asked.user / self.plan.flows;
        let before = self.out.insert(asked.user, asked);
        assert!(before.is_none(), "a user has one request out");
        let queue = &mut self.queues[asked.user % self.plan.flows];
        let is_kicked = queue.submit(&mut self.memory, place, &segments, table);
        if is_kicked {
            queue.kick.write(1).expect("a kick");
        }
        is_kicked
    }

    /// What the device has answered in a virtqueue.
    pub(crate) fn reap(&mut self, queue: usize) -> Vec<Answer> {
        let places = self.queues[queue].reap(&self.memory);
        places.into_iter().map(|place| self.answer(place * self.plan.flows + queue)).collect()
    }

    fn answer(&mut self, user: usize) -> Answer {
        let asked = self.out.remove(&user).expect("what is used was available");
        let slot = self.slot(user);
        let result = match self.memory.read(slot + STATUS, 1)[0] {
            0 => Ok(()),
            1 => Err(IoError::Io),
            2 => Err(IoError::Unsupported),
            status => panic!("{asked} has the status {status}"),
        };
        let is_read = asked.kind == Kind::Read;
        let bytes = if is_read { asked.blocks as usize * self.block_bytes } else { 0 };
        let data = self.memory.read(slot + SLOT_BYTES, bytes);
        self.read.insert(user, data.clone());
        Answer { asked, result, data }
    }
}
