//! What the tables are to show, and whether they do: computed from the medians, row by row; throughput by bytes, since of mixed
//! sizes every cell draws others.

use crate::bound::bound;
use crate::contender::{BDP_FOR_LATENCY, Contender, FAST_ALONE};
use crate::results::{Cell, Results, Row};
use crate::scene::PathSpec;
use crate::tables::Table;
use vublk_bench::options::Mode;
use vublk_bench::publish::{Case, Limit, Spread, Target};

/// The limits, in percent where nothing else is said.
const NEAR_BOUND: f64 = 95.0;
/// With whole requests, where the bound would split one of four between two paths.
const NEAR_BOUND_WHOLE: f64 = 90.0;
const NEAR_BOUND_MIXED: f64 = 90.0;
const BESIDE_BEST: f64 = 97.0;
const BESIDE_BEST_MIXED: f64 = 94.0;
const BESIDE_ALONE: f64 = 90.0;
const TAIL_BESIDE_ALONE: f64 = 110.0;
const SYMMETRIC: f64 = 98.0;
const TAIL_OF_ROUND_ROBIN: f64 = 10.0;
/// For every hundred requests.
const PROBES: f64 = 1.0;
/// Times.
const OVER_NUMA: f64 = 7.0;
const OVER_ROUND_ROBIN: f64 = 3.3;
/// The spread of the rounds counts as a difference that says nothing, but no more of it than this.
const SPREAD: f64 = 3.0;
/// Seconds and requests, whichever takes longer.
const RECOVERY: (f64, f64) = (1.0, 200.0);

/// The targets of a table.
pub(crate) fn targets(table: Table, results: &Results) -> Vec<Target> {
    let rows = &results.rows;
    let policies: Vec<&str> =
        results.policies.iter().filter(|policy| Contender::is_a_policy(policy)).map(|policy| &*policy.name).collect();
    let mut targets = Vec::new();
    let mut add = |what, cases: Vec<Case>| {
        targets.push(Target::new(what, cases));
    };
    if table == Table::A {
        add(
            "`bdp` ≥ 95 % of the bound at depth ≥ 4, one size; ≥ 90 % at depth 4 where the bound needs two paths",
            each(
                rows,
                |row| row.is_uniform() && row.outstanding() >= 4,
                |row| row.near_bound(row.near_bound_uniform()),
            ),
        );
    }
    if table != Table::C {
        add(
            "`bdp` ≥ 90 % of the bound at depth ≥ 8, mixed sizes",
            each(rows, |row| !row.is_uniform() && row.outstanding() >= 8, |row| row.near_bound(NEAR_BOUND_MIXED)),
        );
    }
    add(
        "`bdp` within 3 % (mixed sizes: 6 %) of the best other policy in every row",
        each(rows, |_| true, |row| row.beside_best(&policies)),
    );
    add(
        "less than one probe of `bdp` for a hundred I/Os",
        each(rows, |_| true, |row| row.cases(&["bdp"], |cell| Some(row.probes(cell)))),
    );
    match table {
        Table::A => asymmetric(rows, &mut add),
        Table::B => add(
            "no adaptive policy more than 2 %, or the measured spread (3 % at most), behind the best",
            each(rows, |_| true, |row| row.symmetric(&policies)),
        ),
        Table::C => heterogeneous(rows, &mut add),
        Table::D => add(
            "`bdp` at 90 % of the new bound after max(1 s, 200 I/Os) of a change",
            each(rows, |row| !row.bound.phases_iops.is_empty(), Row::recovery),
        ),
    }
    targets
}

fn asymmetric(rows: &[Row], add: &mut impl FnMut(&'static str, Vec<Case>)) {
    const ADAPTIVE: [&str; 2] = ["adaptive", "latency-rr"];
    let times = |row: &Row, other, limit| row.cases(&ADAPTIVE, |cell| row.times(cell, other, limit));
    add(
        "`adaptive` and `latency-rr` ≥ 7 × `numa`, slow path first, QD ≤ 32, where the fast path is not the limit",
        each(rows, Row::fast_path_is_no_limit, |row| times(row, "numa", OVER_NUMA)),
    );
    add(
        "the same ≥ 3.3 × `round-robin`",
        each(rows, Row::fast_path_is_no_limit, |row| times(row, "round-robin", OVER_ROUND_ROBIN)),
    );
    let reads = |row: &Row| row.mode == Mode::Randread && [1, 32].contains(&row.outstanding());
    add(
        "`bdp`, 4k reads at QD1 and QD32: MiB/s and p99.9 within 10 % of the fast path alone, slow path first or second",
        each(rows, |row| reads(row) && row.is_uniform() && row.sizes.largest() == 4096, |row| row.beside_alone("bdp")),
    );
    add(
        "the same of `bdp objective=latency` at every size",
        each(rows, reads, |row| row.beside_alone(BDP_FOR_LATENCY)),
    );
}

fn heterogeneous(rows: &[Row], add: &mut impl FnMut(&'static str, Vec<Case>)) {
    let random = |row: &Row| row.mode == Mode::Randread;
    for (what, ahead, behind) in [
        ("the published order at random: `latency-rr` before `latency`", "latency-rr", "latency"),
        ("`latency` before `pid`", "latency", "pid"),
        ("`latency` before `round-robin`", "latency", "round-robin"),
    ] {
        add(what, each(rows, random, |row| row.cases(&[ahead], |cell| row.ahead(cell, behind))));
    }
    add(
        "p99.99 of `bdp` at QD1 and QD8 at most a tenth of `round-robin`'s",
        each(rows, |row| random(row) && [1, 8].contains(&row.outstanding()), |row| row.tail("bdp")),
    );
    add(
        "p99.99 of `latency-rr` at QD1 at most a tenth of `round-robin`'s",
        each(rows, |row| random(row) && row.outstanding() == 1, |row| row.tail("latency-rr")),
    );
    add(
        "`bdp` at or ahead of `latency-rr` in every row (level: within the spread, 3 % at most)",
        each(rows, |_| true, |row| row.cases(&["bdp"], |cell| row.ahead(cell, "latency-rr"))),
    );
    add(
        "p99.99 of `bdp` at random QD32 below what the awful path takes",
        each(rows, |row| random(row) && row.outstanding() == 32, Row::below_the_awful),
    );
}

fn each(rows: &[Row], which: impl Fn(&Row) -> bool, cases: impl Fn(&Row) -> Vec<Case>) -> Vec<Case> {
    rows.iter().filter(|row| which(row)).flat_map(cases).collect()
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

/// How far rounds lie from their median, in percent of it, in the one cell or the other.
fn spread(one: &Cell, other: &Cell) -> f64 {
    let of = |spread: Spread| percent((spread.max - spread.min) / 2.0, spread.median);
    of(one.mib_per_second).max(of(other.mib_per_second)).min(SPREAD)
}

impl Row {
    fn outstanding(&self) -> u32 {
        u32::from(self.depth) * u32::from(self.queues)
    }

    fn is_uniform(&self) -> bool {
        self.sizes.smallest() == self.sizes.largest()
    }

    /// A cell that was measured.
    fn cell(&self, policy: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.policy == policy && !cell.samples.is_empty())
    }

    fn case(&self, cell: &Cell, measured: Option<f64>, limit: Limit, unit: &'static str) -> Case {
        Case::new(&self.name, &cell.policy, measured, limit, unit)
    }

    fn cases(&self, policies: &[&str], case: impl Fn(&Cell) -> Option<Case>) -> Vec<Case> {
        policies.iter().filter_map(|policy| self.cell(policy)).filter_map(case).collect()
    }

    fn bound_of(&self, paths: &[PathSpec]) -> f64 {
        bound(paths, self.bound.floor_us / 1e6, self.sizes.mean_bytes(), self.outstanding())
    }

    /// Least and greatest delay.
    fn ends(&self) -> Option<[PathSpec; 2]> {
        let by_delay = |path: &&PathSpec| path.delay;
        Some([*self.paths.iter().min_by_key(by_delay)?, *self.paths.iter().max_by_key(by_delay)?])
    }

    /// Whether the slow path is first, and the fast one could carry so many times as much as the slow one at this depth.
    fn fast_path_is_no_limit(&self) -> bool {
        let Some([fast, slow]) = self.ends() else { return false };
        self.paths.first() == Some(&slow)
            && self.outstanding() <= 32
            && self.bound_of(&[fast]) >= OVER_NUMA * self.bound_of(&[slow])
    }

    fn near_bound_uniform(&self) -> f64 {
        let alone = self.ends().map_or(0.0, |[fast, _]| self.bound_of(&[fast]));
        if self.outstanding() == 4 && alone < self.bound.iops { NEAR_BOUND_WHOLE } else { NEAR_BOUND }
    }

    fn near_bound(&self, limit: f64) -> Vec<Case> {
        let of = |cell: &Cell| {
            self.case(
                cell,
                Some(percent(cell.mib_per_second.median, self.bound.mib_per_second)),
                Limit::AtLeast(limit),
                "% of the bound",
            )
        };
        // The bound of a series is a mean over changes, which take time to be noticed.
        self.cases(&["bdp"], |cell| self.bound.phases_iops.is_empty().then(|| of(cell)))
    }

    /// The best of `policies` but `except`.
    fn best(&self, policies: &[&str], except: &str) -> Option<&Cell> {
        let others = policies.iter().filter(|policy| **policy != except).filter_map(|policy| self.cell(policy));
        others.max_by(|one, other| one.mib_per_second.median.total_cmp(&other.mib_per_second.median))
    }

    fn beside_best(&self, policies: &[&str]) -> Vec<Case> {
        let limit = if self.is_uniform() { BESIDE_BEST } else { BESIDE_BEST_MIXED };
        self.cases(&["bdp"], |cell| {
            let best = self.best(policies, "bdp")?;
            let measured = percent(cell.mib_per_second.median, best.mib_per_second.median);
            Some(self.case(cell, Some(measured), Limit::AtLeast(limit), "% of the best other"))
        })
    }

    fn symmetric(&self, policies: &[&str]) -> Vec<Case> {
        let Some(best) = self.best(policies, "") else { return Vec::new() };
        self.cases(&["adaptive", "latency", "latency-rr", "bdp"], |cell| {
            let limit = SYMMETRIC.min(100.0 - spread(best, cell));
            let measured = percent(cell.mib_per_second.median, best.mib_per_second.median);
            Some(self.case(cell, Some(measured), Limit::AtLeast(limit), "% of the best"))
        })
    }

    fn times(&self, cell: &Cell, other: &str, limit: f64) -> Option<Case> {
        let measured = cell.mib_per_second.median / self.cell(other)?.mib_per_second.median;
        Some(self.case(cell, Some(measured), Limit::AtLeast(limit), "times"))
    }

    fn beside_alone(&self, policy: &str) -> Vec<Case> {
        let Some(alone) = self.cell(FAST_ALONE) else { return Vec::new() };
        let throughput = self.cases(&[policy], |cell| {
            let measured = percent(cell.mib_per_second.median, alone.mib_per_second.median);
            Some(self.case(cell, Some(measured), Limit::AtLeast(BESIDE_ALONE), "% of its MiB/s"))
        });
        let tail = self.cases(&[policy], |cell| {
            let measured = percent(cell.p99_9_us.median, alone.p99_9_us.median);
            Some(self.case(cell, Some(measured), Limit::AtMost(TAIL_BESIDE_ALONE), "% of its p99.9"))
        });
        [throughput, tail].concat()
    }

    /// Not behind by more than the spread.
    fn ahead(&self, cell: &Cell, of: &str) -> Option<Case> {
        let other = self.cell(of)?;
        let limit = 100.0 - spread(other, cell);
        let measured = percent(cell.mib_per_second.median, other.mib_per_second.median);
        Some(self.case(cell, Some(measured), Limit::AtLeast(limit), "% of its MiB/s"))
    }

    fn tail(&self, policy: &str) -> Vec<Case> {
        self.cases(&[policy], |cell| {
            let measured = percent(cell.p99_99_us.median, self.cell("round-robin")?.p99_99_us.median);
            Some(self.case(cell, Some(measured), Limit::AtMost(TAIL_OF_ROUND_ROBIN), "% of round-robin's"))
        })
    }

    fn probes(&self, cell: &Cell) -> Case {
        self.case(cell, Some(cell.probes_percent.median), Limit::AtMost(PROBES), "% probes")
    }

    fn below_the_awful(&self) -> Vec<Case> {
        self.cases(&["bdp"], |cell| {
            let [_, awful] = self.ends()?;
            let limit = Limit::AtMost(awful.delay.as_secs_f64() * 1e3);
            Some(self.case(cell, Some(cell.p99_99_us.median / 1e3), limit, "ms"))
        })
    }

    fn recovery(&self) -> Vec<Case> {
        let Some(cell) = self.cell("bdp") else { return Vec::new() };
        let bounds = self.bound.phases_iops.iter().skip(1);
        let recoveries = cell.recoveries();
        let case = |(measured, bound): (&Option<f64>, &f64)| {
            self.case(cell, *measured, Limit::AtMost(RECOVERY.0.max(RECOVERY.1 / bound)), "s")
        };
        recoveries.iter().zip(bounds).map(case).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Bound, Sample};
    use crate::plan::Plan;
    use crate::results::tests::{results, sample};
    use crate::tables::Length;
    use std::time::Duration;
    use vublk_bench::publish::write_targets;

    const FLOOR: f64 = 70e-6;
    const PLAN: Plan = Plan { seconds: Duration::from_secs(3), rounds: 5, full: false };
    const NAMES: [&str; 9] =
        ["numa", "round-robin", "queue-depth", "adaptive", "pid", "latency", "latency-rr", "bdp", BDP_FOR_LATENCY];

    /// A table whose cells have the bound's IOPS in these parts, by policy; everyone else has half of it.
    fn table(table: Table, parts: &[(&str, f64)]) -> Results {
        let mut all: Vec<Contender> = NAMES.map(Contender::plain).into();
        all[8].policy = "bdp".into();
        all.push(Contender { policy: "numa".into(), ..Contender::plain(FAST_ALONE) });
        let mut results = Results { policies: all.clone(), ..results() };
        results.rows.clear();
        for spec in &table.rows(false) {
            let bound = Bound::of(spec, FLOOR);
            results.add_row(spec, bound.clone(), &PLAN);
            for policy in &all {
                let part = parts.iter().find(|(name, _)| *name == policy.name).map_or(0.5, |(_, part)| *part);
                let jumps = matches!(&spec.length, Length::Series(series) if series.jumps);
                let changes = bound.phases_iops.iter().skip(1).filter(|_| jumps);
                let recoveries = changes.map(|_| Some(0.4 / part)).collect();
                let row = results.rows.last_mut().unwrap();
                let sample = sample(bound.iops * part, recoveries);
                let mib_per_second = bound.mib_per_second * part;
                row.add(policy, Sample { mib_per_second, probes_percent: 0.5 / part, ..sample });
            }
        }
        results
    }

    fn find<'a>(targets: &'a [Target], words: &str) -> &'a Target {
        targets.iter().find(|target| target.what.contains(words)).unwrap_or_else(|| panic!("no target of {words}"))
    }

    #[test]
    fn every_target_has_rows_to_be_read_from_and_can_be_met_and_missed() {
        for letter in Table::ALL {
            let good = [("bdp", 1.0), (BDP_FOR_LATENCY, 1.0), (FAST_ALONE, 1.0), ("latency-rr", 0.9), ("latency", 0.6)];
            let spoilt =
                [("latency", 0.9), ("round-robin", 0.95), ("pid", 0.95), ("bdp", 1e-4), (BDP_FOR_LATENCY, 0.4)];
            let count = |parts: &[(&str, f64)]| {
                let targets = targets(letter, &table(letter, parts));
                assert!(targets.iter().all(|target| !target.cases.is_empty()), "{targets:#?}");
                targets.into_iter().map(|target| target.met.unwrap()).collect::<Vec<_>>()
            };
            let (good, spoilt) = (count(&good), count(&spoilt));
            assert!(good.iter().filter(|met| **met).count() >= good.len() / 2, "{letter:?}: {good:?}");
            assert!(!spoilt.iter().any(|met| *met), "{letter:?}: {spoilt:?}");
        }
    }

    #[test]
    fn limits_by_depth_size_and_place() {
        let found = targets(Table::A, &table(Table::A, &[("bdp", 0.92)]));
        let limit = |words, row: &str| {
            find(&found, words).cases.iter().find(|case| case.row.starts_with(row)).map(|case| (case.limit, case.met))
        };
        // The fast path has room for four requests of 4 KiB, but not of 64.
        assert_eq!(limit("≥ 95 %", "4k randread QD4, "), Some((95.0, false)));
        assert_eq!(limit("≥ 95 %", "64k randread QD4, "), Some((90.0, true)));
        assert_eq!(limit("≥ 95 %", "4k randread QD1, "), None);
        assert_eq!(limit("mixed sizes", "mixed randread QD32"), Some((90.0, true)));
        let rows: Vec<&str> = find(&found, "≥ 7 ×").cases.iter().map(|case| case.row.as_str()).collect();
        for (row, there) in [("4k randread QD32, slow first", true), ("4k randread QD32, slow second", false)] {
            assert_eq!(rows.contains(&row), there, "{rows:?}");
        }
        assert!(!rows.contains(&"64k randread QD32, slow first"), "19 ms a request: {rows:?}");
        for (row, there) in [("mixed randread QD32, slow first", true), ("64k randread QD1, slow first", true)] {
            assert_eq!(limit("every size", row).is_some(), there, "{row}");
        }
    }

    #[test]
    fn a_spread_is_no_difference() {
        let mut results = table(Table::B, &[("adaptive", 0.95), ("latency", 1.0), ("latency-rr", 1.0), ("bdp", 1.0)]);
        let met = |results: &Results| find(&targets(Table::B, results), "no adaptive").met;
        assert_eq!(met(&results), Some(false));
        let adaptive = results.policies[3].clone();
        for row in &mut results.rows {
            let bound = row.bound.mib_per_second;
            for part in [0.975, 1.0] {
                row.add(&adaptive, Sample { mib_per_second: bound * part, ..sample(1.0, vec![]) });
            }
        }
        assert_eq!(met(&results), Some(true));
        // Rounds that are all over the place excuse nothing.
        for row in &mut results.rows {
            let bound = row.bound.mib_per_second;
            for part in [0.5, 0.5] {
                row.add(&adaptive, Sample { mib_per_second: bound * part, ..sample(1.0, vec![]) });
            }
        }
        assert_eq!(met(&results), Some(false));
    }

    #[test]
    fn what_never_recovers_misses() {
        let mut results = table(Table::D, &[("bdp", 1.0)]);
        assert_eq!(find(&targets(Table::D, &results), "new bound").met, Some(true));
        let flapping = results.rows.iter_mut().find(|row| row.name.starts_with("flapping")).unwrap();
        let bdp = flapping.cells.iter_mut().find(|cell| cell.policy == "bdp").unwrap();
        bdp.samples = vec![sample(1.0, vec![Some(0.2), None])];
        let found = targets(Table::D, &results);
        let target = find(&found, "new bound");
        assert_eq!(target.met, Some(false));
        let mut text = String::new();
        write_targets(&mut text, &found).unwrap();
        assert!(text.contains("| **missed** in 1 of 3 | never (`bdp`, flapping, 16k randread QD8) |"), "{text}");
    }

    #[test]
    fn without_the_policy_nothing_is_claimed() {
        let found = targets(Table::A, &results());
        let near = find(&found, "≥ 95 %");
        assert_eq!((near.met, near.cases.len()), (None, 0));
        let mut text = String::new();
        write_targets(&mut text, &found).unwrap();
        assert!(text.contains("| not measured |  |"), "{text}");
    }
}
