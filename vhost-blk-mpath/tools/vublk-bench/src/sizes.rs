//! Request sizes: one, or several with a share each.

use mpath_sim::rng::Rng;
use serde::Serialize;

/// Sizes of requests: bytes and percent. There is at least one size, every size is a multiple of the smallest one, and
/// the shares add up to 100 %.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sizes(Vec<(u32, u8)>);

impl Sizes {
    /// All requests alike; `bytes` is not 0.
    pub fn one(bytes: u32) -> Self {
        Self(vec![(bytes, 100)])
    }

    /// Sizes in KiB with their shares in percent.
    pub fn mixed(kib: &[(u32, u8)]) -> Self {
        let sizes = Self(kib.iter().map(|(kib, percent)| (kib * 1024, *percent)).collect());
        let sum: u32 = kib.iter().map(|(_, percent)| u32::from(*percent)).sum();
        let smallest = sizes.smallest();
        assert!(sum == 100 && sizes.0.iter().all(|(bytes, _)| bytes.is_multiple_of(smallest)), "{kib:?}");
        sizes
    }

    pub fn largest(&self) -> u32 {
        self.0.iter().map(|(bytes, _)| *bytes).max().unwrap_or_default()
    }

    /// The smallest size: what offsets are aligned to.
    pub fn smallest(&self) -> u32 {
        self.0.iter().map(|(bytes, _)| *bytes).min().unwrap_or_default()
    }

    pub fn mean_bytes(&self) -> f64 {
        self.0.iter().map(|(bytes, percent)| f64::from(*bytes) * f64::from(*percent) / 100.0).sum()
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        if let [(only, _)] = *self.0 {
            return only;
        }
        let mut left = rng.below(100);
        for (bytes, percent) in &self.0 {
            match left.checked_sub(u64::from(*percent)) {
                Some(rest) => left = rest,
                None => return *bytes,
            }
        }
        unreachable!("the shares are 100 % together")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: [(u32, u8); 6] = [(4, 10), (32, 10), (64, 10), (128, 30), (256, 10), (512, 30)];

    #[test]
    fn a_mixture_has_a_mean() {
        let sizes = Sizes::mixed(&MIXED);
        assert_eq!((sizes.smallest(), sizes.largest()), (4096, 512 << 10));
        assert!((sizes.mean_bytes() - 227.6 * 1024.0).abs() < 1e-6, "{}", sizes.mean_bytes());
        assert!((Sizes::one(4096).mean_bytes() - 4096.0).abs() < 1e-9);
    }

    #[test]
    fn drawn_in_their_shares() {
        let sizes = Sizes::mixed(&MIXED);
        let mut rng = Rng::new(3, 0);
        let drawn: Vec<u32> = (0..10_000).map(|_| sizes.draw(&mut rng)).collect();
        for (kib, percent) in MIXED {
            let count = drawn.iter().filter(|&&bytes| bytes == kib * 1024).count();
            assert!(count.abs_diff(usize::from(percent) * 100) < 200, "{kib}k: {count} of 10000");
        }
    }
}
