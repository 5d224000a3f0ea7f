//! What a request can end in besides success.

use std::fmt;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::DISKS_MAX;
use crate::address::PathAddress;
use crate::config::ConflictError;
use crate::types::{ErrorBody, ErrorCode, ErrorInfo, PathState, REMOVING_MAX};

/// Why the daemon did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No disk has this name.
    #[error("no disk is named `{disk}`; `mpathctl status` shows them")]
    UnknownDisk {
        /// The name asked for.
        disk: String,
    },
    /// The disk has no paths of its own, and what was asked for belongs to paths.
    #[error(
        "disk `{disk}` uses the paths of `{owner}`, and with them its policy, scheduler and hedging: name `{owner}`"
    )]
    SharesPaths {
        /// The disk.
        disk: String,
        /// The one that has the paths.
        owner: String,
    },
    /// The disk has no such path.
    #[error("disk `{disk}` has no path {index}")]
    UnknownPath {
        /// The disk.
        disk: String,
        /// The position asked for.
        index: u16,
    },
    /// The disk would have no usable path left.
    #[error(
        "disk `{disk}` would have no usable path left and its I/O would wait; enable another path first, or say --force"
    )]
    LastPath {
        /// The disk.
        disk: String,
    },
    /// The path is in a state in which it cannot be reset.
    #[error("path {index} of disk `{disk}` is {state} and cannot be reset; `mpathctl path enable` connects it again")]
    NotResettable {
        /// The disk.
        disk: String,
        /// The position of the path.
        index: u16,
        /// Its state.
        state: PathState,
    },
    /// The path is on its way out.
    #[error("path {index} of disk `{disk}` is being removed; only `path remove --force` can be said of it now")]
    Removing {
        /// The disk.
        disk: String,
        /// The position of the path.
        index: u16,
    },
    /// A path was not added.
    #[error(transparent)]
    Add(#[from] AddPathError),
    /// A path was not removed.
    #[error(transparent)]
    Remove(#[from] RemovePathError),
    /// A disk was not added.
    #[error(transparent)]
    AddDisk(#[from] AddDiskError),
    /// A disk was not removed.
    #[error(transparent)]
    RemoveDisk(#[from] RemoveDiskError),
    /// As many clients as the daemon serves so wait for events already.
    #[error("{waiting} clients wait for events already; ask without waiting")]
    TooManyWaiters {
        /// How many wait.
        waiting: usize,
    },
    /// The I/O threads did not answer in time.
    #[error("the daemon's I/O threads do not answer")]
    Unresponsive,
    /// A disk came or went, and took longer than a client is made to wait.
    #[error("not done within {} s; it goes on, and `mpathctl events` will tell what comes of it", DISKS_MAX.as_secs())]
    GoesOn,
    /// The daemon is ending, or the disk.
    #[error("the daemon is ending, or this disk is being removed")]
    Ending,
}

/// Why a disk was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddDiskError {
    /// Its settings do not go together. The disk counts as the only one of a configuration.
    #[error(transparent)]
    Conflict(#[from] Box<ConflictError>),
    /// There is a disk with this name, or one is on its way.
    #[error("there is a disk `{disk}` already; give each disk its own name")]
    NameTaken {
        /// The name.
        disk: String,
    },
    /// There is a disk with this socket, or one is on its way.
    #[error("disk `{disk}`: `{socket}` is also the socket of `{of}`; give each disk its own")]
    SocketTaken {
        /// The disk that is to be added.
        disk: String,
        /// The socket.
        socket: String,
        /// The disk that has it.
        of: String,
    },
    /// The disk with this name is not gone yet.
    #[error("there still is a disk `{disk}`, which is being removed; {}", WaitForRemoval)]
    NameLeaving {
        /// The name.
        disk: String,
    },
    /// The disk with this socket is not gone yet.
    #[error("disk `{disk}`: `{socket}` is still the socket of `{of}`, which is being removed; {}", WaitForRemoval)]
    SocketLeaving {
        /// The disk that is to be added.
        disk: String,
        /// The socket.
        socket: String,
        /// The disk that has it.
        of: String,
    },
    /// Its socket is not named by an absolute path.
    #[error(
        "disk `{disk}`: socket-path: `{socket}` is not absolute, and would be a file in the daemon's working directory; begin it with `/`"
    )]
    RelativeSocket {
        /// The disk.
        disk: String,
        /// The socket.
        socket: String,
    },
    /// The daemon has no room for it.
    #[error("there are {there} disks, and {most} is the most there can be; remove some first")]
    TooMany {
        /// How many there are, those on their way included.
        there: usize,
        /// The most there can be.
        most: usize,
    },
    /// It could not be served, for what would have kept the daemon from starting with it.
    #[error("{reason}")]
    NotStarted {
        /// The disk.
        disk: String,
        /// What is wrong, which names the disk or its socket.
        reason: String,
    },
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
}

/// Why a disk was not removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoveDiskError {
    /// No disk has this name.
    #[error("no disk is named `{disk}`; `mpathctl disk list` shows them")]
    UnknownDisk {
        /// The name asked for.
        disk: String,
    },
    /// A front-end is connected.
    #[error(
        "disk `{disk}` has a front-end connected; end that first, or say --force, which takes the disk from its guest"
    )]
    Connected {
        /// The disk.
        disk: String,
    },
    /// It uses the paths of another one.
    #[error(
        "disk `{disk}` uses the paths of `{owner}` and goes with it: `mpathctl disk remove {owner}` removes {}",
        Names(.all)
    )]
    SharesPaths {
        /// The disk.
        disk: String,
        /// The one that has the paths.
        owner: String,
        /// That one, and all that use its paths.
        all: Vec<String>,
    },
    /// It is being removed already.
    #[error("disk `{disk}` is being removed already; it is gone within {} s", REMOVING_MAX.as_secs())]
    Leaving {
        /// The disk.
        disk: String,
    },
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
}

/// What helps against a disk that is not gone yet.
struct WaitForRemoval;

impl fmt::Display for WaitForRemoval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = REMOVING_MAX.as_secs();
        write!(f, "wait until `mpathctl disk list` shows that one no more, {most} s at most, and add this one then")
    }
}

/// Names in a sentence.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(f, "{before}`{name}`")?;
        }
        Ok(())
    }
}

/// Why a path was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddPathError {
    /// The disk has one with this address.
    #[error("disk `{disk}` has a path to {address} already: path {index}, {state}")]
    Exists {
        /// The disk.
        disk: String,
        /// That path.
        index: u16,
        /// Where both lead.
        address: PathAddress,
        /// Its state.
        state: PathState,
    },
    /// The disk has no room for it.
    #[error(
        "disk `{disk}` has {most} paths, removed ones that wait for their fence included, and can have no more; remove one first"
    )]
    TooMany {
        /// The disk.
        disk: String,
        /// The most a disk can have.
        most: usize,
    },
    /// The namespace may not be reached over several paths.
    #[error("disk `{disk}` takes no path beside its first: {reason}")]
    NotMultipath {
        /// The disk.
        disk: String,
        /// What the namespace lacks.
        reason: String,
    },
}

/// Why a path was not removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemovePathError {
    /// The disk has no such path.
    #[error("disk `{disk}` has no path {index}")]
    UnknownPath {
        /// The disk.
        disk: String,
        /// The position asked for.
        index: u16,
    },
    /// The disk would have no usable path left.
    #[error(
        "disk `{disk}` would have no usable path left and its I/O would wait; add or enable another path first, or say --force"
    )]
    LastPath {
        /// The disk.
        disk: String,
    },
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
}

/// The answer to a request that failed.
#[derive(Debug)]
pub struct ApiError(ErrorInfo);

impl ApiError {
    /// An error of this kind, with one line for people.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(ErrorInfo { code, message: message.into() })
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let code = match error {
            ControlError::UnknownDisk { .. } | ControlError::RemoveDisk(RemoveDiskError::UnknownDisk { .. }) => {
                ErrorCode::UnknownDisk
            }
            ControlError::AddDisk(AddDiskError::Conflict(_) | AddDiskError::RelativeSocket { .. }) => {
                ErrorCode::BadRequest
            }
            ControlError::AddDisk(AddDiskError::NameTaken { .. } | AddDiskError::SocketTaken { .. }) => {
                ErrorCode::DiskExists
            }
            ControlError::AddDisk(AddDiskError::TooMany { .. }) => ErrorCode::TooManyDisks,
            ControlError::AddDisk(AddDiskError::NotStarted { .. }) => ErrorCode::DiskNotStarted,
            ControlError::RemoveDisk(RemoveDiskError::Connected { .. }) => ErrorCode::DiskConnected,
            ControlError::AddDisk(AddDiskError::NameLeaving { .. } | AddDiskError::SocketLeaving { .. })
            | ControlError::RemoveDisk(RemoveDiskError::Leaving { .. }) => ErrorCode::DiskLeaving,
            ControlError::SharesPaths { .. } | ControlError::RemoveDisk(RemoveDiskError::SharesPaths { .. }) => {
                ErrorCode::SharesPaths
            }
            ControlError::UnknownPath { .. } | ControlError::Remove(RemovePathError::UnknownPath { .. }) => {
                ErrorCode::UnknownPath
            }
            ControlError::LastPath { .. } | ControlError::Remove(RemovePathError::LastPath { .. }) => {
                ErrorCode::LastPath
            }
            ControlError::NotResettable { .. } | ControlError::Removing { .. } => ErrorCode::PathState,
            ControlError::Add(AddPathError::Exists { .. }) => ErrorCode::PathExists,
            ControlError::Add(AddPathError::TooMany { .. }) => ErrorCode::TooManyPaths,
            ControlError::Add(AddPathError::NotMultipath { .. }) => ErrorCode::NotMultipath,
            ControlError::Unresponsive
            | ControlError::GoesOn
            | ControlError::Ending
            | ControlError::AddDisk(AddDiskError::Ending)
            | ControlError::RemoveDisk(RemoveDiskError::Ending)
            | ControlError::Remove(RemovePathError::Ending)
            | ControlError::TooManyWaiters { .. } => ErrorCode::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
            ErrorCode::UnknownRoute | ErrorCode::UnknownDisk | ErrorCode::UnknownPath => StatusCode::NOT_FOUND,
            ErrorCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            ErrorCode::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            ErrorCode::LastPath
            | ErrorCode::PathState
            | ErrorCode::PathExists
            | ErrorCode::TooManyPaths
            | ErrorCode::NotMultipath
            | ErrorCode::SharesPaths
            | ErrorCode::DiskExists
            | ErrorCode::TooManyDisks
            | ErrorCode::DiskNotStarted
            | ErrorCode::DiskConnected
            | ErrorCode::DiskLeaving => StatusCode::CONFLICT,
            ErrorCode::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::Other => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(ErrorBody { error: self.0 })).into_response()
    }
}
