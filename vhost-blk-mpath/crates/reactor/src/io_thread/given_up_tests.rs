//! What front-ends leave behind that come and go while no path is live.

use std::sync::mpsc;

use mpath_core::{AnaState, Association, Epoch, GroupConfig, SharedDisk};

use super::drain::DRAIN_MAX;
use super::*;
use crate::testing::{Controller, DISK, FLOW, Guest};
use crate::wake;

const PATH: PathId = PathId(0);
/// That fit into a virtqueue.
const WRITES: usize = 21;

struct Test {
    now: Instant,
    thread: IoThread,
}

impl Test {
    /// Its path has never been live.
    fn new() -> Self {
        let now = Instant::now();
        let mut group = Group::new(now, GroupConfig::default(), &[SharedDisk::default()]);
        group.add_path(PATH, PathConfig::default());
        let (_, inbox) = wake::channel().unwrap();
        let mut thread = IoThread::new(Ring::new().unwrap(), inbox, group, Box::new(drop)).unwrap();
        let unanswered = Arc::new(Unanswered::new(0));
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

    fn in_flight(&self) -> usize {
        self.thread.queues[&FLOW].in_flight as usize
    }
}

#[test]
fn a_virtqueue_is_not_fetched_from_while_as_many_requests_as_it_has_entries_were_given_up() {
    let mut test = Test::new();
    for round in 1..=4 {
        let _guest = test.start();
        assert_eq!(test.in_flight(), WRITES);
        test.leave();
        assert_eq!(test.thread.requests.abandoned(FLOW), round * WRITES);
    }
    for _ in 0..2 {
        let _guest = test.start();
        assert_eq!(test.in_flight(), 0);
        test.leave();
    }
    let _guest = test.start();
    let (_controller, link) = Controller::connect();
    let association =
        Association { epoch: Epoch(1), ana: AnaState::Optimized.into(), volatile_write_cache: false, queue_depth: 15 };
    test.thread.handle(test.now, Message::PathUp { path: PATH, association, link: Box::new(link) }).unwrap();
    test.thread.act(test.now);
    assert_eq!(test.thread.requests.abandoned(FLOW), 0, "a path ends what nobody waits for");
    assert_eq!(test.thread.timeout(test.now), Some(Duration::ZERO), "no kick follows");
    test.thread.fetch(test.now);
    assert_eq!(test.in_flight(), WRITES);
    assert_ne!(test.thread.timeout(test.now), Some(Duration::ZERO), "nor does the thread spin");
}
