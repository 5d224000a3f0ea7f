//! Decides: the API answers with this error.
//!
//! Errors of requests.

use std::fmt;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mpath_api::DISK_CHANGE_MAX;
use mpath_api::types::{ErrorBody, ErrorCode, ErrorInfo, PathState, REMOVING_MAX};
use mpath_config::{ConflictError, PathAddress, WaitFor};

/// Why the daemon refused a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No disk has this name.
    #[error("no disk is named `{disk}`{} `mpathctl status` shows the disks", DidYouMean(.similar.as_deref()))]
    UnknownDisk {
        /// The name asked for.
        disk: String,
        /// The [most similar name](mpath_config::similar_name) of a disk.
        similar: Option<String>,
    },
    /// The disk has no paths of its own, and the request concerns paths.
    #[error("disk `{disk}` shares the paths, policy, scheduler and hedging of `{owner}`; name `{owner}`")]
    SharesPaths {
        /// The disk.
        disk: String,
        /// The disk that has the paths.
        owner: String,
    },
    /// The disk has no such path.
    #[error("disk `{disk}` has no path {index}; `mpathctl path list` shows the paths")]
    UnknownPath {
        /// The disk.
        disk: String,
        /// The number asked for.
        index: u16,
    },
    /// The disk would have no usable path left.
    #[error(
        "disk `{disk}` would have no usable path left, and its I/O would wait; enable another path first, or use --force"
    )]
    LastPath {
        /// The disk.
        disk: String,
    },
    /// The path is in a state in which it cannot be reset.
    #[error("cannot reset path {index} of disk `{disk}`: it is {state}; connect it again with `mpathctl path enable`")]
    NotResettable {
        /// The disk.
        disk: String,
        /// The number of the path.
        index: u16,
        /// Its state.
        state: PathState,
    },
    /// The path is being removed.
    #[error("path {index} of disk `{disk}` is being removed; wait, or use `mpathctl path remove --force`")]
    Removing {
        /// The disk.
        disk: String,
        /// The number of the path.
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
    /// The fence record of a disk was not cleared.
    #[error(transparent)]
    ClearFences(#[from] ClearFencesError),
    /// The new program does not take over, and this daemon goes on.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
    /// The configuration file was not reloaded.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// The daemon has not reported that it is ready.
    #[error("the daemon starts, and waits for {}", WaitsFor(*.wait_for))]
    Starting {
        /// The paths that have to be live first.
        wait_for: WaitFor,
    },
    /// The I/O threads did not answer in time.
    #[error("the daemon's I/O threads do not answer; see its log")]
    Unresponsive,
    /// A disk is still being added or removed at the end of the client's time.
    #[error("not done within {} s; the daemon goes on, and `mpathctl events` shows the result", DISK_CHANGE_MAX.as_secs())]
    StillRunning,
    /// The daemon is ending, or the disk is being removed.
    #[error("the daemon is ending, or this disk is being removed")]
    Ending,
}

/// Why a disk was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddDiskError {
    /// The settings contradict each other. They are checked like a configuration with only this disk.
    #[error(transparent)]
    Conflict(#[from] Box<ConflictError>),
    /// Another disk has this name, or is being added with it.
    #[error("cannot add disk `{disk}`: another disk has this name; give each disk its own `name`")]
    NameTaken {
        /// The name.
        disk: String,
    },
    /// Another disk has this socket, or is being added with it.
    #[error("cannot add disk `{disk}`: `{socket}` is also the socket of `{owner}`; give each disk its own")]
    SocketTaken {
        /// The new disk.
        disk: String,
        /// The socket.
        socket: String,
        /// The disk that has the socket.
        owner: String,
    },
    /// A disk with this name is being removed.
    #[error("cannot add disk `{disk}`: another disk of this name is being removed; {}", WaitForRemoval)]
    NameInRemoval {
        /// The name.
        disk: String,
    },
    /// A disk with this socket is being removed.
    #[error(
        "cannot add disk `{disk}`: `{socket}` is still the socket of `{owner}`, which is being removed; {}",
        WaitForRemoval
    )]
    SocketInRemoval {
        /// The new disk.
        disk: String,
        /// The socket.
        socket: String,
        /// The disk that has the socket.
        owner: String,
    },
    /// The socket path is relative.
    #[error(
        "disk `{disk}`: socket-path: `{socket}` is relative and would be in the daemon's working directory; give an absolute path"
    )]
    RelativeSocket {
        /// The disk.
        disk: String,
        /// The socket.
        socket: String,
    },
    /// The daemon has the most disks allowed.
    #[error("the daemon has {count} disks, and {max} is the most allowed; remove a disk first")]
    TooMany {
        /// The number of disks, including those being added.
        count: usize,
        /// The most allowed.
        max: usize,
    },
    /// The disk may need more open files than the daemon may have.
    #[error("cannot add disk `{disk}`: {reason}")]
    OpenFiles {
        /// The name.
        disk: String,
        /// The need and the limit.
        reason: String,
    },
    /// The disk cannot be served. The daemon would not start with it either with `wait-for: any`.
    #[error("{reason}")]
    NotStarted {
        /// The disk.
        disk: String,
        /// The error, which names the disk or its socket.
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
    #[error("no disk is named `{disk}`{} `mpathctl disk list` shows the disks", DidYouMean(.similar.as_deref()))]
    UnknownDisk {
        /// The name asked for.
        disk: String,
        /// The [most similar name](mpath_config::similar_name) of a disk.
        similar: Option<String>,
    },
    /// A front-end is connected.
    #[error(
        "disk `{disk}` has a front-end connected; end the front-end first, or use --force, which takes the disk from its guest"
    )]
    Connected {
        /// The disk.
        disk: String,
    },
    /// The disk shares the paths of another disk.
    #[error(
        "disk `{disk}` shares the paths of `{owner}`, and they are removed together; `mpathctl disk remove {owner}` removes {}",
        Names(.all)
    )]
    SharesPaths {
        /// The disk.
        disk: String,
        /// The disk that has the paths.
        owner: String,
        /// That disk, and all that share its paths.
        all: Vec<String>,
    },
    /// The disk is already being removed.
    #[error("disk `{disk}` is already being removed; it is gone within {} s", REMOVING_MAX.as_secs())]
    InRemoval {
        /// The disk.
        disk: String,
    },
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
}

/// The paths that a daemon waits for at its start.
struct WaitsFor(WaitFor);

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            WaitFor::None => "the sockets of its disks",
            WaitFor::Any => "a live path of each disk (`wait-for: any`)",
            WaitFor::All => "every configured path (`wait-for: all`)",
        })
    }
}

/// A name that may be meant, if there is one.
struct DidYouMean<'a>(Option<&'a str>);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; did you mean `{name}`?"),
            None => f.write_str(";"),
        }
    }
}

/// The advice to wait for the end of a removal.
struct WaitForRemoval;

impl fmt::Display for WaitForRemoval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = REMOVING_MAX.as_secs();
        write!(f, "wait up to {max} s until `mpathctl disk list` does not show that disk, and try again")
    }
}

/// A list of names.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}`{name}`")?;
        }
        Ok(())
    }
}

/// Why the fence record of a disk was not cleared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClearFencesError {
    /// A front-end is connected.
    #[error("disk `{disk}` has a front-end connected, which goes on with its requests; end the front-end first")]
    Connected {
        /// The disk.
        disk: String,
    },
    /// Earlier writes may still be executed.
    #[error(
        "earlier writes to the namespace of disk `{disk}` may be executed for {left_s} s more; wait, or use --force if you know that their \
         controllers are off or were reset. An early --force lets old writes overwrite newer data"
    )]
    NotPassed {
        /// The disk.
        disk: String,
        /// The seconds that are left, rounded up.
        left_s: u64,
    },
    /// Writes were acknowledged and lost.
    #[error(
        "disk `{disk}` has lost acknowledged writes, and the next flush of its guest fails to report that; with --force, no guest is told, \
         and a file system may trust data that are gone"
    )]
    LostWrites {
        /// The disk.
        disk: String,
    },
    /// The file cannot be written.
    #[error("{reason}")]
    Record {
        /// The error, which names the file.
        reason: String,
    },
}

/// Why the new program does not take over. The daemon goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// The front-end or its socket was passed by `--fd`.
    #[error(
        "the daemon was started with --fd, and its program cannot be replaced; end the daemon, and start the new one with such a descriptor"
    )]
    PassedSocket,
    /// The end of this process ends its container.
    #[error("the daemon is process 1 of its container, which ends with it; restart the container")]
    FirstProcess,
    /// The end of this process would end the service.
    #[error(
        "systemd would take the end of this process for the end of the service; set `Type=notify` in its unit, and restart it once"
    )]
    NoNotify,
    /// The operator has drained or disabled a path, which the new process does not know.
    #[error(
        "disk `{disk}`: path {path} is {state}, and an upgrade would forget that; enable or remove the path, or use --force"
    )]
    PathOutOfUse {
        /// The disk.
        disk: String,
        /// The address of the path.
        path: PathAddress,
        /// `drained` or `disabled`.
        state: &'static str,
    },
    /// Another upgrade, or a reload, is under way.
    #[error("another upgrade or a reload is under way; `mpathctl status` shows the daemon that serves")]
    UnderWay,
    /// The new process cannot be started.
    #[error("cannot start {program}: {reason}; the daemon goes on")]
    NotStarted {
        /// The program.
        program: String,
        /// The operating system's error.
        reason: String,
    },
    /// The new process has ended, or reports an error.
    #[error("the new process does not take over: {reason}; the daemon goes on")]
    Failed {
        /// What the new process reports.
        reason: String,
    },
    /// A disk is being added or removed, or the daemon is ending.
    #[error("a disk is being added or removed, or the daemon is ending; try again in a moment")]
    Busy,
}

/// Why a path was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddPathError {
    /// The disk has a path with this address.
    #[error("cannot add path {address}: disk `{disk}` already has it as path {index}, which is {state}")]
    Exists {
        /// The disk.
        disk: String,
        /// The number of that path.
        index: u16,
        /// The address.
        address: PathAddress,
        /// Its state.
        state: PathState,
    },
    /// The disk has the most paths allowed.
    #[error(
        "disk `{disk}` has {max} paths, which is the most allowed and includes removed paths that wait for their fence; remove a path first"
    )]
    TooMany {
        /// The disk.
        disk: String,
        /// The most allowed.
        max: usize,
    },
    /// The path may need more open files than the daemon may have.
    #[error("cannot add a path to disk `{disk}`: {reason}")]
    OpenFiles {
        /// The disk.
        disk: String,
        /// The need and the limit.
        reason: String,
    },
    /// The namespace allows only one path.
    #[error("disk `{disk}` can have only one path: {reason}")]
    NotMultipath {
        /// The disk.
        disk: String,
        /// Why the namespace allows only one.
        reason: String,
    },
}

/// Why a path was not removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemovePathError {
    /// The disk has no such path.
    #[error("disk `{disk}` has no path {index}; `mpathctl path list` shows the paths")]
    UnknownPath {
        /// The disk.
        disk: String,
        /// The number asked for.
        index: u16,
    },
    /// The disk would have no usable path left.
    #[error(
        "disk `{disk}` would have no usable path left, and its I/O would wait; add or enable another path first, or use --force"
    )]
    LastPath {
        /// The disk.
        disk: String,
    },
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
}

/// Why the configuration file was not reloaded. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The daemon was started with flags.
    #[error(
        "the daemon was started with flags and has no configuration file to reload; `mpathctl config save FILE` makes one to start it with"
    )]
    NoFile,
    /// The file cannot be read, or has errors.
    #[error("{}", errors.join("\n"))]
    Invalid {
        /// The errors, each with the place in the file.
        errors: Vec<String>,
    },
    /// A reload or an upgrade is under way.
    #[error("another reload or an upgrade is under way; try again in a moment")]
    UnderWay,
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
}

impl ReloadError {
    /// The error on one line.
    #[must_use]
    pub fn first_line(&self) -> String {
        match self {
            Self::Invalid { errors } if errors.len() > 1 => {
                let first = errors.first().map(String::as_str).unwrap_or_default();
                format!("{first}; further errors: {}", errors.len() - 1)
            }
            error => error.to_string(),
        }
    }
}

/// The answer to a request that failed.
#[derive(Debug)]
pub struct ApiError(ErrorInfo);

impl ApiError {
    /// An error with a kind and one line for people.
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
            ControlError::AddDisk(AddDiskError::TooMany { .. } | AddDiskError::OpenFiles { .. }) => {
                ErrorCode::TooManyDisks
            }
            ControlError::AddDisk(AddDiskError::NotStarted { .. }) => ErrorCode::DiskNotStarted,
            ControlError::RemoveDisk(RemoveDiskError::Connected { .. })
            | ControlError::ClearFences(ClearFencesError::Connected { .. }) => ErrorCode::DiskConnected,
            ControlError::ClearFences(ClearFencesError::NotPassed { .. } | ClearFencesError::LostWrites { .. }) => {
                ErrorCode::NeedsForce
            }
            ControlError::AddDisk(AddDiskError::NameInRemoval { .. } | AddDiskError::SocketInRemoval { .. })
            | ControlError::RemoveDisk(RemoveDiskError::InRemoval { .. }) => ErrorCode::DiskLeaving,
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
            ControlError::Add(AddPathError::TooMany { .. } | AddPathError::OpenFiles { .. }) => ErrorCode::TooManyPaths,
            ControlError::Add(AddPathError::NotMultipath { .. }) => ErrorCode::NotMultipath,
            ControlError::Upgrade(
                UpgradeError::PassedSocket
                | UpgradeError::FirstProcess
                | UpgradeError::NoNotify
                | UpgradeError::PathOutOfUse { .. }
                | UpgradeError::NotStarted { .. }
                | UpgradeError::Failed { .. },
            ) => ErrorCode::UpgradeFailed,
            ControlError::Reload(ReloadError::Invalid { .. }) => ErrorCode::ConfigInvalid,
            ControlError::Reload(ReloadError::NoFile) => ErrorCode::NoConfigFile,
            ControlError::Unresponsive
            | ControlError::StillRunning
            | ControlError::Ending
            | ControlError::AddDisk(AddDiskError::Ending)
            | ControlError::RemoveDisk(RemoveDiskError::Ending)
            | ControlError::Remove(RemovePathError::Ending)
            | ControlError::ClearFences(ClearFencesError::Record { .. })
            | ControlError::Reload(ReloadError::UnderWay | ReloadError::Ending)
            | ControlError::Upgrade(UpgradeError::UnderWay | UpgradeError::Busy)
            | ControlError::Starting { .. } => ErrorCode::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).expect("the table has valid statuses");
        (status, Json(ErrorBody { error: self.0 })).into_response()
    }
}
