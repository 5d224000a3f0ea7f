//! One cell: a row under a policy.

use crate::PoliciesError;
use crate::bound::bound;
use crate::contender::Contender;
use crate::cpu_load::CpuLoad;
use crate::plan::Plan;
use crate::scene::{self, NEAR, PathSpec, Scene};
use crate::series::{BIN, Bin, Change, Timeline, mean_bound};
use crate::tables::{Length, RowSpec};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::options::{Mode, Options};
use vublk_bench::process::cpu_time;
use vublk_bench::report::Report;
use vublk_bench::session::{self, Progress};
use vublk_bench::sizes::Sizes;
use vublk_bench::stack::MpathStack;
use vublk_bench::stats::Latency;

/// The part of the disk in use: it is written once before anything is measured, because memory that is touched for the first time costs
/// the target page faults.
const DISK_BYTES: u64 = 256 << 20;
/// Enough to write it at 250 MB/s.
const FILL_TIME: Duration = Duration::from_secs(1);

/// Measurements of what a request takes by itself, of which the best counts.
const FLOOR_RUNS: u32 = 5;

/// What one cell gave.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) mib_per_second: f64,
    /// Of the reads if there are any, otherwise of the writes.
    pub(crate) latency_us: Latency,
    /// User and system time by process, over all requests, warm-up included.
    pub(crate) cpu_us_per_io: BTreeMap<&'static str, f64>,
    /// Reads of the daemon's own for every hundred requests, warm-up included.
    pub(crate) probes_percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeline: Option<Timeline>,
    /// After each jump of the series; see [`Timeline::recoveries`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) recovery_seconds: Vec<Option<f64>>,
}

/// The bounds of a row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Bound {
    /// Requests per second; for a series the mean.
    pub(crate) iops: f64,
    pub(crate) mib_per_second: f64,
    /// What a request takes at the best path without its delay.
    pub(crate) floor_us: f64,
    /// For a series: at the start and after each change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) phases_iops: Vec<f64>,
}

impl Bound {
    pub(crate) fn of(row: &RowSpec, floor_seconds: f64) -> Self {
        let size = row.sizes.mean_bytes();
        let depth = u32::from(row.depth) * u32::from(row.queues);
        let at = |scene: &Scene| bound(scene, floor_seconds, size, depth);
        let (iops, phases_iops) = match &row.length {
            Length::Series(series) => {
                let later = series.changes.iter().map(|(_, scene)| at(scene));
                let phases: Vec<f64> = std::iter::once(at(&row.scene)).chain(later).collect();
                (mean_bound(series, &phases), phases)
            }
            Length::Full | Length::Quarter => (at(&row.scene), Vec::new()),
        };
        Self { iops, mib_per_second: iops * size / 1_048_576.0, floor_us: floor_seconds * 1e6, phases_iops }
    }
}

/// A stack with its paths as they were told to be.
pub(crate) struct Bench<'a> {
    pub(crate) stack: &'a MpathStack,
    pub(crate) control: &'a Control,
    pub(crate) plan: Plan,
    pub(crate) interrupted: &'a AtomicBool,
    /// What the paths are now.
    pub(crate) scene: Option<Scene>,
}

impl Bench<'_> {
    fn set_scene(&mut self, scene: &Scene) -> Result<(), ControlError> {
        scene::set(self.control, scene, self.scene.as_ref())?;
        self.scene = Some(scene.clone());
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
    pub(crate) fn fill(&mut self) -> Result<(), PoliciesError> {
        let options = Options { iodepth: 8, time: FILL_TIME, ..self.options(Mode::Write, &Sizes::one(131_072)) };
        self.run("the disk's first write", &options, Duration::from_secs(1), |_| ()).map(|_| ())
    }

    /// What one request takes, in seconds, on a path with the least delay of any and no limit to its rate, less that delay. The kernels and
    /// programs on the way, which no policy can avoid.
    pub(crate) fn floor(&mut self, row: &RowSpec) -> Result<f64, PoliciesError> {
        Contender::plain("numa").set(self.control)?;
        let paths = row.scene.len();
        self.set_scene(&vec![PathSpec { mib_per_second: None, ..NEAR }; paths])?;
        let _load = row.cpu_load.then(CpuLoad::start);
        let time = self.plan.floor_time();
        let options = Options { time, warmup: time / 4, ..self.options(row.mode, &row.sizes) };
        // A bound is the best there can be: what else the machine did at the time is no part of it.
        let mut most = 1.0f64;
        for _ in 0..FLOOR_RUNS {
            let report = self.run(&row.name, &options, Duration::from_secs(1), |_| ())?;
            most = most.max(report.total.read.iops + report.total.write.iops);
        }
        Ok((1.0 / most - NEAR.delay.as_secs_f64()).max(0.0))
    }

    /// Measures one cell.
    pub(crate) fn cell(&mut self, row: &RowSpec, bound: &Bound, policy: &Contender) -> Result<Sample, PoliciesError> {
        self.set_scene(&policy.scene(&row.scene).into_owned())?;
        // One that stays in force, with other parameters, would keep what it has learned.
        Contender::plain("numa").set(self.control)?;
        // Those of the first moment count too.
        let probes = self.probes()?;
        policy.set(self.control)?;
        let _load = row.cpu_load.then(CpuLoad::start);
        let options = Options {
            iodepth: row.depth,
            queues: row.queues,
            time: row.length.time(self.plan.seconds),
            warmup: if matches!(row.length, Length::Series(_)) { Duration::ZERO } else { self.plan.warmup() },
            ..self.options(row.mode, &row.sizes)
        };
        let before = self.cpu_times()?;
        let (report, timeline) = match &row.length {
            Length::Series(series) => {
                let changes: Vec<(f64, &Scene)> = series
                    .changes
                    .iter()
                    .map(|(at, scene)| (at / 3.0 * self.plan.seconds.as_secs_f64(), scene))
                    .collect();
                let (report, timeline) = self.run_series(row, &options, &changes, bound)?;
                (report, Some((timeline, series.jumps)))
            }
            Length::Full | Length::Quarter => (self.run(&row.name, &options, Duration::from_secs(1), |_| ())?, None),
        };
        let (after, probes) = (self.cpu_times()?, self.probes()? - probes);
        let completed = report.completed.max(1) as f64;
        let cpu = before.iter().map(|(&role, before)| {
            let used = after.get(role).copied().unwrap_or_default().saturating_sub(*before);
            (role, used.as_secs_f64() * 1e6 / completed)
        });
        let (read, write) = (&report.total.read, &report.total.write);
        let latency = read.latency_us.clone().or_else(|| write.latency_us.clone());
        let recoveries = timeline.as_ref().filter(|(_, jumps)| *jumps).map(|(timeline, _)| timeline.recoveries());
        Ok(Sample {
            iops: read.iops + write.iops,
            mib_per_second: read.mib_per_second + write.mib_per_second,
            latency_us: latency.ok_or_else(|| self.failed(&row.name, &report))?,
            cpu_us_per_io: cpu.collect(),
            probes_percent: probes as f64 / completed * 100.0,
            timeline: timeline.map(|(timeline, _)| timeline),
            recovery_seconds: recoveries.unwrap_or_default(),
        })
    }

    fn run_series(
        &mut self,
        row: &RowSpec,
        options: &Options,
        changes: &[(f64, &Scene)],
        bound: &Bound,
    ) -> Result<(Report, Timeline), PoliciesError> {
        let mut timeline = Timeline::default();
        let mut phases = bound.phases_iops.iter().copied();
        timeline.changes.extend(phases.next().map(|bound_iops| Change { at_seconds: 0.0, bound_iops }));
        let (mut to_come, mut refused) = (changes.iter().zip(phases).peekable(), None);
        let (control, mut scene) = (self.control, self.scene.clone());
        // A change is made by the thread that looks, so that its time is known in the run's own.
        let report = self.run(&row.name, options, BIN, |progress| {
            let to_seconds = progress.elapsed.as_secs_f64();
            let from_seconds = to_seconds - progress.interval.as_secs_f64();
            let iops = progress.completed as f64 / progress.interval.as_secs_f64();
            timeline.bins.push(Bin { from_seconds, to_seconds, iops });
            while let Some((&(_, next), bound_iops)) = to_come.next_if(|((at, _), _)| *at <= to_seconds) {
                if let Err(error) = scene::set(control, next, scene.as_ref()) {
                    refused.get_or_insert(error);
                }
                scene = Some(next.clone());
                timeline.changes.push(Change { at_seconds: to_seconds, bound_iops });
            }
        })?;
        self.scene = scene;
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
    ) -> Result<Report, PoliciesError> {
        let report = session::run_watched(options, self.interrupted, interval, progress)
            .map_err(|error| PoliciesError::Run { what: what.to_owned(), error, log: self.stack.daemon.log_tail() })?;
        if report.interrupted {
            return Err(PoliciesError::Interrupted);
        }
        if report.ok { Ok(report) } else { Err(self.failed(what, &report)) }
    }

    fn failed(&self, what: &str, report: &Report) -> PoliciesError {
        PoliciesError::Failed { what: what.to_owned(), report: report.table(), log: self.stack.daemon.log_tail() }
    }

    /// How many the daemon has sent on all paths.
    fn probes(&self) -> Result<u64, ControlError> {
        Ok(self.control.paths()?.iter().map(|path| path.probes).sum())
    }

    fn cpu_times(&self) -> Result<BTreeMap<&'static str, Duration>, PoliciesError> {
        let processes = [("daemon", &self.stack.daemon), ("target", &self.stack.target)];
        let times = processes
            .map(|(role, process)| cpu_time(process.pid()).map(|time| (role, time)).ok_or(PoliciesError::Gone(role)));
        times.into_iter().collect()
    }
}
