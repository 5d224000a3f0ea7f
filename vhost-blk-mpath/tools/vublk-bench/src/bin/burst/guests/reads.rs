//! fio's log of the interactive guest's reads, and the bursts in it.

use std::ops::Range;
use std::time::Duration;
use vublk_bench::harness::Sample;

/// fio's log tells the end of a read in whole ms.
const RESOLUTION: Duration = Duration::from_millis(1);

/// A read: ms from the start of fio to the read's end, and its duration in ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read(u64, u64);

/// Reads that were sent at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Burst {
    /// From the start of fio.
    since: Duration,
    until: Duration,
    longest: Duration,
}

/// Why a log cannot be cut into bursts.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum NotBursts {
    #[error("a burst begins {:.0} ms after the start of fio, and the one before it ends at {:.0} ms: there is no pause", ms(*.begins), ms(*.ends))]
    NoPause { ends: Duration, begins: Duration },
    #[error("no burst begins in the time that counts")]
    None,
}

/// A time in ms, for messages.
fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Read {
    // No time is negative.
    #[allow(clippy::cast_sign_loss)]
    pub(crate) fn of(sample: &Sample) -> Vec<Self> {
        let log = sample.list("ends_ms").iter().zip(sample.list("took_ns"));
        log.map(|(ends_ms, took_ns)| Self(*ends_ms as u64, *took_ns as u64)).collect()
    }

    fn until(self) -> Duration {
        Duration::from_millis(self.0)
    }

    fn took(self) -> Duration {
        Duration::from_nanos(self.1)
    }
}

impl Burst {
    /// The burst that these reads make. There is at least one.
    fn of(reads: &[Read]) -> Self {
        Self {
            since: reads.iter().map(|read| read.until().saturating_sub(read.took())).min().unwrap_or_default(),
            until: reads.iter().map(|read| read.until()).max().unwrap_or_default(),
            longest: reads.iter().map(|read| read.took()).max().unwrap_or_default(),
        }
    }

    /// The time from its first read to its last answer. It is at least that of the longest read, because the log has ends in
    /// whole ms.
    pub(crate) fn took(&self) -> Duration {
        self.longest.max(self.until.saturating_sub(self.since + RESOLUTION))
    }
}

/// The bursts of `count` reads each that began in the time that counts. fio waits for each burst, so the log has one burst after
/// the other. The last reads of the log may be only a part of a burst.
pub(crate) fn bursts(
    reads: &[Read],
    count: usize,
    pause: Duration,
    counts: &Range<Duration>,
) -> Result<Vec<Burst>, NotBursts> {
    let mut bursts: Vec<Burst> = reads.chunks_exact(count).map(Burst::of).collect();
    for pair in bursts.windows(2) {
        if pair[1].since + RESOLUTION < pair[0].until + pause {
            return Err(NotBursts::NoPause { ends: pair[0].until, begins: pair[1].since });
        }
    }
    bursts.retain(|burst| counts.contains(&burst.since));
    if bursts.is_empty() { Err(NotBursts::None) } else { Ok(bursts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A burst of two: it begins at `since` and its reads take so long.
    fn two(since: u64, took: [u64; 2]) -> [Read; 2] {
        took.map(|took| Read(since + took, took * 1_000_000))
    }

    #[test]
    fn a_burst_is_as_long_as_its_longest_read() {
        let log = [two(100, [10, 20]), two(170, [30, 11])].concat();
        let found = bursts(&log, 2, 50 * MS, &(Duration::ZERO..Duration::MAX)).unwrap();
        assert_eq!(found.iter().map(Burst::took).collect::<Vec<_>>(), [20 * MS, 30 * MS]);
    }

    #[test]
    fn a_read_that_was_sent_late_makes_the_burst_longer() {
        let log = [Read(110, 10_000_000), Read(125, 10_000_000)];
        let found = bursts(&log, 2, 50 * MS, &(Duration::ZERO..Duration::MAX)).unwrap();
        // The log rounds, so 1 ms is subtracted.
        assert_eq!(found[0].took(), 24 * MS);
    }

    #[test]
    fn whole_bursts_count_that_begin_in_time() {
        let log = [two(0, [10, 10]), two(100, [10, 10]), two(200, [99, 10]), two(400, [10, 10])].concat();
        let counted = |counts| bursts(&log[..7], 2, 50 * MS, &counts).map(|found| found.len());
        assert_eq!(counted(Duration::ZERO..Duration::MAX), Ok(3));
        assert_eq!(counted(100 * MS..201 * MS), Ok(2));
        assert_eq!(counted(300 * MS..Duration::MAX), Err(NotBursts::None));
    }

    #[test]
    fn reads_without_pauses_are_no_bursts() {
        let mut log = [two(100, [10, 20]), two(169, [10, 10])].concat();
        assert!(bursts(&log, 2, 50 * MS, &(Duration::ZERO..Duration::MAX)).is_ok(), "fio rounds");
        // With one more read at the beginning, all later reads are in the wrong bursts.
        log.insert(0, Read(100, 10_000_000));
        let error = bursts(&log, 2, 50 * MS, &(Duration::ZERO..Duration::MAX)).unwrap_err();
        assert!(error.to_string().contains("there is no pause"), "{error}");
    }
}
