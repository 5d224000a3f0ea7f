//! Explanations: which path the next requests of a disk would take, why not the others, and what waits.

use monotonic::Duration;
use mpath_config::PathAddress;
use mpath_core::{AnaState, ClassPolicies, FlushTarget, Next, NextRequest as CoreNext, Opinion, Waiting, WhyNot};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Condition, ConditionReason, InjectionInForce, PathState};

/// `GET /v1/disks/{disk}/explain`: what would happen to the next requests of a disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Explanation {
    /// The disk's name.
    pub disk: String,
    /// The condition of the disk.
    pub condition: Condition,
    /// Why: every condition that applies, the worst first.
    pub reasons: Vec<ConditionReason>,
    /// The policies in force, in the form of the configuration file.
    pub policy: ClassPolicies,
    /// The I/O threads that serve a virtqueue of the disk. Without a front-end: the first thread alone.
    pub threads: Vec<ThreadExplanation>,
}

/// One I/O thread. Each has windows and estimates of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ThreadExplanation {
    /// The thread's number in the daemon, from 0.
    pub thread: u16,
    /// The virtqueues of the disk that it serves.
    pub queues: Vec<u16>,
    /// How much longer a fence of an earlier daemon or of a removed disk keeps requests in the virtqueues. `null` if none does.
    pub held_ms: Option<u64>,
    /// Whether requests stay in the virtqueues until the disk is settled or, after a kill, every path was tried.
    pub suspended: bool,
    /// The next read.
    pub read: NextRequest,
    /// The next write.
    pub write: NextRequest,
    /// The paths that a flush must reach, or whose lost writes it reports. `null` with `shared-write-cache`: any path will do.
    pub flush: Option<Vec<FlushTarget>>,
    /// The open requests by what they wait for.
    pub waiting: Vec<Waiting>,
}

/// The next request of a class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NextRequest {
    /// Whether a request waits for a path: then this is the first one. Otherwise this is a request of 4 KiB that would come now.
    pub exists: bool,
    /// Its bytes.
    pub bytes: u32,
    /// How long the limits of the disk still hold the request back. `null` if they do not.
    pub limit_left_us: Option<u64>,
    /// What happens to it, apart from limits.
    pub decision: Decision,
    /// The path that it takes. `null` if it waits.
    pub index: Option<u16>,
    /// With `no-path`: when it fails. With `policy-waits`: when the policy is asked again at the latest. Otherwise `null`.
    pub left_us: Option<u64>,
    /// Every path.
    pub paths: Vec<ExplainedPath>,
}

impl NextRequest {
    /// The next request as the group sees it. `path` adds what the group does not know of a path.
    pub fn new(of: &CoreNext, path: impl Fn(&mpath_core::PathVerdict) -> Option<ExplainedPath>) -> Self {
        let (decision, index, left) = match of.next {
            Next::Path(path) => (Decision::Path, Some(path.0), None),
            Next::NoPath { fails_in } => (Decision::NoPath, None, fails_in),
            Next::NoRoom => (Decision::NoRoom, None, None),
            Next::PolicyWaits { again_in } => (Decision::PolicyWaits, None, again_in),
        };
        Self {
            exists: of.waits,
            bytes: of.bytes,
            limit_left_us: of.limit_ends_in.map(us),
            decision,
            index,
            left_us: left.map(us),
            paths: of.paths.iter().filter_map(path).collect(),
        }
    }
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// It takes a path.
    Path,
    /// It waits: no path is eligible.
    NoPath,
    /// It waits: no eligible path has room.
    NoRoom,
    /// It waits: the policy prefers to wait for a path without room.
    PolicyWaits,
}

/// The verdict about a path for one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ExplainedPath {
    /// The path's number on the disk, from 0.
    pub index: u16,
    /// The path's address.
    pub address: PathAddress,
    /// The path's state.
    pub state: PathState,
    /// Why the request does not take the path. `null`: it does.
    pub reason: Option<PathReason>,
    /// How much longer the reason holds, if that is known.
    pub left_us: Option<u64>,
    /// With `ana-state`: the state.
    pub ana_state: Option<AnaState>,
    /// What the policy says of the path. `null`: the policy was not asked about it.
    pub opinion: Option<Opinion>,
    /// I/Os in flight, of all classes and of all disks over the path.
    pub in_flight: u32,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// Whether the path is suspect.
    pub suspect: bool,
    /// The injections in force.
    pub injections: Vec<InjectionInForce>,
    /// Why the path is not usable, one line for people. `null` if the path is usable.
    pub detail: Option<String>,
}

/// Why a request does not take a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathReason {
    /// The path is not live. `state` and `detail` say why.
    Down,
    /// The ANA state of the namespace allows no I/O.
    AnaState,
    /// The path rests after a path error.
    Resting,
    /// The path is drained.
    Draining,
    /// The controller has asked for a delay of this request.
    ControllerDelay,
    /// The path is suspect, and another is usable.
    Suspect,
    /// The request has just been retried or recalled from the path, and another is usable.
    Avoided,
    /// An optimized path is usable.
    NonOptimized,
    /// The window of the path, or its queue pair, has no room for the request.
    WindowFull,
    /// The path has room, and an earlier request waits for more.
    RoomReserved,
    /// The policy prefers another path. `opinion` of both paths says why.
    NotPreferred,
}

impl PathReason {
    /// The reason, how much longer it holds, and its ANA state.
    #[must_use]
    pub fn of(why_not: WhyNot) -> (Self, Option<Duration>, Option<AnaState>) {
        match why_not {
            WhyNot::Down => (Self::Down, None, None),
            WhyNot::Ana(state) => (Self::AnaState, None, Some(state)),
            WhyNot::Resting { ends_in } => (Self::Resting, Some(ends_in), None),
            WhyNot::Draining => (Self::Draining, None, None),
            WhyNot::ControllerDelay { ends_in } => (Self::ControllerDelay, Some(ends_in), None),
            WhyNot::Suspect => (Self::Suspect, None, None),
            WhyNot::Avoided => (Self::Avoided, None, None),
            WhyNot::NonOptimized => (Self::NonOptimized, None, None),
            WhyNot::WindowFull => (Self::WindowFull, None, None),
            WhyNot::RoomReserved => (Self::RoomReserved, None, None),
            WhyNot::NotPreferred => (Self::NotPreferred, None, None),
        }
    }
}

/// A time in whole microseconds.
pub(super) fn us(time: Duration) -> u64 {
    time.as_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opinions_have_one_form_in_json_and_one_for_people() {
        let says = |opinion: Opinion| {
            let json = serde_json::to_string(&opinion).unwrap();
            assert_eq!(serde_json::from_str::<Opinion>(&json).unwrap(), opinion);
            (json, opinion.to_string())
        };
        let latency = Opinion::Latency { latency: Some(Duration::from_micros(30_100)) };
        assert_eq!(says(latency), (r#"{"says":"latency","latency-us":30100}"#.into(), "latency 30.100 ms".into()));
        let unknown = Opinion::NotAdmitted { latency: None };
        let text = "latency unknown, adds too little";
        assert_eq!(says(unknown), (r#"{"says":"not-admitted","latency-us":null}"#.into(), text.into()));
        assert_eq!(says(Opinion::Turn), (r#"{"says":"turn"}"#.into(), "takes turns".into()));
    }
}
