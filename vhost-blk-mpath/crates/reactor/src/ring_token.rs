//! The 64-bit tokens of operations in the ring: kind (4 bits), index (16), generation (28), path set (16).

use mpath_core::{FlowId, PathId};

/// The bits of a token that a path set uses.
const SET_SHIFT: u32 = 48;
/// The bits below the generation.
const GENERATION_SHIFT: u32 = 20;

/// The number of a virtqueue's run, in 28 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    const MASK: u32 = (1 << (SET_SHIFT - GENERATION_SHIFT)) - 1;

    pub(crate) fn next(self) -> Self {
        Self((self.0 + 1) & Self::MASK)
    }
}

/// The token of an operation of a path set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingToken {
    /// The guest kicked a virtqueue.
    Kick { flow: FlowId, generation: Generation },
    /// The removal of a watch or the cancellation of a receive. Its completion needs no handling.
    Ended,
    /// The send of a path's connection. A path has one connection at a time, which outlives its operations.
    Send { path: PathId },
    /// The receive of a path's connection.
    Recv { path: PathId },
}

impl RingToken {
    pub(crate) fn encode(self) -> u64 {
        let (kind, index, generation) = match self {
            Self::Kick { flow, generation } => (1, flow.0, generation.0),
            Self::Ended => (2, 0, 0),
            Self::Send { path } => (3, path.0, 0),
            Self::Recv { path } => (4, path.0, 0),
        };
        u64::from(generation) << GENERATION_SHIFT | u64::from(index) << 4 | kind
    }

    pub(crate) fn decode(token: u64) -> Self {
        let (index, generation) = ((token >> 4) as u16, (token >> GENERATION_SHIFT) as u32 & Generation::MASK);
        match token & 15 {
            1 => Self::Kick { flow: FlowId(index), generation: Generation(generation) },
            2 => Self::Ended,
            3 => Self::Send { path: PathId(index) },
            4 => Self::Recv { path: PathId(index) },
            kind => unreachable!("the kernel returns the tokens it was given, not kind {kind}"),
        }
    }
}

/// The token of an operation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadToken {
    /// Messages are in the inbox.
    Inbox,
    /// The operation with this token of a path set.
    Set { set: u16, token: u64 },
}

impl ThreadToken {
    pub(crate) fn encode(self) -> u64 {
        match self {
            Self::Inbox => 0,
            Self::Set { set, token } => u64::from(set) << SET_SHIFT | token,
        }
    }

    pub(crate) fn decode(token: u64) -> Self {
        match token {
            0 => Self::Inbox,
            _ => Self::Set { set: (token >> SET_SHIFT) as u16, token: token & ((1 << SET_SHIFT) - 1) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_encoding() {
        for token in [
            RingToken::Ended,
            RingToken::Kick { flow: FlowId(u16::MAX), generation: Generation(Generation::MASK) },
            RingToken::Kick { flow: FlowId(0), generation: Generation(1) },
            RingToken::Send { path: PathId(u16::MAX) },
            RingToken::Recv { path: PathId(3) },
        ] {
            assert_eq!(RingToken::decode(token.encode()), token);
            for set in [0, 7, u16::MAX] {
                let of_thread = ThreadToken::Set { set, token: token.encode() };
                assert_eq!(ThreadToken::decode(of_thread.encode()), of_thread);
            }
        }
        assert_eq!(ThreadToken::decode(ThreadToken::Inbox.encode()), ThreadToken::Inbox);
    }

    #[test]
    fn generations_begin_again() {
        assert_eq!(Generation(Generation::MASK).next(), Generation::default());
    }
}
