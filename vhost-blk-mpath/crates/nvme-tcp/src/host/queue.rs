//! One I/O queue: requests in, completions out, each exactly once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use super::config::{CommandLimits, ConfigError, IoLimits, NamespaceLimits, QueueConfig};
use super::error::QueueError;
use super::pair::{Ended, Events, Job, PairConfig, Phase, QueuePair, Source};
use super::receive::DirectRecv;
use super::request::{Answered, Completion, IoCommand, Lost, Recalled, Requests, SubmitError, Tag};
use super::split;
use super::transfer_limit::TransferLimit;
use super::transmit::{PayloadSink, PayloadSource, Stage, TxPart};

/// An I/O queue pair on one connection to one controller, for all namespaces in use there. The handshake (`ICReq`, `ICResp`, Connect) is part of it.
///
/// Nothing is allocated once it exists. A request waits inside while no CID is free for its next command.
#[derive(Debug)]
pub struct HostQueue {
    pair: QueuePair,
    /// By the positions that requests name.
    namespaces: Vec<Option<IoLimits>>,
    /// What [`QueueConfig::max_transfer_bytes`] was: namespaces are checked against it.
    max_transfer_bytes: u32,
    command_limits: CommandLimits,
    transfer: TransferLimit,
    requests: Requests,
    /// Requests with commands still to issue, in order; only the first may have issued some.
    pending: VecDeque<u16>,
    completions: VecDeque<Completion>,
    /// Abandoned requests that have been answered and not been told of.
    answered: Answered,
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
        } = config;
        let limits = |namespace| IoLimits::new(namespace, command_limits);
        let capacity = entries - 1;
        Ok(Self {
            pair: QueuePair::new(PairConfig {
                qid,
                entries,
                host,
                subnqn,
                cntlid,
                // KATO belongs to the association, so to the admin queue.
                kato: Duration::ZERO,
                digests,
                in_capsule_bytes,
            }),
            namespaces: namespaces.into_iter().map(|namespace| namespace.map(limits)).collect(),
            max_transfer_bytes,
            command_limits,
            transfer: TransferLimit::new(max_transfer_bytes, reports_max_transfer),
            requests: Requests::new(capacity),
            pending: VecDeque::with_capacity(capacity.into()),
            completions: VecDeque::with_capacity(capacity.into()),
            answered: Answered::default(),
        })
    }

    /// Whether Connect has succeeded and nothing failed since.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.pair.is_ready()
    }

    /// The most requests in flight at once.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.requests.capacity()
    }

    /// Requests in flight, those that were abandoned included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Lets requests name a namespace from now on that could not be used when the queue was configured. If it could, nothing
    /// changes but that it may have grown. There must be such a position in [`QueueConfig::namespaces`].
    pub fn add_namespace(&mut self, position: u16, limits: NamespaceLimits) -> Result<(), ConfigError> {
        limits.check(self.max_transfer_bytes)?;
        let added = IoLimits::new(limits, self.command_limits);
        let known = self.namespaces[usize::from(position)].get_or_insert(added);
        known.namespace.namespace_blocks = known.namespace.namespace_blocks.max(limits.namespace_blocks);
        Ok(())
    }

    /// Takes a request for the namespace at that position of [`QueueConfig::namespaces`]. It is cut into as many commands as
    /// the limits ask for, and ends with one completion.
    pub fn submit(&mut self, tag: Tag, namespace: u16, command: IoCommand) -> Result<(), SubmitError> {
        debug_assert!(self.requests.find(tag).is_none(), "tag {tag:?} is in flight");
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        self.check(namespace, &command)?;
        // Completions not fetched count, so that their queue never grows.
        if self.requests.len() + self.completions.len() >= self.requests.capacity() {
            return Err(SubmitError::Full);
        }
        let index = self.requests.insert(tag, namespace, command).ok_or(SubmitError::Full)?;
        self.pending.push_back(index);
        Ok(())
    }

    /// Takes a read or flush back without waiting for its answer. Its tag is free then, on this queue too, and nothing is written to its
    /// memory any more, unless by a receive that [`direct`](Self::direct) has named it for before.
    ///
    /// The controller goes on with what it was sent: those commands keep their CIDs, and their data are checked as ever and
    /// thrown away.
    pub fn recall(&mut self, tag: Tag) -> Recalled {
        let Some(index) = self.requests.find(tag) else {
            return Recalled::Completed;
        };
        let request = self.requests.get_mut(index);
        assert!(!request.command.is_mutating(), "a write taken back would be in doubt");
        request.abandoned = true;
        request.exhausted = true;
        let sent = request.live > 0;
        self.pending.retain(|&pending| pending != index);
        if sent {
            return Recalled::Abandoned;
        }
        self.requests.remove(index);
        Recalled::Unsent
    }

    /// The abandoned requests that have been answered since this was asked last: the controller is alive.
    pub fn take_answered(&mut self) -> Answered {
        std::mem::take(&mut self.answered)
    }

    /// When the oldest command without a completion was sent; those of abandoned requests count. Costs a look at each entry of
    /// the queue.
    #[must_use]
    pub fn oldest_sent(&self) -> Option<Instant> {
        self.pair.slots.oldest()
    }

    /// The most data of one command in bytes, if that has become smaller since this was asked last: the controller, which reports no
    /// MDTS, has refused larger commands. The requests were repeated in smaller ones.
    pub fn take_smaller_transfer(&mut self) -> Option<u32> {
        self.transfer.take_news()
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

    /// Lays out what is ready to leave, as far as the capacity of `staging` goes, and appends it to `plan` in order. Once `enough` bytes
    /// are laid out, the rest is left to the next call: a command goes before the data of others, but not before what
    /// is laid out already. PDUs end there too, at the next multiple of 32 KiB of their data, but for those with a data digest.
    ///
    /// Headers and payloads up to [`COPY_MAX`](super::COPY_MAX), and with data digests all payloads, are copied to the end
    /// of `staging`, which is never made to grow: its capacity should be [`STAGING_MIN`](super::STAGING_MIN) at least, and
    /// larger for more in one call. All other payloads are named. What is laid out counts as handed to the socket at `now`; the
    /// caller must send it all, in order. A request may complete, with an error, before a payload it named has
    /// been sent; the memory must stay readable until then.
    pub fn fill_tx(
        &mut self,
        now: Instant,
        staging: &mut Vec<u8>,
        source: &impl PayloadSource,
        plan: &mut Vec<TxPart>,
        enough: u32,
    ) {
        let mut outbound = Outbound {
            requests: &mut self.requests,
            pending: &mut self.pending,
            namespaces: &self.namespaces,
            max_bytes: self.transfer.bytes(),
            payload: source,
        };
        self.pair.fill_tx(&mut Stage::new(Some(now), staging, plan, enough), &mut outbound);
    }

    /// Takes bytes off the connection, broken anywhere. After an error the connection is over.
    pub fn receive(&mut self, bytes: &[u8], sink: &mut impl PayloadSink) -> Result<(), QueueError> {
        let mut inbound = Inbound {
            requests: &mut self.requests,
            namespaces: &self.namespaces,
            pending: &mut self.pending,
            completions: &mut self.completions,
            answered: &mut self.answered,
            transfer: &mut self.transfer,
            sink,
        };
        self.pair.receive(bytes, &mut inbound)
    }

    /// After an error of [`receive`](Self::receive) or [`received_direct`](Self::received_direct): the `H2CTermReq` that tells the
    /// controller what it did wrong, to be sent if all that was laid out has been sent. `None` if there is nothing to tell, or
    /// if a PDU was laid out in part.
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        self.pair.term_req()
    }

    /// In the middle of a payload without data digest: what may be received straight to its place. Abandoned data have none.
    #[must_use]
    pub fn direct(&mut self) -> Option<DirectRecv> {
        let (owner, offset, len) = self.pair.direct()?;
        let request = self.requests.get(owner);
        (!request.abandoned).then_some(DirectRecv { tag: request.tag, offset, len })
    }

    /// `bytes` bytes, at most what [`direct`](Self::direct) said last, were received to their place; also if the request was
    /// recalled meanwhile.
    pub fn received_direct(&mut self, bytes: u32) -> Result<(), QueueError> {
        let mut inbound = Inbound {
            requests: &mut self.requests,
            namespaces: &self.namespaces,
            pending: &mut self.pending,
            completions: &mut self.completions,
            answered: &mut self.answered,
            transfer: &mut self.transfer,
            sink: &mut NoSink,
        };
        self.pair.received_direct(bytes, &mut inbound)
    }

    /// The next request that has ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The connection is lost: every request without a fetched completion, once each; what was abandoned is nobody's.
    pub fn into_lost(self) -> impl Iterator<Item = Lost> {
        let unfetched: Vec<Lost> =
            self.completions.iter().map(|done| Lost { tag: done.tag, indeterminate: false }).collect();
        let in_flight: Vec<Lost> = self
            .requests
            .iter()
            .filter(|request| !request.abandoned)
            .map(|request| Lost { tag: request.tag, indeterminate: request.command.is_mutating() && request.live > 0 })
            .collect();
        unfetched.into_iter().chain(in_flight)
    }

    /// Why the connection is over, if it failed here.
    #[must_use]
    pub fn error(&self) -> Option<QueueError> {
        match self.pair.phase {
            Phase::Failed(error) => Some(error),
            _ => None,
        }
    }
}

/// What the pair sends.
struct Outbound<'a, P> {
    requests: &'a mut Requests,
    pending: &'a mut VecDeque<u16>,
    namespaces: &'a [Option<IoLimits>],
    max_bytes: u32,
    payload: &'a P,
}

impl<P> Outbound<'_, P> {
    fn limits(&self, namespace: u16) -> &IoLimits {
        self.namespaces[usize::from(namespace)].as_ref().expect("checked when it was submitted")
    }
}

impl<P: PayloadSource> Source for Outbound<'_, P> {
    fn next_job(&mut self) -> Option<Job> {
        let &index = self.pending.front()?;
        let limits = *self.limits(self.requests.get(index).namespace);
        let request = self.requests.get_mut(index);
        let job = split::issue(index, request, &limits, self.max_bytes);
        if request.exhausted {
            self.pending.pop_front();
        }
        Some(job)
    }

    fn gather(&self, owner: u16, offset: u32, dst: &mut [u8]) {
        let request = self.requests.get(owner);
        match request.command {
            IoCommand::Deallocate { slba, blocks } => {
                let (range, start) = split::range_at(self.limits(request.namespace), slba, blocks, offset);
                let start = start as usize;
                dst.copy_from_slice(&range.as_bytes()[start..start + dst.len()]);
            }
            _ => self.payload.gather(request.tag, offset, dst),
        }
    }

    fn tag(&self, owner: u16) -> Tag {
        self.requests.get(owner).tag
    }
}

/// What the pair receives.
struct Inbound<'a, S> {
    requests: &'a mut Requests,
    namespaces: &'a [Option<IoLimits>],
    pending: &'a mut VecDeque<u16>,
    completions: &'a mut VecDeque<Completion>,
    answered: &'a mut Answered,
    transfer: &'a mut TransferLimit,
    sink: &'a mut S,
}

impl<S: PayloadSink> Events for Inbound<'_, S> {
    fn scatter(&mut self, owner: u16, offset: u32, src: &[u8]) {
        let request = self.requests.get(owner);
        if !request.abandoned {
            self.sink.scatter(request.tag, offset, src);
        }
    }

    fn completed(&mut self, owner: u16, &Ended { bytes, status, sent_at, .. }: &Ended) {
        let request = self.requests.get_mut(owner);
        request.live -= 1;
        if status.is_success() {
            self.transfer.completed(bytes);
        } else {
            match self.transfer.smaller(bytes, status) {
                Some(smaller) => request.repeat_with = Some(request.repeat_with.unwrap_or(smaller).min(smaller)),
                None => _ = request.error.get_or_insert(status),
            }
            if !request.exhausted {
                // The rest is not worth issuing. It is the first one pending, as only that one has issued anything.
                request.exhausted = true;
                assert_eq!(self.pending.pop_front(), Some(owner), "requests issue in order");
            }
        }
        if request.live == 0 && request.exhausted {
            if request.abandoned {
                self.answered.requests += 1;
                if let (IoCommand::Read { blocks, .. }, Some(sent_at)) = (request.command, sent_at) {
                    let limits = self.namespaces[usize::from(request.namespace)].as_ref();
                    let bytes = limits.map_or(0, |limits| blocks * limits.namespace.block_bytes);
                    self.answered.read = self.answered.read.into_iter().chain([(sent_at, bytes)]).min();
                }
            } else if let (Some(smaller), None) = (request.repeat_with.take(), request.error) {
                // Nothing of it is under way any more, and nobody has been told of what has succeeded.
                (request.max_bytes, request.issued, request.exhausted) = (smaller, 0, false);
                self.pending.push_back(owner);
                return;
            } else {
                if request.error.is_none() && request.max_bytes < u32::MAX {
                    self.transfer.found(request.max_bytes);
                }
                let result = request.error.map_or(Ok(()), Err);
                self.completions.push_back(Completion { tag: request.tag, result });
            }
            self.requests.remove(owner);
        }
    }
}

/// For completions that bring no data.
struct NoSink;

impl PayloadSink for NoSink {
    fn scatter(&mut self, _tag: Tag, _offset: u32, _src: &[u8]) {}
}
