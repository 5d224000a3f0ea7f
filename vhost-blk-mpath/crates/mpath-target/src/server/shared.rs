//! What all threads of a server share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use nvme_tcp::target::{
    AdminReply, CommandToken, IoView, Namespace, QueueIdentity, QueueLimits, Refusal, Subsystem, TargetCommand,
};
use nvme_tcp::wire::{AnaState, Status};

use super::registry::Registry;
use super::wake::Wake;
use crate::storage::Store;

pub(super) struct Shared {
    control: Mutex<Control>,
    /// By NSID from 1, as `stores` is.
    pub(super) namespaces: Vec<Namespace>,
    pub(super) stores: Vec<Box<dyn Store>>,
    pub(super) limits: QueueLimits,
    pub(super) registry: Arc<Registry>,
}

/// A port as its connections see it.
pub(super) struct Port {
    /// Port id, from 1.
    pub(super) id: u16,
    /// Index of the listener.
    pub(super) listener: usize,
    delay_nanos: AtomicU64,
}

/// The subsystem, and the connections of each of its controllers.
pub(super) struct Control {
    subsystem: Subsystem,
    associations: HashMap<u16, Arc<Association>>,
}

/// All connections of one controller.
///
/// An I/O connection executes commands only while it holds `view` for reading and has found the controller enabled
/// and itself not stopped. So whoever has changed `view` knows that nothing is executed under the old state any more:
/// disabling a controller is a fence.
pub(super) struct Association {
    view: RwLock<IoView>,
    members: Mutex<Vec<Member>>,
}

struct Member {
    qid: u16,
    wake: Arc<Wake>,
}

impl Port {
    pub(super) fn new(id: u16, listener: usize, delay: Duration) -> Self {
        let port = Self { id, listener, delay_nanos: AtomicU64::new(0) };
        port.set_delay(delay);
        port
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos.load(Ordering::Relaxed))
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.delay_nanos.store(nanos, Ordering::Relaxed);
    }
}

impl Shared {
    pub(super) fn new(subsystem: Subsystem, stores: Vec<Box<dyn Store>>, max_connections: usize) -> Self {
        Self {
            namespaces: subsystem.config().namespaces.clone(),
            limits: subsystem.config().limits,
            control: Mutex::new(Control { subsystem, associations: HashMap::new() }),
            stores,
            registry: Arc::new(Registry::new(max_connections)),
        }
    }

    /// The subsystem, locked. To be taken without holding any [`Association::view`].
    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        // The subsystem is changed by methods that do not panic half-way.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    pub(super) fn connect(
        &mut self,
        now: Instant,
        port: &Port,
        command: &TargetCommand,
        wake: &Arc<Wake>,
    ) -> Result<(QueueIdentity, Arc<Association>), Refusal> {
        let identity = self.subsystem.connect(now, port.id, command)?;
        let QueueIdentity { cntlid, qid, .. } = identity;
        let view = self.subsystem.io_view(cntlid);
        let gone = (Status::INTERNAL_ERROR, 0);
        let association = match self.associations.get(&cntlid) {
            Some(association) => Arc::clone(association),
            None => Arc::new(Association { view: RwLock::new(view.ok_or(gone)?), members: Mutex::default() }),
        };
        association.members().push(Member { qid, wake: Arc::clone(wake) });
        self.associations.insert(cntlid, Arc::clone(&association));
        Ok((identity, association))
    }

    pub(super) fn admin(&mut self, now: Instant, cntlid: u16, command: TargetCommand) -> AdminReply {
        let reply = self.subsystem.admin(now, cntlid, command);
        self.publish(cntlid);
        reply
    }

    pub(super) fn poll_event(&mut self, cntlid: u16) -> Option<(CommandToken, Status, u64)> {
        self.subsystem.poll_event(cntlid)
    }

    pub(super) fn keep_alive_deadline(&self, cntlid: u16) -> Option<Instant> {
        self.subsystem.next_timeout(cntlid)
    }

    pub(super) fn set_ana(&mut self, port: u16, state: AnaState) {
        self.subsystem.set_ana(port, state);
        let cntlids: Vec<u16> = self.associations.keys().copied().collect();
        for cntlid in cntlids {
            self.publish(cntlid);
            self.associations[&cntlid].members().iter().for_each(|member| member.wake.notify());
        }
    }

    /// A connection has ended; `wake` tells it from a later one of the same queue.
    pub(super) fn disconnected(&mut self, identity: QueueIdentity, wake: &Arc<Wake>) {
        let cntlid = identity.cntlid;
        let Some(association) = self.associations.get(&cntlid) else {
            return;
        };
        let mut members = association.members();
        let Some(index) = members.iter().position(|member| Arc::ptr_eq(&member.wake, wake)) else {
            return;
        };
        members.swap_remove(index);
        drop(members);
        self.subsystem.disconnected(identity);
        self.publish(cntlid);
    }

    /// Brings the state of a controller to its I/O connections. On return, nothing is executed by the old one.
    fn publish(&mut self, cntlid: u16) {
        let Some(association) = self.associations.get(&cntlid) else {
            return;
        };
        let view = self.subsystem.io_view(cntlid);
        let gone = view.is_none();
        let mut current = association.view.write().unwrap_or_else(PoisonError::into_inner);
        match view {
            Some(view) => *current = view,
            None => current.enabled = false,
        }
        if !current.enabled {
            // Those connected after this belong to the controller's next life.
            association.members().retain(|member| {
                let stays = member.qid == 0;
                if !stays {
                    member.wake.stop();
                }
                stays
            });
        }
        drop(current);
        if gone {
            self.associations.remove(&cntlid);
        }
    }
}

impl Association {
    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn view(&self) -> RwLockReadGuard<'_, IoView> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }
}
