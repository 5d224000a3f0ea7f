//! Decides: this is said about the generation of a key for TLS.
//!
//! The first connection of an association with secure channel concatenation (Base 8.3.4.5.9).
//!
//! ```text
//! ICReq → Connect → authentication with NEWTLSPSK → the generated PSK
//! ```
//!
//! The connection is in clear text, and carries nothing else. The caller limits its time and closes it. Then the caller opens all
//! connections of the association over TLS 1.3 with a key that is derived from the generated PSK.

use monotonic::Instant;
use nvme_auth::{Concatenation, GeneratedPsk};

use super::admin::{AdminConfig, AdminError, AdminSession};
use super::config::ConfigError;
use super::controller::ControllerConfig;
use crate::authentication::{Authenticated, Authentication};

/// The host of the first connection. The module describes what happens on it.
#[derive(Debug)]
pub struct HostConcatenation(AdminSession<AdminError>);

impl HostConcatenation {
    /// The host of a fresh connection in clear text. `config` is that of the association, and `authentication` has its secrets.
    /// Without a secret of the controller, any machine can pose as the controller.
    ///
    /// # Errors
    /// KATO is out of range.
    pub fn new(config: &ControllerConfig, authentication: &Authentication, now: Instant) -> Result<Self, ConfigError> {
        let concatenation = Concatenation::NewTlsPsk;
        let admin = AdminConfig {
            host: config.host.clone(),
            subnqn: config.subnqn.clone(),
            // If the end of the connection is lost, the controller ends by its timer.
            keep_alive_tmo: Some(config.keep_alive_tmo),
            digests: config.digests,
            command_timeout: config.command_timeout,
            authentication: Some(Authentication { concatenation, ..authentication.clone() }),
            is_encrypted: false,
        };
        AdminSession::new(admin, now).map(Self)
    }

    /// Appends all bytes that are ready to send. They count as handed to the socket.
    pub fn fill_tx(&mut self, out: &mut Vec<u8>) {
        self.0.fill_tx(out);
    }

    /// Takes bytes from the connection, split at any place. Returns the generated PSK at the end of the authentication.
    ///
    /// # Errors
    /// The controller refuses, or is refused. The connection has ended.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<(GeneratedPsk, Authenticated)>, AdminError> {
        self.0.check()?;
        let outcome = self.0.receive(bytes);
        self.0.keep_error(outcome)?;
        Ok(self.0.queue.generated_psk().zip(self.0.queue.authenticated()))
    }

    /// After an error of [`receive`](Self::receive): the PDU that reports the error to the controller. `None` if there is nothing
    /// to report.
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        self.0.queue.term_req()
    }
}
