//! Test helpers: `vublk-bench --rw verify`, for as long as the test needs it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use virtio_driver::VirtioBlkFeatureFlags;
use vublk_bench::backend::Backend;
use vublk_bench::front_end::{BlkQueue, ConnectError, Device, DeviceInfo, QueueShape};
use vublk_bench::request::{Request, Status};
use vublk_bench::runner::{Control, FailedRequest, Fatal, Next, Runner, Schedule, Workload};
use vublk_bench::verify::{Counts, Limits, ReadBack, Shared, Verifier};

use super::{PATIENCE, eventually};

/// The parameters of a verification.
#[derive(Clone, Copy)]
pub(crate) struct VerificationSetup {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    /// Bytes of the largest request.
    pub(crate) bs: u64,
    /// Bytes of the disk to use.
    pub(crate) bytes: u64,
    /// Whether to flush. A flush rightly fails after losing a path with unflushed writes.
    pub(crate) flush: bool,
}

impl Default for VerificationSetup {
    fn default() -> Self {
        Self { queues: 4, depth: 16, bs: 64 << 10, bytes: 8 << 20, flush: true }
    }
}

const SEED: u64 = 4711;

/// How long a verification does not spare the machine after a test has waited for its requests.
const LINGER: Duration = Duration::from_millis(300);
/// The pause before each request while a verification spares the machine. Those of a queue still come all at once.
const PAUSE: Duration = Duration::from_millis(1);

/// The end of the time in which requests follow each other without a pause. Most tests wait for seconds until a path is back, and
/// a machine that is busy with their requests meanwhile has no time for other tests.
struct Haste {
    start: Instant,
    until_ms: AtomicU64,
}

impl Haste {
    fn new() -> Self {
        let haste = Self { start: Instant::now(), until_ms: AtomicU64::new(0) };
        haste.prolong();
        haste
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn prolong(&self) {
        self.until_ms.store(self.now_ms() + LINGER.as_millis() as u64, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.now_ms() > self.until_ms.load(Ordering::Relaxed)
    }
}

/// A mixture that pauses where there is no haste.
struct Sparing<'a, W> {
    mixture: W,
    haste: &'a Haste,
}

impl<B: Backend, W: Workload<B>> Workload<B> for Sparing<'_, W> {
    fn next(&mut self, slot: u16, backend: &mut B) -> Next {
        if self.haste.is_over() {
            thread::sleep(PAUSE);
        }
        self.mixture.next(slot, backend)
    }

    fn completed(&mut self, slot: u16, request: &Request, status: Status, backend: &mut B) {
        self.mixture.completed(slot, request, status, backend);
    }
}

/// A random mixture of requests on every queue, with each read checked.
pub(crate) struct Verification {
    shared: Arc<Shared>,
    control: Arc<Control>,
    haste: Arc<Haste>,
    queues: Vec<JoinHandle<Outcome>>,
}

struct Outcome {
    result: Result<(), Fatal>,
    errors: u64,
    failed: Vec<FailedRequest>,
}

struct Job {
    shape: VerificationSetup,
    ring_size: u16,
    shared: Arc<Shared>,
    control: Arc<Control>,
    haste: Arc<Haste>,
    /// Before the read-back, all data are written.
    all_written: Arc<Barrier>,
}

impl Verification {
    pub(crate) fn start(socket: &Path, shape: VerificationSetup) -> Self {
        let ring_size = (shape.depth * 3).next_power_of_two();
        let rings = QueueShape { queues: shape.queues, ring_size, slots: shape.depth, slot_bytes: shape.bs as usize };
        let (device, queues) =
            Device::connect(socket, VirtioBlkFeatureFlags::empty(), PATIENCE, |_| Ok::<_, ConnectError>(rings))
                .unwrap();
        let limits = limits(shape, device.info());
        let blocks = (shape.bytes / u64::from(limits.block_bytes)) as usize;
        let shared = Arc::new(Shared::new(limits, blocks, SEED));
        let (control, haste) = (Arc::new(Control::default()), Arc::new(Haste::new()));
        let all_written = Arc::new(Barrier::new(queues.len()));
        let threads = queues.into_iter().zip(0..).map(|(queue, index)| {
            let (shared, control, haste) = (Arc::clone(&shared), Arc::clone(&control), Arc::clone(&haste));
            let job = Job { shape, ring_size, shared, control, haste, all_written: Arc::clone(&all_written) };
            thread::spawn(move || job.run(index, queue))
        });
        Self { queues: threads.collect(), shared, control, haste }
    }

    /// Requests completed so far.
    pub(crate) fn completed(&self) -> u64 {
        self.control.completed.load(Ordering::Relaxed)
    }

    /// Waits until this many more requests have completed. Returns how long that took.
    pub(crate) fn goes_on(&self, requests: u64) -> Duration {
        let from = self.completed();
        eventually("requests go on", || {
            self.haste.prolong();
            self.completed() >= from + requests || self.control.stop.load(Ordering::Relaxed)
        })
    }

    /// Ends the mixture, reads everything back, and checks that all data were right and nothing failed.
    pub(crate) fn finish(mut self) -> Counts {
        self.control.stop.store(true, Ordering::Relaxed);
        for (queue, index) in self.queues.drain(..).zip(0..) {
            let Outcome { result, errors, failed } = queue.join().unwrap();
            if let Err(fatal) = result {
                panic!("queue {index}: {fatal}: {fatal:?}; miscompares: {:?}", self.shared.miscompares());
            }
            assert_eq!(errors, 0, "queue {index}: {failed:?}");
        }
        let counts = self.shared.counts();
        assert_eq!(counts.miscompares, 0, "{:?}", self.shared.miscompares());
        assert_eq!(counts.blocks_read_back, self.shared.known_blocks());
        assert!(counts.blocks_written > 0 && counts.blocks_verified > 0, "{counts:?}");
        counts
    }
}

impl Drop for Verification {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Relaxed);
    }
}

impl Job {
    fn run(self, index: u16, queue: BlkQueue) -> Outcome {
        let VerificationSetup { depth, .. } = self.shape;
        let mut runner = Runner::new(queue, index, depth, self.ring_size, PATIENCE);
        let schedule = Schedule { measure_from: Instant::now(), until: None };
        let mixture = Verifier::new(&self.shared, index, depth, SEED, u64::MAX);
        let mut mixture = Sparing { mixture, haste: &self.haste };
        let mut result = runner.run(&mut mixture, schedule, &self.control);
        drop(mixture);
        if result.is_err() {
            self.control.stop.store(true, Ordering::Relaxed);
        }
        self.all_written.wait();
        if result.is_ok() {
            let mut read_back = ReadBack::new(&self.shared, index, depth);
            result = runner.run(&mut read_back, schedule, &Control::default());
        }
        Outcome { result, errors: runner.stats.errors, failed: runner.failed }
    }
}

fn limits(shape: VerificationSetup, disk: &DeviceInfo) -> Limits {
    assert!(disk.write_zeroes && disk.discard && disk.flush, "the target has it all: {disk:?}");
    Limits { flush: shape.flush, ..Limits::of(disk, shape.bs) }
}
