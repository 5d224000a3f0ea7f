//! Which paths are worth using: those about as fast as the fastest, and slower ones that add enough.
//!
//! A slower path does nothing for what the faster ones can carry. It adds what is outstanding beyond their windows, and costs
//! every request it gets its latency: that is bought only if the throughput grows by `min-gain`.

use std::time::{Duration, Instant};

use super::Params;
use super::sizes::Sizes;
use crate::PathId;

/// A path at most this much slower than the best is always used.
const NEAR: f64 = 1.25;
/// How often the question is asked again.
const EVERY: Duration = Duration::from_millis(5);
/// What is outstanding is averaged over this, s.
const AVERAGE: f64 = 0.050;
/// A path that is used stays so until it gains less than this part of `min-gain`.
const STAYS: f64 = 0.6;
/// In standard deviations of the number of requests that fill the windows of the near paths.
const RESERVE: f64 = 1.5;

/// A path as this sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) path: PathId,
    /// Latency of a request of mean size that meets no other, s; `None`: nothing is known.
    pub(super) latency: Option<f64>,
    /// Bytes per second it delivers at most; infinite if that is not known.
    pub(super) rate: f64,
    /// Bytes it may have in flight; infinite if it takes all it is given.
    pub(super) window: f64,
    /// The part of it that is to be behind the request answered next, for the path to stay busy.
    pub(super) behind: f64,
    /// Nothing will be known of it before it is used.
    pub(super) must_be_tried: bool,
}

/// The paths in use by one class of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    admitted: u64,
    /// Those of them that are about as fast as the fastest.
    near: u64,
    /// Requests that are kept waiting for the near paths rather than given to others.
    reserve: f64,
    outstanding: f64,
    at: Option<Instant>,
    /// Which paths the question was about.
    asked: u64,
    stale: bool,
}

impl Admission {
    /// Something else is known of a path than before.
    pub(super) fn look_again(&mut self) {
        self.stale = true;
    }

    /// Whether it is time to [`Admission::decide`] about these paths.
    pub(super) fn is_due(&self, now: Instant, paths: u64) -> bool {
        self.stale || self.asked != paths || self.at.is_none_or(|at| now - at >= EVERY)
    }

    /// Whether the path may be given one of so many requests that wait.
    pub(super) fn admits(&self, path: PathId, waiting: f64) -> bool {
        self.admitted & path.bit() != 0 && (self.near & path.bit() != 0 || waiting > self.reserve)
    }

    /// Decides on the paths to be used, of `offers`, while so many bytes are outstanding.
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
        self.stale = false;
        self.asked = offers.iter().fold(0, |set, offer| set | offer.path.bit());
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
                    let least = params.min_gain * if used { STAYS } else { 1.0 };
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
