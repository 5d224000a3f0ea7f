//! Requests that front-ends leave behind.

use std::io::Read;
use std::sync::mpsc;

use monotonic::Duration;
use mpath_core::{AnaState, AnaStates, Association, Epoch, GroupConfig, PathConfig, SharedDisk, TurnWatch, Waking};
use mpath_lifecycle::ThreadMessage;

use super::*;
use crate::disk_queues::DRAIN_MAX;
use crate::ring::Uring;
use crate::testing::{Controller, DISK, FLOW, Guest};
use crate::{ConnectedQueuePair, IoThreadMessage, SocketCall};

const PATH: PathId = PathId(0);
/// Writes that fit into a virtqueue.
const WRITES: usize = 21;

struct Test {
    now: Instant,
    thread: IoThread<Uring>,
    queues: Arc<DiskQueues>,
}

impl Test {
    /// A thread with one path that was never live.
    fn new() -> Self {
        let now = Instant::now();
        let mut group = Group::new(now, GroupConfig::default(), &[SharedDisk::default()]);
        group.add_path(PATH, PathConfig::default());
        let mut thread = IoThread::new(Uring::new().unwrap(), group, Box::new(drop));
        let queues = Arc::new(DiskQueues::new(0, Instant::now()));
        let added = IoThreadMessage::AddDisk {
            disk: DISK,
            name: "disk".into(),
            block_size_bytes: 4096,
            queues: Arc::clone(&queues),
        };
        thread.handle(now, added).unwrap();
        Self { now, thread, queues }
    }

    /// A thread with the virtqueue of a guest, without a fetch.
    fn with_guest() -> (Self, Guest) {
        let (mut test, guest) = (Self::new(), Guest::new());
        let queue = Box::new(guest.queue());
        test.thread.handle(test.now, IoThreadMessage::StartQueue { disk: DISK, flow: FLOW, queue }).unwrap();
        (test, guest)
    }

    /// A guest whose virtqueue is full, after a fetch.
    fn start(&mut self) -> Guest {
        let mut guest = Guest::new();
        (0..WRITES).for_each(|_| guest.write(0, 4096));
        let queue = Box::new(guest.queue());
        self.thread.handle(self.now, IoThreadMessage::StartQueue { disk: DISK, flow: FLOW, queue }).unwrap();
        self.thread.fetch(self.now);
        self.thread.run_actions(self.now);
        guest
    }

    /// The front-end begins to stop a virtqueue.
    fn begin_stop(&mut self, flow: FlowId) -> mpsc::Receiver<Option<Queue>> {
        let ((reply, stopped), drain) = (mpsc::sync_channel(1), self.queues.begin_stop(self.now));
        self.thread.handle(self.now, IoThreadMessage::StopQueue { flow, drain, reply }).unwrap();
        stopped
    }

    /// The front-end leaves, and the time limit of the drain passes.
    fn leave(&mut self) {
        let stopped = self.begin_stop(FLOW);
        self.now += DRAIN_MAX;
        self.thread.publish(self.now).unwrap();
        assert!(stopped.try_recv().unwrap().is_some(), "it has stopped");
    }
}

#[test]
fn requests_that_were_on_no_path_are_forgotten() {
    let mut test = Test::new();
    for _ in 0..3 {
        let _guest = test.start();
        assert_eq!((test.thread.requests.len(), test.thread.group.open()), (WRITES, WRITES));
        test.leave();
        assert_eq!((test.thread.requests.len(), test.thread.group.open()), (0, 0));
    }
}

/// QEMU stops one virtqueue after the other, and stands still meanwhile.
#[test]
fn virtqueues_that_are_stopped_one_after_the_other_share_their_time() {
    let flows = [FLOW, FlowId(8), FlowId(9)];
    let mut test = Test::new();
    let start = |test: &mut Test| {
        flows.map(|flow| {
            let mut guest = Guest::new();
            guest.write(0, 4096);
            let queue = Box::new(guest.queue());
            test.thread.handle(test.now, IoThreadMessage::StartQueue { disk: DISK, flow, queue }).unwrap();
            test.thread.fetch(test.now);
            test.thread.run_actions(test.now);
            guest
        })
    };
    let stop = |test: &mut Test, flow: FlowId, after: Duration| {
        let stopped = test.begin_stop(flow);
        test.now += after;
        test.thread.publish(test.now).unwrap();
        stopped.try_recv().is_ok_and(|queue| queue.is_some())
    };
    for _ in 0..2 {
        let _guests = start(&mut test);
        assert!(stop(&mut test, flows[0], DRAIN_MAX));
        assert!(stop(&mut test, flows[1], Duration::ZERO), "its time is over");
        // Long after the others, perhaps alone.
        test.now += DRAIN_MAX;
        assert!(!stop(&mut test, flows[2], DRAIN_MAX / 2));
        test.now += DRAIN_MAX / 2;
        test.thread.publish(test.now).unwrap();
        assert!(test.thread.queues.is_empty());
    }
}

/// The front-end stands still from its message on, not from when the thread looks at it.
#[test]
fn a_thread_that_stands_still_gives_a_virtqueue_no_more_time() {
    let mut test = Test::new();
    let _guest = test.start();
    let ((reply, stopped), drain) = (mpsc::sync_channel(1), test.queues.begin_stop(test.now));
    test.now += DRAIN_MAX / 2;
    test.thread.handle(test.now, IoThreadMessage::StopQueue { flow: FLOW, drain, reply }).unwrap();
    test.thread.publish(test.now).unwrap();
    assert!(stopped.try_recv().is_err(), "half of its time is left");
    test.now += DRAIN_MAX / 2;
    test.thread.publish(test.now).unwrap();
    assert!(stopped.try_recv().unwrap().is_some());
}

/// A path that answers nothing keeps its requests, and no others.
#[test]
fn requests_on_a_path_stay_until_its_fence_lifts() {
    const DEPTH: u16 = 15;
    let mut test = Test::new();
    let (_controller, link) = Controller::connect();
    let ana = AnaStates::from(AnaState::Optimized);
    let association = Association { epoch: Epoch(1), ana, volatile_write_cache: false, queue_depth: DEPTH };
    test.thread.handle(test.now, IoThreadMessage::PathUp { path: PATH, association, link: Box::new(link) }).unwrap();
    let _guest = test.start();
    assert_eq!(test.thread.requests.len(), WRITES);
    let _stopped = test.begin_stop(FLOW);
    test.now += DRAIN_MAX;
    test.thread.publish(test.now).unwrap();
    assert_eq!(test.thread.requests.len(), usize::from(DEPTH));
    let mut events = Vec::new();
    while !test.thread.connections.is_empty() {
        test.thread.ring().turn(None, &mut events).unwrap();
        events.drain(..).for_each(|event| test.thread.on_event(test.now, event).unwrap());
        test.thread.finish_turn(test.now).unwrap();
    }
    assert_eq!(test.thread.requests.len(), usize::from(DEPTH));
    let lifted = ThreadMessage::FenceLifted { path: PATH, epoch: Epoch(1) }.into();
    test.thread.handle(test.now, lifted).unwrap();
    // A path is there again. Requests that were given up are not sent on it.
    let (mut controller, link) = Controller::connect();
    let association = Association { epoch: Epoch(2), ana, volatile_write_cache: false, queue_depth: DEPTH };
    test.thread.handle(test.now, IoThreadMessage::PathUp { path: PATH, association, link: Box::new(link) }).unwrap();
    test.thread.finish_turn(test.now).unwrap();
    assert_eq!((test.thread.requests.len(), test.thread.group.open()), (0, 0));
    controller.stream.set_nonblocking(true).unwrap();
    assert_eq!(controller.stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// The socket takes the first send at once, so no event of the ring comes for the rest.
#[test]
fn a_write_larger_than_the_send_budget_is_sent_without_another_event() {
    const BYTES: usize = 512 << 10;
    let (mut test, mut guest) = Test::with_guest();
    let (mut controller, link) = Controller::connect();
    rustix::net::sockopt::set_socket_send_buffer_size(&link.socket, BYTES).unwrap();
    let ana = AnaStates::from(AnaState::Optimized);
    let association = Association { epoch: Epoch(1), ana, volatile_write_cache: false, queue_depth: 15 };
    test.thread.handle(test.now, IoThreadMessage::PathUp { path: PATH, association, link: Box::new(link) }).unwrap();
    guest.write(0, BYTES);
    test.thread.finish_turn(test.now).unwrap();
    let cid = controller.command();
    assert_ne!(test.thread.next_timeout(), Some(test.now), "nothing is left to send");
    controller.send(&Controller::ask(cid, BYTES));
    let mut events = Vec::new();
    while events.is_empty() {
        test.thread.ring().turn(None, &mut events).unwrap();
    }
    events.drain(..).for_each(|event| test.thread.on_event(test.now, event).unwrap());
    test.thread.finish_turn(test.now).unwrap();
    assert_eq!(test.thread.next_timeout(), Some(test.now), "the rest is left to send");
    let reading = std::thread::spawn(move || controller.data(BYTES));
    while !reading.is_finished() {
        let timeout = test.thread.next_timeout().map(|at| at.saturating_duration_since(test.now));
        test.thread.ring().turn(timeout.or(Some(Duration::from_millis(1))), &mut events).unwrap();
        events.drain(..).for_each(|event| test.thread.on_event(test.now, event).unwrap());
        test.thread.finish_turn(test.now).unwrap();
    }
    assert_eq!(reading.join().unwrap().0, cid);
}

#[test]
fn requests_of_the_first_fetch_may_be_as_old_as_the_last_run() {
    let mut test = Test::new();
    let _first = test.start();
    assert!(!test.thread.queues[FLOW].is_new, "it was looked into");
    let stopped_at = test.now;
    test.leave();
    assert_eq!(test.thread.stopped_queue_times[&FLOW].last_fetch, stopped_at);
    test.thread.handle(test.now, IoThreadMessage::SuspendDisk(DISK)).unwrap();
    let _second = test.start();
    let slot = &test.thread.queues[FLOW];
    assert!(slot.is_new && slot.times.last_fetch == stopped_at, "it waits, and so does what is in it");
    test.leave();
    assert_eq!(test.thread.stopped_queue_times[&FLOW].last_fetch, stopped_at);
}

#[test]
fn a_turn_looks_at_no_idle_virtqueue() {
    let (mut test, mut guest) = Test::with_guest();
    assert!(test.thread.active.contains(&FLOW), "requests may wait in it");
    test.thread.finish_turn(test.now).unwrap();
    assert!(test.thread.active.is_empty());
    guest.write(0, 4096);
    guest.kick();
    let mut events = Vec::new();
    test.thread.ring().turn(None, &mut events).unwrap();
    events.drain(..).for_each(|event| test.thread.on_event(test.now, event).unwrap());
    for _ in 0..2 {
        test.thread.finish_turn(test.now).unwrap();
        assert!(test.thread.active.contains(&FLOW), "its request has no answer");
    }
    test.leave();
    assert!(test.thread.active.is_empty() && test.thread.queues.is_empty());
}

/// A guest has to kick only while the thread sleeps.
#[test]
fn a_polling_thread_finds_requests_without_a_kick() {
    let (mut test, mut guest) = Test::with_guest();
    test.thread.start_polling();
    test.thread.fetch(test.now);
    assert!(!test.thread.has_requests());
    guest.write(0, 4096);
    assert!(test.thread.has_requests());
    test.thread.fetch(test.now);
    assert!(!test.thread.has_requests());
    assert_eq!(test.thread.requests.len(), 1);
    // The race: this request comes after the last look, and no kick comes for it.
    guest.write(0, 4096);
    assert!(test.thread.stop_polling(), "it must not sleep");
    test.thread.fetch(test.now);
    assert_eq!(test.thread.requests.len(), 2);
    assert!(!test.thread.stop_polling());
}

/// Otherwise the thread would never sleep.
#[test]
fn requests_of_a_held_disk_keep_no_thread_polling() {
    let (mut test, mut guest) = Test::with_guest();
    test.thread.start_polling();
    test.thread.fetch(test.now);
    test.thread.handle(test.now, IoThreadMessage::SuspendDisk(DISK)).unwrap();
    guest.write(0, 4096);
    assert!(!test.thread.has_requests());
    assert!(!test.thread.stop_polling());
    test.thread.handle(test.now, IoThreadMessage::ResumeDisk(DISK)).unwrap();
    test.thread.fetch(test.now);
    assert_eq!(test.thread.requests.len(), 1, "no kick has come for it");
}

/// Whoever serves the ring next waits for kicks.
#[test]
fn a_guest_kicks_again_after_the_stop_of_a_polled_virtqueue() {
    let (mut test, mut guest) = Test::with_guest();
    test.thread.fetch(test.now);
    assert!(guest.has_to_kick());
    test.thread.start_polling();
    test.thread.fetch(test.now);
    assert!(!guest.has_to_kick());
    test.leave();
    assert!(guest.has_to_kick());
}

/// Whether the socket of a path is half-closed if its operations end with these results. `has_ended`: the controller has ended
/// the connection before. A `send` of 0 means all bytes.
fn half_closes(send: i32, receive: i32, has_ended: bool) -> bool {
    const SOCKET: u32 = 7;
    let now = Instant::now();
    let mut group = Group::new(now, GroupConfig::default(), &[SharedDisk::default()]);
    group.add_path(PATH, PathConfig::default());
    let (report, events) = mpsc::channel();
    let mut thread = IoThread::new(SimulatedRing::new(), group, Box::new(move |event| report.send(event).unwrap()));
    let queues = Arc::new(DiskQueues::new(0, now));
    let added = IoThreadMessage::AddDisk { disk: DISK, name: "disk".into(), block_size_bytes: 4096, queues };
    thread.handle(now, added).unwrap();
    let (_controller, ConnectedQueuePair { queue, retry_delays, close_mode, .. }) = Controller::connect();
    let link = Box::new(ConnectedQueuePair { socket: SOCKET, queue, tls: None, retry_delays, close_mode });
    let ana = AnaStates::from(AnaState::Optimized);
    let association = Association { epoch: Epoch(1), ana, volatile_write_cache: false, queue_depth: 15 };
    thread.handle(now, IoThreadMessage::PathUp { path: PATH, association, link }).unwrap();
    let mut guest = Guest::new();
    guest.write(0, 4096);
    let queue = Box::new(guest.queue());
    thread.handle(now, IoThreadMessage::StartQueue { disk: DISK, flow: FLOW, queue }).unwrap();
    thread.finish_turn(now).unwrap();
    let unsent = i32::try_from(thread.ring().sends(SOCKET).expect("the write is being sent")).unwrap();
    let close_mode = CloseMode::HalfClose;
    let half_close = close_mode == CloseMode::HalfClose;
    thread.handle(now, ThreadMessage::PathDown { path: PATH, epoch: Epoch(1), half_close }.into()).unwrap();
    if has_ended {
        thread.ring().ended(SOCKET);
    }
    thread.ring().end_send(SOCKET, if send == 0 { unsent } else { send });
    thread.ring().end_receive(SOCKET, receive);
    let calls = thread.ring().take_calls();
    assert!(calls.is_empty(), "operations are under way: {calls:?}");
    thread.take_events(now).unwrap();
    thread.finish_turn(now).unwrap();
    let last_call = if has_ended { SocketCall::Reset } else { SocketCall::EndSending };
    assert_eq!(thread.ring().take_calls(), [(SOCKET, last_call)]);
    match events.try_recv().unwrap().kind {
        PathEventKind::Closed { half_closed, in_doubt: true } => half_closed.is_some(),
        event => panic!("{event:?}"),
    }
}

/// A reset that the kernel has reported looks like an orderly end to the next reader of the socket. So the host ends its
/// side only after its last operation.
#[test]
fn a_connection_that_is_reset_while_it_closes_does_not_drain() {
    let (cancelled, reset) = (-libc::ECANCELED, -libc::ECONNRESET);
    assert!(half_closes(0, cancelled, false), "all is sent");
    assert!(half_closes(cancelled, cancelled, false));
    assert!(half_closes(1, cancelled, false), "the send was cancelled in its middle");
    for (send, receive) in [(0, reset), (reset, cancelled), (1, cancelled)] {
        assert!(!half_closes(send, receive, true), "{send} {receive}");
    }
    assert!(!half_closes(0, 0, true), "the controller closed first");
}

#[test]
fn a_thread_is_woken_for_the_timeouts_of_its_group() {
    let mut test = Test::new();
    let config = GroupConfig { no_path_timeout: Some(Duration::from_secs(5)), ..GroupConfig::default() };
    test.thread.group = Group::new(test.now, config, &[SharedDisk::default()]);
    assert_eq!(test.thread.next_timeout(), None);
    let _guest = test.start();
    assert_eq!(test.thread.next_timeout(), Some(test.now + Duration::from_secs(5)));
}

#[test]
fn requests_have_waited_since_a_held_disk_had_them() {
    let (mut test, mut guest) = Test::with_guest();
    test.thread.handle(test.now, IoThreadMessage::SuspendDisk(DISK)).unwrap();
    let held_since = |test: &Test| test.thread.queues[FLOW].held_since;
    test.thread.fetch(test.now);
    assert_eq!(held_since(&test), None, "nothing waits");
    guest.write(0, 4096);
    test.now += Duration::from_secs(1);
    test.thread.fetch(test.now);
    let since = held_since(&test);
    assert_eq!(since, Some(test.now));
    test.now += Duration::from_secs(5);
    test.thread.fetch(test.now);
    assert_eq!(held_since(&test), since);
    test.thread.handle(test.now, IoThreadMessage::ResumeDisk(DISK)).unwrap();
    test.thread.fetch(test.now);
    assert_eq!((held_since(&test), test.thread.group.open()), (None, 1));
}

/// The guest has submitted them at any time during the stall.
#[test]
fn requests_after_a_stall_may_have_waited_since_it_began() {
    let (mut test, mut guest) = Test::with_guest();
    test.thread.finish_turn(test.now).unwrap();
    guest.write(0, 4096);
    let (idle_since, due) = (test.now, test.now + Duration::from_millis(50));
    test.now += Duration::from_secs(1);
    let waking = Waking { idle_since, due: Some(due), processor_wait: Duration::ZERO, processor_time: Duration::ZERO };
    let standstill = TurnWatch::new(idle_since).begin_turn(test.now, waking).unwrap();
    test.thread.stood_still(&standstill);
    assert_eq!(test.thread.last_stall.unwrap().began, due);
    test.thread.start_polling();
    test.thread.active.push(FLOW);
    test.thread.finish_turn(test.now).unwrap();
    let waiting = test.thread.group.explain(test.now, DISK).waiting;
    assert_eq!(waiting.iter().map(|of| of.oldest).max(), Some(test.now - due), "{waiting:?}");

    // A request that comes right after that fetch has not waited, so it is no older than its virtqueue's last fetch.
    let stall = test.thread.last_stall.unwrap();
    assert!(test.thread.queues[FLOW].fetched_at >= stall.ended, "the next fetch charges nothing");
}
