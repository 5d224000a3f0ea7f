//! Decides: the running daemon starts a new program that takes over (`start`).
//! Decides: an upgrade is refused because of how the daemon was started.
//!
//! The daemon that is upgraded: it starts the new process and ends when this is ready.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use mpath_api::types::{Caller, Upgrade};
use mpath_api_server::socket::ListeningSocket;
use mpath_api_server::{ControlError, caller};
use mpath_config::{MetricsAddress, SocketPath};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::TAKE_OVER;
use super::channel::{Answer, Channel, SocketName};
use crate::sockets::activation::{ActivationSockets, DaemonSocket};

/// How long the new process may take to be ready. The client waits a minute.
const READY_MAX: Duration = Duration::from_secs(45);
/// The interval of checks whether the daemon ends meanwhile.
const CANCEL_INTERVAL: Duration = Duration::from_millis(100);

/// Whether systemd has started this process itself. A process that systemd has started passes `SYSTEMD_EXEC_PID` on to
/// its children.
fn is_main_process_of_systemd() -> bool {
    std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == std::process::id().to_string())
}

/// An upgrade that is under way until this is dropped.
pub(crate) struct UnderWay(Arc<AtomicBool>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// The program of this process, as it was started: a link may lead to another program later. The first argument counts
/// unless the program was searched for. To be called early: when the file is replaced, the kernel names the old one.
pub(crate) fn program() -> io::Result<PathBuf> {
    let first = std::env::args_os().next().map(PathBuf::from);
    match first.filter(|path| path.components().nth(1).is_some()) {
        Some(path) => std::path::absolute(path),
        None => std::env::current_exe(),
    }
}

/// Starts the program anew.
pub(crate) struct Upgrader {
    program: io::Result<PathBuf>,
    arguments: Vec<OsString>,
    /// The daemon ends for another reason.
    is_ending: AtomicBool,
    apis: Vec<(SocketPath, Weak<ListeningSocket>)>,
    metrics: Option<MetricsAddress>,
    activation_sockets: Arc<ActivationSockets>,
    is_under_way: Arc<AtomicBool>,
    /// A process is ready to take over once this one has ended.
    has_handed_over: watch::Sender<bool>,
}

/// A new process that is not ready. Dropping it ends the process.
struct Candidate {
    child: Child,
    channel: Option<Channel>,
}

impl Drop for Candidate {
    fn drop(&mut self) {
        if self.channel.is_some() {
            // Fails if it has ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Upgrader {
    pub(crate) fn new(
        program: io::Result<PathBuf>,
        apis: Vec<(SocketPath, Weak<ListeningSocket>)>,
        metrics: Option<MetricsAddress>,
        activation_sockets: Arc<ActivationSockets>,
    ) -> Self {
        let arguments = std::env::args_os().skip(1).filter(|argument| argument != TAKE_OVER).collect();
        let (is_under_way, has_handed_over) = (Arc::default(), watch::Sender::default());
        let is_ending = AtomicBool::new(false);
        Self { program, arguments, is_ending, apis, metrics, activation_sockets, is_under_way, has_handed_over }
    }

    /// Ends an upgrade under way: the daemon ends for another reason.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
    }

    /// Begins an upgrade, unless one is under way.
    pub(crate) fn begin(&self) -> Result<UnderWay, ControlError> {
        if self.is_under_way.swap(true, Ordering::SeqCst) {
            return Err(ControlError::UpgradeUnderWay);
        }
        Ok(UnderWay(Arc::clone(&self.is_under_way)))
    }

    /// Waits for a process that is ready to take over.
    pub(crate) async fn handed_over(&self) {
        let mut handed_over = self.has_handed_over.subscribe();
        handed_over.wait_for(|handed_over| *handed_over).await.expect("the sender is this one's own");
    }

    /// Starts the new process and hands these sockets, the API's and unused ones over to it. `version` is this daemon's. Fails if
    /// `check` does, once the new process is ready: much may have happened until then.
    pub(crate) async fn upgrade(
        self: &Arc<Self>,
        under_way: UnderWay,
        version: &str,
        sockets: Vec<DaemonSocket>,
        force: bool,
        check: impl Fn() -> Result<(), ControlError> + Send + 'static,
    ) -> Result<Upgrade, ControlError> {
        if self.activation_sockets.are_by_flag() {
            return Err(ControlError::PassedSocket);
        }
        if std::process::id() == 1 {
            return Err(ControlError::FirstProcess);
        }
        if is_main_process_of_systemd() && std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Err(ControlError::NoNotify);
        }
        let (upgrader, version, by) = (Arc::clone(self), version.to_owned(), caller());
        let started = spawn_blocking(move || upgrader.start(under_way, &version, sockets, force, by.as_ref(), check));
        started.await.unwrap_or(Err(ControlError::UpgradeBusy))
    }

    /// Blocks until the new process is ready or has failed.
    fn start(
        &self,
        under_way: UnderWay,
        version: &str,
        mut sockets: Vec<DaemonSocket>,
        force: bool,
        by: Option<&Caller>,
        check: impl Fn() -> Result<(), ControlError>,
    ) -> Result<Upgrade, ControlError> {
        for (path, api) in &self.apis {
            let socket = api.upgrade().ok_or(ControlError::UpgradeBusy)?;
            sockets.push(DaemonSocket { path: path.clone(), socket, in_use_by: None });
        }
        let mut candidate = self.spawn()?;
        let is_ending = || self.is_ending.load(Ordering::SeqCst);
        let answer = candidate
            .pass(version, &sockets, &self.activation_sockets, self.metrics, force, by)
            .and_then(|()| candidate.answer(is_ending));
        if is_ending() {
            // Dropping the candidate ends it.
            return Err(ControlError::UpgradeBusy);
        }
        let version_after = match answer.map_err(|error| candidate.failed(&error.to_string()))? {
            Some(Answer::Ready { version }) => version,
            Some(Answer::Failed { reason }) => return Err(ControlError::UpgradeFailed(reason)),
            None => return Err(candidate.failed("it has closed the channel")),
        };
        check()?;
        let pid = candidate.child.id();
        // systemd would take the end of this process for the end of the service.
        sd_notify::notify(&[NotifyState::MainPid(pid)])
            .map_err(|error| candidate.failed(&format!("systemd cannot be told of it: {error}")))?;
        for DaemonSocket { socket, .. } in &sockets {
            socket.give_file_away();
        }
        let channel = candidate.channel.take().expect("it was not taken before");
        // The new process waits until this end is closed, which only the end of this process does.
        std::mem::forget(channel);
        // There is no other upgrade of this process.
        std::mem::forget(under_way);
        self.has_handed_over.send_replace(true);
        Ok(Upgrade { from_version: version.to_owned(), version: version_after, pid })
    }

    fn spawn(&self) -> Result<Candidate, ControlError> {
        let not_started =
            |program: &str, reason: String| ControlError::ProgramNotStarted { program: program.into(), reason };
        let program =
            self.program.as_ref().map_err(|error| not_started("the program of this process", error.to_string()))?;
        let failed = |error: io::Error| not_started(&program.display().to_string(), error.to_string());
        let (channel, theirs) = Channel::pair().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(&self.arguments).arg(TAKE_OVER).stdin(theirs);
        command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID").env_remove("LISTEN_FDNAMES");
        Ok(Candidate { child: command.spawn().map_err(failed)?, channel: Some(channel) })
    }
}

impl Candidate {
    /// Passes the sockets to the process.
    fn pass(
        &self,
        version: &str,
        sockets: &[DaemonSocket],
        activation_sockets: &ActivationSockets,
        metrics: Option<MetricsAddress>,
        force: bool,
        by: Option<&Caller>,
    ) -> io::Result<()> {
        let own = sockets.iter().filter(|of| of.socket.file_identity().is_some());
        let own = own.map(|DaemonSocket { path, socket, in_use_by }| {
            let (path, in_use_by) = (path.to_string(), in_use_by.clone());
            (SocketName { path, file: socket.file_identity(), in_use_by, role: socket.role() }, socket.as_fd())
        });
        // No disk can use a path that is not UTF-8.
        let passed = activation_sockets.all().filter_map(|(path, socket)| Some((path.to_str()?, socket)));
        let user = |path: &str| sockets.iter().find(|of| of.path.as_path() == Path::new(path))?.in_use_by.clone();
        let passed = passed.map(|(path, socket)| {
            (SocketName { path: path.into(), file: None, in_use_by: user(path), role: None }, socket.as_fd())
        });
        self.channel().send_sockets(version, force, metrics, by, &own.chain(passed).collect::<Vec<_>>())
    }

    /// Waits for the answer of the process. `None` if it has ended.
    fn answer(&self, is_ending: impl Fn() -> bool) -> io::Result<Option<Answer>> {
        let (begun, interval) = (Instant::now(), CANCEL_INTERVAL.try_into().expect("it is short"));
        let mut events = [PollFd::new(self.channel(), PollFlags::IN)];
        while retry_on_intr(|| poll(&mut events, Some(&interval)))? == 0 {
            if is_ending() {
                return Ok(None);
            }
            if begun.elapsed() > READY_MAX {
                return Err(io::Error::other(format!("it is not ready after {READY_MAX:?}")));
            }
        }
        Ok(self.channel().receive()?.map(|(answer, _)| answer))
    }

    fn channel(&self) -> &Channel {
        self.channel.as_ref().expect("it is taken later")
    }

    /// The process does not answer as it should.
    fn failed(&mut self, reason: &str) -> ControlError {
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        ControlError::UpgradeFailed(format!("{reason} ({status}); see its log"))
    }
}
