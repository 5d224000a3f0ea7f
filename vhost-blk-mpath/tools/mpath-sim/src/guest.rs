//! The requests of a guest. It has a number of users with one request under way each, on few blocks so that they collide.

use std::fmt;
use std::ops::Range;

use monotonic::Duration;

use crate::blocks::Operation;
use crate::clock::{Clock, Event};
use crate::rng::Rng;

/// The plan of the rings of a guest's virtqueues.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a habit of its own")]
pub(crate) struct RingPlan {
    /// The driver negotiates VIRTIO_F_EVENT_IDX.
    pub(crate) has_event_idx: bool,
    /// The driver negotiates VIRTIO_F_RING_PACKED.
    pub(crate) are_packed: bool,
    /// The front-end keeps an in-flight log.
    pub(crate) have_log: bool,
    /// The driver builds tables of any length, whatever queue and disk allow, and presets each status to success.
    pub(crate) ignore_limits: bool,
}

/// The plan of a guest for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct GuestPlan {
    /// The number of virtqueues. Each belongs to one I/O thread.
    pub(crate) flows: usize,
    /// The most requests of a flow that are under way.
    pub(crate) depth: usize,
    /// The time between an answer and the next request.
    pub(crate) think: Duration,
    /// The blocks of the disk when it has grown.
    pub(crate) blocks: u64,
    /// The blocks of the disk at the start.
    pub(crate) first_blocks: u64,
    /// The longest read or write in blocks.
    pub(crate) longest: u64,
    /// The longest Write Zeroes or Discard in blocks.
    pub(crate) longest_zeroes: u64,
    /// Shares of the operations: read, write, write zeroes, discard, flush.
    pub(crate) shares: [u64; 5],
    /// Written data may stay in volatile caches until a flush.
    pub(crate) writeback: bool,
    pub(crate) rings: RingPlan,
    /// How long users submit requests.
    pub(crate) until: Duration,
}

impl GuestPlan {
    /// Small requests, and few at a time.
    pub(crate) fn make_light(&mut self) {
        (self.depth, self.longest, self.longest_zeroes) = (self.depth.min(2), 2, 2);
    }
}

/// A request of the guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuestRequest {
    /// Its number in the run, from 1.
    pub(crate) id: u64,
    pub(crate) disk: usize,
    pub(crate) operation: Operation,
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
    /// The user in the guest that waits for it.
    pub(crate) user: usize,
}

impl fmt::Display for GuestRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, disk, operation, lba, blocks, .. } = self;
        write!(f, "#{id} of disk {disk} {operation:?} {lba}+{blocks}")
    }
}

/// The users of a guest.
#[derive(Debug)]
pub(crate) struct Guest {
    disk: usize,
    plan: GuestPlan,
    rng: Rng,
    /// The number of the next request.
    next: u64,
    /// The difference between two successive numbers of this guest. It keeps the numbers of different guests apart.
    step: u64,
    /// By user: the blocks that its last change was for.
    changed: Vec<Option<Range<u64>>>,
    /// By user: it waits for an answer.
    waiting: Vec<bool>,
    /// By user: the blocks that it is zeroing. Zeroes do not show which request wrote them. So no two users zero the same range,
    /// nor any block of it if the requests may be sent in parts.
    zeroing: Vec<Option<Range<u64>>>,
    /// The blocks of its disk.
    blocks: u64,
}

impl Guest {
    /// The guest of disk number `disk`, of `disks` disks.
    pub(crate) fn new(disk: usize, disks: usize, plan: GuestPlan, rng: Rng, clock: &mut Clock) -> Self {
        let users = plan.flows * plan.depth;
        let (changed, zeroing) = (vec![None; users], vec![None; users]);
        let (next, step) = (disk as u64 + 1, disks as u64);
        let mut guest = Self {
            disk,
            blocks: plan.first_blocks,
            plan,
            rng,
            next,
            step,
            changed,
            waiting: vec![false; users],
            zeroing,
        };
        (0..users).for_each(|user| guest.think(clock, user));
        guest
    }

    /// Sets the time of a user's next request.
    fn think(&mut self, clock: &mut Clock, user: usize) {
        let most = self.plan.think * 2;
        // Now and then a burst.
        let time = if self.rng.percent(10) { Duration::from_micros(1) } else { self.rng.up_to(most) };
        clock.after(time, Event::Guest { disk: self.disk, user });
    }

    /// [`Event::Guest`] has come: the next request of this user, if there is one.
    pub(crate) fn next_request(&mut self, clock: &mut Clock, user: usize) -> Option<GuestRequest> {
        if clock.elapsed() >= self.plan.until || self.waiting[user] {
            return None;
        }
        let mut choice = self.rng.below(self.plan.shares.iter().sum());
        let operation = self.plan.shares.iter().position(|share| {
            let hit = choice < *share;
            choice = choice.wrapping_sub(*share);
            hit
        });
        let fua = !self.plan.writeback;
        let operation = match operation {
            Some(1) => Operation::Write { fua },
            Some(2) => Operation::WriteZeroes { fua },
            Some(3) => Operation::Discard,
            Some(4) => Operation::Flush,
            _ => Operation::Read,
        };
        let range = match (operation, self.changed[user].clone()) {
            (Operation::Flush, _) => 0..0,
            // Few long reads would be all that counts.
            (Operation::Read, Some(changed)) if self.rng.percent(40) && !self.is_long(&changed) => changed,
            (operation, _) if operation.is_zeroing() => self.random_range(self.plan.longest_zeroes),
            _ => self.random_range(self.plan.longest),
        };
        if operation.is_zeroing() {
            let are_long = self.plan.longest_zeroes > self.plan.longest;
            let is_taken =
                |other: &Range<u64>| *other == range || are_long && other.start < range.end && range.start < other.end;
            if self.zeroing.iter().flatten().any(is_taken) {
                self.think(clock, user);
                return None;
            }
            self.zeroing[user] = Some(range.clone());
        }
        if operation.changes_data() {
            self.changed[user] = Some(range.clone());
        }
        Some(self.request(user, operation, range))
    }

    fn is_long(&self, range: &Range<u64>) -> bool {
        range.end - range.start > self.plan.longest
    }

    fn random_range(&mut self, longest: u64) -> Range<u64> {
        let longest = if self.rng.percent(50) { 1 } else { longest };
        let blocks = self.rng.range(1, longest);
        let start = self.rng.below(self.blocks - blocks + 1);
        start..start + blocks
    }

    /// A request of a user.
    pub(crate) fn request(&mut self, user: usize, operation: Operation, range: Range<u64>) -> GuestRequest {
        let id = self.next;
        self.next += self.step;
        self.waiting[user] = true;
        let blocks = (range.end - range.start) as u32;
        GuestRequest { id, disk: self.disk, operation, lba: range.start, blocks, user }
    }

    /// The request of a user is answered.
    pub(crate) fn answered(&mut self, clock: &mut Clock, user: usize) {
        self.waiting[user] = false;
        self.zeroing[user] = None;
        self.think(clock, user);
    }

    pub(crate) fn flows(&self) -> usize {
        self.plan.flows
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Its disk has grown.
    pub(crate) fn grow(&mut self, blocks: u64) {
        self.blocks = blocks;
    }

    /// Another guest follows, on a disk of this size.
    pub(crate) fn replaced(&mut self, blocks: u64) {
        self.blocks = blocks;
        self.changed.fill(None);
    }

    /// Whether no user submits requests or waits for answers any more.
    pub(crate) fn is_over(&self, clock: &Clock) -> bool {
        clock.elapsed() >= self.plan.until && !self.waiting.contains(&true)
    }
}
