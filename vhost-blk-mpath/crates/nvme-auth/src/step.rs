//! What a state machine asks of its caller.

use crate::{ControllerError, HostError, Session};

/// What follows a received message.
///
/// A host sends `message` by Authentication Send. A controller returns `message` in the next Authentication Receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The transaction goes on with this message. The next message comes from the peer.
    Continue {
        /// The message to send.
        message: Vec<u8>,
    },
    /// The peer is authenticated.
    Authenticated {
        /// The last message to send, if one is left. A host counts as authenticated once the command with this message succeeds.
        message: Option<Vec<u8>>,
        /// The parameters and keys of the transaction.
        session: Box<Session>,
    },
}

/// A failed transaction. The caller sends `message`, then closes the queue, and reports `error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure<E> {
    /// Why the transaction failed.
    pub error: E,
    /// `AUTH_Failure1` of a controller or `AUTH_Failure2` of a host. `None` if the peer reported the failure.
    pub message: Option<Vec<u8>>,
}

impl<E: std::fmt::Display> std::fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failure<HostError> {}
impl std::error::Error for Failure<ControllerError> {}
