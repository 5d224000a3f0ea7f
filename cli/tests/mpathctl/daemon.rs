//! Test helpers: a fake daemon with the server of the API on a Unix socket.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mpath_api::types::DiskState;
use mpath_api_server::Server;
use mpath_config::SocketPath;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::fake::Fake;

/// The daemon in its own thread; dropped, it ends.
pub(crate) struct Daemon {
    dir: TempDir,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with(Fake::new())
    }

    /// Starts a daemon whose `disk1` takes no requests.
    pub(crate) fn start_held() -> Self {
        Self::start_with(Fake { held: &["disk1"], ..Fake::new() })
    }

    /// Starts a daemon whose `disk0` is in this state.
    pub(crate) fn start_in_state(state: DiskState) -> Self {
        Self::start_with(Fake { state, ..Fake::new() })
    }

    /// Starts a daemon with a disk `backup` over the paths of `disk0`.
    pub(crate) fn start_sharing() -> Self {
        Self::start_with(Fake::sharing())
    }

    /// Starts a daemon with `disk0` and `backup` only.
    pub(crate) fn start_sharing_alone() -> Self {
        let fake = Fake::sharing();
        fake.policies.lock().unwrap().retain(|(disk, _)| disk != "disk1");
        fake.scheduling.lock().unwrap().retain(|of| of.disk != "disk1");
        fake.paths.lock().unwrap().retain(|path| path.disk != "disk1");
        Self::start_with(fake)
    }

    pub(crate) fn start_with(control: Fake) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), control)
    }

    /// Ends the daemon. Another one then serves its socket.
    pub(crate) fn restart(self, pause: Duration, control: Fake) -> Self {
        let dir = self.stop();
        thread::sleep(pause);
        Self::start_in(dir, control)
    }

    /// Ends the daemon. Another one can be started in its directory.
    pub(crate) fn stop(mut self) -> TempDir {
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    pub(crate) fn start_in(dir: TempDir, control: Fake) -> Self {
        let socket: SocketPath = dir.path().join("api.sock").to_str().unwrap().parse().unwrap();
        let server = Server::bind(&socket).unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server.serve(Arc::new(control), async { drop(ended.await) })).unwrap();
        });
        Self { dir, end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("api.sock")
    }

    /// `mpathctl` for this daemon.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = mpathctl(args);
        command.env("MPATH_API", self.socket());
        command
    }

    /// Runs `mpathctl`, which must succeed without a word on stderr.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.said(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        stdout
    }

    /// Runs `mpathctl`. Returns its exit code, stdout and stderr.
    pub(crate) fn said(&self, args: &[&str]) -> (i32, String, String) {
        finish(&mut self.command(args))
    }

    /// Runs `mpathctl`, which must fail without a word on stdout.
    pub(crate) fn fail(&self, args: &[&str]) -> (i32, String) {
        let (code, stdout, stderr) = finish(&mut self.command(args));
        assert_eq!(stdout, "", "{args:?}");
        (code, stderr)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// `mpathctl` for no daemon in particular.
pub(crate) fn mpathctl(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpathctl"));
    command.args(args).env_remove("MPATH_API").env("LC_ALL", "C.UTF-8");
    command
}

/// Exit code, stdout, stderr.
pub(crate) fn finish(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}
