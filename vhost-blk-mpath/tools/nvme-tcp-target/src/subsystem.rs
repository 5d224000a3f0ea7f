//! The subsystem behind all connections: ports, controllers, namespaces.

use std::collections::BTreeMap;

use monotonic::Instant;
use nvme_tcp::Authentication;
use nvme_tcp::wire::{
    AnaState, CNTLID_ANY, Connect, ConnectData, ConnectField, ControllerInstance, FabricsCommand, Nqn, Opcode, Status,
};

use super::EventKind;
use super::command::{CommandToken, TargetCommand};
use super::controller::Controller;
use super::discovery::Records;
use super::instances::ControllerInstances;
use super::namespace::{IoView, Namespace};
use super::queue::{QueueIdentity, QueueLimits};

/// Entries that an admin queue may always have (ASQSZ is at least 32). CAP.MQES applies to I/O queues only.
const ADMIN_ENTRIES_MIN: u16 = 32;
/// The largest CNTLID. The sixteen above are reserved (Base 3.1.1).
const CNTLID_MAX: u16 = 0xffef;

/// The configuration of a subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubsystemConfig {
    /// The name of the subsystem.
    pub nqn: Nqn,
    /// Serial number, up to 20 characters of ASCII.
    pub serial: String,
    /// Namespaces, by NSID from 1; at most 1024.
    pub namespaces: Vec<Namespace>,
    /// The initial ANA state of each port, by port ID from 1.
    pub ports: Vec<AnaState>,
    /// The limits of each connection.
    pub limits: QueueLimits,
    /// The most entries of an I/O queue: 2 to 4096.
    pub max_entries: u16,
    /// Whether SQ flow control stays on though a host asks for none. A response follows the data of each read then.
    pub keeps_flow_control: bool,
    /// The most I/O queues of a controller; at least 1.
    pub max_io_queues: u16,
    /// ANATT: the longest time in ANA state "change", in seconds; at least 1.
    pub anatt_seconds: u8,
    /// The seed of the random numbers of controller instances (CIRN).
    pub seed: u64,
    /// The secrets of the authentication, the same for every host. With them, each queue of each host is authenticated. At least
    /// one hash and one group.
    pub authentication: Option<Authentication>,
}

/// One port. Each namespace has its own ANA group, whose ID is the NSID.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) change_count: u64,
    pub(super) groups: Vec<Group>,
    /// Namespaces that this port reports with other properties, by NSID.
    pub(super) overrides: BTreeMap<u32, Namespace>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) state: AnaState,
    pub(super) change_count: u64,
}

/// A subsystem: plain data, no I/O. It answers Connects and admin commands. I/O commands need only
/// [`io_view`](Self::io_view) and [`check_io`](super::check_io).
#[derive(Debug)]
pub struct Subsystem {
    pub(super) config: SubsystemConfig,
    pub(super) ports: Vec<Port>,
    pub(super) controllers: BTreeMap<u16, Controller>,
    pub(super) instances: ControllerInstances,
    /// The log of a discovery subsystem; `None` for other subsystems.
    pub(super) records: Option<Records>,
    next_cntlid: u16,
}

/// The status and result of a refused Connect.
pub type ConnectRefusal = (Status, u64);

impl Subsystem {
    /// A subsystem without controllers. Connects create them.
    #[must_use]
    pub fn new(config: SubsystemConfig) -> Self {
        let group = |&state: &AnaState| Group { state, change_count: 0 };
        let port = |state| Port {
            change_count: 0,
            groups: vec![group(state); config.namespaces.len()],
            overrides: BTreeMap::new(),
        };
        let ports = config.ports.iter().map(port).collect();
        let instances = ControllerInstances::new(config.seed);
        Self { ports, controllers: BTreeMap::new(), instances, records: None, next_cntlid: 1, config }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &SubsystemConfig {
        &self.config
    }

    /// Answers the first command of a connection to port `port`, which must be a Connect. An admin queue creates a controller,
    /// and an I/O queue joins one.
    pub fn connect(
        &mut self,
        now: Instant,
        port: u16,
        command: &TargetCommand,
    ) -> Result<QueueIdentity, ConnectRefusal> {
        if Opcode(command.sqe.opcode) != Opcode::FABRICS {
            return Err((Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0));
        }
        let fabrics = FabricsCommand::parse(&command.sqe).map_err(|status| (status, 0))?;
        let FabricsCommand::Connect(connect) = fabrics else {
            return Err((Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0));
        };
        let data = command.payload.as_slice().try_into();
        let data: &[u8; ConnectData::LEN] = data.map_err(|_| (Status::DATA_SGL_LENGTH_INVALID.with_dnr(), 0))?;
        let data = ConnectData::parse(data).map_err(ConnectField::invalid)?;
        if data.subnqn != self.config.nqn {
            return Err(ConnectField::Subnqn.invalid());
        }
        let max_entries = match connect.qid {
            0 => self.config.max_entries.max(ADMIN_ENTRIES_MIN),
            _ => self.config.max_entries,
        };
        if connect.sqsize == 0 || connect.sqsize >= max_entries {
            return Err(ConnectField::Sqsize.invalid());
        }
        let mut identity = QueueIdentity {
            cntlid: data.cntlid,
            qid: connect.qid,
            entries: connect.sqsize + 1,
            flow_control: self.config.keeps_flow_control || connect.cattr & Connect::NO_SQ_FLOW_CONTROL == 0,
        };
        if connect.qid == 0 {
            if data.cntlid != CNTLID_ANY {
                return Err(ConnectField::Cntlid.invalid());
            }
            let cntlid = self.free_cntlid().ok_or((Status::CONNECT_CONTROLLER_BUSY, 0))?;
            let instance = self.instances.next(cntlid, &data.hostnqn);
            let controller = Controller::new(now, instance, port, data.hostid, data.hostnqn, connect.kato());
            self.controllers.insert(cntlid, controller);
            identity.cntlid = cntlid;
            return Ok(identity);
        }
        let max_io_queues = self.config.max_io_queues;
        let controller = self.controllers.get_mut(&data.cntlid).filter(|controller| controller.port == port);
        let controller = controller.ok_or(ConnectField::Cntlid.invalid())?;
        if controller.hostid != data.hostid || controller.hostnqn != data.hostnqn {
            return Err((Status::CONNECT_INVALID_HOST.with_dnr(), 0));
        }
        if connect.qid > controller.io_queues_granted.unwrap_or(max_io_queues) {
            return Err(ConnectField::Qid.invalid());
        }
        if !controller.is_ready() || !controller.io_queues.insert(connect.qid) {
            return Err((Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0));
        }
        Ok(identity)
    }

    /// The next unused CNTLID, in a circle, so that a freed CNTLID is not reused soon.
    fn free_cntlid(&mut self) -> Option<u16> {
        for _ in 0..CNTLID_MAX {
            let cntlid = self.next_cntlid;
            self.next_cntlid = if cntlid == CNTLID_MAX { 1 } else { cntlid + 1 };
            if !self.controllers.contains_key(&cntlid) {
                return Some(cntlid);
            }
        }
        None
    }

    /// Removes a closed connection. The controller is removed with its admin queue.
    pub fn disconnected(&mut self, identity: QueueIdentity) {
        if identity.qid == 0 {
            self.controllers.remove(&identity.cntlid);
        } else if let Some(controller) = self.controllers.get_mut(&identity.cntlid) {
            controller.io_queues.remove(&identity.qid);
        }
    }

    /// The current state that a controller's I/O queues need; `None` if there is no such controller.
    #[must_use]
    pub fn io_view(&self, cntlid: u16) -> Option<IoView> {
        let controller = self.controllers.get(&cntlid)?;
        let port = self.port(controller.port)?;
        Some(IoView {
            enabled: controller.is_ready(),
            write_cache: controller.write_cache,
            ana: port.groups.iter().map(|group| group.state).collect(),
            expires: controller.keep_alive_deadline,
        })
    }

    pub(super) fn port(&self, port: u16) -> Option<&Port> {
        self.ports.get(usize::from(port).checked_sub(1)?)
    }

    /// ANA state of each group of a port, by group from 1; empty if there is no such port.
    #[must_use]
    pub fn ana(&self, port: u16) -> Vec<AnaState> {
        let groups = self.port(port).map(|port| port.groups.as_slice()).unwrap_or_default();
        groups.iter().map(|group| group.state).collect()
    }

    /// Sets the ANA state of all namespaces on port `port`, and notifies the hosts of the port.
    pub fn set_ana(&mut self, port: u16, state: AnaState) {
        let groups = self.config.namespaces.len() as u32;
        self.change_ana(port, 1..=groups, state);
    }

    /// Sets the ANA state of one group, which is the namespace of that NSID. An unknown group is ignored.
    pub fn set_ana_group(&mut self, port: u16, group: u32, state: AnaState) {
        self.change_ana(port, group..=group, state);
    }

    fn change_ana(&mut self, port: u16, groups: std::ops::RangeInclusive<u32>, state: AnaState) {
        let Some(changed) = self.port_mut(port) else { return };
        let differs = |(group, id): &(&mut Group, u32)| groups.contains(id) && group.state != state;
        let mut affected: Vec<_> = changed.groups.iter_mut().zip(1..).filter(differs).map(|(group, _)| group).collect();
        if affected.is_empty() {
            return;
        }
        changed.change_count += 1;
        for group in &mut affected {
            **group = Group { state, change_count: changed.change_count };
        }
        self.controllers_of(port).for_each(|controller| controller.events.raise(EventKind::Ana));
    }

    /// Reports namespace `nsid` on port `port` with other properties, or with its own for `None`. Hosts of the port are notified of
    /// changed attributes. I/O is not affected. An unknown port or NSID is ignored.
    pub fn override_namespace(&mut self, port: u16, nsid: u32, reported: Option<Namespace>) {
        let index = (nsid as usize).checked_sub(1);
        let Some(&real) = index.and_then(|index| self.config.namespaces.get(index)) else { return };
        let Some(changed) = self.port_mut(port) else { return };
        let before = match reported.filter(|&reported| reported != real) {
            Some(reported) => changed.overrides.insert(nsid, reported),
            None => changed.overrides.remove(&nsid),
        };
        if before.unwrap_or(real) == reported.unwrap_or(real) {
            return;
        }
        for controller in self.controllers_of(port) {
            controller.events.changed_nsids.insert(nsid);
            controller.events.raise(EventKind::Namespaces);
        }
    }

    fn port_mut(&mut self, port: u16) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(port).checked_sub(1)?)
    }

    fn controllers_of(&mut self, port: u16) -> impl Iterator<Item = &mut Controller> {
        self.controllers.values_mut().filter(move |controller| controller.port == port)
    }

    /// The current instance of a controller; `None` if there is no such controller.
    #[must_use]
    pub fn instance(&self, cntlid: u16) -> Option<ControllerInstance> {
        Some(self.controllers.get(&cntlid)?.instance)
    }

    /// Restarts the keep-alive timer of a controller. Call it if this target could not receive from the host for a reason of its
    /// own.
    pub fn restart_keep_alive(&mut self, now: Instant, cntlid: u16) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.restart_keep_alive(now);
        }
    }

    /// The next Asynchronous Event Request of this controller to complete, with its status and result.
    pub fn poll_event(&mut self, cntlid: u16) -> Option<(CommandToken, Status, u64)> {
        self.controllers.get_mut(&cntlid)?.events.poll()
    }

    /// When to call [`is_expired`](Self::is_expired) next.
    #[must_use]
    pub fn next_timeout(&self, cntlid: u16) -> Option<Instant> {
        self.controllers.get(&cntlid)?.keep_alive_deadline
    }

    /// Whether the keep-alive timer has expired. Then all connections of the controller must be closed, admin queue included.
    #[must_use]
    pub fn is_expired(&self, cntlid: u16, now: Instant) -> bool {
        self.next_timeout(cntlid).is_some_and(|deadline| deadline <= now)
    }
}
