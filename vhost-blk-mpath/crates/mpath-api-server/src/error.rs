//! Decides: the API answers with this error.
//!
//! Errors of requests.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mpath_api::DISK_CHANGE_MAX;
use mpath_api::types::{ErrorBody, ErrorCode, ErrorInfo, PathState, REMOVING_MAX};
use mpath_config::{ConflictError, MAX_DISKS, PathAddress, WaitFor};
use mpath_core::MAX_PATHS;

use super::PathRef;

/// Why the daemon refused a request, or an order by another way than the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No disk has this name.
    #[error("no disk is named `{disk}`{} `mpathctl status` shows the disks", did_you_mean(.similar.as_deref()))]
    UnknownDisk {
        /// The name asked for.
        disk: String,
        /// The [most similar name](mpath_config::similar_name) of a disk.
        similar: Option<String>,
    },
    /// No disk has the name of the disk to be removed.
    #[error("no disk is named `{disk}`{} `mpathctl disk list` shows the disks", did_you_mean(.similar.as_deref()))]
    NoDiskToRemove {
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
    /// The disk to be removed shares the paths of another disk.
    #[error(
        "disk `{disk}` shares the paths of `{owner}`, and they are removed together; `mpathctl disk remove {owner}` removes {}",
        names(.all)
    )]
    RemovedTogether {
        /// The disk.
        disk: String,
        /// The disk that has the paths.
        owner: String,
        /// That disk, and all that share its paths.
        all: Vec<String>,
    },
    /// The history of a disk cannot be read.
    #[error("cannot read the history of disk `{disk}` in {file}: {reason}")]
    HistoryUnreadable {
        /// The disk.
        disk: String,
        /// The file.
        file: String,
        /// The error of the file.
        reason: String,
    },
    /// The disk has no such path.
    #[error("disk `{}` has no path {}; `mpathctl path list` shows the paths", .0.disk, .0.index)]
    UnknownPath(PathRef),
    /// The named disk would have no usable path left.
    #[error(
        "disk `{0}` would have no usable path left, and its I/O would wait; enable another path first, or use --force"
    )]
    LastPath(String),
    /// The path is in a state in which it cannot be reset.
    #[error("cannot reset path {} of disk `{}`: it is {}; connect it again with `mpathctl path enable`", .0.index, .0.disk, .1)]
    NotResettable(PathRef, PathState),
    /// The path is being removed.
    #[error("path {} of disk `{}` is being removed; wait, or use `mpathctl path remove --force`", .0.index, .0.disk)]
    Removing(PathRef),
    /// A path was not added.
    #[error(transparent)]
    Add(#[from] AddPathError),
    /// A path was not removed.
    #[error(transparent)]
    Remove(#[from] RemovePathError),
    /// The settings of a new disk contradict each other. They are checked like a configuration with only this disk.
    #[error(transparent)]
    Conflict(#[from] Box<ConflictError>),
    /// Another disk has the name of the new disk, or is being added with the name.
    #[error("cannot add disk `{0}`: another disk has this name; give each disk its own `name`")]
    NameTaken(String),
    /// Another disk has the socket of the new disk, or is being added with the socket.
    #[error("cannot add disk `{disk}`: `{socket}` is also the socket of `{owner}`; give each disk its own")]
    SocketTaken {
        /// The new disk.
        disk: String,
        /// The socket.
        socket: String,
        /// The disk that has the socket.
        owner: String,
    },
    /// A disk with the name of the new disk is being removed.
    #[error("cannot add disk `{0}`: another disk of this name is being removed; {wait}", wait = wait_for_removal())]
    NameInRemoval(String),
    /// A disk with the socket of the new disk is being removed.
    #[error(
        "cannot add disk `{disk}`: `{socket}` is still the socket of `{owner}`, which is being removed; {}",
        wait_for_removal()
    )]
    SocketInRemoval {
        /// The new disk.
        disk: String,
        /// The socket.
        socket: String,
        /// The disk that has the socket.
        owner: String,
    },
    /// The socket path of a new disk is relative.
    #[error(
        "disk `{disk}`: socket-path: `{socket}` is relative and would be in the daemon's working directory; give an absolute path"
    )]
    RelativeSocket {
        /// The disk.
        disk: String,
        /// The socket.
        socket: String,
    },
    /// The daemon has this many disks, including those being added, and so the most allowed.
    #[error("the daemon has {0} disks, and {max} is the most allowed; remove a disk first", max = MAX_DISKS)]
    TooManyDisks(usize),
    /// A new disk may need more open files than the daemon may have.
    #[error("cannot add disk `{disk}`: {reason}")]
    OpenFiles {
        /// The name.
        disk: String,
        /// The need and the limit.
        reason: String,
    },
    /// A new disk cannot be served. The daemon would not start with it either with `wait-for: any`. The error names the disk or its
    /// socket.
    #[error("{0}")]
    DiskNotStarted(String),
    /// A front-end is connected to the named disk, which is to be removed.
    #[error(
        "disk `{0}` has a front-end connected; end the front-end first, or use --force, which takes the disk from its guest"
    )]
    DiskConnected(String),
    /// The named disk is already being removed.
    #[error("disk `{0}` is already being removed; it is gone within {max} s", max = REMOVING_MAX.as_secs())]
    InRemoval(String),
    /// A front-end is connected to the named disk, whose fence record is to be cleared.
    #[error("disk `{0}` has a front-end connected, which goes on with its requests; end the front-end first")]
    GuestGoesOn(String),
    /// Earlier writes may still be executed.
    #[error(
        "earlier writes to the namespace of disk `{disk}` may be executed for {left_s} s more; wait, or use --force if you know that their \
         controllers are off or were reset. An early --force lets old writes overwrite newer data"
    )]
    FenceNotPassed {
        /// The disk.
        disk: String,
        /// The seconds that are left, rounded up.
        left_s: u64,
    },
    /// Acknowledged writes of the named disk were lost.
    #[error(
        "disk `{0}` has lost acknowledged writes, and the next flush of its guest fails to report that; with --force, no guest is told, \
         and a file system may trust data that are gone"
    )]
    LostWrites(String),
    /// A fence record cannot be written. The error names the file.
    #[error("{0}")]
    FenceRecord(String),
    /// No upgrade, because the front-end or its socket was passed by `--fd`.
    #[error(
        "the daemon was started with --fd, and its program cannot be replaced; end the daemon, and start the new one with such a descriptor"
    )]
    PassedSocket,
    /// No upgrade, because the end of this process ends its container.
    #[error("the daemon is process 1 of its container, which ends with it; restart the container")]
    FirstProcess,
    /// No upgrade, because the end of this process would end the service.
    #[error(
        "systemd would take the end of this process for the end of the service; set `Type=notify` in its unit, and restart it once"
    )]
    NoNotify,
    /// No upgrade, because the operator has drained or disabled a path, which the new process does not know.
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
    /// No upgrade, because another upgrade or a reload is under way.
    #[error("another upgrade or a reload is under way; `mpathctl status` shows the daemon that serves")]
    UpgradeUnderWay,
    /// The new process cannot be started.
    #[error("cannot start {program}: {reason}; the daemon goes on")]
    ProgramNotStarted {
        /// The program.
        program: String,
        /// The operating system's error.
        reason: String,
    },
    /// The new process has ended, or reports this error.
    #[error("the new process does not take over: {0}; the daemon goes on")]
    UpgradeFailed(String),
    /// No upgrade, because a disk is being added or removed, or the daemon is ending.
    #[error("a disk is being added or removed, or the daemon is ending; try again in a moment")]
    UpgradeBusy,
    /// No reload, because the daemon was started with flags.
    #[error(
        "the daemon was started with flags and has no configuration file to reload; `mpathctl config save FILE` makes one to start it with"
    )]
    NoConfigFile,
    /// The configuration file cannot be read, or has these errors, each with its place in the file.
    #[error("{}", .0.join("\n"))]
    ConfigInvalid(Vec<String>),
    /// No reload, because another reload or an upgrade is under way.
    #[error("another reload or an upgrade is under way; try again in a moment")]
    ReloadUnderWay,
    /// The daemon has not reported that it is ready.
    #[error("the daemon starts, and waits for {}", waits_for(*.0))]
    Starting(WaitFor),
    /// The I/O threads did not answer in time.
    #[error("the daemon's I/O threads do not answer; see its log")]
    Unresponsive,
    /// A disk is still being added or removed at the end of the client's time.
    #[error("not done within {} s; the daemon goes on, and `mpathctl events` shows the result", DISK_CHANGE_MAX.as_secs())]
    StillRunning,
    /// The daemon is ending, or the disk is being removed.
    #[error("the daemon is ending, or this disk is being removed")]
    Ending,
    /// The daemon is ending.
    #[error("the daemon is ending")]
    DaemonEnding,
}

impl ControlError {
    /// The error on one line.
    #[must_use]
    pub fn first_line(&self) -> String {
        match self {
            Self::ConfigInvalid(errors) if errors.len() > 1 => {
                format!("{}; further errors: {}", errors[0], errors.len() - 1)
            }
            error => error.to_string(),
        }
    }

    fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownDisk { .. } | Self::NoDiskToRemove { .. } => ErrorCode::UnknownDisk,
            Self::SharesPaths { .. } | Self::RemovedTogether { .. } => ErrorCode::SharesPaths,
            Self::UnknownPath(_) | Self::Remove(RemovePathError::UnknownPath(_)) => ErrorCode::UnknownPath,
            Self::LastPath(_) | Self::Remove(RemovePathError::LastPath(_)) => ErrorCode::LastPath,
            Self::NotResettable(..) | Self::Removing(_) => ErrorCode::PathState,
            Self::Add(AddPathError::Exists { .. }) => ErrorCode::PathExists,
            Self::Add(AddPathError::TooMany(_) | AddPathError::OpenFiles { .. }) => ErrorCode::TooManyPaths,
            Self::Add(AddPathError::NotMultipath { .. }) => ErrorCode::NotMultipath,
            Self::Conflict(_) | Self::RelativeSocket { .. } => ErrorCode::BadRequest,
            Self::NameTaken(_) | Self::SocketTaken { .. } => ErrorCode::DiskExists,
            Self::NameInRemoval(_) | Self::SocketInRemoval { .. } | Self::InRemoval(_) => ErrorCode::DiskLeaving,
            Self::TooManyDisks(_) | Self::OpenFiles { .. } => ErrorCode::TooManyDisks,
            Self::DiskNotStarted(_) => ErrorCode::DiskNotStarted,
            Self::DiskConnected(_) | Self::GuestGoesOn(_) => ErrorCode::DiskConnected,
            Self::FenceNotPassed { .. } | Self::LostWrites(_) => ErrorCode::NeedsForce,
            Self::PassedSocket
            | Self::FirstProcess
            | Self::NoNotify
            | Self::PathOutOfUse { .. }
            | Self::ProgramNotStarted { .. }
            | Self::UpgradeFailed(_) => ErrorCode::UpgradeFailed,
            Self::NoConfigFile => ErrorCode::NoConfigFile,
            Self::ConfigInvalid(_) => ErrorCode::ConfigInvalid,
            Self::FenceRecord(_)
            | Self::UpgradeUnderWay
            | Self::UpgradeBusy
            | Self::ReloadUnderWay
            | Self::Starting(_)
            | Self::Unresponsive
            | Self::StillRunning
            | Self::Ending
            | Self::DaemonEnding
            | Self::HistoryUnreadable { .. }
            | Self::Remove(RemovePathError::Ending) => ErrorCode::Unavailable,
        }
    }
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
    /// The named disk has the most paths allowed.
    #[error(
        "disk `{0}` has {max} paths, which is the most allowed and includes removed paths that wait for their fence; remove a path first",
        max = MAX_PATHS
    )]
    TooMany(String),
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
    #[error("disk `{}` has no path {}; `mpathctl path list` shows the paths", .0.disk, .0.index)]
    UnknownPath(PathRef),
    /// The named disk would have no usable path left.
    #[error(
        "disk `{0}` would have no usable path left, and its I/O would wait; add or enable another path first, or use --force"
    )]
    LastPath(String),
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
}

/// The paths that a daemon waits for at its start.
fn waits_for(paths: WaitFor) -> &'static str {
    match paths {
        WaitFor::None => "the sockets of its disks",
        WaitFor::Any => "a live path of each disk (`wait-for: any`)",
        WaitFor::All => "every configured path (`wait-for: all`)",
    }
}

/// A name that may be meant, if there is one.
fn did_you_mean(name: Option<&str>) -> String {
    name.map_or(";".into(), |name| format!("; did you mean `{name}`?"))
}

/// The advice to wait for the end of a removal.
fn wait_for_removal() -> String {
    let max = REMOVING_MAX.as_secs();
    format!("wait up to {max} s until `mpathctl disk list` does not show that disk, and try again")
}

/// A list of names.
fn names(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
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
        Self::new(error.code(), error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).expect("the table has valid statuses");
        (status, Json(ErrorBody { error: self.0 })).into_response()
    }
}
