//! A disk in memory that breaks one promise, once. It tests the checker, which must find the broken promise.

use crate::backend::{Backend, Head, Used};
use crate::request::{Kind, Request, Status};
use mpath_sim::rng::Rng;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// The promise to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// A write is acknowledged and never done.
    DropWrite,
    /// A write goes one block further than asked.
    MisplaceWrite,
    /// The first half of a block is written, the rest stays.
    TearBlock,
    /// All blocks of a write but the last are written.
    TearRequest,
    /// A read of several blocks returns its first two exchanged.
    SwapBlocks,
    /// A read returns what the disk held before the last write.
    ReturnOldVersion,
    /// A read returns one changed byte.
    CorruptByte,
    /// A write is done again after a later one to the same blocks.
    RepeatWriteLate,
    /// Write-zeroes is acknowledged and never done.
    DropZeroes,
    /// A read completes without data.
    NoTransfer,
    /// A request completes twice.
    CompleteTwice,
    /// A chain completes that was never submitted.
    CompleteUnknown,
    /// A request never completes.
    Lose,
    /// A request completes without a status.
    NoStatus,
    /// A request fails.
    Fail,
}

/// Requests served before the fault: enough for the model to know most blocks.
const SERVED_BEFORE_FAULT: u64 = 3000;

/// Writes remembered, for a late repetition.
const PAST_WRITES: usize = 100;

pub(super) const BLOCK: usize = 512;
pub(super) const HEADS: u16 = 64;

#[derive(Debug)]
pub(super) struct FaultyBackend {
    disk: Vec<u8>,
    /// The disk as it was before each block's last write.
    previous: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    queued: Vec<(Head, u16, Request)>,
    free_heads: Vec<Head>,
    used: Vec<Used>,
    fault: Fault,
    past_writes: VecDeque<(usize, Vec<u8>)>,
    served: u64,
    pub(super) happened: bool,
    rng: Rng,
}

impl FaultyBackend {
    pub(super) fn new(blocks: usize, slots: u16, max_blocks: usize, fault: Fault, seed: u64) -> Self {
        Self {
            disk: vec![0xee; blocks * BLOCK],
            previous: vec![0xee; blocks * BLOCK],
            buffers: vec![vec![0; max_blocks * BLOCK]; usize::from(slots)],
            queued: Vec::new(),
            free_heads: (0..HEADS).collect(),
            used: Vec::new(),
            fault,
            past_writes: VecDeque::new(),
            served: 0,
            happened: false,
            rng: Rng::new(seed, 0xfa17),
        }
    }

    /// Whether the fault happens at this request. That is so exactly once: at the first request after the settling time that
    /// `fits`.
    fn strikes(&mut self, fault: Fault, fits: bool) -> bool {
        let now = self.fault == fault && !self.happened && fits && self.served > SERVED_BEFORE_FAULT;
        self.happened |= now;
        now
    }

    fn store(&mut self, at: usize, data: &[u8]) {
        self.previous[at..at + data.len()].copy_from_slice(&self.disk[at..at + data.len()]);
        self.disk[at..at + data.len()].copy_from_slice(data);
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        let several = data.len() > BLOCK;
        if self.strikes(Fault::DropWrite, true) {
            return;
        }
        if self.strikes(Fault::MisplaceWrite, at + data.len() + BLOCK <= self.disk.len()) {
            return self.store(at + BLOCK, data);
        }
        if self.strikes(Fault::TearBlock, true) {
            return self.store(at, &data[..BLOCK / 2]);
        }
        if self.strikes(Fault::TearRequest, several) {
            return self.store(at, &data[..data.len() - BLOCK]);
        }
        self.store(at, data);
        let overlaps = |(old_at, old): &&(usize, Vec<u8>)| *old_at < at + data.len() && at < old_at + old.len();
        let old = self.past_writes.iter().find(overlaps).cloned();
        if let Some((old_at, old)) = old
            && self.strikes(Fault::RepeatWriteLate, true)
        {
            self.store(old_at, &old);
        }
        self.past_writes.push_back((at, data.to_vec()));
        if self.past_writes.len() > PAST_WRITES {
            self.past_writes.pop_front();
        }
    }

    fn read(&mut self, at: usize, data: &mut [u8]) {
        if self.strikes(Fault::NoTransfer, true) {
            return;
        }
        let before_last_write = &self.previous[at..at + data.len()];
        let changed = before_last_write != &self.disk[at..at + data.len()];
        if self.strikes(Fault::ReturnOldVersion, changed) {
            return data.copy_from_slice(&self.previous[at..at + data.len()]);
        }
        data.copy_from_slice(&self.disk[at..at + data.len()]);
        let differ = data.len() > BLOCK && data[..BLOCK] != data[BLOCK..2 * BLOCK];
        if self.strikes(Fault::SwapBlocks, differ) {
            data[..2 * BLOCK].rotate_left(BLOCK);
        }
        if self.strikes(Fault::CorruptByte, true) {
            let at = self.rng.below(data.len() as u64) as usize;
            data[at] ^= 0x10;
        }
    }

    fn serve(&mut self, slot: u16, request: Request) {
        let (at, len) = (request.offset as usize, request.len as usize);
        let mut buffer = std::mem::take(&mut self.buffers[usize::from(slot)]);
        match request.kind {
            Kind::Read => self.read(at, &mut buffer[..len]),
            Kind::Write => self.write(at, &buffer[..len]),
            Kind::WriteZeroes { .. } => {
                if !self.strikes(Fault::DropZeroes, self.disk[at..at + len].iter().any(|&byte| byte != 0)) {
                    self.store(at, &vec![0; len]);
                }
            }
            Kind::Discard => self.store(at, &vec![0x77; len]),
            Kind::Flush => {}
        }
        self.buffers[usize::from(slot)] = buffer;
    }
}

impl Backend for FaultyBackend {
    fn fill(&mut self, slot: u16, data: &[u8]) {
        self.buffers[usize::from(slot)][..data.len()].copy_from_slice(data);
    }

    fn fetch(&mut self, slot: u16, data: &mut [u8]) {
        data.copy_from_slice(&self.buffers[usize::from(slot)][..data.len()]);
    }

    fn submit(&mut self, slot: u16, request: &Request) -> io::Result<Head> {
        let head = self.free_heads.pop().ok_or(io::ErrorKind::OutOfMemory)?;
        self.queued.push((head, slot, *request));
        Ok(head)
    }

    fn kick(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Serves the queue in random order, a few requests at a time, so that reads and writes overlap in flight.
    fn next_used(&mut self) -> Option<Used> {
        if self.used.is_empty() && !self.queued.is_empty() && self.rng.percent(70) {
            let pick = self.rng.below(self.queued.len() as u64) as usize;
            let (head, slot, request) = self.queued.swap_remove(pick);
            self.served += 1;
            if self.strikes(Fault::Lose, true) {
                return None;
            }
            self.serve(slot, request);
            let mut status = Status::Ok;
            if self.strikes(Fault::NoStatus, true) {
                status = Status::NotWritten;
            }
            if self.strikes(Fault::Fail, true) {
                status = Status::IoError;
            }
            self.used.push(Used { head, status });
            if self.strikes(Fault::CompleteTwice, true) {
                self.used.push(Used { head, status });
            }
            if self.strikes(Fault::CompleteUnknown, true) {
                self.used.insert(0, Used { head: HEADS, status });
            }
        }
        let used = self.used.pop()?;
        self.free_heads.push(used.head);
        Some(used)
    }

    fn wait(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }
}
