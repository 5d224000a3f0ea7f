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
    /// The same by stage.
    pub stages: SlowStages,
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
            stages: (&of.stages).into(),
            longest: of.stages.longest().into(),
            index: of.path.map(|path| path.0),
            paths: (0..64).filter(|path| of.paths >> path & 1 != 0).collect(),
            attempts: of.attempts,
            error: of.result.err().and_then(GuestErrorReason::of),
        }
    }
}

/// How long a request was in each stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SlowStages {
    /// The limits of the disk let nothing go.
    pub limit_us: u64,
    /// No path was eligible.
    pub no_path_us: u64,
    /// Waited for its turn and for a path with room.
    pub queue_us: u64,
    /// Kept by injections.
    pub injection_us: u64,
    /// With the queue pair, until its last command was encoded for the socket.
    pub send_us: u64,
    /// From there to the answer: the socket, the network and the target. A flush has everything after its turn here.
    pub path_us: u64,
    /// With paths, in attempts before the last one.
    pub earlier_attempts_us: u64,
    /// Waited for the time of a retry.
    pub retry_us: u64,
    /// In doubt: waited for a fence.
    pub fence_us: u64,
}

impl From<&Stages> for SlowStages {
    fn from(stages: &Stages) -> Self {
        Self {
            limit_us: us(stages.limit),
            no_path_us: us(stages.no_path),
            queue_us: us(stages.queue),
            injection_us: us(stages.injection),
            send_us: us(stages.send),
            path_us: us(stages.path),
            earlier_attempts_us: us(stages.earlier_attempts),
            retry_us: us(stages.retry),
            fence_us: us(stages.fence),
        }
    }
}
