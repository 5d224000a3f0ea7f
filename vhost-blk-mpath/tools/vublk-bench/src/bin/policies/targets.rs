//! Targets of the tables, judged by the medians. Throughput counts bytes, because each cell draws other sizes of a mixture.

use crate::bound::{bound, bounds};
use crate::contender::{BDP_FOR_LATENCY, FAST_ALONE, is_policy};
use crate::paths::PathSpec;
use crate::percent_of_bound;
use crate::tables::{RowSpec, Table};
use vublk_bench::harness::{Case, Limit, Results, Row, Spread, Target};
use vublk_bench::options::Mode;

/// The throughput in multiples of that of `numa`, in rows where the fast path is not the limit.
const OVER_NUMA: f64 = 7.0;
const OVER_ROUND_ROBIN: f64 = 3.3;
/// A difference within the spread of the rounds says nothing. At most this much spread counts, in percent.
const MOST_SPREAD: f64 = 3.0;
/// The longest recovery: this number of seconds, or the time of this number of requests. The longer of the two counts.
const RECOVERY: (f64, f64) = (1.0, 200.0);

/// The policies that adapt to what they measure.
const ADAPTIVE: [&str; 4] = ["adaptive", "latency", "latency-rr", "bdp"];

/// A stored row with its description.
struct Judged<'a> {
    row: &'a Row,
    spec: RowSpec,
}

/// A target of some tables.
struct Rule {
    tables: &'static [Table],
    description: &'static str,
    /// The rows in which it is judged.
    rows: fn(&Judged<'_>) -> bool,
    cases: fn(&Judged<'_>) -> Vec<Option<Case>>,
}

const RULES: [Rule; 17] = [
    Rule {
        tables: &[Table::A],
        description: "`bdp` ≥ 95 % of the bound at depth ≥ 4, one size; ≥ 90 % at depth 4 where the bound needs two paths",
        rows: |row| row.is_uniform() && row.spec.outstanding() >= 4,
        cases: |row| {
            // The bound would split one of four requests between two paths.
            let needs_two = row.spec.outstanding() == 4 && row.fast_alone() < row.row.fact("bound_iops");
            vec![row.near_bound(if needs_two { 90.0 } else { 95.0 })]
        },
    },
    Rule {
        tables: &[Table::A, Table::B, Table::D],
        description: "`bdp` ≥ 90 % of the bound at depth ≥ 8, mixed sizes",
        rows: |row| !row.is_uniform() && row.spec.outstanding() >= 8,
        cases: |row| vec![row.near_bound(90.0)],
    },
    Rule {
        tables: &Table::ALL,
        description: "`bdp` within 3 % (mixed sizes: 6 %) of the best other policy in every row",
        rows: |_| true,
        cases: |row| {
            let limit = Limit::AtLeast(if row.is_uniform() { 97.0 } else { 94.0 });
            vec![row.best_but("bdp").and_then(|best| row.compared("bdp", best, "mib_s", limit, "% of the best other"))]
        },
    },
    Rule {
        tables: &Table::ALL,
        description: "less than one probe of `bdp` for a hundred I/Os",
        rows: |_| true,
        cases: |row| vec![row.case("bdp", row.median("bdp", "probes_percent"), Limit::AtMost(1.0), "% probes")],
    },
    Rule {
        tables: &[Table::A],
        description: "`adaptive` and `latency-rr` ≥ 7 × `numa`, slow path first, QD ≤ 32, where the fast path is not the limit",
        rows: |row| row.has_fast_path_to_spare(),
        cases: |row| ["adaptive", "latency-rr"].map(|policy| row.times(policy, "numa", OVER_NUMA)).into(),
    },
    Rule {
        tables: &[Table::A],
        description: "the same ≥ 3.3 × `round-robin`",
        rows: |row| row.has_fast_path_to_spare(),
        cases: |row| ["adaptive", "latency-rr"].map(|policy| row.times(policy, "round-robin", OVER_ROUND_ROBIN)).into(),
    },
    Rule {
        tables: &[Table::A],
        description: "`bdp`, 4k reads at QD1 and QD32: MiB/s and p99.9 within 10 % of the fast path alone, slow path first or second",
        rows: |row| row.is_random_read(&[1, 32]) && row.spec.sizes.largest() == 4096,
        cases: |row| row.near_fast_alone("bdp"),
    },
    Rule {
        tables: &[Table::A],
        description: "the same of `bdp objective=latency` at every size",
        rows: |row| row.is_random_read(&[1, 32]),
        cases: |row| row.near_fast_alone(BDP_FOR_LATENCY),
    },
    Rule {
        tables: &[Table::B],
        description: "no adaptive policy more than 2 %, or the measured spread (3 % at most), behind the best",
        rows: |_| true,
        cases: |row| {
            let case = |policy| {
                let best = row.best_but("")?;
                let limit = Limit::AtLeast(98.0f64.min(100.0 - row.spread(best, policy)?));
                row.compared(policy, best, "mib_s", limit, "% of the best")
            };
            ADAPTIVE.map(case).into()
        },
    },
    Rule {
        tables: &[Table::C],
        description: "the published order at random: `latency-rr` before `latency`",
        rows: |row| row.spec.mode == Mode::Randread,
        cases: |row| vec![row.ahead("latency-rr", "latency")],
    },
    Rule {
        tables: &[Table::C],
        description: "`latency` before `pid`",
        rows: |row| row.spec.mode == Mode::Randread,
        cases: |row| vec![row.ahead("latency", "pid")],
    },
    Rule {
        tables: &[Table::C],
        description: "`latency` before `round-robin`",
        rows: |row| row.spec.mode == Mode::Randread,
        cases: |row| vec![row.ahead("latency", "round-robin")],
    },
    Rule {
        tables: &[Table::C],
        description: "p99.99 of `bdp` at QD1 and QD8 at most a tenth of `round-robin`'s",
        rows: |row| row.is_random_read(&[1, 8]),
        cases: |row| vec![row.tail("bdp")],
    },
    Rule {
        tables: &[Table::C],
        description: "p99.99 of `latency-rr` at QD1 at most a tenth of `round-robin`'s",
        rows: |row| row.is_random_read(&[1]),
        cases: |row| vec![row.tail("latency-rr")],
    },
    Rule {
        tables: &[Table::C],
        description: "`bdp` at or ahead of `latency-rr` in every row (level: within the spread, 3 % at most)",
        rows: |_| true,
        cases: |row| vec![row.ahead("bdp", "latency-rr")],
    },
    Rule {
        tables: &[Table::C],
        description: "p99.99 of `bdp` at random QD32 below the delay of the slowest path",
        rows: |row| row.is_random_read(&[32]),
        cases: |row| {
            let limit = Limit::AtMost(row.slowest().delay.as_secs_f64() * 1e3);
            vec![row.case("bdp", row.median("bdp", "p99.99_us").map(|us| us / 1e3), limit, "ms")]
        },
    },
    Rule {
        tables: &[Table::D],
        description: "`bdp` at 90 % of the new bound after max(1 s, 200 I/Os) of a change",
        rows: |row| row.spec.jumps,
        cases: |row| {
            let bounds = bounds(&row.spec, row.row.fact("floor_us") / 1e6);
            let case = |(change, bound): (usize, &f64)| {
                let limit = Limit::AtMost(RECOVERY.0.max(RECOVERY.1 / bound));
                row.case("bdp", row.median("bdp", &format!("recovery_{change}_s")), limit, "s")
            };
            bounds.iter().enumerate().skip(1).map(case).collect()
        },
    },
];

pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let letter = results.rows.first().map_or("", |row| &*row.table);
    let Some(table) = Table::ALL.into_iter().find(|table| table.letter() == letter) else { return Vec::new() };
    let specs = table.rows();
    let judged = results.rows.iter().filter_map(|row| {
        let spec = specs.iter().find(|spec| spec.name == row.name)?.clone();
        Some(Judged { row, spec })
    });
    let judged: Vec<Judged<'_>> = judged.collect();
    let target = |rule: &Rule| {
        let rows = judged.iter().filter(|row| (rule.rows)(row));
        Target::new(rule.description, rows.flat_map(|row| (rule.cases)(row)).flatten())
    };
    RULES.iter().filter(|rule| rule.tables.contains(&table)).map(target).collect()
}

impl Judged<'_> {
    fn median(&self, policy: &str, figure: &str) -> Option<f64> {
        self.row.median(policy, figure)
    }

    fn case(&self, policy: &str, measured: Option<f64>, limit: Limit, unit: &'static str) -> Option<Case> {
        Some(Case::new(&self.row.name, policy, measured?, limit, unit))
    }

    /// A figure in percent of another policy's.
    fn compared(&self, policy: &str, other: &str, figure: &str, limit: Limit, unit: &'static str) -> Option<Case> {
        let percent = self.median(policy, figure)? / self.median(other, figure)? * 100.0;
        self.case(policy, Some(percent), limit, unit)
    }

    fn times(&self, policy: &str, other: &str, times: f64) -> Option<Case> {
        let measured = self.median(policy, "mib_s")? / self.median(other, "mib_s")?;
        self.case(policy, Some(measured), Limit::AtLeast(times), "times")
    }

    fn tail(&self, policy: &str) -> Option<Case> {
        self.compared(policy, "round-robin", "p99.99_us", Limit::AtMost(10.0), "% of round-robin's")
    }

    /// The throughput in percent of another policy's, which it may miss by the spread of the rounds.
    fn ahead(&self, policy: &str, other: &str) -> Option<Case> {
        let limit = Limit::AtLeast(100.0 - self.spread(other, policy)?);
        self.compared(policy, other, "mib_s", limit, "% of its MiB/s")
    }

    fn near_bound(&self, limit: f64) -> Option<Case> {
        // The bound of a series is a mean over changes, which take time to be noticed.
        let cell = self.row.cell("bdp").filter(|_| !self.spec.is_series());
        let percent = cell.and_then(|cell| percent_of_bound(self.row, cell));
        self.case("bdp", percent, Limit::AtLeast(limit), "% of the bound")
    }

    fn near_fast_alone(&self, policy: &str) -> Vec<Option<Case>> {
        vec![
            self.compared(policy, FAST_ALONE, "mib_s", Limit::AtLeast(90.0), "% of its MiB/s"),
            self.compared(policy, FAST_ALONE, "p99.9_us", Limit::AtMost(110.0), "% of its p99.9"),
        ]
    }

    /// The best policy but this one.
    fn best_but(&self, policy: &str) -> Option<&str> {
        let others = self.row.cells.iter().filter(|cell| cell.contender != policy && is_policy(&cell.contender));
        let best = others.max_by(|one, other| {
            let [one, other] = [one, other].map(|cell| cell.median("mib_s").unwrap_or(0.0));
            one.total_cmp(&other)
        });
        best.map(|cell| &*cell.contender)
    }

    /// The spread of the rounds about their median, in percent: the larger one of the two cells, at most [`MOST_SPREAD`].
    fn spread(&self, one: &str, other: &str) -> Option<f64> {
        let of = |Spread { median, min, max }: Spread| (max - min) / 2.0 / median * 100.0;
        let [one, other] = [one, other].map(|policy| self.row.cell(policy)?.get("mib_s").map(of));
        Some(one?.max(other?).min(MOST_SPREAD))
    }

    fn is_uniform(&self) -> bool {
        self.spec.sizes.smallest() == self.spec.sizes.largest()
    }

    fn is_random_read(&self, depths: &[u32]) -> bool {
        self.spec.mode == Mode::Randread && depths.contains(&self.spec.outstanding())
    }

    fn bound_of(&self, path: PathSpec) -> f64 {
        let floor_seconds = self.row.fact("floor_us") / 1e6;
        bound(&[path], floor_seconds, self.spec.sizes.mean_bytes(), self.spec.outstanding())
    }

    fn slowest(&self) -> PathSpec {
        self.spec.paths.iter().copied().max_by_key(|path| path.delay).expect("every row has paths")
    }

    fn fast_alone(&self) -> f64 {
        let fastest = self.spec.paths.iter().copied().min_by_key(|path| path.delay);
        self.bound_of(fastest.expect("every row has paths"))
    }

    /// Whether the slow path is first, and the fast path could carry [`OVER_NUMA`] times as much as the slow one at this depth.
    fn has_fast_path_to_spare(&self) -> bool {
        let slowest = self.slowest();
        self.spec.paths.first() == Some(&slowest)
            && self.spec.outstanding() <= 32
            && self.fast_alone() >= OVER_NUMA * self.bound_of(slowest)
    }
}

#[cfg(test)]
mod tests;
