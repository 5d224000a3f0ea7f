//! Test helpers: disks in use while something happens to another disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use mpath_sim::rng::Rng;
use vublk_bench::request::Status;

use super::{Disk, Harm, eventually};

/// The blocks that each disk uses of its namespace.
const BLOCKS: usize = 16;
const BLOCK_BYTES: u64 = 4096;

/// When a request was sent, and when it was answered.
#[derive(Clone, Copy)]
pub(crate) struct RequestTime {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

/// The periods with and without a disturbance, by which requests are judged.
#[derive(Default)]
pub(crate) struct Periods(Vec<Window>);

#[derive(Clone, Copy)]
struct Window {
    round: usize,
    beside: bool,
    from: Instant,
    to: Instant,
}

impl Periods {
    /// A period that must be undisturbed.
    pub(crate) fn alone<T>(&mut self, round: usize, during: impl FnOnce() -> T) -> T {
        self.add(round, false, during)
    }

    /// A period with a disturbance.
    pub(crate) fn beside<T>(&mut self, round: usize, happens: impl FnOnce() -> T) -> T {
        self.add(round, true, happens)
    }

    fn add<T>(&mut self, round: usize, beside: bool, during: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let result = during();
        self.0.push(Window { round, beside, from, to: Instant::now() });
        result
    }

    /// Assigns these requests to the periods. A request in both kinds counts as disturbed.
    pub(crate) fn judge(&self, requests: &[RequestTime], whom: &'static str, by: &'static str) {
        let mut harm = Harm::new(whom, by);
        for &RequestTime { begun, ended } in requests {
            let met = |window: &&Window| window.beside && begun < window.to && ended > window.from;
            let within = |window: &&Window| !window.beside && begun >= window.from && ended <= window.to;
            let window = self.0.iter().find(met).or_else(|| self.0.iter().find(within));
            if let Some(window) = window {
                harm.took(window.round, window.beside, ended - begun);
            }
        }
        harm.judge();
    }
}

/// A guest on each disk. It writes, and reads its data back, one request after the other, until it is told to end.
pub(crate) struct Bystanders {
    stop: Arc<AtomicBool>,
    guests: Vec<JoinHandle<Vec<RequestTime>>>,
}

impl Bystanders {
    /// Returns when all of them are working.
    pub(crate) fn start(sockets: impl Iterator<Item = PathBuf>, seed: u64) -> Self {
        let (stop, at_work) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let guests = sockets.enumerate().map(|(stream, socket)| {
            let disk = Disk::connect(&socket);
            let (stop, at_work) = (Arc::clone(&stop), Arc::clone(&at_work));
            thread::spawn(move || work(disk, Rng::new(seed, stream as u64), &stop, &at_work))
        });
        let others = Self { guests: guests.collect(), stop };
        eventually("all others are at work", || at_work.load(Ordering::Relaxed) == others.guests.len());
        others
    }

    /// Has all guests read everything again. Returns their earlier requests.
    pub(crate) fn finish(mut self) -> Vec<RequestTime> {
        self.stop.store(true, Ordering::Relaxed);
        self.guests.drain(..).flat_map(|guest| guest.join().unwrap()).collect()
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn work(mut disk: Disk, mut rng: Rng, stop: &AtomicBool, at_work: &AtomicUsize) -> Vec<RequestTime> {
    let mut known = [0; BLOCKS];
    for (block, known) in (0..).zip(&mut known) {
        *known = rng.below(256) as u8;
        assert_eq!(disk.write(block * BLOCK_BYTES, *known), Status::Ok);
    }
    at_work.fetch_add(1, Ordering::Relaxed);
    let mut requests = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let block = rng.below(BLOCKS as u64);
        let (offset, known) = (block * BLOCK_BYTES, &mut known[block as usize]);
        let begun = Instant::now();
        if rng.percent(50) {
            *known = rng.below(256) as u8;
            assert_eq!(disk.write(offset, *known), Status::Ok);
        } else {
            assert_eq!(disk.read(offset), *known);
        }
        requests.push(RequestTime { begun, ended: Instant::now() });
    }
    for (block, known) in (0..).zip(known) {
        assert_eq!(disk.read(block * BLOCK_BYTES), known, "read back");
    }
    requests
}
