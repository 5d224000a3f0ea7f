//! The command line.

use std::net::SocketAddr;

use clap::{Parser, Subcommand};
use mpath_api::config::SocketPath;
use mpath_api::usage_line;
use mpath_target::api::PortSelector;
use mpath_target::{DEFAULT_ANATT_SECONDS, ListenerConfig, NamespaceConfig, Setting, TargetConfig};

const AFTER_HELP: &str = "\
LISTENER is IP:PORT[,transport=tcp|mptcp][,advertise=IP:PORT][,SETTING]...
  Each listener is a port of the one subsystem; port ids count from 1.
  PORT 0 lets the system choose. One of transport mptcp takes hosts that have
  no MPTCP as well. The discovery service lists the address of
  advertise=, for hosts that need another one.

NAMESPACE is mem:SIZE[,uuid=UUID] or file:PATH:SIZE[,uuid=UUID]
  Namespace ids count from 1. SIZE is in bytes, or with KiB, MiB, GiB or TiB.
  A file is created if it does not exist.
  Without UUID a memory namespace gets a new identity at each start, as its
  content is new; hosts that knew the old one will refuse it.

SETTING is what a listener does to its hosts, at the start or later by ctl:
  ana=[GROUP:]STATE   ANA state: optimized (default), non-optimized,
                      inaccessible, persistent-loss or change; each namespace
                      is a group, with its nsid as the group's id
  delay=TIME          every I/O command takes at least so long
  rate=SIZE|off       I/O data carried per second, over all connections of the
                      port together; a delay comes on top of it
  hold=on|off|TIME    commands that change data are accepted and held until
                      hold=off or for TIME each, then executed: also when
                      their connection and controller are long gone
  black-hole=stall    connections stay, nothing is read, executed or sent
  black-hole=mute     commands are executed, nothing is sent
  black-hole=off
  cross-reset=on|fail|mute
                      Cross-Controller Resets that the port is asked for are
                      carried out, answered with an error, or not answered
  listen=on|off       whether new connections are taken; others stay
  reset=all|admin|io  closes connections with RST, now
  header-digests=N, data-digests=N
                      so many of the next digests sent are wrong
  fail=N:SCT/SC[/crd1|/crd2|/crd3][/dnr]
                      so many of the next I/O commands fail with this status
  swallow=N[:OPERATION[:NSID]]
                      so many of the next I/O commands are lost: neither
                      executed nor answered; OPERATION is read, write,
                      write-zeroes, dsm or flush
  lose-answer=N[:OPERATION[:NSID]]
                      they are executed and not answered
  answer-early=N[:OPERATION[:NSID]]
                      commands that send data are answered with success before
                      the data are there, and executed once they are
  answer-twice=N[:OPERATION[:NSID]]
                      they are answered twice
  answer-late=N:TIME[:OPERATION[:NSID]]
                      they are executed and answered so much later than others
  short-read=N[:OPERATION[:NSID]]
                      success, with half of the data
  uuid=NSID:UUID, nguid=NSID:UUID, size=NSID:SIZE
                      what a namespace shows here in place of its own, which
                      is given back by NSID:own
  TIME is in ns, us, ms or s, up to 600s.

Controlling a running target (--api PATH)
  mpath-target ctl --api PATH status
  mpath-target ctl --api PATH set PORT SETTING...
  PORT is a port id, all or discovery. status prints JSON.

Output, once all listeners are ready, is one line for each:
  listening on ADDR nqn NQN port ID
  discovery on ADDR

Exit status
  0  ended by SIGTERM or SIGINT; of ctl: done
  1  an address, a file or a socket cannot be used; of ctl: refused
  2  bad arguments
  3  of ctl: no target is running there

Example
  mpath-target --nqn nqn.2024-01.com.example:disk1 --namespace mem:1GiB \\
      --listen 127.0.0.1:4420 --listen 127.0.0.1:4421,ana=non-optimized \\
      --discovery 127.0.0.1:8009 --api /tmp/target.sock &
  mpath-target ctl --api /tmp/target.sock set 1 ana=inaccessible";

/// NVMe/TCP target in user space: one subsystem, any number of ports, memory or file namespaces, and faults on demand.
#[derive(Debug, Parser)]
#[command(name = "mpath-target", version, after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Name of the subsystem, as in nqn.2024-01.com.example:disk1
    #[arg(long, value_name = "NQN", required = true)]
    nqn: Option<String>,

    /// Where to listen (see below); repeat for more ports
    #[arg(long, value_name = "LISTENER", required = true)]
    listen: Vec<ListenerConfig>,

    /// What to serve (see below); repeat for more namespaces
    #[arg(long, value_name = "NAMESPACE", required = true)]
    namespace: Vec<NamespaceConfig>,

    /// Logical block size of all namespaces: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    block_size: u32,

    /// The longest that a namespace should stay in the ANA state change (ANATT), 1 to 255; nothing ends it by itself
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_ANATT_SECONDS, value_parser = clap::value_parser!(u8).range(1..))]
    anatt: u8,

    /// Where the discovery service listens; port 8009 is the usual one
    #[arg(long, value_name = "IP:PORT")]
    discovery: Option<SocketAddr>,

    /// Another discovery service to refer to; repeat for more
    #[arg(long, value_name = "IP:PORT")]
    referral: Vec<SocketAddr>,

    /// Unix socket of the control API, for its owner only
    #[arg(long, value_name = "PATH")]
    api: Option<SocketPath>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask a running target, or tell it
    Ctl {
        /// The API socket of the target
        #[arg(long, value_name = "PATH")]
        api: SocketPath,
        #[command(subcommand)]
        command: CtlCommand,
    },
}

/// What to ask or tell.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum CtlCommand {
    /// Print what the target is doing, as JSON
    Status,
    /// Change what listeners do to their hosts; mpath-target --help lists the settings
    Set {
        /// A port id, all or discovery
        port: PortSelector,
        /// What is to change, in this order
        #[arg(value_name = "SETTING", required = true)]
        settings: Vec<Setting>,
    },
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Print this text and be done.
    Print(String),
    /// Serve, with the control API there.
    Serve(TargetConfig, Option<SocketPath>),
    /// Talk to the target there.
    Ctl(SocketPath, CtlCommand),
}

impl Request {
    /// Reads the command line; the error is one line.
    pub(crate) fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Self, String> {
        let args = match Args::try_parse_from(args) {
            Ok(args) => args,
            Err(error) if !error.use_stderr() => return Ok(Self::Print(error.to_string())),
            Err(error) => return Err(usage_line(&error).unwrap_or_else(|| error.to_string())),
        };
        if let Some(Command::Ctl { api, command }) = args.command {
            return Ok(Self::Ctl(api, command));
        }
        let config = TargetConfig {
            listeners: args.listen,
            namespaces: args.namespace,
            block_size: args.block_size,
            anatt_seconds: args.anatt,
            discovery: args.discovery,
            referrals: args.referral,
            // Required without a subcommand, so it is there.
            ..TargetConfig::new(args.nqn.unwrap_or_default())
        };
        config.validate().map_err(|error| error.to_string())?;
        Ok(Self::Serve(config, args.api))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2024-01.com.example:disk1";

    fn parse(args: &str) -> Result<Request, String> {
        Request::parse(std::iter::once("mpath-target").chain(args.split_whitespace()).map(Into::into))
    }

    #[test]
    fn everything_given() {
        let args = format!(
            "--nqn {NQN} --listen 127.0.0.1:0 --listen [::1]:0,delay=30ms --namespace mem:1MiB \
             --namespace mem:2MiB --block-size 4096 --anatt 3 --discovery 127.0.0.1:0 --referral 192.0.2.1:8009 --api /tmp/t.sock"
        );
        let Ok(Request::Serve(config, Some(api))) = parse(&args) else { panic!("refused") };
        assert_eq!(api.to_string(), "/tmp/t.sock");
        assert_eq!((config.discovery.is_some(), config.referrals.len()), (true, 1));
        assert_eq!(config.nqn, NQN);
        assert_eq!((config.listeners.len(), config.namespaces.len()), (2, 2));
        assert_eq!((config.block_size, config.anatt_seconds), (4096, 3));
    }

    #[test]
    fn errors_are_one_line_and_name_what_is_wrong() {
        let rest = "--namespace mem:1MiB";
        for (args, word) in [
            (String::new(), "--nqn"),
            (format!("--nqn {NQN} --listen here {rest}"), "here"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0,delay=fast {rest}"), "fast"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0 --namespace mem:huge"), "huge"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0 {rest} --block-size 1000"), "1000"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0 {rest} --anatt 0"), "'0'"),
            (format!("--nqn disk1 --listen 127.0.0.1:0 {rest}"), "disk1"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0 {rest} --colour"), "--colour"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0,ana=2:change {rest}"), "group 2"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0 {rest} --referral 192.0.2.1:8009"), "--discovery"),
            (format!("--nqn {NQN} ctl --api /tmp/t.sock status"), "--nqn"),
            ("ctl status".into(), "--api"),
            ("ctl --api /tmp/t.sock set 1".into(), "SETTING"),
            ("ctl --api /tmp/t.sock set 0 hold=on".into(), "'0'"),
            ("ctl --api /tmp/t.sock set 1 hold".into(), "'hold'"),
        ] {
            let error = parse(&args).expect_err(word);
            assert!(error.contains(word), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_running_target_is_told() {
        let request = parse("ctl --api /tmp/t.sock set all listen=off reset=all").unwrap();
        let Request::Ctl(api, CtlCommand::Set { port, settings }) = request else { panic!("{request:?}") };
        assert_eq!((api.to_string().as_str(), port, settings.len()), ("/tmp/t.sock", PortSelector::All, 2));
        let request = parse("ctl --api /tmp/t.sock status").unwrap();
        assert!(matches!(request, Request::Ctl(_, CtlCommand::Status)));
    }

    #[test]
    fn help_explains_listeners_and_namespaces() {
        let Ok(Request::Print(text)) = parse("--help") else { panic!("no help") };
        for word in ["delay=TIME", "ana=[GROUP:]STATE", "file:PATH:SIZE", "--discovery", "--api", "ctl", "Exit status"]
        {
            assert!(text.contains(word), "{word}");
        }
    }
}
