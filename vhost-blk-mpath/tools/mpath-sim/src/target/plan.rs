//! The plan of the target for a run.

use std::ops::Range;

use monotonic::Duration;
use nvme_tcp::host::NamespaceIdentity;
use nvme_tcp::wire::{Nqn, Status};
use nvme_tcp_target::{ByteRange, Namespace, QueueLimits};

/// The volatile write caches of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteCache {
    None,
    OfEachNode,
    /// All nodes share one cache, which is lost only when all of them are down.
    Shared,
}

/// When a controller that lives closes an I/O connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoClose {
    AtOnce,
    /// When it has executed everything it received there.
    OnceExecuted,
}

/// The plan of the target for the whole run.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the target")]
pub(crate) struct TargetPlan {
    pub(crate) nqn: Nqn,
    pub(crate) nodes: usize,
    /// The number of processes, to which the nodes belong in turn.
    pub(crate) processes: usize,
    pub(crate) cross_reset: CrossResetPlan,
    /// By NSID, from 1.
    pub(crate) namespaces: Vec<NamespacePlan>,
    pub(crate) limits: QueueLimits,
    pub(crate) max_entries: u16,
    /// SQ flow control stays on though the host asks for none.
    pub(crate) keeps_flow_control: bool,
    pub(crate) write_cache: WriteCache,
    /// CQT as reported; zero for a target that does not know the field.
    pub(crate) cqt: Duration,
    pub(crate) tbkas: bool,
    /// CRDT1 to CRDT3 in units of 100 ms.
    pub(crate) crdt: [u16; 3],
    pub(crate) ana: AnaPlan,
    /// The most I/O queues of a controller.
    pub(crate) io_queues: u16,
    /// The longest time that commands are executed after the loss of their association was noticed.
    pub(crate) quiesce: Duration,
    /// The longest delay of the check of a keep-alive timer.
    pub(crate) timer_slack: Duration,
    /// The typical time that a command takes.
    pub(crate) service: Duration,
    /// The most blocks of Write Zeroes, which no controller reports, and the status of a larger command.
    pub(crate) write_zeroes_limit: Option<(u64, Status)>,
    /// Commands of several blocks may be executed piece by piece.
    pub(crate) piecemeal: bool,
    pub(crate) io_close: IoClose,
    /// A controller ends with the first of its connections, and not only with the admin connection.
    pub(crate) ends_with_any_connection: bool,
}

/// The ANA logs of the target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnaPlan {
    /// Groups without namespaces, which make the log long.
    pub(crate) others: u32,
    /// The controller announces many groups, so hosts read it without lists of namespaces.
    pub(crate) is_unlisted: bool,
    /// A namespace that changes its state moves to another group, and its old group keeps the state.
    pub(crate) moves: bool,
}

/// How the target handles Cross-Controller Resets.
#[derive(Debug, Clone)]
pub(crate) struct CrossResetPlan {
    /// Controllers report that they support them.
    pub(crate) offered: bool,
    /// Percentage of resets that are refused.
    pub(crate) refused_percent: u64,
    /// Percentage of resets that are answered when they have begun and not ended.
    pub(crate) begun_percent: u64,
    /// Percentage of resets that end the association of their command.
    pub(crate) deadly_percent: u64,
    /// The typical time that a reset takes.
    pub(crate) takes: Duration,
}

/// A namespace for the whole run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamespacePlan {
    /// The disk that it backs.
    pub(crate) disk: usize,
    pub(crate) blocks: u64,
    /// The most blocks that nodes report at the start.
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

    /// The identity by which the host knows it.
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
    pub(crate) fn drains(&self) -> bool {
        self.io_close == IoClose::OnceExecuted
    }

    /// By disk: its NSID and namespace.
    pub(crate) fn disks(&self) -> Vec<(u32, NamespacePlan)> {
        let mut disks: Vec<_> = (1..).zip(self.namespaces.iter().copied()).collect();
        disks.sort_by_key(|(_, namespace)| namespace.disk);
        disks
    }
}
