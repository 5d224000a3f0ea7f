//! A whole run: connect, one thread a queue, collect.

use crate::backend::Backend;
use crate::front_end::{BlkQueue, ConnectError, Device, DeviceInfo};
use crate::load::{Load, Order};
use crate::options::{Mode, Options, OptionsError, Region};
use crate::report::{Failures, Report, VerifyReport};
use crate::request::SECTOR_BYTES;
use crate::runner::{Control, FailedRequest, Fatal, Runner, Schedule};
use crate::sizes::Sizes;
use crate::stats::Stats;
use crate::verify::{Limits, ReadBack, Shared, Verifier};
use mpath_sim::rng::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The options.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The back-end.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// How often the back-end is asked whether it is still there.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// How often the caller of [`run`] hears of its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How often the end of a run is looked for, and whether it is time to tell of its progress.
const TICK: Duration = Duration::from_millis(20);
const TICKS_PER_PROGRESS: u32 = 20;

/// A moment of a run.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Since the start, warm-up included.
    pub elapsed: Duration,
    /// Requests completed in the last interval.
    pub completed: u64,
    /// Bytes moved in the last interval.
    pub bytes: u64,
    /// Length of that interval.
    pub interval: Duration,
    /// Failed requests so far.
    pub errors: u64,
    /// Wrong blocks so far.
    pub miscompares: u64,
}

struct QueueOutcome {
    stats: Stats,
    failed: Vec<FailedRequest>,
    fatal: Option<Fatal>,
    read_back: bool,
}

/// What every queue's thread is given.
struct Job<'a> {
    options: &'a Options,
    region: Region,
    seed: u64,
    verify: Option<&'a Shared>,
    schedule: Schedule,
    control: &'a Control,
    /// Between the mixture and the read-back of a verification.
    all_written: &'a Barrier,
}

/// Runs to the end of `--time`, or until `interrupted`. `progress` is called once a second.
pub fn run(options: &Options, interrupted: &AtomicBool, progress: impl FnMut(Progress)) -> Result<Report, RunError> {
    run_watched(options, interrupted, PROGRESS_INTERVAL, progress)
}

/// [`run`], with `progress` called every `interval`.
pub fn run_watched(
    options: &Options,
    interrupted: &AtomicBool,
    interval: Duration,
    mut progress: impl FnMut(Progress),
) -> Result<Report, RunError> {
    options.check()?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let mut region = None;
    let (device, queues) =
        Device::connect(&options.socket_path, options.refused_features(), options.connect_timeout, |info| {
            region = Some(options.region(info)?);
            Ok::<_, RunError>(options.queue_shape())
        })?;
    let region = region.expect("a connected device had its region checked");
    let verify = (options.rw == Mode::Verify).then(|| {
        let limits = limits(options, region, device.info());
        Shared::new(limits, (region.bytes / u64::from(limits.block_bytes)) as usize, seed)
    });

    let control = Arc::new(Control::default());
    watch_for_hang_up(Arc::downgrade(&device), Arc::clone(&control));
    let start = Instant::now();
    let measure_from = start + options.warmup;
    let all_written = Barrier::new(queues.len());
    let job = Job {
        options,
        region,
        seed,
        verify: verify.as_ref(),
        schedule: Schedule { measure_from, until: Some(measure_from + options.time) },
        control: &control,
        all_written: &all_written,
    };
    let outcomes: Vec<QueueOutcome> = thread::scope(|scope| {
        let threads: Vec<_> = queues
            .into_iter()
            .zip(0u16..)
            .map(|(queue, index)| {
                scope.spawn({
                    let job = &job;
                    move || job.run_queue(index, queue)
                })
            })
            .collect();
        let running = || threads.iter().any(|thread| !thread.is_finished());
        observe(running, &job, start, interrupted, interval, &mut progress);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let measured = start.elapsed().saturating_sub(options.warmup).min(options.time);
    Ok(collect(&job, seed, device.info(), outcomes, measured, interrupted.load(Ordering::Relaxed)))
}

fn fresh_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    mpath_sim::rng::mix(since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()) << 32)
}

fn limits(options: &Options, region: Region, disk: &DeviceInfo) -> Limits {
    let block_sectors = u64::from(disk.block_bytes) / SECTOR_BYTES;
    Limits {
        region_offset: region.offset,
        block_bytes: disk.block_bytes,
        max_blocks: options.bs / u64::from(disk.block_bytes),
        flush: disk.flush,
        max_zeroes_blocks: u64::from(disk.max_write_zeroes_sectors) / block_sectors,
        zeroes_may_unmap: disk.write_zeroes_may_unmap,
        max_discard_blocks: u64::from(disk.max_discard_sectors) / block_sectors,
        discard_align_blocks: u64::from(disk.discard_sector_alignment).div_ceil(block_sectors).max(1),
    }
}

/// The transport keeps its socket to itself, so a thread asks it something now and then, for as long as the run holds
/// the device. It may block for ever when the back-end hangs, so nothing waits for it.
fn watch_for_hang_up(device: Weak<Device>, control: Arc<Control>) {
    thread::spawn(move || {
        while let Some(device) = device.upgrade() {
            if device.probe().is_err() {
                control.hung_up.store(true, Ordering::Relaxed);
                return;
            }
            drop(device);
            thread::sleep(PROBE_INTERVAL);
        }
    });
}

fn observe(
    running: impl Fn() -> bool,
    job: &Job<'_>,
    start: Instant,
    interrupted: &AtomicBool,
    progress_interval: Duration,
    progress: &mut impl FnMut(Progress),
) {
    let tick = TICK.min(progress_interval / TICKS_PER_PROGRESS);
    let (mut last, mut last_completed, mut last_bytes) = (start, 0, 0);
    while running() {
        thread::sleep(tick);
        if interrupted.load(Ordering::Relaxed) {
            job.control.stop.store(true, Ordering::Relaxed);
        }
        // `progress` may take its time, which belongs to the next interval.
        let now = Instant::now();
        let interval = now.saturating_duration_since(last);
        if interval >= progress_interval {
            let completed = job.control.completed.load(Ordering::Relaxed);
            let bytes = job.control.bytes.load(Ordering::Relaxed);
            progress(Progress {
                elapsed: now.saturating_duration_since(start),
                completed: completed - last_completed,
                bytes: bytes - last_bytes,
                interval,
                errors: job.control.errors.load(Ordering::Relaxed),
                miscompares: job.verify.map_or(0, |shared| shared.miscompared.load(Ordering::Relaxed)),
            });
            (last, last_completed, last_bytes) = (now, completed, bytes);
        }
    }
}

impl Job<'_> {
    fn run_queue(&self, index: u16, mut queue: BlkQueue) -> QueueOutcome {
        let options = self.options;
        let shape = options.queue_shape();
        if self.verify.is_none() {
            self.fill_with_noise(index, &mut queue);
        }
        let mut runner = Runner::new(queue, index, shape.slots, shape.ring_size, options.poll, options.timeout);
        let mut read_back = false;
        let result = match self.verify {
            Some(shared) => self.verify_queue(index, &mut runner, shared, &mut read_back),
            None => runner.run(&mut self.load(index), self.schedule, self.control),
        };
        if result.is_err() {
            self.control.stop.store(true, Ordering::Relaxed);
        }
        QueueOutcome { stats: runner.stats, failed: runner.failed, fatal: result.err(), read_back }
    }

    fn verify_queue(
        &self,
        index: u16,
        runner: &mut Runner<BlkQueue>,
        shared: &Shared,
        read_back: &mut bool,
    ) -> Result<(), Fatal> {
        let slots = self.options.iodepth;
        let mut mixture = Verifier::new(shared, index, slots, self.seed, u64::MAX);
        let result = runner.run(&mut mixture, self.schedule, self.control);
        drop(mixture);
        if result.is_err() {
            self.control.stop.store(true, Ordering::Relaxed);
        }
        self.all_written.wait();
        result?;
        if self.control.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        // The read-back is not part of the measurement.
        let measured = runner.stats.clone();
        let schedule = Schedule { until: None, ..self.schedule };
        let result = runner.run(&mut ReadBack::new(shared, index, slots), schedule, self.control);
        let errors = runner.stats.errors;
        runner.stats = measured;
        runner.stats.errors = errors;
        *read_back = result.is_ok() && !self.control.stop.load(Ordering::Relaxed);
        result
    }

    fn load(&self, index: u16) -> Load {
        let options = self.options;
        let (order, read_percent) = match options.rw {
            Mode::Read => (Order::Sequential, 100),
            Mode::Write => (Order::Sequential, 0),
            Mode::Randread => (Order::Random, 100),
            Mode::Randwrite => (Order::Random, 0),
            Mode::Randrw | Mode::Verify => (Order::Random, options.rwmixread.unwrap_or(50)),
        };
        let region = (self.region.offset, self.region.bytes);
        let sizes = options.bssplit.clone().unwrap_or_else(|| Sizes::one(options.bs as u32));
        Load::new(order, read_percent, sizes, region, (index, options.queues), self.seed)
    }

    /// Written data shall not be what a back-end could shorten; and the memory is touched before it is measured.
    fn fill_with_noise(&self, index: u16, queue: &mut BlkQueue) {
        let mut rng = Rng::new(!self.seed, u64::from(index));
        let mut noise = vec![0; self.options.largest_request() as usize];
        for slot in 0..self.options.iodepth {
            rng.fill(&mut noise);
            queue.fill(slot, &noise);
        }
    }
}

fn collect(
    job: &Job<'_>,
    seed: u64,
    device: &DeviceInfo,
    outcomes: Vec<QueueOutcome>,
    measured: Duration,
    interrupted: bool,
) -> Report {
    let mut total = Stats::default();
    let mut queues = Vec::new();
    let mut failures = Failures::default();
    let mut read_back = true;
    for (outcome, index) in outcomes.into_iter().zip(0..) {
        total.merge(&outcome.stats);
        queues.push(outcome.stats.summary(measured));
        failures.failed_requests.extend(outcome.failed);
        outcome.fatal.into_iter().for_each(|fatal| failures.add(index, fatal));
        read_back &= outcome.read_back;
    }
    let verify = job.verify.map(|shared| VerifyReport {
        counts: shared.counts(),
        known_blocks: shared.known_blocks(),
        read_back,
        first_miscompares: shared.miscompares(),
    });
    let verified = verify.as_ref().is_none_or(|verify| {
        let complete = verify.read_back && verify.counts.blocks_read_back == verify.known_blocks;
        verify.counts.miscompares == 0 && (complete || interrupted)
    });
    let ok = verified && total.errors == 0 && failures.fatal.is_empty();
    Report {
        version: env!("CARGO_PKG_VERSION"),
        config: job.options.clone(),
        seed,
        device: device.clone(),
        measured_seconds: measured.as_secs_f64(),
        completed: job.control.completed.load(Ordering::Relaxed),
        total: total.summary(measured),
        queues,
        verify,
        failures,
        interrupted,
        ok,
    }
}
