//! The 64 bits by which the ring names an operation: kind (8), index (16), generation (32).

use mpath_core::{FlowId, PathId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Messages wait.
    Inbox,
    /// The guest kicked a virtqueue.
    Kick { flow: FlowId, generation: u32 },
    /// A watch was removed, or a receive cancelled: it has said so itself.
    Ended,
    /// The send of a path's connection. A path has one connection at a time, which outlives its operations.
    Send { path: PathId },
    /// Its receive.
    Recv { path: PathId },
}

impl Token {
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
    fn a_token_comes_back_as_it_went() {
        for token in [
            Token::Inbox,
            Token::Ended,
            Token::Kick { flow: FlowId(u16::MAX), generation: u32::MAX },
            Token::Kick { flow: FlowId(0), generation: 1 },
            Token::Send { path: PathId(u16::MAX) },
            Token::Recv { path: PathId(3) },
        ] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
