//! Decides: an error of the API has this HTTP status (`error_codes`).
//!
//! The answer to a request that failed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error answer: `{"error": {"code": ..., "message": ...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorInfo,
}

/// An error for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ErrorInfo {
    /// The kind of the error, for programs.
    pub code: ErrorCode,
    /// One line for people.
    pub message: String,
}

/// Defines [`ErrorCode`] from a table of kinds, statuses and meanings.
macro_rules! error_codes {
    ($($code:ident, $status:literal, $meaning:literal;)*) => {
        /// The kinds of errors, each with one HTTP status.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum ErrorCode {
            $(#[doc = $meaning] $code,)*
            /// A kind that this version does not know.
            #[serde(other)]
            Other,
        }

        impl ErrorCode {
            /// The HTTP status of answers with this error.
            #[must_use]
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$code => $status,)*
                    Self::Other => 500,
                }
            }

            /// What the error means, one line.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$code => $meaning,)*
                    Self::Other => "a kind that this version does not know",
                }
            }
        }
    };
}

error_codes! {
    BadRequest, 400, "the route, the query or the body is wrong";
    ReadOnly, 403, "the socket only reads";
    UnknownRoute, 404, "the route does not exist";
    UnknownDisk, 404, "no disk has this name";
    UnknownPath, 404, "no path matches";
    MethodNotAllowed, 405, "the route does not take this method";
    RequestTimeout, 408, "the body did not arrive in time";
    LastPath, 409, "the disk would have no usable path left";
    PathState, 409, "the state of the path does not allow the request";
    PathExists, 409, "the disk already has a path with this address";
    TooManyPaths, 409, "the disk has the most paths that it can have";
    NotMultipath, 409, "the disk's namespace allows only one path";
    SharesPaths, 409, "the disk shares the paths of another disk, and the request concerns those paths";
    DiskExists, 409, "another disk has this name or this socket";
    TooManyDisks, 409, "the daemon has the most disks that it can have";
    DiskNotStarted, 409, "the disk cannot be served: for example, no path leads to its namespace, or its socket cannot be created";
    UpgradeFailed, 409, "the new program does not take over, and the daemon goes on";
    ConfigInvalid, 409, "the configuration file cannot be read or has errors; the message has a line for each";
    NoConfigFile, 409, "the daemon was started with flags and has no configuration file";
    NeedsForce, 409, "the request could lose data, and is carried out only with `force`";
    DiskConnected, 409, "a front-end is connected to the disk or to a disk that shares its paths";
    DiskLeaving, 409, "the disk is being removed, or a disk with the name or socket of the new disk is";
    BodyTooLarge, 413, "the body is larger than 64 KiB";
    Unavailable, 503, "the daemon is too busy or is ending";
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
