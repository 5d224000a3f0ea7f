//! A small seeded generator: the same seed gives the same requests on every machine and toolchain.

/// `SplitMix64` (Steele, Lea, Flood 2014): one addition and one mix per number.
#[derive(Debug, Clone)]
pub struct Rng(u64);

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of `SplitMix64`: a bijection that spreads every input bit over all output bits.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Rng {
    /// A stream of its own for every `(seed, stream)`; queues use their index as the stream.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(GOLDEN_GAMMA))))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// A number in `0..limit` (0 if `limit` is 0), by multiply-shift.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Fills `bytes` with random data.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
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
