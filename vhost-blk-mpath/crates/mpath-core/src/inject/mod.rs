//! Deliberate impairments of a path.

mod impairment;
mod random;

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::Outcome;
pub(crate) use impairment::{Impaired, Impairment, Verdict};

/// A deliberate impairment of one path, between the policy and the queue pair.
///
/// Whatever it holds counts as in flight on its path and the measured latency includes the delay, so that policies and
/// operators see just what a slower, smaller or broken path would show. Without jitter and with no limit, error or stall a
/// request is delayed by `latency` and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// What is impaired: the way to the target, or the way back.
    pub direction: Direction,
    /// Added to every request; at most [`Injection::MAX_LATENCY`].
    pub latency: Duration,
    /// How far the delay varies, in the terms of `distribution`; zero: not at all.
    pub jitter: Duration,
    /// How it varies.
    pub distribution: Distribution,
    /// Bytes per second that pass, one request after the other in their order; requests that move no data take none of it, and
    /// wait for those before them.
    pub rate: Option<NonZeroU64>,
    /// Requests that fail.
    pub error: Option<InjectedError>,
    /// Nothing passes before the injection ends. The path then looks grey: it takes requests and answers none.
    pub stall: bool,
    /// Of the jitter and of the errors: the same seed and the same sequence of requests make for the same decisions.
    pub seed: u64,
}

/// Which way an injection is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the target: what is held or fails here has not been sent.
    #[default]
    Request,
    /// From the target, which has executed the command: its answer is late, does not come, or is replaced.
    Response,
}

/// How jitter is distributed. Every delay is cut at zero and at [`Injection::MAX_LATENCY`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Evenly between `latency - jitter` and `latency + jitter`; mean `latency`.
    #[default]
    Uniform,
    /// Normal: mean `latency`, standard deviation `jitter`.
    Normal,
    /// `latency` plus an exponential delay whose mean is `jitter`.
    Exponential,
    /// `latency` plus a delay with a heavy tail: Lomax (Pareto II), shape 3, mean `jitter`.
    Pareto,
}

/// Requests that fail instead of being executed, or although they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedError {
    /// How many of a million, chosen at random; more than a million is a million.
    pub per_million: u32,
    /// What the status that the target might have answered with means. An outcome without an answer has no meaning here.
    pub outcome: Outcome,
}

impl Injection {
    /// The longest delay, that of the rate included; more is cut to it.
    pub const MAX_LATENCY: Duration = Duration::from_secs(60);

    /// A fixed delay before the request is issued.
    #[must_use]
    pub fn latency(latency: Duration) -> Self {
        Self { latency, ..Self::default() }
    }

    /// The same with a seed of its own, for one of several threads that share the disk.
    #[must_use]
    pub fn of_thread(self, thread: u64) -> Self {
        Self { seed: random::mix(self.seed, thread), ..self }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Response => "response",
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Exponential => "exponential",
            Self::Pareto => "pareto",
        })
    }
}
