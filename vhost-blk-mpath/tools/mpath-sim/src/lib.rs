//! The stack in virtual time. One number, the seed, decides a run. [`run`] runs the whole stack against random faults.
//! [`policies`] and [`bursts`] run the core alone, and compare the results with bounds.
//!
//! The host (`reactor::IoThread`, virtqueues and their vhost-user, `mpath_lifecycle`, the core under them) and the target (`TargetQueue`,
//! `Subsystem`) are the code that ships, joined by a simulated network and clock. The seed decides the shape of the world, the
//! work of the guest, and every fault. The same seed is the same run on every machine. docs/failure-model.md says what is
//! checked.
//!
//! ```text
//!  Machine ── virtqueues ──→ IoThread ── SimulatedRing ──→ Net ──→ Target (TargetQueue, Subsystem) ──→ Store
//!     │                        ↑ Message    PathEvent ↓     ↑                                            │
//!     │                      PathTask (its PathDriver), Fences, Discovery ◀── DiscoveryControllers       │
//!     └────────────────→ Checker ←── bytes on the wire ────────────────────────────────────────────────────┘
//! ```

#![forbid(unsafe_code)]
// "NVMe" and the like are names, not code.
#![allow(clippy::doc_markdown)]

mod blocks;
pub mod bursts;
mod checker;
mod clock;
mod connection;
mod context;
mod discovery_controllers;
mod fault;
pub mod group;
mod guest;
mod host;
mod machine;
mod net;
mod plan;
pub mod policies;
mod print_line;
mod quantile;
pub mod rng;
pub mod small;
mod target;
mod timeline;
mod tls;
mod world;

pub use blocks::Block;
pub use checker::{Counts, Violation};
pub use machine::{BlockGuest, BlockOp};
pub use print_line::print_line;
pub use world::Report;

/// Runs one seed. After a violation it is run again with every event of the block concerned recorded.
#[must_use]
pub fn run(seed: u64) -> Report {
    let report = world::World::new(seed, false, false).run(seed);
    if report.violation.is_none() {
        return report;
    }
    world::World::new(seed, true, false).run(seed)
}

/// Runs one seed and prints everything that happens.
#[must_use]
pub fn run_verbose(seed: u64) -> Report {
    world::World::new(seed, true, true).run(seed)
}
