//! What can be wrong with a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{DiskName, DiskPlace, MAX_DISCOVERY, MAX_DISKS, MAX_PATHS, MAX_SHARING, NamespaceId, Nqn, SocketPath};
use crate::address::{DiscoveryAddress, PathAddress};

/// Why a configuration file could not be used. The text begins with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be opened or read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No configuration is this large; it is probably another file.
    #[error("{}: larger than {max_bytes} bytes, which no configuration is", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        max_bytes: u64,
    },
    /// The contents are no configuration: `FILE:LINE:COL: message` where the place is known.
    #[error("{}:{source}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
}

/// Why a text is no configuration.
///
/// Shown as `LINE:COL: message`, or as ` message` where no single place is to blame, so that a file
/// name and a colon go in front.
#[derive(Debug)]
pub enum ConfigError {
    /// Not YAML, an unknown or missing key, or a value that its type refuses.
    Yaml(serde_yaml::Error),
    /// Values that do not go together.
    Conflict(Box<ConflictError>),
}

impl std::error::Error for ConfigError {}

impl From<ConflictError> for ConfigError {
    fn from(error: ConflictError) -> Self {
        Self::Conflict(error.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yaml(error) => {
                let message = error.to_string();
                // Quoted values may hold line ends and worse; an error stays one line.
                let message = one_line(&message);
                let Some(at) = error.location() else {
                    return write!(f, " {message}");
                };
                let suffix = format!(" at line {} column {}", at.line(), at.column());
                // The message repeats the place at its end, and a scanner's also within.
                let message = message.replace(&suffix, "");
                write!(f, "{}:{}: {message}{}", at.line(), at.column(), where_else(&message))
            }
            Self::Conflict(error) => write!(f, " {error}"),
        }
    }
}

/// What to do about a setting that a disk over another one's paths does not have. Most of those that one would look for there
/// are the other disk's.
fn where_else(message: &str) -> &'static str {
    let of_sharer = message
        .split_once("]: unknown field ")
        .is_some_and(|(place, _)| place.rsplit_once('[').is_some_and(|(list, _)| list.ends_with(".share-paths-with")));
    if of_sharer { "; all else is set on the disk that has the paths, for all that share them" } else { "" }
}

fn one_line(text: &str) -> String {
    let escape = |c: char| {
        if c.is_control() { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(escape).collect()
}

/// Values that are right one by one and wrong together. Positions count from 0, as in the path of
/// a YAML error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConflictError {
    /// No disk, or too many.
    #[error("disks: {count} given{}; give 1 to {MAX_DISKS}", OfThemSharing(*.sharing))]
    DiskCount {
        /// How many.
        count: usize,
        /// How many of them share the paths of another one.
        sharing: usize,
    },
    /// The host's name is no NVMe qualified name.
    #[error(
        "hostnqn: `{name}` does not start with `nqn.`; give nqn.YYYY-MM.REVERSE.DOMAIN:NAME or \
         nqn.2014-08.org.nvmexpress:uuid:UUID, as /etc/nvme/hostnqn holds"
    )]
    HostNqn {
        /// The name.
        name: Nqn,
    },
    /// Neither path nor discovery controller.
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
    /// Two disks have one name.
    #[error("{second}.name: `{name}` is also the name of {first}; give each disk its own")]
    SameName {
        /// Place of the first of the two.
        first: DiskPlace,
        /// Place of the second.
        second: DiskPlace,
        /// The name.
        name: DiskName,
    },
    /// Two disks have one socket.
    #[error("{second}.socket-path: `{path}` is also the socket of {first}; give each disk its own")]
    SameSocket {
        /// Place of the first of the two.
        first: DiskPlace,
        /// Place of the second.
        second: DiskPlace,
        /// The socket.
        path: SocketPath,
    },
    /// A disk has the API's socket.
    #[error("{disk}.socket-path: `{path}` is also the API's socket; give each its own")]
    ApiSocket {
        /// Place of the disk.
        disk: DiskPlace,
        /// The socket.
        path: SocketPath,
    },
    /// Too many disks over the same paths.
    #[error(
        "disks[{disk}].share-paths-with: {count} given; give {} at most, as no more than {MAX_SHARING} disks can share paths",
        MAX_SHARING - 1
    )]
    SharerCount {
        /// Position of the disk that has the paths.
        disk: usize,
        /// How many share them.
        count: usize,
    },
    /// A disk whose paths others share has no namespace of its own.
    #[error(
        "disks[{disk}].namespace: none given; give the one of `{name}`, which cannot be the subsystem's only one as others \
         share its paths"
    )]
    NoNamespace {
        /// Position of the disk that has the paths.
        disk: usize,
        /// Its name.
        name: DiskName,
    },
    /// Two disks over the same paths have one namespace.
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
    /// A disk has one discovery controller twice.
    #[error("disks[{disk}].discovery[{second}]: `{address}` is also discovery[{first}]; remove one")]
    SameDiscovery {
        /// Position of the disk.
        disk: usize,
        /// Position of the first of the two.
        first: usize,
        /// Position of the second.
        second: usize,
        /// The address.
        address: DiscoveryAddress,
    },
    /// A disk has one path twice.
    #[error("disks[{disk}].paths[{second}]: `{address}` is also paths[{first}]; remove one")]
    SamePath {
        /// Position of the disk.
        disk: usize,
        /// Position of the first of the two.
        first: usize,
        /// Position of the second.
        second: usize,
        /// The address.
        address: PathAddress,
    },
}

/// Shown where there are any.
struct OfThemSharing(usize);

impl fmt::Display for OfThemSharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", {} of them in share-paths-with", self.0) }
    }
}
