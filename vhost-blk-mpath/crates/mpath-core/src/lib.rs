//! The multipath core: it picks the path of each request, bounds what a path may hold, and handles failed paths.
//!
//! Sans-IO: a [`Group`] takes requests and events together with `now`. It returns [`Action`]s and the time of the
//! next timeout. It reads no clock, opens no socket, starts no thread and draws no random number. A simulator
//! therefore runs the code that ships.
//!
//! ```text
//!  submit ──→ scheduler ────→ policy.select ──→ injection ──→ Action::Issue ──→ (driver, queue pair)
//!             (flow queues)   + window         (delays)                                 │
//!             late binding                                                             │
//!                  ↑                                                                   │
//!                  │   (a slow read) ──→ Action::Hedge ──→ hedged, then Action::Adopt or Action::DropHedge
//!                  │   (an unused path) ──→ Action::Probe ──→ probed                  │
//!                  ├── path error, retry, lost and safe to repeat ←── complete(outcome)┤
//!                  ├── recalled from a suspect path, or overdue ←────────────────────┤
//!                  └── fence_lifted ←── fenced: lost and in doubt ←────────────────────┤
//!  Action::Finish ←── success or final error ←─────────────────────────────────────────┘
//! ```
//!
//! One `Group` serves, in one I/O thread, all disks that share its paths. These disks are namespaces of one
//! subsystem. The `Group`s of a disk share only its [`SharedDisk`].
//!
//! Rules for the driver (the I/O thread that calls a `Group`):
//! * `now` never goes backwards.
//! * Each turn of the driver begins with [`TurnWatch::begin_turn`]. If the driver stood still, all its groups have to know
//!   ([`Group::stood_still`]).
//! * After any call the driver polls [`Group::poll_action`] until it returns `None`. Then it sleeps until
//!   [`Group::next_timeout`] at the latest.
//! * The driver answers each [`Action::Issue`] with exactly one [`Group::complete`], also after [`Group::path_lost`].
//!   An [`Action::Recall`] asks for this answer early. It has no answer of its own.
//! * The driver answers each [`Action::Hedge`] with one [`Group::hedged`], unless the path is lost before. It keeps
//!   the data of the hedge until [`Action::Adopt`] or [`Action::DropHedge`].
//! * The driver answers each [`Action::Probe`] with one [`Group::probed`], unless the path is lost before.
//! * The driver reuses a tag only after the tag's [`Action::Finish`].
//!
//! A violation is a bug of the caller. Assertions find it.

#![forbid(unsafe_code)]
// "NVMe" and the like are names, not code.
#![allow(clippy::doc_markdown)]

mod ana;
#[cfg(feature = "api")]
pub mod api;
mod attention;
mod explanation;
mod failovers;
mod group;
mod guest_errors;
mod guest_io;
mod history;
mod host_time;
mod ids;
mod inject;
mod io;
mod kind_with_params;
mod late_answers;
mod minute;
mod oldest_request;
mod overdue_reads;
mod param;
mod path;
mod path_error_rest;
mod policy;
mod quantiles;
mod recent_latencies;
mod requests;
mod scheduler;
mod shared_disk;
mod silence;
mod slow_requests;
mod spans;
mod stats;
mod timers;
mod times;
mod unflushed;
mod units;
#[cfg(feature = "api")]
mod us;
#[cfg(feature = "api")]
mod us_if_any;
mod usable_paths;
mod window;
mod words;

pub use ana::{AnaState, AnaStates};
pub use explanation::{Explanation, FlushTarget, Next, NextRequest, PathVerdict, WaitCause, Waiting, WhyNot};
pub use failovers::{FailoverTimes, FenceWaits};
pub use group::{Group, GroupConfig, Hedging};
pub use guest_errors::{FailedRequest, GuestErrors};
pub use guest_io::{GuestIo, GuestStats};
pub use history::Stages;
pub use host_time::{HostStats, Stall, Standstill, TurnWatch, Waking};
pub use ids::{DiskId, Epoch, MAX_DISKS, MAX_PATHS, PathId};
pub use inject::{Direction, Distribution, InjectedError, Injection};
pub use io::{Action, FlowId, Io, IoError, MAX_HEDGE_BYTES, MAX_PROBE_BYTES, Op, OpClass, Outcome, RetryCause, Tag};
pub use kind_with_params::{KindChange, KindSpec, KindWithParams, ParamError, ParamsOf};
pub use minute::{ClassLatencies, DiskMinute, MinuteStats, PathMinute};
pub use oldest_request::{OLD_REQUEST, OldestRequest};
pub use param::Param;
pub use path::{Association, PathConfig};
pub use policy::{
    ClassPolicies, Opinion, PathEstimate, PolicyChange, PolicyClass, PolicyKind, PolicySpec, UnknownClass,
    UnknownPolicy,
};
pub use recent_latencies::LatencyCounts;
pub use scheduler::{
    Balance, DEFAULT_WEIGHT, DiskLimits, DiskSchedulerStats, FlowStats, Limits, SchedulerChange, SchedulerKind,
    SchedulerSpec, SchedulerStats, Tier, UnknownScheduler,
};
pub use shared_disk::SharedDisk;
pub use slow_requests::SlowRequest;
pub use stats::{ClassStats, GroupStats, HedgeCounts, PathStats};
pub use times::{TIME_BUCKETS_NS, TimeCounts, Times};
pub use unflushed::UnflushedPaths;
pub use units::{bytes_text, decimal_text, parse_bytes, parse_decimal, parse_time, time_text};
pub use usable_paths::UsablePaths;
pub use window::Window;
pub use words::UnknownWord;
