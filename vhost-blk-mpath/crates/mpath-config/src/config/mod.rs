//! The daemon's configuration file.
//!
//! Each value has a type that checks it while the file is read, so that an error has a line and a column. The daemon's flags
//! build the same types. [`Config::validate`] checks values against each other.

mod access;
mod check;
mod difference;
mod disk;
mod edit;
mod error;
mod hedge;
mod key_file;
mod limits;
mod live;
mod metrics_address;
mod min_paths;
mod on_off;
mod poll;
mod reader;
mod sharer;
mod size;
mod time;
mod validate;
mod value;
mod wait_for;
mod written;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::access::{Account, SocketAccess, SocketMode};
pub use self::check::{place_of, settings_in};
pub use self::difference::{Applies, Change, difference};
pub use self::disk::{
    CtrlLossTmo, DiskConfig, FastIoFailTmo, IoTimeout, KeepAliveTmo, MaxTransfer, NamespaceId, QueueCount,
    QueueEntries, ReconnectDelay, SuspectTimeout, Weight, WindowBytes, WindowConfig, WindowIos, default_keep_alive_tmo,
    default_queue_size, default_reconnect_delay,
};
pub use self::edit::{EditError, edit};
pub use self::error::{ConfigError, ConflictError, LoadError};
pub use self::hedge::{Hedge, HedgeBudget, HedgeSetting};
pub(crate) use self::key_file::looks_like_key;
pub use self::key_file::{KeyFile, KeyFileError};
pub use self::limits::{LimitBandwidth, LimitBurst, LimitIops, LimitsConfig, LimitsSchema, PerSecond};
pub use self::live::{LiveSetting, LiveSettings, SetLimits, SetPolicy, SetScheduler, SetSettings, is_live};
pub use self::metrics_address::MetricsAddress;
pub use self::min_paths::MinPaths;
pub use self::poll::PollUs;
pub use self::sharer::SharerConfig;
pub use self::size::Size;
pub use self::time::{Seconds, Time};
pub use self::validate::DiskPlace;
pub use self::value::{Bounded, DiskName, HostId, Nqn, SocketPath};
pub use self::wait_for::WaitFor;
pub use self::written::{written, written_disk};
use crate::{DEFAULT_API_SOCKET, one_of};

/// The largest configuration file read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The most disks of one daemon, including those that share paths.
pub const MAX_DISKS: usize = 256;
/// The most paths of one disk.
pub const MAX_PATHS: usize = 64;
/// The most disks over one set of paths, including the disk that has them.
pub const MAX_SHARING: usize = 64;
/// The most discovery controllers of one disk.
pub const MAX_DISCOVERY: usize = 8;

/// The most I/O threads of a daemon, if neither `io-thread-pool` nor `io-threads` says more.
const POOL_BY_DEFAULT: usize = 4;

/// A number of I/O threads, 1 to 64.
pub type IoThreads = Bounded<1, 64>;
/// The largest size of the histories of all disks together.
pub type HistorySize = Size<{ 1 << 20 }, { 1 << 30 }>;

/// The configuration. Keys are kebab-case. Unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a mapping of settings")]
#[group(id = "Config")]
pub struct Config {
    /// The Unix socket of the control API. Default: `/run/vhost-blk-mpath/api.sock`.
    #[serde(default = "default_api")]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub api: SocketPath,

    /// The mode of the API socket, such as `0660`. Default: `0600`, for its owner only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "MODE")]
    pub api_mode: Option<SocketMode>,

    /// The owner of the API socket, a name or a number. Default: the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "USER")]
    pub api_owner: Option<Account>,

    /// The group of the API socket, a name or a number. Default: the daemon's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "GROUP")]
    pub api_group: Option<Account>,

    /// A Unix socket of the control API on which nothing can be changed. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub api_read_only: Option<SocketPath>,

    /// The mode of that socket, such as `0666`. Default: `0600`, for its owner only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "MODE", requires = "api_read_only")]
    pub api_read_only_mode: Option<SocketMode>,

    /// The owner of that socket, a name or a number. Default: the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "USER", requires = "api_read_only")]
    pub api_read_only_owner: Option<Account>,

    /// The group of that socket, a name or a number. Default: the daemon's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "GROUP", requires = "api_read_only")]
    pub api_read_only_group: Option<Account>,

    /// The address for Prometheus, such as `127.0.0.1:9464`: `GET /metrics` over TCP, and nothing else. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_address: Option<MetricsAddress>,

    /// The number of I/O threads that serve each disk, 1 to 64. The virtqueues of the disk are distributed over them. Disks that share
    /// paths share the threads too. Default: 1.
    #[serde(default = "default_io_threads")]
    #[arg(long, value_name = "N")]
    pub io_threads: IoThreads,

    /// The number of I/O threads of the daemon, 1 to 64. Each serves many disks. Not fewer than `io-threads`. Default: as many as
    /// processors that the daemon may use, but at most 4, and at least `io-threads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N")]
    pub io_thread_pool: Option<IoThreads>,

    /// The largest size of the histories of all disks together, 1MiB to 1GiB. They are next to the disks' sockets.
    /// Default: `64MiB`.
    #[serde(default = "default_history_size")]
    #[arg(long, value_name = "SIZE")]
    pub history_size: HistorySize,

    /// The paths that have to be live before the daemon reports that it is ready: `none`, `any` (one of each disk) or `all`. With
    /// `any` and `all`, the daemon ends if the first attempts do not bring that about. Default: `none`.
    #[serde(default)]
    #[arg(long, value_name = "WHICH", value_parser = one_of::<WaitFor>(["none", "any", "all"]))]
    pub wait_for: WaitFor,

    /// The NQN of this host. Default: the contents of `/etc/nvme/hostnqn`. Without that file: an NQN made from the host identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NQN")]
    pub hostnqn: Option<Nqn>,

    /// The host identifier, a UUID. Default: the contents of `/etc/nvme/hostid`. Without that file: the UUID in the name of the host, or
    /// one made from that name. Without a name: random at each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "UUID")]
    pub hostid: Option<HostId>,

    /// The disks, 1 to 256, including those in `share-paths-with`. Required.
    #[arg(skip)]
    pub disks: Vec<DiskConfig>,
}

/// The disks of a configuration, without the settings of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of settings")]
pub struct DiskList {
    /// The disks, as in [`Config::disks`].
    pub disks: Vec<DiskConfig>,
}

impl DiskList {
    /// Reads and checks `source`. Messages call it `name`.
    pub fn read(name: &Path, source: impl Read) -> Result<Self, LoadError> {
        load(name, &read_text(name, source)?, |text| {
            let list: Self = reader::read(text)?;
            Config::new(list.disks.clone()).validate()?;
            Ok(list)
        })
    }
}

/// Reads a text of bounded length. Messages call its source `name`.
pub fn read_text(name: &Path, source: impl Read) -> Result<String, LoadError> {
    let mut text = String::new();
    let read = source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|source| LoadError::Read { path: name.into(), source })?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(LoadError::TooLarge { path: name.into(), max_bytes: MAX_FILE_BYTES });
    }
    Ok(text)
}

/// Reads the text of a file.
pub fn read_file(path: &Path) -> Result<String, LoadError> {
    let file = File::open(path).map_err(|source| LoadError::Read { path: path.into(), source })?;
    read_text(path, file)
}

fn load<T>(name: &Path, text: &str, parse: impl FnOnce(&str) -> Result<T, ConfigError>) -> Result<T, LoadError> {
    parse(text).map_err(|source| LoadError::Invalid { path: name.into(), source })
}

impl Config {
    /// A configuration with every optional setting at its default.
    #[must_use]
    pub fn new(disks: Vec<DiskConfig>) -> Self {
        Self {
            api: default_api(),
            api_mode: None,
            api_owner: None,
            api_group: None,
            api_read_only: None,
            api_read_only_mode: None,
            api_read_only_owner: None,
            api_read_only_group: None,
            metrics_address: None,
            io_threads: default_io_threads(),
            io_thread_pool: None,
            history_size: default_history_size(),
            wait_for: WaitFor::default(),
            hostnqn: None,
            hostid: None,
            disks,
        }
    }

    /// The number of I/O threads of the daemon, which may use this many processors.
    #[must_use]
    pub fn io_thread_count(&self, processors: usize) -> u16 {
        let by_default = self.io_threads.get().max(processors.min(POOL_BY_DEFAULT) as u32);
        self.io_thread_pool.map_or(by_default, Bounded::get) as u16
    }

    /// Mode, owner and group of the API socket.
    #[must_use]
    pub fn api_access(&self) -> SocketAccess {
        SocketAccess { mode: self.api_mode, owner: self.api_owner.clone(), group: self.api_group.clone() }
    }

    /// Mode, owner and group of the API socket that only reads.
    #[must_use]
    pub fn api_read_only_access(&self) -> SocketAccess {
        let (mode, owner) = (self.api_read_only_mode, self.api_read_only_owner.clone());
        SocketAccess { mode, owner, group: self.api_read_only_group.clone() }
    }

    /// The sockets of the API.
    pub fn api_sockets(&self) -> impl Iterator<Item = &SocketPath> {
        [&self.api].into_iter().chain(&self.api_read_only)
    }

    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::parse_file(path, &read_file(path)?)
    }

    /// Reads and checks the text of a file. Messages call it `name`.
    pub fn parse_file(name: &Path, text: &str) -> Result<Self, LoadError> {
        load(name, text, Self::parse)
    }

    /// Reads and checks a text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = reader::read(text)?;
        config.validate()?;
        Ok(config)
    }
}

fn default_api() -> SocketPath {
    DEFAULT_API_SOCKET.parse().expect("our own default is a socket path")
}

fn default_history_size() -> HistorySize {
    HistorySize::constant(64 << 20)
}

fn default_io_threads() -> IoThreads {
    IoThreads::constant(1)
}

#[cfg(test)]
mod tests;
