//! The command line.

use std::net::SocketAddr;

use clap::{Parser, Subcommand};
use mpath_config::{KeyFile, SocketPath, usage_line};
use nvme_auth::{Concatenation, DhGroup, Hash};
use nvme_tcp::Authentication;

use crate::api::PortSelector;
use crate::dhchap::{authentication, parse_group, parse_hash, read_secret};
use crate::tls_key::read_key;
use crate::{DEFAULT_ANATT_SECONDS, ListenerConfig, NamespaceConfig, Setting, TargetConfig};

const AFTER_HELP: &str = "\
LISTENER is IP:PORT[,transport=tcp|mptcp][,advertise=IP:PORT][,tls=off][,SETTING]...
  Each listener is a port of the subsystem. Port IDs count from 1.
  With PORT 0 the system chooses the port. A listener with transport=mptcp
  accepts plain TCP too. advertise= is the address in the discovery log, for
  hosts that need another address. With --tls-key-file a listener accepts only
  TLS, and with tls=off only clear text.

NAMESPACE is mem:SIZE[,uuid=UUID] or file:PATH:SIZE[,uuid=UUID]
  Namespace IDs count from 1. SIZE is in bytes, or with KiB, MiB, GiB or TiB.
  A file is created if it does not exist.
  Without uuid= a memory namespace gets a new UUID at each start, because its
  data are new. Hosts that know the old UUID refuse the namespace.

SETTING is a setting of a listener, at the start or later with ctl:
  ana=[GROUP:]STATE   ANA state: optimized (default), non-optimized,
                      inaccessible, persistent-loss or change. Each namespace
                      is a group, and the group ID is the namespace ID
  delay=TIME          delay of each I/O command
  rate=SIZE|off       limit of I/O data per second, for all connections of the
                      port together. delay= is added afterwards
  hold=on|off|TIME    accept commands that change data, and execute them only
                      after hold=off or after TIME, even if their connection
                      and controller have ended
  black-hole=stall    keep connections, but read, execute and send nothing
  black-hole=mute     execute commands, but send nothing
  black-hole=off      end the black hole
  cross-reset=on|fail|mute
                      carry out Cross-Controller Resets, fail them, or do not
                      answer them
  listen=on|off       accept new connections or not. Existing ones stay
  reset=all|admin|io  close connections with RST, immediately
  header-digests=N, data-digests=N
                      corrupt the next N digests
  fail=N:SCT/SC[/crd1|/crd2|/crd3][/dnr]
                      fail the next N I/O commands with this status
  swallow=N[:OPERATION[:NSID]]
                      lose the next N matching I/O commands: neither execute
                      nor answer them. OPERATION is read, write, write-zeroes,
                      dsm or flush
  lose-answer=N[:OPERATION[:NSID]]
                      execute commands, but do not answer them
  answer-early=N[:OPERATION[:NSID]]
                      answer commands with success before their data arrive,
                      and execute them afterwards
  answer-twice=N[:OPERATION[:NSID]]
                      answer commands twice
  answer-late=N:TIME[:OPERATION[:NSID]]
                      execute and answer commands later by TIME
  short-read=N[:OPERATION[:NSID]]
                      return success with half of the data
  uuid=NSID:UUID, nguid=NSID:UUID, size=NSID:SIZE
                      report another value for a namespace on this port.
                      NSID:own restores the namespace's own value
  TIME has a unit, as in 250us, 30ms or 2s, and is at most 600s.

Controlling a running target (--api PATH)
  mpath-target ctl --api PATH status
  mpath-target ctl --api PATH set PORT SETTING...
  PORT is a port ID, all or discovery. status prints JSON.

When all listeners are ready, the target prints a line for each:
  listening on ADDR nqn NQN port ID[ tls| concat]
  discovery on ADDR[ tls]

Exit status
  0  ended by SIGTERM or SIGINT; ctl: done
  1  an address, a file or a socket cannot be used; ctl: refused
  2  bad arguments, or a bad file of a key or secret
  3  ctl: no target is running with this socket

Example
  mpath-target --nqn nqn.2024-01.com.example:disk1 --namespace mem:1GiB \\
      --listen 127.0.0.1:4420 --listen 127.0.0.1:4421,ana=non-optimized \\
      --discovery 127.0.0.1:8009 --api /tmp/target.sock &
  mpath-target ctl --api /tmp/target.sock set 1 ana=inaccessible";

/// NVMe/TCP target in user space, with one subsystem, several ports, memory or file namespaces, and fault injection
#[derive(Debug, Parser)]
#[command(name = "mpath-target", version, after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// NQN of the subsystem, as in nqn.2024-01.com.example:disk1
    #[arg(long, value_name = "NQN", required = true)]
    nqn: Option<String>,

    /// Address and settings of a port (see below); repeat for more ports
    #[arg(long, value_name = "LISTENER", required = true)]
    listen: Vec<ListenerConfig>,

    /// Storage and size of a namespace (see below); repeat for more namespaces
    #[arg(long, value_name = "NAMESPACE", required = true)]
    namespace: Vec<NamespaceConfig>,

    /// Logical block size of all namespaces: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    block_size: u32,

    /// Announced limit of the ANA state change (ANATT), 1 to 255; the target does not enforce it
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_ANATT_SECONDS, value_parser = clap::value_parser!(u8).range(1..))]
    anatt: u8,

    /// Address of the discovery service; the usual port is 8009
    #[arg(long, value_name = "IP:PORT")]
    discovery: Option<SocketAddr>,

    /// Address of another discovery service to refer to; repeat for more
    #[arg(long, value_name = "IP:PORT")]
    referral: Vec<SocketAddr>,

    /// File with the key of the subsystem for all hosts (NVMeTLSkey-1:...); the listeners then accept only TLS 1.3
    #[arg(long, value_name = "PATH")]
    tls_key_file: Option<KeyFile>,

    /// File with the key of the discovery service for all hosts; the service then accepts only TLS 1.3
    #[arg(long, value_name = "PATH", requires = "discovery")]
    discovery_tls_key_file: Option<KeyFile>,

    /// File with the secret of the hosts (DHHC-1:...); each queue is then authenticated with DH-HMAC-CHAP
    #[arg(long, value_name = "PATH")]
    dhchap_secret_file: Option<KeyFile>,

    /// File with the secret of this target (DHHC-1:...), for hosts that ask for its proof
    #[arg(long, value_name = "PATH", requires = "dhchap_secret_file")]
    dhchap_ctrl_secret_file: Option<KeyFile>,

    /// Accept clear text for the authentication alone; the authentication generates the key for TLS 1.3, which all else needs
    #[arg(long, requires = "dhchap_secret_file", conflicts_with = "tls_key_file")]
    concat: bool,

    /// The only hash to allow: sha256, sha384 or sha512 [default: all]
    #[arg(long, value_name = "HASH", requires = "dhchap_secret_file", value_parser = parse_hash)]
    dhchap_hash: Option<Hash>,

    /// The only Diffie-Hellman group to allow: null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 or ffdhe8192 [default: all]
    #[arg(long, value_name = "GROUP", requires = "dhchap_secret_file", value_parser = parse_group)]
    dhchap_group: Option<DhGroup>,

    /// Unix socket of the control API, accessible only to its owner
    #[arg(long, value_name = "PATH")]
    api: Option<SocketPath>,
}

impl Args {
    /// The secrets of the authentication, if it is asked for.
    fn authentication(&self) -> Result<Option<Authentication>, String> {
        let Some(file) = &self.dhchap_secret_file else { return Ok(None) };
        let read = |file: &KeyFile| read_secret(file.as_path()).map_err(|error| error.to_string());
        let controller_secret = self.dhchap_ctrl_secret_file.as_ref().map(read).transpose()?;
        let mut authentication = authentication(read(file)?, controller_secret);
        if self.concat {
            authentication.concatenation = Concatenation::NewTlsPsk;
        }
        if let Some(hash) = self.dhchap_hash {
            authentication.hashes = vec![hash];
        }
        if let Some(group) = self.dhchap_group {
            authentication.groups = vec![group];
        }
        Ok(Some(authentication))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Control a running target
    Ctl {
        /// The API socket of the target
        #[arg(long, value_name = "PATH")]
        api: SocketPath,
        #[command(subcommand)]
        command: CtlCommand,
    },
}

/// A command to a running target.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub enum CtlCommand {
    /// Print the status of the target as JSON
    Status,
    /// Change settings of listeners; mpath-target --help lists the settings
    Set {
        /// A port ID, all or discovery
        port: PortSelector,
        /// The settings, applied in order
        #[arg(value_name = "SETTING", required = true)]
        settings: Vec<Setting>,
    },
}

/// The parsed command line.
#[derive(Debug)]
pub enum Request {
    /// Print this text and exit.
    Print(String),
    /// Serve, with the control API on this socket.
    Serve(Box<TargetConfig>, Option<SocketPath>),
    /// Send a command to the target with this API socket.
    Ctl(SocketPath, CtlCommand),
}

impl Request {
    /// Parses the command line. An error is one line.
    pub fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Self, String> {
        let args = match Args::try_parse_from(args) {
            Ok(args) => args,
            Err(error) if !error.use_stderr() => return Ok(Self::Print(error.to_string())),
            Err(error) => return Err(usage_line(&error).unwrap_or_else(|| error.to_string())),
        };
        if let Some(Command::Ctl { api, command }) = args.command {
            return Ok(Self::Ctl(api, command));
        }
        let read = |file: &KeyFile| read_key(file.as_path()).map_err(|error| error.to_string());
        let tls_key = args.tls_key_file.as_ref().map(read).transpose()?;
        let discovery_tls_key = args.discovery_tls_key_file.as_ref().map(read).transpose()?;
        let authentication = args.authentication()?;
        let config = TargetConfig {
            listeners: args.listen,
            namespaces: args.namespace,
            block_size: args.block_size,
            anatt_seconds: args.anatt,
            discovery: args.discovery,
            referrals: args.referral,
            tls_key,
            discovery_tls_key,
            authentication,
            // clap requires --nqn without a subcommand.
            ..TargetConfig::new(args.nqn.unwrap_or_default())
        };
        config.validate().map_err(|error| error.to_string())?;
        Ok(Self::Serve(Box::new(config), args.api))
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
    fn all_options_parse() {
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
    fn secrets_are_read_from_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n").unwrap();
        let path = file.path().display();
        let args = format!(
            "--nqn {NQN} --listen 127.0.0.1:0 --namespace mem:1MiB --dhchap-secret-file {path} \
             --dhchap-ctrl-secret-file {path} --dhchap-hash sha384 --dhchap-group ffdhe3072"
        );
        let Ok(Request::Serve(config, _)) = parse(&args) else { panic!("refused") };
        let authentication = config.authentication.unwrap();
        assert!(authentication.controller_secret.is_some());
        assert_eq!((authentication.hashes, authentication.groups), (vec![Hash::Sha384], vec![DhGroup::Ffdhe3072]));
        for (change, word) in [("sha384", "sha1"), ("ffdhe3072", "modp1024"), ("--dhchap-secret-file", "--dhchap-hash")]
        {
            assert!(parse(&args.replace(change, word)).unwrap_err().contains(word));
        }
        let Ok(Request::Serve(config, _)) = parse(&format!("{args} --concat")) else { panic!("refused") };
        assert_eq!(config.authentication.unwrap().concatenation, Concatenation::NewTlsPsk);
        for (change, to, word) in [
            ("ffdhe3072", "null", "only group null is allowed"),
            ("sha384", "sha512", "only SHA-512 is allowed"),
            ("127.0.0.1:0", "127.0.0.1:0,tls=off", "listener 127.0.0.1:0 has tls=off"),
        ] {
            let error = parse(&format!("{} --concat", args.replace(change, to))).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        std::fs::write(&file, "secret").unwrap();
        let error = parse(&args).unwrap_err();
        assert!(error.contains(&path.to_string()) && !error.contains("secret\n"), "{error}");
    }

    #[test]
    fn errors_are_one_line_and_name_the_wrong_value() {
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
    fn ctl_commands_parse() {
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
