//! Why a disk is not served, as whoever starts or adds it is told.

use std::fmt;
use std::io;
use std::path::PathBuf;

use mpath_api::PathAddress;
use mpath_api::socket::BindError;
use mpath_host::NamespaceName;

use crate::fence_record::{RecordError, WriteError};
use crate::subsystem::error::PathError;

/// Why a subsystem's disks are not served.
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
        /// Of each path.
        failures: Failures,
    },
    #[error("disk {disk}: no path to `subsystem` {subsystem} is configured or discovered{reasons}")]
    NoneDiscovered {
        disk: String,
        subsystem: String,
        /// Of each discovery controller.
        reasons: Discovered,
    },
    #[error("disk {disk}: no path leads to its namespace of `subsystem` {subsystem}{reasons}")]
    NoNamespace {
        disk: String,
        subsystem: String,
        /// Of each path.
        reasons: Reasons,
    },
    #[error(
        "disk {disk}: its namespace, {nsid} of `subsystem` {subsystem}, is also that of disk {of}, and both write to it; give each its own \
         `namespace`, or set `read-only` for one of them"
    )]
    SameNamespace {
        disk: String,
        /// The disk that was there before.
        of: String,
        nsid: u32,
        subsystem: String,
    },
    #[error(
        "disk {disk}: it is {namespace}, and on its socket was {before}, whose guest may come back: it would repeat on this one what it had in \
         flight on that; give the disk another `socket-path`, or remove {} once no guest of the other one can come back and the `fence_ms` that it \
         tells of have passed", file.display()
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
    /// It is this host that lacks something.
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

/// What went wrong on each path, for one line.
#[derive(Debug)]
pub(crate) struct Failures(pub(super) Vec<(String, PathError)>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, error)| write!(f, "; {address}: {error}"))
    }
}

/// What each path has to say, for one line.
#[derive(Debug)]
pub(crate) struct Reasons(pub(super) Vec<(PathAddress, String)>);

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, reason)| write!(f, "; {address}: {reason}"))
    }
}

/// What each discovery controller has to say, for one line.
#[derive(Debug)]
pub(crate) struct Discovered(pub(super) Vec<(PathAddress, String)>);

impl fmt::Display for Discovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, reason)| write!(f, "; discovery controller {address}: {reason}"))
    }
}
