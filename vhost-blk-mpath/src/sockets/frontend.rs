//! Decides: a front-end waits for a path (`wait_until_opened`).
//! Decides: the I/O thread of a virtqueue is told to stop (`stop`).
//!
//! The vhost-user side of one disk: its socket, and its virtqueues on their way to the I/O threads.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, iter};

use mpath_api::types::EventKind;
use mpath_api_server::socket::{ListeningSocket, accept, peer_pid};
use mpath_config::PolicyChange;
use mpath_core::{DiskId, FlowId};
use reactor::{IoThreadHandle, StoppingQueue};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::retry_on_intr;
use sandbox::{ThreadKind, restrict_thread};
use tokio::sync::oneshot;
use vhost_user_blk::{Queue, QueueRunner, ServeError, SetPolicyError, VirtioDisk, serve_connection};

use crate::disk::Disk;
use crate::disk::front_ends::WaitingFrontEnd;
use crate::sockets::frontend_source::FrontendSource;
use crate::subsystem::{PolicySetBy, Subsystem, vendor_window};

/// How long to wait after accepting has failed, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A disk with a known namespace, as the vhost-user side uses it.
pub(crate) struct ServedDisk {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) id: DiskId,
}

impl ServedDisk {
    fn disk(&self) -> &Disk {
        self.subsystem.disk(self.id)
    }

    fn frontend_disk(&self) -> &Arc<VirtioDisk> {
        &self.disk().backing().expect("its namespace is known").frontend
    }

    /// The I/O thread of a virtqueue that runs.
    fn thread(&self, flow: FlowId) -> &IoThreadHandle {
        // No thread gives a virtqueue back that does not run.
        let thread = self.subsystem.virtqueues().thread_of(flow).unwrap_or(0);
        &self.subsystem.threads()[thread]
    }
}

impl QueueRunner for ServedDisk {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        let flow = self.disk().flow(queue.index());
        let thread = self.subsystem.virtqueues().start(self.id, queue.index(), flow);
        let started = self.subsystem.threads()[thread].start_queue(&self.disk().queues, self.id, flow, queue);
        started.map_err(|queue| {
            self.subsystem.virtqueues().stopped(flow);
            *queue
        })
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        let flows: Vec<_> = indices.iter().map(|&index| self.disk().flow(index)).collect();
        let begin = |&flow: &FlowId| self.thread(flow).begin_stop(&self.disk().queues, flow);
        let stopping: Vec<_> = flows.iter().map(begin).collect();
        let stopped = stopping.into_iter().map(StoppingQueue::wait).collect();
        for flow in flows {
            self.subsystem.virtqueues().stopped(flow);
        }
        stopped
    }

    fn set_policy(&self, id: u16) -> Result<(), SetPolicyError> {
        if self.id != DiskId(0) {
            return Err(SetPolicyError::OwnedByOtherDisk);
        }
        let kind = vendor_window::policy(id).ok_or(SetPolicyError::Unknown(id))?;
        let change = PolicyChange::new(kind, None, []).expect("there is no parameter to be wrong");
        // The front-end is blocked until it gets an answer, so do not wait for the I/O threads.
        self.subsystem.change(self.id, |live| live.policy.change(&change), PolicySetBy::FrontEnd);
        Ok(())
    }
}

/// The thread that serves the vhost-user socket of one disk. It serves one front-end at a time.
pub(crate) struct FrontendThread {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

struct Shared {
    ending: AtomicBool,
    /// The listening socket. `None` at the end, and with the connection of `--fd`.
    listening: Mutex<Option<Arc<ListeningSocket>>>,
    connections: Mutex<Connections>,
    /// Ends a wait for the next front-end, and for the disk.
    wake: OwnedFd,
    /// Readable once front-ends are served.
    opened: OwnedFd,
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

impl FrontendThread {
    /// Starts the thread. A front-end that connects before the disk is [opened](Self::open) waits in the backlog.
    ///
    /// There it is neither refused nor answered, and another daemon may serve it on an activation socket. QEMU stands
    /// still while it waits for an answer, with its guest and monitor. But a QEMU that is refused does not start.
    pub(crate) fn start(disk: ServedDisk, source: FrontendSource) -> io::Result<Self> {
        let eventfd = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (wake, opened) = (eventfd()?, eventfd()?);
        let (listening, only) = match source {
            FrontendSource::Listening(socket) => (Some(Arc::new(socket)), None),
            FrontendSource::Connected(stream, left) => (None, Some((stream, left))),
        };
        let (ending, listening) = (AtomicBool::new(false), Mutex::new(listening));
        let shared = Arc::new(Shared { ending, listening, connections: Mutex::default(), wake, opened });
        let (restricted, is_restricted) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("vhost-user".into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                let result = restrict_thread(ThreadKind::FrontEnd);
                let has_failed = result.is_err();
                // `start` waits.
                let _ = restricted.send(result);
                if !has_failed {
                    shared.run(&disk, only);
                }
            }
        })?;
        is_restricted.recv().map_err(io::Error::other)?.map_err(io::Error::other)?;
        Ok(Self { thread, shared })
    }

    /// Serves front-ends from now on. The disk's namespace must be known, and all checks done.
    pub(crate) fn open(&self) {
        // The eventfd has room for one write.
        let _ = rustix::io::write(&self.shared.opened, &1_u64.to_ne_bytes());
    }

    /// The listening socket. `None` at the end, and with the connection of `--fd`.
    pub(crate) fn listening(&self) -> Option<Arc<ListeningSocket>> {
        self.shared.listening().clone()
    }

    /// The front-end that waits until the connected one has left. Takes it from the backlog of the socket, which does not say which
    /// clients have gone.
    pub(crate) fn waiting(&self) -> Option<WaitingFrontEnd> {
        // The thread serves the next front-end under this lock.
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

    /// Stops all these threads from serving new front-ends. If one is connected, fails with the thread's index and
    /// changes nothing, unless `even_if_connected`.
    pub(crate) fn stop_accepting(threads: &[Self], even_if_connected: bool) -> Result<(), usize> {
        // These locks say who is connected, and a new connection takes one of them first.
        let connections: Vec<_> = threads.iter().map(|thread| thread.shared.connections()).collect();
        if let Some(connected) = connections.iter().position(|of| of.served.is_some())
            && !even_if_connected
        {
            return Err(connected);
        }
        for thread in threads {
            thread.shared.ending.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Hangs up on all these front-ends at once, takes the virtqueues back and ends the threads. The I/O threads must
    /// still run.
    ///
    /// Listening sockets that the daemon created are closed first. A front-end reconnects at once when it is hung up on. In the backlog of a
    /// socket about to close it would wait for as long as the virtqueues drain, and QEMU would stand still with its
    /// guest and monitor. In an upgrade it does wait: the new process has the socket too, and serves it afterwards. A front-end that
    /// was [waiting](Self::waiting) for another one is hung up on in any case.
    pub(crate) fn shutdown(threads: Vec<Self>) {
        for Self { shared, .. } in &threads {
            shared.ending.store(true, Ordering::SeqCst);
            drop(shared.listening().take());
            // The eventfd has room for one write.
            let _ = rustix::io::write(&shared.wake, &1_u64.to_ne_bytes());
            let mut connections = shared.connections();
            connections.waiting = None;
            if let Some(connection) = &connections.served {
                // Fails only if the front-end hung up first.
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        for Self { thread, .. } in threads {
            if thread.join().is_err() {
                tracing::error!("a vhost-user thread has panicked");
            }
        }
    }
}

impl Shared {
    fn run(&self, disk: &ServedDisk, only: Option<(UnixStream, oneshot::Sender<()>)>) {
        match only {
            None => {
                if self.wait_until_opened(disk, None) {
                    self.accept(disk);
                }
            }
            Some((stream, left)) => {
                if self.wait_until_opened(disk, Some(&stream)) {
                    self.serve(disk, stream);
                }
                // Nobody listens when the daemon ends.
                let _ = left.send(());
            }
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    fn listening(&self) -> MutexGuard<'_, Option<Arc<ListeningSocket>>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the disk is opened. Returns `false` at the end, or if the only front-end leaves before.
    fn wait_until_opened(&self, disk: &ServedDisk, only: Option<&UnixStream>) -> bool {
        let mut events = vec![PollFd::new(&self.opened, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
        events.extend(only.map(|stream| PollFd::new(stream, PollFlags::RDHUP)));
        match retry_on_intr(|| poll(&mut events, None)) {
            Ok(_) => !events[0].revents().is_empty(),
            Err(error) => {
                tracing::error!(disk = disk.disk().name(), %error, "cannot wait for front-ends; none is served");
                false
            }
        }
    }

    fn accept(&self, disk: &ServedDisk) {
        loop {
            let waited = self.connections().waiting.take();
            if let Some((stream, _)) = waited.filter(|_| !self.is_ending()) {
                self.serve(disk, stream);
                continue;
            }
            // This thread can remove no files. So `shutdown` drops the socket, and this handle is not held while a
            // front-end is served.
            let Some(listener) = self.listening().as_ref().map(|socket| socket.listener()) else { return };
            let accepted = listener.and_then(|listener| {
                self.wait(&listener)?;
                accept(&listener)
            });
            match accepted {
                Ok(_) if self.is_ending() => return,
                Ok(Some(stream)) => self.serve(disk, stream),
                // Another process on the same socket was quicker, or the front-end has gone.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(disk = disk.disk().name(), %error, "cannot accept a front-end on the vhost-user socket; trying again");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Waits for a front-end or for the end. Another process may use the socket too, so it cannot be shut down to end
    /// the wait.
    fn wait(&self, socket: &UnixListener) -> io::Result<()> {
        let mut events = [PollFd::new(socket, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
        Ok(retry_on_intr(|| poll(&mut events, None)).map(drop)?)
    }

    fn serve(&self, served: &ServedDisk, stream: UnixStream) {
        let disk = served.disk();
        let hang_up = match stream.try_clone() {
            Ok(hang_up) => hang_up,
            Err(error) => {
                tracing::warn!(disk = disk.name(), %error, "cannot serve a front-end: duplicating its connection failed");
                return;
            }
        };
        {
            let mut connections = self.connections();
            // A `stop_accepting` before this line did not see this connection. One after it does.
            if self.is_ending() {
                return;
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
        let threads = served.subsystem.threads().len();
        served.subsystem.change_disk(disk.id, |disk| disk.hold.front_end_connected(threads));
        let end = serve_connection(stream, served.frontend_disk(), served);
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
    use std::time::Instant;

    use mpath_api::types::Origin;
    use tokio::sync::watch;

    use super::*;
    use crate::disk::geometry;
    use crate::disk_files::fence_record::FenceRecords;
    use crate::subsystem::shared_context::SharedContext;

    /// Blocks the I/O threads so that the disk cannot settle.
    #[test]
    fn many_front_ends_during_writes_in_doubt_cause_one_suspension() {
        let place = tempfile::tempdir().unwrap();
        let (records, _) = FenceRecords::open([place.path().join("socket").as_path()].into_iter()).unwrap();
        let common = SharedContext::of_test(2);
        let (_shutdown, ends) = watch::channel(false);
        let subsystem = Arc::new(Subsystem::new(geometry::tests::config(), &common, records, None, ends));
        subsystem.state().insert("tcp://127.0.0.1:1".parse().unwrap(), Origin::Operator);
        assert!(subsystem.admit(&geometry::tests::controller())[0].is_ok());
        let served = ServedDisk { subsystem: Arc::clone(&subsystem), id: DiskId(0) };
        let eventfd = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (wake, opened) = (eventfd(), eventfd());
        let (ending, listening) = (AtomicBool::new(false), Mutex::default());
        let shared = Shared { ending, listening, connections: Mutex::default(), wake, opened };
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
                shared.serve(&served, ours);
                assert_eq!(references(), before + 2);
            }
            drop(held_up);
            let start = Instant::now();
            while references() > before {
                assert!(start.elapsed() < Duration::from_secs(20), "the disk goes on");
                thread::yield_now();
            }
        }
        for thread in subsystem.threads() {
            thread.begin_shutdown();
            thread.join();
        }
    }
}
