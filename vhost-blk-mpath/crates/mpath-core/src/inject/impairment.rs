//! Decides: an injection delays, stalls or fails a request.
//!
//! The injections of a path in force, and the requests and answers that they keep.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};

use super::random::{Random, mix};
use super::{Direction, Injection};
use crate::{OpClass, Outcome, PathId, Tag};

/// The effect of an injection on a request or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Lets it pass at once.
    Pass,
    /// Delays it, perhaps by zero. With an error, it then fails.
    Delay { delay: Duration, error: Option<Outcome> },
    /// Keeps it until the injection ends.
    Stall,
}

/// An injection in force.
#[derive(Debug)]
pub(crate) struct Impairment {
    injection: Injection,
    random: Random,
    /// When everything that it has let through has passed at its rate.
    free_at: Option<Instant>,
}

impl Impairment {
    pub(crate) fn new(injection: Injection, path: PathId, class: Option<OpClass>) -> Self {
        let class = class.map_or(0, |class| 1 + class.index() as u64);
        let random = Random::new(mix(injection.seed, u64::from(path.0) << 2 | class));
        Self { injection, random, free_at: None }
    }

    /// Decides on the next request of this size. Each call draws new random numbers.
    fn decide(&mut self, now: Instant, bytes: u32) -> Verdict {
        let Injection { latency, jitter, distribution, rate, error, stall, .. } = self.injection;
        if stall {
            return Verdict::Stall;
        }
        let mut delay = latency;
        if !jitter.is_zero() {
            delay = self.random.delay(latency, jitter, distribution);
        }
        if let Some(rate) = rate {
            let takes = Duration::from_nanos(u64::from(bytes) * 1_000_000_000 / rate.get());
            let begins = self.free_at.map_or(now, |free| free.max(now));
            let ends = (begins + takes).min(now + Injection::MAX_LATENCY);
            self.free_at = Some(ends);
            delay = delay.saturating_add(ends - now);
        }
        let delay = delay.min(Injection::MAX_LATENCY);
        let fails = error.filter(|error| self.random.one_in_a_million(error.per_million));
        let error = fails.map(|error| error.outcome);
        if delay.is_zero() && error.is_none() { Verdict::Pass } else { Verdict::Delay { delay, error } }
    }
}

/// The injections of a path that end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    All,
    /// That of a class; `None`: that of the classes without one of their own.
    Only(Option<OpClass>),
}

/// The injections of a path, and what they keep until they end. Timers have what is only delayed.
#[derive(Debug, Default)]
pub(crate) struct PathInjections {
    /// The injection of the classes without one of their own.
    general: Option<Impairment>,
    of_class: [Option<Impairment>; 3],
    /// Requests that were not issued, in order.
    pub(crate) stalled: VecDeque<Tag>,
    /// Requests that were answered, in the order of the answers, and their outcomes.
    pub(crate) answers: VecDeque<(Tag, Outcome)>,
    /// By class: requests recalled while an injection kept them. The path seems to owe their answers still.
    pub(crate) abandoned: [u32; 3],
    /// By class: when the oldest abandoned request that was stalled was issued.
    pub(crate) stalled_abandoned: [Option<Instant>; 3],
}

impl PathInjections {
    pub(crate) fn set(&mut self, class: Option<OpClass>, impairment: Impairment) {
        match class {
            None => self.general = Some(impairment),
            Some(class) => self.of_class[class.index()] = Some(impairment),
        }
    }

    /// By class: whether requests of the class are under an injection that ends.
    pub(crate) fn covered(&self, ending: Ending) -> [bool; 3] {
        match ending {
            Ending::All => [true; 3],
            Ending::Only(None) => std::array::from_fn(|class| self.of_class[class].is_none()),
            Ending::Only(Some(of)) => std::array::from_fn(|class| class == of.index()),
        }
    }

    /// Ends injections. Returns whether any is left.
    pub(crate) fn end(&mut self, ending: Ending) -> bool {
        match ending {
            Ending::All => *self = Self::default(),
            Ending::Only(None) => self.general = None,
            Ending::Only(Some(class)) => self.of_class[class.index()] = None,
        }
        self.in_force().next().is_some()
    }

    /// Whether the request, or its answer, is kept until the injection ends.
    pub(crate) fn is_stalled(&self, tag: Tag) -> bool {
        self.stalled.contains(&tag) || self.answers.iter().any(|(other, _)| *other == tag)
    }

    pub(crate) fn in_force(&self) -> impl Iterator<Item = (Option<OpClass>, Injection)> + '_ {
        let of_class = OpClass::ALL.into_iter().map(|class| (Some(class), &self.of_class[class.index()]));
        let all = std::iter::once((None, &self.general)).chain(of_class);
        all.filter_map(|(class, impairment)| Some((class, impairment.as_ref()?.injection)))
    }

    /// Decides on the next request or answer of this class.
    pub(crate) fn decide(&mut self, now: Instant, direction: Direction, class: OpClass, bytes: u32) -> Verdict {
        let impairment = self.of_class[class.index()].as_mut().or(self.general.as_mut());
        let impairment = impairment.filter(|impairment| impairment.injection.direction == direction);
        impairment.map_or(Verdict::Pass, |impairment| impairment.decide(now, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::super::{Distribution, InjectedError};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn impairment(injection: Injection) -> Impairment {
        Impairment::new(injection, PathId(0), None)
    }

    fn delay(verdict: Verdict) -> Duration {
        match verdict {
            Verdict::Pass => Duration::ZERO,
            Verdict::Delay { delay, .. } => delay,
            Verdict::Stall => panic!("the verdict is a stall"),
        }
    }

    #[test]
    fn the_rate_holds_for_all_sizes_and_order_is_kept() {
        let rate = NonZeroU64::new(100 << 20);
        let mut link = impairment(Injection { rate, ..Injection::default() });
        let start = Instant::now();
        let (mut bytes, mut last) = (0_u64, start);
        for n in 0..3000_u32 {
            let size = [512, 4096, 1 << 16, 1 << 20, 0][n as usize % 5];
            let passed = start + delay(link.decide(start, size));
            assert!(passed >= last);
            // After the longest delay is reached, nothing is exact.
            if passed - start < Injection::MAX_LATENCY {
                bytes += u64::from(size);
                last = passed;
            }
        }
        let measured = f64::from(bytes as u32) / (last - start).as_secs_f64() / f64::from(100 << 20);
        assert!((0.999..1.001).contains(&measured), "{measured}");
        // Unused rate is not saved.
        let later = last + Duration::from_secs(100);
        assert_eq!(delay(link.decide(later, 100 << 20)), Duration::from_secs(1));
    }

    #[test]
    fn no_delay_exceeds_the_longest_latency() {
        let injection = Injection {
            latency: Duration::MAX,
            jitter: Injection::MAX_LATENCY,
            distribution: Distribution::Pareto,
            rate: NonZeroU64::new(1),
            ..Injection::default()
        };
        let mut link = impairment(injection);
        let now = Instant::now();
        for _ in 0..1000 {
            assert_eq!(delay(link.decide(now, u32::MAX)), Injection::MAX_LATENCY);
        }
    }

    #[test]
    fn errors_have_their_share_and_the_seed_decides_which_fail() {
        let of = |per_million, seed| {
            let error = Some(InjectedError { per_million, outcome: Outcome::PathError });
            let mut link = impairment(Injection { error, seed, latency: MS, ..Injection::default() });
            let now = Instant::now();
            let failed = move |_| matches!(link.decide(now, 512), Verdict::Delay { error: Some(_), .. });
            (0..100_000).map(failed).collect::<Vec<bool>>()
        };
        let share = |decisions: &[bool]| decisions.iter().filter(|failed| **failed).count();
        assert_eq!(share(&of(0, 1)), 0);
        assert_eq!(share(&of(1_000_000, 1)), 100_000);
        for seed in 0..5 {
            let one_percent = of(10_000, seed);
            assert!((900..1100).contains(&share(&one_percent)), "seed {seed}: {}", share(&one_percent));
            assert_eq!(one_percent, of(10_000, seed));
            assert_ne!(one_percent, of(10_000, seed + 1));
        }
    }

    #[test]
    fn a_class_without_its_own_injection_has_the_general_one() {
        let mut injections = PathInjections::default();
        injections.set(None, impairment(Injection::latency(MS)));
        let response = Injection { direction: Direction::Response, ..Injection::latency(2 * MS) };
        injections.set(Some(OpClass::Read), impairment(response));
        let now = Instant::now();
        let mut of = |direction, class| delay(injections.decide(now, direction, class, 0));
        assert_eq!(of(Direction::Request, OpClass::Write), MS);
        assert_eq!(of(Direction::Response, OpClass::Write), Duration::ZERO);
        assert_eq!(of(Direction::Request, OpClass::Read), Duration::ZERO);
        assert_eq!(of(Direction::Response, OpClass::Read), 2 * MS);
        assert!(injections.end(Ending::Only(Some(OpClass::Read))));
        assert_eq!(injections.in_force().collect::<Vec<_>>(), [(None, Injection::latency(MS))]);
        assert!(!injections.end(Ending::Only(None)));
    }
}
