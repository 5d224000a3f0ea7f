//! The targets of the tables. They are those of `mpath-sim bursts`, judged by the medians.

use crate::rows::{BUSY_FLOWS, COUNT, Flows, LIMIT_IOPS, LONGER, RowSpec, STACKS, Table, stack_name};
use mpath_core::SchedulerKind;
use mpath_sim::bursts::scenario::{PAUSE, SLOTS};
use mpath_sim::bursts::targets::{at_once_ms, gap_ms, share, turns_ms};
use vublk_bench::harness::{Case, Cell, Limit, Results, Row, Spread, Target};

pub(crate) const FIFO: &str = SchedulerKind::Fifo.name();
const PUBLISHED: &str = SchedulerKind::Published.name();
pub(crate) const OURS: &str = SchedulerKind::BurstCredit.name();

/// The services that a burst may take in addition to its floor: one, because every slot may just have begun with another request,
/// and a tenth for errors of measurement.
pub(crate) const SERVICES: f64 = 1.1;
/// The burst of the published rule.
const PUBLISHED_BURST: u32 = 64;
/// A difference within the spread of the rounds counts as none. At most this much spread counts, in percent.
const MOST_SPREAD: f64 = 3.0;

/// The requests that the allowance holds: bursts may get this many requests more than their share, over all of a cell.
const SAVED_UP: f64 = 64.0;

/// A row that is judged.
struct Judged<'a> {
    results: &'a Results,
    /// The stack on which the row and its floor were measured.
    stack: (usize, usize),
    spec: RowSpec,
    row: &'a Row,
}

/// A target in these rows.
fn target<'a>(
    description: &str,
    rows: impl IntoIterator<Item = &'a Judged<'a>>,
    cases: impl Fn(&Judged<'_>) -> Vec<Option<Case>>,
) -> Target {
    Target::new(description, rows.into_iter().flat_map(cases).flatten())
}

pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let rows_on = |table: Table, stack| {
        let rows = table.rows(results, stack).into_iter();
        rows.map(move |(spec, row)| Judged { results, stack, spec, row }).collect::<Vec<_>>()
    };
    let rows = |table| rows_on(table, STACKS[0]);
    let (by_k, by_n, attacks, many) = (rows(Table::K), rows(Table::N), rows(Table::A), rows(Table::M));
    let is_new = |row: &&Judged<'_>| by_k.iter().all(|other| other.spec != row.spec);
    let published = || by_k.iter().chain(by_n.iter().filter(is_new));
    let sustained = || attacks.iter().chain(&many);
    let threads: Vec<Judged<'_>> = STACKS[1..].iter().flat_map(|stack| rows_on(Table::T, *stack)).collect();
    let service_ms = service_ms(results, STACKS[0]).unwrap_or(0.0);
    // The part of a second's requests that are in the slots: one request in each slot.
    let under_way = service_ms / 1e3 * 100.0;
    // The part of the allowance in all requests that the slots answer in a cell.
    let saved_up = SAVED_UP * service_ms / (SLOTS as f64 * 1e3 * LONGER.as_secs_f64()) * 100.0;
    let both = ["p50_ms", "p99_ms"];
    vec![
        target(
            "`published`: p50 ≤ floor + 1.1 services for N ≤ 64 (K = 16)",
            by_n.iter().filter(|row| row.spec.interactive.count <= PUBLISHED_BURST),
            |row| vec![row.near_floor(PUBLISHED, "p50_ms")],
        ),
        target(
            "`published`: the knee, p50 > 2 × the floor for N ≥ 96 (K = 16)",
            by_n.iter().filter(|row| row.spec.interactive.count > PUBLISHED_BURST),
            |row| vec![row.times(row.row.median(PUBLISHED, "p50_ms"), floor_ms(results, row.stack, row.spec), 2.0)],
        ),
        target(
            "`published`: ≥ 12 × better than `fifo` at K = 32 (N = 32)",
            by_k.iter().filter(|row| row.spec == RowSpec::one(COUNT, 32)),
            |row| vec![row.times(row.row.median(FIFO, "p50_ms"), row.row.median(PUBLISHED, "p50_ms"), 12.0)],
        ),
        target(
            "`burst-credit`: p50 and p99 ≤ floor + 1.1 services for every K ≤ 64 (N = 32) and N ≤ 128 (K = 16)",
            published(),
            |row| both.map(|figure| row.near_floor(OURS, figure)).into(),
        ),
        target("throughput within the measured spread (3 % at most) of `fifo`", published(), |row| {
            [PUBLISHED, OURS].map(|scheduler| row.throughput(scheduler)).into()
        }),
        target(
            "`burst-credit`: m flows of 32, mean ≤ max(m·N / (share·C) − pause, m·N / C) + 1.1 services (K = 16)",
            &many,
            |row| vec![row.many("mean_ms", 0)],
        ),
        target("`burst-credit`: m flows of 32, p99 ≤ that and a turn of each (K = 16)", &many, |row| {
            vec![row.many("p99_ms", 1)]
        }),
        target(
            "`burst-credit`: busy flows have ≥ 25 % over all, less the 64 requests that the allowance holds",
            sustained(),
            |row| row.ours("busy_percent", |busy| busy.median, &[Limit::AtLeast(25.0 - saved_up)], "%"),
        ),
        target("`burst-credit`: busy flows have ≥ 20 % of any second, less a request a slot", sustained(), |row| {
            row.ours("worst_second_percent", |worst| worst.min, &[Limit::AtLeast(20.0 - under_way)], "%")
        }),
        target(
            "`burst-credit`: no time above `gap` and a service without an answer to any busy flow",
            sustained(),
            |row| row.ours("longest_gap_ms", |gap| gap.max, &[Limit::AtMost(gap_ms() + service_ms)], "ms"),
        ),
        target("`burst-credit`: attackers together have ≤ `share`, 75 %, and these 64 requests", &attacks, |row| {
            row.ours("attackers_percent", |part| part.median, &[Limit::AtMost(100.0 * share() + saved_up)], "%")
        }),
        target(
            "`burst-credit`: a flow within a turn and its share has p99 ≤ floor + 1.1 services with 4 attackers",
            &attacks,
            |row| vec![row.near_floor(OURS, "p99_ms")],
        ),
        target(
            "`burst-credit` in one I/O thread or two: p50 and p99 ≤ floor in as many + 1.1 services (N = 32, K = 16)",
            threads.iter().filter(|row| row.spec == RowSpec::one(COUNT, BUSY_FLOWS)),
            |row| both.map(|figure| row.near_floor(OURS, figure)).into(),
        ),
        target(
            "a disk's limit of 500 IOPS holds within 2 % in one I/O thread or two",
            threads.iter().filter(|row| row.spec == RowSpec::LIMITED),
            |row| {
                let wanted = f64::from(LIMIT_IOPS);
                let limits = [Limit::AtMost(wanted * 1.02), Limit::AtLeast(wanted * 0.98)];
                row.ours("iops", |iops| iops.median, &limits, "IOPS")
            },
        ),
    ]
}

/// The p50 of the interactive flows of a row alone.
fn floor_ms(results: &Results, stack: (usize, usize), spec: RowSpec) -> Option<f64> {
    results.row(&stack_name(stack), &spec.alone().name())?.cells.first()?.median("p50_ms")
}

/// The time of a single request alone.
fn service_ms(results: &Results, stack: (usize, usize)) -> Option<f64> {
    floor_ms(results, stack, RowSpec::one(1, 0))
}

impl Judged<'_> {
    fn case(&self, scheduler: &str, measured: Option<f64>, limit: Limit, unit: &'static str) -> Option<Case> {
        let stack = if self.stack == STACKS[0] { String::new() } else { format!(", {}", stack_name(self.stack)) };
        Some(Case::new(&format!("{}{stack}", self.row.name), scheduler, measured?, limit, unit))
    }

    /// The ratio of two figures, which must be at least `at_least`.
    fn times(&self, large: Option<f64>, small: Option<f64>, at_least: f64) -> Option<Case> {
        self.case(PUBLISHED, Some(large? / small?), Limit::AtLeast(at_least), "times")
    }

    /// A figure of ours within limits.
    fn ours(&self, figure: &str, of: fn(Spread) -> f64, limits: &[Limit], unit: &'static str) -> Vec<Option<Case>> {
        let measured = self.row.cell(OURS).and_then(|cell| cell.get(figure)).map(of);
        limits.iter().map(|limit| self.case(OURS, measured, *limit, unit)).collect()
    }

    /// A figure that may exceed the floor by 1.1 services.
    fn near_floor(&self, scheduler: &str, figure: &str) -> Option<Case> {
        let (results, stack) = (self.results, self.stack);
        let limit = Limit::AtMost(floor_ms(results, stack, self.spec)? + SERVICES * service_ms(results, stack)?);
        let unit = if figure == "p50_ms" { "ms p50" } else { "ms p99" };
        self.case(scheduler, self.row.median(scheduler, figure), limit, unit)
    }

    fn many(&self, figure: &str, which: usize) -> Option<Case> {
        let limit = Limit::AtMost(self.many_ms(self.row.cell(OURS)?)?[which]);
        self.case(OURS, self.row.median(OURS, figure), limit, "ms")
    }

    /// The largest mean and the largest p99 that bursts of m flows may have.
    fn many_ms(&self, cell: &Cell) -> Option<[f64; 2]> {
        let Flows { flows, count } = self.spec.interactive;
        let iops = cell.median("iops")?;
        let mean = at_once_ms(flows, count, PAUSE, iops) + SERVICES * service_ms(self.results, self.stack)?;
        Some([mean, mean + turns_ms(flows, iops)])
    }

    fn throughput(&self, scheduler: &str) -> Option<Case> {
        let [fifo, ours] = [FIFO, scheduler].map(|name| self.row.cell(name)?.get("iops"));
        let (fifo, ours) = (fifo?, ours?);
        let range = |spread: Spread| (spread.max - spread.min) / spread.median * 100.0;
        let limit = Limit::AtLeast(100.0 - range(fifo).max(range(ours)).min(MOST_SPREAD));
        self.case(scheduler, Some(ours.median / fifo.median * 100.0), limit, "% of `fifo`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vublk_bench::harness::{Machine, Sample};

    /// Every row with floors of N + 9 ms, so a service of 10 ms, and bursts that take `beyond` more.
    fn results(beyond: impl Fn(&str, RowSpec) -> f64, change: impl Fn(&mut Cell)) -> Results {
        let mut results = Results::new(Machine::look(None), &[]);
        let schedulers = crate::SCHEDULERS;
        let tables = [Table::K, Table::N, Table::A, Table::M];
        for planned in crate::rows::plan(STACKS[0], &tables, &schedulers, 5, LONGER) {
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
            PUBLISHED if spec.interactive.count <= PUBLISHED_BURST => 10.0,
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

    /// The service answers 1295 requests a second, each in 10 ms.
    #[test]
    fn several_flows_have_the_time_that_a_closed_loop_takes() {
        let results = results(|_, _| 20.0, |_| ());
        let bounds = |index: usize| {
            let (spec, row) = Table::M.rows(&results, STACKS[0])[index];
            let judged = Judged { results: &results, stack: STACKS[0], spec, row };
            judged.many_ms(row.cell(OURS).unwrap()).unwrap().map(f64::round)
        };
        // 24.7 and 11 of 32 requests, 8.2 for 8; all others together have three quarters.
        assert_eq!((bounds(0), bounds(1), bounds(6)), ([36.0, 44.0], [60.0, 77.0], [488.0, 620.0]));
    }

    #[test]
    fn io_threads_have_their_own_floor_and_one_limit() {
        let judged = |ms: f64, iops: f64| {
            let mut results = Results::new(Machine::look(None), &[]);
            for (stack, floor) in STACKS[1..].iter().zip([30.0, 60.0]) {
                for mut planned in crate::rows::plan(*stack, &[Table::T], &crate::SCHEDULERS, 1, LONGER) {
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
