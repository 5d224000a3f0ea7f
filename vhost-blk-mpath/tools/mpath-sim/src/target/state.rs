//! The state of nodes, of their connections, and of commands under way.

use std::collections::{BTreeMap, VecDeque};

use monotonic::{Duration, Instant};
use nvme_tcp::wire::{AnaState, ControllerInstance, Status};
use nvme_tcp_target::{CommandToken, IoView, TargetCommand, TargetQueue};

use super::r2t_faults::R2tFault;
use crate::blocks::Origin;
use crate::connection::ConnId;
use crate::tls::TlsRefusal;

/// A status in answer to a percentage of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusFault {
    pub(crate) percent: u64,
    pub(crate) status: Status,
}

/// The faults of a node at present.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeState {
    /// Its processor stands still, and its kernel acknowledges bytes.
    pub(crate) paused: bool,
    /// It closes connections in order.
    pub(crate) closes_in_order: bool,
    /// It has no power.
    pub(crate) is_down: bool,
    /// Percentage of commands that are held for seconds.
    pub(crate) held_percent: u64,
    pub(crate) status_fault: Option<StatusFault>,
    pub(crate) extra_service: Duration,
    /// Percentage of commands that are lost while all others are answered: some before they are executed, some after.
    pub(crate) lost_percent: u64,
    /// Percentage of responses that are sent twice.
    pub(crate) repeated_percent: u64,
    /// Percentage of R2Ts that are spoilt, and how.
    pub(crate) r2t_fault: Option<(u64, R2tFault)>,
    pub(crate) odd_identity: Option<OddIdentity>,
    /// The most I/O queues that it grants, if fewer than usual.
    pub(crate) io_queues: Option<u16>,
    /// How it refuses TLS on new connections.
    pub(crate) tls_refusal: Option<TlsRefusal>,
}

/// How a node names its namespaces, apart from their NSIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OddIdentity {
    /// It refuses the list of descriptors, and Identify Namespace has no NGUID.
    Refused(Status),
    /// The list of descriptors has no name, and Identify Namespace has no NGUID.
    Nameless,
    /// There is a UUID and no NGUID.
    UuidAlone,
    /// There is an NGUID and no UUID.
    NguidAlone,
}

/// The queue on a connection, with its controller id, once it is connected.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    New,
    Admin(u16),
    Io(u16),
}

/// A connection of a host to a node.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) node: usize,
    pub(super) since: Instant,
    pub(super) queue: TargetQueue,
    pub(super) role: Role,
    /// The controller instance, set with the role.
    pub(super) instance: Option<ControllerInstance>,
    /// A response that is to be sent a second time.
    pub(super) repeat: Vec<u8>,
    /// Bytes that the socket has not taken.
    pub(super) out: VecDeque<u8>,
    /// The node reads nothing more from it.
    pub(super) is_deaf: bool,
    /// Why it closes once everything it received is executed; `None` if it stays. A connection that the node closes takes no more
    /// commands.
    pub(super) drain: Option<DrainCause>,
}

/// Why a connection closes once everything it received is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainCause {
    Host,
    Target,
}

/// A command between its arrival and its execution.
#[derive(Debug)]
pub(super) struct PendingCommand {
    pub(super) conn: ConnId,
    pub(super) node: usize,
    pub(super) instance: Option<ControllerInstance>,
    pub(super) command: TargetCommand,
    pub(super) view: IoView,
    pub(super) due: Instant,
    /// Its connection is gone, and it is not executed after this time.
    pub(super) until: Option<Instant>,
    /// Its answer is lost.
    pub(super) is_lost: bool,
    pub(super) executed: Option<ExecutedPart>,
}

/// The part of a command that is executed: a number of blocks from the first, and their origin.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutedPart {
    pub(super) blocks: u64,
    pub(super) origin: Origin,
}

/// A Cross-Controller Reset under way.
#[derive(Debug)]
pub(super) struct CrossReset {
    /// The connection of the command.
    pub(super) conn: ConnId,
    pub(super) node: usize,
    pub(super) token: CommandToken,
    pub(super) instance: ControllerInstance,
}

/// A persistent loss that not every connected host has seen.
#[derive(Debug)]
pub(super) struct UnseenLoss {
    /// The admin connections of the hosts that have not seen it, and whether they have read the log without lists.
    pub(super) by: BTreeMap<ConnId, bool>,
    /// The ANA state that follows.
    pub(super) next: Option<AnaState>,
}

/// A node's report of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamespaceReport {
    /// The namespace as it is.
    Itself,
    /// The namespace is absent, and commands to it fail.
    Nothing,
    /// A smaller namespace with another name. Commands reach the real one.
    Another,
}
