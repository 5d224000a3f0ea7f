//! Errors of a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{DiskName, DiskPlace, MAX_DISCOVERY, MAX_DISKS, MAX_PATHS, MAX_SHARING, NamespaceId, Nqn, SocketPath};
use crate::address::{DiscoveryAddress, PathAddress};
use crate::text::name_meant_key;

/// Why a configuration file cannot be used. The text begins with the name of the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be opened or read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is larger than any configuration.
    #[error("{}: larger than {max_bytes} bytes; name a configuration file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        max_bytes: u64,
    },
    /// The contents are no configuration. Shown as `FILE:LINE:COL: message` where the place is known.
    #[error("{}:{source}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The error.
        source: ConfigError,
    },
}

/// Why a text is no configuration.
///
/// Shown as `LINE:COL: message`, or as ` message` without a single place, so that a file name and a colon can go in front.
#[derive(Debug)]
pub enum ConfigError {
    /// Not YAML, an unknown or missing key, or a value that its type refuses.
    Yaml(serde_yaml::Error),
    /// Values that contradict each other.
    Conflict {
        /// The values.
        error: Box<ConflictError>,
        /// Line and column of the value, if they are known.
        place: Option<(usize, usize)>,
    },
}

impl std::error::Error for ConfigError {}

impl From<ConflictError> for ConfigError {
    fn from(error: ConflictError) -> Self {
        Self::Conflict { error: error.into(), place: None }
    }
}

impl ConfigError {
    /// Line and column, from 1, if they are known.
    #[must_use]
    pub fn place(&self) -> Option<(usize, usize)> {
        match self {
            Self::Yaml(error) => error.location().map(|at| (at.line(), at.column())),
            Self::Conflict { place, .. } => *place,
        }
    }

    /// The error without its place, on one line.
    #[must_use]
    pub fn message(&self) -> String {
        let error = match self {
            Self::Yaml(error) => error,
            Self::Conflict { error, .. } => return error.to_string(),
        };
        // Quoted values may hold control characters, and an error is one line.
        let mut message = name_meant_key(&one_line(&error.to_string()));
        if let Some(at) = error.location() {
            // The message has the place at its end, and a scanner's message also within.
            message = message.replace(&format!(" at line {} column {}", at.line(), at.column()), "");
            message.push_str(hint_for_sharer(&message));
        }
        message
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some((line, column)) => write!(f, "{line}:{column}: {}", self.message()),
            None => write!(f, " {}", self.message()),
        }
    }
}

/// A hint for an unknown setting of a disk that shares paths: most such settings belong to the disk that has the paths.
fn hint_for_sharer(message: &str) -> &'static str {
    let is_sharer = message
        .split_once("]: unknown field ")
        .is_some_and(|(place, _)| place.rsplit_once('[').is_some_and(|(list, _)| list.ends_with(".share-paths-with")));
    if is_sharer { "; set everything else on the disk that has the paths, for all that share them" } else { "" }
}

fn one_line(text: &str) -> String {
    let escape = |c: char| {
        if c.is_control() { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(escape).collect()
}

/// Values that contradict each other. Positions count from 0, as in the path of a YAML error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConflictError {
    /// No disk, or too many.
    #[error("disks: {count} given{}; give 1 to {MAX_DISKS}", SharingCount(*.sharing))]
    DiskCount {
        /// How many.
        count: usize,
        /// How many of them share the paths of another disk.
        sharing: usize,
    },
    /// `hostnqn` is no NVMe qualified name.
    #[error(
        "hostnqn: `{name}` does not start with `nqn.`; give nqn.YYYY-MM.REVERSE.DOMAIN:NAME or \
         nqn.2014-08.org.nvmexpress:uuid:UUID, as in /etc/nvme/hostnqn"
    )]
    HostNqn {
        /// The name.
        name: Nqn,
    },
    /// No path and no discovery controller.
    #[error("disks[{disk}].paths: 0 given; give 1 to {MAX_PATHS}, or a discovery controller in `discovery`")]
    NoPath {
        /// Position of the disk.
        disk: usize,
    },
    /// Too many discovery controllers.
    #[error("disks[{disk}].discovery: {count} given; give {MAX_DISCOVERY} at most")]
    DiscoveryCount {
        /// Position of the disk.
        disk: usize,
        /// How many.
        count: usize,
    },
    /// Too many paths.
    #[error("disks[{disk}].paths: {count} given; give {MAX_PATHS} at most")]
    PathCount {
        /// Position of the disk.
        disk: usize,
        /// How many.
        count: usize,
    },
    /// Two disks have the same name.
    #[error("{second}.name: `{name}` is also the name of {first}; give each disk its own")]
    SameName {
        /// Place of the first of the two.
        first: DiskPlace,
        /// Place of the second.
        second: DiskPlace,
        /// The name.
        name: DiskName,
    },
    /// Two disks have the same socket.
    #[error("{second}.socket-path: `{path}` is also the socket of {first}; give each disk its own")]
    SameSocket {
        /// Place of the first of the two.
        first: DiskPlace,
        /// Place of the second.
        second: DiskPlace,
        /// The socket.
        path: SocketPath,
    },
    /// Fewer I/O threads than each disk is to have.
    #[error(
        "io-thread-pool: {pool} given, which is fewer than the {io_threads} of `io-threads`; give at least {io_threads}, or remove `io-thread-pool`"
    )]
    SmallPool {
        /// The number of threads of the daemon.
        pool: u32,
        /// The number of threads of each disk.
        io_threads: u32,
    },
    /// Access to a socket that does not exist.
    #[error(
        "api-read-only: none given; give the path of the socket, or remove `api-read-only-mode`, `api-read-only-owner` and `api-read-only-group`"
    )]
    NoReadOnlyApi,
    /// A disk uses TLS and the drain fence.
    #[error(
        "disks[{disk}].drain-fence: not possible with TLS (`tls-key-file`, `concat`), because anyone on the network can forge the end of a TCP \
         connection; remove `drain-fence`, and the daemon waits for the fence time"
    )]
    DrainWithTls {
        /// Position of the disk.
        disk: usize,
    },
    /// A disk has a key of discovery controllers and asks none.
    #[error(
        "disks[{disk}].discovery-tls-key-file: needs `discovery`; add `discovery`, or remove `discovery-tls-key-file`"
    )]
    NoDiscovery {
        /// Position of the disk.
        disk: usize,
    },
    /// A disk has a secret of the controllers and none of the host.
    #[error(
        "disks[{disk}].dhchap-ctrl-secret-file: needs `dhchap-secret-file`, because a controller proves itself only to a host that \
         does; add `dhchap-secret-file`"
    )]
    NoHostSecret {
        /// Position of the disk.
        disk: usize,
    },
    /// A disk has its keys generated by an authentication that it does not do.
    #[error(
        "disks[{disk}].concat: needs `dhchap-secret-file`, because the authentication generates the key; add `dhchap-secret-file`, \
         or remove `concat`"
    )]
    ConcatWithoutSecret {
        /// Position of the disk.
        disk: usize,
    },
    /// A disk has a key and generates one.
    #[error(
        "disks[{disk}].concat: not possible with `tls-key-file`, because a disk has one key for TLS; remove `tls-key-file` if the \
         target takes generated keys, or else `concat`"
    )]
    ConcatWithKey {
        /// Position of the disk.
        disk: usize,
    },
    /// The socket that only reads is also the one that does not.
    #[error("api-read-only: `{path}` is also `api`; give each its own")]
    SameApiSocket {
        /// The socket.
        path: SocketPath,
    },
    /// A disk has the socket of the API.
    #[error("{disk}.socket-path: `{path}` is also the API's socket; give each its own")]
    ApiSocket {
        /// Place of the disk.
        disk: DiskPlace,
        /// The socket.
        path: SocketPath,
    },
    /// Too many disks over the same paths.
    #[error(
        "disks[{disk}].share-paths-with: {count} given; give {} at most, because at most {MAX_SHARING} disks can share paths",
        MAX_SHARING - 1
    )]
    SharerCount {
        /// Position of the disk that has the paths.
        disk: usize,
        /// How many disks share them.
        count: usize,
    },
    /// A disk whose paths are shared has no `namespace`.
    #[error(
        "disks[{disk}].namespace: none given; give the namespace of `{name}`, because a subsystem whose disks share paths \
         has several"
    )]
    NoNamespace {
        /// Position of the disk that has the paths.
        disk: usize,
        /// Its name.
        name: DiskName,
    },
    /// Two disks over the same paths have the same namespace.
    #[error(
        "{second}.namespace: `{namespace}` is also the namespace of {first}; give each disk over these paths its own"
    )]
    SameNamespace {
        /// Place of the first of the two.
        first: DiskPlace,
        /// Place of the second.
        second: DiskPlace,
        /// The namespace.
        namespace: NamespaceId,
    },
    /// A disk has the same discovery controller at two positions of its list.
    #[error("disks[{disk}].discovery[{second}]: `{address}` is also discovery[{first}]; remove one")]
    SameDiscovery {
        /// Position of the disk.
        disk: usize,
        /// The lower position in the list.
        first: usize,
        /// The higher position in the list.
        second: usize,
        /// The address.
        address: DiscoveryAddress,
    },
    /// A disk has the same path at two positions of its list.
    #[error("disks[{disk}].paths[{second}]: `{address}` is also paths[{first}]; remove one")]
    SamePath {
        /// Position of the disk.
        disk: usize,
        /// The lower position in the list.
        first: usize,
        /// The higher position in the list.
        second: usize,
        /// The address.
        address: PathAddress,
    },
}

impl ConflictError {
    /// The settings that contradict each other, the one that is named first.
    #[must_use]
    pub fn settings(&self) -> Vec<String> {
        let both = |second: &DiskPlace, first: &DiskPlace, key: &str| {
            vec![format!("{second}.{key}"), format!("{first}.{key}")]
        };
        match self {
            Self::DiskCount { .. } => vec!["disks".into()],
            Self::HostNqn { .. } => vec!["hostnqn".into()],
            Self::DrainWithTls { disk } => vec![format!("disks[{disk}].drain-fence")],
            Self::NoDiscovery { disk } => vec![format!("disks[{disk}].discovery-tls-key-file")],
            Self::NoHostSecret { disk } => vec![format!("disks[{disk}].dhchap-ctrl-secret-file")],
            Self::ConcatWithoutSecret { disk } | Self::ConcatWithKey { disk } => vec![format!("disks[{disk}].concat")],
            Self::NoReadOnlyApi => vec!["api-read-only".into()],
            Self::SmallPool { .. } => vec!["io-thread-pool".into(), "io-threads".into()],
            Self::SameApiSocket { .. } => vec!["api-read-only".into(), "api".into()],
            Self::NoPath { disk } => vec![format!("disks[{disk}].paths"), format!("disks[{disk}].discovery")],
            Self::DiscoveryCount { disk, .. } => vec![format!("disks[{disk}].discovery")],
            Self::PathCount { disk, .. } => vec![format!("disks[{disk}].paths")],
            Self::SameName { first, second, .. } => both(second, first, "name"),
            Self::SameSocket { first, second, .. } => both(second, first, "socket-path"),
            Self::ApiSocket { disk, .. } => vec![format!("{disk}.socket-path")],
            Self::SharerCount { disk, .. } => vec![format!("disks[{disk}].share-paths-with")],
            Self::NoNamespace { disk, .. } => vec![format!("disks[{disk}].namespace")],
            Self::SameNamespace { first, second, .. } => both(second, first, "namespace"),
            Self::SameDiscovery { disk, first, second, .. } => {
                vec![format!("disks[{disk}].discovery[{second}]"), format!("disks[{disk}].discovery[{first}]")]
            }
            Self::SamePath { disk, first, second, .. } => {
                vec![format!("disks[{disk}].paths[{second}]"), format!("disks[{disk}].paths[{first}]")]
            }
        }
    }
}

/// The number of disks that share paths, shown if there are any.
struct SharingCount(usize);

impl fmt::Display for SharingCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", {} of them in share-paths-with", self.0) }
    }
}
