//! NVMe in-band authentication with DH-HMAC-CHAP, for a host and for a controller (NVMe Base Specification 2.x, section
//! 8.3.4; section 8.13 in revision 2.0). nvme-cli 3 calls the protocol KX-HMAC-CHAP.
//!
//! This crate opens no sockets, reads no clock, starts no threads and draws no random numbers. The caller moves messages by the
//! commands Authentication Send and Authentication Receive, passes in random bytes, and bounds the time of a transaction.
//!
//! * [`Secret`] is the secret of a host or of a controller, as `nvme gen-dhchap-key` prints it.
//! * [`Message`] is the wire format. It parses and emits every message.
//! * [`HostAuthentication`] is the host of one queue.
//! * [`ControllerAuthentication`] is the controller of one queue.
//!
//! ```text
//! host                                    controller
//!  │ ── AUTH_Negotiate ───────────────────────▶ │  hashes and groups that the host allows
//!  │ ◀─────────────── DH-HMAC-CHAP_Challenge ── │  the choice, challenge C1, public value
//!  │ ── DH-HMAC-CHAP_Reply ───────────────────▶ │  proof of the host, challenge C2, public value
//!  │ ◀──────────────── DH-HMAC-CHAP_Success1 ── │  proof of the controller, if C2 came
//!  │ ── DH-HMAC-CHAP_Success2 ────────────────▶ │  only after a proof of the controller
//! ```
//!
//! The protocol does not protect the lists of the host in `AUTH_Negotiate`. An attacker on the path can remove entries, so each
//! side must list only the hashes and groups that it accepts.
#![forbid(unsafe_code)]

mod config;
mod controller;
mod controller_error;
mod crypto_error;
mod exchange;
mod group;
mod hash;
mod host;
mod host_error;
mod message;
mod names;
mod proof;
mod protocol;
mod random;
mod secret;
mod secret_error;
mod session;
mod step;
#[cfg(test)]
mod tests;
mod violation;

pub use config::{AuthConfig, ConfigError};
pub use controller::ControllerAuthentication;
pub use controller_error::ControllerError;
pub use crypto_error::CryptoError;
pub use exchange::DhValueError;
pub use group::DhGroup;
pub use hash::Hash;
pub use host::HostAuthentication;
pub use host_error::HostError;
pub use message::{
    Challenge, Explanation, Message, MessageError, MessageKind, Negotiate, Reason, Refusal, Reply, Success1,
};
pub use protocol::{Concatenation, MESSAGE_BYTES_MAX};
pub use random::RANDOM_BYTES;
pub use secret::Secret;
pub use secret_error::SecretError;
pub use session::{GeneratedPsk, Session, SessionKey};
pub use step::{Failure, Step};
pub use violation::Violation;
