//! All samples with their medians and spread: the content of `fastpath.json`.

use crate::measure::{Sample, Subject, WORKLOADS, WorkloadSpec};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use vublk_bench::publish::{Machine, Spread};

/// The published file.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) rounds: u16,
    pub(crate) seconds_per_measurement: f64,
    /// By back-end: the command line of each of its processes.
    pub(crate) commands: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
    pub(crate) rows: Vec<Row>,
}

/// One workload on one back-end.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) backend: &'static str,
    pub(crate) iops: Spread,
    pub(crate) mib_per_second: Spread,
    pub(crate) p50_us: Spread,
    pub(crate) p99_us: Spread,
    pub(crate) cpu_us_per_io: BTreeMap<&'static str, Spread>,
    pub(crate) samples: Vec<Sample>,
}

impl Results {
    pub(crate) fn new(machine: Machine, subjects: &[Subject], directory: &Path, rounds: u16, time: Duration) -> Self {
        let directory = directory.to_string_lossy().into_owned();
        let commands = subjects.iter().map(|subject| {
            let processes = subject.processes().into_iter();
            (
                subject.name,
                processes.map(|(role, process)| (role, process.command_line().replace(&directory, "$DIR"))).collect(),
            )
        });
        let rows = WORKLOADS.iter().flat_map(|workload| subjects.iter().map(|subject| Row::new(workload, subject)));
        Self {
            machine,
            rounds,
            seconds_per_measurement: time.as_secs_f64(),
            commands: commands.collect(),
            rows: rows.collect(),
        }
    }

    pub(crate) fn add(&mut self, workload: &WorkloadSpec, subject: &Subject, sample: Sample) {
        let row = self.rows.iter_mut().find(|row| row.workload == workload.name && row.backend == subject.name);
        if let Some(row) = row {
            row.samples.push(sample);
            row.summarise();
        }
    }
}

impl Row {
    fn new(workload: &WorkloadSpec, subject: &Subject) -> Self {
        Self {
            workload: workload.name,
            backend: subject.name,
            iops: Spread::default(),
            mib_per_second: Spread::default(),
            p50_us: Spread::default(),
            p99_us: Spread::default(),
            cpu_us_per_io: BTreeMap::new(),
            samples: Vec::new(),
        }
    }

    fn summarise(&mut self) {
        let spread = |of: fn(&Sample) -> f64| Spread::of(self.samples.iter().map(of));
        let roles = self.samples.iter().flat_map(|sample| sample.cpu_us_per_io.keys().copied());
        let cpu = roles.map(|role| {
            let values = self.samples.iter().filter_map(|sample| sample.cpu_us_per_io.get(role).copied());
            (role, Spread::of(values))
        });
        let cpu = cpu.collect();
        (self.iops, self.mib_per_second) = (spread(|sample| sample.iops), spread(|sample| sample.mib_per_second));
        (self.p50_us, self.p99_us) = (spread(|sample| sample.p50_us), spread(|sample| sample.p99_us));
        self.cpu_us_per_io = cpu;
    }
}
