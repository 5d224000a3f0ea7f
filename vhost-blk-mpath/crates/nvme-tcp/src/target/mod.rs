//! The target's side of a connection, and the subsystem behind it.
//!
//! A [`TargetQueue`] is one connection: it takes the host's bytes and hands up commands. The caller asks the
//! [`Subsystem`] about Connects and admin commands, executes I/O commands after [`check_io`] as it likes, and
//! completes each command by its token.

mod admin;
mod answer_faults;
mod command;
mod controller;
mod digest_faults;
mod discovery;
mod error;
mod events;
mod identify;
mod instance;
mod logs;
mod namespace;
mod queue;
mod receive;
mod slots;
mod subsystem;
mod transfer;

#[cfg(test)]
mod tests;

pub use admin::AdminReply;
pub use answer_faults::{AnswerFault, AnswerFaults, FaultyCommands};
pub use command::{CommandToken, TargetCommand};
pub use digest_faults::DigestFaults;
pub use error::TargetError;
use events::Notice;
pub use namespace::{ByteRange, IoScope, IoTask, IoView, Namespace, check_io};
pub use queue::{QueueIdentity, QueueLimits, TargetQueue};
pub use subsystem::{Refusal, Subsystem, SubsystemConfig};
