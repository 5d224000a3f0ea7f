//! Injections: deliberate impairments of a path.

mod impairment;
mod random;

use std::num::NonZeroU64;

use monotonic::Duration;

use crate::{Outcome, words};
pub(crate) use impairment::{Ending, Impairment, PathInjections, Verdict};

/// A deliberate impairment of one path, between policy and queue pair.
///
/// Delayed requests count as in flight on the path, and the measured latency includes the delay. So policies and
/// operators see a slower, smaller or broken path. Without jitter, rate, error and stall, each request is delayed by
/// exactly `latency`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// The impaired direction: to the target, or back.
    pub direction: Direction,
    /// The delay of every request; at most [`Injection::MAX_LATENCY`].
    pub latency: Duration,
    /// The variation of the delay, as `distribution` defines it; zero: none.
    pub jitter: Duration,
    /// The distribution of the variation.
    pub distribution: Distribution,
    /// Bytes per second that pass, one request after the other. Requests without data take no time, and wait for
    /// earlier requests.
    pub rate: Option<NonZeroU64>,
    /// Requests that fail.
    pub error: Option<InjectedError>,
    /// Nothing passes until the injection ends. The path then looks grey: it takes requests and answers none.
    pub stall: bool,
    /// The seed of jitter and errors. The same seed and sequence of requests give the same decisions.
    pub seed: u64,
}

words! {
    /// The direction that an injection impairs.
    #[derive(Default)]
    Direction as "InjectedDirection", "direction", {
        /// To the target. A request that is delayed or fails here has not been sent.
        #[default]
        Request = "request",
        /// From the target, which has executed the command. The answer is late, missing or replaced.
        Response = "response",
    }
}

words! {
    /// The distribution of jitter. Every delay is limited to 0 to [`Injection::MAX_LATENCY`].
    #[derive(Default)]
    Distribution as "InjectedDistribution", "distribution", {
        /// Evenly between `latency - jitter` and `latency + jitter`; mean `latency`.
        #[default]
        Uniform = "uniform",
        /// Normal: mean `latency`, standard deviation `jitter`.
        Normal = "normal",
        /// `latency` plus an exponential delay whose mean is `jitter`.
        Exponential = "exponential",
        /// `latency` plus a delay with a heavy tail: Lomax (Pareto II), shape 3, mean `jitter`.
        Pareto = "pareto",
    }
}

/// Requests that fail: instead of their execution, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedError {
    /// Failures per million requests, chosen at random; at most a million.
    pub per_million: u32,
    /// The injected outcome: one that a target's status can mean. Outcomes without an answer are not allowed.
    pub outcome: Outcome,
}

impl Injection {
    /// The longest delay, including that of the rate. Longer delays are reduced to it.
    pub const MAX_LATENCY: Duration = Duration::from_secs(60);

    /// A fixed delay before the request is issued.
    #[must_use]
    pub fn latency(latency: Duration) -> Self {
        Self { latency, ..Self::default() }
    }

    /// The same injection with another seed, for one of the I/O threads of a disk.
    #[must_use]
    pub fn of_thread(self, thread: u64) -> Self {
        Self { seed: random::mix(self.seed, thread), ..self }
    }
}
