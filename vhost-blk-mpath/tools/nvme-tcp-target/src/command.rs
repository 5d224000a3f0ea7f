//! A command that is ready for execution.

use nvme_tcp::wire::Sqe;

/// The right to complete one command, once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a command that is never completed occupies its slot forever"]
pub struct CommandToken {
    pub(super) slot: u16,
}

/// A command with all of its data.
#[derive(Debug)]
pub struct TargetCommand {
    /// Completes the command.
    pub token: CommandToken,
    /// The submission queue entry, with a checked SGL.
    pub sqe: Sqe,
    /// The data from the host, of the length in the SGL; empty for commands that send none.
    pub payload: Vec<u8>,
    /// Bytes that the host expects back: the length in the SGL, or zero for commands that return no data.
    pub expects_bytes: u32,
}
