//! One cell: a row under a policy.

use crate::bound::bounds;
use crate::contender::Contender;
use crate::cpu_load::CpuLoad;
use crate::paths::{self, NEAR, PathSpec, Paths};
use crate::recovery::{BIN, Bin, Change, Timeline, mean_bound};
use crate::tables::RowSpec;
use crate::warmup;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::control::ControlError;
use vublk_bench::harness::{Bench, Failure, PlannedRow, ProcessTime, Sample, measure_options};
use vublk_bench::options::{Mode, Options};
use vublk_bench::report::Report;
use vublk_bench::session::Progress;
use vublk_bench::sizes::Sizes;
use vublk_bench::stack::MpathStack;

/// The part of the disk in use. It is written once before anything is measured, because memory that is written for the first time
/// costs the target page faults.
const DISK_BYTES: u64 = 256 << 20;
/// Long enough to write that part at 250 MB/s.
const FILL_TIME: Duration = Duration::from_secs(1);

/// How often the time of a request without delay is measured. The shortest time counts.
const FLOOR_RUNS: u32 = 5;

/// A stack, with the delays and rates that its paths were given.
pub(crate) struct PathBench<'a> {
    pub(crate) stack: &'a MpathStack,
    /// `--seconds`
    pub(crate) seconds: Duration,
    pub(crate) interrupted: &'a AtomicBool,
    /// The present delays and rates of the paths, if they are known.
    pub(crate) paths: Option<Paths>,
    /// Time of a request without delay, in seconds, by kind of request.
    pub(crate) floors: Vec<(Mode, Sizes, f64)>,
}

impl PathBench<'_> {
    fn set_paths(&mut self, paths: &Paths) -> Result<(), ControlError> {
        paths::set(&self.stack.control, paths, self.paths.as_ref())?;
        self.paths = Some(paths.clone());
        Ok(())
    }

    fn options(&self, mode: Mode, sizes: &Sizes) -> Options {
        Options {
            sizes: Some(sizes.clone()),
            iodepth: 1,
            queues: 1,
            size: Some(DISK_BYTES),
            ..Options::with_defaults(&self.stack.stack.socket, mode)
        }
    }

    fn run(
        &self,
        what: &str,
        options: &Options,
        interval: Duration,
        progress: impl FnMut(Progress),
    ) -> Result<Report, Failure> {
        measure_options(what, &self.stack.stack, options, self.interrupted, interval, progress)
    }

    /// Writes the part of the disk that is used.
    pub(crate) fn fill(&self) -> Result<(), Failure> {
        let options = Options { iodepth: 8, time: FILL_TIME, ..self.options(Mode::Write, &Sizes::one(131_072)) };
        self.run("the disk's first write", &options, FILL_TIME, |_| ()).map(|_| ())
    }

    /// The time in seconds that one request takes without any delay: the time of kernels and programs, which no policy can avoid.
    /// It is measured on a path with the least delay and without a limit of its rate. That delay is subtracted.
    pub(crate) fn floor(&mut self, row: &RowSpec) -> Result<f64, Failure> {
        let known = self.floors.iter().find(|(mode, sizes, _)| *mode == row.mode && *sizes == row.sizes);
        if let Some((.., floor)) = known {
            return Ok(*floor);
        }
        Contender::plain("numa").set(&self.stack.control)?;
        self.set_paths(&vec![PathSpec { mib_per_second: None, ..NEAR }; row.paths.len()])?;
        let _load = row.cpu_load.then(CpuLoad::start);
        let time = warmup(self.seconds);
        let options = Options { time, warmup: time / 4, ..self.options(row.mode, &row.sizes) };
        // The shortest time counts, because a bound must not include other work of the machine.
        let mut most = 1.0f64;
        for _ in 0..FLOOR_RUNS {
            let report = self.run(&row.name, &options, time, |_| ())?;
            most = most.max(report.total.read.iops + report.total.write.iops);
        }
        let floor = (1.0 / most - NEAR.delay.as_secs_f64()).max(0.0);
        self.floors.push((row.mode, row.sizes.clone(), floor));
        Ok(floor)
    }

    /// Runs a row whose paths change.
    fn run_series(&mut self, row: &RowSpec, options: &Options, bounds: &[f64]) -> Result<(Report, Timeline), Failure> {
        let change = |at_seconds, bound_iops| Change { at_seconds, bound_iops };
        let mut timeline = Timeline { changes: vec![change(0.0, bounds[0])], ..Timeline::default() };
        let third = self.seconds.as_secs_f64() / 3.0;
        let mut to_come = row.changes.iter().zip(&bounds[1..]).peekable();
        let (control, mut paths, mut refused) = (&self.stack.control, self.paths.clone(), None);
        // The thread that counts makes the change, so that the time of the change is known in the run's own time.
        let report = self.run(&row.name, options, BIN, |progress| {
            let to_seconds = progress.elapsed.as_secs_f64();
            let from_seconds = to_seconds - progress.interval.as_secs_f64();
            let iops = progress.completed as f64 / progress.interval.as_secs_f64();
            timeline.bins.push(Bin { from_seconds, to_seconds, iops });
            while let Some(((_, next), bound_iops)) = to_come.next_if(|((at, _), _)| at * third <= to_seconds) {
                if let Err(error) = paths::set(control, next, paths.as_ref()) {
                    refused.get_or_insert(error);
                }
                paths = Some(next.clone());
                timeline.changes.push(change(to_seconds, *bound_iops));
            }
        })?;
        self.paths = paths;
        refused.map_or(Ok((report, timeline)), |error| Err(error.into()))
    }

    /// How many probes the daemon has sent on all paths.
    fn probes(&self) -> Result<u64, ControlError> {
        Ok(self.stack.control.paths()?.iter().map(|path| path.probes).sum())
    }
}

impl Bench<RowSpec, Contender> for PathBench<'_> {
    fn cell(&mut self, planned: &PlannedRow<RowSpec, Contender>, policy: &Contender) -> Result<Sample, Failure> {
        let row = &planned.spec;
        self.set_paths(&policy.paths(&row.paths))?;
        // A policy that stays in force with other parameters would keep what it has learned.
        Contender::plain("numa").set(&self.stack.control)?;
        // Counted before the policy is set, so that its first probes count too.
        let probes = self.probes()?;
        policy.set(&self.stack.control)?;
        let _load = row.cpu_load.then(CpuLoad::start);
        let time = self.seconds.mul_f64(row.thirds / 3.0);
        // A series is measured from its start.
        let warmup = if row.is_series() { Duration::ZERO } else { warmup(self.seconds) };
        let options =
            Options { iodepth: row.depth, queues: row.queues, time, warmup, ..self.options(row.mode, &row.sizes) };
        let before = ProcessTime::now(&self.stack.stack)?;
        let (report, timeline) = if row.is_series() {
            self.run_series(row, &options, &bounds(row, planned.row.fact("floor_us") / 1e6))?
        } else {
            (self.run(&row.name, &options, time, |_| ())?, Timeline::default())
        };
        let (read, write) = (&report.total.read, &report.total.write);
        let latency = read.latency_us.as_ref().or(write.latency_us.as_ref());
        let latency = latency.ok_or_else(|| Failure::Failed(format!("{}: no request was completed", row.name)))?;
        let mut sample = Sample::new(&[
            ("iops", read.iops + write.iops),
            ("mib_s", read.mib_per_second + write.mib_per_second),
            ("p50_us", latency.p50),
            ("p99.9_us", latency.p99_9),
            ("p99.99_us", latency.p99_99),
            ("probes_percent", (self.probes()? - probes) as f64 / report.completed.max(1) as f64 * 100.0),
        ]);
        before.add_since(&mut sample, &self.stack.stack, report.completed)?;
        if row.jumps {
            let recoveries = timeline.recoveries().into_iter().zip(1..);
            sample.figures.extend(recoveries.map(|(seconds, change)| (format!("recovery_{change}_s"), seconds)));
        }
        Ok(sample)
    }
}

/// The facts of a row: its bound, and the time of a request without any delay. The bound of a series is a mean over time.
pub(crate) fn facts(row: &RowSpec, floor_seconds: f64) -> BTreeMap<String, f64> {
    let iops = mean_bound(&row.changes, row.thirds, &bounds(row, floor_seconds));
    let facts = [
        ("bound_iops", iops),
        ("bound_mib_s", iops * row.sizes.mean_bytes() / 1_048_576.0),
        ("floor_us", floor_seconds * 1e6),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}
