//! The multipath core of disks that share paths, mostly just one: which path a request takes, how many a path may hold, what happens when a path
//! fails.
//!
//! Sans-IO: a [`Group`] takes requests and events together with `now`, and gives back [`Action`]s and the next timeout.
//! It reads no clock, opens no socket, starts no thread and draws no random number, so that a simulator runs the very
//! code that ships.
//!
//! ```text
//!  submit ──→ scheduler ────→ policy.select ──→ injection ──→ Action::Issue ──→ (driver, queue pair)
//!             (flow queues)   + window           (held)                                │
//!             late binding                                                             │
//!                  ↑                                                                   │
//!                  │   (a read that takes too long) ──→ Action::Hedge ──→ hedged, then Action::Adopt or Action::DropHedge
//!                  │   (a path nobody uses) ──→ Action::Probe ──→ probed            │
//!                  ├── path error, retry, lost and safe to repeat ←── complete(outcome)┤
//!                  ├── recalled: a read on a path that has gone silent ←─────────────┤
//!                  └── fence_lifted ←── held: lost and indeterminate ←─────────────────┤
//!  Action::Finish ←── success or final error ←─────────────────────────────────────────┘
//! ```
//!
//! One `Group` serves, in one I/O thread, all disks that share its paths: namespaces of one subsystem. The `Group`s of a disk
//! share nothing but its [`DirtyPaths`] and [`DiskLimits`].
//!
//! What the driver owes a `Group`:
//! * `now` never goes backwards.
//! * After any call it polls [`Group::poll_action`] until `None`, then sleeps no longer than [`Group::next_timeout`].
//! * It answers each [`Action::Issue`] with exactly one [`Group::complete`], also after [`Group::path_lost`]. An
//!   [`Action::Recall`] asks for that answer early and has none of its own.
//! * It answers each [`Action::Hedge`] with one [`Group::hedged`], unless the path is lost before, and keeps what it has read
//!   until [`Action::Adopt`] or [`Action::DropHedge`].
//! * It answers each [`Action::Probe`] with one [`Group::probed`], unless the path is lost before.
//! * It reuses a tag only after the tag's [`Action::Finish`].
//!
//! Breaking one of these is a bug of the caller, and asserted.

#![forbid(unsafe_code)]
// "NVMe" and the like are names, not code.
#![allow(clippy::doc_markdown)]

mod ana;
mod dirty;
mod disk;
mod group;
mod histogram;
mod ids;
mod inject;
mod io;
mod overdue;
mod param;
mod path;
mod policy;
mod quantiles;
mod recent;
mod requests;
mod retry;
mod scheduler;
mod spec;
mod stats;
mod timers;
mod watch;
mod window;

pub use ana::{AnaState, AnaStates};
pub use dirty::DirtyPaths;
pub use disk::SharedDisk;
pub use group::{Group, GroupConfig, Hedging};
pub use ids::{DiskId, Epoch, MAX_DISKS, MAX_PATHS, PathId};
pub use inject::{Direction, Distribution, InjectedError, Injection};
pub use io::{Action, FlowId, Io, IoError, MAX_HEDGE_BYTES, MAX_PROBE_BYTES, Op, OpClass, Outcome, Tag};
pub use param::Param;
pub use path::{Association, PathConfig};
pub use policy::{
    ClassPolicies, PathEstimate, PolicyChange, PolicyClass, PolicyKind, PolicySpec, UnknownClass, UnknownPolicy,
};
pub use scheduler::{
    Balance, DEFAULT_WEIGHT, DiskLimits, DiskTurns, FlowStats, Limits, SchedulerChange, SchedulerKind, SchedulerSpec,
    SchedulerStats, Tier, UnknownScheduler,
};
pub use spec::{Change, Kind, ParamError, ParamsOf, Spec};
pub use stats::{ClassStats, GroupStats, HedgeCounts, Moves, PathStats};
pub use window::Window;
