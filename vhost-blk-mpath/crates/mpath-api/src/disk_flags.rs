//! The flags of a disk, for the daemon and for `mpathctl disk add`.

use clap::{Args, ValueHint};

use crate::config::{
    Account, CtrlLossTmo, DiskConfig, DiskName, FastIoFailTmo, Hedge, HedgeBudget, IoTimeout, KeepAliveTmo, KeyFile,
    LimitBandwidth, LimitBurst, LimitIops, LimitsConfig, MaxTransfer, NamespaceId, Nqn, PollUs, QueueCount,
    QueueEntries, ReconnectDelay, SocketMode, SocketPath, SuspectTimeout, Weight, WindowBytes, WindowIos,
};
use crate::{ClassPolicies, DiscoveryAddress, PathAddress, PolicyKind, SchedulerKind, one_of};

/// The flags. Each has the name of a setting of [`DiskConfig`].
#[derive(Debug, Clone, Default, PartialEq, Args)]
// Each is an independent setting.
#[allow(clippy::struct_excessive_bools)]
pub struct DiskFlags {
    /// Name in the API and in mpathctl [default: disk0]
    #[arg(long, value_name = "NAME")]
    pub name: Option<DiskName>,

    /// vhost-user socket, which the daemon creates and QEMU connects to
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket_path: Option<SocketPath>,

    /// Mode of the vhost-user socket, in octal, such as 0660 [default: 0777 less the umask]
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<SocketMode>,

    /// Owner of the vhost-user socket, a user's name or number [default: the daemon's user]
    #[arg(long, value_name = "USER")]
    pub socket_owner: Option<Account>,

    /// Group of the vhost-user socket, a name or number [default: the daemon's group]
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<Account>,

    /// NQN of the NVMe subsystem
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<Nqn>,

    /// Path to the subsystem, tcp://HOST:PORT or mptcp://HOST:PORT, default port 4420; repeat for each path. To choose the local
    /// end, append ?host-traddr=ADDRESS, ?host-iface=NAME, or both joined by &
    #[arg(long = "path", value_name = "URL")]
    pub paths: Vec<PathAddress>,

    /// Discovery controller, tcp://HOST:PORT, default port 8009; repeat for each. The addresses of the subsystem in its log are
    /// paths too
    #[arg(long, value_name = "URL")]
    pub discovery: Vec<DiscoveryAddress>,

    /// Namespace identifier [default: the only namespace of the subsystem]
    #[arg(long, value_name = "NSID")]
    pub namespace: Option<NamespaceId>,

    /// Policy, which picks the path of a request; `mpathctl policy list` shows all [default: bdp]
    #[arg(long, value_name = "NAME", value_parser = one_of::<ClassPolicies>(PolicyKind::ALL.map(PolicyKind::name)))]
    pub policy: Option<ClassPolicies>,

    /// Scheduler, which picks the virtqueue that is served next; `mpathctl scheduler list` shows all [default: burst-credit]
    #[arg(long, value_name = "NAME", value_parser = one_of::<SchedulerKind>(SchedulerKind::ALL.map(SchedulerKind::name)))]
    pub scheduler: Option<SchedulerKind>,

    /// Limit in requests per second, 1 to 1000000000, or off [default: off]
    #[arg(long, value_name = "N")]
    pub limit_iops: Option<LimitIops>,

    /// Limit in bytes per second, 4KiB to 1TiB, or off [default: off]
    #[arg(long, value_name = "SIZE")]
    pub limit_bandwidth: Option<LimitBandwidth>,

    /// Burst that an idle disk may save up: what the limits allow in this time, 0ms to 3600s [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub limit_burst: Option<LimitBurst>,

    /// Share among the disks over the same paths, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N")]
    pub weight: Option<Weight>,

    /// Make the disk read-only
    #[arg(long)]
    pub read_only: bool,

    /// Most virtqueues that the guest may use, 1 to 256 [default: 64]
    #[arg(long, value_name = "N")]
    pub queues: Option<QueueCount>,

    /// Entries of each NVMe I/O queue, 16 to 1024 [default: 128]
    #[arg(long, value_name = "N")]
    pub queue_size: Option<QueueEntries>,

    /// Most data of one NVMe read or write, 4KiB to 32MiB; never more than the controller reports (MDTS) [default: MDTS, or 1MiB if
    /// the controller reports none]
    #[arg(long, value_name = "SIZE")]
    pub max_transfer: Option<MaxTransfer>,

    /// Window of each path in requests, per I/O thread, 1 to 1024 [default: 128]
    #[arg(long, value_name = "N")]
    pub window_ios: Option<WindowIos>,

    /// Window of each path in bytes, per I/O thread, 65536 to 1073741824 [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    pub window_bytes: Option<WindowBytes>,

    /// How long an I/O thread polls before it sleeps, if polling pays: off, auto, or 1 to 1000 microseconds [default: off]
    #[arg(long, value_name = "US")]
    pub poll_us: Option<PollUs>,

    /// Protect NVMe/TCP PDU headers by CRC32C
    #[arg(long)]
    pub hdr_digest: bool,

    /// Protect NVMe/TCP PDU data by CRC32C
    #[arg(long)]
    pub data_digest: bool,

    /// File with the key of the subsystem for this host (NVMeTLSkey-1:...); all connections to the subsystem use TLS 1.3
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub tls_key_file: Option<KeyFile>,

    /// File with the key of the discovery controllers for this host (NVMeTLSkey-1:...); all connections to them use TLS 1.3
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, requires = "discovery")]
    pub discovery_tls_key_file: Option<KeyFile>,

    /// File with the secret of this host for the subsystem (DHHC-1:...), for controllers that ask for authentication
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub dhchap_secret_file: Option<KeyFile>,

    /// File with the secret of the controllers (DHHC-1:...); a controller that does not prove itself is not used
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, requires = "dhchap_secret_file")]
    pub dhchap_ctrl_secret_file: Option<KeyFile>,

    /// Have the authentication generate the key for TLS; all connections to the subsystem then use TLS 1.3
    #[arg(long, requires = "dhchap_secret_file", conflicts_with = "tls_key_file")]
    pub concat: bool,

    /// Keep-alive timeout in seconds, 1 to 600: half of it is the longest wait for an answer to a keep-alive [default: 5]
    #[arg(long, value_name = "SECONDS")]
    pub keep_alive_tmo: Option<KeepAliveTmo>,

    /// Seconds between attempts to reconnect a lost path, 1 to 600 [default: 2]
    #[arg(long, value_name = "SECONDS")]
    pub reconnect_delay: Option<ReconnectDelay>,

    /// Longest silence of a path that owes answers, 50ms to 60s; then requests avoid it [default: 300ms]
    #[arg(long, value_name = "TIME")]
    pub suspect_timeout: Option<SuspectTimeout>,

    /// Longest wait for the answer to a command, 1s to 600s; then its association ends [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub io_timeout: Option<IoTimeout>,

    /// Hedge reads slower than this quantile of recent reads: send a second copy over another path. p50 to p99.9, or off
    /// [default: off]
    #[arg(long, value_name = "QUANTILE")]
    pub hedge: Option<Hedge>,

    /// Most hedges, as a share of all reads, 0.1% to 5% [default: 5%]
    #[arg(long, value_name = "PERCENT")]
    pub hedge_budget: Option<HedgeBudget>,

    /// Seconds without a live path after which requests fail, 1 to 86400 [default: requests wait for ever]
    #[arg(long, value_name = "SECONDS")]
    pub fast_io_fail_tmo: Option<FastIoFailTmo>,

    /// Seconds without a connection after which attempts to connect a path end, 1 to 86400 [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub ctrl_loss_tmo: Option<CtrlLossTmo>,

    /// The controllers share one volatile write cache: a flush on one covers the writes of all
    #[arg(long)]
    pub shared_write_cache: bool,

    /// The controllers close an I/O connection that the host shuts down only after they executed every command received on it
    #[arg(long)]
    pub drain_fence: bool,

    /// Show paths and policy to front-ends in the vendor window, and let them set the policy: docs/qemu.md
    #[arg(long)]
    pub mpath_window: bool,
}

/// Why flags describe no disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskFlagsError {
    /// No socket.
    #[error("no socket: give --socket-path PATH; see --help")]
    NoSocket,
    /// No subsystem.
    #[error("no subsystem: give --subsystem NQN; see --help")]
    NoSubsystem,
    /// No path and no discovery controller.
    #[error("no path: give --path tcp://HOST:PORT for each path, --discovery tcp://HOST, or --config FILE")]
    NoPath,
}

impl DiskFlags {
    /// The disk that the flags describe.
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
            socket_mode: self.socket_mode,
            socket_owner: self.socket_owner,
            socket_group: self.socket_group,
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
            poll_us: self.poll_us.unwrap_or_default(),
            hdr_digest: self.hdr_digest,
            data_digest: self.data_digest,
            tls_key_file: self.tls_key_file,
            discovery_tls_key_file: self.discovery_tls_key_file,
            dhchap_secret_file: self.dhchap_secret_file,
            dhchap_ctrl_secret_file: self.dhchap_ctrl_secret_file,
            concat: self.concat,
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
