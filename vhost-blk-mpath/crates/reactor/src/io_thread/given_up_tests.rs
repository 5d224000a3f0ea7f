//! What front-ends leave behind that come and go while no path is live.

use std::sync::mpsc;

use mpath_core::{AnaState, Association, Epoch, GroupConfig, SharedDisk};

use super::drain::DRAIN_MAX;
use super::*;
use crate::ring::Uring;
use crate::testing::{Controller, DISK, FLOW, Guest};

const PATH: PathId = PathId(0);
/// That fit into a virtqueue.
const WRITES: usize = 21;

struct Test {
    now: Instant,
    thread: IoThread<Uring>,
}

impl Test {
    /// Its path has never been live.
    fn new() -> Self {
        let now = Instant::now();
        let mut group = Group::new(now, GroupConfig::default(), &[SharedDisk::default()]);
        group.add_path(PATH, PathConfig::default());
        let mut thread = IoThread::new(Uring::new().unwrap(), group, Box::new(drop));
        let unanswered = Arc::new(Unanswered::new(0, Instant::now()));
        let added = Message::AddDisk { disk: DISK, name: "disk".into(), block_size_bytes: 4096, unanswered };
        thread.handle(now, added).unwrap();
        Self { now, thread }
    }

    /// A guest that has filled its virtqueue, which is fetched from.
    fn start(&mut self) -> Guest {
        let mut guest = Guest::new();
        (0..WRITES).for_each(|_| guest.write(0, 4096));
        let queue = Box::new(guest.queue());
        self.thread.handle(self.now, Message::StartQueue { disk: DISK, flow: FLOW, queue }).unwrap();
        self.thread.fetch(self.now);
        self.thread.act(self.now);
        guest
    }

    /// Its front-end leaves, and the time in which the virtqueue might drain passes.
    fn leave(&mut self) {
        let (reply, stopped) = mpsc::sync_channel(1);
        self.thread.handle(self.now, Message::StopQueue { flow: FLOW, reply }).unwrap();
        self.now += DRAIN_MAX;
        self.thread.publish(self.now).unwrap();
        assert!(stopped.try_recv().unwrap().is_some(), "it has stopped");
    }
}

#[test]
fn nothing_is_left_of_requests_that_no_path_had() {
    let mut test = Test::new();
    for _ in 0..3 {
        let _guest = test.start();
        assert_eq!((test.thread.requests.len(), test.thread.group.open()), (WRITES, WRITES));
        test.leave();
        assert_eq!((test.thread.requests.len(), test.thread.group.open()), (0, 0));
    }
}

/// A path that answers nothing keeps what it has, and no more.
#[test]
fn what_a_path_has_stays_until_it_ends() {
    const DEPTH: u16 = 15;
    let mut test = Test::new();
    let (_controller, link) = Controller::connect();
    let ana = AnaState::Optimized.into();
    let association = Association { epoch: Epoch(1), ana, volatile_write_cache: false, queue_depth: DEPTH };
    test.thread.handle(test.now, Message::PathUp { path: PATH, association, link: Box::new(link) }).unwrap();
    let _guest = test.start();
    assert_eq!(test.thread.requests.len(), WRITES);
    let (reply, _stopped) = mpsc::sync_channel(1);
    test.thread.handle(test.now, Message::StopQueue { flow: FLOW, reply }).unwrap();
    test.now += DRAIN_MAX;
    test.thread.publish(test.now).unwrap();
    assert_eq!(test.thread.requests.len(), usize::from(DEPTH));
}

#[test]
fn what_is_found_at_the_first_look_may_have_waited_since_the_last_one() {
    let mut test = Test::new();
    let _first = test.start();
    assert!(!test.thread.queues[&FLOW].is_new, "it was looked into");
    let stopped_at = test.now;
    test.leave();
    assert_eq!(test.thread.left[&FLOW].last, stopped_at);
    test.thread.handle(test.now, Message::SuspendDisk(DISK)).unwrap();
    let _second = test.start();
    let slot = &test.thread.queues[&FLOW];
    assert!(slot.is_new && slot.seen.last == stopped_at, "it waits, and so does what is in it");
    test.leave();
    assert_eq!(test.thread.left[&FLOW].last, stopped_at);
}
