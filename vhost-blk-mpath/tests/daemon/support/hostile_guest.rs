//! Test helpers: a front-end that breaks the rules: bad descriptors, endless chains, invalid heads, an index that
//! runs away. It leaves with requests under way, again and again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mpath_sim::rng::Rng;
use vhost::VhostBackend;
use virtio_guest::{GUEST_START, RingLayout, Virtqueue};

use crate::guest::{Guest, MEMORY_BYTES, Ring};

const READ: u32 = 0;
const REQUESTS: u16 = 8;
const DESCRIPTOR_BYTES: u64 = 16;
/// The address of the last byte of guest memory.
const LAST_BYTE: u64 = GUEST_START + MEMORY_BYTES - 1;
/// The pause between two attacks. The attacks are to use the daemon's time, not all of the machine's.
const PAUSE: Duration = Duration::from_micros(500);

pub(crate) struct HostileGuest {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl HostileGuest {
    pub(crate) fn start(socket: PathBuf, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut rng, mut lives) = (Rng::new(seed, 0), 0);
            while !stopped.load(Ordering::Relaxed) {
                live(&socket, &mut rng);
                lives += 1;
            }
            lives
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it. Returns how often it has connected.
    pub(crate) fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for HostileGuest {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A front-end with one virtqueue. It may write anything into its rings.
pub(crate) struct BadDriver {
    ring: Ring,
    /// The connection ends with it.
    _guest: Guest,
}

impl BadDriver {
    /// Connects, with this number of reads in the virtqueue. The daemon may take them at once.
    pub(crate) fn connect(socket: &Path, reads: u16) -> Self {
        let guest = Guest::connect(socket, 0);
        guest.share_memory();
        let mut ring = guest.set_up(0);
        guest.frontend.set_vring_kick(0, &ring.kick).unwrap();
        for slot in 0..reads {
            ring.submit(slot, READ, slot.into(), &[0; 4096]);
        }
        Self { ring, _guest: guest }
    }

    /// Says that more requests wait than the ring can hold.
    pub(crate) fn break_ring(&mut self) {
        self.ring.set_available_idx(1000);
        self.kick();
    }

    /// Announces a first request, whose only buffer is empty.
    pub(crate) fn submit_without_status(&mut self) {
        self.ring.set_available_idx(1);
        self.kick();
    }

    fn kick(&self) {
        self.ring.kick.write(1).unwrap();
    }
}

/// One connection from handshake to hang-up.
fn live(socket: &Path, rng: &mut Rng) {
    let mut driver = BadDriver::connect(socket, REQUESTS);
    let kick = |driver: &BadDriver| {
        driver.kick();
        thread::sleep(PAUSE);
    };
    // One connection in four begins correctly.
    if rng.below(4) == 0 {
        kick(&driver);
    }
    for _ in 0..=rng.below(3) {
        let ring = &mut driver.ring;
        let RingLayout { descriptors, available, .. } = ring.driver.layout;
        let descriptor = descriptors + DESCRIPTOR_BYTES * rng.below(3 * u64::from(REQUESTS));
        match rng.below(6) {
            // An address outside of all memory, or across its end.
            0 => ring.write_at(descriptor, &pick(rng, [u64::MAX, u64::MAX - 4095, 0, LAST_BYTE]).to_le_bytes()),
            // Nothing, or more than there is.
            1 => ring.write_at(descriptor + 8, &pick(rng, [0, 1, u32::MAX, 1 << 31]).to_le_bytes()),
            // NEXT, WRITE and INDIRECT where they do not belong, and undefined flags.
            2 => ring.write_at(descriptor + 12, &pick(rng, [1, 3, 4, 5, 6, 7, 0x8000_u16]).to_le_bytes()),
            // A chain that leads to itself, or out of the table.
            3 => ring.write_at(descriptor + 12, &[1, 0, rng.below(256) as u8, rng.below(2) as u8]),
            // Invalid heads.
            4 => ring.write_at(available + 4 + 2 * rng.below(16), &pick(rng, [64, 0xffff_u16]).to_le_bytes()),
            // More requests than the ring holds.
            _ => ring.set_available_idx(pick(rng, [1000, 0xffff, 9])),
        }
        kick(&driver);
    }
}

fn pick<T: Copy, const N: usize>(rng: &mut Rng, from: [T; N]) -> T {
    from[rng.below(N as u64) as usize]
}
