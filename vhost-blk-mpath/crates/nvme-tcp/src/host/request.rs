//! A request of the caller, and the table of those in flight.

use std::time::Instant;

use crate::wire::Status;

/// The caller's name of a request, unique while it is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u32);

/// A request. `blocks` are logical blocks of its namespace; the bytes of a read or write must fit 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Whether it changes data, so that losing it leaves the data in doubt.
    #[must_use]
    pub const fn is_mutating(&self) -> bool {
        match self {
            Self::Write { .. } | Self::WriteZeroes { .. } | Self::Deallocate { .. } => true,
            Self::Read { .. } | Self::Flush => false,
        }
    }

    /// First block and number of blocks; none for a flush.
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
}

/// Why a request was not taken. Nothing of it remains in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many requests are in flight as the queue has room for.
    #[error("the queue is full")]
    Full,
    /// Connect has not succeeded, or the connection is over.
    #[error("the queue is not connected")]
    NotReady,
    /// The namespace is not among those that can be used on this controller.
    #[error("namespace {namespace} of the queue cannot be used on this controller")]
    Namespace {
        /// Its position in [`QueueConfig::namespaces`](super::QueueConfig::namespaces).
        namespace: u16,
    },
    /// No blocks.
    #[error("a request of no blocks")]
    Empty,
    /// Blocks beyond the end of the namespace.
    #[error("{blocks} blocks at {slba} reach beyond the namespace of {namespace_blocks}")]
    OutOfRange {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
        /// NSZE.
        namespace_blocks: u64,
    },
    /// More data than 32 bits count.
    #[error("{blocks} blocks are more than 4 GiB")]
    TooLarge {
        /// Number of blocks.
        blocks: u32,
    },
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which request.
    pub tag: Tag,
    /// Success, or the first error of its commands. A data digest mismatch is [`Status::TRANSIENT_TRANSPORT_ERROR`].
    pub result: Result<(), Status>,
}

/// What became of a request that was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recalled {
    /// None of its commands is in flight: the queue knows nothing of it any more.
    Unsent,
    /// Commands of it are in flight. It takes up its room in the queue until they are answered, which
    /// [`HostQueue::take_answered`](super::HostQueue::take_answered) tells; it gets no data and no completion.
    Abandoned,
    /// It has ended already: its completion has been fetched, or can be.
    Completed,
}

/// Answers to requests that were taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    /// How many requests.
    pub requests: u32,
    /// The oldest of the reads among them: when the command was sent whose answer ended it, and the bytes of the read's data.
    pub read: Option<(Instant, u32)>,
}

/// A request whose end the lost connection took with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Which request.
    pub tag: Tag,
    /// The data may still change: a mutating command was laid out for sending and no completion came.
    pub indeterminate: bool,
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) tag: Tag,
    /// Position of its namespace.
    pub(super) namespace: u16,
    pub(super) command: IoCommand,
    /// Blocks covered by the commands issued so far.
    pub(super) issued: u32,
    /// Commands issued without completion.
    pub(super) live: u16,
    /// Whether nothing is left to issue, be it for an error.
    pub(super) exhausted: bool,
    /// Taken back by the caller, who may use its tag again.
    pub(super) abandoned: bool,
    pub(super) error: Option<Status>,
    /// The most data of its commands in bytes, below the limit of the queue if larger ones were refused.
    pub(super) max_bytes: u32,
    /// Commands of it were refused: it is to be repeated with no more than that in each.
    pub(super) repeat_with: Option<u32>,
}

/// Requests in flight by index. Its size is fixed.
#[derive(Debug)]
pub(super) struct Requests {
    entries: Vec<Option<Request>>,
    free: Vec<u16>,
}

impl Requests {
    pub(super) fn new(capacity: u16) -> Self {
        Self { entries: vec![None; capacity.into()], free: (0..capacity).rev().collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, tag: Tag, namespace: u16, command: IoCommand) -> Option<u16> {
        let index = self.free.pop()?;
        self.entries[usize::from(index)] = Some(Request {
            tag,
            namespace,
            command,
            issued: 0,
            live: 0,
            exhausted: false,
            abandoned: false,
            error: None,
            max_bytes: u32::MAX,
            repeat_with: None,
        });
        Some(index)
    }

    /// The request of an index that is in use; indices come from our own tables, never from the wire.
    pub(super) fn get(&self, index: u16) -> &Request {
        self.entries[usize::from(index)].as_ref().expect("index of a request in flight")
    }

    pub(super) fn get_mut(&mut self, index: u16) -> &mut Request {
        self.entries[usize::from(index)].as_mut().expect("index of a request in flight")
    }

    pub(super) fn remove(&mut self, index: u16) {
        let removed = self.entries[usize::from(index)].take();
        assert!(removed.is_some(), "a request ends once");
        self.free.push(index);
    }

    /// The index of the request that the caller knows by this tag.
    pub(super) fn find(&self, tag: Tag) -> Option<u16> {
        let found =
            self.entries.iter().position(|entry| entry.is_some_and(|request| request.tag == tag && !request.abandoned));
        found.map(|index| index as u16)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.entries.iter().flatten()
    }
}
