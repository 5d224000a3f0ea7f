//! Sends messages to the part of a path set in an I/O thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use monotonic::Instant;
use mpath_core::{
    Association, ClassPolicies, DiskId, FlowId, GroupStats, Hedging, Injection, MinuteStats, OpClass, PathId,
    SchedulerSpec, SlowRequest,
};
use mpath_lifecycle::ThreadMessage as PathMessage;
use vhost_user_blk::Queue;

use crate::disk_queues::DiskQueues;
use crate::io_thread_control::IoThreadControl;
use crate::shutdown::ThreadsShutdown;
use crate::thread_explanation::ThreadExplanation;
use crate::thread_message::{SetId, ThreadMessage};
use crate::{ConnectedQueuePair, IoThreadMessage};

/// The part of a path set in one I/O thread.
pub struct IoThreadHandle {
    thread: Arc<IoThreadControl>,
    set: SetId,
    has_ended: Arc<AtomicBool>,
    /// Whether writes that were given up may still be executed, once it has ended.
    end: Mutex<Option<mpsc::Receiver<bool>>>,
}

impl IoThreadHandle {
    pub(crate) fn new(
        thread: Arc<IoThreadControl>,
        set: SetId,
        has_ended: Arc<AtomicBool>,
        end: mpsc::Receiver<bool>,
    ) -> Self {
        Self { thread, set, has_ended, end: Mutex::new(Some(end)) }
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &IoThreadControl {
        &self.thread
    }

    /// Serves a virtqueue of a disk as `flow`, a name that no other virtqueue has. `queues` is the record of the disk. Returns the
    /// virtqueue if the thread has ended.
    pub fn start_queue(&self, queues: &DiskQueues, disk: DiskId, flow: FlowId, queue: Queue) -> Result<(), Box<Queue>> {
        queues.begin_start();
        let queue = Box::new(queue);
        if self.has_ended.load(Ordering::Acquire) {
            return Err(queue);
        }
        let message = IoThreadMessage::StartQueue { disk, flow, queue };
        self.thread.send(ThreadMessage::ToSet { set: self.set, message }).map_err(|message| match message {
            ThreadMessage::ToSet { message: IoThreadMessage::StartQueue { queue, .. }, .. } => queue,
            _ => unreachable!("a message comes back as it went"),
        })
    }

    /// Begins to drain a virtqueue of the disk with this record. Requests that have not completed after a time limit are given up
    /// without an answer.
    pub fn begin_stop(&self, queues: &DiskQueues, flow: FlowId) -> StoppingQueue {
        let (reply, drained) = mpsc::sync_channel(1);
        self.send(IoThreadMessage::StopQueue { flow, drain: queues.begin_stop(Instant::now()), reply });
        StoppingQueue(drained)
    }

    /// Calls back when the disk is settled: the fences are lifted, so that no request that was given up can overwrite
    /// later writes. If the thread ends first, it drops the callback, because it executes no later writes.
    pub fn when_settled(&self, disk: DiskId, settled: Box<dyn FnOnce() + Send>) {
        self.send(IoThreadMessage::WhenSettled { disk, settled });
    }

    /// Sets a disk's name in the log and its block size, 512 to 65536 bytes. Call this before its first virtqueue
    /// starts, and before a path to it is up. All I/O threads of the disk share `queues`.
    pub fn add_disk(&self, disk: DiskId, name: Arc<str>, block_size_bytes: u32, queues: Arc<DiskQueues>) {
        self.send(IoThreadMessage::AddDisk { disk, name, block_size_bytes, queues });
    }

    /// Takes nothing from the virtqueues of a disk before `until`: writes of an earlier daemon may still change its
    /// data.
    pub fn hold_disk(&self, disk: DiskId, until: Instant) {
        self.send(IoThreadMessage::HoldDisk { disk, until });
    }

    /// Takes nothing from the virtqueues of a disk until [`Self::resume_disk`].
    pub fn suspend_disk(&self, disk: DiskId) {
        self.send(IoThreadMessage::SuspendDisk(disk));
    }

    /// Ends [`Self::suspend_disk`].
    pub fn resume_disk(&self, disk: DiskId) {
        self.send(IoThreadMessage::ResumeDisk(disk));
    }

    /// Adds a path that is down. [`Group::add_path`] says what [`Self::path_up`] has to wait for.
    pub fn add_path(&self, path: PathId) {
        self.send(IoThreadMessage::AddPath(path));
    }

    /// Adds this thread's queue pair of a path.
    pub fn path_up(&self, path: PathId, association: Association, link: ConnectedQueuePair) {
        self.send(IoThreadMessage::PathUp { path, association, link: Box::new(link) });
    }

    /// Sets the policies, from the next request on. See [`Group::set_policy`].
    pub fn set_policy(&self, policies: ClassPolicies) {
        self.send(IoThreadMessage::SetPolicy(Box::new(policies)));
    }

    /// Sets the scheduler, from the next request on. See [`Group::set_scheduler`].
    pub fn set_scheduler(&self, scheduler: SchedulerSpec) {
        self.send(IoThreadMessage::SetScheduler(Box::new(scheduler)));
    }

    /// Sets the weight of a disk. See [`Group::set_weight`].
    pub fn set_weight(&self, disk: DiskId, weight: u16) {
        self.send(IoThreadMessage::SetWeight { disk, weight });
    }

    /// Sets whether a path may come up. If not, requests fail while no path is live.
    pub fn set_paths_expected(&self, expected: bool) {
        self.send(IoThreadMessage::SetPathsExpected(expected));
    }

    /// Sets how slow reads are hedged. See [`Group::set_hedging`].
    pub fn set_hedging(&self, hedging: Option<Hedging>) {
        self.send(IoThreadMessage::SetHedging(hedging));
    }

    /// Impairs a path. See [`Group::set_injection`].
    pub fn set_injection(&self, path: PathId, class: Option<OpClass>, injection: Injection) {
        self.send(IoThreadMessage::SetInjection { path, class, injection });
    }

    /// Stops impairing a path. See [`Group::clear_injection`].
    pub fn clear_injection(&self, path: PathId) {
        self.send(IoThreadMessage::ClearInjection(path));
    }

    /// Ends one injection of a path. See [`Group::end_injection`].
    pub fn end_injection(&self, path: PathId, class: Option<OpClass>) {
        self.send(IoThreadMessage::EndInjection { path, class });
    }

    /// Stops or resumes new requests to a path. See [`Group::set_draining`].
    pub fn set_draining(&self, path: PathId, draining: bool) {
        self.send(IoThreadMessage::SetDraining { path, draining });
    }

    /// Calls `reached` from the I/O thread when all earlier messages have been carried out. Never calls it if the
    /// thread has ended.
    pub fn barrier(&self, reached: Box<dyn FnOnce() + Send>) {
        self.send(IoThreadMessage::Barrier(reached));
    }

    /// Calls `reply` from the I/O thread with a copy of its statistics. Never calls it if the thread has ended.
    pub fn stats(&self, reply: Box<dyn FnOnce(GroupStats) + Send>) {
        self.send(IoThreadMessage::Stats(reply));
    }

    /// Calls `reply` from the I/O thread with what has happened in this minute. The next one begins if the minute is taken. Never
    /// calls it if the thread has ended.
    pub fn minute(&self, is_taken: bool, reply: Box<dyn FnOnce(MinuteStats) + Send>) {
        self.send(IoThreadMessage::Minute { is_taken, reply });
    }

    /// Calls `reply` from the I/O thread with an explanation for a disk. Never calls it if the thread has ended.
    pub fn explain(&self, disk: DiskId, reply: Box<dyn FnOnce(ThreadExplanation) + Send>) {
        self.send(IoThreadMessage::Explain { disk, reply });
    }

    /// Calls `reply` from the I/O thread with its slowest requests of the last minutes. Never calls it if the thread
    /// has ended.
    pub fn slow_requests(&self, reply: Box<dyn FnOnce(Vec<SlowRequest>) + Send>) {
        self.send(IoThreadMessage::SlowRequests(reply));
    }

    /// Tells the thread to drain its virtqueues for a short time, and then to flush what no flush has covered. The
    /// connections stay.
    pub fn begin_shutdown(&self) {
        self.send(IoThreadMessage::Shutdown);
    }

    /// Ends threads that share associations, and waits for that. Returns whether writes that were given up may still be
    /// executed.
    pub fn end_all(threads: &[Self]) -> bool {
        let post = |thread: usize, message| threads[thread].send(message);
        ThreadsShutdown::begin(threads.len(), post).end(post);
        threads.iter().fold(false, |in_doubt, thread| thread.wait() | in_doubt)
    }

    /// Closes the connections of the thread after its shutdown, and waits for its end. Returns whether writes that were
    /// given up may still be executed.
    pub fn join(&self) -> bool {
        self.send(IoThreadMessage::End);
        self.wait()
    }

    fn wait(&self) -> bool {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A thread that panics aborts the process, so this fails only if the threads have ended before.
        end.is_some_and(|end| end.recv().unwrap_or(false))
    }

    /// Carries out what the control of a path decides.
    pub fn post(&self, message: PathMessage) {
        self.send(IoThreadMessage::Path(message));
    }

    fn send(&self, message: IoThreadMessage) {
        // A part that has ended serves nothing, so a message to it has no effect. Its place may be another one's.
        if !self.has_ended.load(Ordering::Acquire) {
            drop(self.thread.send(ThreadMessage::ToSet { set: self.set, message }));
        }
    }
}

/// Ends the thread: nothing can control it without a handle.
impl Drop for IoThreadHandle {
    fn drop(&mut self) {
        self.begin_shutdown();
        self.send(IoThreadMessage::End);
    }
}

/// A virtqueue that an I/O thread drains.
pub struct StoppingQueue(mpsc::Receiver<Option<Queue>>);

impl StoppingQueue {
    /// Waits for the drained virtqueue. `None` if the thread did not have it, or has ended.
    #[must_use]
    pub fn wait(self) -> Option<Queue> {
        // The ring of the I/O thread reports each kick, so none was taken from the eventfd. The front-end would take them for new ones.
        self.0.recv().ok().flatten().inspect(Queue::clear_kick)
    }
}

#[cfg(test)]
mod tests {

    use monotonic::Duration;
    use mpath_core::{Group, GroupConfig, PathConfig, PolicyKind, SharedDisk};

    use super::*;
    use crate::testing::{DISK, FLOW, Guest, eventually, start_queue, start_thread, stop_queue};

    /// A thread with one path, which is down.
    fn start() -> IoThreadHandle {
        let mut group = Group::new(Instant::now(), GroupConfig::default(), &[SharedDisk::default()]);
        group.add_path(PathId(0), PathConfig::default());
        start_thread(group, Duration::ZERO, drop)
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
        thread.post(PathMessage::RemovePath(PathId(0)));
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
    fn a_thread_that_has_ended_takes_and_answers_nothing() {
        let thread = start();
        thread.begin_shutdown();
        thread.join();
        thread.join();
        let (reply, reached) = mpsc::channel::<()>();
        thread.barrier(Box::new(move || reply.send(()).unwrap()));
        assert!(reached.recv().is_err());
        assert!(stop_queue(&thread).is_none());
        let (reply, settled) = mpsc::channel::<()>();
        thread.when_settled(DISK, Box::new(move || reply.send(()).unwrap()));
        assert!(settled.recv().is_err());
        let queue = Guest::new().queue();
        assert_eq!(start_queue(&thread, FLOW, queue).unwrap_err().index(), 0);
    }

    #[test]
    fn an_idle_virtqueue_starts_and_stops() {
        let (thread, guest) = (start(), Guest::new());
        assert!(stop_queue(&thread).is_none());
        let mut queue = guest.queue();
        for _ in 0..3 {
            start_queue(&thread, FLOW, queue).unwrap();
            queue = stop_queue(&thread).unwrap();
            assert_eq!(queue.outstanding(), 0);
        }
        thread.begin_shutdown();
        thread.join();
    }

    /// At its end, a daemon takes virtqueues from their front-ends. They are drained when it hangs up.
    #[test]
    fn a_virtqueue_that_the_shutdown_has_ended_comes_back() {
        let (thread, guest) = (start(), Guest::new());
        start_queue(&thread, FLOW, guest.queue()).unwrap();
        let shutdown = ThreadsShutdown::begin(1, |_, message| thread.send(message));
        eventually("the virtqueue is drained", || shutdown.is_flushed());
        assert_eq!(stop_queue(&thread).unwrap().outstanding(), 0);
        assert!(stop_queue(&thread).is_none(), "it comes back once");
        thread.join();
    }

    #[test]
    fn nothing_is_taken_from_a_disk_that_is_held() {
        const HELD: Duration = Duration::from_millis(300);
        let (thread, mut guest) = (start(), Guest::new());
        let start = Instant::now();
        thread.hold_disk(DISK, start + HELD);
        guest.write(0, 4096);
        start_queue(&thread, FLOW, guest.queue()).unwrap();
        guest.read(0, 4096);
        guest.kick();
        // A held virtqueue stops at once, with all its requests in the ring.
        let queue = stop_queue(&thread).unwrap();
        assert_eq!(queue.outstanding(), 0);
        start_queue(&thread, FLOW, queue).unwrap();
        // Once that time has passed, the thread needs no kick.
        while stats(&thread).queued < 2 {
            assert!(start.elapsed() < Duration::from_secs(20), "fetched");
        }
        assert!(start.elapsed() >= HELD, "{:?}", start.elapsed());
        thread.begin_shutdown();
        thread.join();
    }

    #[test]
    fn nothing_is_taken_from_a_suspended_disk() {
        let (thread, mut guest) = (start(), Guest::new());
        guest.write(0, 4096);
        thread.suspend_disk(DISK);
        start_queue(&thread, FLOW, guest.queue()).unwrap();
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
    fn requests_wait_for_a_path_and_shutdown_does_not_wait_for_them() {
        let (thread, mut guest) = (start(), Guest::new());
        // One request before the thread has the virtqueue, and one after.
        guest.write(0, 4096);
        start_queue(&thread, FLOW, guest.queue()).unwrap();
        guest.read(0, 4096);
        guest.kick();
        let start = Instant::now();
        while stats(&thread).queued < 2 {
            assert!(start.elapsed() < Duration::from_secs(20), "fetched");
        }
        let start = Instant::now();
        thread.begin_shutdown();
        // The front-end, hung up on, wants its virtqueue back. That must not delay the end.
        assert_eq!(stop_queue(&thread).unwrap().outstanding(), 2);
        thread.join();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert!(guest.results().is_empty());
    }
}
