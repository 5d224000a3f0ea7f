//! What the tables have to show: what `mpath-sim bursts` judges, by the medians.

use crate::rows::{BUSY_FLOWS, COUNT, Flows, LIMIT_IOPS, LONGER, ROWS, RowSpec, Table, WINDOWS, threads_table};
use mpath_core::SchedulerKind;
use mpath_sim::bursts::scenario::{PAUSE, SLOTS};
use vublk_bench::harness::{Case, Cell, Limit, Results, Row, Spread, Target};

pub(crate) const FIFO: &str = SchedulerKind::Fifo.name();
const PUBLISHED: &str = SchedulerKind::Published.name();
pub(crate) const OURS: &str = SchedulerKind::BurstCredit.name();

/// Services in addition to the floor: every slot may just have begun with something else; a tenth is for measuring.
pub(crate) const SERVICES: f64 = 1.1;
/// The burst of the published rule.
const CREDIT: u32 = 64;
/// The spread of the rounds that counts as no difference, at most, in percent.
const MOST_SPREAD: f64 = 3.0;

/// Defaults of `burst-credit`: the share of the service that bursts may have, a turn of a flow in requests of 4 KiB, and for how long
/// bursts may hold busy flows back.
const SHARE: f64 = 0.75;
const TURN: f64 = 8.0;
const GAP_MS: f64 = 150.0;
/// Requests that the allowance holds: bursts may have this many more than their share, in all of a cell.
const SAVED_UP: f64 = 64.0;

type SpecRow<'a> = (RowSpec, &'a Row);

/// All targets.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let judge = Judge { results, table: ROWS };
    let by_n = Table::N.rows(results);
    let mut published = Table::K.rows(results);
    published.extend(
        by_n.iter().copied().filter(|(spec, _)| published.iter().all(|(other, _)| other != spec)).collect::<Vec<_>>(),
    );
    let attacks = Table::A.rows(results);
    let many = Table::M.rows(results);
    let sustained: Vec<SpecRow<'_>> = attacks.iter().chain(&many).copied().collect();
    let of = |rows: &[SpecRow<'_>], case: &dyn Fn(SpecRow<'_>) -> Option<Case>| -> Vec<Case> {
        rows.iter().copied().filter_map(case).collect()
    };
    let ours = |figure: &'static str, limit: Limit, unit: &'static str, of: fn(Spread) -> f64| {
        move |(_, row): SpecRow<'_>| Some(Case::new(&row.name, OURS, of(row.cell(OURS)?.get(figure)?), limit, unit))
    };
    let times = |(_, row): SpecRow<'_>, at_least, of: &dyn Fn() -> Option<f64>| {
        Some(Case::new(&row.name, PUBLISHED, of()?, Limit::AtLeast(at_least), "times"))
    };
    let service_ms = judge.service_ms().unwrap_or(0.0);
    // One request in each slot, of a second's.
    let under_way = service_ms / 1e3 * 100.0;
    // Of all that the slots answer in a cell.
    let saved_up = SAVED_UP * service_ms / (SLOTS as f64 * 1e3 * LONGER.as_secs_f64()) * 100.0;
    let threads = |cases: &dyn Fn(&Judge<'_>) -> Vec<Case>| -> Vec<Case> {
        WINDOWS.iter().flat_map(|window| cases(&Judge { results, table: &threads_table(*window) })).collect()
    };
    vec![
        Target::new(
            "`published`: p50 ≤ floor + 1.1 services for N ≤ 64 (K = 16)",
            of(&by_n, &|row| {
                (row.0.interactive.count <= CREDIT).then(|| judge.near_floor(row, PUBLISHED, "p50_ms"))?
            }),
        ),
        Target::new(
            "`published`: the knee, p50 > 2 × the floor for N ≥ 96 (K = 16)",
            of(&by_n, &|row| {
                let knee = || Some(row.1.median(PUBLISHED, "p50_ms")? / judge.floor_ms(row.0)?);
                (row.0.interactive.count > CREDIT).then(|| times(row, 2.0, &knee))?
            }),
        ),
        Target::new(
            "`published`: ≥ 12 × better than `fifo` at K = 32 (N = 32)",
            of(&published, &|row| {
                let better = || Some(row.1.median(FIFO, "p50_ms")? / row.1.median(PUBLISHED, "p50_ms")?);
                (row.0 == RowSpec::one(COUNT, 32)).then(|| times(row, 12.0, &better))?
            }),
        ),
        Target::new(
            "`burst-credit`: p50 and p99 ≤ floor + 1.1 services for every K ≤ 64 (N = 32) and N ≤ 128 (K = 16)",
            published
                .iter()
                .flat_map(|row| ["p50_ms", "p99_ms"].map(|figure| judge.near_floor(*row, OURS, figure)))
                .flatten(),
        ),
        Target::new(
            "throughput within the measured spread (3 % at most) of `fifo`",
            published
                .iter()
                .flat_map(|(_, row)| [PUBLISHED, OURS].map(|scheduler| throughput(row, scheduler)))
                .flatten(),
        ),
        Target::new(
            "`burst-credit`: m flows of 32, mean ≤ max(m·N / (share·C) − pause, m·N / C) + 1.1 services (K = 16)",
            of(&many, &|row| judge.many(row, "mean_ms", 0)),
        ),
        Target::new(
            "`burst-credit`: m flows of 32, p99 ≤ that and a turn of each (K = 16)",
            of(&many, &|row| judge.many(row, "p99_ms", 1)),
        ),
        Target::new(
            "`burst-credit`: busy flows have ≥ 25 % over all, less the 64 requests that the allowance holds",
            of(&sustained, &ours("busy_percent", Limit::AtLeast(25.0 - saved_up), "%", |busy| busy.median)),
        ),
        Target::new(
            "`burst-credit`: busy flows have ≥ 20 % of any second, less a request a slot",
            of(&sustained, &ours("worst_second_percent", Limit::AtLeast(20.0 - under_way), "%", |worst| worst.min)),
        ),
        Target::new(
            "`burst-credit`: no time above `gap` and a service without an answer to any busy flow",
            of(&sustained, &ours("longest_gap_ms", Limit::AtMost(GAP_MS + service_ms), "ms", |gap| gap.max)),
        ),
        Target::new(
            "`burst-credit`: attackers together have ≤ `share`, 75 %, and these 64 requests",
            of(&attacks, &ours("attackers_percent", Limit::AtMost(100.0 * SHARE + saved_up), "%", |part| part.median)),
        ),
        Target::new(
            "`burst-credit`: a flow within a turn and its share has p99 ≤ floor + 1.1 services with 4 attackers",
            of(&attacks, &|row| judge.near_floor(row, OURS, "p99_ms")),
        ),
        Target::new(
            "`burst-credit` in one I/O thread or two: p50 and p99 ≤ floor in as many + 1.1 services (N = 32, K = 16)",
            threads(&|judge| {
                let spec = RowSpec::one(COUNT, BUSY_FLOWS);
                let Some(row) = judge.results.row(judge.table, &spec.name()) else { return Vec::new() };
                ["p50_ms", "p99_ms"].iter().filter_map(|figure| judge.near_floor((spec, row), OURS, figure)).collect()
            }),
        ),
        Target::new(
            "a disk's limit of 500 IOPS holds within 2 % in one I/O thread or two",
            threads(&|judge| {
                let spec = RowSpec { busy: BUSY_FLOWS, is_limited: true, ..RowSpec::default() };
                let iops = judge.results.row(judge.table, &spec.name()).and_then(|row| row.median(OURS, "iops"));
                let wanted = f64::from(LIMIT_IOPS);
                let limits = [Limit::AtMost(wanted * 1.02), Limit::AtLeast(wanted * 0.98)];
                let case = |iops| limits.map(|limit| Case::new(judge.table, OURS, iops, limit, "IOPS"));
                iops.map(case).into_iter().flatten().collect()
            }),
        ),
    ]
}

/// The rows of one table.
struct Judge<'a> {
    results: &'a Results,
    table: &'a str,
}

impl Judge<'_> {
    fn floor_ms(&self, spec: RowSpec) -> Option<f64> {
        self.results.row(self.table, &spec.alone().name())?.cells.first()?.median("p50_ms")
    }

    /// What a single request takes alone.
    fn service_ms(&self) -> Option<f64> {
        self.floor_ms(RowSpec::one(1, 0))
    }

    /// A figure that may exceed the floor by 1.1 services.
    fn near_floor(&self, (spec, row): SpecRow<'_>, scheduler: &str, figure: &str) -> Option<Case> {
        let limit = Limit::AtMost(self.floor_ms(spec)? + SERVICES * self.service_ms()?);
        let name = if self.table == ROWS { row.name.clone() } else { format!("{}, {}", row.name, self.table) };
        let name = format!("{}, {name}", figure.trim_end_matches("_ms"));
        Some(Case::new(&name, scheduler, row.median(scheduler, figure)?, limit, "ms"))
    }

    fn many(&self, (spec, row): SpecRow<'_>, figure: &str, which: usize) -> Option<Case> {
        let limit = Limit::AtMost(self.many_ms(spec, row.cell(OURS)?)?[which]);
        Some(Case::new(&row.name, OURS, row.median(OURS, figure)?, limit, "ms"))
    }

    /// The most that mean and p99 of the bursts of m flows may be. The flows begin again when they have been answered, so the mean is
    /// the same in whatever order they are served. Each may be the last one in its turn.
    fn many_ms(&self, spec: RowSpec, cell: &Cell) -> Option<[f64; 2]> {
        let Flows { flows, count } = spec.interactive;
        let per_second = cell.median("iops")?;
        let (requests, turns) = (flows as f64 * f64::from(count), flows as f64 * TURN);
        let seconds = (requests / (SHARE * per_second) - PAUSE.as_secs_f64()).max(requests / per_second);
        let mean = seconds * 1e3 + SERVICES * self.service_ms()?;
        Some([mean, mean + turns / (SHARE * per_second) * 1e3])
    }
}

fn throughput(row: &Row, scheduler: &str) -> Option<Case> {
    let [fifo, ours] = [FIFO, scheduler].map(|name| row.cell(name)?.get("iops"));
    let (fifo, ours) = (fifo?, ours?);
    let range = |spread: Spread| (spread.max - spread.min) / spread.median * 100.0;
    let limit = Limit::AtLeast(100.0 - range(fifo).max(range(ours)).min(MOST_SPREAD));
    Some(Case::new(&row.name, scheduler, ours.median / fifo.median * 100.0, limit, "% of `fifo`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpath_core::SchedulerSpec;
    use vublk_bench::harness::{Machine, Sample};

    /// Every row with floors of N + 9 ms, so a service of 10 ms, and bursts that take `beyond` more.
    fn results(beyond: impl Fn(&str, RowSpec) -> f64, change: impl Fn(&mut Cell)) -> Results {
        let mut results = Results::new(Machine::look(None), &[]);
        let schedulers = crate::SCHEDULERS;
        for planned in crate::rows::plan(&Table::ALL, &schedulers, 5, LONGER) {
            let (spec, mut row) = (planned.spec.spec, planned.row);
            for cell in &mut row.cells {
                let floor = f64::from(spec.interactive.count) + 9.0;
                let ms = if spec.busy == 0 { floor } else { floor + beyond(&cell.contender, spec) };
                for iops in [1290.0, 1300.0] {
                    cell.add(Sample::new(&[("p50_ms", ms), ("mean_ms", ms), ("iops", iops)]));
                }
                cell.set("p99_ms", ms);
                if spec.busy > 0 {
                    let figures = [
                        ("busy_percent", 24.0),
                        ("worst_second_percent", 19.2),
                        ("longest_gap_ms", 159.0),
                        ("attackers_percent", 76.0),
                    ];
                    for (name, value) in figures {
                        cell.set(name, value);
                    }
                    change(cell);
                }
            }
            results.rows.push(row);
        }
        results
    }

    fn good(scheduler: &str, spec: RowSpec) -> f64 {
        match scheduler {
            OURS => -6.0,
            PUBLISHED if spec.interactive.count <= CREDIT => 10.0,
            _ => f64::from(spec.interactive.count) * spec.busy as f64,
        }
    }

    fn met(results: &Results) -> Vec<Option<bool>> {
        targets(results).iter().map(Target::is_met).collect()
    }

    #[test]
    fn every_target_can_be_met_and_missed() {
        let all = results(good, |_| ());
        assert_eq!(met(&all)[..12], [Some(true); 12], "{:#?}", targets(&all));
        assert_eq!(met(&all)[12..], [None; 2]);
        let cases: Vec<usize> = targets(&all).iter().map(|target| target.cases.len()).collect();
        assert_eq!(cases[..12], [4, 2, 1, 20, 20, 7, 7, 10, 10, 10, 3, 1]);
        let slow = results(
            |scheduler, _| if scheduler == FIFO { 0.0 } else { 1000.0 },
            |cell| {
                let figures = [
                    ("busy_percent", 23.6),
                    ("worst_second_percent", 18.9),
                    ("longest_gap_ms", 161.0),
                    ("attackers_percent", 76.4),
                ];
                for (name, value) in figures {
                    cell.set(name, value);
                }
                if cell.contender == OURS {
                    cell.set("iops", 1100.0);
                }
            },
        );
        let missed = met(&slow);
        assert_eq!(missed[1], Some(true), "a knee");
        assert_eq!([&missed[..1], &missed[2..12]].concat(), [Some(false); 11], "{:#?}", targets(&slow));
        assert_eq!(met(&results(|_, _| 0.0, |_| ()))[1], Some(false), "no knee");
    }

    #[test]
    fn limits_are_the_floor_and_services() {
        let bounded = |beyond: f64| targets(&results(|_, _| beyond, |_| ()))[3].is_met();
        assert_eq!((bounded(10.9), bounded(11.1)), (Some(true), Some(false)));
    }

    /// 1295 requests a second, services of 10 ms.
    #[test]
    fn several_flows_have_the_time_that_a_closed_loop_takes() {
        let results = results(|_, _| 20.0, |_| ());
        let judge = Judge { results: &results, table: ROWS };
        let bounds = |index: usize| {
            let spec = Table::M.specs()[index];
            judge.many_ms(spec, results.row(ROWS, &spec.name()).unwrap().cell(OURS).unwrap()).unwrap().map(f64::round)
        };
        // 24.7 and 11 of 32 requests, 8.2 for 8; all others together have three quarters.
        assert_eq!((bounds(0), bounds(1), bounds(6)), ([36.0, 44.0], [60.0, 77.0], [488.0, 620.0]));
    }

    #[test]
    fn the_defaults_are_those_of_the_scheduler() {
        let ours = SchedulerSpec::from(SchedulerKind::BurstCredit);
        let params: Vec<String> = ours.params().map(|(param, text)| format!("{}={text}", param.name())).collect();
        let burst = TURN * 32.0 * (4096.0 + 16384.0);
        assert_eq!(params.join(" "), format!("burst={burst} share={SHARE} gap={GAP_MS}ms io-cost=16384"));
    }

    #[test]
    fn io_threads_have_their_own_floor_and_one_limit() {
        let judged = |ms: f64, iops: f64| {
            let mut results = Results::new(Machine::look(None), &[]);
            for (window, floor) in WINDOWS.into_iter().zip([30.0, 60.0]) {
                for mut planned in crate::rows::threads_plan(window, &crate::SCHEDULERS, 1, LONGER) {
                    let spec = planned.spec.spec;
                    for cell in &mut planned.row.cells {
                        let p50 = if spec == RowSpec::one(1, 0) {
                            10.0
                        } else if spec.busy == 0 {
                            floor
                        } else {
                            ms
                        };
                        for figure in ["p50_ms", "p99_ms"] {
                            cell.set(figure, p50);
                        }
                        cell.set("iops", iops);
                    }
                    results.rows.push(planned.row);
                }
            }
            targets(&results).split_off(12)
        };
        let verdicts = |ms, iops| judged(ms, iops).iter().map(Target::is_met).collect::<Vec<_>>();
        assert_eq!(verdicts(40.9, 495.0), [Some(true); 2]);
        assert_eq!(verdicts(60.0, 511.0), [Some(false); 2]);
        let missed = judged(60.0, 489.0)[0].cases.iter().map(|case| !case.is_met()).collect::<Vec<_>>();
        assert_eq!(missed, [true, true, false, false], "the floor of two threads is 60 ms");
    }
}
