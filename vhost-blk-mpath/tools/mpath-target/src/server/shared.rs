//! The state that all threads of a server share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use monotonic::Instant;
use nvme_tcp::wire::{AnaState, ControllerInstance, DiscoveryEntry, Nqn, Status};
use nvme_tcp_target::{
    AdminReply, CommandToken, ConnectRefusal, IoView, Namespace, QueueIdentity, QueueLimits, Subsystem,
    TargetAuthentication, TargetCommand,
};
use nvme_tls::KeyLookup;

use super::association::Association;
use super::connection_registry::ConnectionRegistry;
use super::faults::Faults;
use super::waker::Waker;
use crate::storage::Store;
use crate::tls_key::GeneratedKeys;

/// The shared state of a server.
pub(super) struct Shared {
    control: Mutex<Control>,
    /// The namespaces by NSID from 1. `stores` has the same order.
    pub(super) namespaces: Vec<Namespace>,
    pub(super) stores: Vec<Box<dyn Store>>,
    pub(super) limits: QueueLimits,
    pub(super) registry: Arc<ConnectionRegistry>,
    /// Connections that have ended and left held commands.
    pub(super) orphans: Arc<ConnectionRegistry>,
}

/// How the connections of a port are secured.
#[derive(Clone)]
pub(super) enum PortSecurity {
    /// Not at all, but queues may be authenticated.
    ClearText,
    /// All connections use TLS with these keys.
    Tls(Arc<dyn KeyLookup>),
    /// Queues that are authenticated in clear text generate keys. All other connections use TLS with these keys.
    Concatenation(Arc<GeneratedKeys>),
}

impl PortSecurity {
    pub(super) fn word(&self) -> Option<&'static str> {
        match self {
            Self::ClearText => None,
            Self::Tls(_) => Some("tls"),
            Self::Concatenation(_) => Some("concat"),
        }
    }
}

/// A port, as its connections use it.
pub(super) struct Port {
    /// Port ID, from 1.
    pub(super) id: u16,
    /// The index of the listener.
    pub(super) listener: usize,
    pub(super) faults: Faults,
    pub(super) security: PortSecurity,
}

/// The subsystem, and the connections of each of its controllers.
pub(super) struct Control {
    subsystem: Subsystem,
    associations: HashMap<u16, Arc<Association>>,
    /// Ended associations that have held commands.
    ended: Vec<Weak<Association>>,
}

impl Port {
    pub(super) fn new(id: u16, listener: usize, security: PortSecurity) -> Self {
        Self { id, listener, faults: Faults::new(), security }
    }
}

impl Shared {
    pub(super) fn new(subsystem: Subsystem, stores: Vec<Box<dyn Store>>, max_connections: usize) -> Self {
        let control = |subsystem| Control { subsystem, associations: HashMap::new(), ended: Vec::new() };
        Self {
            namespaces: subsystem.config().namespaces.clone(),
            limits: subsystem.config().limits,
            control: Mutex::new(control(subsystem)),
            stores,
            registry: Arc::new(ConnectionRegistry::new(max_connections)),
            orphans: Arc::new(ConnectionRegistry::new(max_connections)),
        }
    }

    /// Binary logarithm of the logical block size in bytes, the same for all namespaces.
    pub(super) fn block_shift(&self) -> u8 {
        self.namespaces.first().map_or(0, |namespace| namespace.block_shift)
    }

    /// Locks the subsystem. The caller must not hold an [`Association::gate`].
    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        // Poison is ignored: the methods that change the subsystem do not panic half-way.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all connections and orphans of a listener, so that they notice changes of the port.
    pub(super) fn notify(&self, listener: usize) {
        self.registry.notify(listener);
        self.orphans.notify(listener);
    }
}

impl Control {
    /// Answers a Connect. On success the connection joins the association of its controller.
    pub(super) fn connect(
        &mut self,
        now: Instant,
        port: &Port,
        command: &TargetCommand,
        waker: &Arc<Waker>,
    ) -> Result<(QueueIdentity, Arc<Association>), ConnectRefusal> {
        let identity = self.subsystem.connect(now, port.id, command)?;
        let QueueIdentity { cntlid, qid, .. } = identity;
        let (instance, view) = self.state(cntlid).ok_or((Status::INTERNAL_ERROR, 0))?;
        let fresh = || Arc::new(Association::new(instance, view));
        let association = Arc::clone(self.associations.entry(cntlid).or_insert_with(fresh));
        association.join(qid, waker);
        Ok((identity, association))
    }

    /// The authentication of a queue whose Connect was accepted, if one is required.
    pub(super) fn authentication(&self, identity: QueueIdentity) -> Option<Box<TargetAuthentication>> {
        self.subsystem.authentication(identity)
    }

    /// NQN of the host of a controller, and of the subsystem.
    pub(super) fn names(&self, cntlid: u16) -> Option<(Nqn, Nqn)> {
        Some((self.subsystem.hostnqn(cntlid)?.clone(), self.subsystem.config().nqn.clone()))
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

    /// Sets the ANA state of one group of a port, or of all groups.
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

    pub(super) fn override_namespace(&mut self, port: u16, nsid: u32, reported: Option<Namespace>) {
        self.subsystem.override_namespace(port, nsid, reported);
        self.publish_all();
    }

    pub(super) fn set_discovery_entries(&mut self, entries: Vec<DiscoveryEntry>) {
        self.subsystem.set_discovery_entries(entries);
        self.publish_all();
    }

    pub(super) fn discovery_generation(&self) -> Option<u64> {
        self.subsystem.discovery_generation()
    }

    /// Passes a change of the subsystem to all controllers, including events.
    fn publish_all(&mut self) {
        let cntlids: Vec<u16> = self.associations.keys().copied().collect();
        for cntlid in cntlids {
            self.publish(cntlid);
            if let Some(association) = self.associations.get(&cntlid) {
                association.notify();
            }
        }
    }

    /// Removes a connection that has ended. `waker` distinguishes it from a later connection of the same queue.
    pub(super) fn disconnected(&mut self, identity: QueueIdentity, waker: &Arc<Waker>) {
        let cntlid = identity.cntlid;
        if self.associations.get(&cntlid).is_some_and(|association| association.leave(waker)) {
            self.subsystem.disconnected(identity);
            self.publish(cntlid);
        }
    }

    /// Passes the state of a controller to its I/O connections. After the return, no arriving command is executed under the old
    /// state.
    fn publish(&mut self, cntlid: u16) {
        let Some(association) = self.associations.get(&cntlid) else {
            return;
        };
        let ended = match self.state(cntlid) {
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
        self.ended.retain(|ended| ended.strong_count() > 0);
        self.ended.extend(ended.as_ref().map(Arc::downgrade));
    }

    /// Ends all commands of a controller instance, including held ones. After the return, none is executed.
    fn revoke(&self, instance: ControllerInstance) {
        let ended = self.ended.iter().filter_map(Weak::upgrade);
        ended.filter(|ended| ended.instance == instance).for_each(|ended| ended.revoke());
    }
}
