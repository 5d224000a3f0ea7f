//! Explanations as plain values: the outcome of the next requests of a disk, and the reasons.

use monotonic::Duration;

use crate::policy::Opinion;
use crate::{AnaState, PathId};

/// An explanation for one disk in one [`crate::Group`].
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The next read.
    pub read: NextRequest,
    /// The next write.
    pub write: NextRequest,
    /// The paths that a flush must reach, or whose losses it reports. `None` with a shared write cache: any path will do.
    pub flush: Option<Vec<FlushTarget>>,
    /// The open requests of the disk by what they wait for.
    pub waiting: Vec<Waiting>,
}

/// The next request of a class.
#[derive(Clone, Debug)]
pub struct NextRequest {
    /// The request exists, and is the first that waits for a path. If false, no request waits, and the explanation is
    /// for a request of 4 KiB that would come now.
    pub waits: bool,
    /// Its bytes.
    pub bytes: u32,
    /// How long the limits of the disk still let no request go; `None`: no limit holds requests.
    pub limit_ends_in: Option<Duration>,
    /// What happens to it, apart from limits.
    pub next: Next,
    /// Every path, in the order of their ids.
    pub paths: Vec<PathVerdict>,
}

impl NextRequest {
    /// The verdict about a path, if the group has the path.
    #[must_use]
    pub fn path(&self, path: PathId) -> Option<&PathVerdict> {
        self.paths.iter().find(|verdict| verdict.path == path)
    }
}

/// What happens to the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It takes this path.
    Path(PathId),
    /// It waits: no path is eligible.
    NoPath {
        /// When it fails if no path comes up.
        fails_in: Option<Duration>,
    },
    /// It waits: no eligible path has room for it.
    NoRoom,
    /// It waits: the policy prefers to wait for a path without room.
    PolicyWaits {
        /// When the policy is asked again at the latest.
        again_in: Option<Duration>,
    },
}

/// The verdict about a path for one request.
#[derive(Clone, Copy, Debug)]
pub struct PathVerdict {
    /// The path.
    pub path: PathId,
    /// Why the request does not take the path; `None`: it does.
    pub why_not: Option<WhyNot>,
    /// What the policy says of the path; `None`: the policy was not asked about it.
    pub opinion: Option<Opinion>,
    /// Requests in flight, of all classes and disks.
    pub in_flight: u32,
    /// Bytes of these requests.
    pub in_flight_bytes: u64,
    /// The path is suspect.
    pub is_suspect: bool,
    /// An injection is in force.
    pub is_injected: bool,
}

/// Why a request does not take a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// The path is not live.
    Down,
    /// The ANA state of the disk's namespace allows no I/O.
    Ana(AnaState),
    /// The path rests after a path error.
    Resting {
        /// The time until the path no longer rests.
        ends_in: Duration,
    },
    /// The path is drained.
    Draining,
    /// The controller has asked for a delay of this request.
    ControllerDelay {
        /// The time until the delay is over.
        ends_in: Duration,
    },
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
    /// The policy prefers another path: see [`PathVerdict::opinion`] of both.
    NotPreferred,
}

/// A path that a flush must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "api", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct FlushTarget {
    /// The path's number on the disk, from 0.
    #[cfg_attr(feature = "api", serde(rename = "index"), schema(value_type = u16))]
    pub path: PathId,
    /// Whether the unflushed writes are only those that an earlier daemon may have left.
    #[cfg_attr(feature = "api", serde(rename = "presumed"))]
    pub is_presumed: bool,
    /// Whether the flush fails because unflushed writes were lost there.
    #[cfg_attr(feature = "api", serde(rename = "lost-writes"))]
    pub has_lost_writes: bool,
    /// Whether the path takes flushes now. Otherwise the flush waits for it.
    #[cfg_attr(feature = "api", serde(rename = "reachable"))]
    pub is_reachable: bool,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "api", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
#[cfg_attr(feature = "api", serde(rename_all = "kebab-case"), schema(as = WaitReason))]
pub enum WaitCause {
    /// The limits of the disk.
    Limit,
    /// A path: none is eligible.
    NoPath,
    /// Room on a path.
    Room,
    /// A better path than those with room, says the policy.
    Policy,
    /// Its turn.
    Turn,
    /// The time of a retry.
    Retry,
    /// The fence of its path: it is in doubt.
    Fence,
    /// The end of an injection's delay or stall.
    Injection,
    /// The answer of its path.
    Answer,
    /// The first of two answers: it is hedged.
    Hedge,
    /// Its way back: it is recalled from its path.
    Recall,
    /// Its turn on a path, as a flush.
    FlushTurn,
}

/// Requests that wait for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "api", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Waiting {
    /// What they wait for.
    pub cause: WaitCause,
    /// Their path. `null` if they have none.
    #[cfg_attr(feature = "api", serde(rename = "index"), schema(value_type = Option<u16>))]
    pub path: Option<PathId>,
    /// Their number. A flush counts once for each path.
    pub requests: u64,
    /// How long ago the first of them was fetched.
    #[cfg_attr(feature = "api", serde(rename = "oldest-us", with = "crate::us"), schema(value_type = u64))]
    pub oldest: Duration,
    /// When the first wait ends, if that is known.
    #[cfg_attr(feature = "api", serde(rename = "left-us", with = "crate::us_if_any"))]
    #[cfg_attr(feature = "api", schema(value_type = Option<u64>))]
    pub ends_in: Option<Duration>,
    /// Virtqueues, of this disk and of others over the paths, with a request that goes first.
    pub behind: u64,
}
