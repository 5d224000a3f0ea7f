//! The target's side of a connection, and the subsystem behind it.
//!
//! A [`TargetQueue`] is one connection: it takes the host's bytes and returns commands. The caller passes Connects and admin
//! commands to the [`Subsystem`], checks I/O commands with [`check_io`] and executes them in any order. It completes each
//! command by its token. Like crate `nvme-tcp`, this crate opens no sockets, reads no clocks and starts no threads.
#![forbid(unsafe_code)]

mod admin;
mod answer_faults;
mod authentication;
mod command;
mod command_table;
mod controller;
mod digest_faults;
mod discovery;
mod error;
mod events;
mod identify;
mod instances;
mod logs;
mod namespace;
mod queue;
mod receive;
mod spare_payloads;
mod subsystem;
mod transfer;

#[cfg(test)]
mod tests;

pub use admin::AdminReply;
pub use answer_faults::{AnswerFault, AnswerFaults, FaultyCommands};
pub use authentication::TargetAuthentication;
pub use command::{CommandToken, TargetCommand};
pub use digest_faults::DigestFaults;
pub use error::TargetError;
use events::EventKind;
pub use namespace::{ByteRange, IoScope, IoTask, IoView, Namespace, check_io};
pub use queue::{QueueIdentity, QueueLimits, TargetQueue};
pub use subsystem::{ConnectRefusal, Subsystem, SubsystemConfig};
