//! An NVMe/TCP target in user space: one subsystem, any number of ports, namespaces in memory or in files.
//!
//! It runs as a program (`mpath-target`) and inside tests:
//!
//! ```
//! use mpath_target::{ListenerConfig, NamespaceConfig, TargetConfig, TargetServer};
//!
//! let mut config = TargetConfig::new("nqn.2024-01.com.example:disk1");
//! config.listeners.push(ListenerConfig::new("127.0.0.1:0".parse()?));
//! config.namespaces.push(NamespaceConfig::memory(1 << 20));
//! let server = TargetServer::start(config)?;
//! assert_ne!(server.addrs()[0].port(), 0);
//! server.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The target guarantees the following, so that a host knows when its writes can no longer be executed:
//!
//! * **Drain.** When the host half-closes an I/O connection, the target executes and answers all complete commands, and then
//!   closes its side. EOF on an I/O connection means that no command of this connection is left. If commands may be left, the
//!   connection ends with RST.
//! * **Cross-Controller Reset.** Once it completes with result bit 0 set, no command of that controller instance is executed.
//!   This includes held commands.
//! * **Disabling** a controller, losing its admin connection, or stopping a listener: no further command is executed, except
//!   held commands ([`Hold`]). Held commands show the effect of targets without such a guarantee.
//!
//! [`Setting`]s inject faults, at the start or at any later time.
#![deny(unsafe_code)]
// Only this program and tests use the library. Where names and messages say it all, there is no comment.
#![allow(missing_docs, clippy::must_use_candidate, clippy::return_self_not_must_use)]

pub mod api;
pub mod args;
mod config;
mod dhchap;
mod identity;
mod parse;
mod server;
mod setting;
mod storage;
mod tls_key;

pub use config::{
    Backing, ConfigError, DEFAULT_ANATT_SECONDS, DEFAULT_MAX_CONNECTIONS, ListenerConfig, MAX_LISTENERS,
    MAX_NAMESPACES, MAX_REFERRALS, NamespaceConfig, TargetConfig,
};
pub use dhchap::{SecretFileError, authentication, read_secret};
pub use nvme_tcp::wire::AnaState;
pub use parse::ParseError;
pub use server::{AnaGroupStatus, DiscoveryStatus, ListenerStatus, StartError, TargetServer};
pub use setting::{BlackHole, CrossReset, Hold, MAX_DELAY, Queues, Setting, SettingError};
pub use storage::FileError;
pub use tls_key::{KeyFileError, read_key};
