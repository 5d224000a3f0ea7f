//! The mean size of requests, and its variation.

/// The weight of a new size: about the last hundred requests count.
const WEIGHT: f64 = 0.01;

/// Mean and variance of recent sizes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    mean: f64,
    variance: f64,
}

impl Sizes {
    #[inline]
    pub(super) fn add(&mut self, bytes: f64) {
        if self.mean == 0.0 {
            self.mean = bytes;
            return;
        }
        let off = bytes - self.mean;
        if off == 0.0 && self.variance == 0.0 {
            return;
        }
        self.mean += WEIGHT * off;
        self.variance = (1.0 - WEIGHT) * (self.variance + WEIGHT * off * off);
    }

    /// The mean size; 0 without requests.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// The mean size of the request that a path is serving at any moment: large ones take longer.
    pub(super) fn in_service(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.mean + self.variance / self.mean }
    }

    /// Standard deviation over mean.
    pub(super) fn variation(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.variance.sqrt() / self.mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_do_not_vary_and_unequal_ones_do() {
        let mut sizes = Sizes::default();
        assert_eq!((sizes.mean(), sizes.variation()), (0.0, 0.0));
        (0..1000).for_each(|_| sizes.add(4096.0));
        assert_eq!((sizes.mean(), sizes.variation()), (4096.0, 0.0));
        (0..1000).for_each(|n| sizes.add(if n % 2 == 0 { 2048.0 } else { 6144.0 }));
        assert!((sizes.mean() / 4096.0 - 1.0).abs() < 0.01, "{sizes:?}");
        assert!((sizes.variation() - 0.5).abs() < 0.01, "{sizes:?}");
    }
}
