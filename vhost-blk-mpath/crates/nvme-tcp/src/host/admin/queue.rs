//! The admin queue: a few commands at a time, of which only the current step's may return data.

use std::collections::VecDeque;

use nvme_auth::GeneratedPsk;

use crate::authentication::Authenticated;
use crate::host::command_table::{CommandTable, Direction, InFlightCommand};
use crate::host::error::QueueError;
use crate::host::queue_pair::{CommandSink, CommandSource, EndedCommand, QueuePair, QueuePairConfig};
use crate::host::request::{Part, Tag};
use crate::host::staging::{STAGING_MIN, Stage, TxPart};
use crate::wire::{Sqe, Status};

/// Entries of an admin queue. Other hosts use this number too.
pub(super) const ADMIN_ENTRIES: u16 = 32;

/// Bytes of data that an admin command capsule may carry. IOCCSZ applies to I/O queues only (TCP Transport 3.3.1).
pub(super) const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

/// What a command belongs to. Each owner has at most one command in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::host) enum Owner {
    /// The current step.
    #[default]
    Step,
    KeepAlive,
    AsyncEvent,
    CrossControllerReset,
}

/// The completion of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminCompletion {
    pub(super) owner: Owner,
    pub(super) status: Status,
    pub(super) result: u64,
}

/// An admin queue on one connection.
#[derive(Debug)]
pub(in crate::host) struct AdminQueue {
    pair: QueuePair<Owner>,
    /// Each with the bytes of data that it returns.
    unsent: VecDeque<(Owner, u32, Sqe)>,
    /// The data that the step's command has returned.
    data: Vec<u8>,
    completions: VecDeque<AdminCompletion>,
}

impl AdminQueue {
    pub(super) fn new(config: QueuePairConfig) -> Self {
        Self { pair: QueuePair::new(config), unsent: VecDeque::new(), data: Vec::new(), completions: VecDeque::new() }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.pair.is_ready()
    }

    pub(in crate::host) fn cntlid(&self) -> u16 {
        self.pair.cntlid()
    }

    pub(in crate::host) fn authenticated(&self) -> Option<Authenticated> {
        self.pair.authenticated()
    }

    pub(in crate::host) fn generated_psk(&self) -> Option<GeneratedPsk> {
        self.pair.generated_psk()
    }

    /// Queues a command that returns `data_len` bytes. Only a step's command may return data.
    pub(in crate::host) fn submit(&mut self, owner: Owner, sqe: Sqe, data_len: u32) {
        if data_len > 0 {
            self.data.clear();
            self.data.resize(data_len as usize, 0);
        }
        self.unsent.push_back((owner, data_len, sqe));
    }

    pub(super) fn fill_tx(&mut self, out: &mut Vec<u8>) {
        // One call of the pair encodes as much as fits into the buffer. Bytes left behind would wait until something else is sent.
        // Send times are not recorded (`None`): steps and keep-alives have their own deadlines.
        loop {
            let before = out.len();
            out.reserve(STAGING_MIN);
            let mut plan = Vec::new();
            self.pair.fill_tx(&mut Stage::new(None, out, &mut plan, u32::MAX), &mut Outbound(&mut self.unsent));
            assert!(plan.iter().all(|part| matches!(part, TxPart::Staged { .. })), "admin commands send no payload");
            if out.len() == before {
                return;
            }
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), QueueError> {
        self.pair.receive(bytes, &mut Inbound { data: &mut self.data, completions: &mut self.completions })
    }

    pub(in crate::host) fn term_req(&self) -> Option<Vec<u8>> {
        self.pair.term_req()
    }

    pub(super) fn poll_completion(&mut self) -> Option<AdminCompletion> {
        self.completions.pop_front()
    }

    pub(in crate::host) fn data(&self) -> &[u8] {
        &self.data
    }
}

struct Outbound<'a>(&'a mut VecDeque<(Owner, u32, Sqe)>);

impl CommandSource<Owner> for Outbound<'_> {
    fn next_command_to_send(&mut self, commands: &mut CommandTable<Owner>) -> Option<(InFlightCommand, Sqe)> {
        let (owner, length, sqe) = self.0.pop_front()?;
        let direction = if length > 0 { Direction::In } else { Direction::None };
        Some((InFlightCommand { direction, length, ..InFlightCommand::of(commands.insert(owner)) }, sqe))
    }

    fn gather(&self, _request: &Owner, _part: Part, _offset: u32, _dst: &mut [u8]) {
        unreachable!("admin commands send no payload");
    }

    fn tag(&self, _request: &Owner) -> Tag {
        unreachable!("admin commands send no payload");
    }
}

struct Inbound<'a> {
    data: &'a mut [u8],
    completions: &'a mut VecDeque<AdminCompletion>,
}

impl CommandSink<Owner> for Inbound<'_> {
    fn scatter(&mut self, _request: &Owner, offset: u32, src: &[u8]) {
        let start = offset as usize;
        self.data[start..start + src.len()].copy_from_slice(src);
    }

    fn completed(&mut self, commands: &mut CommandTable<Owner>, request: u16, ended: &EndedCommand) {
        let &EndedCommand { status, result, .. } = ended;
        self.completions.push_back(AdminCompletion { owner: *commands.request(request), status, result });
        commands.remove(request);
    }
}
