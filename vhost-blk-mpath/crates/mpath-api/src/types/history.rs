//! The history of a disk.

use mpath_core::{ClassLatencies, LatencyCounts, OpClass, Stages};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::SlowRequest;
use super::explanation::us;

/// `GET /v1/disks/{disk}/history`: one minute of a disk. A minute in which nothing happened is left out.
// The daemon keeps it in this form. A test of the daemon fails if the form changes, so that its files get another version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HistoryMinute {
    /// When the minute began: UTC, RFC 3339 with milliseconds.
    pub began: String,
    /// How many seconds it has. The minute that has begun, the first one of a daemon and the last one have less than 60.
    pub seconds: u32,
    /// The guest's requests, from the virtqueue to the answer.
    pub guest: ClassFigures,
    /// The times of all requests of 10 ms or more, by stage.
    pub long_requests: Stages,
    /// How long this host did not run the I/O threads of the disk: the sum over the threads.
    pub host_stalled_ms: u64,
    /// The age of the oldest request without an answer, at the end of the minute. Waits for the disk's limits do not count. `null`
    /// without such a request.
    pub oldest_request_ms: Option<u64>,
    /// The slowest request of 10 ms or more that ended in the minute.
    pub slowest: Option<SlowRequest>,
    /// The paths with requests that succeeded, for every disk over them, from the choice of the path to the answer.
    pub paths: Vec<PathMinute>,
}

/// One minute of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PathMinute {
    /// The path's number on the disk, from 0.
    pub index: u16,
    /// The path's address.
    pub address: String,
    /// Its requests.
    pub io: ClassFigures,
}

/// Figures by class. `null` without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ClassFigures {
    /// Reads.
    pub read: Option<MinuteFigures>,
    /// Writes.
    pub write: Option<MinuteFigures>,
    /// Flush, discard and write zeroes.
    pub other: Option<MinuteFigures>,
}

/// Requests that ended in a minute. Latencies are rounded up, by at most 6 % or 1 µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MinuteFigures {
    /// Their number.
    pub ios: u64,
    /// Median latency.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Maximum.
    pub max_us: u64,
}

impl ClassFigures {
    /// Whether no class has requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The figures, of which none is above the latency of the slowest request: rounded ones may be.
    #[must_use]
    pub fn at_most(self, slowest_us: u64) -> Self {
        let bound = |of: Option<MinuteFigures>| {
            of.map(|MinuteFigures { ios, p50_us, p99_us, max_us }| MinuteFigures {
                ios,
                p50_us: p50_us.min(slowest_us),
                p99_us: p99_us.min(slowest_us),
                max_us: max_us.min(slowest_us),
            })
        };
        Self { read: bound(self.read), write: bound(self.write), other: bound(self.other) }
    }
}

impl From<&ClassLatencies> for ClassFigures {
    fn from(latencies: &ClassLatencies) -> Self {
        let of = |class: OpClass| latencies[class.index()].as_deref().and_then(figures);
        Self { read: of(OpClass::Read), write: of(OpClass::Write), other: of(OpClass::Other) }
    }
}

fn figures(counts: &LatencyCounts) -> Option<MinuteFigures> {
    let quantile = |quantile| counts.quantile(quantile).map(us);
    Some(MinuteFigures {
        ios: counts.requests(),
        p50_us: quantile(0.5)?,
        p99_us: quantile(0.99)?,
        max_us: quantile(1.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_figures_are_not_above_the_slowest_request() {
        let figures = |p99_us, max_us| Some(MinuteFigures { ios: 9, p50_us: 70, p99_us, max_us });
        let guest = ClassFigures { read: figures(90, 83_886), write: figures(81_000, 81_000), other: None };
        let bound = ClassFigures { read: figures(90, 80_650), write: figures(80_650, 80_650), other: None };
        assert_eq!(guest.at_most(80_650), bound);
    }
}
