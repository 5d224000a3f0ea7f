//! Decides: a histogram has these buckets.
//!
//! How long things took since the start.

use std::fmt;

use hdrhistogram::Histogram;
use monotonic::Duration;

/// Times below this many ns count as equal.
const LOWEST_NS: u64 = 1_000;
/// Times above this many ns count as this: twice the longest injection.
const HIGHEST_NS: u64 = 120_000_000_000;

/// Number of [`TIME_BUCKETS_NS`].
const BUCKETS: usize = 17;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;

/// The longest time of each bucket of [`Times::counts`], in ns. One more bucket has all longer times.
#[rustfmt::skip]
pub const TIME_BUCKETS_NS: [u64; BUCKETS] = [
    50 * US, 100 * US, 250 * US, 500 * US,
    MS, 2500 * US, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS,
    1000 * MS, 2500 * MS, 5000 * MS, 10_000 * MS,
];

/// By octave, 2ⁿ to 2ⁿ⁺¹ ns: the bucket of its first time, and the longest time of that bucket. An octave begins in one
/// bucket and ends at most in the next one.
const OCTAVES: [(usize, u64); 64] = {
    let mut octaves = [(BUCKETS, u64::MAX); 64];
    let (mut octave, mut bucket) = (0, 0);
    while bucket < BUCKETS {
        if TIME_BUCKETS_NS[bucket] < 1 << octave {
            bucket += 1;
        } else {
            octaves[octave] = (bucket, TIME_BUCKETS_NS[bucket]);
            octave += 1;
        }
    }
    octaves
};

/// The bucket of a time.
fn bucket(ns: u64) -> usize {
    let (first, longest_ns) = OCTAVES[(ns | 1).ilog2() as usize];
    first + usize::from(ns > longest_ns)
}

/// Exact counts of times since the start, in fixed buckets, and their sum.
#[derive(Clone, Default)]
pub struct TimeCounts {
    counts: [u64; BUCKETS + 1],
    sum_ns: u128,
}

impl TimeCounts {
    /// Adds a time.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.sum_ns += u128::from(ns);
    }

    /// Adds the times of another group.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum_ns += other.sum_ns;
    }

    /// How many times are in each bucket: longer than the previous one of [`TIME_BUCKETS_NS`], and not longer than this
    /// one.
    #[must_use]
    pub fn counts(&self) -> &[u64; BUCKETS + 1] {
        &self.counts
    }

    /// The sum of all times.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.sum_ns).unwrap_or(u64::MAX))
    }
}

/// Times since the start: quantiles, and exact counts in fixed buckets.
#[derive(Clone)]
pub struct Times {
    /// An octave has two to the power of this buckets: 128 keep two digits of any time, and 16 keep one.
    octave_bits: u32,
    /// The counts of a [`Histogram`], by its own index. To count here is cheaper.
    counts: Box<[u64]>,
    counted: TimeCounts,
}

/// The `octave_bits` of histograms that keep one or two digits.
const ONE_DIGIT: u32 = 4;
const TWO_DIGITS: u32 = 7;

/// A histogram counts in units of 2⁹ ns, and the first octave of buckets has one for each unit.
const UNIT_BITS: u32 = LOWEST_NS.ilog2();

/// Omits the counts: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Times").finish_non_exhaustive()
    }
}

impl Times {
    /// An empty set, with quantiles to 1 %. This is finer than the difference between two runs. Three digits would take
    /// eight times the memory.
    #[must_use]
    pub fn latencies() -> Self {
        Self::with_octaves_of(TWO_DIGITS)
    }

    /// An empty set, with quantiles to 10 %. A disk may have hundreds of virtqueues, and the I/O thread copies all
    /// their times for each snapshot.
    pub(crate) fn waits() -> Self {
        Self::with_octaves_of(ONE_DIGIT)
    }

    fn with_octaves_of(octave_bits: u32) -> Self {
        let mut times = Self { octave_bits, counts: Box::default(), counted: TimeCounts::default() };
        times.counts = vec![0; times.index(HIGHEST_NS) + 1].into();
        times
    }

    /// The index of a time in a histogram.
    #[inline]
    fn index(&self, ns: u64) -> usize {
        let (bits, units) = (self.octave_bits, ns >> UNIT_BITS);
        let octave = (units | (1 << bits)).ilog2() - bits;
        ((octave as usize) << bits) + (units >> octave) as usize
    }

    /// Adds a time.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        let ns = time.as_nanos();
        self.counts[self.index(ns.min(HIGHEST_NS))] += 1;
        self.counted.record(ns);
    }

    /// Adds as many times of zero.
    pub(crate) fn record_zeros(&mut self, count: u64) {
        self.counts[0] += count;
        self.counted.counts[0] += count;
    }

    /// Adds the times of another group.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.counted.add(&other.counted);
    }

    /// The times in ns, for quantiles.
    #[must_use]
    pub fn ns(&self) -> Histogram<u64> {
        let digits = if self.octave_bits == ONE_DIGIT { 1 } else { 2 };
        let mut ns = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, digits).expect("constant bounds are valid");
        let bits = self.octave_bits;
        for (index, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let octave = (index >> bits).saturating_sub(1);
            let units = (index - (octave << bits)) as u64;
            ns.saturating_record_n(units << octave << UNIT_BITS, count);
        }
        ns
    }

    /// The counts and the sum.
    #[must_use]
    pub fn counted(&self) -> &TimeCounts {
        &self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_the_bucket_that_they_end() {
        let mut times = Times::latencies();
        let mut sum = Duration::ZERO;
        for ns in TIME_BUCKETS_NS.map(Duration::from_nanos) {
            for time in [ns, ns + Duration::from_nanos(1)] {
                times.record(time);
                sum += time;
            }
        }
        assert_eq!(times.counted().counts(), &[[1].as_slice(), &[2; BUCKETS - 1], &[1]].concat()[..]);
        assert_eq!((times.counted().sum(), times.ns().len()), (sum, 2 * BUCKETS as u64));
        times.record_zeros(5);
        assert_eq!(
            (times.counted().counts()[0], times.counted().sum(), times.ns().len()),
            (6, sum, 5 + 2 * BUCKETS as u64)
        );
    }

    #[test]
    fn times_are_those_of_a_histogram() {
        for mut times in [Times::latencies(), Times::waits()] {
            let mut ns = times.ns();
            for time in (0..1000_u64).map(|n| n * n * n * (1 << (n % 8))).chain([HIGHEST_NS, u64::MAX]) {
                times.record(Duration::from_nanos(time));
                ns.saturating_record(time.min(HIGHEST_NS));
            }
            assert_eq!(times.ns(), ns);
        }
    }

    #[test]
    fn buckets_are_found_by_octave() {
        let near = (0..64).map(|octave| 1 << octave).chain(TIME_BUCKETS_NS);
        for ns in near.flat_map(|ns: u64| [ns - 1, ns, ns + 1]).chain([u64::MAX]) {
            assert_eq!(bucket(ns), TIME_BUCKETS_NS.partition_point(|longest_ns| *longest_ns < ns), "{ns}");
        }
    }

    #[test]
    fn times_of_two_groups_add_up() {
        let (mut a, mut b) = (Times::latencies(), Times::latencies());
        for _ in 0..90 {
            a.record(Duration::from_micros(200));
        }
        for _ in 0..10 {
            b.record(Duration::from_millis(30));
        }
        a.add(&b);
        assert_eq!(
            (a.counted().counts()[2], a.counted().counts()[9], a.counted().sum()),
            (90, 10, Duration::from_millis(18 + 300))
        );
        let p50 = a.ns().value_at_quantile(0.5);
        let p99 = a.ns().value_at_quantile(0.99);
        assert!((198_000..=202_000).contains(&p50), "{p50}");
        assert!((29_700_000..=30_300_000).contains(&p99), "{p99}");
    }

    #[test]
    fn any_time_can_be_recorded() {
        let mut times = Times::waits();
        times.record(Duration::ZERO);
        times.record(Duration::MAX);
        times.record(Duration::MAX);
        assert_eq!((times.ns().len(), times.counted().counts()[BUCKETS]), (3, 2));
        assert_eq!(times.counted().sum(), 2 * Duration::from_nanos(u64::MAX));
    }
}
