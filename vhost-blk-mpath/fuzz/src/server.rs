//! A target for fuzz targets. It executes commands as mpath-target does, but each connection does so in reverse order.

use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use monotonic::{Duration, Instant};
use nvme_auth::DhGroup;
use nvme_tcp::Authentication;
use nvme_tcp::wire::{
    AddressFamily, AnaState, CNTLID_ANY, CROSS_RESET_DONE, ControllerInstance, DiscoveryEntry, Nqn, SecurityType, Sgl,
    Status, SubsystemType, TransportType,
};
use nvme_tcp_target::{
    AdminReply, IoScope, IoTask, IoView, Namespace, QueueLimits, Subsystem, SubsystemConfig, TargetCommand,
    TargetQueue, check_io,
};

use crate::host::secret;

/// With this many unsent bytes, no command is executed and no byte is received.
pub const BACKLOG_BYTES: usize = 64 << 10;
/// The most data of one command.
pub const TRANSFER_BYTES_MAX: usize = 16 << 10;
/// The most entries of an I/O queue.
const ENTRIES_MAX: u16 = 16;
/// Bytes of each namespace.
const NAMESPACE_BYTES: usize = 32 << 10;
/// The only port.
const PORT: u16 = 1;

/// What the subsystem is.
#[derive(Arbitrary, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A disk.
    Disk,
    /// A disk whose hosts must prove themselves.
    Authenticated,
    /// A discovery subsystem.
    Discovery,
}

/// A subsystem and the data of its namespaces.
pub struct Server {
    kind: Kind,
    subsystem: Subsystem,
    stores: [Vec<u8>; 2],
    now: Instant,
    /// The last controller. It may have ended.
    pub last: ControllerInstance,
}

/// The target's side of a connection.
pub struct Connection {
    /// The queue.
    pub queue: TargetQueue,
    role: Role,
    /// The role once the host is authenticated.
    next_role: Option<Role>,
    waiting: Vec<TargetCommand>,
}

impl Connection {
    /// Whether all commands that have arrived with their data are executed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.waiting.is_empty() && !self.queue.has_ready()
    }
}

/// The queue that a connection carries.
#[derive(Clone, Copy)]
enum Role {
    New,
    Admin { cntlid: u16 },
    Io { instance: ControllerInstance },
}

/// The server closes the connection.
pub struct Dropped;

impl Server {
    /// A subsystem without controllers. `cpda` is at most 31.
    #[must_use]
    pub fn new(kind: Kind, cpda: u8, keeps_flow_control: bool) -> Self {
        let limits = QueueLimits {
            in_capsule_bytes: 4096,
            max_transfer_bytes: TRANSFER_BYTES_MAX as u32,
            max_h2c_data_bytes: 8192,
            max_r2t_bytes: 4096,
            max_c2h_data_bytes: 4096,
            transfer_budget_bytes: 8 << 10,
            cpda,
        };
        let authentication = Authentication {
            groups: vec![DhGroup::Null],
            ..Authentication::new(secret(1), Some(secret(2)), Arc::new(|bytes| bytes.fill(5)))
        };
        let namespace = |id: u8, block_shift: u8| Namespace {
            blocks: NAMESPACE_BYTES as u64 >> block_shift,
            block_shift,
            uuid: [id; 16],
            nguid: [id; 16],
        };
        let subsystem = match kind {
            Kind::Discovery => Subsystem::discovery("1".into(), limits, 1),
            Kind::Disk | Kind::Authenticated => Subsystem::new(SubsystemConfig {
                nqn: "nqn.2014-08.org.example:disk".parse().expect("an NQN"),
                serial: "1".into(),
                namespaces: vec![namespace(1, 9), namespace(2, 12)],
                ports: vec![AnaState::Optimized],
                limits,
                max_entries: ENTRIES_MAX,
                keeps_flow_control,
                max_io_queues: 2,
                anatt_seconds: 10,
                seed: 1,
                authentication: (kind == Kind::Authenticated).then_some(authentication),
            }),
        };
        let stores = [vec![0; NAMESPACE_BYTES], vec![0; NAMESPACE_BYTES]];
        Self { kind, subsystem, stores, now: Instant::now(), last: ControllerInstance { cntlid: 0, ciu: 0, cirn: 0 } }
    }

    /// The name of the subsystem.
    #[must_use]
    pub fn nqn(&self) -> Nqn {
        self.subsystem.config().nqn.clone()
    }

    /// Time passes.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// The operator changes an ANA state, or the number of records of the discovery log.
    pub fn change(&mut self, change: u8) {
        if self.kind == Kind::Discovery {
            let record = |port_id| DiscoveryEntry {
                transport: TransportType::TCP,
                family: AddressFamily::IPV4,
                subsystem: SubsystemType::NVM,
                treq: DiscoveryEntry::TREQ_NOT_REQUIRED,
                port_id,
                cntlid: CNTLID_ANY,
                admin_queue_entries: 32,
                eflags: 0,
                trsvcid: "4420".into(),
                subnqn: "nqn.2014-08.org.example:disk".parse().expect("an NQN"),
                traddr: "192.0.2.1".into(),
                security: SecurityType::NONE,
            };
            return self.subsystem.set_discovery_entries((0..u16::from(change % 8)).map(record).collect());
        }
        let nsid = u32::from(change & 3);
        if change & 4 > 0 {
            let reported = self.subsystem.config().namespaces[0];
            let reported = (change & 8 > 0).then_some(Namespace { blocks: 1, ..reported });
            return self.subsystem.override_namespace(PORT, nsid, reported);
        }
        const STATES: [AnaState; 5] = [
            AnaState::Optimized,
            AnaState::NonOptimized,
            AnaState::Inaccessible,
            AnaState::PersistentLoss,
            AnaState::Change,
        ];
        self.subsystem.set_ana_group(PORT, nsid, STATES[usize::from(change >> 3) % STATES.len()]);
    }

    /// A fresh connection.
    #[must_use]
    pub fn accept(&self) -> Connection {
        let queue = TargetQueue::new(self.subsystem.config().limits);
        Connection { queue, role: Role::New, next_role: None, waiting: Vec::new() }
    }

    /// Removes a connection that has ended.
    pub fn close(&mut self, connection: Connection) {
        let role = connection.next_role.unwrap_or(connection.role);
        let is_last_instance = match role {
            Role::Io { instance } => self.subsystem.instance(instance.cntlid) == Some(instance),
            Role::New | Role::Admin { .. } => true,
        };
        if let Some(identity) = connection.queue.identity().filter(|_| is_last_instance) {
            self.subsystem.disconnected(identity);
            assert!(
                identity.qid > 0 || self.subsystem.instance(identity.cntlid).is_none(),
                "a controller without a host"
            );
        }
    }

    /// Executes the commands that have arrived. I/O commands wait for the next turn if `is_delayed`.
    pub fn turn(&mut self, connection: &mut Connection, is_delayed: bool) -> Result<(), Dropped> {
        if let Role::New = connection.role {
            self.handshake(connection);
        }
        match connection.role {
            Role::New => Ok(()),
            Role::Admin { cntlid } => self.admin(connection, cntlid),
            Role::Io { instance } => self.io(connection, instance, is_delayed),
        }
    }

    fn handshake(&mut self, Connection { queue, role, next_role, .. }: &mut Connection) {
        if next_role.is_none()
            && let Some(command) = queue.poll_command()
        {
            match self.subsystem.connect(self.now, PORT, &command) {
                Ok(identity) => {
                    let cntlid = identity.cntlid;
                    let instance = self.subsystem.instance(cntlid).expect("a controller with a queue");
                    *next_role = Some(if identity.qid == 0 { Role::Admin { cntlid } } else { Role::Io { instance } });
                    self.last = instance;
                    queue.accept(command.token, identity, self.subsystem.authentication(identity));
                }
                Err((status, result)) => queue.complete(command.token, status, result),
            }
        }
        if queue.is_authenticated()
            && let Some(next) = next_role.take()
        {
            *role = next;
        }
    }

    fn admin(&mut self, Connection { queue, .. }: &mut Connection, cntlid: u16) -> Result<(), Dropped> {
        if self.subsystem.instance(cntlid).is_none() || self.subsystem.is_expired(cntlid, self.now) {
            return Err(Dropped);
        }
        while queue.pending().len() < BACKLOG_BYTES
            && let Some(command) = queue.poll_command()
        {
            match self.subsystem.admin(self.now, cntlid, command) {
                AdminReply::Done { token, status, result } => queue.complete(token, status, result),
                AdminReply::Data { token, data } => {
                    queue.complete_with_data(token, data.len() as u32, |part, out| {
                        out.extend_from_slice(&data[part]);
                        Ok(())
                    });
                }
                AdminReply::Shutdown { token } => queue.complete(token, Status::SUCCESS, 0),
                AdminReply::ResetController { token, instance } => {
                    assert_ne!(self.subsystem.instance(instance.cntlid), Some(instance), "the instance has ended");
                    queue.complete(token, Status::SUCCESS, CROSS_RESET_DONE);
                }
                AdminReply::Deferred => {}
            }
        }
        while let Some((token, status, result)) = self.subsystem.poll_event(cntlid) {
            queue.complete(token, status, result);
        }
        Ok(())
    }

    fn io(
        &mut self,
        Connection { queue, waiting, .. }: &mut Connection,
        instance: ControllerInstance,
        is_delayed: bool,
    ) -> Result<(), Dropped> {
        let view = self.subsystem.io_view(instance.cntlid).filter(|view| view.enabled).ok_or(Dropped)?;
        if self.subsystem.instance(instance.cntlid) != Some(instance) {
            return Err(Dropped);
        }
        waiting.extend(std::iter::from_fn(|| queue.poll_command()));
        for TargetCommand { sqe, payload, .. } in &*waiting {
            let length = Sgl::parse(&sqe.dptr).map_or(0, Sgl::length) as usize;
            assert!(payload.is_empty() || payload.len() == length, "a payload of another length");
        }
        while !is_delayed
            && queue.pending().len() < BACKLOG_BYTES
            && let Some(command) = waiting.pop()
        {
            if view.is_expired(self.now) {
                return Err(Dropped);
            }
            self.execute(queue, &view, command);
        }
        Ok(())
    }

    /// Executes an I/O command. A range that is not within its namespace, and a payload of another length, panic.
    fn execute(&mut self, queue: &mut TargetQueue, view: &IoView, command: TargetCommand) {
        let (scope, task) = match check_io(&command, &self.subsystem.config().namespaces, view) {
            Ok(checked) => checked,
            Err(status) => return queue.complete(command.token, status, 0),
        };
        let TargetCommand { token, payload, .. } = command;
        let IoScope::One(namespace) = scope else { return queue.complete(token, Status::SUCCESS, 0) };
        let store = &mut self.stores[namespace];
        let place = |offset: u64, bytes: u64| offset as usize..(offset + bytes) as usize;
        match task {
            IoTask::Read(range) => {
                let data = &store[place(range.offset, range.bytes)];
                return queue.complete_with_data(token, data.len() as u32, |part, out| {
                    out.extend_from_slice(&data[part]);
                    Ok(())
                });
            }
            IoTask::Write { range, .. } => store[place(range.offset, range.bytes)].copy_from_slice(&payload),
            IoTask::Flush => {}
            IoTask::WriteZeroes { range, .. } => store[place(range.offset, range.bytes)].fill(0),
            IoTask::Deallocate(ranges) => {
                ranges.iter().for_each(|range| store[place(range.offset, range.bytes)].fill(0));
            }
        }
        queue.complete(token, Status::SUCCESS, 0);
        queue.reuse(payload);
    }
}
