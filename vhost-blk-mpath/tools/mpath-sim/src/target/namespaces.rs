//! The namespaces of the target, and what its nodes say of them.

use std::ops::Range;

use nvme_tcp::host::NamespaceIdentity;
use nvme_tcp::target::{ByteRange, Namespace};
use nvme_tcp::wire::{AdminCommand, Cns};

use super::{Connection, Ctx, Role, Target, TargetPlan};
use crate::check::Origin;

/// A namespace for the whole run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamespacePlan {
    /// Whose it is.
    pub(crate) disk: usize,
    pub(crate) blocks: u64,
    /// As many as all nodes have at the beginning, if these are fewer.
    pub(crate) first_blocks: u64,
    pub(crate) block_shift: u8,
    pub(crate) noiob: u16,
}

impl NamespacePlan {
    pub(crate) fn blocks_of(&self, range: &ByteRange) -> Range<u64> {
        range.offset >> self.block_shift..(range.offset + range.bytes) >> self.block_shift
    }

    pub(crate) fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }

    pub(crate) fn namespace(&self, nsid: u32) -> Namespace {
        let (uuid, nguid) = ([nsid as u8; 16], [0x90 | nsid as u8; 16]);
        Namespace { blocks: self.blocks, block_shift: self.block_shift, uuid, nguid }
    }

    /// As the host knows it again.
    pub(crate) fn identity(&self, nsid: u32) -> NamespaceIdentity {
        let Namespace { blocks, uuid, nguid, .. } = self.namespace(nsid);
        NamespaceIdentity {
            nsid,
            blocks,
            block_bytes: self.block_bytes() as u32,
            uuid,
            nguid,
            eui64: [0; 8],
            csi: 0,
            shared: true,
            write_protected: false,
            anagrpid: nsid,
            noiob_blocks: self.noiob,
            npdg_blocks: 1,
            deallocated_reads_zeroes: true,
            write_zeroes_deallocates: true,
        }
    }
}

impl TargetPlan {
    /// NSID and namespace by disk.
    pub(crate) fn disks(&self) -> Vec<(u32, NamespacePlan)> {
        let mut disks: Vec<_> = (1..).zip(self.namespaces.iter().copied()).collect();
        disks.sort_by_key(|(_, namespace)| namespace.disk);
        disks
    }
}

/// What a node says of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Itself,
    /// There is none; commands to it fail.
    Nothing,
    /// One that is smaller and has another name; commands go to what it is.
    Another,
}

impl Target {
    /// Where each block of a disk stands that is not durable yet: with its node, and who wrote it.
    pub(crate) fn cached(&self, disk: usize) -> impl Iterator<Item = (u64, usize, Origin)> {
        self.stores[self.nsid(disk) as usize - 1].cached()
    }

    pub(super) fn nsid(&self, disk: usize) -> u32 {
        self.plan.disks()[disk].0
    }

    pub(crate) fn show(&mut self, ctx: &mut Ctx<'_>, node: usize, disk: usize, shown: Shown) {
        let nsid = self.nsid(disk);
        let real = self.namespaces[nsid as usize - 1];
        let other = Namespace { blocks: real.blocks / 2, uuid: [0xee; 16], nguid: [0xef; 16], ..real };
        let none = Namespace { blocks: 0, ..real };
        let small = Namespace { blocks: self.blocks_at(node, nsid), ..real };
        match shown {
            Shown::Nothing => self.gone.insert((node, nsid)),
            Shown::Itself | Shown::Another => self.gone.remove(&(node, nsid)),
        };
        if shown == Shown::Another {
            self.others.entry((node, nsid)).or_insert_with(|| ctx.clock.now());
        } else {
            self.others.remove(&(node, nsid));
        }
        let look = match shown {
            Shown::Itself => Some(small),
            Shown::Nothing => Some(none),
            Shown::Another => Some(other),
        };
        self.subsystem(node).override_namespace(node as u16 + 1, nsid, look);
        self.tell_events(ctx);
    }

    /// Whether a command is for a namespace that was another one before the association began. The host knows that, and must not
    /// send any.
    pub(super) fn is_for_another(&self, conn: &Connection, nsid: u32) -> bool {
        let is_admin = |other: &&Connection| matches!(other.role, Role::Admin(_)) && other.instance == conn.instance;
        let began = self.conns.values().filter(|other| other.node == conn.node).find(is_admin).map(|admin| admin.since);
        began.zip(self.others.get(&(conn.node, nsid))).is_some_and(|(began, since)| *since < began)
    }

    /// A namespace has all its blocks for a node from now on.
    pub(crate) fn grow(&mut self, ctx: &mut Ctx<'_>, node: usize, disk: usize) {
        self.grown.insert((node, self.nsid(disk)));
        self.show(ctx, node, disk, Shown::Itself);
    }

    /// Namespaces begin with fewer blocks than they will have.
    pub(super) fn show_sizes(&mut self) {
        for node in 0..self.nodes.len() {
            for nsid in 1..=self.namespaces.len() as u32 {
                let shown = Namespace { blocks: self.blocks_at(node, nsid), ..self.namespaces[nsid as usize - 1] };
                self.subsystem(node).override_namespace(node as u16 + 1, nsid, Some(shown));
            }
        }
    }

    /// The blocks that a namespace has for a node.
    pub(super) fn blocks_at(&self, node: usize, nsid: u32) -> u64 {
        let plan = &self.plan.namespaces[nsid as usize - 1];
        if self.grown.contains(&(node, nsid)) { plan.blocks } else { plan.blocks.min(plan.first_blocks) }
    }

    /// Whether an admin command is about a namespace which this node does not have.
    pub(super) fn is_about_gone(&self, node: usize, command: &AdminCommand) -> bool {
        let AdminCommand::Identify { cns, nsid, .. } = *command else { return false };
        let about = [Cns::NAMESPACE, Cns::DESCRIPTORS, Cns::CSI_NAMESPACE].contains(&cns);
        about && self.gone.contains(&(node, nsid))
    }
}
