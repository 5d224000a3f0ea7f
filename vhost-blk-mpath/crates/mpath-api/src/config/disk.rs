//! One entry of `disks:`.

use mpath_core::{ClassPolicies, PolicyKind, SchedulerKind, SchedulerSpec};
use serde::{Deserialize, Serialize};

use super::hedge::{Hedge, HedgeBudget, HedgeSetting};
use super::limits::LimitsConfig;
use super::max_transfer::MaxTransfer;
use super::on_off;
use super::sharer::SharerConfig;
use super::value::{Bounded, DiskName, Millis, Nqn, Seconds, SocketPath};
use crate::address::{DiscoveryAddress, PathAddress};
use crate::{policy_form, scheduler_form};

/// A namespace identifier: 1 to 4294967294 (0 and 0xffffffff have other meanings on the wire).
pub type NamespaceId = Bounded<1, { u32::MAX - 1 }>;
/// A number of virtqueues, 1 to 256.
pub type QueueCount = Bounded<1, 256>;
/// A number of NVMe submission queue entries, 16 to 1024, nvme-cli's range.
pub type QueueEntries = Bounded<16, 1024>;
/// A number of requests in flight, 1 to 1024.
pub type WindowIos = Bounded<1, 1024>;
/// A number of bytes in flight, 64 KiB to 1 GiB.
pub type WindowBytes = Bounded<65_536, 1_073_741_824>;
/// A disk's part beside others, 1 to 1000.
pub type Weight = Bounded<1, 1000>;
/// A keep-alive timeout, 1 to 600 s.
pub type KeepAliveTmo = Seconds<1, 600>;
/// [`DiskConfig::io_timeout`].
pub type IoTimeout = Seconds<1, 600>;
/// A delay between attempts to connect, 1 to 600 s.
pub type ReconnectDelay = Seconds<1, 600>;
/// A silence after which a path is suspect, 50 ms to 60 s.
pub type SuspectTimeout = Millis<50, 60_000>;
/// How long requests wait without a path before they fail, 1 to 86400 s.
pub type FastIoFailTmo = Seconds<1, 86_400, true>;
/// How long attempts to connect a path go on, 1 to 86400 s.
pub type CtrlLossTmo = Seconds<1, 86_400, true>;

/// One disk: a vhost-user-blk socket for one guest above, one namespace over many paths below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a mapping of settings")]
// Settings that are on or off, each by itself: no state hides in them.
#[allow(clippy::struct_excessive_bools)]
pub struct DiskConfig {
    /// The name in the API and in `mpathctl`, different for each disk. Default: `disk0`.
    #[serde(default)]
    pub name: DiskName,

    /// The vhost-user socket that the daemon creates and QEMU connects to. Required.
    pub socket_path: SocketPath,

    /// The NQN of the NVMe subsystem that every path must lead to. Required.
    pub subsystem: Nqn,

    /// The namespace. Default: the subsystem's only one; more than one is an error then. Required with `share-paths-with`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceId>,

    /// The paths, at most 64, no two alike. Required unless `discovery` is given.
    #[serde(default)]
    pub paths: Vec<PathAddress>,

    /// Discovery controllers, at most 8, no two alike: what they list of `subsystem` are paths too, which come and go with
    /// their logs. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discovery: Vec<DiscoveryAddress>,

    /// More disks over the same paths, at most 63, one for each further namespace of `subsystem`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share_paths_with: Vec<SharerConfig>,

    /// Which path a request takes: a policy by name, or as a mapping of `name` and its parameters, or as a mapping of `read`
    /// and `write` to one each. Default: `bdp`. Can be changed while I/O runs.
    #[serde(default = "default_policy", with = "policy_form")]
    pub policy: ClassPolicies,

    /// Which virtqueue's turn it is: a scheduler by name, or as a mapping of `name` and its parameters. Default:
    /// `burst-credit`. Can be changed while I/O runs.
    #[serde(default = "default_scheduler", with = "scheduler_form")]
    pub scheduler: SchedulerSpec,

    /// What the disk may do in a second, all virtqueues and I/O threads together. Default: no limits. Can be changed while I/O
    /// runs.
    #[serde(default)]
    pub limits: LimitsConfig,

    /// The disk's part of the service beside the disks that share its paths, 1 to 1000. Default: 100. Can be changed while I/O
    /// runs.
    #[serde(default = "default_weight")]
    pub weight: Weight,

    /// Whether the guest sees a read-only disk. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub read_only: bool,

    /// The most virtqueues that the guest may use, 1 to 256. Default: 64. QEMU's `num-queues`
    /// (by default the guest's number of CPUs) must not exceed it.
    #[serde(default = "default_queues")]
    pub queues: QueueCount,

    /// Entries of each NVMe I/O queue (one per path and I/O thread), 16 to 1024. Default: 128.
    /// Lowered to what the controller supports.
    #[serde(default = "default_queue_size")]
    pub queue_size: QueueEntries,

    /// The most data of one NVMe read or write, 4KiB to 32MiB; longer requests are cut. What the controller reports (MDTS) is never
    /// exceeded. Default: what it reports, and 1MiB with a controller that reports nothing; where such a controller refuses
    /// larger commands, smaller ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_transfer: Option<MaxTransfer>,

    /// What each path may have in flight per I/O thread; what exceeds it waits unbound.
    #[serde(default)]
    pub window: WindowConfig,

    /// Whether NVMe/TCP PDU headers carry a CRC32C. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub hdr_digest: bool,

    /// Whether NVMe/TCP PDU data carries a CRC32C. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub data_digest: bool,

    /// Seconds without a sign of life after which a path is lost, 1 to 600. Default: 5.
    #[serde(default = "default_keep_alive_tmo")]
    pub keep_alive_tmo: KeepAliveTmo,

    /// Seconds between attempts to bring a lost path back, 1 to 600. Default: 2.
    #[serde(default = "default_reconnect_delay")]
    pub reconnect_delay: ReconnectDelay,

    /// The longest that a path may owe answers in silence before it is suspect, 50 ms to 60 s: its reads then go to another
    /// path and new requests avoid it, until it gives a sign of life. A path that has been quicker so far is suspect
    /// sooner. A read that a path has lost, while it answers others, goes to another path after that time as well.
    /// Default: `300ms`.
    #[serde(default = "default_suspect_timeout")]
    pub suspect_timeout: SuspectTimeout,

    /// Seconds that a command may wait for its answer, 1 to 600. An older command ends its path's association: what changes
    /// data waits for the fence and is repeated on another path. Default: 30, as Linux's `nvme_core.io_timeout`.
    #[serde(default = "default_io_timeout")]
    pub io_timeout: IoTimeout,

    /// Whether a read that takes longer than this quantile of the others of late, `p50` to `p99.9`, is sent a second time, over
    /// another path, and the first answer taken. Default: `off`. Can be changed while I/O runs.
    #[serde(default)]
    pub hedge: Hedge,

    /// How many reads may be sent a second time, as a share of all reads, 0.1 % to 5 %. Default: `5%`. Can be changed while
    /// I/O runs.
    #[serde(default)]
    pub hedge_budget: HedgeBudget,

    /// Seconds that requests wait while no path is live, 1 to 86400; then they fail, and later ones fail at once until a path
    /// is back. Default: they wait for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_io_fail_tmo: Option<FastIoFailTmo>,

    /// Seconds without a connection after which a path is given up, 1 to 86400: attempts to connect it end. Once all paths of
    /// the disk are given up, requests fail. Default: attempts go on for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctrl_loss_tmo: Option<CtrlLossTmo>,

    /// Whether the subsystem's controllers share one volatile write cache per namespace, so that a flush on any of them
    /// commits what any of them has completed. Default: `false`: each dirty controller is flushed, and the loss of a
    /// dirty one fails the next flush.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub shared_write_cache: bool,

    /// Whether the subsystem's controllers, when the host ends its side of an I/O connection, close theirs only once everything
    /// received on it is executed. Default: `false`. With it a path that still works is closed so, and its end is a fence.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub drain_fence: bool,

    /// Whether front-ends can read of the paths and the policy, and set this, in the last 64 bytes of the configuration space:
    /// docs/qemu.md. Guests do not see it, nor does a front-end that knows nothing of it. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    pub mpath_window: bool,
}

impl DiskConfig {
    /// A disk with every optional setting at its default.
    #[must_use]
    pub fn new(socket_path: SocketPath, subsystem: Nqn, paths: Vec<PathAddress>) -> Self {
        Self {
            name: DiskName::default(),
            socket_path,
            subsystem,
            namespace: None,
            paths,
            discovery: Vec::new(),
            share_paths_with: Vec::new(),
            policy: default_policy(),
            scheduler: default_scheduler(),
            limits: LimitsConfig::default(),
            weight: default_weight(),
            read_only: false,
            queues: default_queues(),
            queue_size: default_queue_size(),
            max_transfer: None,
            window: WindowConfig::default(),
            hdr_digest: false,
            data_digest: false,
            keep_alive_tmo: default_keep_alive_tmo(),
            reconnect_delay: default_reconnect_delay(),
            suspect_timeout: default_suspect_timeout(),
            io_timeout: default_io_timeout(),
            hedge: Hedge::default(),
            hedge_budget: HedgeBudget::default(),
            fast_io_fail_tmo: None,
            ctrl_loss_tmo: None,
            shared_write_cache: false,
            drain_fence: false,
            mpath_window: false,
        }
    }

    /// How slow reads are hedged at first.
    #[must_use]
    pub fn hedge_setting(&self) -> HedgeSetting {
        HedgeSetting { hedge: self.hedge, budget: self.hedge_budget }
    }
}

/// The bounds on what one path has in flight for one disk and I/O thread.
///
/// A request larger than `bytes` still goes out when the path is otherwise idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default, expecting = "a mapping of settings")]
pub struct WindowConfig {
    /// Requests, 1 to 1024. Default: 128.
    pub ios: WindowIos,
    /// Payload bytes, 65536 (64 KiB) to 1073741824 (1 GiB). Default: 8388608 (8 MiB).
    pub bytes: WindowBytes,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self { ios: WindowIos::constant(128), bytes: WindowBytes::constant(8 << 20) }
    }
}

fn default_policy() -> ClassPolicies {
    PolicyKind::Bdp.into()
}

fn default_scheduler() -> SchedulerSpec {
    SchedulerKind::BurstCredit.into()
}

pub(super) fn default_weight() -> Weight {
    Weight::constant(100)
}

pub(super) fn default_queues() -> QueueCount {
    QueueCount::constant(64)
}

/// The default of [`DiskConfig::queue_size`].
#[must_use]
pub fn default_queue_size() -> QueueEntries {
    QueueEntries::constant(128)
}

/// The default of [`DiskConfig::keep_alive_tmo`].
#[must_use]
pub fn default_keep_alive_tmo() -> KeepAliveTmo {
    KeepAliveTmo::constant(5)
}

/// The default of [`DiskConfig::reconnect_delay`].
#[must_use]
pub fn default_reconnect_delay() -> ReconnectDelay {
    ReconnectDelay::constant(2)
}

fn default_suspect_timeout() -> SuspectTimeout {
    SuspectTimeout::constant(300)
}

fn default_io_timeout() -> IoTimeout {
    IoTimeout::constant(30)
}
