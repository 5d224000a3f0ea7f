//! The 64 bits by which the ring names an operation: kind (8), index (16), generation (32).

use mpath_core::PathId;

use crate::message::Epoch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Messages wait.
    Inbox,
    /// The guest kicked a virtqueue.
    Kick { queue: u16, generation: u32 },
    /// A watch was removed.
    Unwatch,
    /// The send of a connection.
    Send { path: PathId, epoch: Epoch },
    /// The receive of a connection.
    Recv { path: PathId, epoch: Epoch },
}

impl Token {
    pub(crate) fn encode(self) -> u64 {
        let (kind, index, generation) = match self {
            Self::Inbox => (0, 0, 0),
            Self::Kick { queue, generation } => (1, queue, generation),
            Self::Unwatch => (2, 0, 0),
            Self::Send { path, epoch } => (3, path.0, epoch.0),
            Self::Recv { path, epoch } => (4, path.0, epoch.0),
        };
        u64::from(generation) << 32 | u64::from(index) << 8 | kind
    }

    pub(crate) fn decode(token: u64) -> Self {
        let (index, generation) = ((token >> 8) as u16, (token >> 32) as u32);
        match token as u8 {
            0 => Self::Inbox,
            1 => Self::Kick { queue: index, generation },
            2 => Self::Unwatch,
            3 => Self::Send { path: PathId(index), epoch: Epoch(generation) },
            4 => Self::Recv { path: PathId(index), epoch: Epoch(generation) },
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
            Token::Unwatch,
            Token::Kick { queue: u16::MAX, generation: u32::MAX },
            Token::Kick { queue: 0, generation: 1 },
            Token::Send { path: PathId(u16::MAX), epoch: Epoch(7) },
            Token::Recv { path: PathId(3), epoch: Epoch(u32::MAX) },
        ] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
