//! The answer to a request that failed.

use serde::{Deserialize, Serialize};

/// The body of every error answer: `{"error": {"code": ..., "message": ...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorInfo,
}

/// An error for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ErrorInfo {
    /// The kind of the error, for programs.
    pub code: ErrorCode,
    /// One line for people.
    pub message: String,
}

/// The kinds of errors, each with one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// 400: the query or the body is wrong.
    BadRequest,
    /// 404: the route does not exist.
    UnknownRoute,
    /// 404: no disk has this name.
    UnknownDisk,
    /// 404: no path matches.
    UnknownPath,
    /// 405: the route does not take this method.
    MethodNotAllowed,
    /// 408: the body did not arrive in time.
    RequestTimeout,
    /// 409: the disk would have no usable path left.
    LastPath,
    /// 409: the state of the path does not allow the request.
    PathState,
    /// 409: the disk already has a path with this address.
    PathExists,
    /// 409: the disk has the most paths that it can have.
    TooManyPaths,
    /// 409: the disk's namespace allows only one path.
    NotMultipath,
    /// 409: the disk shares the paths of another disk, and the request concerns those paths.
    SharesPaths,
    /// 409: another disk has this name or this socket.
    DiskExists,
    /// 409: the daemon has the most disks that it can have.
    TooManyDisks,
    /// 409: the disk cannot be served. For example, no path leads to its namespace, or its socket cannot be created.
    DiskNotStarted,
    /// 409: the new program does not take over. The daemon goes on.
    UpgradeFailed,
    /// 409: the configuration file cannot be read or has errors. The message has a line for each.
    ConfigInvalid,
    /// 409: the daemon was started with flags and has no configuration file.
    NoConfigFile,
    /// 409: the request could lose data, and is carried out only with `force`.
    NeedsForce,
    /// 409: a front-end is connected to the disk or to a disk that shares its paths.
    DiskConnected,
    /// 409: the disk is being removed, or a disk with the name or socket of the new disk is.
    DiskLeaving,
    /// 413: the body is larger than 64 KiB.
    BodyTooLarge,
    /// 503: the daemon is too busy or is ending.
    Unavailable,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_error_code_is_read_as_other() {
        let body = r#"{"error":{"code":"quota","message":"m"}}"#;
        let body: ErrorBody = serde_json::from_str(body).unwrap();
        assert_eq!(body.error.code, ErrorCode::Other);
    }
}
