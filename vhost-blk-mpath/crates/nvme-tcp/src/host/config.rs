//! The configuration of a queue.

use crate::authentication::Authentication;
use crate::wire::{BLOCKS_MAX, Digests, Nqn};

/// The fewest entries of a queue. One entry always stays empty.
pub const QUEUE_ENTRIES_MIN: u16 = 2;
/// The most entries of a queue. A CID has twelve bits for the entry and four for its generation.
pub const QUEUE_ENTRIES_MAX: u16 = 4096;

/// The identity of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// HOSTNQN.
    pub hostnqn: Nqn,
    /// HOSTID, the bytes of a UUID.
    pub hostid: [u8; 16],
}

/// Limits of the commands to one namespace, from its Identify data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceLimits {
    /// NSID.
    pub nsid: u32,
    /// Bytes of a logical block: a power of two from 512 to 65536.
    pub block_bytes: u32,
    /// NSZE: blocks of the namespace. No command reaches beyond.
    pub namespace_blocks: u64,
    /// NOIOB: reads and writes do not cross multiples of this many blocks; 0 for none.
    pub noiob_blocks: u16,
}

impl NamespaceLimits {
    pub(super) fn check(self, max_transfer_bytes: u32) -> Result<(), ConfigError> {
        let block_bytes = self.block_bytes;
        if !block_bytes.is_power_of_two() || !(512..=65536).contains(&block_bytes) {
            return Err(ConfigError::BlockBytes(block_bytes));
        }
        if max_transfer_bytes < block_bytes {
            return Err(ConfigError::MaxTransfer { max_transfer_bytes, block_bytes });
        }
        Ok(())
    }
}

/// The limits of commands to one namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct IoLimits {
    pub(super) namespace: NamespaceLimits,
    /// The most blocks of one Write Zeroes.
    pub(super) max_write_zeroes_blocks: u32,
    /// The most blocks of one Dataset Management.
    pub(super) max_deallocate_blocks: u32,
}

impl IoLimits {
    /// Limits in blocks. A limit below one block is raised to one block, because no command could meet it.
    pub(super) fn new(namespace: NamespaceLimits, commands: CommandLimits) -> Self {
        let zeroes = commands.max_write_zeroes_bytes / u64::from(namespace.block_bytes);
        Self {
            namespace,
            max_write_zeroes_blocks: zeroes.clamp(1, BLOCKS_MAX.into()) as u32,
            max_deallocate_blocks: commands.max_deallocate_blocks.max(1),
        }
    }
}

/// Limits of commands that move no data, or only ranges (NVM Command Set 4.1.5.2, I/O Command Set specific Identify Controller).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLimits {
    /// Bytes that one Write Zeroes covers (WZSL); `u64::MAX` for no limit.
    pub max_write_zeroes_bytes: u64,
    /// Blocks of one range of Dataset Management, and of all ranges of a command (DMRSL, DMSL); `u32::MAX` for no limit.
    pub max_deallocate_blocks: u32,
}

impl CommandLimits {
    /// No limits.
    pub const NONE: Self = Self { max_write_zeroes_bytes: u64::MAX, max_deallocate_blocks: u32::MAX };
}

/// The configuration of an I/O queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// QID, from 1.
    pub qid: u16,
    /// Entries of the queue, [`QUEUE_ENTRIES_MIN`] to [`QUEUE_ENTRIES_MAX`]. One command less can be in flight.
    pub entries: u16,
    /// The identity of this host.
    pub host: HostIdentity,
    /// The subsystem.
    pub subnqn: Nqn,
    /// CNTLID from the Connect of the admin queue.
    pub cntlid: u16,
    /// Digests to request.
    pub digests: Digests,
    /// The most data of one command in bytes; at least one block of each namespace.
    pub max_transfer_bytes: u32,
    /// The controller reports MDTS. If not, the queue learns a smaller limit when larger commands fail.
    pub reports_max_transfer: bool,
    /// Limits of Write Zeroes and Dataset Management.
    pub command_limits: CommandLimits,
    /// Bytes of data that a command capsule may carry (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// The namespaces, by the position that requests name. `None` for a namespace that is unusable on this controller.
    pub namespaces: Vec<Option<NamespaceLimits>>,
    /// The secrets of the authentication, if this host has some. See [`ControllerConfig::authentication`](super::ControllerConfig).
    pub authentication: Option<Authentication>,
    /// The connection uses TLS.
    pub is_encrypted: bool,
}

impl QueueConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.qid == 0 {
            return Err(ConfigError::AdminQueue);
        }
        check_entries(self.entries)?;
        self.namespaces.iter().flatten().try_for_each(|namespace| namespace.check(self.max_transfer_bytes))
    }
}

pub(super) fn check_entries(entries: u16) -> Result<(), ConfigError> {
    if (QUEUE_ENTRIES_MIN..=QUEUE_ENTRIES_MAX).contains(&entries) { Ok(()) } else { Err(ConfigError::Entries(entries)) }
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// QID 0 is that of the admin queue.
    #[error("invalid I/O queue 0: queue 0 is the admin queue")]
    AdminQueue,
    /// The number of entries is out of range.
    #[error("invalid number of queue entries {0}: must be {QUEUE_ENTRIES_MIN} to {QUEUE_ENTRIES_MAX}")]
    Entries(u16),
    /// The block size is invalid.
    #[error("invalid block size {0}: must be a power of two from 512 to 65536 bytes")]
    BlockBytes(u32),
    /// The most data of one command is less than a block.
    #[error("a block of {block_bytes} bytes is larger than a transfer of {max_transfer_bytes}")]
    MaxTransfer {
        /// The most data of one command in bytes.
        max_transfer_bytes: u32,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// KATO is out of range. It must not be zero: without keep-alives a lost association could not be fenced.
    #[error("the keep-alive timeout must be at least 1 ms and fit 32 bits of milliseconds")]
    KeepAlive,
    /// An association without an I/O queue cannot carry I/O.
    #[error("invalid number of I/O queues 0: must be at least 1")]
    NoIoQueue,
    /// An NSID is listed more than once.
    #[error("namespace {0} is configured twice")]
    NamespaceTwice(u32),
}
