//! One entry of `disks:`.

use clap::builder::TypedValueParser;
use clap::{Args, ValueHint};
use mpath_core::{ClassPolicies, PolicyKind, SchedulerKind, SchedulerSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::{Account, SocketAccess, SocketMode};
use super::hedge::{Hedge, HedgeBudget};
use super::key_file::KeyFile;
use super::limits::LimitsConfig;
use super::min_paths::MinPaths;
use super::on_off;
use super::poll::PollUs;
use super::sharer::SharerConfig;
use super::size::Size;
use super::time::{Seconds, Time};
use super::value::{Bounded, DiskName, Nqn, SocketPath};
use crate::address::{DiscoveryAddress, PathAddress};
use crate::one_of;

/// A namespace identifier: 1 to 4294967294. NVMe gives 0 and 0xffffffff other meanings.
pub type NamespaceId = Bounded<1, { u32::MAX - 1 }>;
/// A number of virtqueues, 1 to 256.
pub type QueueCount = Bounded<1, 256>;
/// A number of NVMe submission queue entries, 16 to 1024, nvme-cli's range.
pub type QueueEntries = Bounded<16, 1024>;
/// A number of requests in flight, 1 to 1024.
pub type WindowIos = Bounded<1, 1024>;
/// The most data of one NVMe command, 4 KiB to 32 MiB.
pub type MaxTransfer = Size<4096, { 32 << 20 }>;
/// A number of bytes in flight, 64 KiB to 1 GiB.
pub type WindowBytes = Size<65_536, { 1 << 30 }>;
/// A disk's share among the disks over the same paths, 1 to 1000.
pub type Weight = Bounded<1, 1000>;
/// A keep-alive timeout, 1 to 600 s.
pub type KeepAliveTmo = Seconds<1, 600>;
/// The longest wait for the answer to a command, 1 to 600 s.
pub type IoTimeout = Time<1000, 600_000>;
/// A delay between attempts to connect, 1 to 600 s.
pub type ReconnectDelay = Seconds<1, 600>;
/// A silence after which a path is suspect, 50 ms to 60 s.
pub type SuspectTimeout = Time<50, 60_000>;
/// How long requests wait without a live path before they fail, 1 to 86400 s.
pub type FastIoFailTmo = Seconds<1, 86_400, true>;
/// How long attempts to connect a path go on, 1 to 86400 s.
pub type CtrlLossTmo = Seconds<1, 86_400, true>;

const PATH_FLAG: &str = "\
Path to the subsystem, tcp://HOST:PORT or mptcp://HOST:PORT, default port 4420; repeat for each path. To choose the local end, append \
?host-traddr=ADDRESS, ?host-iface=NAME, or both joined by &";
const POLICY_FLAG: &str =
    "The policy, which picks the path of a request; `mpathctl policy list` shows all. Default: `bdp`";
const SCHEDULER_FLAG: &str = "\
The scheduler, which picks the virtqueue that is served next; `mpathctl scheduler list` shows all. Default: `burst-credit`";
const DISCOVERY_FLAG: &str = "\
Discovery controller, tcp://HOST:PORT, default port 8009; repeat for each. The addresses of the subsystem in its log are paths too";

/// One disk: a vhost-user-blk socket for one guest, and one namespace over several paths.
// Each setting is described here alone: flags, JSON schema and API have the same description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a mapping of settings")]
#[group(id = "DiskConfig")]
// Each is an independent setting.
#[allow(clippy::struct_excessive_bools)]
pub struct DiskConfig {
    /// The name in the API and in `mpathctl`, unique in the daemon. Default: `disk0`.
    #[serde(default)]
    #[arg(long, value_name = "NAME")]
    pub name: DiskName,

    /// The vhost-user socket that the daemon creates and QEMU connects to. Required.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket_path: SocketPath,

    /// The mode of the socket file, such as `0660`. Default: 0777 less the daemon's umask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<SocketMode>,

    /// The owner of the socket file, a name or a number. Default: the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "USER")]
    pub socket_owner: Option<Account>,

    /// The group of the socket file, a name or a number. Default: the daemon's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<Account>,

    /// The NQN of the NVMe subsystem of every path. Required.
    #[arg(long, value_name = "NQN")]
    pub subsystem: Nqn,

    /// The namespace identifier. Default: the only namespace of the subsystem. Required if the subsystem has several, and with
    /// `share-paths-with`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NSID")]
    pub namespace: Option<NamespaceId>,

    /// The addresses of the paths, at most 64, all different. Required unless `discovery` is given.
    #[serde(default)]
    #[arg(long = "path", value_name = "URL", help = PATH_FLAG)]
    pub paths: Vec<PathAddress>,

    /// Discovery controllers, at most 8, all different. The addresses of `subsystem` in their logs are paths too, which are added and
    /// removed as the logs change. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_name = "URL", help = DISCOVERY_FLAG)]
    pub discovery: Vec<DiscoveryAddress>,

    /// More disks over the same paths, at most 63: one for each further namespace of `subsystem`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[arg(skip)]
    pub share_paths_with: Vec<SharerConfig>,

    /// The policy, which picks the path of a request: a name, or a mapping of `name` and parameters, or a mapping of `read` and
    /// `write` to one each. Default: `bdp`. Can be changed while I/O runs.
    #[serde(default = "default_policy")]
    #[arg(long, value_name = "NAME", help = POLICY_FLAG, value_parser = policy_name())]
    pub policy: ClassPolicies,

    /// The scheduler, which picks the virtqueue that is served next: a name, or a mapping of `name` and parameters. Default:
    /// `burst-credit`. Can be changed while I/O runs.
    #[serde(default = "default_scheduler")]
    #[arg(long, value_name = "NAME", help = SCHEDULER_FLAG, value_parser = scheduler_name())]
    pub scheduler: SchedulerSpec,

    /// Limits of the disk, over all virtqueues and I/O threads. Default: no limits. Can be changed while I/O runs.
    #[serde(default)]
    #[command(flatten)]
    pub limits: LimitsConfig,

    /// Share of the service among the disks over the same paths, 1 to 1000. Default: 100. Can be changed while I/O runs.
    #[serde(default = "default_weight")]
    #[arg(long, value_name = "N")]
    pub weight: Weight,

    /// Whether the guest sees a read-only disk. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    #[arg(long)]
    pub read_only: bool,

    /// The most virtqueues that the guest may use, 1 to 256. Default: 64. QEMU's `num-queues`, by default the number of the guest's
    /// CPUs, must not exceed it.
    #[serde(default = "default_queues")]
    #[arg(long, value_name = "N")]
    pub queues: QueueCount,

    /// Entries of each NVMe I/O queue, 16 to 1024. Each path has one queue per I/O thread. Default: 128. The controller may support
    /// fewer.
    #[serde(default = "default_queue_size")]
    #[arg(long, value_name = "N")]
    pub queue_size: QueueEntries,

    /// The most data of one NVMe read or write, 4KiB to 32MiB. Longer requests are split. The controller's MDTS is never exceeded.
    /// Default: the controller's MDTS, or 1MiB if it reports none. If such a controller refuses large commands, the daemon sends
    /// smaller ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "SIZE")]
    pub max_transfer: Option<MaxTransfer>,

    /// The window of each path, per I/O thread. Requests beyond it wait and are not bound to a path.
    #[serde(default)]
    #[command(flatten)]
    pub window: WindowConfig,

    /// How long an I/O thread polls before it sleeps, if polling pays: `off`, `auto`, or 1 to 1000 microseconds. Default: `off`.
    #[serde(default)]
    #[arg(long, value_name = "US")]
    pub poll_us: PollUs,

    /// Whether NVMe/TCP PDU headers carry a CRC32C. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    #[arg(long)]
    pub hdr_digest: bool,

    /// Whether NVMe/TCP PDU data carries a CRC32C. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    #[arg(long)]
    pub data_digest: bool,

    /// A file with the key of the subsystem for this host, in the interchange format of NVMe TLS PSKs (`NVMeTLSkey-1:…`). If given,
    /// all connections to the subsystem use TLS 1.3, and the daemon never falls back to clear text. Only the daemon's user may have
    /// access to the file. Each new connection reads the file. Default: no TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub tls_key_file: Option<KeyFile>,

    /// A file with the key of the discovery controllers for this host, in the same format. If given, all connections to discovery
    /// controllers use TLS 1.3. It needs `discovery`. Each new connection reads the file. Default: discovery in clear text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, requires = "discovery")]
    pub discovery_tls_key_file: Option<KeyFile>,

    /// A file with the secret of this host for the subsystem, as `nvme gen-dhchap-key` prints it (`DHHC-1:…`). The daemon proves
    /// itself with DH-HMAC-CHAP on each queue if the controller asks for it. Only the daemon's user may have access to the file.
    /// Each new association reads the file. Default: no authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub dhchap_secret_file: Option<KeyFile>,

    /// A file with the secret of the controllers, in the same format. If given, controllers must prove themselves, and the daemon
    /// uses no controller that does not. It needs `dhchap-secret-file`. Default: controllers need not prove themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, requires = "dhchap_secret_file")]
    pub dhchap_ctrl_secret_file: Option<KeyFile>,

    /// Whether the authentication generates the key for TLS (secure channel concatenation). If so, each association begins with an
    /// authentication in clear text. Then all connections to the subsystem use TLS 1.3 with the generated key. No data and no other
    /// command are sent in clear text. It needs `dhchap-secret-file`, and excludes `tls-key-file` and
    /// `drain-fence`. Only with
    /// `dhchap-ctrl-secret-file` does the key prove the controller too. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    #[arg(long, requires = "dhchap_secret_file", conflicts_with = "tls_key_file")]
    pub concat: bool,

    /// Keep-alive timeout in seconds, 1 to 600. The daemon sends a keep-alive within half of it. If the answer takes longer than
    /// half of it, the path is lost. Default: 5.
    #[serde(default = "default_keep_alive_tmo")]
    #[arg(long, value_name = "SECONDS")]
    pub keep_alive_tmo: KeepAliveTmo,

    /// Seconds between attempts to reconnect a lost path, 1 to 600. Default: 2.
    #[serde(default = "default_reconnect_delay")]
    #[arg(long, value_name = "SECONDS")]
    pub reconnect_delay: ReconnectDelay,

    /// The longest that a path may owe answers and send nothing while another path answers, 50 ms to 60 s. Then it is suspect: its
    /// reads go to another path, and new requests avoid it, until it sends something. A path that has been faster becomes suspect
    /// sooner. A read that a path does not answer, while it answers others, also goes to another path after this time. Default:
    /// `300ms`.
    #[serde(default = "default_suspect_timeout")]
    #[arg(long, value_name = "TIME")]
    pub suspect_timeout: SuspectTimeout,

    /// The longest that a command may wait for its answer, 1 s to 600 s. An older command ends the association of its path. Commands
    /// that change data then wait for the fence, and are retried on another path. Default: `30s`, as Linux's
    /// `nvme_core.io_timeout`.
    #[serde(default = "default_io_timeout")]
    #[arg(long, value_name = "TIME")]
    pub io_timeout: IoTimeout,

    /// The reads that are hedged: those slower than this quantile of recent reads, `p50` to `p99.9`. A second copy goes over another
    /// path, and the first answer counts. Default: `off`. Can be changed while I/O runs.
    #[serde(default)]
    #[arg(long, value_name = "QUANTILE")]
    pub hedge: Hedge,

    /// The most hedges, as a share of all reads, 0.1 % to 5 %. Default: `5%`. Can be changed while I/O runs.
    #[serde(default)]
    #[arg(long, value_name = "PERCENT")]
    pub hedge_budget: HedgeBudget,

    /// The paths that the disk is to have, 1 to 64. It is `degraded` while fewer are usable. With `auto` it is `degraded` while it has
    /// fewer paths than it has had since the daemon started: a reload or a discovery log has dropped some. Default: `auto`.
    /// Can be changed while I/O runs.
    #[serde(default)]
    #[arg(long, value_name = "N")]
    pub min_paths: MinPaths,

    /// Seconds that requests wait while no path is live, 1 to 86400. Then they fail, and new requests fail at once until a path is
    /// live. Default: requests wait for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "SECONDS")]
    pub fast_io_fail_tmo: Option<FastIoFailTmo>,

    /// Seconds without a connection after which attempts to connect a path end, 1 to 86400. Once this is so for all paths of the disk,
    /// requests fail. Default: attempts go on for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "SECONDS")]
    pub ctrl_loss_tmo: Option<CtrlLossTmo>,

    /// Whether the subsystem's controllers share one volatile write cache per namespace: a flush on one controller covers the writes of
    /// all. Default: `false`: the daemon flushes each controller with unflushed writes, and losing such a controller fails the
    /// next flush.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    #[arg(long)]
    pub shared_write_cache: bool,

    /// Whether the subsystem's controllers, when the host shuts down its side of an I/O connection, close theirs only after every
    /// command received on it was executed. Default: `false`. If `true`, the daemon closes a working path in this way, and the
    /// close is a fence.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    #[arg(long)]
    pub drain_fence: bool,

    /// Whether front-ends see paths and policy, and can set the policy, in the vendor window, the last 64 bytes of the configuration
    /// space: docs/qemu.md. Guests and other front-ends do not see it. Default: `false`.
    #[serde(default, deserialize_with = "on_off::deserialize")]
    #[arg(long)]
    pub mpath_window: bool,
}

impl DiskConfig {
    /// A disk with every optional setting at its default.
    #[must_use]
    pub fn new(socket_path: SocketPath, subsystem: Nqn, paths: Vec<PathAddress>) -> Self {
        Self {
            name: DiskName::default(),
            socket_path,
            socket_mode: None,
            socket_owner: None,
            socket_group: None,
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
            poll_us: PollUs::default(),
            hdr_digest: false,
            data_digest: false,
            tls_key_file: None,
            discovery_tls_key_file: None,
            dhchap_secret_file: None,
            dhchap_ctrl_secret_file: None,
            concat: false,
            keep_alive_tmo: default_keep_alive_tmo(),
            reconnect_delay: default_reconnect_delay(),
            suspect_timeout: default_suspect_timeout(),
            io_timeout: default_io_timeout(),
            hedge: Hedge::default(),
            hedge_budget: HedgeBudget::default(),
            min_paths: MinPaths::default(),
            fast_io_fail_tmo: None,
            ctrl_loss_tmo: None,
            shared_write_cache: false,
            drain_fence: false,
            mpath_window: false,
        }
    }

    /// Mode, owner and group of the vhost-user socket.
    #[must_use]
    pub fn socket_access(&self) -> SocketAccess {
        SocketAccess { mode: self.socket_mode, owner: self.socket_owner.clone(), group: self.socket_group.clone() }
    }

    /// Whether all connections to the subsystem use TLS, apart from the authentication that generates a key.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.tls_key_file.is_some() || self.concat
    }

    /// Whether generated keys do not prove the controller: TLS then protects only against those who listen.
    #[must_use]
    pub fn leaves_controller_unproven(&self) -> bool {
        self.concat && self.dhchap_ctrl_secret_file.is_none()
    }

    /// The files with keys and secrets, with the names of their settings.
    pub fn key_files_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut KeyFile)> {
        let files = [
            ("tls-key-file", &mut self.tls_key_file),
            ("discovery-tls-key-file", &mut self.discovery_tls_key_file),
            ("dhchap-secret-file", &mut self.dhchap_secret_file),
            ("dhchap-ctrl-secret-file", &mut self.dhchap_ctrl_secret_file),
        ];
        files.into_iter().filter_map(|(setting, file)| Some((setting, file.as_mut()?)))
    }
}

/// The window of one path in one I/O thread.
///
/// A request larger than `bytes` is sent if the path is otherwise idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default, expecting = "a mapping of settings")]
#[group(skip)]
pub struct WindowConfig {
    /// Requests in flight on a path, per I/O thread, 1 to 1024. Default: 128.
    #[arg(id = "window_ios", long = "window-ios", value_name = "N")]
    pub ios: WindowIos,
    /// Payload bytes in flight on a path, per I/O thread, 64KiB to 1GiB. Default: `8MiB`.
    #[arg(id = "window_bytes", long = "window-bytes", value_name = "SIZE")]
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

fn policy_name() -> impl TypedValueParser<Value = ClassPolicies> {
    one_of::<ClassPolicies>(PolicyKind::ALL.map(PolicyKind::name))
}

fn scheduler_name() -> impl TypedValueParser<Value = SchedulerSpec> {
    one_of::<SchedulerKind>(SchedulerKind::ALL.map(SchedulerKind::name)).map(SchedulerSpec::from)
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
    IoTimeout::constant(30_000)
}
