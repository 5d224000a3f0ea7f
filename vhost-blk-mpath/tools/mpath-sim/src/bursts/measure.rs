//! The results of a stretch of virtual time.

use monotonic::Duration;

use crate::quantile::quantile;

/// A request that was finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Since the start.
    pub(crate) at: Duration,
    pub(crate) flow: usize,
    /// The time for which it occupied the service.
    pub(crate) work: Duration,
}

/// The requests that finished in a stretch of virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    pub(crate) from: Duration,
    time: Duration,
    /// In order of time.
    pub(crate) done: Vec<Done>,
    /// By flow: how long each burst that began in that time took, from its first request to its last answer.
    pub(crate) bursts: Vec<Vec<Duration>>,
}

impl Measured {
    pub(crate) fn new(flows: usize, from: Duration, time: Duration) -> Self {
        Self { from, time, done: Vec::new(), bursts: vec![Vec::new(); flows] }
    }

    /// Requests finished per second.
    pub fn iops(&self) -> f64 {
        self.done.len() as f64 / self.time.as_secs_f64()
    }

    /// The time, in ms, that this share of the bursts of these flows did not exceed.
    pub fn burst_ms(&self, flows: impl IntoIterator<Item = usize>, quantile: f64) -> f64 {
        quantile_ms(flows.into_iter().flat_map(|flow| self.bursts[flow].iter().copied()), quantile)
    }

    /// The mean time of the bursts of these flows, in ms.
    pub fn mean_burst_ms(&self, flows: impl IntoIterator<Item = usize>) -> f64 {
        let times: Vec<f64> =
            flows.into_iter().flat_map(|flow| &self.bursts[flow]).map(|time| time.as_secs_f64() * 1e3).collect();
        times.iter().sum::<f64>() / times.len() as f64
    }

    /// The service that each flow got, in seconds.
    pub fn work(&self) -> Vec<f64> {
        let mut work = vec![0.0; self.bursts.len()];
        for done in &self.done {
            work[done.flow] += done.work.as_secs_f64();
        }
        work
    }

    /// The part of all service that these flows got.
    pub fn share(&self, which: impl Fn(usize) -> bool) -> f64 {
        let work = self.work();
        let of_them: f64 = work.iter().enumerate().filter(|(flow, _)| which(*flow)).map(|(_, work)| work).sum();
        of_them / work.iter().sum::<f64>()
    }

    /// The least part of the service that these flows got in any second.
    pub fn least_share(&self, which: impl Fn(usize) -> bool) -> f64 {
        const SECOND: Duration = Duration::from_secs(1);
        let (mut all, mut of_them, mut end, mut least) = (0.0, 0.0, 0, f64::INFINITY);
        for first in &self.done {
            while let Some(last) = self.done.get(end).filter(|done| done.at < first.at + SECOND) {
                all += last.work.as_secs_f64();
                of_them += if which(last.flow) { last.work.as_secs_f64() } else { 0.0 };
                end += 1;
            }
            if first.at + SECOND > self.from + self.time {
                break;
            }
            least = least.min(of_them / all);
            all -= first.work.as_secs_f64();
            of_them -= if which(first.flow) { first.work.as_secs_f64() } else { 0.0 };
        }
        least
    }

    /// The longest time, in ms, in which no request of these flows finished.
    pub fn longest_gap_ms(&self, which: impl Fn(usize) -> bool) -> f64 {
        let ends = self.done.iter().filter(|done| which(done.flow)).map(|done| done.at).chain([self.from + self.time]);
        let (mut last, mut longest) = (self.from, Duration::ZERO);
        for at in ends {
            longest = longest.max(at.saturating_sub(last));
            last = at;
        }
        longest.as_secs_f64() * 1e3
    }
}

/// The time, in ms, that this share of `times` did not exceed. NaN if there are no times.
pub fn quantile_ms(times: impl IntoIterator<Item = Duration>, share: f64) -> f64 {
    let mut times: Vec<_> = times.into_iter().collect();
    quantile(&mut times, share).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

/// Jain's index of fairness: 1 if all are equal, `1/n` if one has everything.
pub fn jain(parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    sum * sum / (parts.len() as f64 * parts.iter().map(|part| part * part).sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn shares_gaps_and_quantiles() {
        let mut measured = Measured::new(2, Duration::ZERO, 2000 * MS);
        for at in 0..200_u32 {
            // The second flow has nothing from 500 to 900 ms.
            let flow = usize::from(at % 2 == 1 && !(50..90).contains(&at));
            measured.done.push(Done { at: at * 10 * MS, flow, work: 10 * MS });
        }
        measured.bursts[0] = (1..=100).map(|ms| ms * MS).collect();
        assert!((measured.share(|flow| flow == 1) - 0.4).abs() < 1e-9);
        assert!((measured.least_share(|flow| flow == 1) - 0.3).abs() < 1e-9);
        assert!((measured.longest_gap_ms(|flow| flow == 1) - 420.0).abs() < 1e-9);
        assert!((measured.burst_ms([0], 0.5) - 51.0).abs() < 1.1);
        assert!((measured.iops() - 100.0).abs() < 1e-9);
        assert!((jain(&[1.0, 1.0]) - 1.0).abs() < 1e-9 && (jain(&[1.0, 0.0]) - 0.5).abs() < 1e-9);
    }
}
