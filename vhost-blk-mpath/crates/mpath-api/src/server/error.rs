//! What a request can end in besides success.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::types::{ErrorBody, ErrorCode, ErrorInfo, PathState};

/// Why the daemon did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No disk has this name.
    #[error("no disk is named `{disk}`; `mpathctl status` shows them")]
    UnknownDisk {
        /// The name asked for.
        disk: String,
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
    #[error("path {index} of disk `{disk}` is {state} and cannot be reset")]
    NotResettable {
        /// The disk.
        disk: String,
        /// The position of the path.
        index: u16,
        /// Its state.
        state: PathState,
    },
    /// As many clients as the daemon serves so wait for events already.
    #[error("{waiting} clients wait for events already; ask without waiting")]
    TooManyWaiters {
        /// How many wait.
        waiting: usize,
    },
    /// The I/O threads did not answer in time.
    #[error("the daemon's I/O threads do not answer")]
    Unresponsive,
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
            ControlError::UnknownDisk { .. } => ErrorCode::UnknownDisk,
            ControlError::UnknownPath { .. } => ErrorCode::UnknownPath,
            ControlError::LastPath { .. } => ErrorCode::LastPath,
            ControlError::NotResettable { .. } => ErrorCode::PathState,
            ControlError::Unresponsive | ControlError::Ending | ControlError::TooManyWaiters { .. } => {
                ErrorCode::Unavailable
            }
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
            ErrorCode::LastPath | ErrorCode::PathState => StatusCode::CONFLICT,
            ErrorCode::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::Other => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(ErrorBody { error: self.0 })).into_response()
    }
}
