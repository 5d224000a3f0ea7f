//! Why disks are not served, as the operator is told.

use std::fmt;
use std::io;
use std::path::PathBuf;

use mpath_api::PathAddress;
use mpath_api::socket::BindError;
use mpath_host::NamespaceName;

use crate::fence_record::{RecordError, WriteError};
use crate::subsystem::error::PathError;

/// Why the disks of a subsystem are not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("disk {disk}: no path leads to a namespace of `subsystem` {subsystem}{failures}")]
    NoPath {
        disk: String,
        subsystem: String,
        /// By path.
        failures: PathFailures,
    },
    #[error("disk {disk}: no path to `subsystem` {subsystem} is configured or discovered{reasons}")]
    NoneDiscovered {
        disk: String,
        subsystem: String,
        /// By discovery controller.
        reasons: DiscoveryReasons,
    },
    #[error("disk {disk}: no path leads to its namespace of `subsystem` {subsystem}{reasons}")]
    NoNamespace {
        disk: String,
        subsystem: String,
        /// By path.
        reasons: PathReasons,
    },
    #[error(
        "disk {disk}: disk {of} already uses namespace {nsid} of `subsystem` {subsystem}, and both would write to it; give each its own \
         `namespace`, or set `read-only` for one of them"
    )]
    SameNamespace {
        disk: String,
        /// The disk that was added first.
        of: String,
        nsid: u32,
        subsystem: String,
    },
    #[error(
        "disk {disk}: cannot serve {namespace}: this socket last served {before}, whose guest may come back and repeat its requests in flight on the \
         wrong namespace; give the disk another `socket-path`, or remove {} once that guest cannot come back and the `fence_ms` in the file have \
         passed", file.display()
    )]
    OtherNamespace {
        disk: String,
        namespace: Box<NamespaceName>,
        before: Box<NamespaceName>,
        /// The fence record.
        file: PathBuf,
    },
    #[error(transparent)]
    NotRecorded(#[from] WriteError),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl StartError {
    /// Whether this host lacks something.
    pub(crate) fn is_of_this_host(&self) -> bool {
        match self {
            Self::System(_) | Self::Record(_) | Self::NotRecorded(_) => true,
            Self::NoPath { failures, .. } => failures.0.iter().any(|(_, error)| matches!(error, PathError::Host(_))),
            Self::Bind(_)
            | Self::NoneDiscovered { .. }
            | Self::NoNamespace { .. }
            | Self::SameNamespace { .. }
            | Self::OtherNamespace { .. } => false,
        }
    }
}

/// The error of each path, on one line.
#[derive(Debug)]
pub(crate) struct PathFailures(pub(super) Vec<(String, PathError)>);

impl fmt::Display for PathFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, error)| write!(f, "; {address}: {error}"))
    }
}

/// The reason of each path, on one line.
#[derive(Debug)]
pub(crate) struct PathReasons(pub(super) Vec<(PathAddress, String)>);

impl fmt::Display for PathReasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, reason)| write!(f, "; {address}: {reason}"))
    }
}

/// The reason of each discovery controller, on one line.
#[derive(Debug)]
pub(crate) struct DiscoveryReasons(pub(super) Vec<(PathAddress, String)>);

impl fmt::Display for DiscoveryReasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, reason)| write!(f, "; discovery controller {address}: {reason}"))
    }
}
