//! Disks that are in use while something happens to another one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use vublk_bench::request::Status;
use vublk_bench::rng::Rng;

use super::{Disk, Harm, eventually};

/// What each disk uses of its namespace, in blocks.
const BLOCKS: usize = 16;
const BLOCK_BYTES: u64 = 4096;

/// When a request was made, and when it was answered.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

/// The times in which something happens, and those in which nothing does, to judge requests by.
#[derive(Default)]
pub(crate) struct Windows(Vec<Window>);

#[derive(Clone, Copy)]
struct Window {
    round: usize,
    beside: bool,
    from: Instant,
    to: Instant,
}

impl Windows {
    /// Nothing is to harm `during` this.
    pub(crate) fn alone<T>(&mut self, round: usize, during: impl FnOnce() -> T) -> T {
        self.add(round, false, during)
    }

    /// What `happens` may.
    pub(crate) fn beside<T>(&mut self, round: usize, happens: impl FnOnce() -> T) -> T {
        self.add(round, true, happens)
    }

    fn add<T>(&mut self, round: usize, beside: bool, during: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let result = during();
        self.0.push(Window { round, beside, from, to: Instant::now() });
        result
    }

    /// What it meant to these requests. One that met both counts as beside.
    pub(crate) fn judge(&self, requests: &[Took], whom: &'static str, by: &'static str, has_priority: bool) {
        let mut harm = Harm::new(whom, by);
        for &Took { begun, ended } in requests {
            let met = |window: &&Window| window.beside && begun < window.to && ended > window.from;
            let within = |window: &&Window| !window.beside && begun >= window.from && ended <= window.to;
            let window = self.0.iter().find(met).or_else(|| self.0.iter().find(within));
            if let Some(window) = window {
                harm.took(window.round, window.beside, ended - begun);
            }
        }
        harm.judge(has_priority);
    }
}

/// A guest on each of some disks, which writes, and reads what it has written, one request after the other, until it is told to end.
pub(crate) struct Others {
    stop: Arc<AtomicBool>,
    guests: Vec<JoinHandle<Vec<Took>>>,
}

impl Others {
    /// Returns when all are at work.
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

    /// Has all of them read everything once more; what they did before that.
    pub(crate) fn finish(mut self) -> Vec<Took> {
        self.stop.store(true, Ordering::Relaxed);
        self.guests.drain(..).flat_map(|guest| guest.join().unwrap()).collect()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn work(mut disk: Disk, mut rng: Rng, stop: &AtomicBool, at_work: &AtomicUsize) -> Vec<Took> {
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
        requests.push(Took { begun, ended: Instant::now() });
    }
    for (block, known) in (0..).zip(known) {
        assert_eq!(disk.read(block * BLOCK_BYTES), known, "read back");
    }
    requests
}
