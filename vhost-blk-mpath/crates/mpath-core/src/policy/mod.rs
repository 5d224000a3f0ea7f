//! Path selection policies: one file each, behind one trait.
//!
//! A policy hears of events and answers one question, [`Policy::select`]. The group has decided before it asks which
//! paths are candidates at all: live, in the best ANA state that any live path has (optimized strictly before
//! non-optimized), not resting after a path error, not suspect while another one is not. It asks for one request at a time and only when that request could
//! go somewhere, so that a policy always decides on the latest knowledge, and a switch of policy takes effect on the
//! very next request.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::{OpClass, PathId};

mod latency_rr;
mod numa;
mod queue_depth;
mod round_robin;

/// The rule by which paths are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// The nearest path.
    Numa,
    /// Each path in turn.
    RoundRobin,
    /// The path with the fewest requests in flight.
    QueueDepth,
    /// In turn over the paths whose latency is near the best.
    LatencyRr,
}

impl PolicyKind {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Numa, Self::RoundRobin, Self::QueueDepth, Self::LatencyRr];

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Numa => "numa",
            Self::RoundRobin => "round-robin",
            Self::QueueDepth => "queue-depth",
            Self::LatencyRr => "latency-rr",
        }
    }

    /// The rule in one line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Numa => "one path: the nearest by NUMA distance, the others stand by",
            Self::RoundRobin => "each path in turn",
            Self::QueueDepth => "the path with the fewest requests in flight",
            Self::LatencyRr => "in turn over the paths within 125 % of the lowest average latency",
        }
    }

    pub(crate) fn build(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::Numa => Box::new(numa::Numa),
            Self::RoundRobin => Box::new(round_robin::RoundRobin::default()),
            Self::QueueDepth => Box::new(queue_depth::QueueDepth),
            Self::LatencyRr => Box::new(latency_rr::LatencyRr::new(seed)),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy '{name}', expected one of: {}", PolicyKind::ALL.map(PolicyKind::name).join(", "))]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}

/// A path that may be chosen, or waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) path: PathId,
    /// The request fits into the path's window now.
    pub(crate) has_room: bool,
    /// Requests the path holds.
    pub(crate) in_flight: u32,
    /// See [`crate::PathConfig::numa_distance`].
    pub(crate) numa_distance: u32,
    /// When the oldest request in flight of the class in question was bound to the path.
    pub(crate) oldest: Option<Instant>,
}

/// The request that looks for a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) now: Instant,
    pub(crate) class: OpClass,
    /// Requests that wait for a path, this one included.
    pub(crate) queued: usize,
}

/// What a policy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This candidate, which has room.
    Path(PathId),
    /// Better to wait for a candidate that has no room now. The question comes again when anything changes, and at
    /// `again`.
    Wait { again: Option<Instant> },
}

/// A path selection policy.
pub(crate) trait Policy: fmt::Debug + Send {
    /// Which of the candidates, which come in the order of their ids? The request is bound to the path of the answer at
    /// once.
    ///
    /// `Wait` is an answer only while some candidate has no room: what is in flight there will wake the request up.
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice;

    /// A request succeeded, `latency` after its bind, or was recalled that long after it, which is the least it would have
    /// taken. It may have been bound before this policy came into force.
    fn completed(&mut self, _now: Instant, _path: PathId, _class: OpClass, _latency: Duration) {}

    /// The path came up, was lost or changed its ANA state: what was learned about it may no longer hold.
    fn path_changed(&mut self, _path: PathId) {}
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
    fn names_round_trip_and_errors_list_them() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert!(!kind.description().is_empty());
        }
        let error = "roundrobin".parse::<PolicyKind>().expect_err("unknown");
        assert_eq!(
            error.to_string(),
            "unknown policy 'roundrobin', expected one of: numa, round-robin, queue-depth, latency-rr"
        );
    }

    #[test]
    fn cyclic_order() {
        let paths = || [1, 4, 6].into_iter().map(PathId);
        for (last, next) in [(None, 1), (Some(0), 1), (Some(1), 4), (Some(5), 6), (Some(6), 1)] {
            assert_eq!(next_after(last.map(PathId), paths()), Some(PathId(next)));
        }
        assert_eq!(next_after(None, std::iter::empty()), None);
    }
}

/// What the tests of policies share.
#[cfg(test)]
mod testing {
    use super::*;

    pub(super) fn candidate(path: u16) -> Candidate {
        Candidate { path: PathId(path), has_room: true, in_flight: 0, numa_distance: 10, oldest: None }
    }

    pub(super) fn full(path: u16) -> Candidate {
        Candidate { has_room: false, in_flight: 1, ..candidate(path) }
    }

    pub(super) fn read(now: Instant) -> Query {
        Query { now, class: OpClass::Read, queued: 1 }
    }

    pub(super) fn path(path: u16) -> Choice {
        Choice::Path(PathId(path))
    }

    pub(super) const WAIT: Choice = Choice::Wait { again: None };
}
