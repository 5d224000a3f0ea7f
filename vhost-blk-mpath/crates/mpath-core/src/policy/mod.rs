//! Decides: a policy picks a path; each has a file in this folder.
//!
//! Path selection policies: one file each, behind one trait.
//!
//! A policy receives events and answers one question, [`Policy::select`]. Before it asks, the group selects the
//! candidates. They are the live paths in the best ANA state that a live path has (optimized strictly before
//! non-optimized). They do not rest after a path error, and are not suspect while another path is not. The group asks
//! for one request at a time, and only when the request could go somewhere. So a policy always decides on the latest
//! knowledge, and a switch of policy affects the next request.

use std::fmt;

use monotonic::{Duration, Instant};

use crate::window::Usage;
use crate::{FlowId, OpClass, Param, PathId};

mod active_policies;
mod adaptive;
mod bdp;
mod class_policies;
mod kind;
mod latency;
mod latency_average;
mod latency_policy;
mod latency_rr;
mod numa;
mod opinion;
mod path_estimate;
mod pid;
mod queue_depth;
mod round_robin;
mod service_time;
#[cfg(test)]
mod testing;

pub(crate) use active_policies::ActivePolicies;
pub use class_policies::{ClassPolicies, PolicyChange, PolicyClass, PolicySpec, UnknownClass};
pub use kind::{PolicyKind, UnknownPolicy};
pub use opinion::Opinion;
pub use path_estimate::PathEstimate;

/// Static description of a policy. Each policy's file has its own.
struct PolicyInfo {
    name: &'static str,
    aliases: &'static [&'static str],
    /// The rule in one line.
    description: &'static str,
    params: &'static [Param],
    /// Creates the policy; the number is a seed.
    build: fn(&PolicySpec, u64) -> Box<dyn Policy>,
}

/// A path that a policy may choose or wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) path: PathId,
    /// The request fits into the path's window now.
    pub(crate) has_room: bool,
    /// Requests the path holds, of all classes.
    pub(crate) in_flight: u32,
    /// Bytes of the requests in `in_flight`.
    pub(crate) in_flight_bytes: u64,
    /// Usage by requests of the queried class.
    pub(crate) of_class: Usage,
    /// See [`crate::PathConfig::numa_distance`].
    pub(crate) numa_distance: u32,
    /// The oldest request in flight of the queried class.
    pub(crate) oldest: Option<Oldest>,
    /// A candidate of the path and class with this number differs at most in `has_room`. 0: no number.
    pub(crate) version: u64,
}

/// The oldest request in flight on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Oldest {
    /// When the policy gave the request to the path.
    pub(crate) bound_at: Instant,
    pub(crate) bytes: u32,
}

/// The request that needs a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) now: Instant,
    pub(crate) class: OpClass,
    /// Bytes that the request moves over the path: 0 except for reads and writes.
    pub(crate) bytes: u32,
    /// The virtqueue of the request.
    pub(crate) flow: FlowId,
    /// Requests that wait for a path, including this one.
    pub(crate) queued: usize,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The attempt succeeded.
    Answered,
    /// The read was recalled, because its hedge was sooner or it was overdue; its own latency would have been longer. A
    /// single slow read is no fault of the path.
    Overtaken,
    /// The read was recalled from a suspect path, or the path failed the request. The policy counts the failure with at
    /// least the reported latency.
    Failed,
}

/// An attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletedAttempt {
    pub(crate) now: Instant,
    pub(crate) path: PathId,
    pub(crate) class: OpClass,
    pub(crate) bytes: u32,
    /// Time since the bind. The request may be older than this policy.
    pub(crate) latency: Duration,
    /// How the attempt ended. Only the bytes of an answered attempt have arrived.
    pub(crate) ended: AttemptEnd,
    /// The path's remaining usage by requests of the class.
    pub(crate) of_class: Usage,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeResult {
    pub(crate) now: Instant,
    pub(crate) path: PathId,
    pub(crate) bytes: u32,
    /// `None` if it failed.
    pub(crate) latency: Option<Duration>,
}

/// The answer of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Use this candidate, which has room.
    Path(PathId),
    /// Wait for a candidate that has something in flight. The group asks again when anything changes, and at `again`.
    Wait { again: Option<Instant> },
}

/// Policies can be copied, so that a copy can be asked without effect.
pub(crate) trait CopyPolicy {
    fn copy(&self) -> Box<dyn Policy>;
}

impl<T: Policy + Clone + 'static> CopyPolicy for T {
    fn copy(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Policy> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

/// A path selection policy.
pub(crate) trait Policy: fmt::Debug + Send + CopyPolicy {
    /// Chooses one of the candidates, which are in the order of their ids. The request is bound to the chosen path at
    /// once.
    ///
    /// `Wait` is allowed only while some candidate has no room or has something in flight: a change of such a candidate
    /// wakes the request later.
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice;

    /// The opinion of the rule on each candidate, in their order, for the operator. [`Policy::select`] uses the same
    /// functions. The group asks a copy, and then lets the copy select.
    fn opinions(&mut self, query: &Query, candidates: &[Candidate]) -> Vec<Opinion>;

    /// Whether a `Wait` of [`Policy::select`] holds, at that moment, for all requests of the class with the same paths to choose
    /// from. False if each flow keeps to its own path.
    fn treats_flows_alike(&self) -> bool {
        true
    }

    /// Takes note of an attempt that has ended.
    fn completed(&mut self, _done: &CompletedAttempt) {}

    /// Forgets what was learned about a path that came up, was lost or changed its ANA state.
    fn path_changed(&mut self, _path: PathId) {}

    /// The estimate of a path, for the operator.
    fn estimate(&self, _path: PathId, _class: OpClass) -> PathEstimate {
        PathEstimate::default()
    }

    /// Applies other parameter values and keeps what was learned. `spec` is of this policy's kind.
    fn configure(&mut self, _spec: &PolicySpec) {}

    /// A path of the set `paths` to probe, and the bytes to read, a multiple of 512. `busy`: the guest has open
    /// requests. Called very often.
    fn probe(&mut self, _now: Instant, _paths: u64, _busy: bool) -> Option<(PathId, u32)> {
        None
    }

    /// Takes the result of a probe, whichever policy asked for it.
    fn probed(&mut self, _done: &ProbeResult) {}

    /// When the group asks for a probe again, while there are requests.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The path after `last` in cyclic order. `paths` ascend.
fn next_after(last: Option<PathId>, paths: impl Iterator<Item = PathId>) -> Option<PathId> {
    let mut first = None;
    for path in paths {
        if Some(path) > last {
            return Some(path);
        }
        first = first.or(Some(path));
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cyclic_order() {
        let paths = || [1, 4, 6].into_iter().map(PathId);
        for (last, next) in [(None, 1), (Some(0), 1), (Some(1), 4), (Some(5), 6), (Some(6), 1)] {
            assert_eq!(next_after(last.map(PathId), paths()), Some(PathId(next)));
        }
        assert_eq!(next_after(None, std::iter::empty()), None);
    }
}
