//! A link that is lost and comes back: how long until throughput is what is left, and until it is what it was.

use serde::{Deserialize, Serialize};
use vublk_bench::publish::Spread;

/// This much of what can be expected counts as all of it.
const PART: f64 = 0.9;
/// It has to be so in the mean of so many steps of 100 ms: requests have many sizes, so steps differ.
const STEPS: usize = 5;
/// A step counts for no more than this times what can be expected: what had waited and is completed at once makes up
/// for no pause.
const MOST: f64 = 1.2;

/// What `guest-tests/mptcp/measure` gives.
#[derive(Debug, Deserialize)]
pub(crate) struct MeasuredOutage {
    kind: Kind,
    method: String,
    links: usize,
    samples: Vec<MeasuredSample>,
}

/// How the link is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Its cable is pulled.
    Down,
    /// Packets vanish, and nobody is told.
    Silence,
}

/// One run. Times from the first count on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MeasuredSample {
    times_s: Vec<f64>,
    /// Completed by then.
    bytes: Vec<u64>,
    lost_at_s: f64,
    restored_at_s: f64,
    /// Requests that failed or were lost, and everything else that went wrong.
    errors: u64,
    miscompares: u64,
    /// Whether all that had been written was read again at the end.
    read_back: bool,
    ok: bool,
}

/// All rounds of one method.
#[derive(Debug, Serialize)]
pub(crate) struct Outage {
    pub(crate) kind: Kind,
    pub(crate) method: String,
    /// Before the first of which was lost.
    pub(crate) links: usize,
    /// Errors, wrong blocks, and runs that did not read everything again; of all rounds.
    pub(crate) wrong: u64,
    /// With all links, reads and writes together.
    pub(crate) mib_s: Spread,
    /// How long until throughput was that of the links left, in each round; `null`: not while the link was lost.
    pub(crate) rest_after_s: Vec<Option<f64>>,
    /// How long after the link was back until throughput was what it had been; `null`: not in the time measured.
    pub(crate) all_after_s: Vec<Option<f64>>,
    pub(crate) samples: Vec<MeasuredSample>,
}

impl Outage {
    pub(crate) fn new(measured: MeasuredOutage) -> Self {
        let MeasuredOutage { kind, method, links, samples } = measured;
        let left = links.saturating_sub(1) as f64 / links.max(1) as f64;
        Self {
            wrong: samples.iter().map(MeasuredSample::wrong).sum(),
            mib_s: Spread::of(samples.iter().map(MeasuredSample::before)),
            rest_after_s: samples
                .iter()
                .map(|sample| sample.reached(sample.lost_at_s, Some(sample.restored_at_s), sample.before() * left))
                .collect(),
            all_after_s: samples
                .iter()
                .map(|sample| sample.reached(sample.restored_at_s, None, sample.before()))
                .collect(),
            kind,
            method,
            links,
            samples,
        }
    }
}

/// The longest of all rounds; `None` if it was never in one of them, or there are none.
pub(crate) fn longest(times: &[Option<f64>]) -> Option<f64> {
    let times: Option<Vec<f64>> = times.iter().copied().collect();
    times?.into_iter().reduce(f64::max)
}

impl MeasuredSample {
    fn wrong(&self) -> u64 {
        let wrong = self.errors + self.miscompares + u64::from(!self.read_back);
        // Whatever it was, there was something.
        wrong.max(u64::from(!self.ok))
    }

    /// Of each step: begin, end, MiB/s.
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

    /// How long after `from`, and before `to`, throughput began to be what can be expected.
    fn reached(&self, from: f64, to: Option<f64>, expected: f64) -> Option<f64> {
        let within = |(begin, end, _): &(f64, f64, f64)| *begin >= from && to.is_none_or(|to| *end <= to);
        let steps: Vec<(f64, f64, f64)> = self.steps().filter(within).collect();
        let enough = |window: &&[(f64, f64, f64)]| {
            let sum: f64 = window.iter().map(|(_, _, mib_s)| mib_s.min(MOST * expected)).sum();
            sum >= PART * expected * STEPS as f64
        };
        steps.windows(STEPS).find(enough).map(|window| window[0].0 - from)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Two links, one lost after 2 s and given back after 5 s, 40 MiB/s before: after the loss nothing for `pause`
    /// steps, then 20; after the return 10 for `slow` steps.
    pub(crate) fn outage(kind: &str, method: &str, pause: usize, slow: usize, errors: u64) -> Value {
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

    fn of(value: Value) -> Outage {
        Outage::new(serde_json::from_value(value).unwrap())
    }

    fn close(time: Option<f64>, expected: f64) -> bool {
        time.is_some_and(|time| (time - expected).abs() < 1e-6)
    }

    #[test]
    fn times_until_the_rest_and_until_all() {
        let found = of(outage("down", "mptcp-1", 7, 12, 0));
        assert!((found.mib_s.median - 40.0).abs() < 0.1 && found.wrong == 0, "{found:?}");
        assert!(close(longest(&found.rest_after_s), 0.7), "{:?}", found.rest_after_s);
        assert!(close(longest(&found.all_after_s), 1.2), "{:?}", found.all_after_s);
        assert_eq!(found.kind, Kind::Down);
    }

    #[test]
    fn at_once_is_no_time_and_never_is_none() {
        let found = of(outage("silence", "mptcp-1", 0, 50, 0));
        assert!(close(longest(&found.rest_after_s), 0.0) && longest(&found.all_after_s).is_none(), "{found:?}");
        // Too short for the mean.
        assert_eq!(longest(&of(outage("silence", "mptcp-1", 26, 0, 0)).rest_after_s), None);
    }

    #[test]
    fn what_had_waited_makes_up_for_no_pause() {
        let mut rates = vec![40u64; 20];
        // Half of the first steps nothing, and then all of it at once.
        rates.extend([0, 0, 0, 100, 20, 20]);
        rates.extend([20; 24]);
        rates.extend([40; 50]);
        let value = json!({"kind": "silence", "method": "x", "links": 2, "samples": [sample(&rates, 0)]});
        // From the second of the three on: 0, 24 (of 100), 20, 20, 20 of 5 × 20 are 84 %; from the third on it is 104
        // %.
        assert!(close(longest(&of(value).rest_after_s), 0.3), "not 0.3 s");
    }

    #[test]
    fn the_worst_round_counts() {
        assert_eq!(longest(&[Some(0.1), Some(0.4), Some(0.2)]), Some(0.4));
        assert_eq!(longest(&[Some(0.1), None]), None);
        assert_eq!(longest(&[]), None);
    }

    #[test]
    fn everything_that_is_wrong_counts() {
        assert_eq!(of(outage("down", "x", 0, 0, 3)).wrong, 3);
        let with = |name: &str, value: Value| {
            let mut outage = outage("down", "x", 0, 0, 0);
            outage["samples"][0][name] = value;
            of(outage).wrong
        };
        assert_eq!(
            (with("miscompares", 2.into()), with("read_back", false.into()), with("ok", false.into())),
            (2, 1, 1)
        );
    }
}
