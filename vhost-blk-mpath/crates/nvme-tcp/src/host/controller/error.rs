//! Why an association cannot be had, or is over.

use std::time::Duration;

use crate::host::{ConfigError, QueueError};
use crate::wire::{AnaLogError, DescriptorError, Status};

/// What the admin queue is doing; timeouts and failed commands name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `ICReq`, `ICResp` and Connect.
    Connect,
    /// Property Get of CAP.
    Capabilities,
    /// Property Get of VS.
    Version,
    /// Property Set of CC.EN.
    Enable,
    /// Property Get of CSTS until RDY.
    Ready,
    /// Identify Controller.
    IdentifyController,
    /// Identify Controller of the NVM command set.
    CommandLimits,
    /// Set Features, Number of Queues.
    NumberOfQueues,
    /// Identify, active namespaces.
    ActiveNamespaces,
    /// Identify Namespace.
    IdentifyNamespace,
    /// Identify, namespace identification descriptors.
    NamespaceDescriptors,
    /// Set Features, Asynchronous Event Configuration.
    AsyncEventConfiguration,
    /// Get Log Page, Asymmetric Namespace Access.
    AnaLog,
    /// Get Log Page, Changed Namespace List.
    ChangedNamespaces,
    /// Keep Alive.
    KeepAlive,
    /// Property Set of CC.SHN.
    Shutdown,
    /// Property Get of CSTS until SHST says complete.
    ShutdownStatus,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "Connect",
            Self::Capabilities => "reading CAP",
            Self::Version => "reading VS",
            Self::Enable => "setting CC.EN",
            Self::Ready => "waiting for CSTS.RDY",
            Self::IdentifyController => "Identify Controller",
            Self::CommandLimits => "reading the limits of commands",
            Self::NumberOfQueues => "setting the number of queues",
            Self::ActiveNamespaces => "listing active namespaces",
            Self::IdentifyNamespace => "Identify Namespace",
            Self::NamespaceDescriptors => "reading namespace identification descriptors",
            Self::AsyncEventConfiguration => "configuring asynchronous events",
            Self::AnaLog => "reading the ANA log",
            Self::ChangedNamespaces => "reading the changed namespace list",
            Self::KeepAlive => "Keep Alive",
            Self::Shutdown => "setting CC.SHN",
            Self::ShutdownStatus => "waiting for CSTS.SHST",
        })
    }
}

/// What a controller is or lacks that rules it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// No SGL support.
    #[error("the controller supports no SGLs")]
    Sgls,
    /// KAS is zero. Fabrics controllers must have the timer, and the time fence counts by it.
    #[error("the controller has no keep-alive timer")]
    KeepAlive,
    /// ICDOFF must be zero with TCP.
    #[error("in-capsule data offset {0} instead of 0")]
    InCapsuleOffset(u16),
    /// IOCCSZ below the size of a command.
    #[error("I/O command capsules of {0} × 16 bytes hold no command")]
    CapsuleSize(u32),
    /// Fewer queue entries than a queue needs.
    #[error("queues of {0} entries")]
    QueueEntries(u32),
    /// An ANA log larger than a transfer.
    #[error("an ANA log of {0} bytes")]
    AnaLog(u64),
}

/// Why an association cannot be had, or is over. Each prints as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// A value of the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Connect refused, or the protocol broken.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// No answer in time.
    #[error("no answer within {after:?}: {step}")]
    Timeout {
        /// To what.
        step: Step,
        /// The time allowed.
        after: Duration,
    },
    /// A command that had to succeed did not.
    #[error("{step} failed: {status}")]
    Command {
        /// Which.
        step: Step,
        /// How.
        status: Status,
    },
    /// CSTS.CFS: the controller has failed.
    #[error("the controller reports fatal status (CSTS.CFS)")]
    FatalStatus,
    /// Identify Controller names another subsystem.
    #[error("the controller belongs to subsystem {got:?}")]
    WrongSubsystem {
        /// Its SUBNQN, as text.
        got: String,
    },
    /// No namespace was asked for and there is not exactly one.
    #[error("{}", ambiguous(.available))]
    NamespaceChoice {
        /// What there is, or the beginning of it.
        available: Vec<u32>,
    },
    /// Something this host cannot use.
    #[error("unsupported: {0}")]
    Unsupported(#[from] Unsupported),
    /// A malformed ANA log.
    #[error(transparent)]
    AnaLog(#[from] AnaLogError),
    /// No namespace can be used: why the last one that could cannot any more or, if none ever could, the first.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// Why one namespace cannot be used on this controller, which may have others that can. Each prints as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The namespace is not active.
    #[error("`namespace` {nsid} is not active; active: {}", list(.available))]
    Missing {
        /// NSID asked for.
        nsid: u32,
        /// What else there was when the association began, or the beginning of it.
        available: Vec<u32>,
    },
    /// Identifying it failed for a reason that only the controller knows.
    #[error("{step} failed: {status}")]
    Command {
        /// Which command.
        step: Step,
        /// How.
        status: Status,
    },
    /// An LBA format with metadata.
    #[error("unsupported: logical blocks with {0} bytes of metadata")]
    Metadata(u16),
    /// A block size that is not available, or too large.
    #[error("unsupported: LBA data size 2^{0}")]
    BlockSize(u8),
    /// Transfers smaller than a block.
    #[error("unsupported: transfers of {max_transfer_bytes} bytes hold no block of {block_bytes}")]
    TransferSize {
        /// MDTS in bytes.
        max_transfer_bytes: u32,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// A command set other than NVM.
    #[error("unsupported: command set {0:#x} instead of NVM")]
    CommandSet(u8),
    /// Malformed namespace identification descriptors.
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    /// The ANA log says nothing of the namespace's group.
    #[error("the ANA log has no group {group}")]
    AnaGroupMissing {
        /// ANAGRPID.
        group: u32,
    },
    /// The namespace stayed in ANA state "change" for twice ANATT.
    #[error("ANA state \"change\" for more than {after:?}")]
    AnaTransition {
        /// The time allowed.
        after: Duration,
    },
}

impl NamespaceError {
    /// A namespace that is not among the active ones, of which not more are kept than are printed.
    pub(super) fn missing(nsid: u32, active: &[u32]) -> Self {
        let others = active.iter().copied().filter(|&other| other != nsid);
        Self::Missing { nsid, available: others.take(NAMED_MAX + 1).collect() }
    }
}

/// How many namespaces a message names.
const NAMED_MAX: usize = 16;

fn list(nsids: &[u32]) -> String {
    if nsids.is_empty() {
        return "none".to_owned();
    }
    let mut text: Vec<String> = nsids.iter().take(NAMED_MAX).map(u32::to_string).collect();
    if nsids.len() > NAMED_MAX {
        text.push("…".to_owned());
    }
    text.join(", ")
}

fn ambiguous(nsids: &[u32]) -> String {
    if nsids.is_empty() {
        "the subsystem has no active namespace for this host".to_owned()
    } else {
        format!("several namespaces are active, set `namespace` to one of: {}", list(nsids))
    }
}
