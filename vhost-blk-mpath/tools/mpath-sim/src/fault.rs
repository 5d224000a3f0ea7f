//! The faults of a run, and the operator's changes.

use monotonic::Duration;
use mpath_core::{Injection, Limits, OpClass, PolicyKind};
use nvme_tcp::wire::AnaState;
use nvme_tcp_target::AnswerFault;

use crate::target::{NamespaceReport, OddIdentity, R2tFault, StatusFault};
use crate::tls::TlsRefusal;

/// A fault, or a change by the operator. A path and its node have the same number. Links of paths come first, then links of discovery
/// controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing arrives at these ends of a path, by [`Side`](crate::connection::Side).
    BlackHole { path: usize, at: [bool; 2] },
    /// Every packet takes this much longer.
    Delay { path: usize, by: Duration },
    /// All connections of a path are reset.
    ResetAll { path: usize },
    /// The host's kernel gives up all connections of a path, and the target does not hear of it.
    HostTimeout { path: usize },
    /// One connection of a path is reset.
    ResetOne { path: usize, choice: u64 },
    /// One connection of a path delivers nothing at these ends.
    FreezeOne { path: usize, choice: u64, at: [bool; 2] },
    /// A node closes its associations in order, or only their I/O connections. Until the fault ends, it closes others in order too.
    CloseInOrder { node: usize, admin: bool },
    /// All connections of a path are reset. A percentage of the next ones is accepted and never read.
    SilentPort { path: usize, percent: u64 },
    /// All connections of a path are reset, and its listener is closed.
    PortDown { path: usize },
    /// A node's processor stands still.
    PauseNode { node: usize },
    /// A node loses its power, and its cache.
    CrashNode { node: usize },
    /// A node holds many commands for seconds.
    HoldCommands { node: usize, percent: u64 },
    /// A node is slow.
    SlowNode { node: usize, by: Duration },
    /// A node answers with errors.
    FailCommands { node: usize, status_fault: StatusFault },
    /// A node loses commands, or the answers to them, and answers all others.
    LoseCommands { node: usize, percent: u64 },
    /// A node sends responses twice.
    RepeatResponses { node: usize, percent: u64 },
    /// A node answers a number of its next commands wrongly.
    WrongAnswers { node: usize, fault: AnswerFault, count: u32 },
    /// A node spoils its R2Ts.
    SpoilR2ts { node: usize, percent: u64, fault: R2tFault },
    /// The ANA state of all disks at a node, or of one.
    SetAna { node: usize, disk: Option<usize>, state: AnaState },
    /// A node reports another namespace of a disk, or none.
    ReportNamespace { node: usize, disk: usize, report: NamespaceReport },
    /// All connections of a path are reset, and its node names its namespaces in another way.
    NameOddly { path: usize, odd: OddIdentity },
    /// All connections of a path are reset, and its node grants no more than this many I/O queues.
    GrantQueues { path: usize, most: u16 },
    /// A node reports that the namespace of a disk has grown, for good.
    GrowNamespace { node: usize, disk: usize },
    /// All connections of a path are reset, and the node refuses TLS.
    RefuseTls { path: usize, refusal: TlsRefusal },
    /// Bits of pieces flip on their way.
    FlipBits { path: usize, per_10k: u64 },
    /// The daemon is killed, and the next one starts at the end of the fault. The guest keeps its requests or is reset. The kernel closes
    /// the sockets after `exit`.
    KillDaemon { resubmits: bool, exit: Duration },
    /// The daemon ends in order, and the next one starts.
    RestartDaemon,
    /// The operator removes all disks. Their guests are gone. At the end of the fault, the operator adds the disks, on other sockets or
    /// on the same ones.
    ReplaceDisks { to_other_socket: bool },
    /// The front-end of a disk hangs up, with its guest or not.
    HangUp { disk: usize, is_reset: bool },
    /// The front-end of a disk stops its virtqueues, and starts them later.
    StopQueues { disk: usize },
    /// The guest of a disk is migrated to another front-end. The migration may be cancelled instead.
    Migrate { disk: usize, is_cancelled: bool },
    /// The memory of the guest of a disk is truncated. The daemon hangs up if it touches the lost part, and the guest is reset.
    TruncateMemory { disk: usize, choice: u64 },
    /// The operator removes a path, at once or when it owes nothing, and adds it again later.
    RemovePath { path: usize, at_once: bool },
    /// The operator resets a path.
    ResetByOperator { path: usize },
    /// The operator disables a path, or only drains it, and enables it later.
    DisablePath { path: usize, drains_only: bool },
    /// The operator changes the policy, for good.
    SetPolicy(PolicyKind),
    /// The operator impairs a path.
    SetInjection { path: usize, class: Option<OpClass>, injection: Injection },
    /// The operator limits a disk.
    SetLimits { disk: usize, limits: Limits },
    /// The operator changes the weight of a disk, for good.
    SetWeight { disk: usize, weight: u16 },
    /// A discovery controller does not list a node, until the end of the fault or for good.
    UnlistNode { controller: usize, node: usize, for_good: bool },
}

/// A fault, its beginning and its duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedFault {
    pub(crate) fault: Fault,
    pub(crate) begins: Duration,
    pub(crate) lasts: Duration,
}
