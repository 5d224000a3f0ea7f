//! Decides: a part of a split request is repeated (`completed`).
//! Decides: an unanswered request is in doubt (`into_lost`).
//!
//! One I/O queue: each request ends with exactly one completion.

use std::collections::{BTreeMap, VecDeque};

use monotonic::{Duration, Instant};
use zerocopy::IntoBytes;

use super::config::{CommandLimits, ConfigError, IoLimits, NamespaceLimits, QueueConfig};
use super::error::QueueError;
use super::queue_pair::{CommandSink, CommandSource, CommandToSend, EndedCommand, Phase, QueuePair, QueuePairConfig};
use super::receive::DirectRecv;
use super::request::{
    AbandonedAnswers, Completion, IoCommand, LostRequest, Part, Parts, RecallOutcome, Requests, SubmitError, Tag,
};
use super::split;
use super::staging::{PayloadSink, PayloadSource, Stage, TxPart};
use super::transfer_limit::LearnedLimits;
use crate::authentication::Authenticated;
use crate::wire::{Answer, DsmRange, Sqe, Status};

/// An I/O queue pair on one connection to one controller, for all namespaces. It includes the handshake (`ICReq`, `ICResp`,
/// Connect).
///
/// It allocates no memory after construction, unless commands fail. A request waits inside while no CID is free for its next command.
#[derive(Debug)]
pub struct HostQueue {
    pair: QueuePair,
    /// By position, as requests name namespaces.
    namespaces: Vec<Option<IoLimits>>,
    /// [`QueueConfig::max_transfer_bytes`], against which namespaces are checked.
    max_transfer_bytes: u32,
    command_limits: CommandLimits,
    learned: LearnedLimits,
    requests: Requests,
    /// Requests with commands left to issue, in order. Only the first may have issued some.
    pending: VecDeque<u16>,
    /// Requests with parts that are not done in order, by index. Failures are rare, so this may allocate.
    parts: BTreeMap<u16, Parts>,
    completions: VecDeque<Completion>,
    /// The unfinished parts of each failed request of `completions`.
    rests: VecDeque<Vec<Part>>,
    /// The parts that the completion fetched last has left to be done.
    unfinished: Vec<Part>,
    /// Answers to abandoned requests since the last [`take_answered`](Self::take_answered).
    answered: AbandonedAnswers,
}

impl HostQueue {
    /// A queue on a fresh connection.
    pub fn new(config: QueueConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let QueueConfig {
            qid,
            entries,
            host,
            subnqn,
            cntlid,
            digests,
            max_transfer_bytes,
            reports_max_transfer,
            command_limits,
            in_capsule_bytes,
            namespaces,
            authentication,
            is_encrypted,
        } = config;
        let limits = |namespace| IoLimits::new(namespace, command_limits);
        let capacity = entries - 1;
        Ok(Self {
            pair: QueuePair::new(QueuePairConfig {
                qid,
                entries,
                host,
                subnqn,
                cntlid,
                // KATO belongs to the association, so to the admin queue.
                kato: Duration::ZERO,
                digests,
                in_capsule_bytes,
                authentication,
                is_encrypted,
            }),
            namespaces: namespaces.into_iter().map(|namespace| namespace.map(limits)).collect(),
            max_transfer_bytes,
            command_limits,
            learned: LearnedLimits::new(max_transfer_bytes, reports_max_transfer, command_limits),
            requests: Requests::new(capacity),
            pending: VecDeque::with_capacity(capacity.into()),
            parts: BTreeMap::new(),
            unfinished: Vec::new(),
            completions: VecDeque::with_capacity(capacity.into()),
            rests: VecDeque::new(),
            answered: AbandonedAnswers::default(),
        })
    }

    /// Whether Connect and the authentication have succeeded and the connection has not failed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.pair.is_ready()
    }

    /// How the queue was authenticated. `None` if it is not ready, or if the controller did not ask for it.
    #[must_use]
    pub fn authenticated(&self) -> Option<Authenticated> {
        self.pair.authenticated()
    }

    /// Whether [`fill_tx`](Self::fill_tx) may encode something now. If not, it encodes nothing.
    #[must_use]
    pub fn has_output(&self) -> bool {
        (self.pair.has_free_command() && !self.pending.is_empty()) || self.pair.has_output()
    }

    /// Whether data have digests on this connection.
    #[must_use]
    pub fn has_data_digests(&self) -> bool {
        self.pair.has_data_digests()
    }

    /// The most requests in flight.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.requests.capacity()
    }

    /// Requests in flight, including abandoned ones.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Makes a namespace usable that was unusable when the queue was configured. For a usable namespace, only an increase of its
    /// size takes effect. `position` must exist in [`QueueConfig::namespaces`].
    pub fn add_namespace(&mut self, position: u16, limits: NamespaceLimits) -> Result<(), ConfigError> {
        limits.check(self.max_transfer_bytes)?;
        let added = IoLimits::new(limits, self.command_limits);
        let known = self.namespaces[usize::from(position)].get_or_insert(added);
        known.namespace.namespace_blocks = known.namespace.namespace_blocks.max(limits.namespace_blocks);
        Ok(())
    }

    /// Takes a request for the namespace at position `namespace` of [`QueueConfig::namespaces`]. The request is split into commands
    /// within the limits, and ends with one completion.
    pub fn submit(&mut self, tag: Tag, namespace: u16, command: IoCommand) -> Result<(), SubmitError> {
        self.submit_parts(tag, namespace, command, &[])
    }

    /// Takes a request of which only `parts` are left to be done, in order; all of it if there are none.
    pub fn submit_parts(
        &mut self,
        tag: Tag,
        namespace: u16,
        command: IoCommand,
        parts: &[Part],
    ) -> Result<(), SubmitError> {
        debug_assert!(self.requests.find(tag).is_none(), "tag {tag:?} is in flight");
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        self.check(namespace, &command)?;
        // Unfetched completions count, so that their queue never grows.
        if self.requests.len() + self.completions.len() >= self.requests.capacity() {
            return Err(SubmitError::Full);
        }
        let index = self.requests.insert(tag, namespace, command).ok_or(SubmitError::Full)?;
        if let Some((first, others)) = parts.split_first() {
            let request = self.requests.get_mut(index);
            request.begin_part(*first);
            request.wanted = parts.iter().map(|part| part.blocks).sum();
            self.parts
                .insert(index, Parts { to_issue: others.iter().rev().copied().collect(), unfinished: Vec::new() });
        }
        self.pending.push_back(index);
        Ok(())
    }

    /// Takes a read or flush back without waiting for its answer. Then its tag is free, also on this queue, and the queue does not
    /// write to its memory. A receive that [`direct`](Self::direct) has offered before may still write there.
    ///
    /// The controller may execute commands that were sent. These keep their CIDs, and their data are checked and discarded.
    pub fn recall(&mut self, tag: Tag) -> RecallOutcome {
        let Some(index) = self.requests.find(tag) else {
            return RecallOutcome::Completed;
        };
        let request = self.requests.get_mut(index);
        assert!(!request.command.is_mutating(), "a recalled write would be in doubt");
        request.abandoned = true;
        request.is_issued = true;
        let is_sent = request.commands_in_flight > 0;
        self.pending.retain(|&pending| pending != index);
        if is_sent {
            return RecallOutcome::Abandoned;
        }
        self.requests.remove(index);
        self.parts.remove(&index);
        RecallOutcome::Unsent
    }

    /// Answers to abandoned requests since the last call. They show that the controller is alive.
    pub fn take_answered(&mut self) -> AbandonedAnswers {
        std::mem::take(&mut self.answered)
    }

    /// When the oldest command without a completion was sent, including commands of abandoned requests. Scans all entries of the
    /// queue.
    #[must_use]
    pub fn oldest_sent(&self) -> Option<Instant> {
        self.pair.commands.oldest()
    }

    /// The most data of one command in bytes, if it has become smaller since the last call. That happens with a controller that
    /// reports no MDTS and fails larger commands. The requests were retried with smaller commands.
    pub fn take_smaller_transfer(&mut self) -> Option<u32> {
        self.learned.transfer.take_smaller()
    }

    fn check(&self, namespace: u16, command: &IoCommand) -> Result<(), SubmitError> {
        let Some(Some(limits)) = self.namespaces.get(usize::from(namespace)) else {
            return Err(SubmitError::Namespace { namespace });
        };
        let NamespaceLimits { block_bytes, namespace_blocks, .. } = limits.namespace;
        let Some((slba, blocks)) = command.range() else {
            return Ok(());
        };
        if blocks == 0 {
            return Err(SubmitError::Empty);
        }
        if slba.checked_add(blocks.into()).is_none_or(|end| end > namespace_blocks) {
            return Err(SubmitError::OutOfRange { slba, blocks, namespace_blocks });
        }
        let moves_data = matches!(command, IoCommand::Read { .. } | IoCommand::Write { .. });
        if moves_data && blocks.checked_mul(block_bytes).is_none() {
            return Err(SubmitError::TooLarge { blocks });
        }
        Ok(())
    }

    /// Encodes what is ready to send, within the capacity of `staging`, and appends it to `plan` in order.
    ///
    /// After `byte_goal` bytes the rest waits for the next call. A new command can overtake waiting data, but not encoded data. A
    /// PDU without data digest ends at the goal too, at the next multiple of 32 KiB of its data.
    ///
    /// Headers and payloads up to [`COPY_MAX`](super::COPY_MAX) are copied to the end of `staging`. With data digests, all
    /// payloads are copied. Other payloads become [`TxPart::Payload`]. `staging` never grows: its capacity must be at least
    /// [`STAGING_MIN`](super::STAGING_MIN), and more allows more in one call.
    ///
    /// Encoded bytes count as handed to the socket at `now`. The caller must send all of them, in order. A request may fail
    /// before a [`TxPart::Payload`] of it has been sent; the memory must stay readable until then.
    pub fn fill_tx(
        &mut self,
        now: Instant,
        staging: &mut Vec<u8>,
        source: &impl PayloadSource,
        plan: &mut Vec<TxPart>,
        byte_goal: u32,
    ) {
        let mut outbound = Outbound {
            requests: &mut self.requests,
            pending: &mut self.pending,
            parts: &mut self.parts,
            namespaces: &self.namespaces,
            learned: &mut self.learned,
            payload: source,
        };
        self.pair.fill_tx(&mut Stage::new(Some(now), staging, plan, byte_goal), &mut outbound);
    }

    /// Takes bytes from the connection, split at any place. An error ends the connection.
    pub fn receive(&mut self, bytes: &[u8], sink: &mut impl PayloadSink) -> Result<(), QueueError> {
        let mut inbound = Inbound {
            requests: &mut self.requests,
            namespaces: &self.namespaces,
            pending: &mut self.pending,
            parts: &mut self.parts,
            completions: &mut self.completions,
            rests: &mut self.rests,
            answered: &mut self.answered,
            learned: &mut self.learned,
            sink,
        };
        self.pair.receive(bytes, &mut inbound)
    }

    /// After an error of [`receive`](Self::receive) or [`received_direct`](Self::received_direct): the PDU that reports the error to
    /// the controller, an `H2CTermReq` or the end of an authentication. Send it only if all encoded bytes have been sent. `None` if there is nothing to report, or if
    /// a PDU is encoded in part.
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        self.pair.term_req()
    }

    /// In the middle of a payload without data digest: the part that can be received directly to its place. `None` for data of
    /// abandoned requests.
    #[must_use]
    pub fn direct(&mut self) -> Option<DirectRecv> {
        let (owner, offset, len) = self.pair.direct()?;
        let request = self.requests.get(owner);
        (!request.abandoned).then_some(DirectRecv { tag: request.tag, offset, len })
    }

    /// Takes note of `bytes` bytes received directly, at most the length from the last [`direct`](Self::direct). Required even if
    /// the request was recalled since.
    pub fn received_direct(&mut self, bytes: u32) -> Result<(), QueueError> {
        let mut inbound = Inbound {
            requests: &mut self.requests,
            namespaces: &self.namespaces,
            pending: &mut self.pending,
            parts: &mut self.parts,
            completions: &mut self.completions,
            rests: &mut self.rests,
            answered: &mut self.answered,
            learned: &mut self.learned,
            sink: &mut NoSink,
        };
        self.pair.received_direct(bytes, &mut inbound)
    }

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        let completion = self.completions.pop_front()?;
        self.unfinished.clear();
        if completion.result.is_err() {
            self.unfinished = self.rests.pop_front().expect("a failed request has a rest");
        }
        Some(completion)
    }

    /// The parts that the completion fetched last has left to be done, in order. Empty: all of it, or nothing after a success.
    pub fn take_unfinished(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.unfinished)
    }

    /// After the loss of the connection: each request without a fetched completion, once, except abandoned ones.
    pub fn into_lost(self) -> impl Iterator<Item = LostRequest> {
        let unfetched: Vec<LostRequest> =
            self.completions.iter().map(|done| LostRequest { tag: done.tag, indeterminate: false }).collect();
        let in_flight: Vec<LostRequest> = self
            .requests
            .iter()
            .filter(|request| !request.abandoned)
            .map(|request| LostRequest {
                tag: request.tag,
                indeterminate: request.command.is_mutating() && request.commands_in_flight > 0,
            })
            .collect();
        unfetched.into_iter().chain(in_flight)
    }

    /// The error that has ended the connection, if one has.
    #[must_use]
    pub fn error(&self) -> Option<QueueError> {
        match &self.pair.phase {
            Phase::Failed(error) => Some(error.clone()),
            _ => None,
        }
    }
}

/// The requests as the source of commands.
struct Outbound<'a, P> {
    requests: &'a mut Requests,
    pending: &'a mut VecDeque<u16>,
    parts: &'a mut BTreeMap<u16, Parts>,
    namespaces: &'a [Option<IoLimits>],
    learned: &'a mut LearnedLimits,
    payload: &'a P,
}

impl<P: PayloadSource> CommandSource for Outbound<'_, P> {
    fn next_command_to_send(&mut self, sqe: &mut Sqe) -> Option<CommandToSend> {
        let &index = self.pending.front()?;
        let request = self.requests.get_mut(index);
        let limits = self.namespaces[usize::from(request.namespace)].as_ref();
        let limits = limits.expect("submit() has checked the namespace");
        let most = self.learned.of(&request.command).most();
        let command = split::issue(index, request, limits, most, sqe);
        if request.is_issued {
            match self.parts.get_mut(&index).and_then(|parts| parts.to_issue.pop()) {
                Some(part) => request.begin_part(part),
                None => _ = self.pending.pop_front(),
            }
        }
        Some(command)
    }

    fn gather(&self, owner: u16, part: Part, offset: u32, dst: &mut [u8]) {
        let request = self.requests.get(owner);
        match request.command {
            IoCommand::Deallocate { slba, .. } => {
                let range = DsmRange::new(slba + u64::from(part.first), part.blocks);
                let start = offset as usize;
                dst.copy_from_slice(&range.as_bytes()[start..start + dst.len()]);
            }
            _ => self.payload.gather(request.tag, offset, dst),
        }
    }

    fn tag(&self, owner: u16) -> Tag {
        self.requests.get(owner).tag
    }
}

/// The requests as the destination of completions and data.
struct Inbound<'a, S> {
    requests: &'a mut Requests,
    namespaces: &'a [Option<IoLimits>],
    pending: &'a mut VecDeque<u16>,
    parts: &'a mut BTreeMap<u16, Parts>,
    completions: &'a mut VecDeque<Completion>,
    rests: &'a mut VecDeque<Vec<Part>>,
    answered: &'a mut AbandonedAnswers,
    learned: &'a mut LearnedLimits,
    sink: &'a mut S,
}

impl<S: PayloadSink> CommandSink for Inbound<'_, S> {
    fn scatter(&mut self, owner: u16, offset: u32, src: &[u8]) {
        let request = self.requests.get(owner);
        if !request.abandoned {
            self.sink.scatter(request.tag, offset, src);
        }
    }

    fn completed(&mut self, owner: u16, &EndedCommand { part, bytes, status, sent_at, .. }: &EndedCommand) {
        let request = self.requests.get_mut(owner);
        request.commands_in_flight -= 1;
        let moves_data = matches!(request.command, IoCommand::Read { .. } | IoCommand::Write { .. });
        let (size, learned) = (if moves_data { bytes } else { part.blocks }, self.learned.of(&request.command));
        if status.is_success() {
            learned.completed(size);
        } else {
            let parts = self.parts.entry(owner).or_default();
            parts.unfinished.push(part);
            let mut is_repeated = false;
            if let Some(size) = learned.retry_size(size, status) {
                request.retry_size = Some(request.retry_size.unwrap_or(size).min(size));
            } else {
                is_repeated = status.answer() == Answer::Repeat;
                // Of several errors with the same answer, one that asks for a delay counts.
                let rank = |status: Status| (status.answer(), status.crd() != 0);
                if request.error.is_none_or(|error| rank(error) < rank(status)) {
                    request.error = Some(status);
                }
            }
            if !is_repeated && !request.is_issued {
                // The remaining commands would fail too, so they are not issued. The request is the first one pending: only that
                // one has issued a part of its commands.
                request.is_issued = true;
                assert_eq!(self.pending.pop_front(), Some(owner), "requests issue in order");
                parts.unfinished.push(Part { first: request.issued, blocks: request.part_end - request.issued });
                parts.unfinished.append(&mut parts.to_issue);
            }
        }
        if request.commands_in_flight == 0 && request.is_issued {
            if request.abandoned {
                self.answered.requests += 1;
                if let (IoCommand::Read { blocks, .. }, Some(sent_at)) = (request.command, sent_at) {
                    let limits = self.namespaces[usize::from(request.namespace)].as_ref();
                    let bytes = limits.map_or(0, |limits| blocks * limits.namespace.block_bytes);
                    self.answered.read = self.answered.read.into_iter().chain([(sent_at, bytes)]).min();
                }
            } else if let (Some(size), None, Some(parts)) =
                (request.retry_size.take(), request.error, self.parts.get_mut(&owner))
            {
                // No command is in flight and no completion was reported, so what has failed can be issued again.
                parts.to_issue = parts.take_unfinished();
                parts.to_issue.reverse();
                request.begin_part(parts.to_issue.pop().expect("a command has failed"));
                request.max_size = size;
                self.pending.push_back(owner);
                return;
            } else {
                if request.error.is_none() && request.max_size < u32::MAX {
                    learned.retry_succeeded(request.max_size);
                }
                if request.error.is_some() {
                    let mut rest = self.parts.get_mut(&owner).map(Parts::take_unfinished).unwrap_or_default();
                    if rest.iter().map(|part| part.blocks).sum::<u32>() == request.wanted {
                        rest.clear();
                    }
                    self.rests.push_back(rest);
                }
                let result = request.error.map_or(Ok(()), Err);
                self.completions.push_back(Completion { tag: request.tag, result, sent_at });
            }
            if !self.parts.is_empty() {
                self.parts.remove(&owner);
            }
            self.requests.remove(owner);
        }
    }
}

/// The sink of a call that copies no data.
struct NoSink;

impl PayloadSink for NoSink {
    fn scatter(&mut self, _tag: Tag, _offset: u32, _src: &[u8]) {}
}
