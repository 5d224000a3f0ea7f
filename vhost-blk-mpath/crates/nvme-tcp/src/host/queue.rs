//! Decides: a part of a split request is repeated (`completed`).
//! Decides: an unanswered request is in doubt (`into_lost`).
//!
//! One I/O queue: each request ends with exactly one completion.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};
use zerocopy::IntoBytes;

use super::command_table::{CommandTable, InFlightCommand};
use super::config::{CommandLimits, ConfigError, IoLimits, NamespaceLimits, QueueConfig};
use super::error::QueueError;
use super::queue_pair::{CommandSink, CommandSource, EndedCommand, Phase, QueuePair, QueuePairConfig};
use super::receive::DirectRecv;
use super::request::{
    AbandonedAnswers, Completion, IoCommand, LostRequest, Part, RecallOutcome, Recovery, Request, SubmitError, Tag,
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
    pair: QueuePair<Request>,
    /// [`QueueConfig::max_transfer_bytes`], against which namespaces are checked.
    max_transfer_bytes: u32,
    command_limits: CommandLimits,
    progress: Progress,
}

/// What the requests do, apart from their slots.
#[derive(Debug)]
struct Progress {
    /// By position, as requests name namespaces.
    namespaces: Vec<Option<IoLimits>>,
    learned: LearnedLimits,
    /// The slots of requests with commands left to issue, in order. Only the first may have issued some.
    pending: VecDeque<u16>,
    completions: VecDeque<Completion>,
    /// The unfinished parts of each failed request of `completions`.
    rests: VecDeque<Vec<Part>>,
    /// The parts that the completion fetched last has left to be done.
    unfinished: Vec<Part>,
    /// Answers to abandoned requests since the last [`HostQueue::take_answered`].
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
            max_transfer_bytes,
            command_limits,
            progress: Progress {
                namespaces: namespaces.into_iter().map(|namespace| namespace.map(limits)).collect(),
                learned: LearnedLimits::new(max_transfer_bytes, reports_max_transfer, command_limits),
                pending: VecDeque::with_capacity(capacity.into()),
                completions: VecDeque::with_capacity(capacity.into()),
                rests: VecDeque::new(),
                unfinished: Vec::new(),
                answered: AbandonedAnswers::default(),
            },
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
        (self.pair.commands.has_room() && !self.progress.pending.is_empty()) || self.pair.has_output()
    }

    /// Whether data have digests on this connection.
    #[must_use]
    pub fn has_data_digests(&self) -> bool {
        self.pair.has_data_digests()
    }

    /// The most requests in flight.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pair.commands.capacity()
    }

    /// Requests in flight, including abandoned ones.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pair.commands.len()
    }

    /// Makes a namespace usable that was unusable when the queue was configured. For a usable namespace, only an increase of its
    /// size takes effect. `position` must exist in [`QueueConfig::namespaces`].
    pub fn add_namespace(&mut self, position: u16, limits: NamespaceLimits) -> Result<(), ConfigError> {
        limits.check(self.max_transfer_bytes)?;
        let added = IoLimits::new(limits, self.command_limits);
        let known = self.progress.namespaces[usize::from(position)].get_or_insert(added);
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
        debug_assert!(self.find(tag).is_none(), "tag {tag:?} is in flight");
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        self.check(namespace, &command)?;
        // Unfetched completions count, so that their queue never grows.
        if self.in_flight() + self.progress.completions.len() >= self.capacity() {
            return Err(SubmitError::Full);
        }
        let mut request = Request::new(tag, namespace, command);
        if let Some((first, others)) = parts.split_first() {
            request.begin_part(*first);
            let recovery = request.recovery.insert(Box::new(Recovery::of(&command)));
            recovery.wanted = parts.iter().map(|part| part.blocks).sum();
            recovery.to_issue = others.iter().rev().copied().collect();
        }
        self.progress.pending.push_back(self.pair.commands.insert(request));
        Ok(())
    }

    /// Takes a read or flush back without waiting for its answer. Then its tag is free, also on this queue, and the queue does not
    /// write to its memory. A receive that [`direct`](Self::direct) has offered before may still write there.
    ///
    /// The controller may execute commands that were sent. These keep their CIDs, and their data are checked and discarded.
    pub fn recall(&mut self, tag: Tag) -> RecallOutcome {
        let Some(index) = self.find(tag) else {
            return RecallOutcome::Completed;
        };
        let request = self.pair.commands.request_mut(index);
        assert!(!request.command.is_mutating(), "a recalled write would be in doubt");
        request.abandoned = true;
        request.is_issued = true;
        let is_sent = request.commands_in_flight > 0;
        self.progress.pending.retain(|&pending| pending != index);
        if is_sent {
            return RecallOutcome::Abandoned;
        }
        self.pair.commands.remove(index);
        RecallOutcome::Unsent
    }

    /// The slot of the request with this tag, unless it is abandoned.
    fn find(&self, tag: Tag) -> Option<u16> {
        let is_found = |request: &Request| request.tag == tag && !request.abandoned;
        self.pair.commands.requests().find(|(_, request)| is_found(request)).map(|(index, _)| index)
    }

    /// Answers to abandoned requests since the last call. They show that the controller is alive.
    pub fn take_answered(&mut self) -> AbandonedAnswers {
        std::mem::take(&mut self.progress.answered)
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
        self.progress.learned.transfer.take_smaller()
    }

    fn check(&self, namespace: u16, command: &IoCommand) -> Result<(), SubmitError> {
        let Some(Some(limits)) = self.progress.namespaces.get(usize::from(namespace)) else {
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
        let mut outbound = Outbound { progress: &mut self.progress, payload: source };
        self.pair.fill_tx(&mut Stage::new(Some(now), staging, plan, byte_goal), &mut outbound);
    }

    /// Takes bytes from the connection, split at any place. An error ends the connection.
    pub fn receive(&mut self, bytes: &[u8], sink: &mut impl PayloadSink) -> Result<(), QueueError> {
        let mut inbound = Inbound { progress: &mut self.progress, sink };
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
        let request = self.pair.commands.request(owner);
        (!request.abandoned).then_some(DirectRecv { tag: request.tag, offset, len })
    }

    /// Takes note of `bytes` bytes received directly, at most the length from the last [`direct`](Self::direct). Required even if
    /// the request was recalled since.
    pub fn received_direct(&mut self, bytes: u32) -> Result<(), QueueError> {
        let mut inbound = Inbound { progress: &mut self.progress, sink: &mut NoSink };
        self.pair.received_direct(bytes, &mut inbound)
    }

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        let progress = &mut self.progress;
        let completion = progress.completions.pop_front()?;
        progress.unfinished.clear();
        if completion.result.is_err() {
            progress.unfinished = progress.rests.pop_front().expect("a failed request has a rest");
        }
        Some(completion)
    }

    /// The parts that the completion fetched last has left to be done, in order. Empty: all of it, or nothing after a success.
    pub fn take_unfinished(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.progress.unfinished)
    }

    /// After the loss of the connection: each request without a fetched completion, once, except abandoned ones.
    pub fn into_lost(self) -> impl Iterator<Item = LostRequest> {
        let unfetched =
            self.progress.completions.iter().map(|done| LostRequest { tag: done.tag, indeterminate: false });
        let in_flight = self.pair.commands.requests().map(|(_, request)| request);
        let in_flight = in_flight.filter(|request| !request.abandoned).map(|request| LostRequest {
            tag: request.tag,
            indeterminate: request.command.is_mutating() && request.commands_in_flight > 0,
        });
        unfetched.chain(in_flight).collect::<Vec<_>>().into_iter()
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
    progress: &'a mut Progress,
    payload: &'a P,
}

impl<P: PayloadSource> CommandSource<Request> for Outbound<'_, P> {
    #[inline]
    fn next_command_to_send(&mut self, commands: &mut CommandTable<Request>) -> Option<(InFlightCommand, Sqe)> {
        let Progress { pending, namespaces, learned, .. } = &mut *self.progress;
        let index = pending.pop_front()?;
        let request = commands.request_mut(index);
        let limits = namespaces[usize::from(request.namespace)].as_ref();
        let limits = limits.expect("submit() has checked the namespace");
        let most = learned.of(&request.command).most();
        let issued = split::issue(index, request, limits, most);
        if request.is_issued
            && let Some(part) = request.recovery.as_mut().and_then(|recovery| recovery.to_issue.pop())
        {
            request.begin_part(part);
        }
        if !request.is_issued {
            pending.push_front(index);
        }
        Some(issued)
    }

    fn gather(&self, request: &Request, part: Part, offset: u32, dst: &mut [u8]) {
        match request.command {
            IoCommand::Deallocate { slba, .. } => {
                let range = DsmRange::new(slba + u64::from(part.first), part.blocks);
                let start = offset as usize;
                dst.copy_from_slice(&range.as_bytes()[start..start + dst.len()]);
            }
            _ => self.payload.gather(request.tag, offset, dst),
        }
    }

    fn tag(&self, request: &Request) -> Tag {
        request.tag
    }
}

/// The requests as the destination of completions and data.
struct Inbound<'a, S> {
    progress: &'a mut Progress,
    sink: &'a mut S,
}

impl<S: PayloadSink> CommandSink<Request> for Inbound<'_, S> {
    #[inline]
    fn scatter(&mut self, request: &Request, offset: u32, src: &[u8]) {
        if !request.abandoned {
            self.sink.scatter(request.tag, offset, src);
        }
    }

    #[inline]
    fn completed(&mut self, commands: &mut CommandTable<Request>, owner: u16, ended: &EndedCommand) {
        let &EndedCommand { part, bytes, status, sent_at, .. } = ended;
        let request = commands.request_mut(owner);
        request.commands_in_flight -= 1;
        let moves_data = matches!(request.command, IoCommand::Read { .. } | IoCommand::Write { .. });
        let size = if moves_data { bytes } else { part.blocks };
        if status.is_success() {
            self.progress.learned.of(&request.command).completed(size);
        } else {
            self.progress.failed(owner, request, part, size, status);
        }
        if request.commands_in_flight > 0 || !request.is_issued {
            return;
        }
        let result = if request.abandoned {
            self.progress.abandoned_answered(request, sent_at);
            None
        } else if request.recovery.is_some() {
            match self.progress.recovered(owner, request) {
                Some(result) => Some(result),
                None => return,
            }
        } else {
            Some(Ok(()))
        };
        if let Some(result) = result {
            self.progress.completions.push_back(Completion { tag: request.tag, result, sent_at });
        }
        commands.remove(owner);
    }
}

impl Progress {
    /// Notes that a command of the request in slot `owner` has failed.
    #[cold]
    fn failed(&mut self, owner: u16, request: &mut Request, part: Part, size: u32, status: Status) {
        let recovery = request.recovery.get_or_insert_with(|| Box::new(Recovery::of(&request.command)));
        recovery.unfinished.push(part);
        let mut is_repeated = false;
        if let Some(size) = self.learned.of(&request.command).retry_size(size, status) {
            recovery.retry_size = Some(recovery.retry_size.unwrap_or(size).min(size));
        } else {
            is_repeated = status.answer() == Answer::Repeat;
            // Of several errors with the same answer, one that asks for a delay counts.
            let rank = |status: Status| (status.answer(), status.crd() != 0);
            if recovery.error.is_none_or(|error| rank(error) < rank(status)) {
                recovery.error = Some(status);
            }
        }
        if !is_repeated && !request.is_issued {
            // The remaining commands would fail too, so they are not issued. The request is the first one pending: only that
            // one has issued a part of its commands.
            request.is_issued = true;
            assert_eq!(self.pending.pop_front(), Some(owner), "requests issue in order");
            recovery.unfinished.push(Part { first: request.issued, blocks: request.part_end - request.issued });
            recovery.unfinished.append(&mut recovery.to_issue);
        }
    }

    /// Notes the answer to an abandoned request.
    #[cold]
    fn abandoned_answered(&mut self, request: &Request, sent_at: Option<Instant>) {
        self.answered.requests += 1;
        if let (IoCommand::Read { blocks, .. }, Some(sent_at)) = (request.command, sent_at) {
            let limits = self.namespaces[usize::from(request.namespace)].as_ref();
            let bytes = limits.map_or(0, |limits| blocks * limits.namespace.block_bytes);
            self.answered.read = self.answered.read.into_iter().chain([(sent_at, bytes)]).min();
        }
    }

    /// The result of the request in slot `owner`, whose commands have ended. `None` if it goes on with smaller commands.
    #[cold]
    fn recovered(&mut self, owner: u16, request: &mut Request) -> Option<Result<(), Status>> {
        let recovery = request.recovery.as_mut().expect("the caller has checked");
        if let (Some(size), None) = (recovery.retry_size.take(), recovery.error) {
            // No command is in flight and no completion was reported, so what has failed can be issued again.
            recovery.to_issue = recovery.take_unfinished();
            recovery.to_issue.reverse();
            recovery.max_size = size;
            let first = recovery.to_issue.pop().expect("a command has failed");
            request.begin_part(first);
            self.pending.push_back(owner);
            return None;
        }
        let Some(error) = recovery.error else {
            if recovery.max_size < u32::MAX {
                self.learned.of(&request.command).retry_succeeded(recovery.max_size);
            }
            return Some(Ok(()));
        };
        let mut rest = recovery.take_unfinished();
        if rest.iter().map(|part| part.blocks).sum::<u32>() == recovery.wanted {
            rest.clear();
        }
        self.rests.push_back(rest);
        Some(Err(error))
    }
}

/// The sink of a call that copies no data.
struct NoSink;

impl PayloadSink for NoSink {
    fn scatter(&mut self, _tag: Tag, _offset: u32, _src: &[u8]) {}
}
