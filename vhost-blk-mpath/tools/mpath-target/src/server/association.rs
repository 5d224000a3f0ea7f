//! The connections of one controller instance, and the gate that decides which commands they may execute.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nvme_tcp::wire::ControllerInstance;
use nvme_tcp_target::IoView;

use super::waker::Waker;

/// All connections of one controller instance. A reset of the controller starts another instance.
///
/// A command is executed only under the read lock of the gate, and only if the gate allows it. A thread that has changed the gate
/// under the write lock knows that no command is executed under the old state. So disabling a controller is a fence.
pub(super) struct Association {
    pub(super) instance: ControllerInstance,
    gate: RwLock<Gate>,
    members: Mutex<Vec<Member>>,
}

/// Which commands may be executed.
pub(super) struct Gate {
    /// The state for commands that arrive. It does not affect held commands, which were accepted earlier.
    pub(super) view: IoView,
    /// A Cross-Controller Reset has ended all commands, including held ones.
    pub(super) revoked: bool,
}

struct Member {
    qid: u16,
    waker: Arc<Waker>,
}

impl Association {
    pub(super) fn new(instance: ControllerInstance, view: IoView) -> Self {
        let gate = RwLock::new(Gate { view, revoked: false });
        Self { instance, gate, members: Mutex::default() }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the gate for the execution of commands.
    pub(super) fn gate(&self) -> RwLockReadGuard<'_, Gate> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_gate(&self) -> RwLockWriteGuard<'_, Gate> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, qid: u16, waker: &Arc<Waker>) {
        self.members().push(Member { qid, waker: Arc::clone(waker) });
    }

    /// Removes a connection that has ended. Returns whether it was a member.
    pub(super) fn leave(&self, waker: &Arc<Waker>) -> bool {
        let mut members = self.members();
        let index = members.iter().position(|member| Arc::ptr_eq(&member.waker, waker));
        index.map(|index| members.swap_remove(index)).is_some()
    }

    pub(super) fn notify(&self) {
        self.members().iter().for_each(|member| member.waker.notify());
    }

    /// Passes the state of the controller to its I/O connections, and ends them if the controller is disabled. After the return, no
    /// command is executed under the old state.
    pub(super) fn publish(&self, view: IoView) {
        let enabled = view.enabled;
        self.change_gate().view = view;
        if !enabled {
            self.end(|qid| qid != 0);
        }
    }

    /// Ends the instance. After the return, no arriving command is executed. Held commands may still be.
    pub(super) fn close(&self) {
        self.change_gate().view.enabled = false;
        self.end(|_| true);
    }

    /// Ends the instance. Its admin connection moves to `next`.
    pub(super) fn close_for(&self, next: &Self) {
        self.change_gate().view.enabled = false;
        let mut members = self.members();
        let (admin, io): (Vec<_>, Vec<_>) = members.drain(..).partition(|member| member.qid == 0);
        next.members().extend(admin);
        for member in io {
            member.waker.stop();
        }
    }

    /// Ends the instance and its held commands. After the return, no command of the instance is executed.
    pub(super) fn revoke(&self) {
        let mut gate = self.change_gate();
        gate.revoked = true;
        gate.view.enabled = false;
        drop(gate);
        self.end(|_| true);
    }

    fn end(&self, which: impl Fn(u16) -> bool) {
        self.members().retain(|member| {
            let stays = !which(member.qid);
            if !stays {
                member.waker.stop();
            }
            stays
        });
    }
}
