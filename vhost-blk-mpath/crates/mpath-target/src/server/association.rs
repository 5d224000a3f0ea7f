//! The connections of one life of a controller, and the gate before what they execute.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nvme_tcp::target::IoView;
use nvme_tcp::wire::ControllerInstance;

use super::wake::Wake;

/// All connections of one life of a controller: a reset of the controller begins another.
///
/// A command is executed only while the gate is held for reading and allows it. So whoever has changed the gate knows
/// that nothing is executed under its old state any more: that is how disabling a controller is a fence.
pub(super) struct Association {
    pub(super) instance: ControllerInstance,
    gate: RwLock<Gate>,
    members: Mutex<Vec<Member>>,
}

/// What may be executed.
pub(super) struct Gate {
    /// What commands that arrive may do. Commands that are held were let in before, and do not care.
    pub(super) view: IoView,
    /// A Cross-Controller Reset has ended even held commands.
    pub(super) revoked: bool,
}

struct Member {
    qid: u16,
    wake: Arc<Wake>,
}

impl Association {
    pub(super) fn new(instance: ControllerInstance, view: IoView) -> Self {
        let gate = RwLock::new(Gate { view, revoked: false });
        Self { instance, gate, members: Mutex::default() }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate, for as long as something is executed.
    pub(super) fn gate(&self) -> RwLockReadGuard<'_, Gate> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_gate(&self) -> RwLockWriteGuard<'_, Gate> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, qid: u16, wake: &Arc<Wake>) {
        self.members().push(Member { qid, wake: Arc::clone(wake) });
    }

    /// A connection has ended; whether it belonged here.
    pub(super) fn leave(&self, wake: &Arc<Wake>) -> bool {
        let mut members = self.members();
        let index = members.iter().position(|member| Arc::ptr_eq(&member.wake, wake));
        index.map(|index| members.swap_remove(index)).is_some()
    }

    pub(super) fn notify(&self) {
        self.members().iter().for_each(|member| member.wake.notify());
    }

    /// Brings the controller's state to its I/O connections, and ends them if it is disabled. On return, nothing is
    /// executed by the old state.
    pub(super) fn publish(&self, view: IoView) {
        let enabled = view.enabled;
        self.change_gate().view = view;
        if !enabled {
            self.end(|qid| qid != 0);
        }
    }

    /// This life is over. On return, nothing that arrives is executed; what was held may still be.
    pub(super) fn close(&self) {
        self.change_gate().view.enabled = false;
        self.end(|_| true);
    }

    /// This life is over, except for the admin connection, which goes on in `next`.
    pub(super) fn close_for(&self, next: &Self) {
        self.change_gate().view.enabled = false;
        let mut members = self.members();
        let (admin, io): (Vec<_>, Vec<_>) = members.drain(..).partition(|member| member.qid == 0);
        next.members().extend(admin);
        for member in io {
            member.wake.stop();
        }
    }

    /// On return, no command of this life is executed any more, not even a held one.
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
                member.wake.stop();
            }
            stays
        });
    }
}
