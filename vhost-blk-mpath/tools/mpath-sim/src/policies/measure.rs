//! The results of a stretch of virtual time.

use monotonic::Duration;

use crate::quantile::quantile;

/// The requests that finished in a stretch of virtual time.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    pub(crate) latencies: Vec<Duration>,
    pub(crate) slowest_read: Duration,
    /// Requests and probes issued, by path.
    pub(crate) issued: Vec<u64>,
    pub(crate) probes: Vec<u64>,
}

#[allow(clippy::cast_precision_loss)] // counts below 2^52
impl Measured {
    /// Requests finished per second.
    pub fn iops(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// The latency, from submission to end, that this share of the requests did not exceed.
    pub fn quantile(&mut self, share: f64) -> Duration {
        quantile(&mut self.latencies, share).unwrap_or_default()
    }

    /// The longest latency of a read, from submission to end.
    pub fn slowest_read(&self) -> Duration {
        self.slowest_read
    }

    /// Share of the requests issued on each path.
    pub fn shares(&self) -> Vec<f64> {
        let all = self.issued.iter().sum::<u64>().max(1) as f64;
        self.issued.iter().map(|issued| *issued as f64 / all).collect()
    }

    /// Probes per request.
    pub fn probe_share(&self) -> f64 {
        self.probes.iter().sum::<u64>() as f64 / self.issued.iter().sum::<u64>().max(1) as f64
    }
}
