//! The guest of a disk: a number of users, each with one request out at a time, on few blocks so that they collide.

use std::ops::Range;
use std::time::Duration;

use crate::check::Kind;
use crate::clock::{Clock, Event};
use crate::machine::Asked;
use crate::plan::GuestPlan;
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Guest {
    disk: usize,
    plan: GuestPlan,
    rng: Rng,
    /// The number of its next request, and how far apart they are: no two requests of a run have the same.
    next: u64,
    step: u64,
    /// By user: what it changed last, and whether it waits for an answer.
    changed: Vec<Option<Range<u64>>>,
    waiting: Vec<bool>,
    /// By user: what it is zeroing now. No two of them are alike, as zeroes do not tell who wrote them.
    zeroing: Vec<Option<Range<u64>>>,
    /// Blocks of its disk.
    blocks: u64,
}

impl Guest {
    /// The plan of one disk of `disks` disks.
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

    fn think(&mut self, clock: &mut Clock, user: usize) {
        let most = self.plan.think * 2;
        // Now and then a burst.
        let time = if self.rng.percent(10) { Duration::from_micros(1) } else { self.rng.up_to(most) };
        clock.after(time, Event::Guest { disk: self.disk, user });
    }

    /// [`Event::Guest`] has come: what this user asks for, if it goes on.
    pub(crate) fn ask(&mut self, clock: &mut Clock, user: usize) -> Option<Asked> {
        if clock.elapsed() >= self.plan.until || self.waiting[user] {
            return None;
        }
        let mut choice = self.rng.below(self.plan.shares.iter().sum());
        let kind = self.plan.shares.iter().position(|share| {
            let hit = choice < *share;
            choice = choice.wrapping_sub(*share);
            hit
        });
        let fua = !self.plan.writeback;
        let kind = match kind {
            Some(1) => Kind::Write { fua },
            Some(2) => Kind::WriteZeroes { fua },
            Some(3) => Kind::Discard,
            Some(4) => Kind::Flush,
            _ => Kind::Read,
        };
        let range = match (kind, self.changed[user].clone()) {
            (Kind::Flush, _) => 0..0,
            (Kind::Read, Some(changed)) if self.rng.percent(40) => changed,
            _ => self.any_range(),
        };
        if kind.is_zeroing() {
            if self.zeroing.contains(&Some(range.clone())) {
                self.think(clock, user);
                return None;
            }
            self.zeroing[user] = Some(range.clone());
        }
        if !matches!(kind, Kind::Read | Kind::Flush) {
            self.changed[user] = Some(range.clone());
        }
        Some(self.asked(user, kind, range))
    }

    fn any_range(&mut self) -> Range<u64> {
        let longest = if self.rng.percent(50) { 1 } else { self.plan.longest };
        let blocks = self.rng.range(1, longest);
        let start = self.rng.below(self.blocks - blocks + 1);
        start..start + blocks
    }

    /// A request of a user of its own choice.
    pub(crate) fn asked(&mut self, user: usize, kind: Kind, range: Range<u64>) -> Asked {
        let id = self.next;
        self.next += self.step;
        self.waiting[user] = true;
        let blocks = (range.end - range.start) as u32;
        Asked { id, disk: self.disk, kind, lba: range.start, blocks, user }
    }

    /// A user has its answer.
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

    pub(crate) fn is_over(&self, clock: &Clock) -> bool {
        clock.elapsed() >= self.plan.until && !self.waiting.contains(&true)
    }
}
