//! Test helpers: a guest that writes, and reads its data back, from all slots of a ring. Each slot has its own range
//! of the disk.

use std::time::Instant;

use mpath_sim::rng::Rng;

use super::RequestTime;
use crate::guest::Ring;

/// Slots of a ring.
const SLOTS: u16 = 21;
const BYTES: usize = 4096;
/// Sectors of a range, and of the ranges of a queue.
const PLACE_SECTORS: u64 = 8;
const QUEUE_SECTORS: u64 = 32 * PLACE_SECTORS;
const IN: u32 = 0;
const OUT: u32 = 1;

#[derive(Clone, Copy)]
struct SentRequest {
    /// `None` for a read.
    writes: Option<u8>,
    begun: Instant,
}

pub(crate) struct Slots {
    pub(crate) ring: Ring,
    rng: Rng,
    known: [u8; SLOTS as usize],
    asked: [Option<SentRequest>; SLOTS as usize],
}

impl Slots {
    /// Slots of a ring whose part of the disk was never written.
    pub(crate) fn new(ring: Ring, seed: u64) -> Self {
        let rng = Rng::new(seed, ring.index as u64);
        Self { ring, rng, known: [0; SLOTS as usize], asked: [None; SLOTS as usize] }
    }

    /// Makes a request available in each of the first `slots` that has none, and kicks.
    pub(crate) fn submit(&mut self, slots: u16) {
        for slot in 0..slots {
            if self.asked[usize::from(slot)].is_none() {
                let writes = self.rng.percent(50).then(|| self.rng.below(256) as u8);
                self.ask(slot, writes);
            }
        }
        self.ring.kick.write(1).unwrap();
    }

    fn ask(&mut self, slot: u16, writes: Option<u8>) {
        let sector = self.ring.index as u64 * QUEUE_SECTORS + u64::from(slot) * PLACE_SECTORS;
        let begun = Instant::now();
        match writes {
            Some(byte) => self.ring.submit(slot, OUT, sector, &[byte; BYTES]),
            // Data found there afterwards were read.
            None => self.ring.submit(slot, IN, sector, &[!self.known[usize::from(slot)]; BYTES]),
        }
        self.asked[usize::from(slot)] = Some(SentRequest { writes, begun });
    }

    /// Takes and checks the answers that are there.
    pub(crate) fn reap(&mut self) -> Vec<RequestTime> {
        let answered = self.ring.reap();
        self.check(&answered)
    }

    /// Waits for all requests and checks them.
    pub(crate) fn finish(&mut self) {
        let answered = self.ring.finish();
        self.check(&answered);
        assert!(self.asked.iter().all(Option::is_none), "as many answers as requests, and one missing");
    }

    fn check(&mut self, answered: &[u16]) -> Vec<RequestTime> {
        let ended = Instant::now();
        let check = |&slot: &u16| {
            let at = usize::from(slot);
            let SentRequest { writes, begun } =
                self.asked[at].take().expect("an answer to a request, and the only one");
            assert_eq!(self.ring.status(slot), 0, "queue {}, slot {slot}", self.ring.index);
            match writes {
                Some(byte) => self.known[at] = byte,
                None => assert_eq!(self.ring.data(slot), [self.known[at]; BYTES], "slot {slot}"),
            }
            RequestTime { begun, ended }
        };
        answered.iter().map(check).collect()
    }

    /// Waits for all requests, and reads everything again.
    pub(crate) fn read_back(&mut self) {
        self.finish();
        (0..SLOTS).for_each(|slot| self.ask(slot, None));
        self.finish();
    }
}
