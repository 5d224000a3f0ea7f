//! What all threads of a server share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use nvme_tcp::target::{
    AdminReply, CommandToken, ConnectRefusal, IoView, Namespace, QueueIdentity, QueueLimits, Subsystem, TargetCommand,
};
use nvme_tcp::wire::{AnaState, ControllerInstance, DiscoveryEntry, Status};

use super::association::Association;
use super::faults::Faults;
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
    /// Connections that are gone but for the commands held of them.
    pub(super) late: Arc<Registry>,
}

/// A port as its connections see it.
pub(super) struct Port {
    /// Port id, from 1.
    pub(super) id: u16,
    /// Index of the listener.
    pub(super) listener: usize,
    pub(super) faults: Faults,
}

/// The subsystem, and the connections of each of its controllers.
pub(super) struct Control {
    subsystem: Subsystem,
    associations: HashMap<u16, Arc<Association>>,
    /// Those that are over, as long as commands are held of them.
    former: Vec<Weak<Association>>,
}

impl Port {
    pub(super) fn new(id: u16, listener: usize) -> Self {
        Self { id, listener, faults: Faults::new() }
    }
}

impl Shared {
    pub(super) fn new(subsystem: Subsystem, stores: Vec<Box<dyn Store>>, max_connections: usize) -> Self {
        let control = |subsystem| Control { subsystem, associations: HashMap::new(), former: Vec::new() };
        Self {
            namespaces: subsystem.config().namespaces.clone(),
            limits: subsystem.config().limits,
            control: Mutex::new(control(subsystem)),
            stores,
            registry: Arc::new(Registry::new(max_connections)),
            late: Arc::new(Registry::new(max_connections)),
        }
    }

    /// Bytes of a logical block, as a power of two; the same for all namespaces.
    pub(super) fn block_shift(&self) -> u8 {
        self.namespaces.first().map_or(0, |namespace| namespace.block_shift)
    }

    /// The subsystem, locked. To be taken without holding any [`Association::gate`].
    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        // The subsystem is changed by methods that do not panic half-way.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everything of a listener look at its port anew.
    pub(super) fn notify(&self, listener: usize) {
        self.registry.notify(listener);
        self.late.notify(listener);
    }
}

impl Control {
    pub(super) fn connect(
        &mut self,
        now: Instant,
        port: &Port,
        command: &TargetCommand,
        wake: &Arc<Wake>,
    ) -> Result<(QueueIdentity, Arc<Association>), ConnectRefusal> {
        let identity = self.subsystem.connect(now, port.id, command)?;
        let QueueIdentity { cntlid, qid, .. } = identity;
        let (instance, view) = self.state(cntlid).ok_or((Status::INTERNAL_ERROR, 0))?;
        let fresh = || Arc::new(Association::new(instance, view));
        let association = Arc::clone(self.associations.entry(cntlid).or_insert_with(fresh));
        association.join(qid, wake);
        Ok((identity, association))
    }

    fn state(&self, cntlid: u16) -> Option<(ControllerInstance, IoView)> {
        Some((self.subsystem.instance(cntlid)?, self.subsystem.io_view(cntlid)?))
    }

    pub(super) fn admin(&mut self, now: Instant, cntlid: u16, command: TargetCommand) -> AdminReply {
        let reply = self.subsystem.admin(now, cntlid, command);
        self.publish(cntlid);
        if let AdminReply::ResetController { instance, .. } = reply {
            self.publish(instance.cntlid);
            self.revoke(instance);
        }
        reply
    }

    pub(super) fn poll_event(&mut self, cntlid: u16) -> Option<(CommandToken, Status, u64)> {
        self.subsystem.poll_event(cntlid)
    }

    pub(super) fn keep_alive_deadline(&self, cntlid: u16) -> Option<Instant> {
        self.subsystem.next_timeout(cntlid)
    }

    pub(super) fn restart_keep_alive(&mut self, now: Instant, cntlid: u16) {
        self.subsystem.restart_keep_alive(now, cntlid);
        self.publish(cntlid);
    }

    /// Changes one ANA group of a port, or all.
    pub(super) fn set_ana(&mut self, port: u16, group: Option<u32>, state: AnaState) {
        match group {
            Some(group) => self.subsystem.set_ana_group(port, group, state),
            None => self.subsystem.set_ana(port, state),
        }
        self.publish_all();
    }

    /// The ANA state of each group of a port.
    pub(super) fn ana(&self, port: u16) -> Vec<AnaState> {
        self.subsystem.ana(port)
    }

    pub(super) fn override_namespace(&mut self, port: u16, nsid: u32, shown: Option<Namespace>) {
        self.subsystem.override_namespace(port, nsid, shown);
        self.publish_all();
    }

    pub(super) fn set_discovery_entries(&mut self, entries: Vec<DiscoveryEntry>) {
        self.subsystem.set_discovery_entries(entries);
        self.publish_all();
    }

    pub(super) fn discovery_generation(&self) -> Option<u64> {
        self.subsystem.discovery_generation()
    }

    /// Brings a change of the subsystem to every controller, events included.
    fn publish_all(&mut self) {
        let cntlids: Vec<u16> = self.associations.keys().copied().collect();
        for cntlid in cntlids {
            self.publish(cntlid);
            if let Some(association) = self.associations.get(&cntlid) {
                association.notify();
            }
        }
    }

    /// A connection has ended; `wake` tells it from a later one of the same queue.
    pub(super) fn disconnected(&mut self, identity: QueueIdentity, wake: &Arc<Wake>) {
        let cntlid = identity.cntlid;
        if self.associations.get(&cntlid).is_some_and(|association| association.leave(wake)) {
            self.subsystem.disconnected(identity);
            self.publish(cntlid);
        }
    }

    /// Brings the state of a controller to its I/O connections. On return, nothing that arrives is executed by the old
    /// one.
    fn publish(&mut self, cntlid: u16) {
        let Some(association) = self.associations.get(&cntlid) else {
            return;
        };
        let former = match self.state(cntlid) {
            Some((instance, view)) if instance == association.instance => return association.publish(view),
            Some((instance, view)) => {
                let next = Arc::new(Association::new(instance, view));
                association.close_for(&next);
                self.associations.insert(cntlid, next)
            }
            None => {
                association.close();
                self.associations.remove(&cntlid)
            }
        };
        self.former.retain(|former| former.strong_count() > 0);
        self.former.extend(former.as_ref().map(Arc::downgrade));
    }

    /// On return, no command of this life of a controller is executed any more, however long it was held.
    fn revoke(&self, instance: ControllerInstance) {
        let former = self.former.iter().filter_map(Weak::upgrade);
        former.filter(|former| former.instance == instance).for_each(|former| former.revoke());
    }
}
