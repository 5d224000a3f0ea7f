//! The control API of vhost-blk-mpath: its types ([`types`]), its client ([`client`]), and what client and server agree on.
//!
//! The API is HTTP/1.1 with JSON bodies on a Unix socket.

#![forbid(unsafe_code)]

pub mod client;
pub mod types;

use std::time::Duration;

/// The daemon's name in the header `Server`. Its version follows after a slash.
pub const PRODUCT: &str = "vhost-blk-mpath";

/// The longest that a client waits for a disk to be added or removed, or for an upgrade.
pub const DISK_CHANGE_MAX: Duration = Duration::from_secs(60);

/// The most minutes in one answer with a history: two days.
pub const HISTORY_MINUTES_MAX: usize = 2880;

/// The interval of comments in a stream without events. They show a client that has gone.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
