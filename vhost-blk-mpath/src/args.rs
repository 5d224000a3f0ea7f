//! The command line: a whole disk by flags, or a configuration file.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Parser};
use mpath_api::config::{
    Config, CtrlLossTmo, DiskConfig, FastIoFailTmo, Hedge, HedgeBudget, HostId, IoThreads, KeepAliveTmo,
    LimitBandwidth, LimitBurst, LimitIops, LimitsConfig, NamespaceId, Nqn, QueueCount, QueueEntries, ReconnectDelay,
    SocketPath, SuspectTimeout, WindowBytes, WindowIos,
};
use mpath_api::{ClassPolicies, DEFAULT_API_SOCKET, DiscoveryAddress, PathAddress, SchedulerKind, usage_line};

use crate::run::RunError;

/// Exit code of bad usage.
const USAGE: u8 = 2;

const AFTER_HELP: &str = "\
Exit codes:
  0  ended by SIGTERM or SIGINT
  1  failed while running, or a resource of this host is missing (io_uring, threads)
  2  bad usage or configuration
  3  no path leads to the namespace: unreachable, wrong NQN, missing namespace, none discovered
  4  a socket cannot be created, or another process listens on it

The log goes to stderr; RUST_LOG=debug tells more.";

/// vhost-user-blk backend: one virtio disk over several NVMe/TCP paths.
#[derive(Debug, Parser)]
#[command(version, override_usage = "vhost-blk-mpath --socket-path <PATH> --subsystem <NQN> {--path <URI>|--discovery <URI>}... [OPTIONS]\n       \
    vhost-blk-mpath --config <FILE>", after_help = AFTER_HELP, arg_required_else_help = true, allow_negative_numbers = true)]
pub(crate) struct Args {
    /// Read everything from a YAML file instead of flags
    #[arg(long, value_name = "FILE", conflicts_with_all = ["DiskArgs", "HostArgs"])]
    config: Option<PathBuf>,

    #[command(flatten)]
    disk: Option<DiskArgs>,

    #[command(flatten)]
    host: HostArgs,

    /// Print what this backend can do, as QEMU's conventions for vhost-user backends ask, and end; wins over all else
    #[arg(long)]
    print_capabilities: bool,
}

#[derive(Debug, ClapArgs)]
// As in DiskConfig.
#[allow(clippy::struct_excessive_bools)]
struct DiskArgs {
    /// vhost-user socket to create; QEMU connects to it
    #[arg(long, value_name = "PATH")]
    socket_path: SocketPath,

    /// NQN of the NVMe subsystem
    #[arg(long, value_name = "NQN")]
    subsystem: Nqn,

    /// A path to the subsystem, tcp://HOST:PORT or mptcp://HOST:PORT, port 4420 if left out, with ?host-traddr=ADDRESS and
    /// &host-iface=NAME where the local end matters; repeat for each path
    #[arg(long = "path", value_name = "URI")]
    paths: Vec<PathAddress>,

    /// A discovery controller, tcp://HOST:PORT, port 8009 if left out; repeat for each. What it lists of the subsystem are
    /// paths too
    #[arg(long, value_name = "URI")]
    discovery: Vec<DiscoveryAddress>,

    /// Namespace identifier [default: the subsystem's only one]
    #[arg(long, value_name = "NSID")]
    namespace: Option<NamespaceId>,

    /// Which path a request takes; `mpathctl policy list` names them all [default: bdp]
    #[arg(long, value_name = "NAME")]
    policy: Option<ClassPolicies>,

    /// Which virtqueue's turn it is; `mpathctl scheduler list` names them all [default: burst-credit-drr]
    #[arg(long, value_name = "NAME")]
    scheduler: Option<SchedulerKind>,

    /// Requests per second of the disk, 1 to 1000000000, or off [default: off]
    #[arg(long, value_name = "N")]
    limit_iops: Option<LimitIops>,

    /// Bytes per second of the disk, 4KiB to 1TiB, or off [default: off]
    #[arg(long, value_name = "SIZE")]
    limit_bandwidth: Option<LimitBandwidth>,

    /// What may be saved up while less is used: what the limits allow in this time, 0ms to 3600s [default: 1s]
    #[arg(long, value_name = "TIME")]
    limit_burst: Option<LimitBurst>,

    /// Refuse all writes
    #[arg(long)]
    read_only: bool,

    /// The most virtqueues the guest may use, 1 to 256 [default: 64]
    #[arg(long, value_name = "N")]
    queues: Option<QueueCount>,

    /// Entries of each NVMe I/O queue, 16 to 1024 [default: 128]
    #[arg(long, value_name = "N")]
    queue_size: Option<QueueEntries>,

    /// Requests each path may have in flight per I/O thread, 1 to 1024 [default: 128]
    #[arg(long, value_name = "N")]
    window_ios: Option<WindowIos>,

    /// Bytes each path may have in flight per I/O thread, 65536 to 1073741824 [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    window_bytes: Option<WindowBytes>,

    /// Protect NVMe/TCP headers by CRC32C
    #[arg(long)]
    hdr_digest: bool,

    /// Protect NVMe/TCP data by CRC32C
    #[arg(long)]
    data_digest: bool,

    /// Keep-alive timeout in seconds, 1 to 600 [default: 5]
    #[arg(long, value_name = "SECONDS")]
    keep_alive_tmo: Option<KeepAliveTmo>,

    /// Seconds between attempts to bring a lost path back, 1 to 600 [default: 2]
    #[arg(long, value_name = "SECONDS")]
    reconnect_delay: Option<ReconnectDelay>,

    /// Longest silence of a path that owes answers before it is suspect, 50ms to 60s [default: 300ms]
    #[arg(long, value_name = "TIME")]
    suspect_timeout: Option<SuspectTimeout>,

    /// Send a read that takes longer than this quantile of the others a second time, over another path: p50 to p99.9, or off
    /// [default: off]
    #[arg(long, value_name = "QUANTILE")]
    hedge: Option<Hedge>,

    /// How many reads may be sent a second time, as a share of all reads, 0.1% to 5% [default: 5%]
    #[arg(long, value_name = "PERCENT")]
    hedge_budget: Option<HedgeBudget>,

    /// Seconds that requests wait while no path is live before they fail, 1 to 86400 [default: they wait for ever]
    #[arg(long, value_name = "SECONDS")]
    fast_io_fail_tmo: Option<FastIoFailTmo>,

    /// Seconds without a connection after which a path is given up, 1 to 86400 [default: never]
    #[arg(long, value_name = "SECONDS")]
    ctrl_loss_tmo: Option<CtrlLossTmo>,

    /// The subsystem's controllers share their volatile write cache: a flush on one covers all
    #[arg(long)]
    shared_write_cache: bool,

    /// The controllers close an I/O connection that the host has ended only once all it sent there is executed
    #[arg(long)]
    drain_fence: bool,
}

#[derive(Debug, ClapArgs)]
struct HostArgs {
    /// Unix socket of the control API
    #[arg(long, value_name = "PATH", default_value = DEFAULT_API_SOCKET)]
    api: SocketPath,

    /// I/O threads of the disk, 1 to 64 [default: 1]
    #[arg(long, value_name = "N")]
    io_threads: Option<IoThreads>,

    /// NQN of this host [default: /etc/nvme/hostnqn, else made from the host identifier]
    #[arg(long, value_name = "NQN")]
    hostnqn: Option<Nqn>,

    /// Identifier of this host, a UUID [default: /etc/nvme/hostid, else random]
    #[arg(long, value_name = "UUID")]
    hostid: Option<HostId>,
}

/// The answer to `--print-capabilities` (QEMU, docs/interop/vhost-user.rst, "Backend program conventions").
pub(crate) const CAPABILITIES: &str = r#"{"type": "block", "features": ["read-only"]}"#;

/// Whether the capabilities are asked for. Checked before anything else is parsed, since it wins even over bad options.
pub(crate) fn wants_capabilities() -> bool {
    std::env::args_os().skip(1).any(|arg| arg == "--print-capabilities")
}

/// What is printed about a command line that cannot be parsed, or that asks for help, and the exit code.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    if let Some(line) = usage_line(error) {
        let _ = writeln!(io::stderr(), "vhost-blk-mpath: {line}");
        return ExitCode::from(USAGE);
    }
    // Nothing is left to do if nobody listens.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

impl Args {
    /// The configuration that flags or file describe.
    pub(crate) fn into_config(self) -> Result<Config, RunError> {
        match (self.config, self.disk) {
            (Some(file), _) => Ok(Config::load(&file)?),
            (None, Some(disk)) if disk.paths.is_empty() && disk.discovery.is_empty() => Err(RunError::NoPathGiven),
            (None, Some(disk)) => {
                let mut config = Config::new(vec![disk.into_config()]);
                config.api = self.host.api;
                config.io_threads = self.host.io_threads.unwrap_or(config.io_threads);
                config.hostnqn = self.host.hostnqn;
                config.hostid = self.host.hostid;
                config.validate()?;
                Ok(config)
            }
            (None, None) => unreachable!("clap asks for one of them"),
        }
    }
}

impl DiskArgs {
    fn into_config(self) -> DiskConfig {
        let defaults = DiskConfig::new(self.socket_path, self.subsystem, self.paths);
        let mut window = defaults.window;
        window.ios = self.window_ios.unwrap_or(window.ios);
        window.bytes = self.window_bytes.unwrap_or(window.bytes);
        DiskConfig {
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
            window,
            hdr_digest: self.hdr_digest,
            data_digest: self.data_digest,
            keep_alive_tmo: self.keep_alive_tmo.unwrap_or(defaults.keep_alive_tmo),
            reconnect_delay: self.reconnect_delay.unwrap_or(defaults.reconnect_delay),
            suspect_timeout: self.suspect_timeout.unwrap_or(defaults.suspect_timeout),
            hedge: self.hedge.unwrap_or_default(),
            hedge_budget: self.hedge_budget.unwrap_or_default(),
            fast_io_fail_tmo: self.fast_io_fail_tmo,
            ctrl_loss_tmo: self.ctrl_loss_tmo,
            shared_write_cache: self.shared_write_cache,
            drain_fence: self.drain_fence,
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    const DISK: &str = "--socket-path /tmp/s --subsystem nqn.a --path tcp://127.0.0.1:4420 --path tcp://[::1]";

    fn parse(line: &str) -> Result<Config, RunError> {
        let words = std::iter::once("vhost-blk-mpath").chain(line.split_whitespace());
        Args::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).into_config()
    }

    fn refused(line: &str) -> ErrorKind {
        let words = std::iter::once("vhost-blk-mpath").chain(line.split_whitespace());
        Args::try_parse_from(words).unwrap_err().kind()
    }

    #[test]
    fn flags_and_file_have_the_same_defaults() {
        let file = "{disks: [{socket-path: /tmp/s, subsystem: nqn.a, paths: ['tcp://127.0.0.1:4420', 'tcp://[::1]']}]}";
        assert_eq!(parse(DISK).unwrap(), Config::parse(file).unwrap());
    }

    #[test]
    fn every_flag_is_the_setting_of_its_name() {
        let flags = "--namespace 3 --policy numa --scheduler fifo --limit-iops 900 --limit-bandwidth 9MiB --limit-burst 3s --read-only --queues 2 --queue-size 32 --window-ios 4 --window-bytes 65536 \
             --hdr-digest --data-digest --keep-alive-tmo 7 --reconnect-delay 9 --suspect-timeout 2s --hedge p99.5 --hedge-budget 0.5% --fast-io-fail-tmo 60 --ctrl-loss-tmo 90 \
             --shared-write-cache --drain-fence --discovery tcp://127.0.0.1 --discovery tcp://[::1]:8010 \
             --api /tmp/a --io-threads 5 \
             --hostnqn nqn.host --hostid 6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";
        let file = "
            api: /tmp/a
            io-threads: 5
            hostnqn: nqn.host
            hostid: 6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21
            disks:
              - socket-path: /tmp/s
                subsystem: nqn.a
                paths: ['tcp://127.0.0.1:4420', 'tcp://[::1]']
                discovery: ['tcp://127.0.0.1:8009', 'tcp://[::1]:8010']
                namespace: 3
                policy: numa
                scheduler: fifo
                limits: {iops: 900, bandwidth: 9437184, burst: 3s}
                read-only: true
                queues: 2
                queue-size: 32
                window: {ios: 4, bytes: 65536}
                hdr-digest: true
                data-digest: true
                keep-alive-tmo: 7
                reconnect-delay: 9
                suspect-timeout: 2s
                hedge: p99.5
                hedge-budget: 0.5%
                fast-io-fail-tmo: 60
                ctrl-loss-tmo: 90
                shared-write-cache: true
                drain-fence: true";
        assert_eq!(parse(&format!("{DISK} {flags}")).unwrap(), Config::parse(file).unwrap());
    }

    #[test]
    fn what_no_single_flag_shows_is_checked() {
        assert!(matches!(parse(&format!("{DISK} --path tcp://127.0.0.1")), Err(RunError::Flags(_))));
        assert!(matches!(parse(&format!("{DISK} --api /tmp/s")), Err(RunError::Flags(_))));
        assert!(matches!(parse("--config /nonexistent"), Err(RunError::File(_))));
        assert!(matches!(parse("--socket-path /tmp/s --subsystem nqn.a"), Err(RunError::NoPathGiven)));
        assert!(parse("--socket-path /tmp/s --subsystem nqn.a --discovery tcp://127.0.0.1").is_ok());
    }

    #[test]
    fn flags_that_are_missing_or_do_not_go_together() {
        for (line, kind) in [
            ("--subsystem nqn.a --path tcp://127.0.0.1", ErrorKind::MissingRequiredArgument),
            ("--subsystem nqn.a --discovery tcp://127.0.0.1", ErrorKind::MissingRequiredArgument),
            ("--api /tmp/a", ErrorKind::MissingRequiredArgument),
            ("--config f --policy numa", ErrorKind::ArgumentConflict),
            ("--config f --api /tmp/a", ErrorKind::ArgumentConflict),
            ("--config f --io-threads 2", ErrorKind::ArgumentConflict),
        ] {
            assert_eq!(refused(line), kind, "{line}");
        }
    }

    #[test]
    fn the_capabilities_are_json() {
        let capabilities: serde_json::Value = serde_json::from_str(CAPABILITIES).unwrap();
        assert_eq!(capabilities["type"], "block");
    }
}
