//! Decides: DH-HMAC-CHAP succeeds at the controller.
//!
//! The controller of one queue.
//!
//! ```text
//!             AUTH_Negotiate: Challenge                Reply: Success1 with a proof
//!  ┌──────┐ ───────────────────────────▶ ┌────────────┐ ──────────────────────▶ ┌────────────────┐
//!  │ Idle │                              │ AwaitReply │                         │ AwaitSuccess2  │
//!  └──────┘ ◀─────────────────────────── └────────────┘                         └────────────────┘
//!     ▲       Reply without a request of a proof: Success1, authenticated               │
//!     │       AUTH_Failure2, or an error: AUTH_Failure1                                 │ Success2: authenticated
//!     └─────────────────────────────────────────────────────────────────────────────────┘ AUTH_Failure2, or an error
//!
//!  AUTH_Negotiate starts a new transaction in every state.
//! ```

use crate::exchange::{KeyPair, session_key};
use crate::hash::equal;
use crate::proof::Proof;
use crate::random::{Randomness, SequenceNumbers};
use crate::{
    AuthConfig, Challenge, ConfigError, ControllerError, DhGroup, Explanation, Failure, Hash, Message, MessageKind,
    Negotiate, RANDOM_BYTES, Refusal, Reply, Session, Step, Success1, Violation,
};

/// The controller of one queue. The caller knows the host NQN from Connect, and looks up the secrets of the host.
///
/// A transaction starts by `AUTH_Negotiate` of the host. It ends by [`Step::Authenticated`] or by a [`Failure`]. A host may
/// start again at any time. The caller bounds the time of a transaction, and refuses other commands before its end.
pub struct ControllerAuthentication {
    config: AuthConfig,
    sequence_numbers: SequenceNumbers,
    state: State,
}

enum State {
    Idle,
    AwaitReply(Box<Challenged>),
    AwaitSuccess2(Box<Session>),
}

/// The state after `DH-HMAC-CHAP_Challenge`.
struct Challenged {
    transaction: u16,
    hash: Hash,
    group: DhGroup,
    key_pair: Option<KeyPair>,
    challenge: Vec<u8>,
    sequence_number: u32,
}

impl ControllerAuthentication {
    /// Makes a controller.
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn new(config: AuthConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config, sequence_numbers: SequenceNumbers::default(), state: State::Idle })
    }

    /// Takes the data of an Authentication Send. The message of the answer is the data of the next Authentication Receive.
    ///
    /// `random` fills the buffer from a cryptographic generator. It is called once a transaction, for `AUTH_Negotiate`.
    ///
    /// # Errors
    /// The authentication failed. The controller answers the next Authentication Receive with the message of the failure, if
    /// there is one, and closes the queue.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        random: impl FnOnce(&mut [u8; RANDOM_BYTES]),
    ) -> Result<Step, Failure<ControllerError>> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        let current = match &state {
            State::Idle => None,
            State::AwaitReply(challenged) => Some(challenged.transaction),
            State::AwaitSuccess2(session) => Some(session.transaction),
        };
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(error) => return Err(failure(current.unwrap_or(0), Violation::Malformed(error).into())),
        };
        let transaction = match (&message, current) {
            (Message::Negotiate(_), _) | (_, None) => message.transaction(),
            (_, Some(current)) => current,
        };
        self.advance(state, transaction, message, random).map_err(|error| failure(transaction, error))
    }

    fn advance(
        &mut self,
        state: State,
        transaction: u16,
        message: Message,
        random: impl FnOnce(&mut [u8; RANDOM_BYTES]),
    ) -> Result<Step, ControllerError> {
        match message {
            Message::Negotiate(negotiate) => return self.challenge(negotiate, random),
            Message::Failure2(Refusal { explanation: Explanation::AuthenticationFailed, .. }) => {
                return Err(ControllerError::ControllerSecretRefused);
            }
            Message::Failure2(refusal) => return Err(ControllerError::Refused(refusal)),
            _ => (),
        }
        if message.transaction() != transaction {
            return Err(Violation::Transaction { expected: transaction, got: message.transaction() }.into());
        }
        let unexpected = |expected, got: Message| Err(Violation::Unexpected { expected, got: got.kind() }.into());
        match (state, message) {
            (State::AwaitReply(challenged), Message::Reply(reply)) => self.verify(*challenged, &reply),
            (State::AwaitSuccess2(session), Message::Success2 { .. }) => {
                Ok(Step::Authenticated { message: None, session })
            }
            (State::Idle, message) => unexpected(MessageKind::Negotiate, message),
            (State::AwaitReply(_), message) => unexpected(MessageKind::Reply, message),
            (State::AwaitSuccess2(_), message) => unexpected(MessageKind::Success2, message),
        }
    }

    /// Chooses hash and group, and challenges the host.
    fn challenge(
        &mut self,
        negotiate: Negotiate,
        random: impl FnOnce(&mut [u8; RANDOM_BYTES]),
    ) -> Result<Step, ControllerError> {
        let config = &self.config;
        let Negotiate { transaction, concatenation: requested, hashes, groups } = negotiate;
        let accepted = config.concatenation;
        if requested != accepted.code() {
            return Err(ControllerError::Concatenation { requested, accepted });
        }
        let hash = config.usable_hashes().find(|hash| hashes.contains(&hash.id()));
        let hash = hash.ok_or_else(|| ControllerError::NoCommonHash {
            offered: hashes,
            allowed: config.usable_hashes().collect(),
        })?;
        let group = config.usable_groups().find(|group| groups.contains(&group.id()));
        let group = group.ok_or_else(|| ControllerError::NoCommonGroup {
            offered: groups,
            allowed: config.usable_groups().collect(),
        })?;
        let randomness = Randomness::draw(random);
        let key_pair = KeyPair::new(group, randomness.exponent())?;
        let challenge = randomness.challenge(hash);
        let sequence_number = self.sequence_numbers.next(&randomness);
        let message = Message::Challenge(Challenge {
            transaction,
            hash: hash.id(),
            group: group.id(),
            sequence_number,
            challenge: challenge.clone(),
            dh_value: key_pair.as_ref().map(|pair| pair.public().to_vec()).unwrap_or_default(),
        });
        self.state =
            State::AwaitReply(Box::new(Challenged { transaction, hash, group, key_pair, challenge, sequence_number }));
        Ok(Step::Continue { message: message.emit() })
    }

    /// Checks the proof of the host, and proves this controller if the host asks for it.
    fn verify(&mut self, challenged: Challenged, reply: &Reply) -> Result<Step, ControllerError> {
        let Challenged { transaction, hash, group, key_pair, challenge, sequence_number } = challenged;
        let config = &self.config;
        let concatenation = config.concatenation;
        if reply.response.len() != hash.bytes() {
            return Err(Violation::HashLength { hash, got: reply.response.len() }.into());
        }
        let session_key = session_key(key_pair.as_ref(), hash, &reply.dh_value)?;
        let proof = Proof { config, hash, transaction, session_key: session_key.as_ref() };
        if !equal(&proof.host(&challenge, sequence_number)?, &reply.response) {
            return Err(ControllerError::WrongHostProof);
        }
        let own_response = match (&reply.challenge, reply.sequence_number) {
            (None, _) if concatenation.is_requested() => return Err(Violation::NoChallenge.into()),
            (Some(_), 0) if !concatenation.is_requested() => return Err(Violation::SequenceNumber.into()),
            (None, _) | (Some(_), 0) => None,
            (Some(c2), s2) => {
                let secret = config.controller_secret.as_ref().ok_or(ControllerError::NoControllerSecret)?;
                Some(proof.controller(secret, c2, s2)?.to_vec())
            }
        };
        let session = Box::new(Session {
            transaction,
            hash,
            group,
            concatenation,
            bidirectional: own_response.is_some(),
            session_key,
            controller_challenge: challenge,
            host_challenge: reply.challenge.clone(),
        });
        let success = Success1 { transaction, hash_bytes: hash.bytes() as u8, response: own_response };
        let message = Message::Success1(success).emit();
        if session.bidirectional {
            self.state = State::AwaitSuccess2(session);
            return Ok(Step::Continue { message });
        }
        Ok(Step::Authenticated { message: Some(message), session })
    }
}

/// The failure of a transaction, with `AUTH_Failure1` unless the host ended the transaction.
fn failure(transaction: u16, error: ControllerError) -> Failure<ControllerError> {
    let refusal = error.explanation().map(|explanation| Refusal::new(transaction, explanation));
    Failure { error, message: refusal.map(|refusal| Message::Failure1(refusal).emit()) }
}

impl std::fmt::Debug for ControllerAuthentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.state {
            State::Idle => "Idle",
            State::AwaitReply(_) => "AwaitReply",
            State::AwaitSuccess2(_) => "AwaitSuccess2",
        };
        f.debug_struct("ControllerAuthentication")
            .field("config", &self.config)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
