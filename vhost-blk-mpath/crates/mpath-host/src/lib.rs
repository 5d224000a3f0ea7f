//! The host's side of a subsystem: what becomes of its paths, of the namespaces that they lead to, of the fences that lost
//! associations leave, and which paths discovery adds and removes.
//!
//! ```text
//!  orders, sockets, reports of I/O threads ──▶ Path ──▶ actions: connect, write down, give to the I/O threads, take away
//!                                               │ ended associations                         ▲ what to reset
//!                                               ▼                                            │
//!                                            Fences ──────────────────────────────────────── ┘
//! ```
//! State machines without sockets, clocks, threads or randomness: the time and what has happened come in, actions and timeouts
//! go out. The daemon runs them over real sockets, the simulator over simulated ones.

pub mod discovery;
mod disks;
mod fence;
mod namespace_name;
mod namespaces;
mod order;
mod path;
mod record;
mod settings;
#[cfg(test)]
mod testing;
mod virtqueues;

use mpath_core::{Epoch, PathId};

pub use disks::{AdmitError, Admitted, Disks, News, Served, Unusable, check_sizes};
pub use fence::{DRAIN_MAX, Ended, Fences, Lifted, LiftedBy};
pub use namespace_name::NamespaceName;
pub use order::{Order, RemovalStep, Wanted};
pub use path::{Action, Left, Path, PathError, Report, Up};
pub use record::{
    EXIT_MAX, FENCE_MAX, Incarnation, Leaving, LeftBy, LeftFence, Record, RecordContent, RecordedAssociation,
    longest_fence,
};
pub use settings::{CONNECT_MAX, LEAVE_MAX, PathSettings};
pub use virtqueues::{Suspension, io_thread_of};

/// Names an association: its path, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId {
    /// The path.
    pub path: PathId,
    /// Greater than that of every earlier association of the path.
    pub epoch: Epoch,
}
