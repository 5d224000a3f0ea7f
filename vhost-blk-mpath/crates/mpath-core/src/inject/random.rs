//! Random numbers from a seed: the same seed gives the same sequence.

use std::f64::consts::TAU;

use monotonic::Duration;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::Distribution;

/// A sequence of random values.
#[derive(Clone, Debug)]
pub(super) struct Random(SplitMix64);

/// Combines two seeds.
pub(super) fn mix(seed: u64, part: u64) -> u64 {
    let mixed = SplitMix64::seed_from_u64(seed).next_u64();
    SplitMix64::seed_from_u64(mixed ^ part).next_u64()
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Above 0 and at most 1.
    fn unit(&mut self) -> f64 {
        (f64::from((self.0.next_u64() >> 32) as u32) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }

    pub(super) fn one_in_a_million(&mut self, times: u32) -> bool {
        self.0.next_u64() % 1_000_000 < u64::from(times)
    }

    /// A delay with jitter. `jitter` must not be zero.
    pub(super) fn delay(&mut self, latency: Duration, jitter: Duration, distribution: Distribution) -> Duration {
        // The offset is in units of the jitter.
        let offset = match distribution {
            Distribution::Uniform => 2.0 * self.unit() - 1.0,
            // Box and Muller.
            Distribution::Normal => (-2.0 * self.unit().ln()).sqrt() * (TAU * self.unit()).cos(),
            Distribution::Exponential => -self.unit().ln(),
            // Lomax of shape 3 has the mean scale / 2.
            Distribution::Pareto => 2.0 * (self.unit().powf(-1.0 / 3.0) - 1.0),
        };
        let seconds = latency.as_secs_f64() + offset * jitter.as_secs_f64();
        Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Duration = Duration::from_millis(100);
    const JITTER: Duration = Duration::from_millis(20);
    const ALL: [Distribution; 4] =
        [Distribution::Uniform, Distribution::Normal, Distribution::Exponential, Distribution::Pareto];

    fn sample(seed: u64, distribution: Distribution) -> Vec<f64> {
        let mut random = Random::new(seed);
        (0..100_000).map(|_| random.delay(LATENCY, JITTER, distribution).as_secs_f64() * 1e3).collect()
    }

    #[test]
    fn distributions_have_their_mean_and_spread() {
        for (distribution, mean, deviation) in [
            (Distribution::Uniform, 100.0, 20.0 / 3_f64.sqrt()),
            (Distribution::Normal, 100.0, 20.0),
            (Distribution::Exponential, 120.0, 20.0),
            // sqrt(shape / (shape - 2)) times the mean; the estimate of it converges slowly.
            (Distribution::Pareto, 120.0, 20.0 * 3_f64.sqrt()),
        ] {
            for seed in 0..5 {
                let delays = sample(seed, distribution);
                let count = f64::from(delays.len() as u32);
                let average = delays.iter().sum::<f64>() / count;
                let variance = delays.iter().map(|d| (d - average).powi(2)).sum::<f64>() / count;
                assert!((average - mean).abs() < 0.5, "{distribution} seed {seed}: mean {average}");
                let tolerance = if distribution == Distribution::Pareto { 0.3 } else { 0.02 };
                let off = variance.sqrt() / deviation - 1.0;
                assert!(off.abs() < tolerance, "{distribution} seed {seed}: deviation {}", variance.sqrt());
            }
        }
    }

    #[test]
    fn distributions_keep_to_their_bounds() {
        let uniform = sample(1, Distribution::Uniform);
        assert!(uniform.iter().all(|ms| (80.0..=120.0).contains(ms)));
        for distribution in [Distribution::Exponential, Distribution::Pareto] {
            assert!(sample(1, distribution).iter().all(|ms| *ms >= 100.0));
        }
        let mut random = Random::new(1);
        for distribution in ALL {
            let cut = (0..1000).map(|_| random.delay(Duration::ZERO, JITTER, distribution));
            assert!(cut.max() > Some(JITTER / 2), "{distribution}");
        }
    }

    #[test]
    fn only_the_seed_decides() {
        for distribution in ALL {
            assert_eq!(sample(7, distribution), sample(7, distribution));
            assert_ne!(sample(7, distribution), sample(8, distribution));
        }
        let mixed: std::collections::BTreeSet<u64> = (0..1000).map(|thread| mix(7, thread)).collect();
        assert_eq!(mixed.len(), 1000);
    }
}
