//! The two workloads of a verification: the random mixture, and the read-back of everything at the end.

use super::block::{BlockPattern, POISON};
use super::model::{Content, Model, Range};
use crate::backend::Backend;
use crate::request::{Kind, Request, SECTOR_BYTES, Status};
use crate::rng::Rng;
use crate::runner::{Next, Workload};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The mixture, in percent; the rest are writes.
const READ_PERCENT: u64 = 45;
const FLUSH_PERCENT: u64 = 4;
const ZEROES_PERCENT: u64 = 4;
const DISCARD_PERCENT: u64 = 2;

/// How often a read goes to a recently written range: that is where stale, lost and late data shows.
const READ_RECENT_PERCENT: u8 = 70;

/// How often a write does: late repetitions of an older write show only on top of a newer one.
const WRITE_RECENT_PERCENT: u8 = 30;

/// How often a request has the smallest size.
const ONE_BLOCK_PERCENT: u8 = 40;

/// Draws before a queue gives up finding a range that is free and goes back to its completions.
const DRAWS: usize = 16;

/// Miscompares reported in detail.
const DETAILS: usize = 16;

/// Which requests the disk takes, and where.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// First byte of the region under test.
    pub region_offset: u64,
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

/// How much was written and checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Blocks of new data whose write succeeded.
    pub blocks_written: u64,
    /// Blocks whose write-zeroes succeeded.
    pub blocks_zeroed: u64,
    /// Blocks whose discard succeeded.
    pub blocks_discarded: u64,
    /// Blocks read with known content while writes went on, and held against the model.
    pub blocks_verified: u64,
    /// Of these, blocks whose read raced with a write.
    pub blocks_verified_racing: u64,
    /// Blocks read whose content was unknown.
    pub blocks_unknown: u64,
    /// Blocks held against the model by the read-back at the end.
    pub blocks_read_back: u64,
    /// Blocks that were wrong.
    pub miscompares: u64,
}

/// One wrong block.
#[derive(Debug, Clone, Serialize)]
pub struct Miscompare {
    /// First sector of the block on the disk.
    pub lba: u64,
    /// The number in the block's header: its place on the disk in blocks.
    pub block: u64,
    /// Queue of the read.
    pub queue: u16,
    /// The whole read request.
    pub request: Request,
    /// Legal contents.
    pub expected: String,
    /// What was there.
    pub got: String,
    /// Whether the read-back at the end found it.
    pub in_read_back: bool,
}

/// What the queues of one verification share.
#[derive(Debug)]
pub struct Shared {
    limits: Limits,
    pattern: BlockPattern,
    model: Mutex<Model>,
    counts: Mutex<Counts>,
    miscompares: Mutex<Vec<Miscompare>>,
    /// Blocks found wrong so far, for the progress line.
    pub miscompared: AtomicU64,
    read_back_at: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// A model of `blocks` blocks for a run with this seed.
    #[must_use]
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
    #[must_use]
    pub fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    /// The first wrong blocks.
    #[must_use]
    pub fn miscompares(&self) -> Vec<Miscompare> {
        lock(&self.miscompares).clone()
    }

    /// Blocks whose content is known.
    #[must_use]
    pub fn known_blocks(&self) -> u64 {
        lock(&self.model).known_blocks()
    }
}

/// A read in flight.
#[derive(Debug, Default, Clone)]
struct SlotReads {
    floor: Vec<Content>,
}

/// Reading and checking: the part that both workloads share.
#[derive(Debug)]
struct Reader<'s> {
    shared: &'s Shared,
    queue: u16,
    slots: Vec<SlotReads>,
    ceiling: Vec<Content>,
    data: Vec<u8>,
    poison: Vec<u8>,
    counts: Counts,
}

impl<'s> Reader<'s> {
    fn new(shared: &'s Shared, queue: u16, slots: u16) -> Self {
        let bytes = shared.limits.max_blocks as usize * shared.limits.block_bytes as usize;
        Self {
            shared,
            queue,
            slots: vec![SlotReads::default(); usize::from(slots)],
            ceiling: Vec::new(),
            data: vec![0; bytes],
            poison: vec![POISON; bytes],
            counts: Counts::default(),
        }
    }

    fn request(&self, kind: Kind, range: Range) -> Request {
        let block_bytes = u64::from(self.shared.limits.block_bytes);
        Request {
            kind,
            offset: self.shared.limits.region_offset + range.first * block_bytes,
            len: (range.count * block_bytes) as u32,
        }
    }

    fn range(&self, request: &Request) -> Range {
        let block_bytes = u64::from(self.shared.limits.block_bytes);
        Range {
            first: (request.offset - self.shared.limits.region_offset) / block_bytes,
            count: u64::from(request.len) / block_bytes,
        }
    }

    /// The number that the header of the region's block `index` carries.
    fn block_number(&self, index: u64) -> u64 {
        self.shared.limits.region_offset / u64::from(self.shared.limits.block_bytes) + index
    }

    fn begin_read<B: Backend>(&mut self, model: &mut Model, slot: u16, range: Range, backend: &mut B) -> Request {
        model.begin_read(range, &mut self.slots[usize::from(slot)].floor);
        let request = self.request(Kind::Read, range);
        backend.fill(slot, &self.poison[..request.len as usize]);
        request
    }

    /// Checks a completed read; with `read_back` it counts as part of the final pass.
    fn end_read<B: Backend>(&mut self, slot: u16, request: &Request, status: Status, read_back: bool, backend: &mut B) {
        let range = self.range(request);
        let mut ceiling = std::mem::take(&mut self.ceiling);
        lock(&self.shared.model).end_read(range, &mut ceiling);
        if status == Status::Ok {
            let mut data = std::mem::take(&mut self.data);
            backend.fetch(slot, &mut data[..request.len as usize]);
            let blocks = data.chunks_exact(self.shared.limits.block_bytes as usize);
            for (index, (bytes, &after)) in blocks.zip(&ceiling).enumerate() {
                let before = self.slots[usize::from(slot)].floor[index];
                self.check(range.first + index as u64, [before, after], bytes, request, read_back);
            }
            self.data = data;
        }
        self.ceiling = ceiling;
    }

    fn check(&mut self, index: u64, candidates: [Content; 2], bytes: &[u8], request: &Request, in_read_back: bool) {
        let [before, after] = candidates;
        if candidates.contains(&Content::UNKNOWN) {
            self.counts.blocks_unknown += 1;
            return;
        }
        if in_read_back {
            self.counts.blocks_read_back += 1;
        } else {
            self.counts.blocks_verified += 1;
            self.counts.blocks_verified_racing += u64::from(before != after);
        }
        let block = self.block_number(index);
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
        let mut total = lock(&self.shared.counts);
        total.blocks_written += self.counts.blocks_written;
        total.blocks_zeroed += self.counts.blocks_zeroed;
        total.blocks_discarded += self.counts.blocks_discarded;
        total.blocks_verified += self.counts.blocks_verified;
        total.blocks_verified_racing += self.counts.blocks_verified_racing;
        total.blocks_unknown += self.counts.blocks_unknown;
        total.blocks_read_back += self.counts.blocks_read_back;
        total.miscompares += self.counts.miscompares;
    }
}

/// The random mixture of one queue.
#[derive(Debug)]
pub struct Verifier<'s> {
    reader: Reader<'s>,
    rng: Rng,
    requests_left: u64,
}

impl<'s> Verifier<'s> {
    /// For queue number `queue` with `slots` buffers; ends by itself after `requests` requests.
    #[must_use]
    pub fn new(shared: &'s Shared, queue: u16, slots: u16, seed: u64, requests: u64) -> Self {
        Self {
            reader: Reader::new(shared, queue, slots),
            rng: Rng::new(seed, u64::from(queue)),
            requests_left: requests,
        }
    }

    fn draw_kind(&mut self) -> Kind {
        let limits = &self.reader.shared.limits;
        let mut draw = self.rng.below(100);
        let mut takes = |percent: u64| {
            let hit = draw < percent;
            draw = draw.saturating_sub(percent);
            hit
        };
        if takes(READ_PERCENT) {
            Kind::Read
        } else if takes(FLUSH_PERCENT) {
            if limits.flush { Kind::Flush } else { Kind::Write }
        } else if takes(ZEROES_PERCENT) && limits.max_zeroes_blocks > 0 {
            Kind::WriteZeroes { unmap: limits.zeroes_may_unmap && self.rng.percent(50) }
        } else if takes(DISCARD_PERCENT) && limits.max_discard_blocks > 0 {
            Kind::Discard
        } else {
            Kind::Write
        }
    }

    fn draw_range(&mut self, kind: Kind, model: &Model) -> Option<Range> {
        let limits = &self.reader.shared.limits;
        let most = match kind {
            Kind::WriteZeroes { .. } => limits.max_zeroes_blocks,
            Kind::Discard => limits.max_discard_blocks,
            _ => limits.max_blocks,
        };
        let most = most.min(limits.max_blocks).min(model.len());
        let count = if self.rng.percent(ONE_BLOCK_PERCENT) { 1 } else { 1 + self.rng.below(most) };
        let percent = if kind == Kind::Read { READ_RECENT_PERCENT } else { WRITE_RECENT_PERCENT };
        let recent = self.rng.percent(percent).then(|| model.recent(self.rng.next_u64())).flatten();
        let first = match recent {
            // Any overlap with the recent range, so that it is read and overwritten in part, too.
            Some(recent) => (recent.first + self.rng.below(recent.count)).saturating_sub(self.rng.below(count)),
            None => self.rng.below(model.len()),
        };
        let range = Range { first: first.min(model.len() - count), count };
        if kind == Kind::Discard { self.align_discard(range) } else { Some(range) }
    }

    /// Shrinks the range to what a discard may name; `None` if nothing is left.
    fn align_discard(&self, range: Range) -> Option<Range> {
        let align = self.reader.shared.limits.discard_align_blocks.max(1);
        let region_first = self.reader.block_number(0);
        let first = (region_first + range.first).next_multiple_of(align) - region_first;
        let end = ((region_first + range.first + range.count) / align * align).saturating_sub(region_first);
        (end > first).then(|| Range { first, count: end - first })
    }

    fn try_next<B: Backend>(&mut self, slot: u16, backend: &mut B) -> Option<Request> {
        let kind = self.draw_kind();
        if kind == Kind::Flush {
            return Some(Request::FLUSH);
        }
        let shared = self.reader.shared;
        let mut model = lock(&shared.model);
        let range = self.draw_range(kind, &model)?;
        let request = self.reader.request(kind, range);
        match kind {
            Kind::Read => return Some(self.reader.begin_read(&mut model, slot, range, backend)),
            Kind::Write => {
                let version = model.begin_write(range)?;
                drop(model);
                self.write_data(slot, range, version, backend);
            }
            Kind::WriteZeroes { .. } => model.begin_zeroes(range).then_some(())?,
            Kind::Discard => model.begin_discard(range).then_some(())?,
            Kind::Flush => {}
        }
        Some(request)
    }

    fn write_data<B: Backend>(&mut self, slot: u16, range: Range, version: u64, backend: &mut B) {
        let block_bytes = self.reader.shared.limits.block_bytes as usize;
        let len = range.count as usize * block_bytes;
        let first = self.reader.block_number(range.first);
        let data = &mut self.reader.data[..len];
        for (block, bytes) in (first..).zip(data.chunks_exact_mut(block_bytes)) {
            self.reader.shared.pattern.write(block, version, bytes);
        }
        backend.fill(slot, data);
    }
}

impl<B: Backend> Workload<B> for Verifier<'_> {
    fn next(&mut self, slot: u16, backend: &mut B) -> Next {
        if self.requests_left == 0 {
            return Next::Done;
        }
        for _ in 0..DRAWS {
            if let Some(request) = self.try_next(slot, backend) {
                self.requests_left -= 1;
                return Next::Submit(request);
            }
        }
        Next::Busy
    }

    fn completed(&mut self, slot: u16, request: &Request, status: Status, backend: &mut B) {
        let range = self.reader.range(request);
        let counter = match request.kind {
            Kind::Flush => return,
            Kind::Read => return self.reader.end_read(slot, request, status, false, backend),
            Kind::Write => &mut self.reader.counts.blocks_written,
            Kind::WriteZeroes { .. } => &mut self.reader.counts.blocks_zeroed,
            Kind::Discard => &mut self.reader.counts.blocks_discarded,
        };
        let succeeded = status == Status::Ok;
        if succeeded {
            *counter += range.count;
        }
        lock(&self.reader.shared.model).end_change(range, succeeded);
    }
}

/// Reads everything whose content is known, once; the queues share the work.
#[derive(Debug)]
pub struct ReadBack<'s> {
    reader: Reader<'s>,
}

impl<'s> ReadBack<'s> {
    /// For queue number `queue` with `slots` buffers.
    #[must_use]
    pub fn new(shared: &'s Shared, queue: u16, slots: u16) -> Self {
        Self { reader: Reader::new(shared, queue, slots) }
    }
}

impl<B: Backend> Workload<B> for ReadBack<'_> {
    fn next(&mut self, slot: u16, backend: &mut B) -> Next {
        let shared = self.reader.shared;
        let max_blocks = shared.limits.max_blocks;
        let mut model = lock(&shared.model);
        loop {
            let first = shared.read_back_at.fetch_add(max_blocks, Ordering::Relaxed);
            if first >= model.len() {
                return Next::Done;
            }
            let range = Range { first, count: max_blocks.min(model.len() - first) };
            if model.any_known(range) {
                return Next::Submit(self.reader.begin_read(&mut model, slot, range, backend));
            }
        }
    }

    fn completed(&mut self, slot: u16, request: &Request, status: Status, backend: &mut B) {
        self.reader.end_read(slot, request, status, true, backend);
    }
}
