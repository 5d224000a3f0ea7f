//! What the guest of a disk gets.

use mpath_core::{GuestStats, Op, Stages};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{GuestOperation, Latency, TimeHistogram};

/// The requests of one disk, by operation, from the virtqueue to the answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GuestFigures {
    /// Reads, writes, and each other operation that the guest has used.
    #[serde(default)]
    pub guest_io: Vec<GuestIo>,
    /// The times of all requests of 10 ms or more since the daemon started, by stage.
    #[serde(default)]
    pub long_requests: Stages,
    /// The age of the oldest request without an answer. Waits for the disk's limits do not count. `null` without such a request.
    #[serde(default)]
    pub oldest_request_ms: Option<u64>,
}

/// The requests of one operation that the guest got an answer to, errors included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GuestIo {
    /// The operation.
    pub operation: GuestOperation,
    /// Requests since the daemon started.
    pub ios: u64,
    /// Requests of the last second.
    pub ios_1s: u64,
    /// Payload of those that succeeded, since the daemon started.
    pub bytes: u64,
    /// Latency in the last 0.9 to 1 s. It is rounded up, by at most 6 % or 1 µs. `null` without a request.
    pub latency_1s: Option<Latency>,
    /// Latency in the last 50 to 60 s.
    pub latency_60s: Option<Latency>,
    /// The latency since the daemon started for `/metrics`. The JSON does not have it.
    #[serde(skip)]
    pub histogram: TimeHistogram,
}

impl GuestFigures {
    /// The requests of one operation, if the guest has used the operation.
    #[must_use]
    pub fn of(&self, operation: GuestOperation) -> Option<&GuestIo> {
        self.guest_io.iter().find(|of| of.operation == operation)
    }
}

impl From<&GuestStats> for GuestFigures {
    fn from(stats: &GuestStats) -> Self {
        let of = |op| {
            let of = stats.of(op);
            GuestIo {
                operation: Some(op).into(),
                ios: of.ios(),
                ios_1s: of.latency_1s.as_ref().map_or(0, |counts| counts.requests()),
                bytes: of.bytes,
                latency_1s: Latency::recent(of.latency_1s.as_deref()),
                latency_60s: Latency::recent(of.latency_60s.as_deref()),
                histogram: (&of.latency).into(),
            }
        };
        let all = Op::ALL.into_iter().map(of);
        let is_shown =
            |of: &GuestIo| of.ios > 0 || matches!(of.operation, GuestOperation::Read | GuestOperation::Write);
        Self {
            guest_io: all.filter(is_shown).collect(),
            long_requests: stats.long_stages,
            oldest_request_ms: stats.oldest.map(monotonic::Duration::as_millis),
        }
    }
}
