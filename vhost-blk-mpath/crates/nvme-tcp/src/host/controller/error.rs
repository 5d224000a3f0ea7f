//! Errors of an association and of its namespaces.

use monotonic::Duration;

use crate::host::{AdminError, ConfigError, Step};
use crate::wire::{AnaLogError, DescriptorError, Status};

/// A property that makes a controller unusable for this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// No SGL support.
    #[error("the controller supports no SGLs")]
    Sgls,
    /// KAS is zero. Fabrics controllers must have the timer, and the length of the fence depends on it.
    #[error("the controller has no keep-alive timer")]
    KeepAlive,
    /// ICDOFF must be zero with TCP.
    #[error("in-capsule data offset {0} instead of 0")]
    InCapsuleOffset(u16),
    /// IOCCSZ is smaller than a command.
    #[error("I/O command capsules of {0} × 16 bytes hold no command")]
    CapsuleSize(u32),
    /// CAP.MQES or MAXCMD allows fewer entries than a queue needs.
    #[error("the controller allows queues of only {0} entries")]
    QueueEntries(u32),
    /// The ANA log is longer than a transfer, and the controller supports no log page offset (LPA bit 2). Or the log is longer than
    /// this host reads.
    #[error("the ANA log is longer than {0} bytes, which is the most that can be read of it")]
    AnaLog(u64),
}

/// Why an association cannot be established, or has ended. Each prints as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// An invalid value in the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The admin connection failed.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// No namespace is configured, and the number of active namespaces is not one.
    #[error("{}", namespace_choice(.available))]
    NamespaceChoice {
        /// The active namespaces, or the first of them.
        available: Vec<u32>,
    },
    /// This host cannot use the controller.
    #[error("unsupported: {0}")]
    Unsupported(#[from] Unsupported),
    /// The ANA log is malformed.
    #[error(transparent)]
    AnaLog(#[from] AnaLogError),
    /// No namespace is usable. The error is that of the namespace that was usable last, or of the first if none ever was.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// Why one namespace is unusable on this controller. Others may be usable. Each error prints as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The namespace is not active.
    #[error(
        "`namespace` {nsid} is not active on the controller; active: {}; enable or attach it on the target, or correct `namespace`",
        list_nsids(.available)
    )]
    Missing {
        /// The configured NSID.
        nsid: u32,
        /// The other namespaces that were active when the association began, or the first of them.
        available: Vec<u32>,
    },
    /// The controller failed a command that identifies the namespace.
    #[error("{step} failed: {status}")]
    Command {
        /// The step of the command.
        step: Step,
        /// Its status.
        status: Status,
    },
    /// The LBA format has metadata.
    #[error("unsupported: logical blocks with {0} bytes of metadata")]
    Metadata(u16),
    /// The block size is invalid or too large.
    #[error("unsupported: LBA data size 2^{0}")]
    BlockSize(u8),
    /// A block is larger than a transfer.
    #[error("unsupported: a block of {block_bytes} bytes is larger than a transfer of {max_transfer_bytes}")]
    TransferSize {
        /// The most data of one command in bytes.
        max_transfer_bytes: u32,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// The command set is not NVM.
    #[error("unsupported: command set {0:#x} instead of NVM")]
    CommandSet(u8),
    /// The namespace identification descriptors are malformed.
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    /// The ANA log does not contain the group of the namespace.
    #[error("the ANA log does not contain ANA group {group} of the namespace")]
    AnaGroupMissing {
        /// ANAGRPID.
        group: u32,
    },
    /// The namespace stayed in ANA state "change" for twice ANATT, or for longer if an earlier association has ended for that.
    #[error("ANA state \"change\" for more than {after:?}")]
    AnaTransition {
        /// The time allowed.
        after: Duration,
    },
}

impl NamespaceError {
    /// The error for an inactive namespace. It keeps only as many active NSIDs as a message needs.
    pub(super) fn missing(nsid: u32, active: &[u32]) -> Self {
        let others = active.iter().copied().filter(|&other| other != nsid);
        Self::Missing { nsid, available: others.take(NAMED_MAX + 1).collect() }
    }
}

/// The most namespaces that a message lists.
const NAMED_MAX: usize = 16;

fn list_nsids(nsids: &[u32]) -> String {
    if nsids.is_empty() {
        return "none".to_owned();
    }
    let mut text: Vec<String> = nsids.iter().take(NAMED_MAX).map(u32::to_string).collect();
    if nsids.len() > NAMED_MAX {
        text.push("…".to_owned());
    }
    text.join(", ")
}

fn namespace_choice(nsids: &[u32]) -> String {
    if nsids.is_empty() {
        "the subsystem has no active namespace for this host".to_owned()
    } else {
        format!("several namespaces are active; set `namespace` to one of: {}", list_nsids(nsids))
    }
}
