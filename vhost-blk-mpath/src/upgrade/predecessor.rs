//! The daemon that is upgraded: it starts the new process and ends when this is ready.

use std::ffi::OsString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use mpath_api::config::SocketPath;
use mpath_api::server::UpgradeError;
use mpath_api::socket::ListeningSocket;
use mpath_api::types::Upgrade;
use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::TAKE_OVER;
use super::channel::{Answer, Channel, SocketName};
use crate::sockets::activation::{ActivationSockets, DaemonSocket};

/// How long the new process may take to be ready. The client waits a minute.
const READY_MAX: Duration = Duration::from_secs(45);

/// Starts the program anew.
pub(crate) struct Upgrader {
    program: io::Result<PathBuf>,
    arguments: Vec<OsString>,
    api: (SocketPath, Weak<ListeningSocket>),
    activation_sockets: Arc<ActivationSockets>,
    is_under_way: Mutex<()>,
    successor: watch::Sender<Option<Arc<Successor>>>,
}

/// A process that is ready to take over once this one has ended.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) upgrade: Upgrade,
    /// The new process waits until this end is closed, which only the end of this process does: no request, file or lock
    /// of it is left then.
    _channel: ManuallyDrop<Channel>,
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
    pub(crate) fn new(api: (SocketPath, Weak<ListeningSocket>), activation_sockets: Arc<ActivationSockets>) -> Self {
        // Looked at now: when the file is replaced, the kernel names the old one.
        let program = std::env::current_exe();
        let arguments = std::env::args_os().skip(1).filter(|argument| argument != TAKE_OVER).collect();
        let (is_under_way, successor) = (Mutex::new(()), watch::Sender::default());
        Self { program, arguments, api, activation_sockets, is_under_way, successor }
    }

    /// Waits for a process that is ready to take over.
    pub(crate) async fn handed_over(&self) -> Arc<Successor> {
        let mut successors = self.successor.subscribe();
        let found = successors.wait_for(Option::is_some).await.expect("the sender is this one's own");
        found.clone().expect("it was waited for")
    }

    /// Starts the new process and hands these sockets, the API's and unused ones over to it. `version` is this daemon's.
    pub(crate) async fn upgrade(
        self: &Arc<Self>,
        version: &str,
        sockets: Vec<DaemonSocket>,
        force: bool,
    ) -> Result<Upgrade, UpgradeError> {
        if self.activation_sockets.are_by_flag() {
            return Err(UpgradeError::PassedSocket);
        }
        if std::process::id() == 1 {
            return Err(UpgradeError::FirstProcess);
        }
        let (upgrader, version) = (Arc::clone(self), version.to_owned());
        // The upgrade goes on if the client leaves.
        let started = spawn_blocking(move || upgrader.start(&version, sockets, force));
        started.await.unwrap_or(Err(UpgradeError::Busy))
    }

    /// Blocks until the new process is ready or has failed.
    fn start(&self, version: &str, mut sockets: Vec<DaemonSocket>, force: bool) -> Result<Upgrade, UpgradeError> {
        let Ok(_under_way) = self.is_under_way.try_lock() else { return Err(UpgradeError::UnderWay) };
        if self.successor.borrow().is_some() {
            return Err(UpgradeError::UnderWay);
        }
        let (path, api) = &self.api;
        let socket = api.upgrade().ok_or(UpgradeError::Busy)?;
        sockets.push(DaemonSocket { path: path.clone(), socket });
        let mut candidate = self.spawn()?;
        let answer = candidate.ask(version, &sockets, &self.activation_sockets, force);
        let version_after = match answer.map_err(|error| candidate.failed(&error.to_string()))? {
            Some(Answer::Ready { version }) => version,
            Some(Answer::Failed { reason }) => return Err(UpgradeError::Failed { reason }),
            None => return Err(candidate.failed("it has closed the channel")),
        };
        let pid = candidate.child.id();
        // systemd would take the end of this process for the end of the service.
        if let Err(error) = sd_notify::notify(&[NotifyState::MainPid(pid)]) {
            tracing::warn!(%error, "cannot tell systemd the process that takes over");
        }
        for DaemonSocket { socket, .. } in &sockets {
            socket.give_away();
        }
        let channel = candidate.channel.take().expect("it was not taken before");
        let upgrade = Upgrade { from_version: version.to_owned(), version: version_after, pid };
        self.successor
            .send_replace(Some(Arc::new(Successor { upgrade: upgrade.clone(), _channel: ManuallyDrop::new(channel) })));
        Ok(upgrade)
    }

    fn spawn(&self) -> Result<Candidate, UpgradeError> {
        let not_started = |program: &str, reason: String| UpgradeError::NotStarted { program: program.into(), reason };
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
    /// Passes the sockets to the process and waits for its answer. `None` if it has ended.
    fn ask(
        &self,
        version: &str,
        sockets: &[DaemonSocket],
        activation_sockets: &ActivationSockets,
        force: bool,
    ) -> io::Result<Option<Answer>> {
        let own = sockets.iter().filter(|of| of.socket.has_file());
        let own = own.map(|of| (SocketName { path: of.path.as_path().into(), has_file: true }, of.socket.as_fd()));
        let passed = activation_sockets.all();
        let passed = passed.map(|(path, socket)| (SocketName { path: path.into(), has_file: false }, socket.as_fd()));
        let channel = self.channel.as_ref().expect("it is taken later");
        channel.send_sockets(version, force, &own.chain(passed).collect::<Vec<_>>())?;
        rustix::net::sockopt::set_socket_timeout(channel, rustix::net::sockopt::Timeout::Recv, Some(READY_MAX))?;
        Ok(channel.receive()?.map(|(answer, _)| answer))
    }

    /// The process does not answer as it should.
    fn failed(&mut self, reason: &str) -> UpgradeError {
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        UpgradeError::Failed { reason: format!("{reason} ({status}); see its log") }
    }
}
