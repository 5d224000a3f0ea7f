//! Pre-shared keys (PSKs) of NVMe/TCP with TLS 1.3.
//!
//! An administrator gives host and target the same [`ConfiguredPsk`]. Both derive from this key, in two steps:
//!
//! 1. the retained PSK, which depends on the host's NQN ([`ConfiguredPsk::retained`]);
//! 2. the TLS PSK, which depends on the PSK identity ([`InputPsk::candidate`]).
//!
//! The host sends the identity in its `ClientHello`, and the target finds the TLS PSK by the identity. [`candidates`] lists all
//! pairs of identity and TLS PSK that a target may have stored for one configured PSK.
//!
//! With secure channel concatenation, DH-HMAC-CHAP authentication makes a generated PSK ([`InputPsk::generated`]), which takes
//! the place of the retained PSK. Such a key has one identity ([`generated_candidate`]).
//!
//! This module reads no clock, draws no random numbers and does no I/O. Secret memory is overwritten when it is dropped. No
//! message and no `Debug` output contains secret bytes.
//!
//! Sources: NVM Express TCP Transport Specification, section "Transport Specific Content: TLS" (3.6.1) with TP8018, as
//! libnvme (`src/nvme/linux.c`) and Linux (`drivers/nvme/common/auth.c`, `keyring.c`) quote and implement them.

#![deny(unsafe_code)]

mod derive;
mod error;
mod hkdf;
mod identity;
mod interchange;
mod secret;
mod suite;
#[cfg(test)]
mod tests;

pub use derive::{InputPsk, Origin};
pub use error::{DeriveError, InterchangeError};
pub use hkdf::Derivation;
pub use identity::{Candidate, IdentityVersion, candidates, generated_candidate};
pub use interchange::{ConfiguredPsk, RetainedHash};
pub use secret::Secret;
pub use suite::Suite;
