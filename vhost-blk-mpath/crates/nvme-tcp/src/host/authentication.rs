//! Decides: a queue is authenticated, or must not be used without (`begin_authentication`).
//!
//! In-band authentication of one queue (DH-HMAC-CHAP), between Connect and the first other command.
//!
//! ```text
//!           ┌──────────────────── another message of the controller is due ◀────────────────────┐
//! Connect   ▼                                                                                    │
//! ───────▶ Send ─fill_tx─▶ AwaitSent ─success─▶ Receive ─fill_tx─▶ AwaitMessage ─message─▶ the machine answers
//!           ▲                  │                                                                 │      │
//!           │                  │ the last message is sent                                        │      │ nothing to send
//!           └──────────────────│─────────────────────────────────────────────────────────────────┘      ▼
//!                              └──────────────────────────────────────────────────────────────▶ Phase::Ready
//!
//! An error status, or a message that the machine refuses: Phase::Failed. The last PDU then tells the controller why.
//! ```
//!
//! One command is in flight at a time. The protocol ends after two messages of the controller, so nothing grows.

use nvme_auth::{Failure, HostAuthentication, Step};

use super::command_table::Direction;
use super::error::{AuthenticationCommand, ConnectError, QueueError};
use super::queue_pair::{Phase, QueuePair};
use super::staging::Stage;
use crate::authentication::{Authenticated, Authentication};
use crate::wire::{ConnectResult, FabricsCommand, Framing, Pdu, Sgl, Status};

/// AL: the most bytes of a message of the controller. Linux passes this value too.
pub(super) const RECEIVE_BYTES: u32 = 4096;

/// The authentication of a queue that is under way.
#[derive(Debug)]
pub(super) struct QueueAuthentication {
    machine: HostAuthentication,
    state: State,
    /// The data of the Authentication Receive in flight.
    received: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// A message waits for room. With `Some`, it is the last.
    Send(Vec<u8>, Option<Authenticated>),
    AwaitSent(Option<Authenticated>),
    /// An Authentication Receive waits for room.
    Receive,
    AwaitMessage,
}

impl QueueAuthentication {
    fn has_output(&self) -> bool {
        matches!(self.state, State::Send(..) | State::Receive)
    }

    /// Takes data of the Authentication Receive. The caller has checked that they fit the command.
    pub(super) fn take_data(&mut self, data: &[u8]) {
        self.received.extend_from_slice(data);
    }
}

/// Encodes an Authentication Send with this message.
fn encode_send(cid: u16, tx: Framing, message: &[u8], out: &mut Vec<u8>) {
    let length = message.len() as u32;
    let command = FabricsCommand::AuthenticationSend { bytes: length };
    Pdu::CapsuleCmd(command.to_sqe(cid, Sgl::InCapsule { offset: 0, length })).emit(&tx, message, out);
}

/// Encodes an Authentication Receive.
fn encode_receive(cid: u16, tx: Framing, out: &mut Vec<u8>) {
    let command = FabricsCommand::AuthenticationReceive { bytes: RECEIVE_BYTES };
    Pdu::CapsuleCmd(command.to_sqe(cid, Sgl::Transport { length: RECEIVE_BYTES })).emit(&tx, &[], out);
}

impl<R: Default> QueuePair<R> {
    /// Handles the result of a successful Connect: the queue is ready, or its authentication starts.
    pub(super) fn begin_authentication(&mut self, result: ConnectResult) -> Result<(), ConnectError> {
        let ConnectResult { authentication_required, secure_channel_required, .. } = result;
        let concatenates = |authentication: &Authentication| authentication.concatenation.is_requested();
        let is_secured = self.config.is_encrypted || self.config.authentication.as_ref().is_some_and(concatenates);
        if secure_channel_required && !is_secured {
            return Err(ConnectError::SecureChannelRequired);
        }
        let is_required = authentication_required || secure_channel_required;
        // Linux 7.2 asks on the admin queue only, unlike 6.12. It then answers a host that begins by itself on an I/O queue.
        let wants_proof = |authentication: &Authentication| authentication.controller_secret.is_some();
        let begins = |authentication: &Authentication| {
            concatenates(authentication) || self.config.qid != 0 && wants_proof(authentication)
        };
        // The queue pair keeps no secret longer than its authentication takes. The controller keeps one for further queues.
        match self.config.authentication.take() {
            None if is_required => Err(ConnectError::AuthenticationRequired),
            Some(authentication) if is_required || begins(&authentication) => {
                let config = authentication.config(&self.config.host.hostnqn, &self.config.subnqn);
                let mut machine = HostAuthentication::new(config)?;
                // Each queue has one transaction, so its QID makes a T_ID that is new for the queue and for the association.
                let negotiate = machine.start(self.config.qid, |bytes| (authentication.random)(bytes));
                let received = Vec::with_capacity(RECEIVE_BYTES as usize);
                let state = State::Send(negotiate, None);
                self.authentication = Some(Box::new(QueueAuthentication { machine, state, received }));
                self.phase = Phase::Authenticate;
                Ok(())
            }
            // A host that wants proof must not go on without.
            Some(authentication) if wants_proof(&authentication) => Err(ConnectError::ControllerNotAuthenticated),
            _ => {
                self.phase = Phase::Ready;
                Ok(())
            }
        }
    }

    /// Whether a command of the authentication waits for room.
    pub(super) fn has_authentication_output(&self) -> bool {
        self.authentication.as_ref().is_some_and(|authentication| authentication.has_output())
    }

    /// Encodes the next command of the authentication, if it is due and there is room.
    pub(super) fn encode_authentication(&mut self, stage: &mut Stage<'_>) {
        let Some(mut authentication) = self.authentication.take() else { return };
        match &authentication.state {
            State::Send(message, last) if stage.room() >= Some(message.len() as u32) => {
                let length = message.len() as u32;
                let cid = self.send_own(Direction::Out, length, length);
                stage.staged(|out| encode_send(cid, self.tx, message, out));
                authentication.state = State::AwaitSent(*last);
            }
            State::Receive if stage.room().is_some() => {
                authentication.received.clear();
                let cid = self.send_own(Direction::In, RECEIVE_BYTES, 0);
                stage.staged(|out| encode_receive(cid, self.tx, out));
                authentication.state = State::AwaitMessage;
            }
            _ => {}
        }
        self.authentication = Some(authentication);
    }

    /// Handles the end of a command of the authentication.
    pub(super) fn on_authentication_answer(&mut self, status: Status) -> Result<(), QueueError> {
        let authentication = self.authentication.as_mut().expect("only an authentication has these commands");
        let outcome = match authentication.state {
            State::AwaitMessage => {
                status.result().map_err(|status| failed(AuthenticationCommand::Receive, status))?;
                authentication.machine.receive(&authentication.received)
            }
            State::AwaitSent(None) => {
                status.result().map_err(|status| failed(AuthenticationCommand::Send, status))?;
                authentication.state = State::Receive;
                return Ok(());
            }
            State::AwaitSent(Some(authenticated)) => {
                status.result().map_err(|status| failed(AuthenticationCommand::Send, status))?;
                self.end_authentication(authenticated);
                return Ok(());
            }
            State::Send(..) | State::Receive => unreachable!("no command of the authentication is in flight"),
        };
        match outcome {
            Ok(Step::Continue { message }) => authentication.state = State::Send(message, None),
            Ok(Step::Authenticated { message, session }) => {
                self.generated_psk =
                    session.generated_psk().map_err(|error| ConnectError::Authentication(Box::new(error.into())))?;
                let authenticated = Authenticated::from(&*session);
                match message {
                    Some(message) => authentication.state = State::Send(message, Some(authenticated)),
                    None => self.end_authentication(authenticated),
                }
            }
            Err(Failure { error, message }) => {
                if let Some(message) = message {
                    let (length, mut refusal) = (message.len() as u32, Vec::new());
                    encode_send(self.send_own(Direction::Out, length, length), self.tx, &message, &mut refusal);
                    self.refusal = Some(refusal);
                }
                return Err(ConnectError::Authentication(Box::new(error)).into());
            }
        }
        Ok(())
    }

    fn end_authentication(&mut self, authenticated: Authenticated) {
        // This overwrites the secrets.
        self.authentication = None;
        self.authenticated = Some(authenticated);
        self.phase = Phase::Ready;
    }
}

fn failed(command: AuthenticationCommand, status: Status) -> ConnectError {
    ConnectError::AuthenticationCommand { command, status }
}
