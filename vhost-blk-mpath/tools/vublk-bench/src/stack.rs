//! The back-ends that the programs start: the daemon over `mpath-target`, and qemu-storage-daemon.

use crate::control::{Control, ControlError};
use crate::process::{Managed, ProcessError, directory, sibling};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Where the programs are.
#[derive(Debug, Clone, Args)]
pub struct Programs {
    /// The daemon under test [default: in this program's folder]
    #[arg(long, value_name = "PATH", env = "VHOST_BLK_MPATH")]
    pub daemon: Option<PathBuf>,

    /// The NVMe/TCP target [default: in this program's folder]
    #[arg(long, value_name = "PATH", env = "MPATH_TARGET")]
    pub target: Option<PathBuf>,

    /// mpathctl [default: in this program's folder]
    #[arg(long, value_name = "PATH", env = "MPATHCTL")]
    pub mpathctl: Option<PathBuf>,
}

const NQN: &str = "nqn.2026-01.io.github.vhost-blk-mpath:bench";
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const NAMESPACE: &str = "mem:1GiB";
const NULL_BYTES: u64 = 1 << 30;

/// A back-end's processes, with a folder for their sockets and logs.
#[derive(Debug)]
pub struct Stack {
    // Dropped first, so that the daemon does not see its target die.
    /// `vhost-blk-mpath`, or qemu-storage-daemon.
    pub daemon: Managed,
    target: Option<Managed>,
    pub socket: PathBuf,
    directory: TempDir,
}

/// The daemon over `mpath-target`.
#[derive(Debug)]
pub struct MpathStack {
    pub stack: Stack,
    pub control: Control,
    /// The paths' addresses as the daemon was given them, `tcp://ADDR:PORT`.
    pub paths: Vec<String>,
}

impl MpathStack {
    /// Starts the target with a listener for each path, then the daemon with these paths and `settings`. Waits until all
    /// paths are live.
    pub fn start(programs: &Programs, paths: u16, settings: &[&str]) -> Result<Self, StackError> {
        let directory = directory("bench-")?;
        let [socket, api, target_api] =
            ["vhost.sock", "api.sock", "target.sock"].map(|name| directory.path().join(name));
        let target_program = sibling(programs.target.as_ref(), "mpath-target");
        let mut command = Command::new(&target_program);
        command.args(["--nqn", NQN, "--namespace", NAMESPACE]).arg("--api").arg(&target_api);
        command.args((0..paths).flat_map(|_| ["--listen", "127.0.0.1:0"]));
        let mut target = Managed::spawn("mpath-target", command, directory.path())?;
        let mut addresses = Vec::new();
        for _ in 0..paths {
            let address = target.wait_for_line(READY_TIMEOUT, |line| {
                line.strip_prefix("listening on ")?.split_whitespace().next().map(str::to_owned)
            })?;
            addresses.push(format!("tcp://{address}"));
        }

        let mut command = Command::new(sibling(programs.daemon.as_ref(), "vhost-blk-mpath"));
        command.arg("--socket-path").arg(&socket).args(["--subsystem", NQN]);
        command.args(addresses.iter().flat_map(|address| ["--path", address]));
        command.args(settings).arg("--api").arg(&api);
        let daemon = Managed::spawn("vhost-blk-mpath", command, directory.path())?;
        let mpathctl = sibling(programs.mpathctl.as_ref(), "mpathctl");
        let control = Control { mpathctl, target: target_program, api, target_api };
        let stack = Stack { daemon, target: Some(target), socket, directory };
        control
            .wait_until_live(addresses.len())
            .map_err(|source| StackError::NotLive { source, logs: stack.logs() })?;
        Ok(Self { stack, control, paths: addresses })
    }
}

/// Why a stack could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{source}\n{logs}")]
    NotLive { source: ControlError, logs: String },
}

impl Stack {
    /// qemu-storage-daemon with a disk that does nothing: the reference for any vhost-user-blk back-end.
    pub fn null(program: &Path) -> Result<Self, ProcessError> {
        let directory = directory("bench-")?;
        let socket = directory.path().join("null.sock");
        let mut command = Command::new(program);
        command.arg("--blockdev");
        command.arg(format!("driver=null-co,node-name=disk,size={NULL_BYTES},read-zeroes=off"));
        command.arg("--export");
        command.arg(format!(
            "type=vhost-user-blk,id=disk,node-name=disk,writable=on,num-queues=1,addr.type=unix,addr.path={}",
            socket.display()
        ));
        let daemon = Managed::spawn("qemu-storage-daemon", command, directory.path())?;
        Ok(Self { daemon, target: None, socket, directory })
    }

    /// Its processes by their role.
    pub fn processes(&self) -> impl Iterator<Item = (&'static str, &Managed)> {
        [("daemon", &self.daemon)].into_iter().chain(self.target.as_ref().map(|target| ("target", target)))
    }

    /// The command lines of its processes, with `$DIR` for the folder.
    pub fn command_lines(&self) -> Vec<String> {
        let directory = self.directory.path().to_string_lossy();
        self.processes().map(|(_, process)| process.command_line().replace(&*directory, "$DIR")).collect()
    }

    pub fn logs(&self) -> String {
        let logs = self.processes().map(|(role, process)| format!("the {role}'s log:\n{}", process.log_tail()));
        logs.collect::<Vec<_>>().join("\n")
    }
}
