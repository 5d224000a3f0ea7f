//! Decides: an unused path is due for a probe.
//!
//! Probes: the estimate of a path that is not used.
//!
//! A path is probed at once when it has no estimate, and again whenever it has been idle for `REST`. The mean of a
//! few probes counts. A probe far from the mean is repeated at once, and two such probes replace it. So a change is
//! noticed soon, and a single late answer is forgotten.

use monotonic::{Duration, Instant};

use super::latency::Mean;
use crate::{MAX_PROBE_BYTES, OpClass};

/// The idle time before a probe.
pub(super) const REST: Duration = Duration::from_millis(200);
/// The number of probes in the mean.
const SAMPLES: usize = 4;
/// A probe is an outlier if it differs from the mean by more than this part.
const OUTLIER: f64 = 0.4;
/// After this many failures in a row, requests of the guest measure the path.
const FAILURES: u32 = 4;
/// The least size of a probe in bytes; [`crate::MAX_PROBE_BYTES`] is the largest.
const SIZE_MIN: u32 = 4096;
/// Probes per request of the guest, over all paths, and the most that are saved.
const SHARE: f64 = 0.01;
const SAVED: f64 = 8.0;
/// The most probes that are sent before they are earned.
const OWED_MAX: f64 = 16.0;

/// The probes of one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    samples: Vec<Mean>,
    /// The number of answers so far, at most [`SAMPLES`].
    answers: usize,
    outlier: Option<Mean>,
    failures: u32,
    /// When the last probe was answered or asked for.
    last: Option<Instant>,
    /// By class, when a request of the guest was last bound to the path.
    bound: [Option<Instant>; 3],
    is_urgent: bool,
}

impl Probes {
    /// Mean latency and size of the probes; `None`: unknown.
    pub(super) fn mean(&self) -> Option<Mean> {
        let count = self.samples.len() as f64;
        let sum = |of: fn(&Mean) -> f64| self.samples.iter().map(of).sum::<f64>() / count;
        (!self.samples.is_empty()).then(|| Mean { latency: sum(|mean| mean.latency), size: sum(|mean| mean.size) })
    }

    /// Whether probes cannot measure the path.
    pub(super) fn are_useless(&self) -> bool {
        self.failures >= FAILURES
    }

    /// Records that a request of the guest was bound to this path. Reads of the guest measure the path in place of
    /// probes.
    pub(super) fn bound(&mut self, now: Instant, class: OpClass) {
        self.bound[class.index()] = Some(now);
    }

    /// Whether no request of this class has been bound to the path for a while.
    pub(super) fn is_idle(&self, now: Instant, class: OpClass) -> bool {
        self.bound[class.index()].is_none_or(|bound| now - bound >= REST)
    }

    /// When a request of this class was last bound to the path.
    pub(super) fn bound_at(&self, class: OpClass) -> Option<Instant> {
        self.bound[class.index()]
    }

    fn last_read(&self) -> Option<Instant> {
        self.bound[OpClass::Read.index()]
    }

    /// Asks for a probe as soon as possible, because something has changed.
    pub(super) fn request_now(&mut self) {
        self.is_urgent = true;
    }

    /// Whether the path has had too few answers to probes, and no read of the guest. Discarded answers count too, or
    /// paths with scattered probes would get more than their share.
    pub(super) fn is_unknown(&self) -> bool {
        self.answers < SAMPLES && self.last_read().is_none() && !self.are_useless()
    }

    /// Whether a probe is wanted at once. A path that the guest uses is not probed at once: next to writes, the
    /// latencies of reads scatter.
    fn is_wanted(&self, now: Instant) -> bool {
        let rests = OpClass::ALL.into_iter().all(|class| self.is_idle(now, class));
        rests && (self.is_urgent || self.outlier.is_some() || self.is_unknown())
    }

    /// When the last probe was asked for or answered. Paths that have waited longest come first.
    pub(super) fn last(&self) -> Option<Instant> {
        self.last
    }

    /// When the next probe is due. A path in use needs none.
    pub(super) fn due(&self, now: Instant) -> Instant {
        let rested = |at: Option<Instant>| at.map_or(now, |at| at + REST);
        let at_once = self.is_wanted(now) && self.failures == 0;
        rested(if at_once { self.last_read() } else { self.last.max(self.last_read()) })
    }

    /// Whether the probes of an idle path contradict the `latency` that requests had.
    pub(super) fn contradicts(&self, latency: Option<f64>) -> bool {
        let (Some(latency), Some(mean)) = (latency, self.mean()) else { return false };
        self.samples.len() > 1 && (mean.latency - latency).abs() > OUTLIER * latency.min(mean.latency)
    }

    pub(super) fn asked(&mut self, now: Instant) {
        self.last = Some(now);
        self.is_urgent = false;
    }

    /// Takes the result of a probe; `None`: it failed. Returns whether the path has changed.
    pub(super) fn answered(&mut self, now: Instant, probe: Option<Mean>) -> bool {
        self.last = Some(now);
        let Some(probe) = probe else {
            self.failures += 1;
            return false;
        };
        self.failures = 0;
        self.answers = SAMPLES.min(self.answers + 1);
        let Some(mean) = self.mean() else {
            self.samples.push(probe);
            return false;
        };
        let off = |probe: &Mean| (probe.latency - mean.latency).abs() > OUTLIER * mean.latency;
        let outlier = self.outlier.take();
        if !off(&probe) {
            if self.samples.len() == SAMPLES {
                self.samples.remove(0);
            }
            self.samples.push(probe);
            return false;
        }
        match outlier {
            Some(first) if (first.latency > mean.latency) == (probe.latency > mean.latency) => {
                self.samples = vec![first, probe];
                true
            }
            _ => {
                self.outlier = Some(probe);
                false
            }
        }
    }
}

/// The budget of probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    saved: f64,
    /// Probes that are owed. Half of the income pays for them. The other half stays for the other paths, however often
    /// one path wants a probe at once.
    owed: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { saved: 1.0, owed: 0.0 }
    }
}

impl Budget {
    /// Adds the income from one answered request of the guest. Returns whether this allows one more probe, saved or
    /// owed.
    #[inline]
    pub(super) fn earn(&mut self) -> bool {
        if self.saved >= SAVED && self.owed <= 0.0 {
            return false;
        }
        let before = *self;
        let paid = self.owed.min(SHARE / 2.0);
        self.owed -= paid;
        self.saved = (self.saved + SHARE - paid).min(SAVED);
        before.has_saved() != self.has_saved() || before.may_owe() != self.may_owe()
    }

    fn has_saved(self) -> bool {
        self.saved >= 1.0
    }

    fn may_owe(self) -> bool {
        self.owed <= OWED_MAX - 1.0
    }

    /// Whether a probe is allowed. The few first probes of a path always are. Probes that are wanted at once may
    /// be owed.
    pub(super) fn allows(self, now: Instant, probes: &Probes) -> bool {
        probes.is_unknown() || probes.is_wanted(now) && self.may_owe() || self.has_saved()
    }

    pub(super) fn spend(&mut self) {
        if self.has_saved() {
            self.saved -= 1.0;
        } else {
            self.owed = (self.owed + 1.0).min(OWED_MAX);
        }
    }
}

/// The size of a probe for requests of this mean size.
pub(super) fn size_of_probe(mean_bytes: f64) -> u32 {
    (mean_bytes as u32).clamp(SIZE_MIN, MAX_PROBE_BYTES) / 512 * 512
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(ms: f64) -> Mean {
        Mean { latency: ms / 1000.0, size: 4096.0 }
    }

    #[test]
    fn four_probes_at_once_and_then_one_after_each_rest() {
        let now = Instant::now();
        let mut probes = Probes::default();
        for _ in 0..SAMPLES {
            assert_eq!(probes.due(now), now);
            probes.asked(now);
            assert!(!probes.answered(now, Some(mean(1.0))));
        }
        assert_eq!(probes.due(now), now + REST);
        probes.bound(now + REST / 2, OpClass::Read);
        assert_eq!(probes.due(now + REST), now + REST / 2 + REST, "a path in use needs none");
        probes.request_now();
        assert_eq!(probes.due(now + REST), now + REST / 2 + REST);
    }

    #[test]
    fn one_outlier_is_repeated_and_two_replace_the_mean() {
        let now = Instant::now();
        let mut probes = Probes::default();
        (0..SAMPLES).for_each(|_| assert!(!probes.answered(now, Some(mean(1.0)))));
        assert!(!probes.answered(now, Some(mean(30.0))));
        assert_eq!(probes.due(now), now, "repeated at once");
        assert!(!probes.answered(now, Some(mean(1.1))), "it was an accident");
        assert!(
            !probes.answered(now, Some(mean(30.0))) && !probes.answered(now, Some(mean(0.1))),
            "two, but not the same way"
        );
        assert!(probes.answered(now, Some(mean(0.2))));
        assert!((probes.mean().expect("known").latency - 0.00015).abs() < 1e-9);
    }

    #[test]
    fn failed_probes_are_not_repeated_at_once() {
        let now = Instant::now();
        let mut probes = Probes::default();
        for _ in 0..FAILURES {
            assert!(!probes.are_useless());
            probes.answered(now, None);
            assert_eq!(probes.due(now), now + REST);
        }
        assert!(probes.are_useless());
    }

    #[test]
    fn one_probe_is_allowed_for_a_hundred_requests() {
        let now = Instant::now();
        let mut known = Probes::default();
        (0..SAMPLES).for_each(|_| assert!(!known.answered(now, Some(mean(1.0)))));
        let mut wanted = known.clone();
        wanted.request_now();
        let mut budget = Budget::default();
        budget.spend();
        (0..99).for_each(|_| assert!(!budget.earn()));
        assert!(!budget.allows(now, &known) && budget.allows(now, &wanted));
        let mut written_to = wanted.clone();
        written_to.bound(now, OpClass::Write);
        assert!(!budget.allows(now, &written_to));
        assert!(budget.earn() | budget.earn(), "now there is");
        assert!(budget.allows(now, &known));
        (0..100).for_each(|_| budget.spend());
        assert!(!budget.allows(now, &wanted), "no more are owed");
        let unknown = Probes::default();
        assert!(budget.allows(now, &unknown), "the first ones are always allowed");
        (0..197).for_each(|_| assert!(!budget.earn()));
        assert!(!budget.allows(now, &wanted), "one for a hundred requests even then");
        assert_eq!((0..5).filter(|_| budget.earn()).count(), 2, "saved, and owed");
        assert!(budget.allows(now, &wanted), "not more than that is owed");
        assert!(budget.allows(now, &known), "and no more than half of it goes there");
    }

    #[test]
    fn sizes_are_bounded_and_in_sectors() {
        assert_eq!([0.0, 5000.0, 1e9].map(size_of_probe), [4096, 4608, MAX_PROBE_BYTES]);
    }
}
