//! A thread on each processor that notices when it does not run.
//!
//! The thread sleeps for a millisecond again and again. With `SCHED_FIFO` it runs before everything that is measured, which has ordinary
//! priority. So a late wake-up means that the processor was taken away, or that something with a higher priority ran. Where
//! `SCHED_FIFO` is not permitted, the time for which the thread was ready while others ran, which the kernel counts, is taken off.

use super::steal::{StealError, steal};
use super::{Stall, Stalls};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(1);
/// A wake-up later than this is a stall. The package's README.md gives the reason for the value.
pub(super) const THRESHOLD: Duration = Duration::from_millis(5);
/// The lowest priority of `SCHED_FIFO`: before all ordinary threads, after all other real-time threads.
const PRIORITY: i32 = 1;
/// CPU time in ns, time ready but not running in ns, turns.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Why the machine cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The processors of the process are unknown.
    #[error("cannot tell which processors there are: {0}")]
    Processors(#[source] io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A thread cannot stay on its processor.
    #[error("cannot keep a thread on processor {processor}: {source}")]
    Pin {
        /// Which.
        processor: usize,
        /// Why not.
        source: io::Error,
    },
    /// A thread of ordinary priority cannot tell whether it waited for others.
    #[error(
        "neither is SCHED_FIFO permitted, nor can what a thread waited for others be read from {SCHEDSTAT}: {0}; give CAP_SYS_NICE"
    )]
    Queue(#[source] io::Error),
    /// The hypervisor's own count is missing.
    #[error(transparent)]
    Steal(#[from] StealError),
}

/// How a stall is told from a wait for other threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The thread's priority is above all measured threads.
    Fifo,
    /// The time for which the thread waited for others is taken off.
    Ordinary,
}

/// Watches all processors until it is dropped.
#[derive(Debug)]
pub struct Watch {
    how: How,
    since: Instant,
    steal: Duration,
    processors: Vec<Processor>,
    stop: Arc<AtomicBool>,
}

/// The sums of a watch, as published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// See [`How`].
    pub how: How,
    /// A wake-up this late is a stall.
    pub threshold_ms: f64,
    /// The time watched.
    pub seconds: f64,
    /// Stalls of different processors that overlap are one.
    pub stalls: usize,
    /// The sum of all stalls.
    pub stalled_seconds: f64,
    /// The longest stall.
    pub longest_ms: f64,
    /// The sum over the processors, each with its own.
    pub processor_seconds: f64,
    /// The hypervisor's own count, which includes times too short to be a stall here.
    pub steal_seconds: f64,
}

#[derive(Debug)]
struct Processor {
    number: usize,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

/// The stalls that a thread has noticed so far.
#[derive(Debug)]
struct Seen {
    awake: Instant,
    stalls: Vec<Stall>,
}

impl Watch {
    /// Watches every processor that the calling thread may use.
    pub fn start() -> Result<Self, WatchError> {
        let allowed = sched_getaffinity(None).map_err(|error| WatchError::Processors(error.into()))?;
        let numbers: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect();
        let since = Instant::now();
        let steal = steal(numbers.iter().copied())?;
        let mut watch = Self { how: How::Fifo, since, steal, processors: Vec::new(), stop: Arc::default() };
        let (sender, ready) = mpsc::channel();
        for number in numbers {
            let seen = Arc::new(Mutex::new(Seen { awake: since, stalls: Vec::new() }));
            let body = {
                let (seen, stop, sender) = (Arc::clone(&seen), Arc::clone(&watch.stop), sender.clone());
                move || run(number, &seen, &stop, &sender)
            };
            let thread = thread::Builder::new().name(format!("watch-{number}")).spawn(body);
            watch.processors.push(Processor { number, seen, thread: Some(thread.map_err(WatchError::Thread)?) });
        }
        drop(sender);
        // One message from each thread.
        for how in ready.iter().take(watch.processors.len()) {
            if how? == How::Ordinary {
                watch.how = How::Ordinary;
            }
        }
        Ok(watch)
    }

    /// See [`How`].
    #[must_use]
    pub fn how(&self) -> How {
        self.how
    }

    /// The stalls between these moments. Waits until every processor has run since then, because a stall is noticed when it ends.
    #[must_use]
    pub fn between(&self, since: Instant, until: Instant) -> Stalls {
        while self.processors.iter().any(|processor| processor.seen().awake < until) {
            thread::sleep(PERIOD);
        }
        let of = |processor: &Processor| processor.seen().stalls.clone();
        self.processors.iter().flat_map(of).filter(|stall| stall.since < until && since < stall.until).collect()
    }

    /// The sums so far.
    pub fn watched(&self) -> Result<Watched, WatchError> {
        let now = Instant::now();
        let steal = steal(self.processors.iter().map(|processor| processor.number))?.saturating_sub(self.steal);
        let stalls = self.between(self.since, now);
        let each = |processor: &Processor| processor.seen().stalls.iter().map(|stall| stall.took()).sum::<Duration>();
        Ok(Watched {
            how: self.how,
            threshold_ms: THRESHOLD.as_secs_f64() * 1e3,
            seconds: (now - self.since).as_secs_f64(),
            stalls: stalls.iter().count(),
            stalled_seconds: stalls.within(self.since, now).as_secs_f64(),
            longest_ms: stalls.iter().map(Stall::took).max().unwrap_or_default().as_secs_f64() * 1e3,
            processor_seconds: self.processors.iter().map(each).sum::<Duration>().as_secs_f64(),
            steal_seconds: steal.as_secs_f64(),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.processors.iter_mut().filter_map(|processor| processor.thread.take()) {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

impl Processor {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // Every change is complete even if a thread panicked.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of one thread. First sends how it watches, or why it cannot.
fn run(number: usize, seen: &Mutex<Seen>, stop: &AtomicBool, ready: &Sender<Result<How, WatchError>>) {
    let mut queue = match prepare(number) {
        Ok(queue) => queue,
        Err(error) => {
            // The receiver is gone if another thread has failed already.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(if queue.is_some() { How::Ordinary } else { How::Fifo }));
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        // The next period begins with the wake-up, so no moment is left out.
        let due = last + PERIOD;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        last = Instant::now();
        let waited = queue.as_mut().map_or(Duration::ZERO, Queue::waited);
        let mut seen = lock(seen);
        seen.stalls.extend(stall(due, last, waited));
        seen.awake = last;
    }
}

/// Pins the thread and raises its priority. Where that is not permitted, returns a counter of the time it waits for others.
fn prepare(number: usize) -> Result<Option<Queue>, WatchError> {
    let mut only = CpuSet::new();
    only.set(number);
    let pin = |source: rustix::io::Errno| WatchError::Pin { processor: number, source: source.into() };
    sched_setaffinity(None, &only).map_err(pin)?;
    if go_first() { Ok(None) } else { Queue::new().map(Some).map_err(WatchError::Queue) }
}

/// Sets `SCHED_FIFO`. Returns whether that is permitted.
fn go_first() -> bool {
    let param = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the thread is the calling one, and the parameter outlives the call, which only reads it.
    unsafe { libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &raw const param) == 0 }
}

/// The stall of a thread that was due and ran at these moments, and waited for others meanwhile.
fn stall(due: Instant, ran: Instant, waited: Duration) -> Option<Stall> {
    let late = ran.saturating_duration_since(due).saturating_sub(waited);
    (late >= THRESHOLD).then(|| Stall { since: due, until: due + late })
}

/// Counts how long the calling thread was ready while others ran.
#[derive(Debug)]
struct Queue {
    file: File,
    waited: Duration,
}

impl Queue {
    fn new() -> io::Result<Self> {
        let file = File::open(SCHEDSTAT)?;
        let waited = read_waited(&file)?;
        Ok(Self { file, waited })
    }

    /// The wait since the last call.
    fn waited(&mut self) -> Duration {
        // The file could be read before. If that fails, all of the time counts as waiting, so that no stall is made up.
        let waited = read_waited(&self.file).unwrap_or(Duration::MAX);
        waited.saturating_sub(std::mem::replace(&mut self.waited, waited))
    }
}

fn read_waited(file: &File) -> io::Result<Duration> {
    let mut bytes = [0; 64];
    let length = file.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes[..length]);
    let waited = text.split_ascii_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    waited.map(Duration::from_nanos).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_wake_up_is_a_stall_from_the_threshold_on() {
        let due = Instant::now();
        let of = |late: Duration, waited: Duration| stall(due, due + late, waited).map(Stall::took);
        assert_eq!(of(THRESHOLD, Duration::ZERO), Some(THRESHOLD));
        assert_eq!((of(THRESHOLD, Duration::from_nanos(1)), of(4 * MS, Duration::ZERO)), (None, None));
        assert_eq!(stall(due + MS, due, Duration::ZERO), None, "too early, by the clock's grain");
    }

    #[test]
    fn the_wait_for_others_is_taken_off() {
        let due = Instant::now();
        let of = |waited| stall(due, due + 100 * MS, waited);
        assert_eq!(of(40 * MS), Some(Stall { since: due, until: due + 60 * MS }));
        assert_eq!((of(96 * MS), of(100 * MS), of(Duration::MAX)), (None, None, None));
    }

    /// The first processor that this process may use.
    fn one_processor() -> CpuSet {
        let allowed = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|number| allowed.is_set(*number)).unwrap());
        one
    }

    fn spin(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_thread_knows_how_long_it_waited_for_others() {
        let together = Arc::new(Barrier::new(3));
        let spins = || {
            let together = Arc::clone(&together);
            thread::spawn(move || {
                sched_setaffinity(None, &one_processor()).unwrap();
                let mut queue = Queue::new().unwrap();
                together.wait();
                spin(60 * MS);
                queue.waited()
            })
        };
        // On one processor two of them wait at a time, and one runs.
        let all: Duration = [spins(), spins(), spins()].map(|thread| thread.join().unwrap()).iter().sum();
        assert!(all > 80 * MS, "{all:?}");
    }

    #[test]
    fn a_more_urgent_thread_is_a_stall() {
        let watch = Watch::start().unwrap();
        let urgent = thread::spawn(|| {
            sched_setaffinity(None, &one_processor()).unwrap();
            let param = libc::sched_param { sched_priority: PRIORITY + 1 };
            // SAFETY: as in `go_first`.
            let set = unsafe { libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &raw const param) };
            let since = Instant::now();
            spin(60 * MS);
            (set == 0).then_some(since)
        });
        let Some(since) = urgent.join().unwrap() else {
            eprintln!("SKIPPED: SCHED_FIFO is not permitted here, so no thread can take a processor away");
            return;
        };
        let until = Instant::now();
        let stalled = watch.between(since, until).within(since, until);
        assert!(stalled > 50 * MS, "{stalled:?}");
        assert!(watch.between(since + 10 * MS, since + 20 * MS).hit(since + 10 * MS, since + 20 * MS));
        let watched = watch.watched().unwrap();
        assert!((watched.how, watched.stalls > 0) == (How::Fifo, true) && watched.longest_ms > 50.0, "{watched:?}");
        assert!(watched.stalled_seconds <= watched.seconds, "{watched:?}");
    }
}
