//! Path selection policies: one file each, behind one trait.
//!
//! A policy hears of events and answers one question, [`Policy::select`]. The group has decided before it asks which
//! paths are candidates at all: live, in the best ANA state that any live path has (optimized strictly before
//! non-optimized), not resting after a path error, not suspect while another one is not. It asks for one request at a time and only when that request could
//! go somewhere, so that a policy always decides on the latest knowledge, and a switch of policy takes effect on the
//! very next request.

use std::fmt;
use std::time::{Duration, Instant};

use crate::window::Usage;
use crate::{FlowId, OpClass, Param, PathId};

mod adaptive;
mod bdp;
mod by_latency;
mod class;
mod estimate;
mod in_force;
mod kind;
mod latency;
mod latency_rr;
mod numa;
mod path_estimate;
mod pid;
mod queue_depth;
mod round_robin;
mod service_time;

pub use class::{ClassPolicies, PolicyChange, PolicyClass, PolicySpec, UnknownClass};
pub(crate) use in_force::InForce;
pub use kind::{PolicyKind, UnknownPolicy};
pub use path_estimate::PathEstimate;

/// What is to be known of a policy before there is one: each file has its own.
struct About {
    name: &'static str,
    aliases: &'static [&'static str],
    /// The rule in one line.
    description: &'static str,
    params: &'static [Param],
    /// Makes one; the number is a seed.
    build: fn(&PolicySpec, u64) -> Box<dyn Policy>,
}

/// A path that may be chosen, or waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) path: PathId,
    /// The request fits into the path's window now.
    pub(crate) has_room: bool,
    /// Requests the path holds, of all classes.
    pub(crate) in_flight: u32,
    /// Bytes of these.
    pub(crate) in_flight_bytes: u64,
    /// What it holds of the class in question.
    pub(crate) of_class: Usage,
    /// See [`crate::PathConfig::numa_distance`].
    pub(crate) numa_distance: u32,
    /// The oldest request in flight of the class in question.
    pub(crate) oldest: Option<Oldest>,
}

/// The request that a path has held for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Oldest {
    /// When it was bound to the path.
    pub(crate) bound_at: Instant,
    pub(crate) bytes: u32,
}

/// The request that looks for a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) now: Instant,
    pub(crate) class: OpClass,
    /// What it moves over the path: 0 for all but reads and writes.
    pub(crate) bytes: u32,
    /// The virtqueue it came from.
    pub(crate) flow: FlowId,
    /// Requests that wait for a path, this one included.
    pub(crate) queued: usize,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It succeeded.
    Answered,
    /// Its hedge was sooner, and it was taken back: it would have taken longer. A single slow read is no fault of the path.
    Overtaken,
    /// The path is silent, and it was recalled; or the path failed it, and its latency is what that counts as.
    InVain,
}

/// A request that has come back from its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub(crate) now: Instant,
    pub(crate) path: PathId,
    pub(crate) class: OpClass,
    pub(crate) bytes: u32,
    /// From the bind. It may be older than this policy.
    pub(crate) latency: Duration,
    /// Unless it was answered its bytes have not arrived.
    pub(crate) ended: Ended,
    /// What the path still holds of the class.
    pub(crate) of_class: Usage,
}

/// A probe that came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probed {
    pub(crate) now: Instant,
    pub(crate) path: PathId,
    pub(crate) bytes: u32,
    /// `None` if it failed.
    pub(crate) latency: Option<Duration>,
}

/// What a policy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This candidate, which has room.
    Path(PathId),
    /// Better to wait for a candidate that holds something now. The question comes again when anything changes, and at
    /// `again`.
    Wait { again: Option<Instant> },
}

/// A path selection policy.
pub(crate) trait Policy: fmt::Debug + Send {
    /// Which of the candidates, which come in the order of their ids? The request is bound to the path of the answer at
    /// once.
    ///
    /// `Wait` is an answer only while some candidate has no room or something in flight, which will wake the request up.
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice;

    /// A request has come back from its path.
    fn completed(&mut self, _done: &Completed) {}

    /// The path came up, was lost or changed its ANA state: what was learned about it may no longer hold.
    fn path_changed(&mut self, _path: PathId) {}

    /// What it thinks of a path, for the operator.
    fn estimate(&self, _path: PathId, _class: OpClass) -> PathEstimate {
        PathEstimate::default()
    }

    /// Takes on other values of the parameters, and keeps what it has learned. `spec` is of its own kind.
    fn configure(&mut self, _spec: &PolicySpec) {}

    /// A path to be measured by a read that nobody waits for, one of `paths`, a set, and how many bytes of it, a multiple of 512.
    /// `busy`: the guest has requests open. Asked very often.
    fn probe(&mut self, _now: Instant, _paths: u64, _busy: bool) -> Option<(PathId, u32)> {
        None
    }

    /// Such a read came back, whoever had asked for it.
    fn probed(&mut self, _done: &Probed) {}

    /// When [`Policy::handle_timeout`] is to be called. It counts only while there are requests.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// It is as late as [`Policy::next_timeout`] asked for. Waiting requests are looked at afterwards.
    fn handle_timeout(&mut self, _now: Instant) {}
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

/// What the tests of policies share.
#[cfg(test)]
mod testing {
    use super::*;

    pub(super) fn candidate(path: u16) -> Candidate {
        Candidate {
            path: PathId(path),
            has_room: true,
            in_flight: 0,
            in_flight_bytes: 0,
            of_class: Usage::default(),
            numa_distance: 10,
            oldest: None,
        }
    }

    pub(super) fn full(path: u16) -> Candidate {
        Candidate { has_room: false, in_flight: 1, ..candidate(path) }
    }

    pub(super) fn read(now: Instant) -> Query {
        Query { now, class: OpClass::Read, bytes: 4096, flow: FlowId(0), queued: 1 }
    }

    /// A candidate that has held one read of 4 KiB since then.
    pub(super) fn busy(path: u16, since: Instant) -> Candidate {
        let oldest = Some(Oldest { bound_at: since, bytes: 4096 });
        let usage = Usage { ios: 1, bytes: 4096 };
        Candidate { in_flight: 1, in_flight_bytes: 4096, of_class: usage, oldest, ..candidate(path) }
    }

    /// A read of 4 KiB that succeeded.
    pub(super) fn done(now: Instant, path: u16, latency: Duration) -> Completed {
        Completed {
            now,
            path: PathId(path),
            class: OpClass::Read,
            bytes: 4096,
            latency,
            ended: Ended::Answered,
            of_class: Usage::default(),
        }
    }

    pub(super) fn path(path: u16) -> Choice {
        Choice::Path(PathId(path))
    }

    pub(super) const WAIT: Choice = Choice::Wait { again: None };
}
