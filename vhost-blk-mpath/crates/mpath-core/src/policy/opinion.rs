//! Opinions of policies on paths, for the operator.

use std::time::Duration;

/// The opinion of a policy on a path for one request. The numbers are those that the policy compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// The path takes turns with others.
    Turn,
    /// `adaptive`: the requests of a round that go to the path.
    Weight(u64),
    /// The virtqueue keeps to this path (`true`), or to another.
    KeptBy(bool),
    /// The NUMA distance; the least is chosen.
    NumaDistance(u32),
    /// Requests in flight; the fewest are chosen.
    InFlight(u32),
    /// The bytes in flight and of the request, divided by the relative throughput; the least is chosen.
    ServiceBytes(u64),
    /// The estimated latency; the least is chosen. `None`: it was not measured.
    Latency(Option<Duration>),
    /// The path gets one request that measures it.
    Measurement,
    /// The request that measures the path is under way, and the path gets no other.
    BeingMeasured,
    /// The estimated time until the request is answered, behind what is in flight; the least is chosen among paths
    /// of about the same use.
    AnsweredIn(Duration),
    /// The estimated latency is too long for what the path would add to the throughput. `None`: it was not measured.
    NotAdmitted(Option<Duration>),
    /// The policy's own window of the path is full.
    WindowFull {
        /// The bytes that the policy allows in flight.
        window_bytes: u64,
    },
}
