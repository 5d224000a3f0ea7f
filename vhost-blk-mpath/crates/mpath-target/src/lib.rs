//! An NVMe/TCP target in user space: one subsystem, any number of ports, namespaces in memory or in files.
//!
//! It runs as a tool of its own (`mpath-target`) and inside of tests:
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
//! What a host may rely on to know that its writes are over:
//!
//! * **Drain.** When it half-closes an I/O connection, every command it has sent in full is executed and answered before
//!   the target closes its side. An end of the data on an I/O connection always means that nothing of this connection is
//!   left to be executed; where something may be, the connection ends with RST.
//! * **Cross-Controller Reset.** Once it completes with result bit 0 set, no command of that life of the controller is
//!   executed any more, not even a held one.
//! * **Disabling** a controller, losing its admin connection, or stopping a listener: what was not executed by then never
//!   is, unless it is held ([`Hold`]). Holding commands is for showing what happens with targets that give no such promise.
//!
//! Everything else that goes wrong with paths is done by [`Setting`]s, at the start or at any time later.
#![deny(unsafe_code)]

pub mod api;
mod config;
mod identity;
mod parse;
mod server;
mod setting;
mod storage;

pub use config::{
    Backing, ConfigError, DEFAULT_ANATT_SECONDS, DEFAULT_MAX_CONNECTIONS, ListenerConfig, MAX_LISTENERS,
    MAX_NAMESPACES, MAX_REFERRALS, NamespaceConfig, TargetConfig,
};
pub use nvme_tcp::wire::AnaState;
pub use parse::ParseError;
pub use server::{AnaGroupStatus, DiscoveryStatus, ListenerStatus, StartError, TargetServer};
pub use setting::{BlackHole, CrossReset, Hold, MAX_DELAY, Queues, Setting, SettingError};
pub use storage::FileError;
