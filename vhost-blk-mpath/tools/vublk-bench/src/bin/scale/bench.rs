//! One cell: a daemon from its start to its end, with a load on some of its disks.

use crate::sweeps::{Contender, Setup, Sweep};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use virtio_driver::VirtioBlkFeatureFlags;
use vublk_bench::front_end::{BlkQueue, ConnectError, Device, QueueShape};
use vublk_bench::harness::{Bench, Failure, PlannedRow, ProcessTime, Sample, checked};
use vublk_bench::options::{Mode, Options};
use vublk_bench::process::{Resources, cpu_time};
use vublk_bench::report::Report;
use vublk_bench::session::{self, RunError};
use vublk_bench::stack::{Programs, Stack};

pub(crate) const WARMUP: Duration = Duration::from_millis(500);
/// After this time, a start of the daemon and of front-ends causes no more work.
const SETTLE: Duration = Duration::from_secs(1);
/// How long a daemon without load is watched.
pub(crate) const IDLE: Duration = Duration::from_secs(5);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon an interrupt is noticed.
const TICK: Duration = Duration::from_millis(50);

pub(crate) struct ScaleBench<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) time: Duration,
    pub(crate) interrupted: &'a AtomicBool,
    /// The command lines of the first cell.
    pub(crate) commands: Vec<String>,
}

/// A front-end without requests.
type Idle = (Arc<Device>, Vec<BlkQueue>);

/// Raises the limit of open files to what is allowed. Fails if that is less than `needed`.
pub(crate) fn allow_open_files(needed: u64) -> Result<(), Failure> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Some(limit) = maximum.filter(|limit| *limit < needed) {
        return Err(Failure::NotStarted(format!(
            "these sweeps need {needed} open files, and the hard limit is {limit}; raise it (ulimit -Hn {needed}), or name other \
             sweeps with --only"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|error| Failure::NotStarted(format!("cannot raise the limit of open files: {error}")))
}

impl ScaleBench<'_> {
    fn pause(&self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn connect(&self, stack: &Stack, disk: u16) -> Result<Idle, Failure> {
        self.pause(Duration::ZERO)?;
        let shape = QueueShape { queues: 1, ring_size: 128, slots: 1, slot_bytes: 4096 };
        let refused = VirtioBlkFeatureFlags::empty();
        Device::connect(&stack.socket_of(disk), refused, CONNECT_TIMEOUT, |_| Ok::<_, ConnectError>(shape))
            .map_err(|error| Failure::Failed(format!("disk {disk}: {error}\n{}", stack.logs())))
    }

    /// Percent of a processor that the daemon takes without any request.
    fn idle_percent(&self, stack: &Stack) -> Result<f64, Failure> {
        self.pause(SETTLE)?;
        let now = || cpu_time(stack.daemon.pid()).ok_or_else(|| ended(stack));
        let (before, start) = (now()?, Instant::now());
        self.pause(IDLE)?;
        Ok(now()?.saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0)
    }

    /// Loads the busy disks. Returns their reports, and what the daemon holds meanwhile.
    fn load(&self, what: &str, stack: &Stack, setup: &Setup) -> Result<(Vec<Report>, Resources), Failure> {
        let options = |disk| Options {
            iodepth: setup.queue_depth(),
            queues: setup.disks.queues,
            time: self.time,
            warmup: WARMUP,
            ..Options::with_defaults(&stack.socket_of(disk), Mode::Randread)
        };
        let run = |disk| {
            let options = options(disk);
            move || session::run(&options, self.interrupted, |_| ())
        };
        let (reports, held) = thread::scope(|scope| {
            let sessions: Vec<_> = (0..setup.busy).map(|disk| scope.spawn(run(disk))).collect();
            let waited = self.pause(WARMUP + self.time / 2);
            let held = waited.and_then(|()| Resources::of(stack.daemon.pid()).ok_or_else(|| ended(stack)));
            let joined = sessions.into_iter().map(thread::ScopedJoinHandle::join);
            let reports: Vec<Result<Report, RunError>> =
                joined.map(|report| report.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
            (reports, held)
        });
        let reports = reports.into_iter().map(|report| checked(what, stack, report)).collect::<Result<_, _>>()?;
        Ok((reports, held?))
    }
}

fn ended(stack: &Stack) -> Failure {
    Failure::Failed(format!("the daemon has ended\n{}", stack.logs()))
}

impl Bench<Sweep, Contender> for ScaleBench<'_> {
    fn cell(&mut self, planned: &PlannedRow<Sweep, Contender>, contender: &Contender) -> Result<Sample, Failure> {
        let (setup, what) = (&contender.setup, format!("{} {}, {contender}", planned.row.table, planned.row.name));
        let (stack, start) = Stack::with_disks(self.programs, setup.disks)?;
        if self.commands.is_empty() {
            self.commands = stack.command_lines();
        }
        let mut sample = Sample::new(&[("start_ms", start.as_secs_f64() * 1e3)]);
        let mut idle = (0..setup.disks.count).map(|disk| self.connect(&stack, disk)).collect::<Result<Vec<_>, _>>()?;
        if setup.is_idle_watched {
            sample.figures.insert("idle_percent".into(), self.idle_percent(&stack)?);
        }
        drop(idle.drain(..usize::from(setup.busy)));
        let before = ProcessTime::now(&stack)?;
        let (reports, held) = self.load(&what, &stack, setup)?;
        before.add_since(&mut sample, &stack, reports.iter().map(|report| report.completed).sum())?;
        let latencies = || reports.iter().filter_map(|report| report.total.read.latency_us.as_ref());
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let figures = [
            ("iops", reports.iter().map(|report| report.total.read.iops).sum()),
            ("p50_us", latencies().map(|latency| latency.p50).sum::<f64>() / reports.len() as f64),
            ("p99_us", latencies().map(|latency| latency.p99).fold(0.0, f64::max)),
            ("rss_mib", mib(held.rss_bytes)),
            ("pss_mib", mib(held.pss_bytes)),
            ("threads", held.threads as f64),
            ("open_files", held.open_files as f64),
        ];
        sample.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        Ok(sample)
    }
}
