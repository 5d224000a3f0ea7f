//! A host against a controller, refusals, hostile input, and vectors of another implementation.

mod any_bytes;
mod pairs;
mod refusals;
mod vectors;

use crate::*;

/// The bytes of hexadecimal text. White space is ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// A configuration for both sides: every hash and group, and both secrets.
pub(crate) fn config() -> AuthConfig {
    AuthConfig {
        hostnqn: "nqn.2014-08.org.nvmexpress:uuid:6e0e9d1c-2b3f-4b53-9a4a-3c0c6c0f5a11".to_owned(),
        subnqn: "nqn.2026-01.org.example:disk1".to_owned(),
        host_secret: Secret::new(Some(Hash::Sha256), &[1; 32]).unwrap(),
        controller_secret: Some(Secret::new(Some(Hash::Sha384), &[2; 48]).unwrap()),
        hashes: Hash::ALL.to_vec(),
        groups: DhGroup::ALL.to_vec(),
        concatenation: Concatenation::None,
    }
}

/// Random bytes of a seed.
fn random(seed: u8) -> impl FnOnce(&mut [u8; RANDOM_BYTES]) {
    move |bytes| {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (i as u8).wrapping_mul(seed | 1).wrapping_add(seed);
        }
    }
}

/// How a transaction ended on one side.
type Outcome<E> = Option<Result<Session, E>>;

/// A host and a controller with a wire between them.
struct Pair {
    host: HostAuthentication,
    controller: ControllerAuthentication,
}

impl Pair {
    fn new(host: AuthConfig, controller: AuthConfig) -> Self {
        Self {
            host: HostAuthentication::new(host).unwrap(),
            controller: ControllerAuthentication::new(controller).unwrap(),
        }
    }

    /// Runs a transaction. `wire` may change every message. Outcomes are `None` for a side that still waits.
    fn run(
        &mut self,
        transaction: u16,
        mut wire: impl FnMut(&mut Vec<u8>),
    ) -> (Outcome<HostError>, Outcome<ControllerError>) {
        let (mut host_outcome, mut controller_outcome) = (None, None);
        let mut to_controller = Some(self.host.start(transaction, random(3)));
        while let Some(mut bytes) = to_controller.take() {
            wire(&mut bytes);
            let step = self.controller.receive(&bytes, random(5));
            let Some(mut bytes) = note(step, &mut controller_outcome) else { break };
            wire(&mut bytes);
            if host_outcome.is_none() {
                to_controller = note(self.host.receive(&bytes), &mut host_outcome);
            }
        }
        (host_outcome, controller_outcome)
    }
}

/// Notes the first outcome of a side. Returns the message to send.
fn note<E>(step: Result<Step, Failure<E>>, outcome: &mut Outcome<E>) -> Option<Vec<u8>> {
    match step {
        Ok(Step::Continue { message }) => Some(message),
        Ok(Step::Authenticated { message, session }) => {
            outcome.get_or_insert(Ok(*session));
            message
        }
        Err(Failure { error, message }) => {
            outcome.get_or_insert(Err(error));
            message
        }
    }
}
