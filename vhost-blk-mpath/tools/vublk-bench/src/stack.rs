//! The back-ends that the programs start: the daemon over `mpath-target`, and qemu-storage-daemon.

use crate::control::{Control, ControlError};
use crate::process::{Managed, ProcessError, directory, sibling};
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
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
/// The most disks over the same paths, and so the most namespaces of a target.
const DISKS_A_TARGET: u16 = 64;
/// How long a daemon with many disks may take.
const DISKS_READY_TIMEOUT: Duration = Duration::from_secs(60);
const NULL_BYTES: u64 = 1 << 30;

/// A back-end's processes, with a folder for their sockets and logs.
#[derive(Debug)]
pub struct Stack {
    // Dropped first, so that the daemon does not see its target die.
    /// `vhost-blk-mpath`, or qemu-storage-daemon.
    pub daemon: Managed,
    targets: Vec<Managed>,
    /// The socket of the first disk.
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
        Self::start_with(programs, paths, settings, None)
    }

    /// As [`MpathStack::start`], with connections over TLS. `key` is in the interchange format.
    pub fn start_with_tls(programs: &Programs, paths: u16, settings: &[&str], key: &str) -> Result<Self, StackError> {
        Self::start_with(programs, paths, settings, Some(key))
    }

    fn start_with(programs: &Programs, paths: u16, settings: &[&str], key: Option<&str>) -> Result<Self, StackError> {
        let directory = directory("bench-")?;
        let key_file = directory.path().join("tls.key");
        if let Some(key) = key {
            write_secret(&key_file, key).map_err(ProcessError::Directory)?;
        }
        let tls: Vec<&OsStr> =
            key.map(|_| ["--tls-key-file".as_ref(), key_file.as_os_str()]).into_iter().flatten().collect();
        let [socket, api, target_api] =
            ["vhost.sock", "api.sock", "target.sock"].map(|name| directory.path().join(name));
        let target_program = sibling(programs.target.as_ref(), "mpath-target");
        let (target, addresses) = start_target(
            &target_program,
            NQN,
            1,
            paths,
            &[&["--api".as_ref(), target_api.as_os_str()], &tls[..]].concat(),
            directory.path(),
        )?;

        let mut command = Command::new(sibling(programs.daemon.as_ref(), "vhost-blk-mpath"));
        command.arg("--socket-path").arg(&socket).args(["--subsystem", NQN]);
        command.args(addresses.iter().flat_map(|address| ["--path", address]));
        command.args(settings).args(tls).arg("--api").arg(&api);
        let daemon = Managed::spawn("vhost-blk-mpath", command, directory.path())?;
        let mpathctl = sibling(programs.mpathctl.as_ref(), "mpathctl");
        let control = Control { mpathctl, target: target_program, api, target_api };
        let stack = Stack { daemon, targets: vec![target], socket, directory };
        control
            .wait_until_live(addresses.len())
            .map_err(|source| StackError::NotLive { source, logs: stack.logs() })?;
        Ok(Self { stack, control, paths: addresses })
    }
}

/// Starts a target with this many namespaces, and a listener for each path. Returns the addresses of these.
fn start_target(
    program: &Path,
    nqn: &str,
    namespaces: u16,
    paths: u16,
    more: &[&OsStr],
    directory: &Path,
) -> Result<(Managed, Vec<String>), ProcessError> {
    let mut command = Command::new(program);
    command.args(["--nqn", nqn]);
    command.args((0..namespaces).flat_map(|_| ["--namespace", NAMESPACE]));
    command.args((0..paths).flat_map(|_| ["--listen", "127.0.0.1:0"]));
    command.args(more);
    let mut target = Managed::spawn("mpath-target", command, directory)?;
    let mut listening = || {
        target.wait_for_line(READY_TIMEOUT, |line| {
            line.strip_prefix("listening on ")?.split_whitespace().next().map(|address| format!("tcp://{address}"))
        })
    };
    let addresses = (0..paths).map(|_| listening()).collect::<Result<_, _>>()?;
    Ok((target, addresses))
}

/// Disks of one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disks {
    pub count: u16,
    /// Up to 64 disks share paths. Otherwise each has paths of its own.
    pub are_sharing: bool,
    /// The number of paths to each disk.
    pub paths: u16,
    /// The most virtqueues of each disk.
    pub queues: u16,
    pub io_threads: u16,
}

/// Why a stack could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{source}\n{logs}")]
    NotLive { source: ControlError, logs: String },
    #[error("cannot tell when the daemon is ready: {0}")]
    Notification(#[source] io::Error),
}

impl Stack {
    /// Starts the daemon with these disks, over a target for every 64 of them. Waits until all paths are live. Also returns how
    /// long that took, from the start of the daemon.
    pub fn with_disks(programs: &Programs, disks: Disks) -> Result<(Self, Duration), StackError> {
        let directory = directory("bench-")?;
        let program = sibling(programs.target.as_ref(), "mpath-target");
        let (mut targets, mut configured) = (Vec::new(), Vec::new());
        for first in (0..disks.count).step_by(DISKS_A_TARGET.into()) {
            let nqn = format!("{NQN}-{first}");
            let count = DISKS_A_TARGET.min(disks.count - first);
            let (target, paths) = start_target(&program, &nqn, count, disks.paths, &[], directory.path())?;
            targets.push(target);
            let disk = |namespace: u16| {
                let index = first + namespace - 1;
                json!({
                    "name": format!("disk{index}"), "socket-path": socket_path(directory.path(), index),
                    "namespace": namespace, "queues": disks.queues,
                })
            };
            let with_paths = |mut disk: Value| {
                (disk["subsystem"], disk["paths"]) = (json!(nqn), json!(paths));
                disk
            };
            if disks.are_sharing {
                let mut owner = with_paths(disk(1));
                owner["share-paths-with"] = (2..=count).map(disk).collect();
                configured.push(owner);
            } else {
                configured.extend((1..=count).map(disk).map(with_paths));
            }
        }
        let [config, api, notify] = ["config.yaml", "api.sock", "notify.sock"].map(|name| directory.path().join(name));
        let settings = json!({"api": api, "io-threads": disks.io_threads, "wait-for": "all", "disks": configured});
        // JSON is YAML.
        fs::write(&config, settings.to_string()).map_err(ProcessError::Directory)?;
        let notifications = UnixDatagram::bind(&notify).map_err(StackError::Notification)?;
        notifications.set_read_timeout(Some(Duration::from_millis(100))).map_err(StackError::Notification)?;
        let mut command = Command::new(sibling(programs.daemon.as_ref(), "vhost-blk-mpath"));
        command.arg("--config").arg(config).env("NOTIFY_SOCKET", &notify);
        let start = Instant::now();
        let mut daemon = Managed::spawn("vhost-blk-mpath", command, directory.path())?;
        while !matches!(notifications.recv(&mut [0; 512]), Ok(length) if length > 0) {
            if start.elapsed() > DISKS_READY_TIMEOUT || daemon.exited().is_some() {
                return Err(daemon.not_ready(DISKS_READY_TIMEOUT).into());
            }
        }
        let (took, socket) = (start.elapsed(), socket_path(directory.path(), 0));
        Ok((Self { daemon, targets, socket, directory }, took))
    }

    /// The socket of a disk of [`Stack::with_disks`].
    pub fn socket_of(&self, disk: u16) -> PathBuf {
        socket_path(self.directory.path(), disk)
    }

    /// Starts qemu-storage-daemon with a disk that does nothing: the reference for any vhost-user-blk back-end.
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
        Ok(Self { daemon, targets: Vec::new(), socket, directory })
    }

    /// Its processes by their role.
    pub fn processes(&self) -> impl Iterator<Item = (&'static str, &Managed)> {
        [("daemon", &self.daemon)].into_iter().chain(self.targets.iter().map(|target| ("target", target)))
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

/// Writes a file that only its owner may read.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn socket_path(directory: &Path, disk: u16) -> PathBuf {
    directory.join(format!("disk{disk}.sock"))
}
