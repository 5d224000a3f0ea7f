//! The slowest requests of the last minutes.

use mpath_core::Stages;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::explanation::us;
use super::{GuestErrorReason, GuestOperation};

/// `GET /v1/slow`: a slow request that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SlowRequest {
    /// The disk's name.
    pub disk: String,
    /// When the request ended: UTC, RFC 3339 with milliseconds.
    pub ended: String,
    /// The operation.
    pub operation: GuestOperation,
    /// The virtqueue.
    pub queue: u16,
    /// The first sector of 512 bytes. `null` for a flush, and for a request that was given up.
    pub sector: Option<u64>,
    /// Bytes of data. 0 for flush, write zeroes and discard.
    pub bytes: u32,
    /// The time since the daemon fetched the request.
    pub total_us: u64,
    /// The time since the daemon fetched the request, by stage.
    pub stages: Stages,
    /// The longest stage: its key without `-us`.
    pub longest: String,
    /// The path of the last attempt. `null` if there was none, and for a flush to several controllers.
    pub index: Option<u16>,
    /// All paths that got the request, hedges included.
    pub paths: Vec<u16>,
    /// Attempts. A flush counts as one.
    pub attempts: u32,
    /// The error that the guest got. `null` if the request succeeded.
    pub error: Option<GuestErrorReason>,
}

impl SlowRequest {
    /// The request as the API shows it.
    #[must_use]
    pub fn new(disk: String, ended: String, queue: u16, of: &mpath_core::SlowRequest) -> Self {
        Self {
            disk,
            ended,
            operation: Some(of.io.op).into(),
            queue,
            sector: of.sector,
            bytes: of.io.bytes,
            total_us: us(of.total),
            stages: of.stages,
            longest: of.stages.longest().into(),
            index: of.path.map(|path| path.0),
            paths: (0..64).filter(|path| of.paths >> path & 1 != 0).collect(),
            attempts: of.attempts,
            error: of.result.err().and_then(GuestErrorReason::of),
        }
    }
}
