//! Test helpers: the daemon as a child process.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use mpath_api::client::{Client, ClientError};
use mpath_api::types::{DiskState, Injection, Path, PathSelector, PathState, SetInjection, SetSettings, Status};
use mpath_config::PolicyKind;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use vublk_bench::process::Managed;

use super::{NQN, PATIENCE, eventually};

/// A keep-alive timeout in seconds that outlasts every delay of a busy machine.
pub(crate) const LASTING: &str = "60";

/// The daemon without a flag.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vhost-blk-mpath"));
    command.env_remove("RUST_LOG").env("RUST_BACKTRACE", "1");
    command
}

/// The directory with a daemon's sockets and log.
pub(crate) struct DaemonDirectory(TempDir);

impl DaemonDirectory {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The vhost-user socket of a disk given by flags.
    pub(crate) fn socket(&self) -> PathBuf {
        self.file("disk.sock")
    }

    pub(crate) fn api(&self) -> PathBuf {
        self.file("api.sock")
    }

    /// The fence record that a daemon leaves if its writes may still be executed.
    pub(crate) fn fence_record(&self) -> PathBuf {
        self.file("disk.sock.fence")
    }

    /// The daemon with one disk given by flags; `more` are further flags. Unless these say otherwise, no path is lost because
    /// a busy machine keeps the daemon or the target waiting.
    pub(crate) fn command(&self, paths: &[SocketAddr], more: &str) -> Command {
        let mut command = program();
        if !more.contains("--keep-alive-tmo") {
            command.args(["--keep-alive-tmo", LASTING]);
        }
        command.arg("--socket-path").arg(self.socket()).arg("--api").arg(self.api()).args(["--subsystem", NQN]);
        command.args(paths.iter().map(|path| format!("--path=tcp://{path}")));
        command.args(more.split_whitespace());
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("daemon.log")).unwrap()
    }

    /// Starts the daemon and returns while it starts.
    pub(crate) fn spawn(self, command: Command) -> Daemon {
        let process = Process(Managed::spawn("daemon", command, self.0.path()).unwrap());
        let api = Client::new(&self.api(), PATIENCE).unwrap();
        Daemon { process, api, place: self }
    }

    /// Starts a daemon that must end by itself without serving. Returns its exit code and all of stderr.
    pub(crate) fn fails(&self, command: Command) -> (i32, String) {
        self.fails_unless(command, || false).expect("the daemon does not start")
    }

    /// Starts a daemon that ends by itself or serves. Returns its exit code and all of stderr, or `None` if it gets
    /// ready.
    pub(crate) fn fails_or_serves(&self, command: Command) -> Option<(i32, String)> {
        self.fails_unless(command, || self.log().lines().any(|line| line.ends_with(" ready")))
    }

    fn fails_unless(&self, command: Command, mut serves: impl FnMut() -> bool) -> Option<(i32, String)> {
        let mut process = Managed::spawn("daemon", command, self.0.path()).unwrap();
        let mut served = false;
        eventually("the daemon gives up", || {
            served = serves();
            served || process.exited().is_some()
        });
        let log = self.log();
        assert!(!log.contains("panicked") && !log.contains("backtrace"), "{log}");
        (!served).then(|| (process.exited().unwrap().code().unwrap(), log))
    }

    /// Starts a daemon that must end by itself. One line, the last of stderr, must say why.
    pub(crate) fn refused(&self, command: Command) -> Refusal {
        let (code, log) = self.fails(command);
        let errors: Vec<_> = log.lines().filter(|line| line.starts_with("vhost-blk-mpath: ")).collect();
        assert_eq!(errors.len(), 1, "one line says why: {log}");
        assert_eq!(log.lines().last(), Some(errors[0]), "and it is the last one: {log}");
        Refusal { code, line: errors[0].to_owned(), log }
    }
}

/// How a daemon ended that did not start.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    /// The line that says why.
    pub(crate) line: String,
    /// All of stderr.
    pub(crate) log: String,
}

impl Refusal {
    /// Checks the exit code, and that the line contains each of `words`.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}", self.log);
        for word in words {
            assert!(self.line.contains(word), "{word:?} is not in {:?}", self.line);
        }
    }

    /// Checks that only that line was printed.
    #[track_caller]
    pub(crate) fn alone(&self) {
        assert_eq!(self.log.lines().count(), 1, "{}", self.log);
    }
}

/// A process that is killed when dropped. Its orderly end takes time, and is tested by [`Daemon::end`].
struct Process(Managed);

impl Deref for Process {
    type Target = Managed;
    fn deref(&self) -> &Managed {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Managed {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exited().is_none() {
            // The process is the leader of its group.
            let _ = kill_process_group(Pid::from_raw(self.pid().cast_signed()).unwrap(), Signal::KILL);
        }
    }
}

/// A daemon. It is killed when dropped.
pub(crate) struct Daemon {
    process: Process,
    pub(crate) api: Client,
    pub(crate) place: DaemonDirectory,
}

/// How a daemon ended that had started.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) took: Duration,
    pub(crate) log: String,
}

impl Daemon {
    /// A daemon that serves one disk given by flags.
    pub(crate) fn start(paths: &[SocketAddr], more: &str) -> Self {
        let place = DaemonDirectory::new();
        let command = place.command(paths, more);
        place.spawn(command).ready()
    }

    /// Waits until it serves all disks, and has tried all paths.
    pub(crate) fn ready(self) -> Self {
        let daemon = self.answers();
        let is_tried = |path: &Path| path.state != PathState::Connecting || path.last_error.is_some();
        eventually("the daemon serves its disks", || {
            let disks = daemon.status().disks;
            disks.iter().all(|disk| disk.state == DiskState::Served) && daemon.paths().iter().all(is_tried)
        });
        daemon
    }

    /// Waits until its API answers.
    pub(crate) fn answers(mut self) -> Self {
        eventually("the API answers", || match self.api.status() {
            Ok(_) => true,
            Err(ClientError::NotRunning { .. }) => {
                assert_eq!(self.process.exited(), None, "{}", self.log());
                false
            }
            Err(error) => panic!("{error}; {}", self.log()),
        });
        self
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.place.socket()
    }

    pub(crate) fn log(&self) -> String {
        self.place.log()
    }

    pub(crate) fn status(&self) -> Status {
        self.api.status().unwrap()
    }

    /// Clock ticks of processor time.
    pub(crate) fn processor_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.status().pid)).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    pub(crate) fn paths(&self) -> Vec<Path> {
        self.api.paths(None).unwrap()
    }

    pub(crate) fn is_live(&self, path: usize) -> bool {
        self.paths()[path].state == PathState::Live
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.exited().is_none()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.pid())).unwrap().count()
    }

    /// Without the threads that tokio keeps for a while, for the next blocking call.
    fn threads(&self) -> usize {
        self.names_of_threads().filter(|name| !name.starts_with("tokio")).count()
    }

    /// The number of threads whose names begin with this.
    pub(crate) fn threads_named(&self, beginning: &str) -> usize {
        self.names_of_threads().filter(|name| name.starts_with(beginning)).count()
    }

    fn names_of_threads(&self) -> impl Iterator<Item = String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.pid())).unwrap();
        // A thread that has ended meanwhile has no name.
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
    }

    /// Open file descriptors and threads, after the connections of earlier API calls are closed.
    pub(crate) fn settled_resources(&self) -> (usize, usize) {
        let (mut last, mut since) = (self.resources(), Instant::now());
        eventually("descriptors and threads stay the same", || {
            if self.resources() != last {
                (last, since) = (self.resources(), Instant::now());
            }
            since.elapsed() > Duration::from_millis(100)
        });
        last
    }

    /// Waits until there are no more descriptors and threads than before. On a busy machine the earlier count may
    /// include connections that were still closing.
    #[track_caller]
    pub(crate) fn comes_back_to(&self, (descriptors, threads): (usize, usize)) {
        eventually(&format!("{descriptors} descriptors and {threads} threads"), || {
            self.descriptors() <= descriptors && self.threads() <= threads
        });
    }

    fn resources(&self) -> (usize, usize) {
        (self.descriptors(), self.threads())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.pid().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Sends the signal and waits for the end.
    pub(crate) fn end(self, signal: Signal) -> (Ended, DaemonDirectory) {
        self.signal(signal);
        self.ends()
    }

    /// Waits until it has ended.
    pub(crate) fn ends(mut self) -> (Ended, DaemonDirectory) {
        let start = Instant::now();
        eventually("the daemon ends", || self.process.exited().is_some());
        let ended = Ended { status: self.process.exited().unwrap(), took: start.elapsed(), log: self.log() };
        (ended, self.place)
    }
}

impl Ended {
    /// Checks that the daemon ended by itself and with success, before a leaving front-end would have been given up,
    /// and left nothing behind.
    #[track_caller]
    pub(crate) fn cleanly(&self, place: &DaemonDirectory) {
        self.cleanly_with_record(place, self.log.contains("writes were given up and may still be executed"));
    }

    /// Like [`cleanly`](Self::cleanly), but a guest of a killed daemon may come back: the front-end since then keeps no
    /// in-flight log. The record has no fence.
    #[track_caller]
    pub(crate) fn cleanly_but_for_a_guest(&self, place: &DaemonDirectory) {
        self.cleanly_with_record(place, true);
        let record = fs::read_to_string(place.fence_record()).unwrap();
        let count = |part: &str| record.matches(part).count();
        assert_eq!(count("\"fence_ms\": "), count("\"fence_ms\": 0"), "{record}");
    }

    #[track_caller]
    fn cleanly_with_record(&self, place: &DaemonDirectory, has_record: bool) {
        let mut wrong = String::new();
        if self.status.code() != Some(0) {
            write!(wrong, "{}; ", self.status).unwrap();
        }
        if self.took > Duration::from_secs(9) {
            write!(wrong, "took {:?}; ", self.took).unwrap();
        }
        for file in [place.socket(), place.api()].iter().filter(|file| file.exists()) {
            write!(wrong, "left {}; ", file.display()).unwrap();
        }
        if place.fence_record().exists() != has_record {
            write!(wrong, "something is left: {has_record}, but the fence record says otherwise; ").unwrap();
        }
        if self.log.contains("panicked") {
            wrong.push_str("panicked; ");
        }
        assert!(wrong.is_empty(), "{wrong}{}", self.log);
    }
}

pub(crate) fn set_policy(policy: PolicyKind) -> SetSettings {
    policy.into()
}

pub(crate) fn inject(path: PathSelector, latency: Duration) -> SetInjection {
    SetInjection { path, disk: None, injection: Injection::latency(latency.try_into().unwrap()), for_ms: None }
}
