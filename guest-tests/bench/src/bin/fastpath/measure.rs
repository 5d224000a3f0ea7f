//! One measurement: a workload on a back-end, with the CPU time its processes took.

use crate::FastpathError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::options::{Mode, Options};
use vublk_bench::process::{Managed, ProcessError, cpu_time};
use vublk_bench::session;
use vublk_bench::stack::{MpathStack, NullStack, Programs};

/// A row of the table.
#[derive(Debug)]
pub(crate) struct WorkloadSpec {
    pub(crate) name: &'static str,
    mode: Mode,
    bs: u64,
    iodepth: u16,
}

/// What runs on each back-end before anything is measured: memory that is written for the first time costs the target a page
/// fault, which is no property of the way there.
pub(crate) const FILL: WorkloadSpec = WorkloadSpec { name: "fill", mode: Mode::Write, bs: 131_072, iodepth: 8 };
/// Long enough to write the whole disk at 200 MiB/s.
pub(crate) const FILL_TIME: Duration = Duration::from_secs(5);

/// The rows.
pub(crate) const WORKLOADS: &[WorkloadSpec] = &[
    WorkloadSpec { name: "4k randread QD1", mode: Mode::Randread, bs: 4096, iodepth: 1 },
    WorkloadSpec { name: "4k randread QD32", mode: Mode::Randread, bs: 4096, iodepth: 32 },
    WorkloadSpec { name: "128k read QD8", mode: Mode::Read, bs: 131_072, iodepth: 8 },
    WorkloadSpec { name: "4k randwrite QD32", mode: Mode::Randwrite, bs: 4096, iodepth: 32 },
];

enum Stack {
    Mpath(MpathStack),
    Null(NullStack),
}

/// A back-end under measurement.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    stack: Stack,
}

impl Subject {
    pub(crate) fn mpath(programs: &Programs, directory: &Path, paths: u16, policy: &str) -> Result<Self, ProcessError> {
        let stack = MpathStack::start(programs, directory, paths, &["--policy", policy])?;
        Ok(Self { name: "vhost-blk-mpath", stack: Stack::Mpath(stack) })
    }

    pub(crate) fn null(program: &Path, directory: &Path) -> Result<Self, ProcessError> {
        let stack = NullStack::start(program, directory, 1)?;
        Ok(Self { name: "qemu-storage-daemon null", stack: Stack::Null(stack) })
    }

    fn socket(&self) -> &PathBuf {
        match &self.stack {
            Stack::Mpath(stack) => &stack.socket,
            Stack::Null(stack) => &stack.socket,
        }
    }

    /// Its processes by their role.
    pub(crate) fn processes(&self) -> Vec<(&'static str, &Managed)> {
        match &self.stack {
            Stack::Mpath(stack) => vec![("daemon", &stack.daemon), ("target", &stack.target)],
            Stack::Null(stack) => vec![("daemon", &stack.daemon)],
        }
    }

    fn cpu_times(&self) -> Result<BTreeMap<&'static str, Duration>, FastpathError> {
        let times = self.processes().into_iter().map(|(role, process)| {
            let time = cpu_time(process.pid()).ok_or(FastpathError::Gone(self.name))?;
            Ok((role, time))
        });
        times.collect()
    }

    fn log_tail(&self) -> String {
        let logs = self.processes().into_iter().map(|(role, process)| format!("[{role}] {}", process.log_tail()));
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// What one measurement gave.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) mib_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// User and system time by process, over all requests, warm-up included.
    pub(crate) cpu_us_per_io: BTreeMap<&'static str, f64>,
}

/// How each measurement of a round runs.
pub(crate) struct Round<'a> {
    pub(crate) time: Duration,
    pub(crate) warmup: Duration,
    pub(crate) interrupted: &'a AtomicBool,
}

impl Round<'_> {
    pub(crate) fn measure(&self, workload: &WorkloadSpec, subject: &Subject) -> Result<Sample, FastpathError> {
        let options = Options {
            bs: workload.bs,
            iodepth: workload.iodepth,
            queues: 1,
            time: self.time,
            warmup: self.warmup,
            ..Options::with_defaults(subject.socket(), workload.mode)
        };
        let before = subject.cpu_times()?;
        let report = session::run(&options, self.interrupted, |_| ()).map_err(|error| FastpathError::Run {
            workload: workload.name,
            subject: subject.name,
            error,
            log: subject.log_tail(),
        })?;
        let after = subject.cpu_times()?;
        let (read, write) = (&report.total.read, &report.total.write);
        let class = if read.ios >= write.ios { read } else { write };
        let Some(latency) = class.latency_us.as_ref().filter(|_| report.ok) else {
            return Err(FastpathError::Failed {
                workload: workload.name,
                subject: subject.name,
                report: report.table(),
                log: subject.log_tail(),
            });
        };
        let completed = report.completed.max(1) as f64;
        let per_io = |role| {
            let used = after[role].saturating_sub(before[role]);
            used.as_secs_f64() * 1e6 / completed
        };
        Ok(Sample {
            iops: class.iops,
            mib_per_second: class.mib_per_second,
            p50_us: latency.p50,
            p99_us: latency.p99,
            cpu_us_per_io: before.keys().map(|&role| (role, per_io(role))).collect(),
        })
    }
}
