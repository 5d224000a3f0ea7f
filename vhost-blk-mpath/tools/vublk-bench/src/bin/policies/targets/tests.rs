use super::*;
use crate::bench::facts;
use vublk_bench::harness::{Machine, Sample};

const FLOOR: f64 = 70e-6;
const NAMES: [&str; 10] = [
    "numa",
    "round-robin",
    "queue-depth",
    "adaptive",
    "pid",
    "latency",
    "latency-rr",
    "bdp",
    BDP_FOR_LATENCY,
    FAST_ALONE,
];

/// A table whose cells have these parts of the bound, by policy; all others have half of it.
fn table(table: Table, parts: &[(&str, f64)]) -> Results {
    let mut results = Results::new(Machine::look(None), &[]);
    for spec in table.rows() {
        let mut row = Row::new(table.letter(), &spec.name, NAMES.into_iter());
        row.facts = facts(&spec, FLOOR);
        let (iops, mib_s) = (row.fact("bound_iops"), row.fact("bound_mib_s"));
        let changes = if spec.jumps { spec.changes.len() } else { 0 };
        for cell in &mut row.cells {
            let part = parts.iter().find(|(name, _)| *name == cell.contender).map_or(0.5, |(_, part)| *part);
            let us = 1e6 / (iops * part);
            let mut sample = Sample::new(&[
                ("iops", iops * part),
                ("mib_s", mib_s * part),
                ("p99.9_us", us),
                ("p99.99_us", 2.0 * us),
                ("probes_percent", 0.5 / part),
            ]);
            sample.figures.extend((1..=changes).map(|change| (format!("recovery_{change}_s"), 0.4 / part)));
            cell.add(sample);
        }
        results.rows.push(row);
    }
    results
}

fn find<'a>(targets: &'a [Target], words: &str) -> &'a Target {
    targets.iter().find(|target| target.description.contains(words)).unwrap_or_else(|| panic!("no target of {words}"))
}

#[test]
fn every_target_has_cases_and_can_be_met_and_missed() {
    for letter in Table::ALL {
        let good = [("bdp", 1.0), (BDP_FOR_LATENCY, 1.0), (FAST_ALONE, 1.0), ("latency-rr", 0.9), ("latency", 0.6)];
        let spoilt = [("latency", 0.9), ("round-robin", 0.95), ("pid", 0.95), ("bdp", 1e-4), (BDP_FOR_LATENCY, 0.4)];
        let met = |parts: &[(&str, f64)]| {
            let targets = targets(&table(letter, parts));
            targets.iter().map(|target| target.is_met().expect("cases")).collect::<Vec<_>>()
        };
        let (good, spoilt) = (met(&good), met(&spoilt));
        assert!(good.iter().filter(|met| **met).count() >= good.len() / 2, "{letter:?}: {good:?}");
        assert!(!spoilt.iter().any(|met| *met), "{letter:?}: {spoilt:?}");
    }
}

#[test]
fn limits_depend_on_depth_size_and_place() {
    let found = targets(&table(Table::A, &[("bdp", 0.92)]));
    // The fast path has room for four requests of 4 KiB, but not of 64 KiB, so 92 % are enough there.
    let missed = missed(find(&found, "≥ 95 %"));
    assert!(missed.iter().any(|row| row.starts_with("4k randread QD4, ")), "{missed:?}");
    assert!(!missed.iter().any(|row| row.starts_with("64k randread QD4, ") || row.contains("QD1, ")), "{missed:?}");
    assert_eq!(find(&found, "≥ 90 % of the bound at depth ≥ 8").is_met(), Some(true));
    // Of 17 rows two have the slow path second; 64k at QD32 and QD256 and 4k at QD256 fill the fast path.
    let found = targets(&table(Table::A, &[("adaptive", 1e-6), ("latency-rr", 1e-6)]));
    let missed = self::missed(find(&found, "≥ 7 ×"));
    assert!(missed.contains(&"4k randread QD32, slow first"), "{missed:?}");
    assert!(!missed.iter().any(|row| row.contains("slow second")), "{missed:?}");
    assert!(!missed.iter().any(|row| row.starts_with("64k randread QD32")), "19 ms a request: {missed:?}");
}

fn missed(target: &Target) -> Vec<&str> {
    target.cases.iter().filter(|case| !case.is_met()).map(|case| &*case.row).collect()
}

#[test]
fn a_difference_within_the_spread_is_none() {
    let mut results = table(Table::B, &[("adaptive", 0.95), ("latency", 1.0), ("latency-rr", 1.0), ("bdp", 1.0)]);
    let met = |results: &Results| find(&targets(results), "no adaptive").is_met();
    assert_eq!(met(&results), Some(false));
    let mut add = |parts: [f64; 2]| {
        for row in &mut results.rows {
            let bound = row.fact("bound_mib_s");
            let adaptive = row.cells.iter_mut().find(|cell| cell.contender == "adaptive").unwrap();
            for part in parts {
                adaptive.add(Sample::new(&[("mib_s", bound * part)]));
            }
        }
        results.clone()
    };
    assert_eq!(met(&add([0.975, 1.0])), Some(true));
    // More spread than 3 % excuses nothing.
    assert_eq!(met(&add([0.5, 0.5])), Some(false));
}

#[test]
fn a_policy_that_never_recovers_misses() {
    let mut results = table(Table::D, &[("bdp", 1.0)]);
    assert_eq!(find(&targets(&results), "new bound").is_met(), Some(true));
    let flapping = results.rows.iter_mut().find(|row| row.name.starts_with("flapping")).unwrap();
    let bdp = flapping.cells.iter_mut().find(|cell| cell.contender == "bdp").unwrap();
    bdp.set("recovery_2_s", f64::INFINITY);
    let text = find(&targets(&results), "new bound").text();
    assert!(text.starts_with("**Missed** in 1 of 3"), "{text}");
    assert!(text.ends_with("Furthest: never (`bdp`, flapping, 16k randread QD8)."), "{text}");
}

#[test]
fn a_target_of_a_policy_that_was_not_measured_has_no_cases() {
    let mut results = table(Table::A, &[]);
    for row in &mut results.rows {
        row.cells.retain(|cell| cell.contender != "bdp");
    }
    assert_eq!(find(&targets(&results), "≥ 95 %").is_met(), None);
}
