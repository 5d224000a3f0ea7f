//! The host's side of a connection: [`HostQueue`], one queue pair that carries the I/O of namespaces, [`HostController`], the
//! admin queue that finds out what there is to carry and keeps the association alive, and [`HostDiscovery`], the admin queue
//! of a discovery controller, which says where subsystems are.
//!
//! ```text
//!              submit ──► requests ──► QueuePair ──► fill_tx ──► socket
//!  poll_completion ◄──    (split,   ◄── (CIDs, R2T,  ◄── receive ◄── socket
//!                          join)        PDUs, checks)
//! ```
//! The queue pair below them knows capsules and data but not what they mean; each of the three owns one.

mod admin_queue;
mod config;
mod controller;
mod discovery;
mod error;
mod header_buffer;
mod identity;
mod keep_alive;
mod lay_out;
mod pair;
mod queue;
mod receive;
mod request;
mod slots;
mod split;
mod transfer_limit;
mod transmit;

#[cfg(test)]
mod tests;

pub use config::{
    CommandLimits, ConfigError, HostIdentity, NamespaceLimits, QUEUE_ENTRIES_MAX, QUEUE_ENTRIES_MIN, QueueConfig,
};
pub use controller::{
    ControllerConfig, ControllerError, ControllerEvent, ControllerInfo, CrossResetOutcome, CrossResetRefusal,
    HostController, Namespace, NamespaceError, Step, Unsupported,
};
pub use discovery::{
    DiscoveryConfig, DiscoveryError, DiscoveryEvent, DiscoveryLog, DiscoveryLogError, DiscoveryStep, HostDiscovery,
    LOG_RECORDS_MAX, REFERRAL_DEPTH_MAX, REFERRALS_MAX, Referral, Referrals, UnusableEntry, referrals, tcp_address,
};
pub use error::{ConnectError, ProtocolError, QueueError};
pub use identity::{IdentityMismatch, NamespaceIdentity};
pub use queue::HostQueue;
pub use receive::DirectRecv;
pub use request::{Answered, Completion, IoCommand, Lost, Recalled, SubmitError, Tag};
pub use transfer_limit::UNKNOWN_MAX_TRANSFER_BYTES;
pub use transmit::{COPY_MAX, NoPayload, PayloadSink, PayloadSource, STAGING_MIN, TxPart};
