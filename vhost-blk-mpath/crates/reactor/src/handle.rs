//! Starting an I/O thread and talking to it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use mpath_core::{
    AnaState, Association, ClassPolicies, DiskId, Epoch, FlowId, Group, GroupStats, Hedging, Injection, OpClass,
    PathId, SchedulerSpec,
};
use nvme_tcp::host::NamespaceLimits;
use vhost_user_blk::Queue;

use crate::io_thread::IoThread;
use crate::message::{Ending, Link, Message, PathEvent};
use crate::ring::{RingError, Uring};
use crate::run;
use crate::unanswered::Unanswered;
use crate::wake::{self, WakeSender};

/// What an I/O thread is made of.
pub struct IoThreadConfig {
    /// Name of the thread, at most 15 bytes shown by the kernel.
    pub name: String,
    /// Its multipath group. Paths may be added to it before, or by [`IoThreadHandle::add_path`].
    pub group: Group,
    /// Called from the I/O thread; must not block.
    pub report: Box<dyn Fn(PathEvent) + Send>,
}

/// Why an I/O thread could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// No thread or no eventfd.
    #[error("I/O thread cannot be started: {0}")]
    Thread(#[from] io::Error),
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// A running I/O thread.
pub struct IoThreadHandle {
    inbox: WakeSender<Message>,
    thread: Mutex<Option<JoinHandle<bool>>>,
}

impl IoThreadHandle {
    /// Starts the thread; returns when its ring is set up, so that a limit is reported here and not under load.
    pub fn start(config: IoThreadConfig) -> Result<Self, StartError> {
        let (inbox, receiver) = wake::channel()?;
        let (ready, started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(config.name).spawn(move || {
            // To unwind would unmap guest memory that the kernel still writes to, and leave guests waiting for ever.
            let _guard = AbortOnUnwind;
            // The ring belongs to the thread that makes it (IORING_SETUP_SINGLE_ISSUER).
            let ring = Uring::new().map_err(StartError::from).and_then(|mut ring| {
                run::watch(&mut ring, &receiver)?;
                Ok(ring)
            });
            match ring {
                Ok(ring) => {
                    drop(ready.send(Ok(())));
                    run::run(IoThread::new(ring, config.group, config.report), &receiver)
                }
                Err(error) => {
                    drop(ready.send(Err(error)));
                    false
                }
            }
        })?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { inbox, thread: Mutex::new(Some(thread)) }),
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => Err(StartError::Thread(io::Error::other("the thread ended while starting"))),
        }
    }

    /// Serves a virtqueue of a disk from now on, under a name that no other has. Gives it back if the thread has ended.
    pub fn start_queue(&self, disk: DiskId, flow: FlowId, queue: Queue) -> Result<(), Box<Queue>> {
        self.inbox.send(Message::StartQueue { disk, flow, queue: Box::new(queue) }).map_err(|message| match message {
            Message::StartQueue { queue, .. } => queue,
            _ => unreachable!("a message comes back as it went"),
        })
    }

    /// Drains a virtqueue, for a bounded time: what has not completed after that is given up without an answer.
    pub fn begin_stop(&self, flow: FlowId) -> StoppingQueue {
        let (reply, drained) = mpsc::sync_channel(1);
        self.send(Message::StopQueue { flow, reply });
        StoppingQueue(drained)
    }

    /// The same, and waits for it.
    pub fn stop_queue(&self, flow: FlowId) -> Option<Queue> {
        self.begin_stop(flow).wait()
    }

    /// Calls back when no write that was given up with a virtqueue of the disk can be executed any more, so that what is written
    /// from then on stays: when the fences of the associations it was sent under are lifted. Drops the callback when the thread
    /// ends before; nothing is written then.
    pub fn when_settled(&self, disk: DiskId, settled: Box<dyn FnOnce() + Send>) {
        self.send(Message::WhenSettled { disk, settled });
    }

    /// Tells what a disk is called in the log, and what a block of it is, 512 to 65536 bytes: before its first virtqueue, and before a path
    /// that leads to it is up. `unanswered` is for all of its I/O threads.
    pub fn add_disk(&self, disk: DiskId, name: Arc<str>, block_size_bytes: u32, unanswered: Arc<Unanswered>) {
        self.send(Message::AddDisk { disk, name, block_size_bytes, unanswered });
    }

    /// Takes nothing from the virtqueues of a disk before that time: writes of somebody else may still change what they would.
    pub fn hold_disk(&self, disk: DiskId, until: Instant) {
        self.send(Message::HoldDisk { disk, until });
    }

    /// Takes nothing from the virtqueues of a disk before [`Self::resume_disk`] was called as often as this.
    pub fn suspend_disk(&self, disk: DiskId) {
        self.send(Message::SuspendDisk(disk));
    }

    /// Ends one [`Self::suspend_disk`].
    pub fn resume_disk(&self, disk: DiskId) {
        self.send(Message::ResumeDisk(disk));
    }

    /// Adds a path, down at first. See [`Group::add_path`] for what [`Self::path_up`] has to wait for.
    pub fn add_path(&self, path: PathId) {
        self.send(Message::AddPath(path));
    }

    /// Removes a path whose queue pair is closed and of which the statistics show nothing in flight, fenced or to be flushed. See
    /// [`Group::remove_path`].
    pub fn remove_path(&self, path: PathId) {
        self.send(Message::RemovePath(path));
    }

    /// Adds this thread's queue pair of a path.
    pub fn path_up(&self, path: PathId, association: Association, link: Link) {
        self.send(Message::PathUp { path, association, link: Box::new(link) });
    }

    /// Closes the queue pair of a path. [`crate::PathEventKind::Closed`] is reported when that has happened, unless it was
    /// reported before.
    pub fn path_down(&self, path: PathId, epoch: Epoch, ending: Ending) {
        self.send(Message::PathDown { path, epoch, ending });
    }

    /// Lets go of the mutating requests whose fate under this association was unknown.
    pub fn fence_lifted(&self, path: PathId, epoch: Epoch) {
        self.send(Message::FenceLifted { path, epoch });
    }

    /// Tells a path's queue pair of a disk's namespace that can be used there from now on. Its ANA state is told next.
    pub fn add_namespace(&self, path: PathId, epoch: Epoch, disk: DiskId, limits: NamespaceLimits) {
        self.send(Message::AddNamespace { path, epoch, disk, limits });
    }

    /// Tells the ANA state of a disk's namespace on a path.
    pub fn ana_changed(&self, path: PathId, epoch: Epoch, disk: DiskId, state: AnaState) {
        self.send(Message::Ana { path, epoch, disk, state });
    }

    /// Sets the policies of the very next request. See [`Group::set_policy`].
    pub fn set_policy(&self, policies: ClassPolicies) {
        self.send(Message::SetPolicy(Box::new(policies)));
    }

    /// Sets the scheduler of the very next request. See [`Group::set_scheduler`].
    pub fn set_scheduler(&self, scheduler: SchedulerSpec) {
        self.send(Message::SetScheduler(Box::new(scheduler)));
    }

    /// Sets a disk's part of the service beside others. See [`Group::set_weight`].
    pub fn set_weight(&self, disk: DiskId, weight: u16) {
        self.send(Message::SetWeight { disk, weight });
    }

    /// Tells whether a path may come back; if not, requests fail while none is live.
    pub fn set_paths_expected(&self, expected: bool) {
        self.send(Message::SetPathsExpected(expected));
    }

    /// Changes how slow reads are hedged. See [`Group::set_hedging`].
    pub fn set_hedging(&self, hedging: Option<Hedging>) {
        self.send(Message::SetHedging(hedging));
    }

    /// Impairs a path. See [`Group::set_injection`].
    pub fn set_injection(&self, path: PathId, class: Option<OpClass>, injection: Injection) {
        self.send(Message::SetInjection { path, class, injection });
    }

    /// Stops impairing a path. See [`Group::clear_injection`].
    pub fn clear_injection(&self, path: PathId) {
        self.send(Message::ClearInjection(path));
    }

    /// Gives a path no new requests, or does so again. See [`Group::set_draining`].
    pub fn set_draining(&self, path: PathId, draining: bool) {
        self.send(Message::SetDraining { path, draining });
    }

    /// Has `reached` called, from the I/O thread, when everything it was told before has been carried out. Not called if the
    /// thread has ended.
    pub fn barrier(&self, reached: Box<dyn FnOnce() + Send>) {
        self.send(Message::Barrier(reached));
    }

    /// Has `reply` called, from the I/O thread, with a copy of its statistics. Not called if the thread has ended.
    pub fn stats(&self, reply: Box<dyn FnOnce(GroupStats) + Send>) {
        self.send(Message::Stats(reply));
    }

    /// Tells the thread to give its virtqueues back within a moment, to close everything and to end.
    pub fn begin_shutdown(&self) {
        self.send(Message::Shutdown);
    }

    /// Waits for the end of the thread: whether it gave up writes that may still be executed.
    pub fn join(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.is_some_and(|thread| thread.join().expect("a panic aborts the process"))
    }

    fn send(&self, message: Message) {
        // A thread that has ended serves nothing, and its messages have no effect.
        drop(self.inbox.send(message));
    }
}

/// A thread that nobody has a handle of any more is of no use.
impl Drop for IoThreadHandle {
    fn drop(&mut self) {
        self.begin_shutdown();
    }
}

/// A virtqueue on its way back from an I/O thread.
pub struct StoppingQueue(mpsc::Receiver<Option<Queue>>);

impl StoppingQueue {
    /// Waits until it is here. `None` if the thread did not have it, or has ended.
    #[must_use]
    pub fn wait(self) -> Option<Queue> {
        self.0.recv().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpath_core::{GroupConfig, PathConfig, PolicyKind, SharedDisk};

    use super::*;
    use crate::testing::{DISK, FLOW, Guest};

    /// A thread with one path, which is down.
    fn start() -> IoThreadHandle {
        let mut group = Group::new(Instant::now(), GroupConfig::default(), &[SharedDisk::default()]);
        group.add_path(PathId(0), PathConfig::default());
        let report = Box::new(|_: PathEvent| {});
        let thread = IoThreadHandle::start(IoThreadConfig { name: "io-test".into(), group, report }).unwrap();
        thread.add_disk(DISK, "disk".into(), 4096, Arc::new(Unanswered::new(0, Instant::now())));
        thread
    }

    fn stats(thread: &IoThreadHandle) -> GroupStats {
        let (reply, stats) = mpsc::channel();
        thread.stats(Box::new(move |stats| reply.send(stats).unwrap()));
        stats.recv().unwrap()
    }

    #[test]
    fn messages_are_carried_out_in_order() {
        let thread = start();
        thread.set_policy(PolicyKind::Numa.into());
        assert_eq!(stats(&thread).policy, PolicyKind::Numa.into());
        let injection = Injection::latency(Duration::from_millis(1));
        thread.set_injection(PathId(0), None, injection);
        assert_eq!(stats(&thread).paths[0].injections, 1);
        thread.clear_injection(PathId(0));
        assert_eq!(stats(&thread).paths[0].injections, 0);
        thread.add_path(PathId(5));
        assert_eq!(stats(&thread).paths.len(), 2);
        thread.remove_path(PathId(0));
        assert!(stats(&thread).path(PathId(0)).is_none() && stats(&thread).path(PathId(5)).is_some());
        let (reply, reached) = mpsc::channel();
        thread.barrier(Box::new(move || reply.send(()).unwrap()));
        reached.recv().unwrap();
        let (reply, settled) = mpsc::channel();
        thread.when_settled(DISK, Box::new(move || reply.send(()).unwrap()));
        settled.recv().unwrap();
        thread.begin_shutdown();
        thread.join();
    }

    #[test]
    fn a_thread_that_has_ended_takes_nothing_and_answers_nothing() {
        let thread = start();
        thread.begin_shutdown();
        thread.join();
        thread.join();
        let (reply, reached) = mpsc::channel::<()>();
        thread.barrier(Box::new(move || reply.send(()).unwrap()));
        assert!(reached.recv().is_err());
        assert!(thread.stop_queue(FLOW).is_none());
        let (reply, settled) = mpsc::channel::<()>();
        thread.when_settled(DISK, Box::new(move || reply.send(()).unwrap()));
        assert!(settled.recv().is_err());
        let queue = Guest::new().queue();
        assert_eq!(thread.start_queue(DISK, FLOW, queue).unwrap_err().index(), 0);
    }

    #[test]
    fn an_idle_virtqueue_comes_and_goes() {
        let (thread, guest) = (start(), Guest::new());
        assert!(thread.stop_queue(FLOW).is_none());
        let mut queue = guest.queue();
        for _ in 0..3 {
            thread.start_queue(DISK, FLOW, queue).unwrap();
            queue = thread.stop_queue(FLOW).unwrap();
            assert_eq!(queue.outstanding(), 0);
        }
        thread.begin_shutdown();
        thread.join();
    }

    #[test]
    fn nothing_is_taken_from_a_disk_that_is_held() {
        const HELD: Duration = Duration::from_millis(300);
        let (thread, mut guest) = (start(), Guest::new());
        let start = Instant::now();
        thread.hold_disk(DISK, start + HELD);
        guest.write(0, 4096);
        thread.start_queue(DISK, FLOW, guest.queue()).unwrap();
        guest.read(0, 4096);
        guest.kick();
        // A virtqueue that is held stops at once, with all that is in it.
        let queue = thread.stop_queue(FLOW).unwrap();
        assert_eq!(queue.outstanding(), 0);
        thread.start_queue(DISK, FLOW, queue).unwrap();
        // No kick is needed after that time.
        while stats(&thread).queued < 2 {
            assert!(start.elapsed() < Duration::from_secs(20), "fetched");
        }
        assert!(start.elapsed() >= HELD, "{:?}", start.elapsed());
        thread.begin_shutdown();
        thread.join();
    }

    #[test]
    fn nothing_is_taken_from_a_disk_until_all_have_resumed_it() {
        let (thread, mut guest) = (start(), Guest::new());
        guest.write(0, 4096);
        thread.suspend_disk(DISK);
        thread.suspend_disk(DISK);
        thread.start_queue(DISK, FLOW, guest.queue()).unwrap();
        thread.resume_disk(DISK);
        guest.kick();
        for _ in 0..10 {
            assert_eq!(stats(&thread).queued, 0);
        }
        thread.resume_disk(DISK);
        let start = Instant::now();
        while stats(&thread).queued < 1 {
            assert!(start.elapsed() < Duration::from_secs(20), "fetched");
        }
        thread.begin_shutdown();
        thread.join();
    }

    #[test]
    fn requests_wait_for_a_path_and_the_end_does_not_wait_for_them() {
        let (thread, mut guest) = (start(), Guest::new());
        // Before, and after, the thread has the virtqueue.
        guest.write(0, 4096);
        thread.start_queue(DISK, FLOW, guest.queue()).unwrap();
        guest.read(0, 4096);
        guest.kick();
        let start = Instant::now();
        while stats(&thread).queued < 2 {
            assert!(start.elapsed() < Duration::from_secs(20), "fetched");
        }
        let start = Instant::now();
        thread.begin_shutdown();
        // The front-end, hung up on, wants its virtqueue back: that does not make the end any later.
        if let Some(queue) = thread.stop_queue(FLOW) {
            assert_eq!(queue.outstanding(), 2);
        }
        thread.join();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert!(guest.results().is_empty());
    }
}
