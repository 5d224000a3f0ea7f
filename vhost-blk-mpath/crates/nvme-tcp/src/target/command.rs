//! What a connection hands up for execution.

use crate::wire::Sqe;

/// The right to complete one command, once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a command that is never completed holds its slot for ever"]
pub struct CommandToken {
    pub(super) slot: u16,
}

/// A command with all of its data.
#[derive(Debug)]
pub struct TargetCommand {
    /// Completes the command.
    pub token: CommandToken,
    /// The submission queue entry, its SGL checked.
    pub sqe: Sqe,
    /// What the host sent, as long as the SGL says; empty for commands that send nothing.
    pub payload: Vec<u8>,
    /// Bytes the host expects back: the SGL's length, zero for commands that return nothing.
    pub expects_bytes: u32,
}
