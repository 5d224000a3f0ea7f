//! What a request can end in besides success.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::types::{ErrorBody, ErrorCode, ErrorInfo};

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
            ControlError::Unresponsive | ControlError::Ending => ErrorCode::Unavailable,
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
            ErrorCode::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::Other => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(ErrorBody { error: self.0 })).into_response()
    }
}
