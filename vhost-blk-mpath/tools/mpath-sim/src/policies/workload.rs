//! The requests of the guest.

use mpath_core::Op;

use crate::rng::Rng;

/// The mixed block sizes of the kernel's multipath tables, as fio writes it:
/// `bssplit=4k/10:32k/10:64k/10:128k/30:256k/10:512k/30`.
const BSSPLIT: &[(u32, u32)] = &[(4, 10), (32, 10), (64, 10), (128, 30), (256, 10), (512, 30)];

/// A closed loop: each request that ends is followed by the next one.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub depth: u32,
    /// Sizes in KiB, and how many percent of the requests have them.
    pub sizes: &'static [(u32, u32)],
    /// Percent of the requests that are reads.
    pub reads_percent: u32,
}

impl Workload {
    /// Reads of 4 KiB.
    pub fn small(depth: u32) -> Self {
        Self { depth, sizes: &[(4, 100)], reads_percent: 100 }
    }

    /// Reads of 64 KiB.
    pub fn medium(depth: u32) -> Self {
        Self { depth, sizes: &[(64, 100)], reads_percent: 100 }
    }

    /// Reads of mixed sizes, 228 KiB in the mean.
    pub fn mixed(depth: u32) -> Self {
        Self { depth, sizes: BSSPLIT, reads_percent: 100 }
    }

    /// The same workload with `reads_percent` percent of reads. All other requests are writes.
    pub fn with_reads(self, reads_percent: u32) -> Self {
        Self { reads_percent, ..self }
    }

    pub fn mean_bytes(&self) -> f64 {
        self.sizes.iter().map(|(kib, percent)| f64::from(*kib) * 10.24 * f64::from(*percent)).sum()
    }

    /// The share of the requests that go in the busier direction of a full-duplex link.
    pub fn one_way(&self) -> f64 {
        let reads = f64::from(self.reads_percent) / 100.0;
        reads.max(1.0 - reads)
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> (Op, u32) {
        let op = if rng.below(100) < self.reads_percent.into() { Op::Read } else { Op::Write };
        let mut left = rng.below(100) as u32;
        for (kib, percent) in self.sizes {
            if left < *percent {
                return (op, kib << 10);
            }
            left -= percent;
        }
        unreachable!("the percents of the sizes sum up to 100")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_as_often_as_they_should() {
        let workload = Workload::mixed(1).with_reads(70);
        let mut rng = Rng::single(3);
        let (mut bytes, mut reads) = (0.0, 0);
        for _ in 0..20_000 {
            let (op, size) = workload.draw(&mut rng);
            bytes += f64::from(size) / 20_000.0;
            reads += u32::from(op == Op::Read);
        }
        assert!((bytes / workload.mean_bytes() - 1.0).abs() < 0.02, "{bytes}");
        assert!((13_600..14_400).contains(&reads), "{reads}");
        assert!((workload.mean_bytes() / 1024.0 - 227.6).abs() < 0.1);
    }
}
