//! The host's side of a connection.
//!
//! * [`HostController`] is the admin queue of an association: it identifies namespaces and keeps the association alive.
//! * [`HostQueue`] is an I/O queue: one queue pair that carries the I/O of namespaces.
//! * [`HostDiscovery`] is the admin queue of a discovery controller, which lists the addresses of subsystems.
//! * [`HostConcatenation`] is the connection in clear text on which an association with secure channel concatenation begins.
//!
//! ```text
//!              submit ──► requests ──► QueuePair ──► fill_tx ──► socket
//!  poll_completion ◄──    (split,   ◄── (CIDs, R2T,  ◄── receive ◄── socket
//!                          join)        PDUs, checks)
//! ```
//! Each of them owns a queue pair, which moves capsules and data and does not interpret them.

mod admin;
mod authentication;
mod command_table;
mod concatenation;
mod config;
mod controller;
mod discovery;
mod error;
mod header_buffer;
mod identity;
mod queue;
mod queue_pair;
mod receive;
mod request;
mod send;
mod split;
mod staging;
mod transfer_limit;

#[cfg(test)]
mod tests;

pub use admin::{AdminError, Step};
pub use concatenation::HostConcatenation;
pub use config::{
    CommandLimits, ConfigError, HostIdentity, NamespaceLimits, QUEUE_ENTRIES_MAX, QUEUE_ENTRIES_MIN, QueueConfig,
};
pub use controller::{
    ControllerConfig, ControllerError, ControllerEvent, ControllerInfo, CrossResetOutcome, CrossResetRefusal,
    HostController, Namespace, NamespaceError, Unsupported,
};
pub use discovery::{
    DiscoveryConfig, DiscoveryError, DiscoveryEvent, DiscoveryLog, DiscoveryLogError, HostDiscovery, LOG_RECORDS_MAX,
    REFERRAL_DEPTH_MAX, REFERRALS_MAX, Referral, Referrals, UnusableEntry, referrals, tcp_address,
};
pub use error::{AuthenticationCommand, ConnectError, ProtocolError, QueueError};
pub use identity::{IdentityMismatch, NamespaceIdentity};
pub use queue::HostQueue;
pub use receive::DirectRecv;
pub use request::{AbandonedAnswers, Completion, IoCommand, LostRequest, Part, RecallOutcome, SubmitError, Tag};
pub use staging::{COPY_MAX, NoPayload, PayloadSink, PayloadSource, STAGING_MIN, TxPart};
pub use transfer_limit::UNKNOWN_MAX_TRANSFER_BYTES;
