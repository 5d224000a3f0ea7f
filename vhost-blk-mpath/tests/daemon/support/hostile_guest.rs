//! Test helpers: a front-end that breaks the rules: bad descriptors, endless chains, invalid heads, an index that
//! runs away. It leaves with requests under way, again and again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mpath_sim::rng::Rng;
use virtio_driver::virtqueue::{Virtqueue, VirtqueueLayout};
use virtio_driver::{VhostUser, VirtioBlkConfig, VirtioFeatureFlags, VirtioTransport, iovec};

const READ: u32 = 0;
const QUEUE_SIZE: u16 = 64;
const REQUESTS: usize = 8;
const DESCRIPTOR_BYTES: usize = 16;
/// The pause between two attacks. The attacks are to use the daemon's time, not all of the machine's.
const PAUSE: Duration = Duration::from_micros(500);

/// `struct virtio_blk_req` with the data of a read.
#[derive(Clone, Copy)]
#[repr(C)]
struct ReadRequest {
    kind: u32,
    reserved: u32,
    sector: u64,
    data: [u8; 4096],
    status: u8,
}

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
    layout: VirtqueueLayout,
    memory: *mut u8,
    memory_bytes: usize,
    transport: VhostUser<VirtioBlkConfig, ReadRequest>,
}

impl BadDriver {
    /// Connects, with this number of reads in the virtqueue. The daemon may take them at once.
    pub(crate) fn connect(socket: &Path, reads: u64) -> Self {
        let features = VirtioFeatureFlags::VERSION_1;
        let mut transport = VhostUser::new(socket.to_str().unwrap(), features.bits()).unwrap();
        let layout = VirtqueueLayout::new::<ReadRequest>(1, QUEUE_SIZE.into(), features).unwrap();
        let area = transport.alloc_queue_mem(&layout).unwrap();
        let (memory, memory_bytes) = (area.as_mut_ptr(), area.len());
        // SAFETY: all of the transport's mapping, which stays until the transport is dropped, after the ring. What is scribbled
        // below is shared with the daemon by its nature.
        let area = unsafe { std::slice::from_raw_parts_mut(memory, memory_bytes) };
        let mut ring = Virtqueue::<ReadRequest>::new(transport.iova_translator(), area, QUEUE_SIZE, features).unwrap();
        transport.setup_queues(std::slice::from_ref(&ring)).unwrap();
        for sector in 0..reads {
            let request = ReadRequest { kind: READ, reserved: 0, sector, data: [0; 4096], status: 0xff };
            let added = ring.add_request(|area, add| {
                *area = request;
                let part = |field: *mut u8, len| iovec { iov_base: field.cast(), iov_len: len };
                add(part(std::ptr::from_mut(&mut area.kind).cast(), 16), false)?;
                add(part(area.data.as_mut_ptr(), 4096), true)?;
                add(part(&raw mut area.status, 1), true)
            });
            added.unwrap();
        }
        Self { layout, memory, memory_bytes, transport }
    }

    /// Claims that more requests wait than the ring can hold.
    pub(crate) fn break_ring(&mut self) {
        self.set_available_index(1000);
        self.kick();
    }

    /// Announces a first request, whose only buffer is empty.
    pub(crate) fn submit_without_status(&mut self) {
        self.set_available_index(1);
        self.kick();
    }

    fn set_available_index(&mut self, index: u16) {
        self.write(self.layout.driver_area_offset + 2, &index.to_le_bytes());
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.layout.req_offset, "in the rings");
        for (&byte, at) in bytes.iter().zip(offset..) {
            // SAFETY: within the mapping, and nobody holds a reference to the rings while this runs.
            unsafe { self.memory.add(at).write_volatile(byte) };
        }
    }

    fn kick(&self) {
        // The daemon may have hung up.
        let _ = self.transport.get_submission_notifier(0).notify();
    }
}

/// One connection from handshake to hang-up.
fn live(socket: &Path, rng: &mut Rng) {
    let mut driver = BadDriver::connect(socket, REQUESTS as u64);
    let (heads, bytes) = (driver.layout.driver_area_offset + 4, driver.memory_bytes as u64);
    let kick = |driver: &BadDriver| {
        driver.kick();
        thread::sleep(PAUSE);
    };
    // One connection in four begins correctly.
    if rng.below(4) == 0 {
        kick(&driver);
    }
    for _ in 0..=rng.below(3) {
        let descriptor = rng.below(3 * REQUESTS as u64) as usize * DESCRIPTOR_BYTES;
        match rng.below(6) {
            // An address outside of all memory, or across its end.
            0 => driver.write(descriptor, &pick(rng, [u64::MAX, u64::MAX - 4095, 0, bytes - 1]).to_le_bytes()),
            // Nothing, or more than there is.
            1 => driver.write(descriptor + 8, &pick(rng, [0, 1, u32::MAX, 1 << 31]).to_le_bytes()),
            // NEXT, WRITE and INDIRECT where they do not belong, and undefined flags.
            2 => driver.write(descriptor + 12, &pick(rng, [1, 3, 4, 5, 6, 7, 0x8000_u16]).to_le_bytes()),
            // A chain that leads to itself, or out of the table.
            3 => driver.write(descriptor + 12, &[1, 0, rng.below(256) as u8, rng.below(2) as u8]),
            // Invalid heads.
            4 => driver.write(heads + 2 * rng.below(16) as usize, &pick(rng, [64, 0xffff_u16]).to_le_bytes()),
            // More requests than the ring holds.
            _ => driver.set_available_index(pick(rng, [1000, 0xffff, 9])),
        }
        kick(&driver);
    }
}

fn pick<T: Copy, const N: usize>(rng: &mut Rng, from: [T; N]) -> T {
    from[rng.below(N as u64) as usize]
}
