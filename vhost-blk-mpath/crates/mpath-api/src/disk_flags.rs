//! A disk by flags: what the daemon takes at its start, and `mpathctl disk add` while it runs.

use clap::Args;

use crate::config::{
    CtrlLossTmo, DiskConfig, DiskName, FastIoFailTmo, Hedge, HedgeBudget, IoTimeout, KeepAliveTmo, LimitBandwidth,
    LimitBurst, LimitIops, LimitsConfig, MaxTransfer, NamespaceId, Nqn, QueueCount, QueueEntries, ReconnectDelay,
    SocketPath, SuspectTimeout, Weight, WindowBytes, WindowIos,
};
use crate::{ClassPolicies, DiscoveryAddress, PathAddress, SchedulerKind};

/// The flags, each the setting of its name in [`DiskConfig`].
#[derive(Debug, Clone, Default, PartialEq, Args)]
// As in DiskConfig.
#[allow(clippy::struct_excessive_bools)]
pub struct DiskFlags {
    /// Name in the API and in mpathctl [default: disk0]
    #[arg(long, value_name = "NAME")]
    pub name: Option<DiskName>,

    /// vhost-user socket to create; QEMU connects to it
    #[arg(long, value_name = "PATH")]
    pub socket_path: Option<SocketPath>,

    /// NQN of the NVMe subsystem
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<Nqn>,

    /// A path to the subsystem, tcp://HOST:PORT or mptcp://HOST:PORT, port 4420 if left out, with ?host-traddr=ADDRESS and
    /// &host-iface=NAME where the local end matters; repeat for each path
    #[arg(long = "path", value_name = "URI")]
    pub paths: Vec<PathAddress>,

    /// A discovery controller, tcp://HOST:PORT, port 8009 if left out; repeat for each. What it lists of the subsystem are
    /// paths too
    #[arg(long, value_name = "URI")]
    pub discovery: Vec<DiscoveryAddress>,

    /// Namespace identifier [default: the subsystem's only one]
    #[arg(long, value_name = "NSID")]
    pub namespace: Option<NamespaceId>,

    /// Which path a request takes; `mpathctl policy list` names them all [default: bdp]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<ClassPolicies>,

    /// Which virtqueue's turn it is; `mpathctl scheduler list` names them all [default: burst-credit]
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<SchedulerKind>,

    /// Requests per second of the disk, 1 to 1000000000, or off [default: off]
    #[arg(long, value_name = "N")]
    pub limit_iops: Option<LimitIops>,

    /// Bytes per second of the disk, 4KiB to 1TiB, or off [default: off]
    #[arg(long, value_name = "SIZE")]
    pub limit_bandwidth: Option<LimitBandwidth>,

    /// What may be saved up while less is used: what the limits allow in this time, 0ms to 3600s [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub limit_burst: Option<LimitBurst>,

    /// The disk's part beside others over the same paths, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N")]
    pub weight: Option<Weight>,

    /// Refuse all writes
    #[arg(long)]
    pub read_only: bool,

    /// The most virtqueues the guest may use, 1 to 256 [default: 64]
    #[arg(long, value_name = "N")]
    pub queues: Option<QueueCount>,

    /// Entries of each NVMe I/O queue, 16 to 1024 [default: 128]
    #[arg(long, value_name = "N")]
    pub queue_size: Option<QueueEntries>,

    /// The most data of one NVMe read or write, 4KiB to 32MiB, at most what the controller reports [default: what it reports, or
    /// 1MiB]
    #[arg(long, value_name = "SIZE")]
    pub max_transfer: Option<MaxTransfer>,

    /// Requests each path may have in flight per I/O thread, 1 to 1024 [default: 128]
    #[arg(long, value_name = "N")]
    pub window_ios: Option<WindowIos>,

    /// Bytes each path may have in flight per I/O thread, 65536 to 1073741824 [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    pub window_bytes: Option<WindowBytes>,

    /// Protect NVMe/TCP headers by CRC32C
    #[arg(long)]
    pub hdr_digest: bool,

    /// Protect NVMe/TCP data by CRC32C
    #[arg(long)]
    pub data_digest: bool,

    /// Keep-alive timeout in seconds, 1 to 600 [default: 5]
    #[arg(long, value_name = "SECONDS")]
    pub keep_alive_tmo: Option<KeepAliveTmo>,

    /// Seconds between attempts to bring a lost path back, 1 to 600 [default: 2]
    #[arg(long, value_name = "SECONDS")]
    pub reconnect_delay: Option<ReconnectDelay>,

    /// Longest silence of a path that owes answers before it is suspect, 50ms to 60s [default: 300ms]
    #[arg(long, value_name = "TIME")]
    pub suspect_timeout: Option<SuspectTimeout>,

    /// Seconds that a command may wait for its answer before its association is ended, 1 to 600 [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub io_timeout: Option<IoTimeout>,

    /// Send a read that takes longer than this quantile of the others a second time, over another path: p50 to p99.9, or off
    /// [default: off]
    #[arg(long, value_name = "QUANTILE")]
    pub hedge: Option<Hedge>,

    /// How many reads may be sent a second time, as a share of all reads, 0.1% to 5% [default: 5%]
    #[arg(long, value_name = "PERCENT")]
    pub hedge_budget: Option<HedgeBudget>,

    /// Seconds that requests wait while no path is live before they fail, 1 to 86400 [default: they wait for ever]
    #[arg(long, value_name = "SECONDS")]
    pub fast_io_fail_tmo: Option<FastIoFailTmo>,

    /// Seconds without a connection after which a path is given up, 1 to 86400 [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub ctrl_loss_tmo: Option<CtrlLossTmo>,

    /// The subsystem's controllers share their volatile write cache: a flush on one covers all
    #[arg(long)]
    pub shared_write_cache: bool,

    /// The controllers close an I/O connection that the host has ended only once all it sent there is executed
    #[arg(long)]
    pub drain_fence: bool,

    /// Let a front-end that can see policy and paths, and set the policy: docs/qemu.md
    #[arg(long)]
    pub mpath_window: bool,
}

/// What flags lack for a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskFlagsError {
    /// No socket.
    #[error("no socket: give --socket-path PATH; see --help")]
    NoSocket,
    /// No subsystem.
    #[error("no subsystem: give --subsystem NQN; see --help")]
    NoSubsystem,
    /// Neither path nor discovery controller.
    #[error("no path: give --path tcp://HOST:PORT, once for each, or --discovery tcp://HOST, or a file by --config")]
    NoPath,
}

impl DiskFlags {
    /// The disk that they describe.
    pub fn into_config(self) -> Result<DiskConfig, DiskFlagsError> {
        let socket_path = self.socket_path.ok_or(DiskFlagsError::NoSocket)?;
        let subsystem = self.subsystem.ok_or(DiskFlagsError::NoSubsystem)?;
        if self.paths.is_empty() && self.discovery.is_empty() {
            return Err(DiskFlagsError::NoPath);
        }
        let defaults = DiskConfig::new(socket_path, subsystem, self.paths);
        let mut window = defaults.window;
        window.ios = self.window_ios.unwrap_or(window.ios);
        window.bytes = self.window_bytes.unwrap_or(window.bytes);
        Ok(DiskConfig {
            name: self.name.unwrap_or(defaults.name),
            weight: self.weight.unwrap_or(defaults.weight),
            discovery: self.discovery,
            namespace: self.namespace,
            policy: self.policy.unwrap_or(defaults.policy),
            scheduler: self.scheduler.map_or(defaults.scheduler, Into::into),
            limits: LimitsConfig {
                iops: self.limit_iops.unwrap_or(defaults.limits.iops),
                bandwidth: self.limit_bandwidth.unwrap_or(defaults.limits.bandwidth),
                burst: self.limit_burst.unwrap_or(defaults.limits.burst),
            },
            read_only: self.read_only,
            queues: self.queues.unwrap_or(defaults.queues),
            queue_size: self.queue_size.unwrap_or(defaults.queue_size),
            max_transfer: self.max_transfer,
            window,
            hdr_digest: self.hdr_digest,
            data_digest: self.data_digest,
            keep_alive_tmo: self.keep_alive_tmo.unwrap_or(defaults.keep_alive_tmo),
            reconnect_delay: self.reconnect_delay.unwrap_or(defaults.reconnect_delay),
            suspect_timeout: self.suspect_timeout.unwrap_or(defaults.suspect_timeout),
            io_timeout: self.io_timeout.unwrap_or(defaults.io_timeout),
            hedge: self.hedge.unwrap_or_default(),
            hedge_budget: self.hedge_budget.unwrap_or_default(),
            fast_io_fail_tmo: self.fast_io_fail_tmo,
            ctrl_loss_tmo: self.ctrl_loss_tmo,
            shared_write_cache: self.shared_write_cache,
            drain_fence: self.drain_fence,
            mpath_window: self.mpath_window,
            ..defaults
        })
    }
}
