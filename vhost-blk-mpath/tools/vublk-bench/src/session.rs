//! A whole run: connects, runs one thread for each queue, and collects the results.

use crate::backend::Backend;
use crate::front_end::{BlkQueue, ConnectError, Device};
use crate::load::Load;
use crate::options::{Mode, Options, OptionsError};
use crate::report::{Failures, Report, VerifyReport};
use crate::runner::{Control, Fatal, Runner, Schedule};
use crate::sizes::Sizes;
use crate::stats::Stats;
use crate::verify::{Limits, ReadBack, Shared, Verifier};
use mpath_sim::rng::Rng;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// How often the back-end is asked whether it is still there.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// How often the caller of [`run`] hears of its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How often the session checks whether the run has ended, and whether progress is due.
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
    pub interval: Duration,
    pub errors: u64,
    pub miscompares: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.interval.as_secs_f64();
        let (iops, mib) = (self.completed as f64 / seconds, self.bytes as f64 / 1_048_576.0 / seconds);
        write!(f, "{:4} s: {iops:.0} IOPS, {mib:.1} MiB/s", self.elapsed.as_secs())?;
        match (self.errors, self.miscompares) {
            (0, 0) => Ok(()),
            (errors, miscompares) => write!(f, ", {errors} errors, {miscompares} miscompares"),
        }
    }
}

/// The common data of the threads of all queues.
struct Job<'a> {
    options: &'a Options,
    region_bytes: u64,
    seed: u64,
    verify: Option<&'a Shared>,
    schedule: Schedule,
    control: &'a Control,
    /// The barrier between the mixture and the read-back of a verification.
    all_written: &'a Barrier,
}

/// How a queue's thread ended: its account, and whether everything was read back.
type Outcome = (Runner<BlkQueue>, Result<bool, Fatal>);

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
    let mut region_bytes = 0;
    let (device, queues) =
        Device::connect(&options.socket_path, options.refused_features(), options.connect_timeout, |info| {
            region_bytes = options.region_bytes(info)?;
            Ok::<_, RunError>(options.queue_shape())
        })?;
    let verify = (options.rw == Mode::Verify).then(|| {
        let limits = Limits::of(device.info(), options.bs);
        Shared::new(limits, (region_bytes / u64::from(limits.block_bytes)) as usize, seed)
    });

    let control = Arc::new(Control::default());
    watch_for_hang_up(Arc::downgrade(&device), Arc::clone(&control));
    let start = Instant::now();
    let measure_from = start + options.warmup;
    let all_written = Barrier::new(queues.len());
    let job = Job {
        options,
        region_bytes,
        seed,
        verify: verify.as_ref(),
        schedule: Schedule { measure_from, until: Some(measure_from + options.time) },
        control: &control,
        all_written: &all_written,
    };
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let job = &job;
        let queues = queues.into_iter().zip(0u16..);
        let threads: Vec<_> = queues.map(|(queue, index)| scope.spawn(move || job.run_queue(index, queue))).collect();
        let running = || threads.iter().any(|thread| !thread.is_finished());
        job.observe(running, start, interrupted, interval, &mut progress);
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let measured = start.elapsed().saturating_sub(options.warmup).min(options.time);
    Ok(job.report(&device, outcomes, measured, interrupted.load(Ordering::Relaxed)))
}

fn fresh_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    mpath_sim::rng::mix(since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()) << 32)
}

/// Starts a thread that notices when the back-end closes the connection. The transport does not give out its socket, so the
/// thread sends the back-end a request regularly, as long as the run holds the device. It may block for ever when the back-end
/// hangs, so nothing waits for it.
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

impl Job<'_> {
    fn observe(
        &self,
        running: impl Fn() -> bool,
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
                self.control.stop.store(true, Ordering::Relaxed);
            }
            // `progress` may take its time, which belongs to the next interval.
            let now = Instant::now();
            let interval = now.saturating_duration_since(last);
            if interval >= progress_interval {
                let completed = self.control.completed.load(Ordering::Relaxed);
                let bytes = self.control.bytes.load(Ordering::Relaxed);
                progress(Progress {
                    elapsed: now.saturating_duration_since(start),
                    completed: completed - last_completed,
                    bytes: bytes - last_bytes,
                    interval,
                    errors: self.control.errors.load(Ordering::Relaxed),
                    miscompares: self.verify.map_or(0, |shared| shared.miscompared.load(Ordering::Relaxed)),
                });
                (last, last_completed, last_bytes) = (now, completed, bytes);
            }
        }
    }

    fn run_queue(&self, index: u16, mut queue: BlkQueue) -> Outcome {
        let options = self.options;
        let shape = options.queue_shape();
        if self.verify.is_none() {
            self.fill_with_noise(index, &mut queue);
        }
        let mut runner = Runner::new(queue, index, shape.slots, shape.ring_size, options.timeout);
        let result = match self.verify {
            Some(shared) => self.verify_queue(index, &mut runner, shared),
            None => runner.run(&mut self.load(index), self.schedule, self.control).map(|()| false),
        };
        if result.is_err() {
            self.control.stop.store(true, Ordering::Relaxed);
        }
        (runner, result)
    }

    fn verify_queue(&self, index: u16, runner: &mut Runner<BlkQueue>, shared: &Shared) -> Result<bool, Fatal> {
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
            return Ok(false);
        }
        // The read-back is not part of the measurement.
        let measured = runner.stats.clone();
        let schedule = Schedule { until: None, ..self.schedule };
        let result = runner.run(&mut ReadBack::new(shared, index, slots), schedule, self.control);
        let errors = runner.stats.errors;
        runner.stats = measured;
        runner.stats.errors = errors;
        result.map(|()| !self.control.stop.load(Ordering::Relaxed))
    }

    fn load(&self, index: u16) -> Load {
        let options = self.options;
        let sizes = options.sizes.clone().unwrap_or_else(|| Sizes::one(options.bs as u32));
        Load::new(options.rw, sizes, self.region_bytes, (index, options.queues), self.seed)
    }

    /// Fills the buffers with noise. Then a back-end cannot take a short cut, as it could for zeroes, and the memory is touched
    /// before the measurement.
    fn fill_with_noise(&self, index: u16, queue: &mut BlkQueue) {
        let mut rng = Rng::new(!self.seed, u64::from(index));
        let mut noise = vec![0; self.options.largest_request() as usize];
        for slot in 0..self.options.iodepth {
            rng.fill(&mut noise);
            queue.fill(slot, &noise);
        }
    }

    fn report(&self, device: &Device, outcomes: Vec<Outcome>, measured: Duration, interrupted: bool) -> Report {
        let (mut total, mut queues, mut failures) = (Stats::default(), Vec::new(), Failures::default());
        let mut read_back = true;
        for ((runner, result), index) in outcomes.into_iter().zip(0..) {
            total.merge(&runner.stats);
            queues.push(runner.stats.summary(measured));
            failures.failed_requests.extend(runner.failed);
            read_back &= result.unwrap_or_else(|fatal| failures.add(index, fatal));
        }
        let verify = self.verify.map(|shared| VerifyReport {
            counts: shared.counts(),
            known_blocks: shared.known_blocks(),
            read_back,
            first_miscompares: shared.miscompares(),
        });
        let verified = verify.as_ref().is_none_or(|verify| {
            let complete = verify.read_back && verify.counts.blocks_read_back == verify.known_blocks;
            verify.counts.miscompares == 0 && (complete || interrupted)
        });
        Report {
            version: env!("CARGO_PKG_VERSION"),
            config: self.options.clone(),
            seed: self.seed,
            device: device.info().clone(),
            measured_seconds: measured.as_secs_f64(),
            completed: self.control.completed.load(Ordering::Relaxed),
            ok: verified && total.errors == 0 && failures.fatal.is_empty(),
            total: total.summary(measured),
            queues,
            verify,
            failures,
            interrupted,
        }
    }
}
