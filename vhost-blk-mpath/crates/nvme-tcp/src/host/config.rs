//! What a queue must know before it can connect.

use crate::wire::{BLOCKS_MAX, Digests, Nqn};

/// Fewest entries of a queue: one of them always stays empty.
pub const QUEUE_ENTRIES_MIN: u16 = 2;
/// Most entries of a queue: a CID keeps twelve bits for the entry and four for its generation.
pub const QUEUE_ENTRIES_MAX: u16 = 4096;

/// Who the host is.
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
    /// NSZE: blocks of the namespace. Nothing beyond is ever asked for.
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

/// What a queue goes by when it sends commands to one namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct IoLimits {
    pub(super) namespace: NamespaceLimits,
    /// The most blocks of one Write Zeroes.
    pub(super) max_write_zeroes_blocks: u32,
    /// The most blocks of one Dataset Management.
    pub(super) max_deallocate_blocks: u32,
}

/// Ranges of a request that is cut are counted by 32 bits of bytes: 2^32 blocks by 16 make 2^28 ranges of 16 bytes.
const DEALLOCATE_BLOCKS_MIN: u32 = 16;

impl IoLimits {
    /// A limit below one block is none that could be kept.
    pub(super) fn new(namespace: NamespaceLimits, commands: CommandLimits) -> Self {
        let zeroes = commands.max_write_zeroes_bytes / u64::from(namespace.block_bytes);
        Self {
            namespace,
            max_write_zeroes_blocks: zeroes.clamp(1, BLOCKS_MAX.into()) as u32,
            max_deallocate_blocks: commands.max_deallocate_blocks.max(DEALLOCATE_BLOCKS_MIN),
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

/// Everything an I/O queue needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// QID, from 1.
    pub qid: u16,
    /// Entries of the queue, [`QUEUE_ENTRIES_MIN`] to [`QUEUE_ENTRIES_MAX`]; one less can be in flight.
    pub entries: u16,
    /// Who connects.
    pub host: HostIdentity,
    /// The subsystem.
    pub subnqn: Nqn,
    /// The controller, as the admin queue's Connect named it.
    pub cntlid: u16,
    /// Digests to ask for.
    pub digests: Digests,
    /// The most data of one command in bytes; at least a block of each namespace.
    pub max_transfer_bytes: u32,
    /// The controller says what that is (MDTS). If it does not, a smaller limit is found out when it refuses larger commands.
    pub reports_max_transfer: bool,
    /// Limits of other commands.
    pub command_limits: CommandLimits,
    /// Bytes of data a command capsule may carry (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// The namespaces, which requests name by their position here; `None` for one that cannot be used on this controller.
    pub namespaces: Vec<Option<NamespaceLimits>>,
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

/// Why a configuration was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// QID 0 is the admin queue's.
    #[error("queue 0 is the admin queue")]
    AdminQueue,
    /// Number of entries out of range.
    #[error("a queue has {QUEUE_ENTRIES_MIN} to {QUEUE_ENTRIES_MAX} entries, not {0}")]
    Entries(u16),
    /// Not a block size.
    #[error("a block has a power of two of 512 to 65536 bytes, not {0}")]
    BlockBytes(u32),
    /// MDTS below the block size.
    #[error("transfers of {max_transfer_bytes} bytes hold no block of {block_bytes}")]
    MaxTransfer {
        /// Bytes of a transfer.
        max_transfer_bytes: u32,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// KATO must not be zero: without keep-alive a lost association would never be fenced.
    #[error("the keep-alive timeout must be 1 ms at least and fit 32 bits of milliseconds")]
    KeepAlive,
    /// An association without I/O queue carries nothing.
    #[error("at least one I/O queue is needed")]
    NoIoQueue,
    /// One NSID is in the list more than once.
    #[error("namespace {0} is asked for twice")]
    NamespaceTwice(u32),
}
