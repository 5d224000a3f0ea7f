//! A link that is lost and comes back: how long until throughput is what the other links carry, and what all carry.

use serde::Deserialize;
use vublk_bench::harness::{Cell, Column, Results, Row, Sample, Section};

/// Throughput has recovered when it is this part of what is expected …
const RECOVERED: f64 = 0.9;
/// … in the mean of this many steps of 100 ms. Steps differ, because requests have many sizes.
const STEPS: usize = 5;
/// A step counts for no more than this times the expected throughput. So requests that waited and complete at once do not
/// make up for a pause.
const MOST: f64 = 1.2;

/// What `guest-tests/mptcp/measure` prints of one method; `kind` is `down` or `silence`.
#[derive(Debug, Deserialize)]
pub(crate) struct MeasuredOutage {
    kind: String,
    method: String,
    links: usize,
    samples: Vec<MeasuredSample>,
}

/// One run. Times from the first count on.
#[derive(Debug, Deserialize)]
struct MeasuredSample {
    times_s: Vec<f64>,
    /// Completed by then.
    bytes: Vec<u64>,
    lost_at_s: f64,
    restored_at_s: f64,
    /// Requests that failed or were lost, and queues that ended.
    errors: u64,
    miscompares: u64,
    /// Whether all written data was read again at the end.
    read_back: bool,
    ok: bool,
}

/// A row for each way in which a link is lost.
pub(crate) fn rows(outages: Vec<MeasuredOutage>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for outage in outages {
        let name = if outage.kind == "down" { "cable pulled" } else { "silent" };
        if rows.last().is_none_or(|row| row.name != name) {
            rows.push(Row::new("d", name, std::iter::empty()));
        }
        rows.last_mut().into_iter().for_each(|row| row.cells.push(outage.cell()));
    }
    rows
}

impl MeasuredOutage {
    fn cell(&self) -> Cell {
        let mut cell = Cell::new(&self.method);
        let left = self.links.saturating_sub(1) as f64 / self.links.max(1) as f64;
        for sample in &self.samples {
            let before = sample.before();
            let never = |time: Option<f64>| time.unwrap_or(f64::INFINITY);
            let rest = sample.reached(sample.lost_at_s, Some(sample.restored_at_s), before * left);
            let all = sample.reached(sample.restored_at_s, None, before);
            cell.add(Sample::new(&[("mib_s", before), ("rest_after_s", never(rest)), ("all_after_s", never(all))]));
        }
        cell.set("wrong", self.samples.iter().map(MeasuredSample::wrong).sum::<u64>() as f64);
        cell
    }
}

/// The table.
pub(crate) fn write(results: &Results, section: &mut Section) {
    section.heading("A link is lost, and returns");
    section.paragraph(
        "The first of two links of 200 Mbit/s is lost for 3 s, under `vublk-bench --rw verify`. The rest after: seconds until \
         throughput is 90 % of what the other link carried before. Both after: seconds from the link's return until \
         throughput is 90 % of what both carried. Wrong: errors, wrong blocks, and runs that could not read everything again.",
    );
    let columns = [
        Column::spread("MiB/s before", "mib_s", 1),
        Column::median("wrong", "wrong", 0),
        Column::spread("the rest after", "rest_after_s", 1),
        Column::spread("both after", "all_after_s", 1),
    ];
    section.table(["the link", "method"], results.table("d"), &columns);
    section.paragraph(
        "Bytes of completed requests are counted every 100 ms. Throughput has recovered with the first of five steps whose mean is \
         90 % of what is expected. A step counts for no more than 1.2 times that. Every block that is read is checked, and all \
         written blocks are read again at the end.",
    );
}

impl MeasuredSample {
    fn wrong(&self) -> u64 {
        let wrong = self.errors + self.miscompares + u64::from(!self.read_back);
        // Any other failure counts once.
        wrong.max(u64::from(!self.ok))
    }

    /// Begin, end and MiB/s of each step.
    fn steps(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let counts = || self.times_s.iter().copied().zip(self.bytes.iter().copied());
        counts().zip(counts().skip(1)).filter(|((begin, _), (end, _))| end > begin).map(
            |((begin, before), (end, after))| {
                (begin, end, after.saturating_sub(before) as f64 / 1_048_576.0 / (end - begin))
            },
        )
    }

    /// Throughput before the link was lost, in MiB/s.
    fn before(&self) -> f64 {
        let steps = self.steps().filter(|(_, end, _)| *end <= self.lost_at_s);
        let (seconds, mib) = steps.fold((0.0, 0.0), |(seconds, mib), (begin, end, mib_s)| {
            (seconds + (end - begin), mib + mib_s * (end - begin))
        });
        if seconds > 0.0 { mib / seconds } else { 0.0 }
    }

    /// How long after `from`, and before `to`, throughput began to be what is expected.
    fn reached(&self, from: f64, to: Option<f64>, expected: f64) -> Option<f64> {
        let within = |(begin, end, _): &(f64, f64, f64)| *begin >= from && to.is_none_or(|to| *end <= to);
        let steps: Vec<(f64, f64, f64)> = self.steps().filter(within).collect();
        let enough = |window: &&[(f64, f64, f64)]| {
            let sum: f64 = window.iter().map(|(_, _, mib_s)| mib_s.min(MOST * expected)).sum();
            sum >= RECOVERED * expected * STEPS as f64
        };
        steps.windows(STEPS).find(enough).map(|window| window[0].0 - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Two links, one lost after 2 s and given back after 5 s, 40 MiB/s before: after the loss nothing for `pause`
    /// steps, then 20; after the return 10 for `slow` steps.
    fn outage(kind: &str, method: &str, pause: usize, slow: usize, errors: u64) -> Value {
        let mut rates = vec![40u64; 20];
        rates.extend((0..30).map(|step| if step < pause { 0 } else { 20 }));
        rates.extend((0..50).map(|step| if step < slow { 10 } else { 40 }));
        json!({"kind": kind, "method": method, "links": 2, "samples": [sample(&rates, errors)]})
    }

    fn sample(rates: &[u64], errors: u64) -> Value {
        let times: Vec<f64> = (0..=rates.len()).map(|step| step as f64 / 10.0).collect();
        let mut bytes = vec![0];
        for rate in rates {
            bytes.push(bytes[bytes.len() - 1] + rate * 1_048_576 / 10);
        }
        json!({
            "times_s": times, "bytes": bytes, "lost_at_s": 2.0, "restored_at_s": 5.0,
            "errors": errors, "miscompares": 0, "read_back": true, "ok": errors == 0,
        })
    }

    fn cell(value: Value) -> Cell {
        serde_json::from_value::<MeasuredOutage>(value).unwrap().cell()
    }

    fn longest(cell: &Cell, name: &str) -> f64 {
        cell.get(name).unwrap().max
    }

    fn close(time: f64, expected: f64) -> bool {
        (time - expected).abs() < 1e-6
    }

    #[test]
    fn times_until_the_rest_and_until_all() {
        let found = cell(outage("down", "mptcp-1", 7, 12, 0));
        assert!((found.median("mib_s").unwrap() - 40.0).abs() < 0.1, "{found:?}");
        assert!(close(longest(&found, "rest_after_s"), 0.7), "{found:?}");
        assert!(close(longest(&found, "all_after_s"), 1.2), "{found:?}");
    }

    #[test]
    fn at_once_is_zero_and_never_is_infinite() {
        let found = cell(outage("silence", "mptcp-1", 0, 50, 0));
        assert!(close(longest(&found, "rest_after_s"), 0.0), "{found:?}");
        assert!(longest(&found, "all_after_s").is_infinite(), "{found:?}");
        // Too short for the mean.
        assert!(longest(&cell(outage("silence", "mptcp-1", 26, 0, 0)), "rest_after_s").is_infinite());
    }

    #[test]
    fn requests_that_waited_do_not_make_up_for_a_pause() {
        let mut rates = vec![40u64; 20];
        // Half of the first steps nothing, and then all of it at once.
        rates.extend([0, 0, 0, 100, 20, 20]);
        rates.extend([20; 24]);
        rates.extend([40; 50]);
        let value = json!({"kind": "silence", "method": "x", "links": 2, "samples": [sample(&rates, 0)]});
        // From the second of the three on: 0, 24 (of 100), 20, 20, 20 of 5 × 20 are 84 %; from the third on it is 104
        // %.
        assert!(close(longest(&cell(value), "rest_after_s"), 0.3), "not 0.3 s");
    }

    #[test]
    fn everything_that_is_wrong_counts() {
        let wrong = |value| cell(value).median("wrong").unwrap();
        assert!(close(wrong(outage("down", "x", 0, 0, 3)), 3.0));
        let with = |name: &str, value: Value| {
            let mut outage = outage("down", "x", 0, 0, 0);
            outage["samples"][0][name] = value;
            wrong(outage)
        };
        assert_eq!(
            (with("miscompares", 2.into()), with("read_back", false.into()), with("ok", false.into())),
            (2.0, 1.0, 1.0)
        );
    }
}
