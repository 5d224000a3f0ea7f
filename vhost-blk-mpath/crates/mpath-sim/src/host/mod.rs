//! The host: what the daemon's I/O threads and path tasks do, with virtual time and a simulated network in place of
//! io_uring, tokio and sockets. Path selection, failover, the lives of paths, fencing and both ends of the protocol are the
//! shipping code; `thread` and `connection` follow the crate `reactor`, `daemon` and `frontend` follow the daemon.

mod connection;
mod daemon;
mod disks;
mod fences;
mod frontend;
mod hedge;
mod path;
mod requests;
mod thread;

use std::fmt;
use std::time::{Duration, Instant};

use mpath_core::{AnaState, Association, DiskId, Epoch, FlowId, Injection, IoError, OpClass, PathId, PolicyKind};
use nvme_tcp::host::{ControllerConfig, HostQueue, NamespaceIdentity, NamespaceLimits};

pub(crate) use self::daemon::Daemon;
pub(crate) use self::fences::RecordFile;
pub(crate) use self::frontend::Frontend;
use crate::check::Kind;
use crate::net::ConnId;

/// What the host is like for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct HostPlan {
    pub(crate) threads: usize,
    pub(crate) paths: usize,
    pub(crate) group: mpath_core::GroupConfig,
    pub(crate) controller: ControllerConfig,
    pub(crate) reconnect_delay: Duration,
    /// How often the record of associations cannot be written.
    pub(crate) record_fails_percent: u64,
    pub(crate) disks: Vec<DiskPlan>,
}

/// A disk for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct DiskPlan {
    /// What its paths have to lead to.
    pub(crate) namespace: NamespaceIdentity,
    pub(crate) block_bytes: u32,
    /// The name of its first virtqueue; those of the others follow.
    pub(crate) first_flow: FlowId,
}

/// An instruction to an I/O thread.
#[derive(Debug)]
pub(crate) enum Message {
    PathUp { path: PathId, association: Association, link: Box<Link> },
    PathDown { path: PathId, epoch: Epoch },
    FenceLifted { path: PathId, epoch: Epoch },
    AddNamespace { path: PathId, epoch: Epoch, disk: DiskId, limits: NamespaceLimits },
    Ana { path: PathId, epoch: Epoch, disk: DiskId, state: AnaState },
    AddPath(PathId),
    RemovePath(PathId),
    SetDraining { path: PathId, draining: bool },
    SetPolicy(PolicyKind),
    SetInjection { path: PathId, class: Option<OpClass>, injection: Injection },
    ClearInjection(PathId),
    SetWeight { disk: DiskId, weight: u16 },
}

/// A ready queue pair on its way into an I/O thread.
pub(crate) struct Link {
    pub(crate) conn: ConnId,
    pub(crate) queue: HostQueue,
    pub(crate) retry_delays: [Duration; 3],
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.conn.fmt(f)
    }
}

/// What an I/O thread reports of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub(crate) path: PathId,
    pub(crate) epoch: Epoch,
    pub(crate) kind: ReportKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportKind {
    Lost,
    /// Commands that change data may be on it without an answer.
    Closed {
        in_doubt: bool,
    },
    /// A command ended with an error about its ANA state.
    AnaError,
}

impl From<ReportKind> for mpath_host::Report<path::Failed> {
    fn from(kind: ReportKind) -> Self {
        match kind {
            ReportKind::Lost => Self::Lost(path::Failed),
            ReportKind::Closed { in_doubt } => Self::Closed { drains: false, in_doubt },
            ReportKind::AnaError => Self::AnaError,
        }
    }
}

/// A request of the guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Its number in the run, from 1.
    pub(crate) id: u64,
    pub(crate) disk: DiskId,
    pub(crate) kind: Kind,
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
    /// The virtqueue, of those of the disk.
    pub(crate) flow: u16,
    /// Who in the guest waits for it.
    pub(crate) user: usize,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, disk, kind, lba, blocks, .. } = self;
        write!(f, "#{id} of disk {} {kind:?} {lba}+{blocks}", disk.0)
    }
}

/// What the guest is told.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) asked: Asked,
    pub(crate) result: Result<(), IoError>,
    pub(crate) data: Vec<u8>,
}

/// The earlier of two times that may not be set.
fn earliest(times: impl IntoIterator<Item = Option<Instant>>) -> Option<Instant> {
    times.into_iter().flatten().min()
}
