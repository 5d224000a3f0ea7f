//! The 64-bit tokens of operations in the ring: kind (8 bits), index (16), generation (32).

use mpath_core::{FlowId, PathId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingToken {
    /// Messages are in the inbox.
    Inbox,
    /// The guest kicked a virtqueue.
    Kick { flow: FlowId, generation: u32 },
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
            Self::Inbox => (0, 0, 0),
            Self::Kick { flow, generation } => (1, flow.0, generation),
            Self::Ended => (2, 0, 0),
            Self::Send { path } => (3, path.0, 0),
            Self::Recv { path } => (4, path.0, 0),
        };
        u64::from(generation) << 32 | u64::from(index) << 8 | kind
    }

    pub(crate) fn decode(token: u64) -> Self {
        let (index, generation) = ((token >> 8) as u16, (token >> 32) as u32);
        match token as u8 {
            0 => Self::Inbox,
            1 => Self::Kick { flow: FlowId(index), generation },
            2 => Self::Ended,
            3 => Self::Send { path: PathId(index) },
            4 => Self::Recv { path: PathId(index) },
            kind => unreachable!("the kernel returns the tokens it was given, not kind {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_encoding() {
        for token in [
            RingToken::Inbox,
            RingToken::Ended,
            RingToken::Kick { flow: FlowId(u16::MAX), generation: u32::MAX },
            RingToken::Kick { flow: FlowId(0), generation: 1 },
            RingToken::Send { path: PathId(u16::MAX) },
            RingToken::Recv { path: PathId(3) },
        ] {
            assert_eq!(RingToken::decode(token.encode()), token);
        }
    }
}
