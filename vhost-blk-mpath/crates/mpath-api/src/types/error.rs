//! What a request can be answered with besides success.

use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success: `{"error": {"code": ..., "message": ...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorInfo,
}

/// An error for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// What kind, for programs.
    pub code: ErrorCode,
    /// One line for people.
    pub message: String,
}

/// The kinds of errors, each with one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// 400: the query or the body is not what the route takes.
    BadRequest,
    /// 404: there is no such route.
    UnknownRoute,
    /// 404: no disk has this name.
    UnknownDisk,
    /// 404: no path matches.
    UnknownPath,
    /// 405: the route does not take this method.
    MethodNotAllowed,
    /// 408: the body did not arrive in time.
    RequestTimeout,
    /// 409: a disk would have no usable path left.
    LastPath,
    /// 409: the path is in a state in which this cannot be done.
    PathState,
    /// 409: the disk has a path with this address.
    PathExists,
    /// 409: the disk has as many paths as it can have.
    TooManyPaths,
    /// 409: the disk's namespace cannot be reached over more than one path.
    NotMultipath,
    /// 409: the disk uses the paths of another one, and what is asked for is that disk's.
    SharesPaths,
    /// 409: there is a disk with this name, or with this socket.
    DiskExists,
    /// 409: the daemon has as many disks as it can have.
    TooManyDisks,
    /// 409: the disk cannot be served: no path leads to its namespace, say, or its socket cannot be created.
    DiskNotStarted,
    /// 409: a front-end is connected to the disk, or to one that goes with it.
    DiskConnected,
    /// 409: the disk is being removed, or the one that has the name or the socket of the one to be added is.
    DiskLeaving,
    /// 413: the body is larger than 64 KiB.
    BodyTooLarge,
    /// 503: the daemon is too busy, or ending.
    Unavailable,
    /// A kind that a later daemon may send.
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_daemons_error_is_still_understood() {
        let body = r#"{"error":{"code":"quota","message":"m"}}"#;
        let body: ErrorBody = serde_json::from_str(body).unwrap();
        assert_eq!(body.error.code, ErrorCode::Other);
    }
}
