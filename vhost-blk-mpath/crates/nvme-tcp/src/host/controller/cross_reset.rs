//! Cross-Controller Reset (Base 2.3, 5.4.3): has this controller reset another one of the subsystem, which this host has
//! lost, so that nothing sent to that one can be executed any more.
//!
//! It runs beside the steps and the keep-alives, one at a time, and has no deadline of its own: who asks knows another
//! fence, and does not wait longer than for that.

use super::HostController;
use crate::host::admin_queue::Owner;
use crate::wire::{AdminCommand, CROSS_RESET_DONE, ControllerInstance, Sgl, Status};

/// What came of a Cross-Controller Reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossResetOutcome {
    /// No command of that life of the other controller will be executed any more.
    Done,
    /// It is under way. Its end, which an event would tell, is not waited for.
    Begun,
    /// It was refused.
    Failed(Status),
}

/// Why a Cross-Controller Reset was not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CrossResetRefusal {
    /// Not live yet, or no more.
    #[error("the association is not live")]
    NotLive,
    /// CCRL is zero.
    #[error("the controller does not support Cross-Controller Reset")]
    Unsupported,
    /// A controller does not reset itself this way.
    #[error("controller {cntlid} is the one asked")]
    Itself {
        /// CNTLID.
        cntlid: u16,
    },
    /// The one before has not been answered.
    #[error("another Cross-Controller Reset is under way")]
    Busy,
}

impl HostController {
    /// Asks this controller to reset another one. [`ControllerEvent::CrossControllerReset`] follows when it has answered.
    ///
    /// [`ControllerEvent::CrossControllerReset`]: super::ControllerEvent::CrossControllerReset
    pub fn cross_controller_reset(&mut self, other: ControllerInstance) -> Result<(), CrossResetRefusal> {
        let info = self.info().filter(|_| self.failed.is_none() && !self.wants.shutdown && !self.shutdown_sent);
        let info = info.ok_or(CrossResetRefusal::NotLive)?;
        if info.cross_resets == 0 {
            return Err(CrossResetRefusal::Unsupported);
        }
        if info.cntlid == other.cntlid {
            return Err(CrossResetRefusal::Itself { cntlid: other.cntlid });
        }
        if self.resets_other {
            return Err(CrossResetRefusal::Busy);
        }
        self.resets_other = true;
        let sqe = AdminCommand::CrossControllerReset(other).to_sqe(0, Sgl::NONE);
        self.queue.submit(Owner::CrossControllerReset, sqe, 0);
        Ok(())
    }

    pub(super) fn on_cross_reset(&mut self, status: Status, result: u64) {
        self.resets_other = false;
        let outcome = match status.result() {
            Ok(()) if result & CROSS_RESET_DONE != 0 => CrossResetOutcome::Done,
            Ok(()) => CrossResetOutcome::Begun,
            Err(status) => CrossResetOutcome::Failed(status),
        };
        self.events.push_back(super::ControllerEvent::CrossControllerReset(outcome));
    }
}
