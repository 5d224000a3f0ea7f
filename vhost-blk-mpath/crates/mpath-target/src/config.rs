//! What a target offers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nvme_tcp::wire::{AnaState, Nqn};
use uuid::Uuid;

use crate::storage::MAX_MEMORY_BYTES;

/// Longest delay of a listener: beyond it every host has long given a command up.
pub const MAX_DELAY: Duration = Duration::from_secs(600);
/// Most listeners of one target.
pub const MAX_LISTENERS: usize = 64;
/// Most namespaces of one target; a list of all of them fits every log page and data structure.
pub const MAX_NAMESPACES: usize = 128;
/// Default of [`TargetConfig::max_connections`].
pub const DEFAULT_MAX_CONNECTIONS: usize = 1024;

/// Everything a [`crate::TargetServer`] is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetConfig {
    /// NVMe qualified name of the one subsystem.
    pub nqn: String,
    /// The subsystem's ports, at least one, in the order of their port ids 1, 2, …
    pub listeners: Vec<ListenerConfig>,
    /// The namespaces, at least one, in the order of their namespace ids 1, 2, …
    pub namespaces: Vec<NamespaceConfig>,
    /// Logical block size of all namespaces in bytes: 512 or 4096.
    pub block_size: u32,
    /// Most connections served at once, over all listeners; one beyond it is closed at once.
    pub max_connections: usize,
}

/// One port of the subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Where to listen; port 0 lets the system choose.
    pub addr: SocketAddr,
    /// Time that each I/O command takes at least, up to [`MAX_DELAY`].
    pub delay: Duration,
    /// How the port reaches the namespaces.
    pub ana: AnaState,
}

/// One namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// Where its bytes live.
    pub backing: Backing,
    /// Size in bytes, a multiple of the block size.
    pub bytes: u64,
    /// Identity that hosts see. Without one, a memory namespace gets a new identity with each start (its
    /// content is new as well), and a file namespace the same one for as long as the file lives.
    pub uuid: Option<Uuid>,
}

/// Where a namespace's bytes live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// In this process, allocated when written, gone at its end.
    Memory,
    /// In a regular file, created if it does not exist.
    File(PathBuf),
}

/// Why a configuration cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a name that a subsystem can have.
    #[error(
        "nqn '{0}' is not a subsystem's name: 'nqn.', then up to 219 bytes without spaces or controls, \
         as in nqn.2024-01.com.example:disk1"
    )]
    Nqn(String),
    /// The name of the discovery service, which this target has not.
    #[error("nqn '{0}' is the discovery service's own: name the subsystem itself")]
    DiscoveryNqn(String),
    /// None, or too many.
    #[error("{0} listeners given: give 1 to {MAX_LISTENERS}")]
    Listeners(usize),
    /// None, or too many.
    #[error("{0} namespaces given: give 1 to {MAX_NAMESPACES}")]
    Namespaces(usize),
    /// Two listeners cannot share an address.
    #[error("listener {0} is given twice: give each its own address or port")]
    ListenerTwice(SocketAddr),
    /// Hosts would take the two for one.
    #[error("uuid {0} is given to two namespaces: give each its own")]
    UuidTwice(Uuid),
    /// One of the two sizes that every host understands.
    #[error("block size {0}: give 512 or 4096")]
    BlockSize(u32),
    /// A namespace is whole blocks, at least one.
    #[error("namespace {nsid} has {bytes} bytes: give a multiple of the block size {block_size}, not zero")]
    NamespaceSize {
        /// Which one.
        nsid: usize,
        /// Its size.
        bytes: u64,
        /// The block size it must be a multiple of.
        block_size: u32,
    },
    /// More than the bookkeeping is made for.
    #[error("namespace {nsid} has {bytes} bytes of memory: give at most 1TiB, or use a file")]
    MemoryTooLarge {
        /// Which one.
        nsid: usize,
        /// Its size.
        bytes: u64,
    },
    /// Longer than any host waits.
    #[error("listener {addr} has a delay of {delay:?}: give at most {MAX_DELAY:?}")]
    Delay {
        /// Which one.
        addr: SocketAddr,
        /// Its delay.
        delay: Duration,
    },
}

impl TargetConfig {
    /// A target with 512-byte blocks and no listeners or namespaces yet.
    #[must_use]
    pub fn new(nqn: impl Into<String>) -> Self {
        Self {
            nqn: nqn.into(),
            listeners: Vec::new(),
            namespaces: Vec::new(),
            block_size: 512,
            max_connections: DEFAULT_MAX_CONNECTIONS,
        }
    }

    /// Whether all of it can work together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let plain = |c: char| !c.is_control() && !c.is_whitespace();
        if !self.nqn.starts_with("nqn.") || self.nqn.len() > 223 || !self.nqn.chars().all(plain) {
            return Err(ConfigError::Nqn(self.nqn.clone()));
        }
        if self.nqn == Nqn::discovery().as_str() {
            return Err(ConfigError::DiscoveryNqn(self.nqn.clone()));
        }
        if !(1..=MAX_LISTENERS).contains(&self.listeners.len()) {
            return Err(ConfigError::Listeners(self.listeners.len()));
        }
        if !(1..=MAX_NAMESPACES).contains(&self.namespaces.len()) {
            return Err(ConfigError::Namespaces(self.namespaces.len()));
        }
        if !matches!(self.block_size, 512 | 4096) {
            return Err(ConfigError::BlockSize(self.block_size));
        }
        for (i, &ListenerConfig { addr, delay, .. }) in self.listeners.iter().enumerate() {
            let twice = self.listeners[..i].iter().any(|other| other.addr == addr);
            if twice && addr.port() != 0 {
                return Err(ConfigError::ListenerTwice(addr));
            }
            if delay > MAX_DELAY {
                return Err(ConfigError::Delay { addr, delay });
            }
        }
        for (i, namespace) in self.namespaces.iter().enumerate() {
            let (nsid, bytes, block_size) = (i + 1, namespace.bytes, self.block_size);
            if bytes == 0 || !bytes.is_multiple_of(u64::from(block_size)) {
                return Err(ConfigError::NamespaceSize { nsid, bytes, block_size });
            }
            if namespace.backing == Backing::Memory && bytes > MAX_MEMORY_BYTES {
                return Err(ConfigError::MemoryTooLarge { nsid, bytes });
            }
            if let Some(uuid) = namespace.uuid
                && self.namespaces[..i].iter().any(|other| other.uuid == Some(uuid))
            {
                return Err(ConfigError::UuidTwice(uuid));
            }
        }
        Ok(())
    }
}

impl ListenerConfig {
    /// A listener without delay, in state optimized.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, delay: Duration::ZERO, ana: AnaState::Optimized }
    }
}

impl NamespaceConfig {
    /// A namespace of `bytes` bytes in memory.
    #[must_use]
    pub fn memory(bytes: u64) -> Self {
        Self { backing: Backing::Memory, bytes, uuid: None }
    }

    /// A namespace of `bytes` bytes in the file at `path`.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>, bytes: u64) -> Self {
        Self { backing: Backing::File(path.into()), bytes, uuid: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> TargetConfig {
        let mut config = TargetConfig::new("nqn.2024-01.com.example:disk1");
        config.listeners.push(ListenerConfig::new("127.0.0.1:0".parse().unwrap()));
        config.namespaces.push(NamespaceConfig::memory(1 << 20));
        config
    }

    #[test]
    fn configurations_that_cannot_work_are_refused() {
        type Change = fn(&mut TargetConfig);
        assert_eq!(valid().validate(), Ok(()));
        let changes: [Change; 10] = [
            |c| c.nqn = "disk1".into(),
            |c| c.nqn = format!("nqn.{}", "x".repeat(220)),
            |c| c.nqn = Nqn::discovery().as_str().into(),
            |c| c.listeners.clear(),
            |c| c.namespaces.clear(),
            |c| c.block_size = 1024,
            |c| c.namespaces[0].bytes = 1000,
            |c| c.namespaces[0].bytes = 1 << 41,
            |c| c.listeners[0].delay = MAX_DELAY + Duration::from_nanos(1),
            |c| {
                c.namespaces[0].uuid = Some(Uuid::from_u128(1));
                c.namespaces.push(c.namespaces[0].clone());
            },
        ];
        for (i, change) in changes.iter().enumerate() {
            let mut config = valid();
            change(&mut config);
            assert!(config.validate().is_err(), "change {i}");
        }
    }

    #[test]
    fn only_chosen_ports_must_differ() {
        let mut config = valid();
        config.listeners.push(config.listeners[0]);
        assert_eq!(config.validate(), Ok(()));
        let addr = "127.0.0.1:4420".parse().unwrap();
        config.listeners.fill(ListenerConfig::new(addr));
        assert_eq!(config.validate(), Err(ConfigError::ListenerTwice(addr)));
    }
}
