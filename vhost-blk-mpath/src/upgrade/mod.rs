//! The upgrade of a running daemon: it starts its program anew and hands its sockets over.
//!
//! ```text
//!  daemon                                         new process (`--take-over`)
//!    ├── starts ─────────────────────────────────────▶ │
//!    ├── listening sockets ──────────────────────────▶ │ reads the configuration, creates other sockets, tries paths
//!    │ ◀──────────────────────────────── ready, failed ┤
//!    │ ends in order: drains, flushes, hangs up        │ front-ends that connect meanwhile wait in the backlog
//!    └── its process is gone ────────────────────────▶ │ opens the fence records, connects paths, serves
//! ```
//! The two never send requests at the same time. If the new process fails before it is ready, the daemon goes on.

mod channel;
pub(crate) mod predecessor;
pub(crate) mod rehearsal;
pub(crate) mod successor;

/// The flag of the new process.
pub(crate) const TAKE_OVER: &str = "--take-over";
