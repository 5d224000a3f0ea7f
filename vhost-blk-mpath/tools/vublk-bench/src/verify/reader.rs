//! What both workloads share: the limits, the model, and the checking of reads.

use super::block::{BlockPattern, POISON};
use super::model::{Content, Model, Range};
use crate::backend::Backend;
use crate::front_end::DeviceInfo;
use crate::request::{Kind, Request, SECTOR_BYTES, Status};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Miscompares reported in detail.
const DETAILS: usize = 16;

/// Which requests the disk takes, and where.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a block: the unit of the model and the smallest request.
    pub block_bytes: u32,
    /// The largest request, in blocks.
    pub max_blocks: u64,
    /// Whether flushes may be sent.
    pub flush: bool,
    /// The largest write-zeroes in blocks, 0 for none.
    pub max_zeroes_blocks: u64,
    /// Whether write-zeroes may carry the unmap flag.
    pub zeroes_may_unmap: bool,
    /// The largest discard in blocks, 0 for none.
    pub max_discard_blocks: u64,
    /// Discards start and end at multiples of this many blocks of the disk.
    pub discard_align_blocks: u64,
}

impl Limits {
    /// The limits of this disk, for requests of at most `max_bytes`.
    pub fn of(disk: &DeviceInfo, max_bytes: u64) -> Self {
        let block_sectors = u64::from(disk.block_bytes) / SECTOR_BYTES;
        Self {
            block_bytes: disk.block_bytes,
            max_blocks: max_bytes / u64::from(disk.block_bytes),
            flush: disk.flush,
            max_zeroes_blocks: u64::from(disk.max_write_zeroes_sectors) / block_sectors,
            zeroes_may_unmap: disk.write_zeroes_may_unmap,
            max_discard_blocks: u64::from(disk.max_discard_sectors) / block_sectors,
            discard_align_blocks: u64::from(disk.discard_sector_alignment).div_ceil(block_sectors).max(1),
        }
    }
}

/// The numbers of blocks that were written and checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub blocks_written: u64,
    pub blocks_zeroed: u64,
    pub blocks_discarded: u64,
    /// Blocks with known content that were read while writes went on, and compared with the model.
    pub blocks_verified: u64,
    /// The part of `blocks_verified` whose read raced with a write.
    pub blocks_verified_racing: u64,
    /// Blocks that were read while their content was unknown.
    pub blocks_unknown: u64,
    /// Blocks that the read-back at the end compared with the model.
    pub blocks_read_back: u64,
    pub miscompares: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.blocks_written += other.blocks_written;
        self.blocks_zeroed += other.blocks_zeroed;
        self.blocks_discarded += other.blocks_discarded;
        self.blocks_verified += other.blocks_verified;
        self.blocks_verified_racing += other.blocks_verified_racing;
        self.blocks_unknown += other.blocks_unknown;
        self.blocks_read_back += other.blocks_read_back;
        self.miscompares += other.miscompares;
    }
}

/// One wrong block.
#[derive(Debug, Clone, Serialize)]
pub struct Miscompare {
    pub lba: u64,
    /// The number in the block's header: its place on the disk in blocks.
    pub block: u64,
    pub queue: u16,
    pub request: Request,
    pub expected: String,
    pub got: String,
    pub in_read_back: bool,
}

/// What the queues of one verification share.
#[derive(Debug)]
pub struct Shared {
    pub(super) limits: Limits,
    pub(super) pattern: BlockPattern,
    pub(super) model: Mutex<Model>,
    counts: Mutex<Counts>,
    miscompares: Mutex<Vec<Miscompare>>,
    /// Blocks found wrong so far, for the progress line.
    pub miscompared: AtomicU64,
    /// First block that no queue's read-back has taken yet.
    pub(super) read_back_at: AtomicU64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// A model of `blocks` blocks for a run with this seed.
    pub fn new(limits: Limits, blocks: usize, seed: u64) -> Self {
        Self {
            limits,
            pattern: BlockPattern::new(seed),
            model: Mutex::new(Model::new(blocks)),
            counts: Mutex::default(),
            miscompares: Mutex::default(),
            miscompared: AtomicU64::new(0),
            read_back_at: AtomicU64::new(0),
        }
    }

    /// The counts of the workloads that have ended (been dropped).
    pub fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    pub fn miscompares(&self) -> Vec<Miscompare> {
        lock(&self.miscompares).clone()
    }

    pub fn known_blocks(&self) -> u64 {
        lock(&self.model).known_blocks()
    }
}

/// Reading and checking: the part that both workloads share.
#[derive(Debug)]
pub(super) struct Reader<'s> {
    pub(super) shared: &'s Shared,
    queue: u16,
    /// By slot: what the blocks of the read in flight may have been when it began.
    floors: Vec<Vec<Content>>,
    ceiling: Vec<Content>,
    /// Scratch space for data that are copied to or from a slot's buffer.
    pub(super) data: Vec<u8>,
    poison: Vec<u8>,
    pub(super) counts: Counts,
}

impl<'s> Reader<'s> {
    pub(super) fn new(shared: &'s Shared, queue: u16, slots: u16) -> Self {
        let bytes = shared.limits.max_blocks as usize * shared.limits.block_bytes as usize;
        Self {
            shared,
            queue,
            floors: vec![Vec::new(); usize::from(slots)],
            ceiling: Vec::new(),
            data: vec![0; bytes],
            poison: vec![POISON; bytes],
            counts: Counts::default(),
        }
    }

    pub(super) fn request(&self, kind: Kind, range: Range) -> Request {
        let block_bytes = u64::from(self.shared.limits.block_bytes);
        Request { kind, offset: range.first * block_bytes, len: (range.count * block_bytes) as u32 }
    }

    pub(super) fn range(&self, request: &Request) -> Range {
        let block_bytes = u64::from(self.shared.limits.block_bytes);
        Range { first: request.offset / block_bytes, count: u64::from(request.len) / block_bytes }
    }

    pub(super) fn begin_read<B: Backend>(
        &mut self,
        model: &mut Model,
        slot: u16,
        range: Range,
        backend: &mut B,
    ) -> Request {
        model.begin_read(range, &mut self.floors[usize::from(slot)]);
        let request = self.request(Kind::Read, range);
        backend.fill(slot, &self.poison[..request.len as usize]);
        request
    }

    /// Checks a completed read; with `read_back` it counts as part of the final pass.
    pub(super) fn end_read<B: Backend>(
        &mut self,
        slot: u16,
        request: &Request,
        status: Status,
        read_back: bool,
        backend: &mut B,
    ) {
        let range = self.range(request);
        let mut ceiling = std::mem::take(&mut self.ceiling);
        lock(&self.shared.model).end_read(range, &mut ceiling);
        if status == Status::Ok {
            let mut data = std::mem::take(&mut self.data);
            backend.fetch(slot, &mut data[..request.len as usize]);
            let blocks = data.chunks_exact(self.shared.limits.block_bytes as usize);
            for (index, (bytes, &after)) in blocks.zip(&ceiling).enumerate() {
                let before = self.floors[usize::from(slot)][index];
                self.check(range.first + index as u64, [before, after], bytes, request, read_back);
            }
            self.data = data;
        }
        self.ceiling = ceiling;
    }

    fn check(&mut self, block: u64, candidates: [Content; 2], bytes: &[u8], request: &Request, in_read_back: bool) {
        let [before, after] = candidates;
        if candidates.contains(&Content::Unknown) {
            self.counts.blocks_unknown += 1;
            return;
        }
        if in_read_back {
            self.counts.blocks_read_back += 1;
        } else {
            self.counts.blocks_verified += 1;
            self.counts.blocks_verified_racing += u64::from(before != after);
        }
        let Err(finding) = self.shared.pattern.check(block, candidates, bytes) else {
            return;
        };
        self.counts.miscompares += 1;
        self.shared.miscompared.fetch_add(1, Ordering::Relaxed);
        let mut details = lock(&self.shared.miscompares);
        if details.len() < DETAILS {
            details.push(Miscompare {
                lba: block * u64::from(self.shared.limits.block_bytes) / SECTOR_BYTES,
                block,
                queue: self.queue,
                request: *request,
                expected: if before == after { before.to_string() } else { format!("{before} or {after}") },
                got: finding.to_string(),
                in_read_back,
            });
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        lock(&self.shared.counts).add(&self.counts);
    }
}
