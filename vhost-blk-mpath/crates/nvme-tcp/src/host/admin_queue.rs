//! The admin queue: few commands, one of them with data at a time.

use std::collections::VecDeque;

use super::error::QueueError;
use super::pair::{Data, Ended, Events, Job, PairConfig, QueuePair, Source};
use super::request::Tag;
use super::transmit::{STAGING_MIN, Stage, TxPart};
use crate::wire::{Sqe, Status};

/// Entries of an admin queue, as other hosts have it.
pub(super) const ADMIN_ENTRIES: u16 = 32;

/// Admin command capsules carry this much, whatever IOCCSZ says of I/O queues (TCP Transport 3.3.1).
pub(super) const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

/// Who a command belongs to; each has one in flight at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The step of the connect sequence, or of what follows it.
    Step,
    KeepAlive,
    AsyncEvent,
    CrossControllerReset,
}

impl Owner {
    fn from_key(key: u16) -> Option<Self> {
        let all = [Self::Step, Self::KeepAlive, Self::AsyncEvent, Self::CrossControllerReset];
        all.into_iter().find(|&owner| owner as u16 == key)
    }
}

/// A command that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminCompletion {
    pub(super) owner: Owner,
    pub(super) status: Status,
    pub(super) result: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct AdminQueue {
    pair: QueuePair,
    jobs: VecDeque<Job>,
    /// What the step's command has returned.
    data: Vec<u8>,
    completions: VecDeque<AdminCompletion>,
}

impl AdminQueue {
    pub(super) fn new(config: PairConfig) -> Self {
        Self { pair: QueuePair::new(config), jobs: VecDeque::new(), data: Vec::new(), completions: VecDeque::new() }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.pair.is_ready()
    }

    pub(super) fn cntlid(&self) -> u16 {
        self.pair.cntlid()
    }

    /// Queues a command that returns `data_len` bytes of data; only a step's may.
    pub(super) fn submit(&mut self, owner: Owner, sqe: Sqe, data_len: u32) {
        let data = if data_len == 0 {
            Data::None
        } else {
            self.data.clear();
            self.data.resize(data_len as usize, 0);
            Data::In { offset: 0, length: data_len }
        };
        self.jobs.push_back(Job { owner: owner as u16, sqe, data });
    }

    pub(super) fn fill_tx(&mut self, out: &mut Vec<u8>) {
        // Admin commands have time limits of their own (`Step`, keep-alive).
        // As much as fits is laid out, which need not be all: what is left behind would wait for another reason to send.
        loop {
            let before = out.len();
            out.reserve(STAGING_MIN);
            let mut plan = Vec::new();
            self.pair.fill_tx(&mut Stage::new(None, out, &mut plan, u32::MAX), &mut Outbound(&mut self.jobs));
            assert!(plan.iter().all(|part| matches!(part, TxPart::Staged { .. })), "admin commands send no payload");
            if out.len() == before {
                return;
            }
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), QueueError> {
        self.pair.receive(bytes, &mut Inbound { data: &mut self.data, completions: &mut self.completions })
    }

    pub(super) fn term_req(&self) -> Option<Vec<u8>> {
        self.pair.term_req()
    }

    pub(super) fn poll_completion(&mut self) -> Option<AdminCompletion> {
        self.completions.pop_front()
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }
}

struct Outbound<'a>(&'a mut VecDeque<Job>);

impl Source for Outbound<'_> {
    fn next_job(&mut self) -> Option<Job> {
        self.0.pop_front()
    }

    fn gather(&self, _owner: u16, _offset: u32, _dst: &mut [u8]) {
        unreachable!("admin commands send no payload");
    }

    fn tag(&self, _owner: u16) -> Tag {
        unreachable!("admin commands send no payload");
    }
}

struct Inbound<'a> {
    data: &'a mut [u8],
    completions: &'a mut VecDeque<AdminCompletion>,
}

impl Events for Inbound<'_> {
    fn scatter(&mut self, _owner: u16, offset: u32, src: &[u8]) {
        let start = offset as usize;
        self.data[start..start + src.len()].copy_from_slice(src);
    }

    fn completed(&mut self, owner: u16, &Ended { status, result, .. }: &Ended) {
        let owner = Owner::from_key(owner).expect("owners are ours");
        self.completions.push_back(AdminCompletion { owner, status, result });
    }
}
