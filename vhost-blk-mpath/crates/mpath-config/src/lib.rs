//! The configuration of vhost-blk-mpath: the file ([`Config`]), addresses ([`address`]), and command lines that share its settings.

#![forbid(unsafe_code)]

pub mod address;
mod completion;
mod config;
mod flags;
mod params;
mod text;
mod usage;

pub use address::{DiscoveryAddress, PathAddress};
pub use completion::{OneOf, completable, one_of};
pub use config::*;
pub use flags::{DiskFlagsError, Flags};
pub use mpath_core::{
    ClassPolicies, ParamError, PolicyChange, PolicyClass, PolicyKind, PolicySpec, SchedulerChange, SchedulerKind,
    SchedulerSpec, parse_bytes, parse_time,
};
pub use text::{ValueError, deserialize_text, name_meant_key, similar_name};
pub use usage::usage_line;

/// The default socket of the API, for daemon and clients.
pub const DEFAULT_API_SOCKET: &str = "/run/vhost-blk-mpath/api.sock";
