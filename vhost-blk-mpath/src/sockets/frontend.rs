//! Decides: a front-end waits for a path (`opened`).
//!
//! The vhost-user socket of one disk, and its front-ends.
//!
//! A front-end is quiet nearly all the time. So a task waits for it, and a thread exists only while there is something to
//! do: a front-end connects, sends or leaves. Its requests may take long, because its virtqueues drain, its memory is mapped
//! (`fstat`, `fstatfs`, `mmap`), or it sends half a message. Then its own thread waits, and no other disk does.
//!
//! ```text
//!          readable, or a fault in its memory
//!   task ──────────────────────────────────────► thread, with the system calls of its work
//!    ▲                                             │
//!    └──── nothing has come for a second ◄─────────┘
//! ```

use std::convert::Infallible;
use std::future::pending;
use std::net::Shutdown;
use std::ops::ControlFlow::{Break, Continue};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, iter};

use mpath_api::types::EventKind;
use mpath_api_server::socket::{ListeningSocket, accept, peer_pid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbox::{ThreadKind, restrict_thread};
use tokio::io::Ready;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use vhost_user_blk::{FrontEndConnection, ServeError};

use crate::disk::front_ends::WaitingFrontEnd;
use crate::sockets::frontend_source::FrontendSource;
use crate::sockets::readiness::becomes;
use crate::sockets::served_disk::ServedDisk;

/// How long to wait after serving has failed, for example for lack of descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a thread stays with a front-end that says nothing. QEMU sends tens of messages in a row.
const QUIET: Duration = Duration::from_secs(1);

/// How long none is served after a front-end that has held up an I/O thread. Otherwise it could do so again at once.
const REST: Duration = Duration::from_secs(60);

/// Serves the front-ends of one disk, one at a time.
pub(crate) struct FrontendServer {
    shared: Arc<Shared>,
    /// Disconnected when no front-end is served any more.
    running: mpsc::Receiver<Infallible>,
}

struct Shared {
    disk: ServedDisk,
    stage: watch::Sender<Stage>,
    /// The listening socket. `None` at the end, and with the connection of `--fd`.
    listening: Mutex<Option<Arc<ListeningSocket>>>,
    connections: Mutex<Connections>,
    /// The connected front-end. The task holds the lock while it waits, a thread while it serves.
    connected: tokio::sync::Mutex<Option<FrontEndConnection<'static>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Front-ends wait for the disk.
    Closed,
    Open,
    /// No other front-end is served.
    Ending,
}

/// The next step of the task, when a thread has nothing to do any more.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The task waits.
    Wait,
    /// The task waits until [`REST`] is over.
    Rest,
    /// No other front-end can come.
    End,
}

#[derive(Default)]
struct Connections {
    /// The one being served, to hang up on it.
    served: Option<UnixStream>,
    /// One that waits until the other one has left, and its number. It is served next.
    waiting: Option<(UnixStream, u64)>,
    /// The front-ends that have waited so far.
    waited: u64,
}

impl FrontendServer {
    /// Begins to serve. A front-end that connects before the disk is [opened](Self::open) waits in the backlog.
    ///
    /// There it is neither refused nor answered, and another daemon may serve it on an activation socket. QEMU stands
    /// still while it waits for an answer, with its guest and monitor. But a QEMU that is refused does not start.
    ///
    /// Call this within the daemon's runtime.
    pub(crate) fn start(disk: ServedDisk, source: FrontendSource) -> Self {
        let (listening, waiting, left) = match source {
            FrontendSource::Listening(socket) => (Some(Arc::new(socket)), None, None),
            FrontendSource::Connected(stream, left) => (None, Some((stream, 0)), Some(left)),
        };
        let shared = Arc::new(Shared {
            disk,
            stage: watch::Sender::new(Stage::Closed),
            listening: Mutex::new(listening),
            connections: Mutex::new(Connections { waiting, ..Connections::default() }),
            connected: tokio::sync::Mutex::default(),
        });
        let (runs, running) = mpsc::channel();
        tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                shared.run().await;
                // Nobody listens when the daemon ends.
                let _ = left.map(|left| left.send(()));
                // `shutdown` waits for the second.
                drop(shared);
                drop(runs);
            }
        });
        Self { shared, running }
    }

    /// Serves front-ends from now on. The disk's namespace must be known, and all checks done.
    pub(crate) fn open(&self) {
        self.shared.stage.send_modify(|stage| *stage = Stage::Open.max(*stage));
    }

    /// The listening socket. `None` at the end, and with the connection of `--fd`.
    pub(crate) fn listening(&self) -> Option<Arc<ListeningSocket>> {
        self.shared.listening().clone()
    }

    /// The front-end that waits until the connected one has left. Takes it from the backlog of the socket, which does not say which
    /// clients have gone.
    pub(crate) fn waiting(&self) -> Option<WaitingFrontEnd> {
        // The next front-end is served under this lock.
        let mut connections = self.shared.connections();
        let is_draining = has_hung_up(connections.served.as_ref()?);
        if self.shared.is_ending() {
            return None;
        }
        connections.waiting.take_if(|(waiting, _)| has_hung_up(waiting));
        if connections.waiting.is_none() {
            let listener = self.listening()?.listener().ok()?;
            // The backlog is bounded.
            let stream = iter::from_fn(|| accept(&listener).ok()?).find(|stream| !has_hung_up(stream))?;
            connections.waited += 1;
            connections.waiting = Some((stream, connections.waited));
        }
        let (stream, number) = connections.waiting.as_ref()?;
        Some(WaitingFrontEnd { number: *number, pid: peer_pid(stream), is_draining })
    }

    /// Serves no new front-ends on any of these. If one is connected, fails with its index and changes nothing, unless
    /// `even_if_connected`.
    pub(crate) fn stop_accepting(servers: &[Self], even_if_connected: bool) -> Result<(), usize> {
        // These locks say who is connected, and a new connection takes one of them first.
        let connections: Vec<_> = servers.iter().map(|server| server.shared.connections()).collect();
        if let Some(connected) = connections.iter().position(|of| of.served.is_some())
            && !even_if_connected
        {
            return Err(connected);
        }
        for server in servers {
            server.shared.stage.send_replace(Stage::Ending);
        }
        Ok(())
    }

    /// Hangs up on all these front-ends at once, and takes the virtqueues back. The I/O threads must still run. Blocks
    /// until then, at most for `within`: a front-end whose memory cannot be mapped may hold up its thread for ever.
    ///
    /// Listening sockets that the daemon created are closed first. A front-end reconnects at once when it is hung up on. In the backlog of a
    /// socket about to close it would wait for as long as the virtqueues drain, and QEMU would stand still with its
    /// guest and monitor. In an upgrade it does wait: the new process has the socket too, and serves it afterwards. A front-end that
    /// was [waiting](Self::waiting) for another one is hung up on in any case.
    pub(crate) fn shutdown(servers: Vec<Self>, within: Duration) {
        for Self { shared, .. } in &servers {
            shared.stage.send_replace(Stage::Ending);
            drop(shared.listening().take());
            let mut connections = shared.connections();
            connections.waiting = None;
            if let Some(connection) = &connections.served {
                // Fails only if the front-end hung up first.
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        let deadline = Instant::now() + within;
        for Self { shared, running } in servers {
            let left = deadline.saturating_duration_since(Instant::now());
            if running.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                let disk = shared.disk.disk().name();
                tracing::error!(disk, "the thread of a front-end does not end; its virtqueues are given up");
            }
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        *self.stage.borrow() == Stage::Ending
    }

    fn listening(&self) -> MutexGuard<'_, Option<Arc<ListeningSocket>>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: &Arc<Self>) {
        if !self.opened().await {
            return;
        }
        loop {
            let waited = self.wait().await;
            if matches!(waited, Ok(false)) {
                return;
            }
            let error = match (waited, self.work_on_thread().await) {
                (_, Ok(Next::End)) => return,
                (Ok(_), Ok(Next::Wait)) => continue,
                (_, Ok(Next::Rest)) => {
                    let mut stage = self.stage.subscribe();
                    tokio::select! {
                        () = sleep(REST) => {}
                        _ = stage.wait_for(|stage| *stage == Stage::Ending) => {}
                    }
                    continue;
                }
                // A thread has looked meanwhile, and will again.
                (Err(error), Ok(Next::Wait)) | (_, Err(error)) => error,
            };
            let disk = self.disk.disk().name();
            tracing::warn!(disk, %error, "cannot serve front-ends on the vhost-user socket; trying again");
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Waits until the disk is opened. Returns `false` at the end, or if the only front-end leaves before.
    async fn opened(&self) -> bool {
        let only = self.connections().waiting.as_ref().and_then(|(stream, _)| stream.try_clone().ok());
        let only_leaves = async {
            match &only {
                Some(stream) if becomes(stream.as_fd(), Ready::is_read_closed).await.is_ok() => {}
                // One that cannot be watched is found to have left when it is served.
                _ => pending().await,
            }
        };
        let mut stage = self.stage.subscribe();
        tokio::select! {
            stage = stage.wait_for(|stage| *stage > Stage::Closed) => stage.is_ok_and(|stage| *stage == Stage::Open),
            () = only_leaves => false,
        }
    }

    /// Waits until a thread has something to do, perhaps for nothing. Returns `false` at the end, if no front-end is
    /// connected.
    async fn wait(&self) -> io::Result<bool> {
        if let Some(connection) = &*self.connected.lock().await {
            let [socket, alarm] = connection.wakers();
            return tokio::select! {
                readable = becomes(socket, Ready::is_readable) => readable,
                readable = becomes(alarm, Ready::is_readable) => readable,
            }
            .map(|()| true);
        }
        // `shutdown` drops the socket, so only this handle is held.
        let listener = self.listening().as_ref().map(|socket| socket.listener());
        let Some(listener) = listener.transpose()? else { return Ok(!self.is_ending()) };
        let mut stage = self.stage.subscribe();
        tokio::select! {
            readable = becomes(listener.as_fd(), Ready::is_readable) => readable.map(|()| true),
            _ = stage.wait_for(|stage| *stage == Stage::Ending) => Ok(false),
        }
    }

    /// [Works](Self::work) on a thread of its own.
    async fn work_on_thread(self: &Arc<Self>) -> io::Result<Next> {
        let (report, goes_on) = oneshot::channel();
        let shared = Arc::clone(self);
        thread::Builder::new().name("vhost-user".into()).spawn(move || {
            let worked = restrict_thread(ThreadKind::FrontEnd).map_err(io::Error::other).and_then(|()| shared.work());
            // The files of a removed disk are closed by the task, which may do so.
            drop(shared);
            // The task waits, except at the end of its runtime.
            let _ = report.send(worked);
        })?;
        goes_on.await.map_err(io::Error::other)?
    }

    /// Serves the connected front-end and then the next ones, until there is nothing to do.
    fn work(&self) -> io::Result<Next> {
        let mut connected = self.connected.blocking_lock();
        loop {
            if let Some(connection) = connected.take() {
                match connection.serve(QUIET) {
                    Continue(quiet) => {
                        *connected = Some(quiet);
                        return Ok(Next::Wait);
                    }
                    Break(end) => {
                        let rests = matches!(end, Err(ServeError::Blocked));
                        self.left(end);
                        if rests {
                            return Ok(Next::Rest);
                        }
                    }
                }
            }
            let waited = self.connections().waiting.take();
            if self.is_ending() {
                return Ok(Next::End);
            }
            let next = if let Some((stream, _)) = waited {
                Some(stream)
            } else {
                let listener = self.listening().as_ref().map(|socket| socket.listener());
                let Some(listener) = listener.transpose()? else { return Ok(Next::End) };
                accept(&listener)?
            };
            // Else another process on the same socket was quicker, or the front-end has gone.
            let Some(stream) = next else { return Ok(Next::Wait) };
            *connected = self.begin(stream)?;
        }
    }

    /// Begins to serve a front-end. Returns `None` at the end, and if it is lost at once.
    fn begin(&self, stream: UnixStream) -> io::Result<Option<FrontEndConnection<'static>>> {
        let disk = self.disk.disk();
        let hang_up = stream.try_clone()?;
        {
            let mut connections = self.connections();
            // A `stop_accepting` before this line did not see this connection. One after it does.
            if self.is_ending() {
                return Ok(None);
            }
            connections.served = Some(hang_up);
        }
        let pid = peer_pid(&stream);
        disk.front_end_came(pid);
        let of_process = pid.map(|pid| format!(", process {pid}"));
        disk.event(EventKind::FrontEndConnected, format!("front-end connected{}", of_process.unwrap_or_default()));
        // Writes of an earlier daemon or front-end may still be executed and must not overwrite this one's. Requests
        // wait in the meantime, but messages are answered: QEMU and its guest stand still while QEMU waits for an
        // answer.
        let threads = self.disk.subsystem.threads().len();
        self.disk.subsystem.change_disk(disk.id, |disk| disk.hold.front_end_connected(threads));
        let connection = FrontEndConnection::new(stream, self.disk.frontend_disk(), Box::new(self.disk.clone()));
        Ok(connection.map_err(|error| self.left(Err(error))).ok())
    }

    /// The front-end has left, or was lost.
    fn left(&self, end: Result<(), ServeError>) {
        let disk = self.disk.disk();
        self.connections().served = None;
        if let Err(error @ (ServeError::UnknownMessage(_) | ServeError::Message { .. })) = &end {
            tracing::warn!(disk = disk.name(), %error, "hung up on the front-end");
        }
        let message = match end {
            Ok(()) => "front-end disconnected".into(),
            Err(error) => format!("front-end lost: {error}"),
        };
        // Before a client sees that the front-end has left, and removes the disk.
        disk.event(EventKind::FrontEndDisconnected, message);
        disk.front_end_left();
    }
}

/// Whether the front-end has closed its connection.
fn has_hung_up(connection: &UnixStream) -> bool {
    let mut events = [PollFd::new(connection, PollFlags::RDHUP)];
    poll(&mut events, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use mpath_api::types::Origin;
    use mpath_core::DiskId;
    use patience::eventually;
    use reactor::IoThreadHandle;
    use vhost::VhostBackend;
    use vhost::vhost_user::Frontend;

    use super::*;
    use crate::disk::geometry;
    use crate::disk_files::fence_record::FenceRecords;
    use crate::subsystem::Subsystem;
    use crate::subsystem::shared_context::SharedContext;

    /// Blocks the I/O threads so that the disk cannot settle.
    #[test]
    fn many_front_ends_during_writes_in_doubt_cause_one_suspension() {
        let subsystem = subsystem();
        let shared = Shared {
            disk: ServedDisk { subsystem: Arc::clone(&subsystem), id: DiskId(0) },
            stage: watch::Sender::new(Stage::Open),
            listening: Mutex::default(),
            connections: Mutex::default(),
            connected: tokio::sync::Mutex::default(),
        };
        // Each I/O thread that has not settled has one.
        let references = || Arc::strong_count(&subsystem);
        let before = references();
        for _ in 0..2 {
            let hold_up = |thread: &IoThreadHandle| {
                let (go_on, held_up) = mpsc::channel::<()>();
                thread.barrier(Box::new(move || {
                    let _ = held_up.recv();
                }));
                go_on
            };
            let held_up: Vec<_> = subsystem.threads().iter().map(hold_up).collect();
            for _ in 0..1000 {
                let (ours, theirs) = UnixStream::pair().unwrap();
                drop(theirs);
                shared.connections().waiting = Some((ours, 0));
                assert_eq!(shared.work().unwrap(), Next::End);
                assert_eq!(references(), before + 2);
            }
            drop(held_up);
            eventually("the disk goes on", || references() == before);
        }
        end_threads(&subsystem);
    }

    /// A lock stands for memory that cannot be mapped, and whatever else may take for ever.
    #[tokio::test]
    async fn a_front_end_that_hangs_holds_up_neither_another_nor_the_end() {
        let subsystems = [(); 2].map(|()| subsystem());
        let (servers, front_ends): (Vec<_>, Vec<_>) = subsystems.iter().map(server).unzip();
        let front_ends = tokio::task::spawn_blocking(move || {
            let hangs = subsystems[0].disks[0].driver();
            servers.iter().for_each(FrontendServer::open);
            let [hanging, other] = <[Frontend; 2]>::try_from(front_ends).ok().unwrap();
            let asks = thread::spawn(move || hanging.get_features().is_err());
            assert!(other.get_features().is_ok());
            eventually("its thread hangs", || servers[0].shared.connections().served.is_some());
            FrontendServer::shutdown(servers, Duration::from_millis(10));
            assert!(asks.join().unwrap(), "it is hung up on");
            assert!(Arc::strong_count(&subsystems[0]) > 1, "it hangs");
            drop(hangs);
            for subsystem in &subsystems {
                eventually("nothing is left", || Arc::strong_count(subsystem) == 1);
                end_threads(subsystem);
            }
        });
        front_ends.await.unwrap();
    }

    fn subsystem() -> Arc<Subsystem> {
        let place = tempfile::tempdir().unwrap();
        let (records, _) = FenceRecords::open([place.path().join("socket").as_path()].into_iter()).unwrap();
        let (_shutdown, ends) = watch::channel(false);
        let config = geometry::tests::config();
        let subsystem = Arc::new(Subsystem::new(config, &SharedContext::of_test(2), records, None, ends));
        subsystem.state().insert("tcp://127.0.0.1:1".parse().unwrap(), Origin::Operator);
        assert!(subsystem.admit(&geometry::tests::controller())[0].is_ok());
        subsystem
    }

    /// A server, and its only front-end.
    fn server(subsystem: &Arc<Subsystem>) -> (FrontendServer, Frontend) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let disk = ServedDisk { subsystem: Arc::clone(subsystem), id: DiskId(0) };
        let server = FrontendServer::start(disk, FrontendSource::Connected(ours, oneshot::channel().0));
        (server, Frontend::from_stream(theirs, 1))
    }

    fn end_threads(subsystem: &Subsystem) {
        for thread in subsystem.threads() {
            thread.begin_shutdown();
            thread.join();
        }
    }
}
