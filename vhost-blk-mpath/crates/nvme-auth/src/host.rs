//! Decides: DH-HMAC-CHAP succeeds at the host.
//!
//! The host of one queue.
//!
//! ```text
//!              start: AUTH_Negotiate          Challenge: Reply
//!  ┌──────┐ ─────────────────────▶ ┌─────────────────┐ ─────────▶ ┌────────────────┐
//!  │ Idle │                        │ AwaitChallenge  │            │ AwaitSuccess1  │
//!  └──────┘ ◀───────────────────── └─────────────────┘            └────────────────┘
//!     ▲       AUTH_Failure1, or an error: AUTH_Failure2                   │ Success1: authenticated, and
//!     │                                                                   │ Success2 if the controller proved itself.
//!     └───────────────────────────────────────────────────────────────────┘ AUTH_Failure1, or an error: AUTH_Failure2
//! ```

use zeroize::Zeroizing;

use crate::exchange::{KeyPair, session_key};
use crate::hash::equal;
use crate::proof::Proof;
use crate::random::{Randomness, SequenceNumbers};
use crate::{
    AuthConfig, Challenge, ConfigError, DhGroup, Failure, Hash, HostError, Message, MessageKind, Negotiate,
    RANDOM_BYTES, Refusal, Reply, Session, Step, Success1, Violation,
};

/// The host of one queue. The queue must be connected, and its Connect must have asked for authentication (ATR or ASCR).
///
/// A started transaction ends by [`Step::Authenticated`] or by a [`Failure`]. A new [`start`](Self::start) then authenticates the
/// queue again. Only the first failure of a transaction is reported. The caller bounds the time of a transaction.
pub struct HostAuthentication {
    config: AuthConfig,
    sequence_numbers: SequenceNumbers,
    state: State,
}

enum State {
    Idle,
    AwaitChallenge { transaction: u16, randomness: Randomness },
    AwaitSuccess1(Box<Replied>),
}

/// The state after `DH-HMAC-CHAP_Reply`.
struct Replied {
    session: Session,
    /// The response that proves the controller. `None` if this host did not ask for it.
    expected: Option<Zeroizing<Vec<u8>>>,
}

impl HostAuthentication {
    /// Makes a host.
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn new(config: AuthConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config, sequence_numbers: SequenceNumbers::default(), state: State::Idle })
    }

    /// Starts a transaction and forgets an unfinished one. Returns `AUTH_Negotiate`, the first message to send.
    ///
    /// `transaction` is `T_ID`. It must be new for the queue. `random` fills the buffer from a cryptographic generator, once.
    #[must_use]
    pub fn start(&mut self, transaction: u16, random: impl FnOnce(&mut [u8; RANDOM_BYTES])) -> Vec<u8> {
        let config = &self.config;
        let negotiate = Negotiate {
            transaction,
            concatenation: config.concatenation.code(),
            hashes: config.usable_hashes().map(Hash::id).collect(),
            groups: config.usable_groups().map(DhGroup::id).collect(),
        };
        self.state = State::AwaitChallenge { transaction, randomness: Randomness::draw(random) };
        Message::Negotiate(negotiate).emit()
    }

    /// Takes the data of an Authentication Receive.
    ///
    /// # Errors
    /// The authentication failed. The host sends the message of the failure, if there is one, and closes the queue.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Step, Failure<HostError>> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        let transaction = match &state {
            State::Idle => 0,
            State::AwaitChallenge { transaction, .. } => *transaction,
            State::AwaitSuccess1(replied) => replied.session.transaction,
        };
        self.advance(state, transaction, bytes).map_err(|error| {
            let refusal = error.explanation().map(|explanation| Refusal::new(transaction, explanation));
            Failure { error, message: refusal.map(|refusal| Message::Failure2(refusal).emit()) }
        })
    }

    fn advance(&mut self, state: State, transaction: u16, bytes: &[u8]) -> Result<Step, HostError> {
        if matches!(state, State::Idle) {
            return Err(HostError::NotStarted);
        }
        let message = Message::parse(bytes).map_err(Violation::Malformed)?;
        if let Message::Failure1(refusal) = message {
            return Err(HostError::refused(&self.config, refusal));
        }
        if message.transaction() != transaction {
            return Err(Violation::Transaction { expected: transaction, got: message.transaction() }.into());
        }
        let unexpected =
            |expected, message: Message| Err(Violation::Unexpected { expected, got: message.kind() }.into());
        match (state, message) {
            (State::AwaitChallenge { randomness, .. }, Message::Challenge(challenge)) => {
                self.reply(challenge, &randomness)
            }
            (State::AwaitSuccess1(replied), Message::Success1(success)) => finish(*replied, &success),
            (State::AwaitSuccess1(_), message) => unexpected(MessageKind::Success1, message),
            (_, message) => unexpected(MessageKind::Challenge, message),
        }
    }

    /// Answers the challenge of the controller.
    fn reply(&mut self, challenge: Challenge, randomness: &Randomness) -> Result<Step, HostError> {
        let config = &self.config;
        let concatenation = config.concatenation;
        let hash = config.usable_hashes().find(|hash| hash.id() == challenge.hash);
        let hash = hash.ok_or(HostError::HashNotAllowed { id: challenge.hash })?;
        let group = config.usable_groups().find(|group| group.id() == challenge.group);
        let group = group.ok_or(HostError::GroupNotAllowed { id: challenge.group })?;
        if challenge.challenge.len() != hash.bytes() {
            return Err(Violation::HashLength { hash, got: challenge.challenge.len() }.into());
        }
        let key_pair = KeyPair::new(group, randomness.exponent())?;
        let session_key = session_key(key_pair.as_ref(), hash, &challenge.dh_value)?;

        let proof = Proof { config, hash, transaction: challenge.transaction, session_key: session_key.as_ref() };
        let asks = config.controller_secret.is_some() || concatenation.is_requested();
        let host_challenge = asks.then(|| randomness.challenge(hash));
        // The value 0 tells the controller that C2 only serves the secure channel.
        let only_for_channel = asks && config.controller_secret.is_none();
        let sequence_number = if only_for_channel { 0 } else { self.sequence_numbers.next(randomness) };
        let response = proof.host(&challenge.challenge, challenge.sequence_number)?;
        let expected = match (&config.controller_secret, &host_challenge) {
            (Some(secret), Some(c2)) => Some(proof.controller(secret, c2, sequence_number)?),
            _ => None,
        };
        let reply = Reply {
            transaction: challenge.transaction,
            sequence_number,
            response: response.to_vec(),
            challenge: host_challenge.clone(),
            dh_value: key_pair.map(|pair| pair.public().to_vec()).unwrap_or_default(),
        };
        let session = Session {
            transaction: challenge.transaction,
            hash,
            group,
            concatenation,
            bidirectional: expected.is_some(),
            session_key,
            controller_challenge: challenge.challenge,
            host_challenge,
        };
        self.state = State::AwaitSuccess1(Box::new(Replied { session, expected }));
        Ok(Step::Continue { message: Message::Reply(reply).emit() })
    }
}

/// Checks the proof of the controller, if this host asked for it.
fn finish(replied: Replied, success: &Success1) -> Result<Step, HostError> {
    let Replied { session, expected } = replied;
    let message = match (expected, &success.response) {
        (None, _) => None,
        (Some(_), None) => return Err(HostError::NoControllerProof),
        (Some(expected), Some(response)) if equal(&expected, response) => {
            Some(Message::Success2 { transaction: session.transaction }.emit())
        }
        (Some(_), Some(_)) => return Err(HostError::WrongControllerProof),
    };
    Ok(Step::Authenticated { message, session: Box::new(session) })
}

impl std::fmt::Debug for HostAuthentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.state {
            State::Idle => "Idle",
            State::AwaitChallenge { .. } => "AwaitChallenge",
            State::AwaitSuccess1(_) => "AwaitSuccess1",
        };
        f.debug_struct("HostAuthentication")
            .field("config", &self.config)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
