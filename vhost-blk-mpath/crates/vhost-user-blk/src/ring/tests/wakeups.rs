//! Driver and device take turns in any order. Each goes to sleep as the specification says. Neither may sleep while the
//! other waits for it, in whatever order requests complete.

use proptest::prelude::*;
use virtio_guest::features::{EVENT_IDX, INDIRECT_DESC, PACKED};
use virtio_guest::{Virtqueue, WRITE};

use super::driver::TestDriver;
use super::{BlkStatus, DATA, HEADER, STATUS, TABLE, disk};
use crate::ring::{Queue, Request};

/// Most requests of the driver. Some of them fill a ring.
const SLOTS: u16 = 12;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The driver makes a request of `descriptors` available if the ring has room, and kicks if needed.
    Submit {
        descriptors: u16,
        kick: bool,
    },
    /// The driver takes completions.
    Reap,
    /// The driver asks for a signal, checks once more, and sleeps.
    DriverSleeps,
    /// The device takes a request.
    Pop,
    /// The device completes one of its requests.
    Complete(usize),
    Publish,
    /// The device publishes, asks for a kick, checks once more, and sleeps.
    DeviceSleeps,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_u16..6, any::<bool>()).prop_map(|(descriptors, kick)| Step::Submit { descriptors, kick }),
        2 => Just(Step::Reap),
        2 => Just(Step::DriverSleeps),
        4 => Just(Step::Pop),
        4 => any::<usize>().prop_map(Step::Complete),
        3 => Just(Step::Publish),
        2 => Just(Step::DeviceSleeps),
    ]
}

#[allow(clippy::struct_excessive_bools)] // independent of each other
struct World {
    driver: TestDriver,
    queue: Queue,
    free_slots: Vec<u16>,
    /// Requests of the driver under way: slot, expected length, descriptors of the ring.
    submitted: Vec<(u16, u32, u16)>,
    taken: Vec<Request>,
    event_idx: bool,
    driver_sleeps: bool,
    device_sleeps: bool,
    /// The eventfds.
    kicked: bool,
    called: bool,
}

impl World {
    fn new(size: u16, features: u64, start: u16) -> Self {
        let mut driver = TestDriver::new(size, features | INDIRECT_DESC);
        driver.header(HEADER, 0, 8);
        driver.start_at(start);
        let queue = driver.queue(&disk());
        Self {
            driver,
            queue,
            free_slots: (0..SLOTS).collect(),
            submitted: Vec::new(),
            taken: Vec::new(),
            event_idx: features & EVENT_IDX != 0,
            driver_sleeps: false,
            device_sleeps: false,
            kicked: false,
            called: false,
        }
    }

    fn take(&mut self, step: Step) {
        let for_driver = matches!(step, Step::Submit { .. } | Step::Reap | Step::DriverSleeps);
        if if for_driver { self.driver_sleeps } else { self.device_sleeps } {
            return;
        }
        match step {
            Step::Submit { descriptors, kick } => {
                self.submit(descriptors);
                if kick {
                    self.kicked |= self.driver.must_kick();
                }
            }
            Step::Reap => self.reap(),
            Step::DriverSleeps => {
                self.kicked |= self.driver.must_kick();
                self.driver_sleeps = !self.driver.wait_for_used();
            }
            Step::Pop => self.taken.extend(self.queue.pop().unwrap()),
            Step::Complete(which) => {
                if !self.taken.is_empty() {
                    let request = self.taken.swap_remove(which % self.taken.len());
                    self.queue.complete(request, BlkStatus::Ok);
                }
            }
            Step::Publish => self.publish(),
            // A device sleeps with requests under way. Their completion wakes it.
            Step::DeviceSleeps => {
                self.publish();
                self.device_sleeps = !self.queue.enable_notifications();
            }
        }
        self.wake();
    }

    fn publish(&mut self) {
        self.queue.publish();
        self.called |= self.driver.signals() > 0;
    }

    fn wake(&mut self) {
        if self.device_sleeps && std::mem::take(&mut self.kicked) {
            self.device_sleeps = false;
            self.queue.disable_notifications();
        }
        if self.driver_sleeps && std::mem::take(&mut self.called) {
            self.driver_sleeps = false;
            // With EVENT_IDX, the event that has passed has the same effect.
            if !self.event_idx {
                self.driver.set_signals(false);
            }
        }
    }

    /// With one descriptor, the request is in an indirect table.
    fn submit(&mut self, descriptors: u16) {
        let in_use: u16 = self.submitted.iter().map(|(.., descriptors)| descriptors).sum();
        if descriptors == 2 || in_use + descriptors > self.driver.ring.layout.size {
            return;
        }
        let Some(slot) = self.free_slots.pop() else { return };
        let data = (1..descriptors.max(3) - 1).map(|i| (DATA + 512 * u64::from(i), 512, WRITE));
        let mut chain = vec![(HEADER, 16, 0)];
        chain.extend(data);
        chain.push((STATUS, 1, WRITE));
        // In a split ring each slot has five descriptors of its own.
        let head = if self.driver.is_packed() { slot } else { slot * 5 };
        if descriptors == 1 {
            self.driver.indirect_chain(head, TABLE + 0x100 * u64::from(slot), &chain);
        } else {
            self.driver.chain(head, &chain);
        }
        self.driver.make_available(head);
        self.submitted.push((slot, (chain.len() as u32 - 2) * 512 + 1, descriptors));
    }

    fn reap(&mut self) {
        for (head, length) in self.driver.used() {
            let slot = if self.driver.is_packed() { head } else { head / 5 };
            let at = self.submitted.iter().position(|(submitted, ..)| u32::from(*submitted) == slot);
            let (slot, expected, _) = self.submitted.swap_remove(at.expect("a request that is out, once"));
            assert_eq!(length, expected);
            self.free_slots.push(slot);
        }
    }

    /// Runs both sides until both sleep and no eventfd is set.
    fn settle(&mut self) {
        for _ in 0..1000 {
            for _ in 0..SLOTS {
                self.take(Step::Pop);
            }
            // Completions wake a device.
            if !self.taken.is_empty() {
                self.device_sleeps = false;
            }
            for _ in 0..SLOTS {
                self.take(Step::Complete(0));
            }
            self.take(Step::Publish);
            self.take(Step::DeviceSleeps);
            self.take(Step::Reap);
            self.take(Step::DriverSleeps);
            if self.driver_sleeps && self.device_sleeps {
                return;
            }
        }
        panic!("no rest");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn neither_side_sleeps_for_ever(
        packed: bool,
        event_idx: bool,
        size in 5_u16..40,
        start: u16,
        rounds in prop::collection::vec(prop::collection::vec(step(), 0..40), 1..6),
    ) {
        let size = if packed { size } else { 64 };
        let features = if packed { PACKED } else { 0 } | if event_idx { EVENT_IDX } else { 0 };
        let mut world = World::new(size, features, start);
        for steps in rounds {
            for step in steps {
                world.take(step);
            }
            world.settle();
            prop_assert_eq!(&world.submitted, &vec![], "asleep with requests out");
            prop_assert!(world.driver.is_idle());
            prop_assert_eq!(world.queue.position(), world.driver.position());
            world.driver_sleeps = false;
        }
    }
}
