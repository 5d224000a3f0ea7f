//! One cell: a row under a policy.

use crate::bound::{bound, bounds};
use crate::contender::Contender;
use crate::cpu_load::CpuLoad;
use crate::paths::{self, NEAR, PathSpec, Paths};
use crate::recovery::{BIN, Bin, Change, Timeline, mean_bound};
use crate::tables::{Length, RowSpec, Series};
use crate::warmup;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::harness::{Bench, Failure, PlannedRow, ProcessTime, Sample, measure_options};
use vublk_bench::options::{Mode, Options};
use vublk_bench::report::Report;
use vublk_bench::session::Progress;
use vublk_bench::sizes::Sizes;
use vublk_bench::stack::MpathStack;

/// The part of the disk in use. It is written once before anything is measured, because memory that is written for the first time
/// costs the target page faults.
const DISK_BYTES: u64 = 256 << 20;
/// Enough to write it at 250 MB/s.
const FILL_TIME: Duration = Duration::from_secs(1);

/// A request without delay is measured this often; the best counts.
const FLOOR_RUNS: u32 = 5;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A stack with its paths as they were told to be.
pub(crate) struct PathBench<'a> {
    stack: &'a MpathStack,
    control: &'a Control,
    /// `--seconds`
    seconds: Duration,
    interrupted: &'a AtomicBool,
    /// What the paths are, if that is known.
    paths: Option<Paths>,
    /// Time of a request without delay, in seconds, by kind of request.
    floors: Vec<(Mode, Sizes, f64)>,
}

impl<'a> PathBench<'a> {
    pub(crate) fn new(
        stack: &'a MpathStack,
        control: &'a Control,
        seconds: Duration,
        interrupted: &'a AtomicBool,
    ) -> Self {
        Self { stack, control, seconds, interrupted, paths: None, floors: Vec::new() }
    }

    fn set_paths(&mut self, paths: &Paths) -> Result<(), ControlError> {
        paths::set(self.control, paths, self.paths.as_ref())?;
        self.paths = Some(paths.clone());
        Ok(())
    }

    fn options(&self, mode: Mode, sizes: &Sizes) -> Options {
        Options {
            bssplit: Some(sizes.clone()),
            iodepth: 1,
            queues: 1,
            size: Some(DISK_BYTES),
            ..Options::with_defaults(&self.stack.socket, mode)
        }
    }

    /// Writes the part of the disk that is used.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        let options = Options { iodepth: 8, time: FILL_TIME, ..self.options(Mode::Write, &Sizes::one(131_072)) };
        self.run("the disk's first write", &options, PROGRESS_INTERVAL, |_| ()).map(|_| ())
    }

    /// The bound of a row, and what a request takes without any delay.
    pub(crate) fn facts(&mut self, row: &RowSpec) -> Result<BTreeMap<String, f64>, Failure> {
        let floor_seconds = self.floor(row)?;
        Ok(facts(row, floor_seconds))
    }

    /// Time of one request, in seconds, on a path with the least delay of any and no limit to its rate, less that delay.
    /// This is the time of kernels and programs, which no policy can avoid.
    fn floor(&mut self, row: &RowSpec) -> Result<f64, Failure> {
        if let Some((.., floor)) = self.floors.iter().find(|(mode, sizes, _)| *mode == row.mode && *sizes == row.sizes)
        {
            return Ok(*floor);
        }
        Contender::plain("numa").set(self.control)?;
        self.set_paths(&vec![PathSpec { mib_per_second: None, ..NEAR }; row.paths.len()])?;
        let _load = row.cpu_load.then(CpuLoad::start);
        let time = warmup(self.seconds);
        let options = Options { time, warmup: time / 4, ..self.options(row.mode, &row.sizes) };
        // The best counts: a bound must not include what else the machine did.
        let mut most = 1.0f64;
        for _ in 0..FLOOR_RUNS {
            let report = self.run(&row.name, &options, PROGRESS_INTERVAL, |_| ())?;
            most = most.max(report.total.read.iops + report.total.write.iops);
        }
        let floor = (1.0 / most - NEAR.delay.as_secs_f64()).max(0.0);
        self.floors.push((row.mode, row.sizes.clone(), floor));
        Ok(floor)
    }

    fn run_series(
        &mut self,
        row: &RowSpec,
        options: &Options,
        series: &Series,
        bounds: &[f64],
    ) -> Result<(Report, Timeline), Failure> {
        let change = |at_seconds, bound_iops| Change { at_seconds, bound_iops };
        let mut timeline = Timeline { changes: vec![change(0.0, bounds[0])], ..Timeline::default() };
        let third = self.seconds.as_secs_f64() / 3.0;
        let (mut to_come, mut refused) = (series.changes.iter().zip(&bounds[1..]).peekable(), None);
        let (control, mut paths) = (self.control, self.paths.clone());
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
        match refused {
            Some(error) => Err(error.into()),
            None => Ok((report, timeline)),
        }
    }

    fn run(
        &self,
        what: &str,
        options: &Options,
        interval: Duration,
        progress: impl FnMut(Progress),
    ) -> Result<Report, Failure> {
        measure_options(what, options, self.interrupted, interval, || self.stack.daemon.log_tail(), progress)
    }

    /// How many probes the daemon has sent on all paths.
    fn probes(&self) -> Result<u64, ControlError> {
        Ok(self.control.paths()?.iter().map(|path| path.probes).sum())
    }
}

impl Bench<RowSpec, Contender> for PathBench<'_> {
    fn cell(&mut self, planned: &PlannedRow<RowSpec, Contender>, policy: &Contender) -> Result<Sample, Failure> {
        let row = &planned.spec;
        self.set_paths(&policy.paths(&row.paths))?;
        // A policy that stays in force with other parameters would keep what it has learned.
        Contender::plain("numa").set(self.control)?;
        // Probes of the first moment count too.
        let probes = self.probes()?;
        policy.set(self.control)?;
        let _load = row.cpu_load.then(CpuLoad::start);
        let is_series = matches!(row.length, Length::Series(_));
        let options = Options {
            iodepth: row.depth,
            queues: row.queues,
            time: row.length.time(self.seconds),
            warmup: if is_series { Duration::ZERO } else { warmup(self.seconds) },
            ..self.options(row.mode, &row.sizes)
        };
        let before = ProcessTime::now(&self.stack.processes())?;
        let (report, recoveries) = match &row.length {
            Length::Series(series) => {
                let bounds = bounds(row, planned.row.fact("floor_us") / 1e6);
                let (report, timeline) = self.run_series(row, &options, series, &bounds)?;
                (report, if series.jumps { timeline.recoveries() } else { Vec::new() })
            }
            Length::Full | Length::Quarter => (self.run(&row.name, &options, PROGRESS_INTERVAL, |_| ())?, Vec::new()),
        };
        let (after, probes) = (ProcessTime::now(&self.stack.processes())?, self.probes()? - probes);
        let (read, write) = (&report.total.read, &report.total.write);
        let latency = read.latency_us.as_ref().or(write.latency_us.as_ref());
        let latency = latency.ok_or_else(|| Failure::Failed(format!("{}: no request was completed", row.name)))?;
        let mut sample = Sample::new(&[
            ("iops", read.iops + write.iops),
            ("mib_s", read.mib_per_second + write.mib_per_second),
            ("p50_us", latency.p50),
            ("p99.9_us", latency.p99_9),
            ("p99.99_us", latency.p99_99),
            ("probes_percent", probes as f64 / report.completed.max(1) as f64 * 100.0),
        ]);
        ProcessTime::add_to(&mut sample, &before, &after, report.completed);
        let recoveries = recoveries.into_iter().zip(1..);
        sample.figures.extend(recoveries.map(|(seconds, change)| (format!("recovery_{change}_s"), seconds)));
        Ok(sample)
    }
}

/// The facts of a row, of which the bound of a series is the mean.
pub(crate) fn facts(row: &RowSpec, floor_seconds: f64) -> BTreeMap<String, f64> {
    let bounds = bounds(row, floor_seconds);
    let iops = match &row.length {
        Length::Series(series) => mean_bound(series, &bounds),
        Length::Full | Length::Quarter => bound(&row.paths, floor_seconds, row.sizes.mean_bytes(), row.outstanding()),
    };
    let facts = [
        ("bound_iops", iops),
        ("bound_mib_s", iops * row.sizes.mean_bytes() / 1_048_576.0),
        ("floor_us", floor_seconds * 1e6),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}
