//! Decides: recent latencies have this precision and cover this time.
//!
//! Latencies of recent requests, for the operator.

use std::fmt;

use monotonic::Duration;

/// Buckets of one octave. A bucket is at most a 16th, or 6 %, wider than its lowest latency.
const PER_OCTAVE: usize = 1 << PER_OCTAVE_BITS;
const PER_OCTAVE_BITS: u32 = 4;
/// Latencies are counted in units of 1.024 µs.
const UNIT_BITS: u32 = 10;
/// Latencies of this and more, 73 minutes, count as the longest. A guest may wait for a path that long.
const HIGHEST_BITS: u32 = 42;
/// One bucket for each of the first 16 units. Each octave above has 16 buckets.
const BUCKETS: usize = ((HIGHEST_BITS - UNIT_BITS - PER_OCTAVE_BITS + 1) as usize) * PER_OCTAVE;

/// Counts of latencies in buckets of 6 %.
#[derive(Clone, PartialEq, Eq)]
pub struct LatencyCounts([u32; BUCKETS]);

impl fmt::Debug for LatencyCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyCounts").field("p50", &self.quantile(0.5)).finish_non_exhaustive()
    }
}

impl LatencyCounts {
    const EMPTY: Self = Self([0; BUCKETS]);

    fn record(&mut self, bucket: usize) {
        // No ten seconds have 4 billion requests.
        self.0[bucket] += 1;
    }

    /// Adds the counts of another group.
    pub(crate) fn add(&mut self, other: &Self) {
        *self = self.with(other, u32::saturating_add);
    }

    /// Each count with that of `other`.
    fn with(&self, other: &Self, of: impl Fn(u32, u32) -> u32) -> Self {
        Self(std::array::from_fn(|bucket| of(self.0[bucket], other.0[bucket])))
    }

    /// The number of requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// The latency that this share of the requests did not exceed. It is rounded up to the end of its bucket, by at
    /// most 6 % or 1 µs. `quantile` is in 0 to 1; 1 is the longest. `None` without a request.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // a rank within the counts
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let all = self.requests();
        let rank = ((quantile * all as f64).ceil() as u64).clamp(1, all.max(1));
        let mut upto = 0;
        let reaches = |count: &u32| {
            upto += u64::from(*count);
            upto >= rank
        };
        self.0.iter().position(reaches).map(|bucket| Duration::from_nanos(highest(bucket)))
    }
}

/// The bucket of a latency.
fn bucket(latency: Duration) -> usize {
    let units = latency.as_nanos().min((1 << HIGHEST_BITS) - 1) >> UNIT_BITS;
    // The octave of the first two times 16 units is 0.
    let octave = (units | PER_OCTAVE as u64).ilog2() - PER_OCTAVE_BITS;
    octave as usize * PER_OCTAVE + (units >> octave) as usize
}

/// The longest latency of a bucket, in ns.
fn highest(bucket: usize) -> u64 {
    let octave = (bucket / PER_OCTAVE).saturating_sub(1);
    let units = (bucket - octave * PER_OCTAVE + 1) as u64;
    (units << octave << UNIT_BITS) - 1
}

/// Latencies of the last second, to a tenth of a second, of the last minute, to ten seconds, and of the time since they were
/// taken.
///
/// The present time slot is part of the first two windows, so they cover the last 0.9 to 1 s and the last 50 to 60 s.
///
/// A request costs one comparison, one bucket and one count. A tenth that is over is added to its ten seconds, and to those not taken.
/// The 17 slots take 31 KiB for each path and class, or disk and operation, with requests, in each I/O thread.
#[derive(Clone)]
pub(crate) struct RecentLatencies {
    /// The end of the present tenth.
    tenth_ends: Duration,
    tenths: Slots<10>,
    /// The tenths that are over.
    ten_seconds: Slots<6>,
    /// The tenths that are over since the last [`RecentLatencies::take`], less what that has taken of the present tenth. The counts
    /// wrap.
    untaken: LatencyCounts,
}

impl fmt::Debug for RecentLatencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentLatencies").finish_non_exhaustive()
    }
}

/// Tenths of ten seconds.
const TEN_SECONDS: u64 = 100;

impl RecentLatencies {
    /// Without a request.
    pub(crate) const EMPTY: Self = Self {
        tenth_ends: Duration::ZERO,
        tenths: Slots::EMPTY,
        ten_seconds: Slots::EMPTY,
        untaken: LatencyCounts::EMPTY,
    };

    /// Counts a request. Times are measured from any fixed moment, and do not go backwards.
    #[inline]
    pub(crate) fn record(&mut self, at: Duration, latency: Duration) {
        if at >= self.tenth_ends {
            self.begin_tenth(at);
        }
        self.tenths.counts[self.tenths.place].record(bucket(latency));
    }

    #[cold]
    fn begin_tenth(&mut self, at: Duration) {
        let (before, counts) = (self.tenths.latest, &self.tenths.counts[self.tenths.place]);
        self.ten_seconds.add(before / TEN_SECONDS, counts);
        self.untaken = self.untaken.with(counts, u32::wrapping_add);
        let tenth = tenth(at);
        self.tenths.advance(tenth);
        self.tenth_ends = Duration::from_millis((tenth + 1) * 100);
    }

    /// The latencies of the last second.
    pub(crate) fn last_second(&self, at: Duration) -> Option<Box<LatencyCounts>> {
        self.tenths.sum(tenth(at))
    }

    /// The latencies of the last minute.
    pub(crate) fn last_minute(&self, at: Duration) -> Option<Box<LatencyCounts>> {
        let slot = tenth(at) / TEN_SECONDS;
        let mut sum = self.ten_seconds.sum(slot);
        if ((slot + 1).saturating_sub(6)..=slot).contains(&(self.tenths.latest / TEN_SECONDS)) {
            add_recent(&mut sum, Some(self.present_tenth()));
        }
        sum.filter(|sum| **sum != LatencyCounts::EMPTY)
    }

    /// The latencies since the last [`RecentLatencies::take`].
    pub(crate) fn untaken(&self) -> Option<Box<LatencyCounts>> {
        let counts = self.untaken.with(self.present_tenth(), u32::wrapping_add);
        (counts != LatencyCounts::EMPTY).then(|| Box::new(counts))
    }

    /// Begins to count anew.
    pub(crate) fn take(&mut self) {
        self.untaken = LatencyCounts::EMPTY.with(self.present_tenth(), u32::wrapping_sub);
    }

    fn present_tenth(&self) -> &LatencyCounts {
        &self.tenths.counts[self.tenths.place]
    }
}

/// Adds counts, if there are any.
pub(crate) fn add_recent(sum: &mut Option<Box<LatencyCounts>>, counts: Option<&LatencyCounts>) {
    match (sum, counts) {
        (Some(sum), Some(counts)) => sum.add(counts),
        (sum @ None, Some(counts)) => *sum = Some(Box::new(counts.clone())),
        (_, None) => {}
    }
}

/// The number of the tenth of a second.
fn tenth(at: Duration) -> u64 {
    at.as_secs() * 10 + u64::from(at.subsec_nanos() / 100_000_000)
}

/// Counts of the latest time slot with a request, and of the slots before it.
#[derive(Clone)]
struct Slots<const N: usize> {
    /// The number of the latest slot.
    latest: u64,
    /// Its place in `counts`. Each slot is at its number modulo `N`.
    place: usize,
    counts: [LatencyCounts; N],
}

impl<const N: usize> Slots<N> {
    const EMPTY: Self = Self { latest: 0, place: 0, counts: [LatencyCounts::EMPTY; N] };

    /// Begins a slot, unless it is the latest one.
    fn advance(&mut self, slot: u64) {
        for passed in (self.latest + 1..=slot).take(N) {
            self.counts[passed as usize % N] = LatencyCounts::EMPTY;
        }
        (self.latest, self.place) = (slot, slot as usize % N);
    }

    /// Adds counts to a slot, the latest one or a later one.
    fn add(&mut self, slot: u64, counts: &LatencyCounts) {
        self.advance(slot);
        self.counts[self.place].add(counts);
    }

    /// The counts of this slot and of the `N - 1` slots before it. `None` if none of them has a request.
    fn sum(&self, slot: u64) -> Option<Box<LatencyCounts>> {
        let mut sum = None;
        for recent in (slot + 1).saturating_sub(N as u64)..=self.latest {
            add_recent(&mut sum, Some(&self.counts[recent as usize % N]));
        }
        sum.filter(|sum| **sum != LatencyCounts::EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn p50(counts: Option<Box<LatencyCounts>>) -> Option<Duration> {
        counts?.quantile(0.5)
    }

    #[test]
    fn buckets_are_in_order_without_gaps_and_at_most_six_percent_wide() {
        let mut lowest = 0;
        for index in 0..BUCKETS {
            let highest = highest(index);
            for ns in [lowest, highest] {
                assert_eq!(bucket(Duration::from_nanos(ns)), index, "{ns}");
            }
            assert!(highest - lowest < (lowest / 16).max(1 << UNIT_BITS), "{lowest} to {highest}");
            lowest = highest + 1;
        }
        assert_eq!(lowest, 1 << HIGHEST_BITS);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_slow_second_is_seen_at_once_and_gone_after_the_window() {
        let mut recent = RecentLatencies::EMPTY;
        for at in 0..30_000 {
            recent.record(at * MS, MS / 20);
        }
        let slow = |counts| p50(counts).is_some_and(|p50| p50 >= 30 * MS);
        for at in 30_000..31_000 {
            recent.record(at * MS, 30 * MS);
        }
        let (last, end) = (30_999 * MS, 31_000 * MS);
        assert!(slow(recent.last_second(last)));
        assert!(!slow(recent.last_minute(last)), "one slow second of 31");
        assert!(recent.last_minute(last).unwrap().quantile(0.99).unwrap() >= 30 * MS);
        // Nothing happens in the next second.
        assert!(slow(recent.last_second(end + 899 * MS)));
        assert!(recent.last_second(end + 900 * MS).is_none());
        assert!(slow(recent.last_minute(Duration::from_millis(89_999))), "the fast ones are older");
        assert!(recent.last_minute(Duration::from_secs(90)).is_none());
        // The path is fast again.
        recent.record(end + 10 * MS, MS / 20);
        assert!(!slow(recent.last_second(end + 950 * MS)));
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut recent = RecentLatencies::EMPTY;
        for ms in 1..=1000 {
            recent.record(MS, ms * MS);
        }
        let counts = recent.last_second(MS).unwrap();
        for (quantile, ms) in [(0.0, 1), (0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            let value = counts.quantile(quantile).unwrap();
            assert!((ms * MS..=ms * MS * 107 / 100).contains(&value), "{quantile}: {value:?}");
        }
        assert_eq!(LatencyCounts::EMPTY.quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn each_latency_is_taken_once(gaps in prop::collection::vec((0_u64..90, prop::bool::weighted(0.2)), 1..200)) {
            let (mut recent, mut at, mut given, mut taken) = (RecentLatencies::EMPTY, 0, 0, 0);
            for (gap, takes) in gaps {
                at += gap;
                recent.record(Duration::from_millis(at), MS);
                given += 1;
                prop_assert_eq!(recent.untaken().map_or(0, |counts| counts.requests()), given - taken);
                if takes {
                    recent.take();
                    taken = given;
                    prop_assert!(recent.untaken().is_none());
                }
            }
        }

        #[test]
        fn windows_match_a_plain_list(
            requests in prop::collection::vec((0_u64..30_000, 0_u64..40_000_000_000), 1..60),
            after in 0_u64..70_000,
        ) {
            let mut recent = RecentLatencies::EMPTY;
            let mut list = Vec::new();
            let mut at = 0;
            for (gap, ns) in requests {
                // Gaps of milliseconds as well as of many seconds.
                at += if gap % 3 == 0 { gap } else { gap / 300 };
                let latency = Duration::from_nanos(ns >> (gap % 30));
                list.push((at, latency));
                recent.record(Duration::from_millis(at), latency);
            }
            let now = at + after;
            let expected = |width: u64, slots: u64| {
                let end = now / width;
                let within = list.iter().filter(|(at, _)| (at / width) + slots > end);
                let mut latencies: Vec<_> = within.map(|(_, latency)| *latency).collect();
                latencies.sort_unstable();
                latencies
            };
            let now = Duration::from_millis(now);
            for (counts, list) in [
                (recent.last_second(now), expected(100, 10)),
                (recent.last_minute(now), expected(10_000, 6)),
            ] {
                prop_assert_eq!(counts.is_some(), !list.is_empty());
                for (quantile, percent) in [(0.0, 0), (0.5, 50), (0.75, 75), (1.0, 100)] {
                    let rank = (list.len() * percent).div_ceil(100).max(1);
                    let expected = list.get(rank - 1).map(|latency| Duration::from_nanos(highest(bucket(*latency))));
                    prop_assert_eq!(counts.as_ref().and_then(|counts| counts.quantile(quantile)), expected);
                }
            }
        }
    }
}
