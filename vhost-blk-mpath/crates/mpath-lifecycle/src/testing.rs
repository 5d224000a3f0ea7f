//! Test helpers: a controller and disks.

use monotonic::{Duration, Instant};
use mpath_core::{DiskId, PathId};
use nvme_tcp::host::{
    CommandLimits, ControllerConfig, ControllerInfo, HostController, HostIdentity, Namespace, NamespaceIdentity,
};
use nvme_tcp::wire::{AdminCommand, AnaState, Digests, Status, Version};
use nvme_tcp_target::{AdminReply, QueueLimits, Subsystem, SubsystemConfig, TargetQueue};

use crate::disks::{Admissions, Disks, NamespaceUpdate, ServedNamespace, Unusable};
use crate::settings::PathSettings;
use crate::virtqueues::VirtqueueThreads;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has failed")]
pub(crate) struct Failed;

pub(crate) const RECONNECT_DELAY: Duration = Duration::from_secs(2);

pub(crate) fn settings(io_threads: u16) -> PathSettings {
    let controller = ControllerConfig {
        host: HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] },
        subnqn: "nqn.2014-08.org.example:disk".parse().unwrap(),
        nsids: Vec::new(),
        keep_alive_tmo: Duration::from_secs(5),
        digests: Digests::default(),
        io_queues: io_threads,
        queue_entries: 16,
        max_transfer_bytes: None,
        command_timeout: Duration::from_secs(5),
        authentication: None,
        is_encrypted: false,
    };
    PathSettings {
        controller,
        reconnect_delay: RECONNECT_DELAY,
        ctrl_loss_tmo: None,
        drain_fence: false,
        shared_write_cache: false,
    }
}

pub(crate) fn namespace() -> NamespaceIdentity {
    NamespaceIdentity {
        nsid: 1,
        blocks: 1000,
        block_bytes: 4096,
        uuid: [1; 16],
        nguid: [0; 16],
        eui64: [0; 8],
        csi: 0,
        shared: true,
        write_protected: false,
        anagrpid: 1,
        noiob_blocks: 0,
        npdg_blocks: 0,
        deallocated_reads_zeroes: true,
        write_zeroes_deallocates: true,
    }
}

/// A controller with these namespaces.
pub(crate) fn controller(namespaces: &[NamespaceIdentity]) -> ControllerInfo {
    let found = |identity: &NamespaceIdentity| Ok(Namespace { identity: *identity, ana: AnaState::Optimized });
    ControllerInfo {
        cntlid: 1,
        authenticated: None,
        version: Version(0x0002_0100),
        serial: "SN".into(),
        model: "model".into(),
        firmware: "1".into(),
        ciu: 0,
        cirn: 0,
        cross_resets: 0,
        cqt: Duration::ZERO,
        kato: Duration::from_secs(5),
        tbkas: false,
        retry_delays: [Duration::ZERO; 3],
        max_transfer_bytes: 1 << 20,
        reports_max_transfer: true,
        command_limits: CommandLimits::NONE,
        in_capsule_bytes: 8192,
        io_queues: 1,
        queue_entries: 128,
        volatile_write_cache: true,
        write_zeroes: true,
        dataset_management: true,
        anatt: Duration::from_secs(10),
        namespaces: namespaces.iter().map(found).collect(),
    }
}

/// Disks with these namespaces.
pub(crate) struct Known {
    pub(crate) served: Vec<ServedNamespace>,
    pub(crate) is_unflushed: bool,
    /// How often a path was down.
    pub(crate) downs: usize,
    pub(crate) virtqueues: VirtqueueThreads,
}

impl Known {
    pub(crate) fn new(namespaces: &[NamespaceIdentity]) -> Self {
        let served =
            |namespace: &NamespaceIdentity| ServedNamespace { namespace: *namespace, shown_blocks: namespace.blocks };
        Self {
            served: namespaces.iter().map(served).collect(),
            is_unflushed: false,
            downs: 0,
            virtqueues: VirtqueueThreads::new(2),
        }
    }
}

impl Disks for Known {
    type Error = Failed;

    fn name(&self, disk: DiskId) -> String {
        format!("disk {}", disk.0)
    }

    fn served(&self, disk: DiskId) -> Option<ServedNamespace> {
        Some(self.served[usize::from(disk.0)])
    }

    fn admit(&mut self, info: &ControllerInfo) -> Admissions<Failed> {
        let admitted = info
            .namespaces
            .iter()
            .zip(&self.served)
            .map(|(found, served)| Ok(served.check(&found.clone().map_err(Unusable::from)?.identity)?));
        admitted.collect()
    }

    fn io_queues_granted(&mut self, path: PathId, granted: u16) -> Result<(), u16> {
        self.virtqueues.granted(path, granted)
    }

    fn path_up(&mut self, _: PathId, _: Vec<NamespaceUpdate>) -> Result<(), (DiskId, Unusable)> {
        Ok(())
    }

    fn path_down(&mut self, _: PathId) {
        self.downs += 1;
    }

    fn is_unflushed(&self, _: PathId) -> bool {
        self.is_unflushed
    }
}

/// The controller's side of an admin connection.
pub(crate) struct AdminTarget {
    pub(crate) subsystem: Subsystem,
    pub(crate) queue: TargetQueue,
    pub(crate) accepts_event_requests: bool,
}

impl AdminTarget {
    pub(crate) fn new(subsystem: Subsystem) -> Self {
        Self { subsystem, queue: TargetQueue::new(QueueLimits::default()), accepts_event_requests: true }
    }

    /// A controller with one namespace, and a host that has found it live.
    pub(crate) fn live(now: Instant, config: ControllerConfig) -> (Self, HostController) {
        let mut target = Self::new(Subsystem::new(SubsystemConfig {
            nqn: config.subnqn.clone(),
            serial: "1".into(),
            namespaces: vec![nvme_tcp_target::Namespace { blocks: 8, block_shift: 9, uuid: [1; 16], nguid: [0; 16] }],
            ports: vec![AnaState::Optimized],
            limits: QueueLimits::default(),
            max_entries: 16,
            keeps_flow_control: false,
            max_io_queues: 2,
            anatt_seconds: 10,
            seed: 1,
            authentication: None,
        }));
        let mut admin = HostController::new(config, now).unwrap();
        loop {
            let mut bytes = Vec::new();
            admin.fill_tx(&mut bytes);
            let answer = target.exchange(now, &bytes);
            if bytes.is_empty() && answer.is_empty() {
                break;
            }
            admin.receive(now, &answer).unwrap();
        }
        assert!(admin.info().is_some(), "it is live");
        (target, admin)
    }

    /// Takes bytes of the host. Returns the answers.
    pub(crate) fn exchange(&mut self, now: Instant, bytes: &[u8]) -> Vec<u8> {
        self.queue.receive(bytes).unwrap();
        while let Some(command) = self.queue.poll_command() {
            let Some(identity) = self.queue.identity() else {
                let identity = self.subsystem.connect(now, 1, &command).unwrap();
                self.queue.accept(command.token, identity, None);
                continue;
            };
            if !self.accepts_event_requests && AdminCommand::parse(&command.sqe) == Ok(AdminCommand::AsyncEventRequest)
            {
                self.queue.complete(command.token, Status::INVALID_OPCODE, 0);
                continue;
            }
            match self.subsystem.admin(now, identity.cntlid, command) {
                AdminReply::Done { token, status, result } => self.queue.complete(token, status, result),
                AdminReply::Data { token, data } => {
                    self.queue.complete_with_data(token, data.len() as u32, |part, out| {
                        out.extend_from_slice(&data[part]);
                        Ok(())
                    });
                }
                AdminReply::Shutdown { token } => self.queue.complete(token, Status::SUCCESS, 0),
                AdminReply::Deferred => {}
                AdminReply::ResetController { .. } => panic!("unexpected reset"),
            }
        }
        if let Some(identity) = self.queue.identity()
            && let Some((token, status, result)) = self.subsystem.poll_event(identity.cntlid)
        {
            self.queue.complete(token, status, result);
        }
        let answer = self.queue.pending().to_vec();
        self.queue.sent(answer.len());
        answer
    }
}
