//! A link that is lost and comes back: how long it takes until throughput is what the other links can carry, and what all links
//! can carry.

use vublk_bench::harness::{Cell, Column, Layout, Results, Sample, Show, Table};

/// Throughput has recovered when it is this part of the expected throughput …
const RECOVERED: f64 = 0.9;
/// … in the mean of this many steps of 100 ms. Steps differ, because requests have many sizes.
const STEPS: usize = 5;
/// A step counts for no more than this times the expected throughput. So requests that waited and complete at once do not
/// make up for a pause.
const MOST: f64 = 1.2;

pub(crate) fn table(results: &Results) -> Table {
    let layout = Layout::AllRows(["the link", "method"]);
    Table::new("#### A link is lost, and returns", results.table("d"), layout, &COLUMNS)
}

const COLUMNS: [Column; 4] = [
    ("MiB/s before", Show::Spread("mib_s", 1)),
    ("wrong", Show::Median("wrong", 0)),
    ("the rest after", Show::Spread("rest_after_s", 1)),
    ("both after", Show::Spread("all_after_s", 1)),
];

/// Begin, end and MiB/s of a step.
type Step = (f64, f64, f64);

/// Judges the samples of a cell. Each sample has errors, and the bytes completed by each time (`bytes`, `times_s`).
pub(crate) fn judge(cell: &mut Cell, links: f64) {
    let measured = std::mem::replace(cell, Cell::new(&cell.contender)).samples;
    for sample in &measured {
        let (lost, restored) = (sample.figures["lost_at_s"], sample.figures["restored_at_s"]);
        let steps = steps(sample);
        let before = before(&steps, lost);
        let rest = reached(&steps, lost, restored, before * (links - 1.0) / links);
        let all = reached(&steps, restored, f64::INFINITY, before);
        cell.add(Sample::new(&[("mib_s", before), ("rest_after_s", rest), ("all_after_s", all)]));
    }
    cell.set("wrong", measured.iter().map(wrong).sum::<f64>());
}

/// Requests that failed or were lost, queues that ended, wrong blocks, and data that could not be read again. Any other
/// failure counts once.
fn wrong(sample: &Sample) -> f64 {
    let [errors, miscompares, read_back, ok] =
        ["errors", "miscompares", "read_back", "ok"].map(|name| sample.figures[name]);
    (errors + miscompares + 1.0 - read_back).max(1.0 - ok)
}

fn steps(sample: &Sample) -> Vec<Step> {
    let counts: Vec<(f64, f64)> =
        sample.list("times_s").iter().copied().zip(sample.list("bytes").iter().copied()).collect();
    let steps = counts.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let step = |pair: &[(f64, f64)]| {
        let ((begin, before), (end, after)) = (pair[0], pair[1]);
        (begin, end, (after - before) / 1_048_576.0 / (end - begin))
    };
    steps.map(step).collect()
}

/// Throughput before the link was lost, in MiB/s.
fn before(steps: &[Step], lost_at_s: f64) -> f64 {
    let steps = || steps.iter().filter(|(_, end, _)| *end <= lost_at_s);
    let seconds: f64 = steps().map(|(begin, end, _)| end - begin).sum();
    let mib: f64 = steps().map(|(begin, end, mib_s)| mib_s * (end - begin)).sum();
    if seconds > 0.0 { mib / seconds } else { 0.0 }
}

/// The time from `from` until throughput had recovered, which must be before `to`. Infinite if throughput did not recover.
fn reached(steps: &[Step], from: f64, to: f64, expected: f64) -> f64 {
    let within = |(begin, end, _): &&Step| *begin >= from && *end <= to;
    let steps: Vec<Step> = steps.iter().filter(within).copied().collect();
    let enough = |window: &&[Step]| {
        let sum: f64 = window.iter().map(|(_, _, mib_s)| mib_s.min(MOST * expected)).sum();
        sum >= RECOVERED * expected * STEPS as f64
    };
    steps.windows(STEPS).find(enough).map_or(f64::INFINITY, |window| window[0].0 - from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Two links with 40 MiB/s together. One is lost after 2 s: there is no throughput for `pause` steps, then 20 MiB/s. The link
    /// returns after 5 s: there are 10 MiB/s for `slow` steps, then 40.
    fn outage(pause: usize, slow: usize, errors: u64) -> Value {
        let mut rates = vec![40u64; 20];
        rates.extend((0..30).map(|step| if step < pause { 0 } else { 20 }));
        rates.extend((0..50).map(|step| if step < slow { 10 } else { 40 }));
        json!({"contender": "x", "samples": [sample(&rates, errors)]})
    }

    fn sample(rates: &[u64], errors: u64) -> Value {
        let times: Vec<f64> = (0..=rates.len()).map(|step| step as f64 / 10.0).collect();
        let mut bytes = vec![0];
        for rate in rates {
            bytes.push(bytes[bytes.len() - 1] + rate * 1_048_576 / 10);
        }
        json!({
            "lists": {"times_s": times, "bytes": bytes}, "lost_at_s": 2.0, "restored_at_s": 5.0,
            "errors": errors, "miscompares": 0, "read_back": 1, "ok": u8::from(errors == 0),
        })
    }

    fn cell(value: Value) -> Cell {
        let mut cell: Cell = serde_json::from_value(value).unwrap();
        judge(&mut cell, 2.0);
        cell
    }

    fn longest(cell: &Cell, name: &str) -> f64 {
        cell.get(name).unwrap().max
    }

    fn close(time: f64, expected: f64) -> bool {
        (time - expected).abs() < 1e-6
    }

    #[test]
    fn times_until_the_rest_and_until_all() {
        let found = cell(outage(7, 12, 0));
        assert!((found.median("mib_s").unwrap() - 40.0).abs() < 0.1, "{found:?}");
        assert!(close(longest(&found, "rest_after_s"), 0.7), "{found:?}");
        assert!(close(longest(&found, "all_after_s"), 1.2), "{found:?}");
    }

    #[test]
    fn at_once_is_zero_and_never_is_infinite() {
        let found = cell(outage(0, 50, 0));
        assert!(close(longest(&found, "rest_after_s"), 0.0), "{found:?}");
        assert!(longest(&found, "all_after_s").is_infinite(), "{found:?}");
        // The throughput recovers too late: fewer steps are left than the mean takes.
        assert!(longest(&cell(outage(26, 0, 0)), "rest_after_s").is_infinite());
    }

    #[test]
    fn requests_that_waited_do_not_make_up_for_a_pause() {
        let mut rates = vec![40u64; 20];
        // The first three steps complete nothing, and then all their requests complete at once.
        rates.extend([0, 0, 0, 100, 20, 20]);
        rates.extend([20; 24]);
        rates.extend([40; 50]);
        let value = json!({"contender": "x", "samples": [sample(&rates, 0)]});
        // The mean from the third step on is 84 %: 0, 24 (in place of 100), 20, 20 and 20, of 5 × 20. From the fourth step on
        // it is 104 %.
        assert!(close(longest(&cell(value), "rest_after_s"), 0.3), "not 0.3 s");
    }

    #[test]
    fn everything_that_is_wrong_counts() {
        let wrong = |value| cell(value).median("wrong").unwrap();
        assert!(close(wrong(outage(0, 0, 3)), 3.0));
        let with = |name: &str, value: Value| {
            let mut outage = outage(0, 0, 0);
            outage["samples"][0][name] = value;
            wrong(outage)
        };
        assert_eq!((with("miscompares", 2.into()), with("read_back", 0.into()), with("ok", 0.into())), (2.0, 1.0, 1.0));
    }
}
