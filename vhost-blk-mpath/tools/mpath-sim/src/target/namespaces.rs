//! The nodes' reports of namespaces: absent, replaced by others, or grown.

use nvme_tcp::wire::{AdminCommand, Cns, Status};
use nvme_tcp_target::Namespace;

use super::Target;
use super::state::{Connection, NamespaceReport, OddIdentity, Role};
use crate::blocks::Origin;
use crate::context::Ctx;

impl Target {
    /// The changes of a disk that are not durable: block, node and origin.
    pub(crate) fn cached(&self, disk: usize) -> impl Iterator<Item = (u64, usize, Origin)> {
        self.stores[self.nsid(disk) as usize - 1].cached()
    }

    pub(super) fn nsid(&self, disk: usize) -> u32 {
        self.plan.disks()[disk].0
    }

    /// Changes how a node reports the namespace of a disk.
    pub(crate) fn report_namespace(&mut self, ctx: &mut Ctx, node: usize, disk: usize, report: NamespaceReport) {
        let nsid = self.nsid(disk);
        let real = self.namespaces[nsid as usize - 1];
        let other = Namespace { blocks: real.blocks / 2, uuid: [0xee; 16], nguid: [0xef; 16], ..real };
        let none = Namespace { blocks: 0, ..real };
        let small = Namespace { blocks: self.blocks_at(node, nsid), ..real };
        match report {
            NamespaceReport::Nothing => self.absent.insert((node, nsid)),
            NamespaceReport::Itself | NamespaceReport::Another => self.absent.remove(&(node, nsid)),
        };
        if report != NamespaceReport::Itself {
            ctx.checker.namespace_gone(node, disk);
        }
        if report == NamespaceReport::Another {
            ctx.checker.namespace_replaced(node);
            self.replaced_since.entry((node, nsid)).or_insert_with(|| ctx.clock.now());
        } else {
            self.replaced_since.remove(&(node, nsid));
        }
        let reported = match report {
            NamespaceReport::Itself => Some(small),
            NamespaceReport::Nothing => Some(none),
            NamespaceReport::Another => Some(other),
        };
        self.subsystem(node).override_namespace(node as u16 + 1, nsid, reported);
        self.send_events(ctx);
    }

    /// Whether the node reported another namespace under this NSID before the association of a connection began. Then the host
    /// must not send commands to that NSID.
    pub(super) fn is_for_replaced(&self, conn: &Connection, nsid: u32) -> bool {
        let is_admin = |other: &&Connection| matches!(other.role, Role::Admin(_)) && other.instance == conn.instance;
        let began = self.conns.values().filter(|other| other.node == conn.node).find(is_admin).map(|admin| admin.since);
        began.zip(self.replaced_since.get(&(conn.node, nsid))).is_some_and(|(began, since)| *since < began)
    }

    /// A namespace has all its blocks for a node from now on.
    pub(crate) fn grow(&mut self, ctx: &mut Ctx, node: usize, disk: usize) {
        self.grown.insert((node, self.nsid(disk)));
        self.report_namespace(ctx, node, disk, NamespaceReport::Itself);
    }

    /// Nodes report namespaces with the blocks that they have at the start.
    pub(super) fn report_sizes(&mut self) {
        for node in 0..self.nodes.len() {
            for nsid in 1..=self.namespaces.len() as u32 {
                let reported = Namespace { blocks: self.blocks_at(node, nsid), ..self.namespaces[nsid as usize - 1] };
                self.subsystem(node).override_namespace(node as u16 + 1, nsid, Some(reported));
            }
        }
    }

    /// The blocks that a namespace has for a node.
    pub(super) fn blocks_at(&self, node: usize, nsid: u32) -> u64 {
        let plan = &self.plan.namespaces[nsid as usize - 1];
        if self.grown.contains(&(node, nsid)) { plan.blocks } else { plan.blocks.min(plan.first_blocks) }
    }

    /// The status for an admin command that reads descriptors from a node which refuses that.
    pub(super) fn refuses_descriptors(&self, node: usize, command: &AdminCommand) -> Option<Status> {
        match (self.nodes[node].odd_identity, command) {
            (Some(OddIdentity::Refused(status)), AdminCommand::Identify { cns: Cns::DESCRIPTORS, .. }) => Some(status),
            _ => None,
        }
    }

    /// Whether an admin command is about a namespace that is absent at this node.
    pub(super) fn is_about_absent(&self, node: usize, command: &AdminCommand) -> bool {
        let AdminCommand::Identify { cns, nsid, .. } = *command else { return false };
        let about = [Cns::NAMESPACE, Cns::DESCRIPTORS, Cns::CSI_NAMESPACE].contains(&cns);
        about && self.absent.contains(&(node, nsid))
    }
}
