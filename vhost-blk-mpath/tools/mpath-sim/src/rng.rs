//! Random numbers from a seed, the same on every machine.

use monotonic::Duration;

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of `SplitMix64`: a bijection that spreads every input bit over all output bits.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// `SplitMix64` (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// One stream for each part of the simulation, so that a change of one part leaves the others as they are.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(GAMMA))))
    }

    /// The only stream of this seed.
    #[must_use]
    pub fn single(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number in `0..limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A number in `(0, 1]`.
    #[allow(clippy::cast_precision_loss)] // 53 bits
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills `bytes` with random data.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// A number in `low..=high`.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index into something of this length, which is not zero.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Evenly distributed up to `most`.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.below(most.as_nanos()))
    }

    /// Evenly distributed between two durations.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        low + self.up_to(high.saturating_sub(low))
    }

    /// Mostly below `typical`, seldom up to 32 times as long, as delays of software and networks are.
    pub(crate) fn tail(&mut self, typical: Duration) -> Duration {
        let doublings = (self.next_u64() | 1 << 40).trailing_zeros().min(5);
        self.up_to(typical * (1 << doublings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_and_streams_differ() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn below_stays_below_and_reaches_the_ends() {
        let mut rng = Rng::new(7, 0);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.below(10)).collect();
        assert!(drawn.iter().all(|&n| n < 10));
        assert!((0..10).all(|n| drawn.contains(&n)));
        assert_eq!(rng.below(0), 0);
    }
}
