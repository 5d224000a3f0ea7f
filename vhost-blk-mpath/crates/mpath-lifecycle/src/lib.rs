//! The life of paths, of their namespaces, of the fences of lost associations, and of disks; and discovery.
//!
//! ```text
//!  orders, sockets, reports of I/O threads ──▶ PathDriver ── connect, record, give to the I/O threads, close ──▶ surroundings
//!                                               Path  │ ended associations                         ▲ what to reset
//!                                                     ▼                                            │
//!                                                  Fences ──────────────────────────────────────── ┘
//! ```
//! Sans-IO state machines: no sockets, clocks, threads or randomness. Callers pass in the time and what has happened;
//! actions and timeouts come out. [`PathDriver`] carries out the actions of a path. The daemon runs it over real sockets, the
//! simulator over simulated ones. [`DiskDriver`] tells both which step of a disk comes next.

mod controller_shutdown;
pub mod discovery;
mod disk_driver;
mod disk_hold;
mod disk_opening;
mod disk_step;
mod disks;
mod fence;
mod growth;
mod held_removals;
mod inherited_namespaces;
mod namespace_name;
mod namespaces;
mod order;
mod path;
mod path_driver;
mod path_namespaces;
mod pending_fences;
mod record;
mod settings;
#[cfg(test)]
mod testing;
mod thread_message;
mod virtqueues;

use mpath_core::{Epoch, PathId};

pub use controller_shutdown::ControllerShutdown;
pub use disk_driver::{DiskDriver, DiskView};
pub use disk_hold::{DiskHold, HoldAction, HoldReason, InheritedFence, TriedPath};
pub use disk_opening::DiskOpening;
pub use disk_step::DiskStep;
pub use disks::{Admissions, AdmitError, Disks, NamespaceUpdate, ServedNamespace, Size, Unusable};
pub use fence::{EndedAssociation, Fences, HeldFence, LiftedBy, LiftedFence};
pub use held_removals::{RemovablePath, held_removals};
pub use inherited_namespaces::{InheritedMismatch, InheritedNamespaces};
pub use namespace_name::NamespaceName;
pub use order::{DesiredState, Order};
pub use path::{Action, ClosedAssociation, LiveAssociation, Path, PathError, PathNews, PathTrial, Report};
pub use path_driver::{PathDriver, PathSurroundings};
pub use path_namespaces::{NamespaceStatus, PathNamespaces};
pub use pending_fences::{PendingFence, PendingFences};
pub use record::{
    DaemonRun, DiskShutdown, EXIT_MAX, FENCE_MAX, OrderlyEnd, Record, RecordContent, RecordedAssociation,
    RemainingFence, longest_fence,
};
pub use settings::{CONNECT_MAX, PathSettings, SHUTDOWN_MAX};
pub use thread_message::{IoThreads, ThreadMessage};
pub use virtqueues::VirtqueueThreads;

/// Identifies an association by its path and its number on that path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId {
    /// The path.
    pub path: PathId,
    /// Increases with each association of the path.
    pub epoch: Epoch,
}
