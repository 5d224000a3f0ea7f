//! What fio logs of the interactive guest's reads, and the bursts that they were.

use serde::Deserialize;
use std::ops::Range;
use std::time::Duration;

/// fio tells times in ms, and lies down for a moment less than it was told.
const TOLERANCE: Duration = Duration::from_millis(2);

/// A read: ms from the start of fio to its end, and ns that it took.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Read(u64, u64);

/// Reads that were sent at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Burst {
    /// From the start of fio.
    since: Duration,
    until: Duration,
    /// Each read, the shortest first.
    reads: Vec<Duration>,
}

/// The log is not of bursts.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum NoBursts {
    #[error("a burst begins {:.1} ms after the start of fio, but the one before it ends at {:.1} ms", ms(*.begins), ms(*.ends))]
    Overlap { begins: Duration, ends: Duration },
    #[error("the reads of a burst begin within {:.1} ms, which is not at once", ms(*.0))]
    Apart(Duration),
    #[error("no burst begins in the time that counts")]
    None,
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Read {
    fn until(self) -> Duration {
        Duration::from_millis(self.0)
    }

    fn took(self) -> Duration {
        Duration::from_nanos(self.1)
    }

    fn since(self) -> Duration {
        self.until().saturating_sub(self.took())
    }
}

impl Burst {
    /// Of reads, at least one.
    fn of(reads: &[Read]) -> Self {
        let mut took: Vec<Duration> = reads.iter().map(|read| read.took()).collect();
        took.sort_unstable();
        Self {
            since: reads.iter().map(|read| read.since()).min().unwrap_or_default(),
            until: reads.iter().map(|read| read.until()).max().unwrap_or_default(),
            reads: took,
        }
    }

    /// The longest of its reads.
    pub(crate) fn took(&self) -> Duration {
        self.reads.last().copied().unwrap_or_default()
    }

    pub(crate) fn reads(&self) -> &[Duration] {
        &self.reads
    }
}
