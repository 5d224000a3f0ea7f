//! The back-ends that the programs start: the daemon over `mpath-target`, and qemu-storage-daemon.

use crate::harness::Failure;
use crate::process::{Managed, ProcessError};
use clap::Args;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Where the programs are. By default they are in this program's folder.
#[derive(Debug, Clone, Args)]
pub struct Programs {
    /// The daemon under test [default: in this program's folder]
    #[arg(long, value_name = "PATH", env = "VHOST_BLK_MPATH")]
    pub daemon: Option<PathBuf>,

    /// The NVMe/TCP target [default: in this program's folder]
    #[arg(long, value_name = "PATH", env = "MPATH_TARGET")]
    pub target: Option<PathBuf>,
}

/// The path of a program: as given, or in the folder of the running one.
#[must_use]
pub fn sibling(given: Option<&PathBuf>, name: &str) -> PathBuf {
    given.cloned().unwrap_or_else(|| {
        let own = env::current_exe().unwrap_or_default();
        own.parent().unwrap_or(Path::new("")).join(name)
    })
}

const NQN: &str = "nqn.2026-01.io.github.vhost-blk-mpath:bench";
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The namespace of the measured stacks.
pub const NAMESPACE: &str = "mem:1GiB";
const NULL_BYTES: u64 = 1 << 30;

/// The daemon over `mpath-target`.
#[derive(Debug)]
pub struct MpathStack {
    // Dropped first, so that it does not see its target die.
    /// `vhost-blk-mpath`
    pub daemon: Managed,
    /// `mpath-target`
    pub target: Managed,
    /// The vhost-user socket.
    pub socket: PathBuf,
    /// The API socket.
    pub api: PathBuf,
    /// The target's control socket.
    pub target_api: PathBuf,
    /// The paths' addresses as the daemon was given them, `tcp://ADDR:PORT`.
    pub paths: Vec<String>,
}

impl MpathStack {
    /// Starts the target with a listener for each path, then the daemon with these paths and `settings`. Sockets and logs
    /// go to `directory`.
    pub fn start(programs: &Programs, directory: &Path, paths: u16, settings: &[&str]) -> Result<Self, ProcessError> {
        let mut command = Command::new(sibling(programs.target.as_ref(), "mpath-target"));
        command.args(["--nqn", NQN, "--namespace", NAMESPACE]);
        let target_api = directory.join("target.sock");
        command.arg("--api").arg(&target_api);
        command.args((0..paths).flat_map(|_| ["--listen", "127.0.0.1:0"]));
        let mut target = Managed::spawn("mpath-target", command, directory)?;
        let mut addresses = Vec::new();
        for _ in 0..paths {
            let address = target.wait_for_line(READY_TIMEOUT, |line| {
                line.strip_prefix("listening on ")?.split_whitespace().next().map(str::to_owned)
            })?;
            addresses.push(format!("tcp://{address}"));
        }

        let (socket, api) = (directory.join("vhost.sock"), directory.join("api.sock"));
        let mut command = Command::new(sibling(programs.daemon.as_ref(), "vhost-blk-mpath"));
        command.arg("--socket-path").arg(&socket).args(["--subsystem", NQN]);
        command.args(addresses.iter().flat_map(|address| ["--path", address]));
        command.args(settings).arg("--api").arg(&api);
        let daemon = Managed::spawn("vhost-blk-mpath", command, directory)?;
        Ok(Self { daemon, target, socket, api, target_api, paths: addresses })
    }

    /// Its processes by their role.
    #[must_use]
    pub fn processes(&self) -> [(&'static str, &Managed); 2] {
        [("daemon", &self.daemon), ("target", &self.target)]
    }
}

/// The command lines of processes, with `$DIR` for `directory`.
#[must_use]
pub fn command_lines(processes: &[(&'static str, &Managed)], directory: &Path) -> Vec<String> {
    let directory = directory.to_string_lossy();
    processes.iter().map(|(_, process)| process.command_line().replace(&*directory, "$DIR")).collect()
}

/// A directory for sockets and logs.
pub fn directory(prefix: &str) -> Result<TempDir, Failure> {
    let directory = tempfile::Builder::new().prefix(prefix).tempdir();
    directory.map_err(|error| Failure::NotStarted(format!("cannot make a directory for sockets and logs: {error}")))
}

/// qemu-storage-daemon with a disk that does nothing: the reference for any vhost-user-blk back-end.
#[derive(Debug)]
pub struct NullStack {
    /// `qemu-storage-daemon`
    pub daemon: Managed,
    /// The vhost-user socket.
    pub socket: PathBuf,
}

impl NullStack {
    /// Starts it with `queues` queues. Sockets and logs go to `directory`.
    pub fn start(program: &Path, directory: &Path, queues: u16) -> Result<Self, ProcessError> {
        let socket = directory.join("null.sock");
        let mut command = Command::new(program);
        command.arg("--blockdev");
        command.arg(format!("driver=null-co,node-name=disk,size={NULL_BYTES},read-zeroes=off"));
        command.arg("--export");
        command.arg(format!(
            "type=vhost-user-blk,id=disk,node-name=disk,writable=on,num-queues={queues},addr.type=unix,addr.path={}",
            socket.display()
        ));
        let daemon = Managed::spawn("qemu-storage-daemon", command, directory)?;
        Ok(Self { daemon, socket })
    }
}
