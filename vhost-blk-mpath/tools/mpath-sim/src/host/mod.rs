//! The host: the daemon's parts with virtual time and a simulated network in place of io_uring, tokio and sockets.
//!
//! I/O threads, virtqueues, disks, paths with their driver, fences and discovery are the shipping code. The modules here stand for the
//! daemon's threads and tasks.

mod control_socket;
mod daemon;
mod discovery;
mod disk_task;
mod disks;
mod fences;
mod files;
mod front_end_connection;
mod front_ends;
mod io_thread;
mod io_threads;
mod path;
mod plan;
mod process;
mod shutdown_phase;
mod socket;
mod stats_question;
mod turn_timer;

pub(crate) use self::daemon::Daemon;
pub(crate) use self::files::Files;
pub(crate) use self::io_thread::Message;
pub(crate) use self::plan::{DiskPlan, HostPlan};
pub(crate) use self::process::Process;
pub(crate) use self::shutdown_phase::EndedDaemon;
