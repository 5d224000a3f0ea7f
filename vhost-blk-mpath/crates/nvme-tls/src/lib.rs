//! TLS 1.3 for NVMe/TCP without I/O.
//!
//! [`psk`] has the pre-shared keys: their interchange format, their derivation, and the identities that a host offers. [`Session`]
//! is a connection without its socket.

mod error;
mod pipe;
pub mod psk;
mod psk_callbacks;
mod session;
#[cfg(test)]
mod tests;

pub use error::TlsError;
pub use psk_callbacks::KeyLookup;
pub use session::{Session, SetupError};
