//! Why disks are not served, as the operator is told.

use std::fmt;
use std::io;

use mpath_api_server::socket::BindError;
use mpath_config::PathAddress;
use vhost_user_blk::GeometryError;

use crate::disk::refused_namespace::RefusedNamespace;
use crate::disk_files::fence_record::{RecordError, WriteError};
use crate::subsystem::size::SaveError;

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
        failures: Reasons,
        /// This host lacks something that every path needs.
        host_lacks: bool,
    },
    #[error("disk {disk}: no path to `subsystem` {subsystem} is configured or discovered{reasons}")]
    NoneDiscovered {
        disk: String,
        subsystem: String,
        /// By discovery controller.
        reasons: Reasons,
    },
    #[error("disk {disk}: no path leads to its namespace of `subsystem` {subsystem}{reasons}")]
    NoNamespace {
        disk: String,
        subsystem: String,
        /// By path.
        reasons: Reasons,
    },
    #[error("disk {disk}: `wait-for` is `all`, and not every configured path is live{failures}")]
    PathDown {
        disk: String,
        /// By path that is not live.
        failures: Reasons,
    },
    #[error(transparent)]
    Refused(#[from] RefusedNamespace),
    #[error(transparent)]
    NotRecorded(#[from] WriteError),
    #[error(transparent)]
    NotSaved(#[from] SaveError),
    #[error(transparent)]
    NotShown(#[from] GeometryError),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl StartError {
    /// Whether this host lacks something.
    pub(crate) fn is_of_this_host(&self) -> bool {
        match self {
            Self::System(_) | Self::Record(_) | Self::NotRecorded(_) | Self::NotSaved(SaveError::Write { .. }) => true,
            Self::NoPath { host_lacks, .. } => *host_lacks,
            Self::Bind(_)
            | Self::NoneDiscovered { .. }
            | Self::NoNamespace { .. }
            | Self::PathDown { .. }
            | Self::Refused(_)
            | Self::NotSaved(SaveError::Size(_))
            | Self::NotShown(_) => false,
        }
    }
}

/// The reason of each path or discovery controller, on one line.
#[derive(Debug)]
pub(crate) struct Reasons {
    /// Words before each address.
    pub(super) of: &'static str,
    pub(super) reasons: Vec<(PathAddress, String)>,
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reasons.iter().try_for_each(|(address, reason)| write!(f, "; {}{address}: {reason}", self.of))
    }
}
