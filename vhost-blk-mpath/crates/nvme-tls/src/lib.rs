//! TLS for NVMe/TCP without I/O.
//!
//! [`psk`] has the pre-shared keys: their interchange format, their derivation, and the identities that a host offers.

pub mod psk;
