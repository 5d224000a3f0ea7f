use std::sync::mpsc;
use std::thread;

use mpath_core::{Group, GroupConfig, PathId, SharedDisk};

use super::*;
use crate::interrupt_timer::InterruptTimer;
use crate::processor_times::Schedstat;
use crate::testing::{DISK, FLOW, Guest};
use crate::thread_message::PathSetPart;
use crate::wake_channel::{WakeSender, wake_channel};
use crate::{DiskQueues, IoThreadMessage};

/// The loop of a thread, which the test turns.
struct Test {
    event_loop: EventLoop,
    inbox: WakeSender<ThreadMessage>,
    events: Vec<Event>,
    number: u64,
}

impl Test {
    fn new() -> Self {
        let (inbox, receiver) = wake_channel().unwrap();
        let meter = ProcessorMeter::new(Instant::now(), Arc::new(Schedstat::of_this_thread()));
        let (polling, runnable) = (Polling::new(Arc::default()), Runnable::open().ok());
        let (ring, interrupts) = (Uring::new().unwrap(), InterruptTimer::of_this_thread().unwrap());
        let event_loop = EventLoop::new(ring, receiver, polling, runnable, meter, interrupts).unwrap();
        Self { event_loop, inbox, events: Vec::new(), number: 0 }
    }

    /// Adds a path set without a path in this place. Returns its id, and what tells of its end.
    fn add(&mut self, place: u16) -> (SetId, mpsc::Receiver<bool>) {
        self.number += 1;
        let set = SetId { place, number: self.number };
        let group = Group::new(Instant::now(), GroupConfig::default(), &[SharedDisk::default()]);
        let part = PathSetPart { group, poll_limit: Duration::ZERO, report: Box::new(drop) };
        let (ended, end) = mpsc::channel();
        let ended = Box::new(move |in_doubt| ended.send(in_doubt).unwrap());
        self.send(ThreadMessage::Add {
            set,
            config: Box::new(PathSetConfig { part, has_ended: Arc::default(), ended }),
        });
        let queues = Arc::new(DiskQueues::new(0, Instant::now()));
        self.tell(set, IoThreadMessage::AddDisk { disk: DISK, name: "disk".into(), block_size_bytes: 4096, queues });
        (set, end)
    }

    /// The same, with a guest.
    fn add_guest(&mut self, place: u16) -> (SetId, mpsc::Receiver<bool>, Guest) {
        let ((set, end), guest) = (self.add(place), Guest::new());
        self.tell(set, IoThreadMessage::StartQueue { disk: DISK, flow: FLOW, queue: Box::new(guest.queue()) });
        (set, end, guest)
    }

    fn send(&self, message: ThreadMessage) {
        assert!(self.inbox.send(message).is_ok());
    }

    fn tell(&self, set: SetId, message: IoThreadMessage) {
        self.send(ThreadMessage::ToSet { set, message });
    }

    fn turn(&mut self) {
        self.event_loop.turn(&mut self.events).unwrap();
    }

    /// A turn of a thread that polls. It has an event.
    fn turn_polling(&mut self) {
        self.event_loop.ring.borrow_mut().turn(None, &mut self.events).unwrap();
        self.event_loop.carry_out(Instant::now(), &mut self.events).unwrap();
    }

    fn is_busy(&mut self, place: u16) -> bool {
        self.event_loop.member_mut(place).is_some_and(|member| member.set.is_busy())
    }

    /// Tells a path set to end.
    fn end(&mut self, set: SetId) {
        self.tell(set, IoThreadMessage::Shutdown);
        self.tell(set, IoThreadMessage::End);
    }
}

/// So the thread knows that it was woken late.
#[test]
fn a_turn_comes_soon_while_a_thread_is_busy() {
    let mut test = Test::new();
    let (_, _, mut guest) = test.add_guest(0);
    test.turn();
    assert_eq!(test.event_loop.turn_due(Instant::now()), None);
    guest.write(0, 4096);
    guest.kick();
    test.turn();
    let now = test.event_loop.busy_at.expect("the request waits for a path");
    for since in [0, 1, 999, 1000] {
        let later = now + Duration::from_millis(since);
        assert_eq!(test.event_loop.turn_due(later), (since < 1000).then(|| later + LOOK_EVERY));
    }
}

/// If the guest had to kick, the ring would report an event.
#[test]
fn the_loop_finds_requests_without_a_kick() {
    let mut test = Test::new();
    let mut guests = [3, 0].map(|place| test.add_guest(place).2);
    test.event_loop.start_polling();
    test.turn_polling();
    for guest in &mut guests {
        let (event_loop, events) = (&mut test.event_loop, &mut test.events);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20).into());
                guest.write(0, 4096);
                // Without this, a loop that sleeps would never end.
                thread::sleep(Duration::from_secs(2).into());
                guest.kick();
            });
            event_loop.wait(Instant::now(), None, Duration::from_secs(10), events).unwrap();
            assert!(event_loop.has_requests() && events.is_empty());
        });
        event_loop.carry_out(Instant::now(), events).unwrap();
        assert!(!event_loop.has_requests());
        // Takes the kick.
        test.turn_polling();
    }
}

#[test]
fn a_kick_concerns_only_its_path_set() {
    let mut test = Test::new();
    let mut guests: Vec<_> = [0, 2, 7].map(|place| (place, test.add_guest(place).2)).into();
    test.turn();
    for at in [1, 2, 0] {
        let (place, guest) = &mut guests[at];
        guest.read(0, 4096);
        guest.kick();
        assert!(!test.is_busy(*place));
        test.turn();
        assert!(test.is_busy(*place));
        assert!(test.event_loop.taking_part.is_empty());
    }
}

/// Its requests wait for a path until the time-out, of which no event tells.
#[test]
fn a_path_set_takes_part_when_its_turn_is_due() {
    let mut test = Test::new();
    let (set, _, mut guest) = test.add_guest(1);
    test.add(0);
    test.turn();
    let until = Instant::now() + Duration::from_millis(30);
    test.tell(set, IoThreadMessage::HoldDisk { disk: DISK, until });
    guest.write(0, 4096);
    guest.kick();
    while !test.is_busy(1) {
        test.turn();
    }
    assert!(Instant::now() >= until);
}

#[test]
fn a_place_is_used_again_and_messages_of_its_last_path_set_are_dropped() {
    let mut test = Test::new();
    let (first, first_end, _guest) = test.add_guest(5);
    test.turn();
    test.end(first);
    while test.event_loop.members > 0 {
        test.turn();
    }
    assert_eq!(first_end.recv(), Ok(false));
    // The last event of the first virtqueue is still under way.
    let (second, second_end, mut guest) = test.add_guest(5);
    test.end(first);
    guest.read(0, 4096);
    guest.kick();
    while !test.is_busy(5) {
        test.turn();
    }
    let generation = test.event_loop.member_mut(5).unwrap().set.generation();
    assert_eq!(generation, Generation::default().next().next(), "its events are told from those of the first");
    test.end(second);
    while test.event_loop.members > 0 {
        test.turn();
    }
    assert_eq!(second_end.recv(), Ok(false));
}

#[test]
fn a_thread_ends_after_its_path_sets() {
    let mut test = Test::new();
    let (set, end) = test.add(0);
    test.send(ThreadMessage::End);
    test.turn();
    test.tell(set, IoThreadMessage::AddPath(PathId(0)));
    test.end(set);
    test.event_loop.run();
    assert_eq!(end.recv(), Ok(false));
}
