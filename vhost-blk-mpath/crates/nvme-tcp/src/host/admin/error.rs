//! Errors of any admin connection.

use monotonic::Duration;

use super::Step;
use crate::host::QueueError;
use crate::wire::Status;

/// Why an admin connection failed, with any kind of controller. Each prints as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The controller rejected Connect or violated the protocol.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// No answer in time.
    #[error("no answer within {after:?}: {step}{}", explanation(*.step))]
    Timeout {
        /// The step without an answer.
        step: Step,
        /// The time allowed.
        after: Duration,
    },
    /// A required command failed.
    #[error("{step} failed: {status}")]
    Command {
        /// The step of the command.
        step: Step,
        /// Its status.
        status: Status,
    },
    /// CSTS.CFS: the controller has failed.
    #[error("the controller reports fatal status (CSTS.CFS)")]
    FatalStatus,
    /// Identify Controller names another subsystem than the requested one.
    #[error("the controller belongs to subsystem {got:?}")]
    WrongSubsystem {
        /// The controller's SUBNQN, as text.
        got: String,
    },
}

/// The meaning of a step without an answer, or the origin of its time.
fn explanation(step: Step) -> &'static str {
    match step {
        Step::Connect => " (the target accepts the connection and does not answer)",
        Step::KeepAlive => " (half of the keep-alive timeout is for the answer)",
        _ => "",
    }
}
