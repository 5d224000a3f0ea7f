//! All samples of a table with their medians and spread: the content of `policies-*.json`.

use crate::contender::Contender;
use crate::measure::{Bound, Sample};
use crate::plan::Plan;
use crate::scene::Scene;
use crate::tables::{RowSpec, Table};
use serde::Serialize;
use std::collections::BTreeMap;
use vublk_bench::options::Mode;
use vublk_bench::publish::{Machine, Spread, Target};
use vublk_bench::sizes::Sizes;

/// The published file.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) table: &'static str,
    pub(crate) title: &'static str,
    pub(crate) note: String,
    pub(crate) machine: Machine,
    pub(crate) rounds: u16,
    /// `--seconds`
    pub(crate) seconds: f64,
    pub(crate) warmup_seconds: f64,
    /// The command line of each process.
    pub(crate) commands: BTreeMap<&'static str, String>,
    pub(crate) policies: Vec<Contender>,
    pub(crate) targets: Vec<Target>,
    pub(crate) rows: Vec<Row>,
}

/// A row under every policy.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) sizes: Sizes,
    pub(crate) depth: u16,
    pub(crate) queues: u16,
    pub(crate) seconds: f64,
    /// At the start.
    pub(crate) paths: Scene,
    pub(crate) bound: Bound,
    /// In the order of [`Results::policies`].
    pub(crate) cells: Vec<Cell>,
}

/// A row under a policy.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Cell {
    pub(crate) policy: String,
    pub(crate) iops: Spread,
    pub(crate) mib_per_second: Spread,
    /// The median's part of the bound.
    pub(crate) percent_of_bound: f64,
    pub(crate) p50_us: Spread,
    pub(crate) p99_us: Spread,
    #[serde(rename = "p99.9_us")]
    pub(crate) p99_9_us: Spread,
    #[serde(rename = "p99.99_us")]
    pub(crate) p99_99_us: Spread,
    pub(crate) cpu_us_per_io: BTreeMap<&'static str, Spread>,
    pub(crate) probes_percent: Spread,
    pub(crate) samples: Vec<Sample>,
}

impl Results {
    pub(crate) fn new(
        table: Table,
        machine: &Machine,
        plan: &Plan,
        commands: BTreeMap<&'static str, String>,
        policies: &[Contender],
    ) -> Self {
        Self {
            table: table.letter(),
            title: table.title(),
            note: table.note(),
            machine: machine.clone(),
            rounds: plan.rounds,
            seconds: plan.seconds.as_secs_f64(),
            warmup_seconds: plan.warmup().as_secs_f64(),
            commands,
            policies: policies.to_vec(),
            targets: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a row without samples.
    pub(crate) fn add_row(&mut self, spec: &RowSpec, bound: Bound, plan: &Plan) {
        let cell = |policy: &Contender| Cell { policy: policy.name.clone(), ..Cell::default() };
        self.rows.push(Row {
            name: spec.name.clone(),
            mode: spec.mode,
            sizes: spec.sizes.clone(),
            depth: spec.depth,
            queues: spec.queues,
            seconds: spec.length.time(plan.seconds).as_secs_f64(),
            paths: spec.scene.clone(),
            bound,
            cells: self.policies.iter().map(cell).collect(),
        });
    }
}

impl Row {
    /// Adds what a policy gave.
    pub(crate) fn add(&mut self, policy: &Contender, sample: Sample) {
        if let Some(cell) = self.cells.iter_mut().find(|cell| cell.policy == policy.name) {
            cell.samples.push(sample);
            cell.summarise(self.bound.mib_per_second);
        }
    }
}

impl Cell {
    fn summarise(&mut self, bound: f64) {
        let spread = |of: fn(&Sample) -> f64| Spread::of(self.samples.iter().map(of));
        let roles = self.samples.iter().flat_map(|sample| sample.cpu_us_per_io.keys().copied());
        let cpu = roles.map(|role| {
            let values = self.samples.iter().filter_map(|sample| sample.cpu_us_per_io.get(role).copied());
            (role, Spread::of(values))
        });
        let cpu = cpu.collect();
        let (iops, mib_per_second) = (spread(|sample| sample.iops), spread(|sample| sample.mib_per_second));
        let latencies = [
            spread(|sample| sample.latency_us.p50),
            spread(|sample| sample.latency_us.p99),
            spread(|sample| sample.latency_us.p99_9),
            spread(|sample| sample.latency_us.p99_99),
        ];
        [self.p50_us, self.p99_us, self.p99_9_us, self.p99_99_us] = latencies;
        (self.iops, self.mib_per_second, self.cpu_us_per_io) = (iops, mib_per_second, cpu);
        self.probes_percent = spread(|sample| sample.probes_percent);
        self.percent_of_bound = if bound > 0.0 { self.mib_per_second.median / bound * 100.0 } else { 0.0 };
    }

    /// After each jump of a series the median of the rounds; `None` where it was not made up for in most of them.
    pub(crate) fn recoveries(&self) -> Vec<Option<f64>> {
        let jumps = self.samples.iter().map(|sample| sample.recovery_seconds.len()).min().unwrap_or(0);
        let median = |jump: usize| {
            let values = self.samples.iter().map(|sample| sample.recovery_seconds[jump].unwrap_or(f64::INFINITY));
            let median = Spread::of(values).median;
            median.is_finite().then_some(median)
        };
        (0..jumps).map(median).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scene::{FAR, NEAR};
    use std::path::Path;
    use std::time::Duration;
    use vublk_bench::stats::Latency;

    pub(crate) fn sample(iops: f64, recovery_seconds: Vec<Option<f64>>) -> Sample {
        let at = 1e6 / iops;
        Sample {
            iops,
            mib_per_second: iops / 256.0,
            latency_us: Latency { min: at, mean: at, p50: at, p90: at, p99: at, p99_9: at, p99_99: 2.0 * at, max: at },
            cpu_us_per_io: BTreeMap::from([("daemon", 2.5), ("target", 3.0)]),
            probes_percent: 0.5,
            timeline: None,
            recovery_seconds,
        }
    }

    /// Table a with its first row under two policies, three rounds.
    pub(crate) fn results() -> Results {
        let policies = ["numa", "adaptive"].map(Contender::plain);
        let plan = Plan { seconds: Duration::from_secs(3), rounds: 3, full: false };
        let commands = BTreeMap::from([("daemon", "vhost-blk-mpath --api $DIR/api.sock".to_owned())]);
        let machine = Machine::look(None::<&Path>);
        let mut results = Results::new(Table::A, &machine, &plan, commands, &policies);
        let spec = &Table::A.rows(false)[0];
        results.add_row(
            spec,
            Bound { iops: 4000.0, mib_per_second: 15.625, floor_us: 60.0, phases_iops: vec![] },
            &plan,
        );
        for iops in [900.0, 1100.0, 1000.0] {
            results.rows[0].add(&policies[0], sample(iops, vec![]));
            results.rows[0].add(&policies[1], sample(iops * 3.0, vec![]));
        }
        results
    }

    #[test]
    fn medians_spread_and_part_of_the_bound() {
        let results = results();
        let cell = &results.rows[0].cells[1];
        assert_eq!((cell.iops.median, cell.iops.min, cell.iops.max), (3000.0, 2700.0, 3300.0));
        assert!((cell.percent_of_bound - 75.0).abs() < 1e-9);
        assert!((cell.cpu_us_per_io["daemon"].median - 2.5).abs() < 1e-9);
        assert_eq!(results.rows[0].paths, [FAR, NEAR]);
    }

    #[test]
    fn recoveries_are_medians_of_the_rounds() {
        let mut cell = Cell::default();
        let rounds = [[Some(0.2), None], [Some(0.4), None], [None, Some(0.1)]];
        cell.samples = rounds.map(|round| sample(1.0, round.to_vec())).into();
        assert_eq!(cell.recoveries(), [Some(0.4), None]);
    }

    #[test]
    fn the_file_has_everything_in_it() {
        let json = serde_json::to_value(results()).unwrap();
        let row = &json["rows"][0];
        assert_eq!((&json["table"], &row["mode"], &row["sizes"]), (&"a".into(), &"randread".into(), &"4k/100".into()));
        assert_eq!((&row["paths"][0]["delay_ms"], &row["paths"][0]["mib_per_second"]), (&30.0.into(), &119.into()));
        let cell = &row["cells"][0];
        assert_eq!((&cell["policy"], &cell["iops"]["median"]), (&"numa".into(), &1000.0.into()));
        assert_eq!(cell["samples"].as_array().map(Vec::len), Some(3));
        assert_eq!(cell["samples"][0]["latency_us"]["p99.9"], cell["samples"][0]["latency_us"]["p50"]);
        assert!(cell["p99.99_us"]["median"].as_f64() > Some(0.0) && row["bound"]["iops"].as_f64() == Some(4000.0));
    }
}
