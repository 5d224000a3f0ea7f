//! Requests of the caller.

use monotonic::Instant;

use crate::wire::Status;

/// The caller's identifier of a request, unique while the request is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u32);

/// A request. `blocks` counts logical blocks of the namespace. The bytes of a read or write must fit 32 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IoCommand {
    /// Read.
    Read {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
    },
    /// Write.
    Write {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
        /// Force Unit Access.
        fua: bool,
    },
    /// Flush the volatile write cache.
    #[default]
    Flush,
    /// Write Zeroes; the controller must support it (ONCS).
    WriteZeroes {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
        /// Deallocate if possible.
        deallocate: bool,
        /// Force Unit Access.
        fua: bool,
    },
    /// Deallocate by Dataset Management; the controller must support it (ONCS).
    Deallocate {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
    },
}

impl IoCommand {
    /// Whether the request changes data. If such a request is lost, the data are in doubt.
    #[must_use]
    pub const fn is_mutating(&self) -> bool {
        match self {
            Self::Write { .. } | Self::WriteZeroes { .. } | Self::Deallocate { .. } => true,
            Self::Read { .. } | Self::Flush => false,
        }
    }

    /// First block and number of blocks; `None` for a flush.
    #[must_use]
    pub const fn range(&self) -> Option<(u64, u32)> {
        match *self {
            Self::Read { slba, blocks }
            | Self::Write { slba, blocks, .. }
            | Self::WriteZeroes { slba, blocks, .. }
            | Self::Deallocate { slba, blocks } => Some((slba, blocks)),
            Self::Flush => None,
        }
    }

    /// The number of blocks; 0 for a flush.
    #[inline]
    pub(super) fn blocks(&self) -> u32 {
        self.range().map_or(0, |(_, blocks)| blocks)
    }
}

/// Some of the blocks of a request, counted from its first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    /// The first of them.
    pub first: u32,
    /// Their number.
    pub blocks: u32,
}

/// The progress of a request that is submitted in parts, or one of whose commands has failed.
#[derive(Debug)]
pub(super) struct Recovery {
    /// Parts to be issued after the present one, the next one last.
    pub(super) to_issue: Vec<Part>,
    /// Parts whose commands have failed or were not issued.
    pub(super) unfinished: Vec<Part>,
    /// The number of blocks in all parts.
    pub(super) wanted: u32,
    pub(super) error: Option<Status>,
    /// The most that one command covers, in bytes of data, or in blocks without data. Below the limit of the queue if larger
    /// commands have failed.
    pub(super) max_size: u32,
    /// Commands may have been too large: retry the request with at most this much in each.
    pub(super) retry_size: Option<u32>,
}

impl Recovery {
    /// For a request of which nothing has failed.
    pub(super) fn of(command: &IoCommand) -> Self {
        let wanted = command.blocks();
        Self { to_issue: Vec::new(), unfinished: Vec::new(), wanted, error: None, max_size: u32::MAX, retry_size: None }
    }

    /// The unfinished parts in order, without neighbours.
    pub(super) fn take_unfinished(&mut self) -> Vec<Part> {
        let mut unfinished = std::mem::take(&mut self.unfinished);
        unfinished.sort_unstable_by_key(|part| part.first);
        unfinished.dedup_by(|next, part| {
            let is_neighbour = part.first + part.blocks == next.first;
            part.blocks += if is_neighbour { next.blocks } else { 0 };
            is_neighbour
        });
        unfinished
    }
}

/// Why a request was not accepted. Nothing of the request remains in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue has no room for another request.
    #[error("the queue is full")]
    Full,
    /// Connect has not succeeded, or the connection has failed.
    #[error("the queue is not connected")]
    NotReady,
    /// The namespace is unusable on this controller.
    #[error("namespace {namespace} of the queue is unusable on this controller")]
    Namespace {
        /// Its position in [`QueueConfig::namespaces`](super::QueueConfig::namespaces).
        namespace: u16,
    },
    /// The request has no blocks.
    #[error("the request has no blocks")]
    Empty,
    /// The request reaches beyond the end of the namespace.
    #[error(
        "{blocks} blocks at block {slba} reach beyond the end of the namespace, which has {namespace_blocks} blocks"
    )]
    OutOfRange {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
        /// NSZE.
        namespace_blocks: u64,
    },
    /// The bytes of a read or write do not fit 32 bits.
    #[error("{blocks} blocks are more than 4 GiB")]
    TooLarge {
        /// Number of blocks.
        blocks: u32,
    },
}

/// The completion of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub tag: Tag,
    /// Success, or an error of its commands: the first of those with the worst [`Status::answer`]. A data digest mismatch is [`Status::TRANSIENT_TRANSPORT_ERROR`].
    pub result: Result<(), Status>,
    /// When the command was sent that was answered last.
    pub sent_at: Option<Instant>,
}

/// The result of [`HostQueue::recall`](super::HostQueue::recall).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecallOutcome {
    /// No command of the request is in flight. The queue has forgotten the request.
    Unsent,
    /// Commands of the request are in flight. It occupies the queue until they are answered, which
    /// [`HostQueue::take_answered`](super::HostQueue::take_answered) reports. It gets no data and no completion.
    Abandoned,
    /// The request has completed. Its completion has been fetched or can be fetched.
    Completed,
}

/// Answers to abandoned requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AbandonedAnswers {
    /// The number of requests.
    pub requests: u32,
    /// The oldest read among them: the send time of its last command to be answered, and the bytes of its data.
    pub read: Option<(Instant, u32)>,
}

/// A request without a fetched completion when the connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRequest {
    /// The request.
    pub tag: Tag,
    /// The data may still change: a command that changes data was encoded for sending, and no completion arrived.
    pub indeterminate: bool,
}

/// A request in flight.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) tag: Tag,
    /// Position of its namespace in the configuration of the queue.
    pub(super) namespace: u16,
    pub(super) command: IoCommand,
    /// The next block to be issued, counted from the first, and the end of its part.
    pub(super) issued: u32,
    pub(super) part_end: u32,
    /// Commands that are issued and not completed.
    pub(super) commands_in_flight: u16,
    /// No command is left to issue, because all are issued or one has failed.
    pub(super) is_issued: bool,
    /// Recalled by the caller, which may use the tag again.
    pub(super) abandoned: bool,
    /// Few requests need it, so this may allocate.
    pub(super) recovery: Option<Box<Recovery>>,
}

impl Request {
    #[inline]
    pub(super) fn new(tag: Tag, namespace: u16, command: IoCommand) -> Self {
        Self { tag, namespace, command, part_end: command.blocks(), ..Self::default() }
    }

    /// Goes on with this part, of which nothing is issued.
    pub(super) fn begin_part(&mut self, part: Part) {
        (self.issued, self.part_end, self.is_issued) = (part.first, part.first + part.blocks, false);
    }
}
