//! Errors of a subsystem's paths.

use reactor::LossReason;
use vhost_user_blk::GeometryError;

use crate::disk::refused_namespace::RefusedNamespace;
use crate::disk_files::fence_record::WriteError;
use crate::transport::TransportError;

/// Why a path has no association.
pub(crate) type PathError = mpath_lifecycle::PathError<HostError>;

/// A failure of this host, or of one of its connections.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Lost(#[from] LossReason),
    #[error(transparent)]
    Record(#[from] WriteError),
    #[error("the namespace cannot be a disk: {0}")]
    Geometry(#[from] GeometryError),
    #[error(transparent)]
    Refused(#[from] RefusedNamespace),
}
