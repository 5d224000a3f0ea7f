//! The interfaces of vhost-blk-mpath: its configuration file ([`config`]), the types of its control API ([`types`]), the server
//! ([`server`]) and the client ([`client`]) of that API, and listening Unix sockets ([`socket`]).
//!
//! The API is HTTP/1.1 with JSON bodies on a Unix socket.

#![forbid(unsafe_code)]

pub mod address;
pub mod client;
mod completion;
pub mod config;
mod flags;
mod params;
pub mod server;
pub mod socket;
#[cfg(test)]
mod testing;
mod text;
pub mod types;
mod usage;

pub use address::{DiscoveryAddress, PathAddress};
pub use completion::{OneOf, completable, one_of};
pub use config::Config;
pub use flags::{DiskFlagsError, Flags};
pub use mpath_core::{
    ClassPolicies, ParamError, PolicyChange, PolicyClass, PolicyKind, PolicySpec, SchedulerChange, SchedulerKind,
    SchedulerSpec, parse_bytes, parse_time,
};
pub use text::{ValueError, deserialize_text, similar_name};
pub use usage::usage_line;

/// The default socket of the API, for daemon and clients.
pub const DEFAULT_API_SOCKET: &str = "/run/vhost-blk-mpath/api.sock";
