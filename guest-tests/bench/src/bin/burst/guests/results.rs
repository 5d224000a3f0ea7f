//! All samples with their medians and spread: the content of `burst-guests.json`.

use super::plan::Plan;
use super::reads::{Burst, NotBursts, Read, bursts};
use crate::cells::quantile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use vublk_bench::publish::{Machine, Spread, Target};

/// What `guest-tests/burst/measure` gives.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    guests: Guests,
    commands: Vec<String>,
    /// Of each round: the bulk guest beside an interactive one that does nothing.
    bulk_alone_iops: Vec<f64>,
    /// The interactive guest beside a bulk one that does nothing.
    alone: Vec<MeasuredSample>,
    together: Vec<MeasuredCell>,
}

#[derive(Debug, Deserialize)]
struct MeasuredCell {
    bulk_weight: usize,
    scheduler: String,
    samples: Vec<MeasuredSample>,
}

#[derive(Debug, Deserialize)]
struct MeasuredSample {
    reads: Vec<Read>,
    bulk_iops: f64,
}

/// What they say of themselves.
pub(crate) type Guests = BTreeMap<String, BTreeMap<String, serde_json::Value>>;

/// The published file.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) guests: Guests,
    #[serde(flatten)]
    pub(crate) plan: Plan,
    pub(crate) commands: Vec<String>,
    pub(crate) targets: Vec<Target>,
    /// The bulk guest beside an interactive one that does nothing.
    pub(crate) bulk_alone_iops: Spread,
    /// The interactive guest beside a bulk one that does nothing.
    pub(crate) alone: Cell,
    /// The two of them with each weight of the bulk guest's disk under each scheduler.
    pub(crate) together: Vec<Cell>,
}

/// The bursts of the interactive guest, and what the bulk one has meanwhile.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) bulk_weight: usize,
    pub(crate) scheduler: String,
    /// Of all rounds.
    pub(crate) bursts: usize,
    /// From the first read of a burst to the last answer; of each round.
    pub(crate) p50_ms: Spread,
    pub(crate) p99_ms: Spread,
    /// Of the bursts of all rounds together.
    pub(crate) all_p99_ms: f64,
    pub(crate) bulk_iops: Spread,
    pub(crate) samples: Vec<Sample>,
}

/// One round of it.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    /// In the order in which they were sent.
    bursts_ms: Vec<f64>,
    bulk_iops: f64,
}

impl Results {
    pub(crate) fn new(machine: Machine, plan: Plan, measured: Measured) -> Result<Self, NotBursts> {
        let Measured { guests, commands, bulk_alone_iops, alone, together } = measured;
        let cells = plan.cells().into_iter().map(|(bulk_weight, scheduler)| {
            let found = together.iter().find(|cell| (cell.bulk_weight, &cell.scheduler) == (bulk_weight, &scheduler));
            Cell::new(bulk_weight, scheduler, &found.ok_or(NotBursts::None)?.samples, &plan)
        });
        let together = cells.collect::<Result<_, _>>()?;
        Ok(Self {
            machine,
            guests,
            commands,
            targets: Vec::new(),
            bulk_alone_iops: Spread::of(bulk_alone_iops.into_iter()),
            alone: Cell::new(0, "fifo".to_owned(), &alone, &plan)?,
            together,
            plan,
        })
    }

    pub(crate) fn cell(&self, bulk_weight: usize, scheduler: &str) -> Option<&Cell> {
        self.together.iter().find(|cell| (cell.bulk_weight, &*cell.scheduler) == (bulk_weight, scheduler))
    }

    /// What of a cell the bulk guest has, in percent of what it has alone.
    pub(crate) fn bulk_percent(&self, cell: &Cell) -> f64 {
        cell.bulk_iops.median / self.bulk_alone_iops.median * 100.0
    }

    /// A word of what a guest says of itself.
    pub(crate) fn guest(&self, disk: &str, name: &str) -> &str {
        self.guests.get(disk).and_then(|guest| guest.get(name)?.as_str()).unwrap_or("unknown")
    }
}

impl Cell {
    fn new(bulk_weight: usize, scheduler: String, samples: &[MeasuredSample], plan: &Plan) -> Result<Self, NotBursts> {
        let found =
            samples.iter().map(|sample| bursts(&sample.reads, plan.count as usize, plan.pause(), &plan.counts()));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let samples: Vec<Sample> =
            found.iter().zip(samples).map(|(bursts, sample)| Sample::new(bursts, sample)).collect();
        let spread = |of: &dyn Fn(&Sample) -> f64| Spread::of(samples.iter().map(of));
        let all = samples.iter().flat_map(|sample| sample.bursts_ms.iter().copied());
        Ok(Self {
            bulk_weight,
            scheduler,
            bursts: found.iter().map(Vec::len).sum(),
            p50_ms: spread(&|sample| quantile(sample.bursts_ms.iter().copied(), 0.5)),
            p99_ms: spread(&|sample| quantile(sample.bursts_ms.iter().copied(), 0.99)),
            all_p99_ms: quantile(all, 0.99),
            bulk_iops: spread(&|sample| sample.bulk_iops),
            samples,
        })
    }
}

impl Sample {
    fn new(bursts: &[Burst], measured: &MeasuredSample) -> Self {
        // Microseconds are enough to read.
        let rounded = |time: Duration| time.as_micros() as f64 / 1e3;
        Self { bursts_ms: bursts.iter().map(|burst| rounded(burst.took())).collect(), bulk_iops: measured.bulk_iops }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::guests::plan::tests::plan;
    use crate::guests::reads::tests::two;
    use std::path::Path;

    /// What a round of a cell is to be.
    pub(crate) struct Times {
        pub(crate) bursts_ms: Vec<u64>,
        pub(crate) bulk_iops: f64,
    }

    pub(crate) fn times(bursts_ms: &[u64], bulk_iops: f64) -> Times {
        Times { bursts_ms: bursts_ms.into(), bulk_iops }
    }

    /// As `measure` writes it, three rounds of it, the same with either weight: bursts of 30 ms and 1300 IOPS alone. Bursts are of
    /// two reads.
    fn measured(together: &[(&str, Times)]) -> Measured {
        let reads = |bursts_ms: &[u64]| {
            let mut at = 2000;
            let burst = |&took: &u64| {
                at += 1000;
                two(at, [took, took])
            };
            let reads: Vec<Vec<u64>> =
                bursts_ms.iter().flat_map(burst).map(|Read(until, took)| vec![until, took]).collect();
            reads
        };
        let samples = |times: &Times| {
            let sample = serde_json::json!({"reads": reads(&times.bursts_ms), "bulk_iops": times.bulk_iops});
            vec![sample; 3]
        };
        let guest = |cpus: &str| serde_json::json!({"kernel": "6.1.0", "fio": "fio-3.33", "accel": "tcg", "cpus": cpus, "queues": cpus, "boot_seconds": 5.4});
        let cell = |weight: usize| {
            together.iter().map(move |(name, times)| {
                serde_json::json!({"bulk_weight": weight, "scheduler": name, "samples": samples(times)})
            })
        };
        let together: Vec<_> = plan().bulk_weights.into_iter().flat_map(cell).collect();
        let measured = serde_json::json!({
            "guests": {"interactive": guest("1"), "bulk": guest("8")},
            "commands": ["mpath-target --x"],
            "bulk_alone_iops": [1300.0, 1300.0],
            "alone": samples(&times(&[30, 30], 0.0)),
            "together": together,
        });
        serde_json::from_value(measured).unwrap()
    }

    pub(crate) fn results(together: &[(&str, Times)]) -> Results {
        let schedulers = together.iter().map(|(name, _)| (*name).to_owned()).collect();
        let plan = Plan { schedulers, count: 2, ..plan() };
        Results::new(Machine::look(None::<&Path>), plan, measured(together)).unwrap()
    }

    #[test]
    fn medians_of_rounds_and_the_tail_of_all_bursts() {
        let results = results(&[("fifo", times(&[200, 230, 210], 1170.0))]);
        let cell = results.cell(800, "fifo").unwrap();
        assert_eq!((cell.bursts, cell.p50_ms.median, cell.all_p99_ms), (9, 210.0, 230.0));
        assert!((results.bulk_percent(cell) - 90.0).abs() < 1e-9);
        assert_eq!(
            (results.alone.p50_ms.median, results.guest("bulk", "cpus"), results.guest("bulk", "x")),
            (30.0, "8", "unknown")
        );
        assert!(results.cell(100, "published").is_none());
    }

    #[test]
    fn a_scheduler_that_is_missing_is_an_error() {
        let plan = Plan { count: 2, ..plan() };
        let few = measured(&[("fifo", times(&[200], 1.0))]);
        assert_eq!(Results::new(Machine::look(None::<&Path>), plan, few).unwrap_err(), NotBursts::None);
    }

    #[test]
    fn the_file_has_everything_in_it() {
        let json = serde_json::to_value(results(&[("fifo", times(&[200, 230], 1170.0))])).unwrap();
        assert_eq!((&json["slots"], &json["flows"], &json["settle_seconds"]), (&13.into(), &8.into(), &2.0.into()));
        assert_eq!(json["together"][0]["samples"][2]["bursts_ms"], serde_json::json!([200.0, 230.0]));
        assert_eq!(
            (&json["guests"]["bulk"]["cpus"], &json["bulk_alone_iops"]["median"]),
            (&"8".into(), &1300.0.into())
        );
    }
}
