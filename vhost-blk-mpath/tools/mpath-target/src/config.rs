//! The configuration of a target.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use mpath_config::address::Transport;
use nvme_tcp::Authentication;
use nvme_tcp::wire::Nqn;
use nvme_tls::psk::ConfiguredPsk;
use uuid::Uuid;

use crate::parse::{ParseError, parse_addr, parse_size, parse_transport, parse_uuid, parse_word};
use crate::setting::{Setting, SettingError, check_for_target};
use crate::storage::MAX_MEMORY_BYTES;

/// The most listeners of a target.
pub const MAX_LISTENERS: usize = 64;
/// The most referrals of the discovery service.
pub const MAX_REFERRALS: usize = 64;
/// The most namespaces of a target. A list of this many fits each log page and data structure.
pub const MAX_NAMESPACES: usize = 128;
/// The default of [`TargetConfig::max_connections`].
pub const DEFAULT_MAX_CONNECTIONS: usize = 1024;

/// The default of [`TargetConfig::anatt_seconds`].
pub const DEFAULT_ANATT_SECONDS: u8 = 10;

/// The configuration of a [`crate::TargetServer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetConfig {
    pub nqn: String,
    /// The ports of the subsystem, at least one, by port ID from 1.
    pub listeners: Vec<ListenerConfig>,
    /// The namespaces, at least one, by NSID from 1.
    pub namespaces: Vec<NamespaceConfig>,
    /// The logical block size of all namespaces in bytes: 512 or 4096.
    pub block_size: u32,
    /// ANATT in seconds, at least 1: the announced limit of the ANA state "change". The target does not enforce it.
    pub anatt_seconds: u8,
    /// The most connections of all listeners together. Further connections are closed immediately.
    pub max_connections: usize,
    /// The address of the discovery service, if there is one. With port 0 the system chooses the port.
    pub discovery: Option<SocketAddr>,
    /// Other discovery services, to which this one refers.
    pub referrals: Vec<SocketAddr>,
    /// The key of the subsystem for every host. With a key, the listeners accept only TLS.
    pub tls_key: Option<ConfiguredPsk>,
    /// The key of the discovery service for every host. With a key, the service accepts only TLS.
    pub discovery_tls_key: Option<ConfiguredPsk>,
    /// The secrets of the authentication for every host. With them, each queue of the subsystem is authenticated. The discovery
    /// service never is.
    pub authentication: Option<Authentication>,
}

/// The configuration of one port of the subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The address to listen on. With port 0 the system chooses the port.
    pub addr: SocketAddr,
    /// The transport of its connections. A listener for MPTCP accepts plain TCP too.
    pub transport: Transport,
    /// The address in the discovery log, if hosts need another one than `addr`.
    pub advertise: Option<SocketAddr>,
    /// Whether connections are in clear text although the target has a TLS key.
    pub is_clear_text: bool,
    /// The initial settings, in order.
    pub settings: Vec<Setting>,
}

/// The configuration of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceConfig {
    pub backing: Backing,
    /// The size in bytes, a multiple of the block size.
    pub bytes: u64,
    /// The UUID. Without one, a memory namespace gets a new UUID at each start, as its data are new. A file namespace keeps its
    /// UUID as long as the file exists.
    pub uuid: Option<Uuid>,
}

/// The storage of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// Memory of this process, allocated when written.
    Memory,
    /// A regular file, created if it does not exist.
    File(PathBuf),
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "nqn '{0}' is not a valid subsystem name: give 'nqn.' and up to 219 bytes without spaces and control characters, \
         as in nqn.2024-01.com.example:disk1"
    )]
    Nqn(String),
    #[error("nqn '{0}' is reserved for the discovery service: give the NQN of the subsystem")]
    DiscoveryNqn(String),
    #[error("{0} listeners given: give 1 to {MAX_LISTENERS}")]
    Listeners(usize),
    #[error("{0} namespaces given: give 1 to {MAX_NAMESPACES}")]
    Namespaces(usize),
    #[error("listener {0} is given twice: give each listener a different address or port")]
    ListenerTwice(SocketAddr),
    /// Two namespaces have the same UUID, so hosts would take them for one.
    #[error("uuid {0} is given to two namespaces: give each namespace a different UUID")]
    UuidTwice(Uuid),
    #[error("block size {0}: give 512 or 4096")]
    BlockSize(u32),
    #[error("ANATT of 0: give 1 to 255 seconds")]
    Anatt,
    #[error("namespace {nsid} has {bytes} bytes: give a multiple of the block size {block_size}, at least one block")]
    NamespaceSize { nsid: usize, bytes: u64, block_size: u32 },
    #[error("namespace {nsid} has {bytes} bytes of memory: give at most 1TiB, or use a file")]
    MemoryTooLarge { nsid: usize, bytes: u64 },
    #[error("listener {0} listens on all addresses: give advertise=IP:PORT for the discovery service")]
    NotAdvertised(SocketAddr),
    #[error("{0} referrals given: give at most {MAX_REFERRALS}, and only with --discovery")]
    Referrals(usize),
    #[error("listener {0} has tls=off: leave that out, because with --concat no listener serves hosts in clear text")]
    ClearText(SocketAddr),
    #[error("authentication: {0}")]
    Authentication(#[from] nvme_auth::ConfigError),
    #[error("listener {addr}: {source}")]
    Setting { addr: SocketAddr, source: SettingError },
}

impl TargetConfig {
    /// A target with 512-byte blocks, without listeners and namespaces.
    pub fn new(nqn: impl Into<String>) -> Self {
        Self {
            nqn: nqn.into(),
            listeners: Vec::new(),
            namespaces: Vec::new(),
            block_size: 512,
            anatt_seconds: DEFAULT_ANATT_SECONDS,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            discovery: None,
            referrals: Vec::new(),
            tls_key: None,
            discovery_tls_key: None,
            authentication: None,
        }
    }

    /// Checks that the configuration is valid.
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
        if self.anatt_seconds == 0 {
            return Err(ConfigError::Anatt);
        }
        for (i, &ListenerConfig { addr, advertise, ref settings, .. }) in self.listeners.iter().enumerate() {
            let is_repeated = self.listeners[..i].iter().any(|other| other.addr == addr);
            if is_repeated && addr.port() != 0 {
                return Err(ConfigError::ListenerTwice(addr));
            }
            for setting in settings {
                check_for_target(setting, self.namespaces.len(), self.block_size)
                    .map_err(|source| ConfigError::Setting { addr, source })?;
            }
            if self.discovery.is_some() && addr.ip().is_unspecified() && advertise.is_none() {
                return Err(ConfigError::NotAdvertised(addr));
            }
        }
        if let Some(authentication) = &self.authentication {
            authentication.validate()?;
            let clear = self.listeners.iter().find(|listener| listener.is_clear_text);
            if let Some(listener) = clear.filter(|_| authentication.concatenation.is_requested()) {
                return Err(ConfigError::ClearText(listener.addr));
            }
        }
        let most = if self.discovery.is_some() { MAX_REFERRALS } else { 0 };
        if self.referrals.len() > most {
            return Err(ConfigError::Referrals(self.referrals.len()));
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
    /// A listener for plain TCP without settings.
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, transport: Transport::Tcp, advertise: None, is_clear_text: false, settings: Vec::new() }
    }
}

impl NamespaceConfig {
    /// A namespace of `bytes` bytes in memory.
    pub fn memory(bytes: u64) -> Self {
        Self { backing: Backing::Memory, bytes, uuid: None }
    }

    /// A namespace of `bytes` bytes in the file at `path`.
    pub fn file(path: impl Into<PathBuf>, bytes: u64) -> Self {
        Self { backing: Backing::File(path.into()), bytes, uuid: None }
    }
}

/// `IP:PORT[,transport=tcp|mptcp][,advertise=IP:PORT][,tls=off][,SETTING]...`
impl FromStr for ListenerConfig {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parts = text.split(',');
        let mut listener = Self::new(parse_addr(parts.next().unwrap_or_default())?);
        for part in parts {
            match part.split_once('=') {
                Some(("advertise", addr)) => listener.advertise = Some(parse_addr(addr)?),
                Some(("tls", word)) => listener.is_clear_text = parse_word("tls", &[("off", true)], word)?,
                Some(("transport", transport)) => listener.transport = parse_transport(transport)?,
                _ => listener.settings.push(part.parse()?),
            }
        }
        Ok(listener)
    }
}

/// `mem:SIZE[,uuid=UUID]` or `file:PATH:SIZE[,uuid=UUID]`
impl FromStr for NamespaceConfig {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (text, uuid) = match text.rsplit_once(",uuid=") {
            Some((rest, uuid)) => (rest, Some(parse_uuid(uuid)?)),
            None => (text, None),
        };
        let unknown = || ParseError::Namespace(text.to_owned());
        let namespace = match text.split_once(':').ok_or_else(unknown)? {
            ("mem", size) => Self::memory(parse_size(size)?),
            ("file", rest) => {
                let (path, size) = rest.rsplit_once(':').ok_or_else(unknown)?;
                if path.is_empty() {
                    return Err(unknown());
                }
                Self::file(path, parse_size(size)?)
            }
            _ => return Err(unknown()),
        };
        Ok(Self { uuid, ..namespace })
    }
}

#[cfg(test)]
mod tests {
    use monotonic::Duration;
    use nvme_tcp::wire::AnaState;

    use super::*;

    fn valid() -> TargetConfig {
        let mut config = TargetConfig::new("nqn.2024-01.com.example:disk1");
        config.listeners.push(ListenerConfig::new("127.0.0.1:0".parse().unwrap()));
        config.namespaces.push(NamespaceConfig::memory(1 << 20));
        config
    }

    #[test]
    fn invalid_configurations_are_refused() {
        type Change = fn(&mut TargetConfig);
        assert_eq!(valid().validate(), Ok(()));
        let changes: [Change; 13] = [
            |c| c.nqn = "disk1".into(),
            |c| c.nqn = format!("nqn.{}", "x".repeat(220)),
            |c| c.nqn = Nqn::discovery().as_str().into(),
            |c| c.listeners.clear(),
            |c| c.namespaces.clear(),
            |c| c.block_size = 1024,
            |c| c.anatt_seconds = 0,
            |c| c.namespaces[0].bytes = 1000,
            |c| c.namespaces[0].bytes = 1 << 41,
            |c| c.referrals.push("192.0.2.1:8009".parse().unwrap()),
            |c| {
                c.discovery = Some("127.0.0.1:0".parse().unwrap());
                c.listeners[0].addr = "0.0.0.0:4420".parse().unwrap();
            },
            |c| {
                c.discovery = Some("127.0.0.1:0".parse().unwrap());
                c.referrals = vec!["192.0.2.1:8009".parse().unwrap(); MAX_REFERRALS + 1];
            },
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
    fn only_explicit_ports_must_differ() {
        let mut config = valid();
        config.listeners.push(config.listeners[0].clone());
        assert_eq!(config.validate(), Ok(()));
        let addr = "127.0.0.1:4420".parse().unwrap();
        config.listeners.fill(ListenerConfig::new(addr));
        assert_eq!(config.validate(), Err(ConfigError::ListenerTwice(addr)));
    }

    #[test]
    fn a_listener_with_settings_parses() {
        let text = "127.0.0.1:4421,delay=250us,advertise=192.0.2.1:4420,transport=mptcp,ana=2:non-optimized";
        let listener: ListenerConfig = text.parse().unwrap();
        assert_eq!(listener.addr, "127.0.0.1:4421".parse().unwrap());
        assert_eq!(listener.advertise, Some("192.0.2.1:4420".parse().unwrap()));
        assert_eq!(listener.transport, Transport::Mptcp);
        let delay = Setting::Delay(Duration::from_micros(250));
        let ana = Setting::Ana { group: Some(2), state: AnaState::NonOptimized };
        assert_eq!(listener.settings, [delay, ana]);
    }

    #[test]
    fn a_plain_listener_has_no_settings() {
        let listener: ListenerConfig = "[::1]:0".parse().unwrap();
        assert_eq!(listener, ListenerConfig::new("[::1]:0".parse().unwrap()));
    }

    #[test]
    fn errors_of_listeners_name_field_and_value() {
        let parse = |text: &str| text.parse::<ListenerConfig>().unwrap_err();
        assert_eq!(parse("localhost"), ParseError::Address("localhost".into()));
        assert_eq!(parse("1.2.3.4:1,advertise=x"), ParseError::Address("x".into()));
        assert!(matches!(parse("1.2.3.4:1,transport=sctp"), ParseError::Word { field: "transport", .. }));
        assert!(matches!(parse("1.2.3.4:1,ana=up"), ParseError::Word { field: "ana", .. }));
        assert_eq!(parse("1.2.3.4:1,speed=1"), ParseError::Setting("speed=1".into()));
        assert_eq!(parse("1.2.3.4:1,"), ParseError::Setting(String::new()));
        for text in ["30", "ms", "-1ms", "601s", "99999999999999999999s"] {
            let max = Duration::from_secs(600);
            let error = ParseError::Time { field: "delay", text: text.into(), max };
            assert_eq!(parse(&format!("1.2.3.4:1,delay={text}")), error);
        }
    }

    #[test]
    fn namespaces_parse_or_name_the_wrong_value() {
        let uuid = "12345678-1234-4234-8234-123456789abc";
        assert_eq!("mem:1GiB".parse(), Ok(NamespaceConfig::memory(1 << 30)));
        assert_eq!("file:/a:b:512".parse(), Ok(NamespaceConfig::file("/a:b", 512)));
        let with_uuid: NamespaceConfig = format!("mem:4KiB,uuid={uuid}").parse().unwrap();
        assert_eq!(with_uuid.uuid, Some(uuid.parse().unwrap()));
        let parse = |text: &str| text.parse::<NamespaceConfig>().unwrap_err();
        assert_eq!(parse("mem"), ParseError::Namespace("mem".into()));
        assert_eq!(parse("ram:1"), ParseError::Namespace("ram:1".into()));
        assert_eq!(parse("file:/x"), ParseError::Namespace("file:/x".into()));
        assert_eq!(parse("mem:1GB"), ParseError::Size("1GB".into()));
        assert_eq!(parse("mem:17000000TiB"), ParseError::Size("17000000TiB".into()));
        assert_eq!(parse("mem:1,uuid=7"), ParseError::Uuid("7".into()));
    }
}
