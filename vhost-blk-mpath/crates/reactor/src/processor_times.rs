//! Processor time of a thread, as the kernel counts it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use monotonic::{Duration, Instant};

/// The kernel's counts for a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTimes {
    /// The time that the thread ran.
    pub ran: Duration,
    /// The time that the thread waited for a processor. A stopped thread does not wait.
    pub waited: Duration,
}

/// Reads the times of one thread. Any thread may read them.
#[derive(Debug)]
pub(crate) struct Schedstat(Option<File>);

impl Schedstat {
    /// Reads those of the calling thread. A kernel without `CONFIG_SCHED_INFO` counts nothing.
    pub(crate) fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// `None` if the kernel does not count, or the thread has ended.
    pub(crate) fn read(&self) -> Option<ProcessorTimes> {
        let mut text = [0; 64];
        let length = self.read_at(&mut text).ok()?;
        parse(&text[..length])
    }

    fn read_at(&self, text: &mut [u8]) -> io::Result<usize> {
        self.0.as_ref().ok_or(io::ErrorKind::NotFound)?.read_at(text, 0)
    }
}

/// Nanoseconds that the thread ran, nanoseconds that it waited, and the number of its runs.
fn parse(schedstat: &[u8]) -> Option<ProcessorTimes> {
    let mut numbers = std::str::from_utf8(schedstat).ok()?.split_ascii_whitespace();
    let mut time = || Some(Duration::from_nanos(numbers.next()?.parse().ok()?));
    Some(ProcessorTimes { ran: time()?, waited: time()? })
}

/// Tells a thread how long it has run, and has waited for a processor, before a turn.
#[derive(Debug)]
pub(crate) struct ProcessorMeter {
    schedstat: Arc<Schedstat>,
    read_at: Instant,
    read: ProcessorTimes,
}

/// The kernel is asked at most this often, because the answer takes about a microsecond.
const ASK_EVERY: Duration = Duration::from_millis(5);

impl ProcessorMeter {
    pub(crate) fn new(now: Instant, schedstat: Arc<Schedstat>) -> Self {
        let read = schedstat.read().unwrap_or_default();
        Self { schedstat, read_at: now, read }
    }

    /// The times since the last answer, which is at most 5 ms older than the turn before. Zero if the kernel was asked just now.
    #[inline]
    pub(crate) fn since_last(&mut self, now: Instant) -> ProcessorTimes {
        if now - self.read_at < ASK_EVERY { ProcessorTimes::default() } else { self.ask(now) }
    }

    #[cold]
    fn ask(&mut self, now: Instant) -> ProcessorTimes {
        self.read_at = now;
        let read = self.schedstat.read().unwrap_or_default();
        let before = std::mem::replace(&mut self.read, read);
        ProcessorTimes { ran: read.ran.saturating_sub(before.ran), waited: read.waited.saturating_sub(before.waited) }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;

    use super::*;

    #[test]
    fn the_times_of_a_thread_are_read() {
        let times = parse(b"2000000 3000000 17\n").unwrap();
        assert_eq!(times, ProcessorTimes { ran: Duration::from_millis(2), waited: Duration::from_millis(3) });
        for text in [&b""[..], b"1", b"x 1 1", b"\xff 1 1"] {
            assert_eq!(parse(text), None);
        }
    }

    #[test]
    fn a_thread_that_works_runs_and_others_can_read_that() {
        let schedstat = Schedstat::of_this_thread();
        let before = schedstat.read().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(50) {
            spin_loop();
        }
        let after = std::thread::scope(|scope| scope.spawn(|| schedstat.read().unwrap()).join().unwrap());
        assert!(after.ran > before.ran && after.waited >= before.waited, "{before:?} {after:?}");
    }

    #[test]
    fn times_are_told_once_and_every_five_milliseconds() {
        let (now, none) = (Instant::now(), ProcessorTimes::default());
        let mut meter = ProcessorMeter::new(now, Arc::new(Schedstat(None)));
        assert_eq!(meter.since_last(now + ASK_EVERY), none, "the kernel does not count");
        let mut meter = ProcessorMeter::new(now, Arc::new(Schedstat::of_this_thread()));
        meter.read = none;
        assert_eq!(meter.since_last(now), none, "too soon");
        let (first, read) = (meter.since_last(now + ASK_EVERY), meter.read);
        assert_eq!(first, read);
        let second = meter.since_last(now + 2 * ASK_EVERY);
        assert_eq!(read.ran + second.ran, meter.read.ran, "what was told is not told again");
    }
}
