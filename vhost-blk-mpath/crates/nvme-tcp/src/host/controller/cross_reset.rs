//! Cross-Controller Reset (Base 2.3, 5.4.3): this controller resets another controller of the subsystem, to which the host has
//! lost its association. Afterwards commands sent to the other controller cannot be executed.
//!
//! One reset at a time runs in parallel with the steps and the keep-alives. A reset has no deadline, because the caller does not
//! depend on its answer: another event lifts the fence later.

use super::HostController;
use crate::host::admin::Owner;
use crate::wire::{AdminCommand, CROSS_RESET_DONE, ControllerInstance, Sgl, Status};

/// The result of a Cross-Controller Reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossResetOutcome {
    /// The reset is complete: the other controller will not execute commands of the lost association.
    Done,
    /// The reset is under way. This host does not wait for the event that announces its end.
    Begun,
    /// The controller failed the command.
    Failed(Status),
}

/// Why a Cross-Controller Reset was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CrossResetRefusal {
    /// The association is not live.
    #[error("the association is not live")]
    NotLive,
    /// CCRL is zero: the controller does not have this command.
    #[error("the controller does not support Cross-Controller Reset")]
    Unsupported,
    /// A controller does not reset itself with this command.
    #[error("controller {cntlid} cannot reset itself by Cross-Controller Reset")]
    Itself {
        /// CNTLID.
        cntlid: u16,
    },
    /// The previous reset has not been answered.
    #[error("another Cross-Controller Reset is under way")]
    Busy,
}

impl HostController {
    /// Asks this controller to reset another one. [`ControllerEvent::CrossControllerReset`] reports the answer.
    ///
    /// [`ControllerEvent::CrossControllerReset`]: super::ControllerEvent::CrossControllerReset
    pub fn cross_controller_reset(&mut self, other: ControllerInstance) -> Result<(), CrossResetRefusal> {
        let is_open = !self.session.has_failed() && !self.session.is_shutting_down();
        let info = self.info().filter(|_| is_open).ok_or(CrossResetRefusal::NotLive)?;
        if info.cross_resets == 0 {
            return Err(CrossResetRefusal::Unsupported);
        }
        if info.cntlid == other.cntlid {
            return Err(CrossResetRefusal::Itself { cntlid: other.cntlid });
        }
        if self.is_reset_outstanding {
            return Err(CrossResetRefusal::Busy);
        }
        self.is_reset_outstanding = true;
        let sqe = AdminCommand::CrossControllerReset(other).to_sqe(0, Sgl::NONE);
        self.session.queue.submit(Owner::CrossControllerReset, sqe, 0);
        Ok(())
    }

    pub(super) fn on_cross_reset(&mut self, status: Status, result: u64) {
        self.is_reset_outstanding = false;
        let outcome = match status.result() {
            Ok(()) if result & CROSS_RESET_DONE != 0 => CrossResetOutcome::Done,
            Ok(()) => CrossResetOutcome::Begun,
            Err(status) => CrossResetOutcome::Failed(status),
        };
        self.events.push_back(super::ControllerEvent::CrossControllerReset(outcome));
    }
}
