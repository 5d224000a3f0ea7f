//! The command line: one disk by flags, or a configuration file.

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mpath_config::{Config, DiskConfig, Flags, read_file, settings_in, usage_line, written};

use crate::configuration::Given;
use crate::log::LogFormat;
use crate::run::RunError;
use crate::sockets::activation::ActivationSockets;
use crate::upgrade::successor::Predecessor;

/// Exit code of a wrong command line.
const USAGE: u8 = 2;

const AFTER_HELP: &str = "\
Exit codes:
  0  ended by SIGTERM or SIGINT, or with the front-end that --fd connects
  1  failed while running, or a resource of this host is missing (io_uring, threads, open files)
  2  wrong command line or configuration, two disks that write to one namespace, or an unusable file descriptor
  3  no path leads to the namespace: target unreachable, wrong NQN, missing namespace, or no path discovered
  4  a socket cannot be created, or another process listens on it or serves its disk, or --metrics-address cannot be used

A path that does not work ends the daemon only with --wait-for any or all. Without, the daemon tries again, and front-ends wait.

The log goes to stderr; RUST_LOG=debug adds details.";

/// vhost-user-blk backend: one virtio disk over several NVMe/TCP paths.
#[derive(Debug, Parser)]
#[command(version = env!("VHOST_BLK_MPATH_VERSION"), override_usage = "vhost-blk-mpath {--socket-path <PATH>|--fd <N>} --subsystem <NQN> {--path <URL>|--discovery <URL>}... [OPTIONS]\n       \
    vhost-blk-mpath --config <FILE>\n       \
    vhost-blk-mpath --check {--config <FILE>|...}", after_help = AFTER_HELP, arg_required_else_help = true, allow_negative_numbers = true)]
pub(crate) struct Args {
    /// YAML configuration file, instead of flags
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Config", "DiskConfig"])]
    config: Option<PathBuf>,

    /// File descriptor of the vhost-user socket, instead of --socket-path: a listening socket, or a connected front-end, with which
    /// the daemon ends
    #[arg(long, value_name = "N", value_parser = descriptor, conflicts_with_all = ["config", "socket_path"])]
    fd: Option<RawFd>,

    #[command(flatten)]
    disk: Flags<DiskConfig>,

    #[command(flatten)]
    daemon: Flags<Config>,

    /// Form of the log on stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: LogFormat,

    /// Check the configuration file or the flags, report all errors, and exit with 0 or 2; nothing is created or connected
    #[arg(long, conflicts_with = "fd")]
    pub(crate) check: bool,

    /// Print the capabilities of this backend, as QEMU's conventions for vhost-user backends require, and exit
    #[arg(long)]
    print_capabilities: bool,

    /// Take over from the running daemon that has started this process
    #[arg(long, hide = true)]
    take_over: bool,
}

/// A text that is no file descriptor.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is no file descriptor; give the number of an inherited descriptor, such as 3")]
struct DescriptorError {
    text: String,
}

fn descriptor(text: &str) -> Result<RawFd, DescriptorError> {
    let fd = text.parse().ok().filter(|fd: &RawFd| *fd >= 0);
    fd.ok_or_else(|| DescriptorError { text: text.into() })
}

/// The answer to `--print-capabilities` (QEMU, docs/interop/vhost-user.rst, "Backend program conventions").
pub(crate) const CAPABILITIES: &str = r#"{"type": "block", "features": ["read-only"]}"#;

/// Whether `--print-capabilities` is given. Checked before anything else is parsed, because it takes precedence even over wrong
/// options.
pub(crate) fn wants_capabilities() -> bool {
    std::env::args_os().skip(1).any(|arg| arg == "--print-capabilities")
}

/// Prints the error, the help or the version, and returns the exit code.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    if let Some(line) = usage_line(error) {
        let _ = writeln!(io::stderr(), "vhost-blk-mpath: {line}");
        return ExitCode::from(USAGE);
    }
    // A failed write leaves nothing to do.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

impl Args {
    /// The form of the log.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    /// The configuration from flags or file, its source, and the sockets passed to the daemon. Sets the running daemon that hands over,
    /// if there is one.
    pub(crate) fn into_config(
        self,
        predecessor: &mut Option<Predecessor>,
    ) -> Result<(Config, Given, ActivationSockets), RunError> {
        let mut handed_over = if self.take_over {
            let (connected, sockets) = Predecessor::connect()?;
            *predecessor = Some(connected);
            ActivationSockets::taken_over(sockets)
        } else {
            ActivationSockets::from_environment()?
        };
        if let Some(file) = self.config {
            let text = read_file(&file)?;
            let config = Config::parse_file(&file, &text)?;
            let given = Given { file: Some(std::path::absolute(&file)?), settings: settings_in(&text) };
            return Ok((config, given, handed_over));
        }
        let mut config = Config::new(Vec::new());
        self.daemon.apply(&mut config);
        let socket = self.fd.map(|fd| handed_over.take_flag(fd, &config.api)).transpose()?;
        config.disks = vec![self.disk.disk(socket)?];
        config.validate()?;
        let settings = serde_json::to_value(written(&config)).unwrap_or_default();
        Ok((config, Given { file: None, settings }, handed_over))
    }

    /// The configuration for `--check`: from the file, with all its errors, or from flags.
    pub(crate) fn into_checked(self) -> Result<Checked, Vec<RunError>> {
        let flags = |error: RunError| vec![error];
        let Some(file) = self.config else {
            let mut config = Config::new(vec![self.disk.disk(None).map_err(|error| flags(error.into()))?]);
            self.daemon.apply(&mut config);
            let conflicts: Vec<_> = config.conflicts().into_iter().map(RunError::from).collect();
            return if conflicts.is_empty() { Ok(Checked { file: None, config }) } else { Err(conflicts) };
        };
        let text = read_file(&file).map_err(|error| flags(error.into()))?;
        match Config::check_file(&file, &text) {
            Ok(config) => Ok(Checked { file: Some((file, text)), config }),
            Err(errors) => Err(errors.into_iter().map(RunError::from).collect()),
        }
    }
}

/// A configuration without errors of its own.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The file and its text. `None` for flags.
    pub(crate) file: Option<(PathBuf, String)>,
    pub(crate) config: Config,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use mpath_config::DiskFlagsError;

    use crate::upgrade::TAKE_OVER;

    use super::*;

    const DISK: &str = "--socket-path /tmp/s --subsystem nqn.a --path tcp://127.0.0.1:4420 --path tcp://[::1]";

    fn parse(line: &str) -> Result<Config, RunError> {
        let words = std::iter::once("vhost-blk-mpath").chain(line.split_whitespace());
        let args = Args::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        Ok(args.into_config(&mut None)?.0)
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
    fn every_flag_sets_the_setting_of_its_name() {
        let flags = "--name db --weight 7 --namespace 3 --policy numa --scheduler fifo --limit-iops 900 --limit-bandwidth 9MiB --limit-burst 3s --read-only --queues 2 --queue-size 32 --max-transfer 256KiB --window-ios 4 --window-bytes 65536 --poll-us auto \
             --hdr-digest --data-digest --keep-alive-tmo 7 --reconnect-delay 9 --suspect-timeout 2s --io-timeout 8s --hedge p99.5 --hedge-budget 0.5% --min-paths 2 --fast-io-fail-tmo 60 --ctrl-loss-tmo 90 \
             --shared-write-cache --drain-fence --mpath-window --discovery tcp://127.0.0.1 --discovery tcp://[::1]:8010 \
             --socket-mode 0660 --socket-owner qemu --socket-group 107 \
             --api /tmp/a --api-mode 0666 --api-owner 7 --api-group ops --api-read-only /tmp/r --api-read-only-mode 0444 \
             --api-read-only-owner me --api-read-only-group 8 --metrics-address [::1]:9464 --io-threads 5 --io-thread-pool 7 --history-size 9MiB --wait-for any \
             --hostnqn nqn.host --hostid 6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";
        let file = "
            api: /tmp/a
            api-mode: 0666
            api-owner: 7
            api-group: ops
            api-read-only: /tmp/r
            api-read-only-mode: 0444
            api-read-only-owner: me
            api-read-only-group: 8
            metrics-address: '[::1]:9464'
            io-threads: 5
            io-thread-pool: 7
            history-size: 9MiB
            wait-for: any
            hostnqn: nqn.host
            hostid: 6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21
            disks:
              - socket-path: /tmp/s
                socket-mode: 0660
                socket-owner: qemu
                socket-group: 107
                subsystem: nqn.a
                paths: ['tcp://127.0.0.1:4420', 'tcp://[::1]']
                discovery: ['tcp://127.0.0.1:8009', 'tcp://[::1]:8010']
                name: db
                weight: 7
                namespace: 3
                policy: numa
                scheduler: fifo
                limits: {iops: 900, bandwidth: 9437184, burst: 3s}
                read-only: true
                queues: 2
                queue-size: 32
                max-transfer: 256KiB
                window: {ios: 4, bytes: 65536}
                poll-us: auto
                hdr-digest: true
                data-digest: true
                keep-alive-tmo: 7
                reconnect-delay: 9
                suspect-timeout: 2s
                io-timeout: 8s
                hedge: p99.5
                hedge-budget: 0.5%
                min-paths: 2
                fast-io-fail-tmo: 60
                ctrl-loss-tmo: 90
                shared-write-cache: true
                drain-fence: true
                mpath-window: true";
        assert_eq!(parse(&format!("{DISK} {flags}")).unwrap(), Config::parse(file).unwrap());
    }

    #[test]
    fn flags_are_checked_against_each_other() {
        assert!(matches!(parse(&format!("{DISK} --path tcp://127.0.0.1")), Err(RunError::Flags(_))));
        assert!(matches!(parse(&format!("{DISK} --api /tmp/s")), Err(RunError::Flags(_))));
        assert!(matches!(parse("--config /nonexistent"), Err(RunError::File(_))));
        for (line, error) in [
            ("--socket-path /tmp/s --subsystem nqn.a", DiskFlagsError::NoPath),
            ("--socket-path /tmp/s --path tcp://127.0.0.1", DiskFlagsError::NoSubsystem),
            ("--subsystem nqn.a --path tcp://127.0.0.1", DiskFlagsError::NoSocket),
            ("--api /tmp/a", DiskFlagsError::NoSocket),
        ] {
            assert!(matches!(parse(line), Err(RunError::Disk(found)) if found == error), "{line}");
        }
        assert!(parse("--socket-path /tmp/s --subsystem nqn.a --discovery tcp://127.0.0.1").is_ok());
    }

    #[test]
    fn conflicting_flags_are_refused() {
        for (line, kind) in [
            ("--config f --policy numa", ErrorKind::ArgumentConflict),
            ("--config f --api /tmp/a", ErrorKind::ArgumentConflict),
            ("--config f --io-threads 2", ErrorKind::ArgumentConflict),
            ("--config f --fd 3", ErrorKind::ArgumentConflict),
            ("--socket-path /tmp/s --fd 3", ErrorKind::ArgumentConflict),
        ] {
            assert_eq!(refused(line), kind, "{line}");
        }
    }

    #[test]
    fn the_flag_of_an_upgrade_is_known() {
        assert!(Args::try_parse_from(["vhost-blk-mpath", TAKE_OVER]).unwrap().take_over);
    }

    #[test]
    fn a_descriptor_is_a_number() {
        for text in ["abc", "", "-1", "3.0", "99999999999"] {
            let error = Args::try_parse_from(["vhost-blk-mpath", &format!("--fd={text}")]).unwrap_err();
            let said = format!(
                "invalid value '{text}' for '--fd <N>': `{text}` is no file descriptor; give the number of an inherited \
                 descriptor, such as 3"
            );
            assert_eq!(usage_line(&error), Some(said));
        }
    }

    #[test]
    fn the_capabilities_are_json() {
        let capabilities: serde_json::Value = serde_json::from_str(CAPABILITIES).unwrap();
        assert_eq!(capabilities["type"], "block");
    }
}
