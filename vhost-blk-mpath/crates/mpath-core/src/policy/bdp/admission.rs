//! Decides: the default policy uses a slower path too.
//!
//! Admission of paths: paths about as fast as the fastest, and slower paths that add enough.
//!
//! A slower path helps only with the outstanding bytes that exceed the windows of the faster paths. Each request on it
//! takes the longer latency. So a slower path is used only if the throughput grows by `min-gain`.

use monotonic::{Duration, Instant};

use super::Params;
use super::sizes::Sizes;
use crate::PathId;

/// A path at most this many times slower than the best is always used.
const NEAR: f64 = 1.25;
/// The time between two decisions.
const DECISION_PERIOD: Duration = Duration::from_millis(5);
/// The time over which outstanding bytes are averaged, s.
const AVERAGE: f64 = 0.050;
/// A used path stays used until its gain falls below this fraction of `min-gain`.
const KEPT_GAIN: f64 = 0.6;
/// The number of requests that fill the windows of the near paths varies with their sizes. The reserve is this many
/// standard deviations of that number.
const RESERVE: f64 = 1.5;

/// A path that could be admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) path: PathId,
    /// The latency, in s, of a request of the overall mean size that is alone on the path; `None`: unknown.
    pub(super) latency: Option<f64>,
    /// The highest rate in bytes per second; infinite if unknown.
    pub(super) rate: f64,
    /// Bytes that it may have in flight; infinite if it takes all it gets.
    pub(super) window: f64,
    /// The part of the window behind the request that is answered next, which keeps the path busy.
    pub(super) behind: f64,
    /// Only requests of the guest can measure the path.
    pub(super) must_be_tried: bool,
}

/// The admitted paths of one class of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    admitted: u64,
    /// The admitted paths that are about as fast as the fastest.
    near: u64,
    /// The number of requests that wait for the near paths rather than use others.
    reserve: f64,
    outstanding: f64,
    at: Option<Instant>,
    /// The paths of the last decision.
    decided_for: u64,
    /// When to decide again; `None`: at once.
    next_at: Option<Instant>,
}

impl Admission {
    /// Has the next request decide again, because the estimate of a path has changed.
    pub(super) fn invalidate(&mut self) {
        self.next_at = None;
    }

    /// Whether to call [`Admission::decide`] for these paths.
    pub(super) fn is_due(&self, now: Instant, paths: u64) -> bool {
        self.decided_for != paths || self.next_at.is_none_or(|at| at <= now)
    }

    /// The paths that may get one of `waiting` requests, as a set.
    #[inline]
    pub(super) fn admitted(&self, waiting: impl FnOnce() -> f64) -> u64 {
        if self.admitted != self.near && waiting() > self.reserve { self.admitted } else { self.near }
    }

    /// Decides which of `offers` are used while `outstanding` bytes are in flight or waiting.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        params: &Params,
        offers: &mut [Offer],
        outstanding: f64,
        sizes: &Sizes,
    ) {
        let gap = self.at.map_or(f64::INFINITY, |at| (now - at).as_secs_f64());
        self.outstanding += (outstanding - self.outstanding) * (1.0 - (-gap / AVERAGE).exp());
        self.at = Some(now);
        self.next_at = Some(now + DECISION_PERIOD);
        self.decided_for = offers.iter().fold(0, |set, offer| set | offer.path.bit());
        let before = std::mem::take(&mut self.admitted);
        self.near = 0;
        self.reserve = 0.0;
        let known = offers.iter().any(|offer| offer.latency.is_some());
        offers.sort_by(|a, b| a.latency.unwrap_or(f64::INFINITY).total_cmp(&b.latency.unwrap_or(f64::INFINITY)));
        let best = offers.first().and_then(|offer| offer.latency).unwrap_or(f64::INFINITY);
        let (mut rates, mut windows, mut behind) = (0.0, 0.0, 0.0);
        for offer in offers {
            let used = before & offer.path.bit() != 0;
            let admit = match offer.latency {
                None => !known || offer.must_be_tried,
                Some(latency) if latency <= NEAR * best => true,
                Some(latency) => {
                    let left = (self.outstanding - windows - self.reserve * sizes.mean()).max(0.0);
                    let gain = offer.rate.min(left / latency) / rates;
                    let least = params.min_gain * if used { KEPT_GAIN } else { 1.0 };
                    let soon = !params.latency_first || latency <= self.outstanding / rates;
                    gain >= least && soon
                }
            };
            if admit {
                self.admitted |= offer.path.bit();
                rates += offer.rate;
                windows += offer.window;
                if offer.latency.is_none_or(|latency| latency <= NEAR * best) {
                    self.near |= offer.path.bit();
                    behind += offer.behind;
                    self.reserve = RESERVE * sizes.variation() * (behind / sizes.mean().max(1.0)).sqrt();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: Params = Params { latency_first: false, min_gain: 0.05, gain: 1.05 };

    /// Paths with these latencies (s) and rates (bytes/s), and windows of their product.
    fn offers(paths: &[(f64, f64)]) -> Vec<Offer> {
        let offer = |(path, (latency, rate)): (u16, &(f64, f64))| Offer {
            path: PathId(path),
            latency: (*latency > 0.0).then_some(*latency),
            rate: *rate,
            window: latency * rate,
            behind: latency * rate,
            must_be_tried: false,
        };
        (0..).zip(paths).map(offer).collect()
    }

    fn admitted(params: &Params, paths: &[(f64, f64)], outstanding: f64) -> u64 {
        let mut admission = Admission::default();
        let mut sizes = Sizes::default();
        sizes.add(1000.0);
        admission.decide(Instant::now(), params, &mut offers(paths), outstanding, &sizes);
        admission.admitted(|| 1.0)
    }

    #[test]
    fn near_paths_are_admitted_and_far_paths_if_they_gain() {
        // The windows of the first two take 2000 and 2400 bytes.
        let paths = [(0.002, 1e6), (0.0024, 1e6), (0.050, 1e6)];
        assert_eq!(admitted(&PARAMS, &paths, 4_000.0), 0b011);
        // 2600 bytes more are 52 kB/s on the third: 2.6 %.
        assert_eq!(admitted(&PARAMS, &paths, 7_000.0), 0b011);
        assert_eq!(admitted(&PARAMS, &paths, 10_000.0), 0b111);
        // The path adds at most what it can deliver.
        assert_eq!(admitted(&PARAMS, &[(0.002, 1e6), (0.050, 4e4)], 1e6), 0b01);
        assert_eq!(admitted(&Params { min_gain: 0.0, ..PARAMS }, &paths, 4_000.0), 0b111);
    }

    #[test]
    fn with_objective_latency_a_path_must_be_sooner_than_waiting() {
        let params = Params { latency_first: true, ..PARAMS };
        let paths = [(0.002, 1e6), (0.050, 1e6)];
        // 40,000 bytes take 40 ms.
        assert_eq!(admitted(&params, &paths, 40_000.0), 0b01);
        assert_eq!(admitted(&params, &paths, 60_000.0), 0b11);
    }

    #[test]
    fn a_path_without_a_known_limit_leaves_nothing_to_others() {
        let mut paths = offers(&[(0.002, 1e6), (0.050, 1e6)]);
        (paths[0].rate, paths[0].window) = (f64::INFINITY, f64::INFINITY);
        let mut admission = Admission::default();
        admission.decide(Instant::now(), &PARAMS, &mut paths, 1e6, &Sizes::default());
        assert_eq!(admission.admitted(|| 1.0), 0b01);
    }

    #[test]
    fn unknown_paths_are_used_if_no_path_is_known_or_probes_fail() {
        assert_eq!(admitted(&PARAMS, &[(0.0, 1e6), (0.0, 1e6)], 1e6), 0b11);
        assert_eq!(admitted(&PARAMS, &[(0.0, 1e6), (0.001, 1e6)], 1e6), 0b10);
        let mut paths = offers(&[(0.0, 1e6), (0.001, 1e6)]);
        paths[0].must_be_tried = true;
        let mut admission = Admission::default();
        admission.decide(Instant::now(), &PARAMS, &mut paths, 1e6, &Sizes::default());
        assert_eq!(admission.admitted(|| 1.0) & 0b01, 0b01);
    }

    #[test]
    fn varying_sizes_keep_a_reserve_for_near_paths() {
        let mut sizes = Sizes::default();
        (0..1000).for_each(|n| sizes.add(if n % 2 == 0 { 500.0 } else { 1500.0 }));
        let mut admission = Admission::default();
        // Four requests behind: 1.5 · 0.5 · √4.
        let mut paths = offers(&[(0.004, 1e6), (0.050, 1e6)]);
        admission.decide(Instant::now(), &PARAMS, &mut paths, 1e6, &sizes);
        assert_eq!([1.0, 2.0].map(|waiting| admission.admitted(|| waiting)), [0b01, 0b11]);
    }
}
