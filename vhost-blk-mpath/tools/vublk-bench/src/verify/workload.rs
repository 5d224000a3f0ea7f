//! The two workloads of a verification: the random mixture, and the read-back of everything at the end.

use super::model::{Model, Range};
use super::reader::{Reader, Shared, lock};
use crate::backend::Backend;
use crate::request::{Kind, Request, Status};
use crate::runner::{Next, Workload};
use mpath_sim::rng::Rng;
use std::sync::atomic::Ordering;

/// The mixture, in percent; the rest are writes.
const READ_PERCENT: u64 = 45;
const FLUSH_PERCENT: u64 = 4;
const ZEROES_PERCENT: u64 = 4;
const DISCARD_PERCENT: u64 = 2;

/// How often a read goes to a recently written range, where stale, lost and late data show.
const READ_RECENT_PERCENT: u64 = 70;

/// How often a write goes to a recently written range. A late repetition of an older write shows only if it overwrites a newer
/// one.
const WRITE_RECENT_PERCENT: u64 = 30;

/// How often a request has the smallest size.
const ONE_BLOCK_PERCENT: u64 = 40;

/// Draws before a queue gives up finding a range that is free and goes back to its completions.
const DRAWS: usize = 16;

/// The random mixture of one queue.
#[derive(Debug)]
pub struct Verifier<'s> {
    reader: Reader<'s>,
    rng: Rng,
    requests_left: u64,
}

impl<'s> Verifier<'s> {
    /// The mixture of queue number `queue` with `slots` buffers. It ends by itself after `requests` requests.
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
        let (first, end) = (range.first.next_multiple_of(align), (range.first + range.count) / align * align);
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
        let data = &mut self.reader.data[..len];
        for (block, bytes) in (range.first..).zip(data.chunks_exact_mut(block_bytes)) {
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
    /// The read-back of queue number `queue` with `slots` buffers.
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
