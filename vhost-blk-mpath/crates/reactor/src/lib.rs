//! One `io_uring` per I/O thread: it owns its virtqueues and one NVMe/TCP queue pair per path, and no lock is on the way
//! of a request.
//!
//! An [`IoThreadHandle`] is the only way in; [`PathEvent`]s are the only way out besides the guest's memory.

mod classify;
mod connection;
#[cfg(test)]
mod deferred_tests;
#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod faulted_tests;
#[cfg(test)]
mod grey_tests;
mod handle;
#[cfg(test)]
mod hedge_tests;
mod io_thread;
#[cfg(test)]
mod lost_command_tests;
mod message;
mod pace;
#[cfg(test)]
mod report_tests;
mod requests;
mod ring;
mod run;
#[cfg(test)]
mod testing;
mod token;
mod unanswered;
mod wake;

pub use classify::outcome_of;
pub use handle::{IoThreadConfig, IoThreadHandle, StartError, StoppingQueue};
pub use io_thread::IoThread;
pub use message::{Ending, Link, LossReason, Message, PathEvent, PathEventKind};
pub use ring::{Ring, RingError, SimulatedRing, SocketCall, reset};
pub use unanswered::Unanswered;
