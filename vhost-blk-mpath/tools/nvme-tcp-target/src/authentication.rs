//! Decides: the target refuses a command before authentication (`answer`).
//!
//! In-band authentication of the host on one queue (DH-HMAC-CHAP), between Connect and the first other command.
//!
//! ```text
//! Connect: ATR ─▶ Unproven ─ the machine accepts the host ─▶ Proven
//!                    │                                          │ a new transaction fails
//!                    ├────── the machine refuses the host ──────┴──▶ Failed ─ the host fetched the message, or there is none ─▶ end
//!                    └─ the host is proven, and has asked for a secure channel ─▶ KeyGenerated
//! ```
//!
//! Until the host is proven, each other command is answered with Authentication Required, as Linux does. The host of a secure
//! channel gets this answer to the end: it has to connect again, over TLS with the generated key.

use nvme_auth::{
    Concatenation, ControllerAuthentication, ControllerError, Failure, GeneratedPsk, MESSAGE_BYTES_MAX, Step,
};
use nvme_tcp::wire::{FabricsCommand, Nqn, Opcode, Status};
use nvme_tcp::{Authenticated, RandomSource};

use super::command::TargetCommand;
use super::queue::{QueueIdentity, TargetQueue};
use super::subsystem::Subsystem;

/// The authentication of the host on one queue.
#[derive(Debug)]
pub struct TargetAuthentication {
    machine: ControllerAuthentication,
    concatenation: Concatenation,
    random: Random,
    state: State,
    /// The message that the next Authentication Receive returns.
    message: Option<Vec<u8>>,
    generated_psk: Option<GeneratedPsk>,
}

struct Random(RandomSource);

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random")
    }
}

#[derive(Debug)]
enum State {
    Unproven,
    Proven(Authenticated),
    KeyGenerated(Authenticated),
    Failed(ControllerError),
}

/// How to complete a command of the authentication.
enum Answer {
    Status(Status),
    /// With success and this data, padded to the expected bytes.
    Message(Vec<u8>),
}

impl Subsystem {
    /// NQN of the host of a controller.
    #[must_use]
    pub fn hostnqn(&self, cntlid: u16) -> Option<&Nqn> {
        Some(&self.controllers.get(&cntlid)?.hostnqn)
    }

    /// The authentication that a queue needs whose Connect was accepted. `None` if the subsystem asks for none.
    #[must_use]
    pub fn authentication(&self, identity: QueueIdentity) -> Option<Box<TargetAuthentication>> {
        let authentication = self.config.authentication.as_ref()?;
        let controller = self.controllers.get(&identity.cntlid)?;
        let config = authentication.config(&controller.hostnqn, &self.config.nqn);
        let machine =
            ControllerAuthentication::new(config).expect("a subsystem allows a hash and a group, and NQNs are valid");
        let random = Random(authentication.random.clone());
        let concatenation = authentication.concatenation;
        Some(Box::new(TargetAuthentication {
            machine,
            concatenation,
            random,
            state: State::Unproven,
            message: None,
            generated_psk: None,
        }))
    }
}

impl TargetAuthentication {
    /// Whether hosts have to ask for a secure channel.
    pub(super) fn concatenates(&self) -> bool {
        self.concatenation.is_requested()
    }

    /// Answers Authentication Send and Receive, and every other command until the host is proven. `None` for a command to execute.
    fn answer(&mut self, command: &TargetCommand) -> Option<Answer> {
        let is_fabrics = Opcode(command.sqe.opcode) == Opcode::FABRICS;
        let parsed = is_fabrics.then(|| FabricsCommand::parse(&command.sqe));
        Some(match parsed {
            Some(Ok(FabricsCommand::AuthenticationSend { bytes })) => {
                Answer::Status(self.send(bytes, &command.payload))
            }
            Some(Ok(FabricsCommand::AuthenticationReceive { bytes })) => self.receive(bytes, command.expects_bytes),
            _ if matches!(self.state, State::Proven(_)) => return None,
            _ => Answer::Status(Status::AUTHENTICATION_REQUIRED.with_dnr()),
        })
    }

    fn send(&mut self, bytes: u32, payload: &[u8]) -> Status {
        if payload.len() != bytes as usize {
            return Status::DATA_SGL_LENGTH_INVALID.with_dnr();
        }
        if payload.len() > MESSAGE_BYTES_MAX {
            return Status::INVALID_FIELD.with_dnr();
        }
        if matches!(self.state, State::Failed(_)) {
            return Status::COMMAND_SEQUENCE_ERROR.with_dnr();
        }
        match self.machine.receive(payload, |bytes| (self.random.0)(bytes)) {
            Ok(Step::Continue { message }) => self.message = Some(message),
            Ok(Step::Authenticated { message, session }) => {
                self.message = message;
                let authenticated = Authenticated::from(&*session);
                self.state = match session.generated_psk() {
                    Ok(None) => State::Proven(authenticated),
                    Ok(psk) => {
                        self.generated_psk = psk;
                        State::KeyGenerated(authenticated)
                    }
                    Err(error) => State::Failed(error.into()),
                };
            }
            Err(Failure { error, message }) => {
                self.message = message;
                self.state = State::Failed(error);
            }
        }
        Status::SUCCESS
    }

    fn receive(&mut self, bytes: u32, expects_bytes: u32) -> Answer {
        if bytes != expects_bytes {
            return Answer::Status(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
        }
        match self.message.take_if(|message| message.len() <= bytes as usize) {
            Some(message) => Answer::Message(message),
            None if self.message.is_some() => Answer::Status(Status::INVALID_FIELD.with_dnr()),
            None => Answer::Status(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
        }
    }

    /// The failure, once the host has got everything about it.
    fn reported_failure(&self) -> Option<&ControllerError> {
        match &self.state {
            State::Failed(error) if self.message.is_none() => Some(error),
            _ => None,
        }
    }
}

impl TargetQueue {
    /// Whether other commands than those of the authentication are executed.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.authentication.as_ref().is_none_or(|authentication| matches!(authentication.state, State::Proven(_)))
    }

    /// The key that the authentication has generated for TLS, once. The host connects again, and offers the key.
    pub fn take_generated_psk(&mut self) -> Option<GeneratedPsk> {
        self.authentication.as_mut()?.generated_psk.take()
    }

    /// How the host was authenticated. `None` if it was not, or if that is not required.
    #[must_use]
    pub fn authenticated(&self) -> Option<Authenticated> {
        match self.authentication.as_ref()?.state {
            State::Proven(authenticated) | State::KeyGenerated(authenticated) => Some(authenticated),
            State::Unproven | State::Failed(_) => None,
        }
    }

    /// Why the host was refused, once it has got the message about it. The connection has ended then.
    #[must_use]
    pub fn authentication_error(&self) -> Option<&ControllerError> {
        self.authentication.as_ref()?.reported_failure()
    }

    /// Completes a command that belongs to the authentication, or that comes too early. Returns any other command.
    pub(super) fn authenticate(&mut self, command: TargetCommand) -> Option<TargetCommand> {
        let Some(authentication) = &mut self.authentication else { return Some(command) };
        match authentication.answer(&command) {
            None => return Some(command),
            Some(Answer::Status(status)) => self.complete(command.token, status, 0),
            Some(Answer::Message(mut message)) => {
                // Linux fills the whole allocation length too.
                message.resize(command.expects_bytes as usize, 0);
                self.complete_with_data(command.token, command.expects_bytes, |part, out| {
                    out.extend_from_slice(&message[part]);
                    Ok(())
                });
            }
        }
        None
    }
}
