//! Times in which the machine itself stood still. Measurements of these times say nothing about the daemon.
//!
//! A hypervisor now and then takes processors away for tens of milliseconds. Every request then takes that long, whatever the
//! daemon does. A thread on each processor sleeps for a millisecond again and again. With `SCHED_FIFO` it runs before everything
//! that is measured, which has ordinary priority. So a late wake-up means that the processor was taken away.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(1);
/// A wake-up later than this is a stall. The package's README.md gives the reason for the value.
const THRESHOLD: Duration = Duration::from_millis(5);
/// The lowest priority of `SCHED_FIFO`: before all ordinary threads, after all other real-time threads.
const PRIORITY: i32 = 1;

/// A time in which a processor did not run a thread that was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stall {
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

/// Stalls of all processors in the order of time. Stalls that overlap are one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stalls(Vec<Stall>);

impl Stall {
    /// How much of the stall lies between these moments.
    fn within(self, since: Instant, until: Instant) -> Duration {
        self.until.min(until).saturating_duration_since(self.since.max(since))
    }
}

impl FromIterator<Stall> for Stalls {
    fn from_iter<I: IntoIterator<Item = Stall>>(stalls: I) -> Self {
        let mut all: Vec<Stall> = stalls.into_iter().collect();
        all.sort();
        let mut merged: Vec<Stall> = Vec::new();
        for stall in all {
            match merged.last_mut() {
                Some(last) if stall.since <= last.until => last.until = last.until.max(stall.until),
                _ => merged.push(stall),
            }
        }
        Self(merged)
    }
}

impl Stalls {
    /// Every stall, in the order of time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Stall> + '_ {
        self.0.iter().copied()
    }

    /// How much of the time between these moments was stalled.
    pub(crate) fn within(&self, since: Instant, until: Instant) -> Duration {
        self.iter().map(|stall| stall.within(since, until)).sum()
    }

    /// Whether any of the time between these moments was stalled.
    pub(crate) fn hit(&self, since: Instant, until: Instant) -> bool {
        !self.within(since, until).is_zero()
    }
}

/// Watches all processors until it is dropped. Sees nothing where `SCHED_FIFO` is not permitted.
#[derive(Debug)]
pub(crate) struct Watch {
    since: Instant,
    /// The stalls that each thread has seen. Empty where `SCHED_FIFO` is not permitted.
    processors: Vec<Arc<Mutex<Seen>>>,
    stop: Arc<AtomicBool>,
}

/// The stalls that the thread of a processor has noticed so far.
#[derive(Debug)]
struct Seen {
    awake: Instant,
    stalls: Vec<Stall>,
}

impl Watch {
    /// Watches every processor that the calling thread may use.
    pub(crate) fn start() -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut watch = Self { since: Instant::now(), processors: Vec::new(), stop: Arc::default() };
        let (sender, ready) = mpsc::channel();
        for number in (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)) {
            let seen = Arc::new(Mutex::new(Seen { awake: watch.since, stalls: Vec::new() }));
            watch.processors.push(Arc::clone(&seen));
            let (stop, sender) = (Arc::clone(&watch.stop), sender.clone());
            thread::Builder::new().spawn(move || {
                let is_first = prepare(number);
                let runs = matches!(is_first, Ok(true));
                // The receiver is gone if another thread has failed already.
                let _ = sender.send(is_first);
                drop(sender);
                if runs {
                    run(&seen, &stop);
                }
            })?;
        }
        drop(sender);
        if !ready.iter().collect::<io::Result<Vec<bool>>>()?.into_iter().all(|is_first| is_first) {
            eprintln!("SCHED_FIFO is not permitted, so stalls of the machine are not seen; give CAP_SYS_NICE");
            watch.processors.clear();
        }
        Ok(watch)
    }

    /// The stalls between these moments. Waits until every processor has run since then, because a stall is noticed when it ends.
    pub(crate) fn between(&self, since: Instant, until: Instant) -> Stalls {
        while self.processors.iter().any(|seen| lock(seen).awake < until) {
            thread::sleep(PERIOD);
        }
        let stalls = self.processors.iter().flat_map(|seen| lock(seen).stalls.clone());
        stalls.filter(|stall| stall.since < until && since < stall.until).collect()
    }

    /// The sums so far, as published.
    pub(crate) fn sums(&self) -> Value {
        let now = Instant::now();
        let stalls = self.between(self.since, now);
        let longest = stalls.iter().map(|stall| stall.until - stall.since).max().unwrap_or_default();
        json!({
            "how": if self.processors.is_empty() { "not permitted" } else { "fifo" },
            "threshold_ms": THRESHOLD.as_secs_f64() * 1e3,
            "seconds": (now - self.since).as_secs_f64(),
            "stalls": stalls.iter().count(),
            "stalled_seconds": stalls.within(self.since, now).as_secs_f64(),
            "longest_ms": longest.as_secs_f64() * 1e3,
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // Every change is complete even if a thread panicked.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of one thread.
fn run(seen: &Mutex<Seen>, stop: &AtomicBool) {
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        // The next period begins with the wake-up, so no moment is left out.
        let due = last + PERIOD;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        last = Instant::now();
        let mut seen = lock(seen);
        seen.stalls.extend(stall(due, last));
        seen.awake = last;
    }
}

/// Pins the thread to its processor and sets `SCHED_FIFO`. Returns whether that is permitted.
fn prepare(number: usize) -> io::Result<bool> {
    let mut only = CpuSet::new();
    only.set(number);
    sched_setaffinity(None, &only)?;
    Ok(set_priority(PRIORITY))
}

fn set_priority(priority: i32) -> bool {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: the thread is the calling one, and the parameter outlives the call, which only reads it.
    unsafe { libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &raw const param) == 0 }
}

/// The stall of a thread that was due and ran at these moments.
fn stall(due: Instant, ran: Instant) -> Option<Stall> {
    (ran.saturating_duration_since(due) >= THRESHOLD).then_some(Stall { since: due, until: ran })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn stalls(start: Instant, of: &[(u32, u32)]) -> Stalls {
        of.iter().map(|&(since, until)| Stall { since: start + since * MS, until: start + until * MS }).collect()
    }

    #[test]
    fn those_of_several_processors_are_one_where_they_overlap() {
        let start = Instant::now();
        let merged = |of: &[(u32, u32)]| {
            let ms = |at: Instant| (at - start).as_millis();
            stalls(start, of).iter().map(|stall| (ms(stall.since), ms(stall.until))).collect::<Vec<_>>()
        };
        assert_eq!(merged(&[(50, 90), (10, 30)]), [(10, 30), (50, 90)]);
        assert_eq!(merged(&[(10, 30), (20, 50), (50, 60), (61, 70)]), [(10, 60), (61, 70)]);
        // A stall within another one, in either order.
        assert_eq!(merged(&[(12, 20), (10, 30), (14, 16)]), [(10, 30)]);
        assert_eq!(merged(&[]), []);
    }

    #[test]
    fn a_time_is_hit_by_what_lies_in_it_in_part_or_around_it() {
        let start = Instant::now();
        let two = stalls(start, &[(10, 30), (50, 90)]);
        let within = |since: u32, until: u32| {
            let (since, until) = (start + since * MS, start + until * MS);
            assert_eq!(two.hit(since, until), !two.within(since, until).is_zero());
            two.within(since, until).as_millis()
        };
        assert_eq!((within(0, 100), within(0, 20), within(25, 60), within(60, 70)), (60, 10, 15, 10));
        // Times before, between and after the stalls. A time that ends where a stall begins is not hit, nor one that begins where
        // it ends.
        assert_eq!((within(0, 5), within(35, 45), within(95, 99)), (0, 0, 0));
        assert_eq!((within(0, 10), within(30, 50), within(90, 95)), (0, 0, 0));
        assert_eq!((within(0, 11), within(29, 50), within(89, 95)), (1, 1, 1));
        assert!(!Stalls::default().hit(start, start + MS));
    }

    #[test]
    fn what_took_no_time_is_not_hit() {
        let start = Instant::now();
        assert!(!stalls(start, &[(10, 30)]).hit(start + 20 * MS, start + 20 * MS));
    }

    #[test]
    fn a_wake_up_is_a_stall_from_the_threshold_on() {
        let due = Instant::now();
        let at = due + THRESHOLD;
        assert_eq!(stall(due, at), Some(Stall { since: due, until: at }));
        assert_eq!(stall(due, at.checked_sub(Duration::from_nanos(1)).unwrap()), None);
        assert_eq!(stall(due + MS, due), None, "too early, by the clock's grain");
    }

    #[test]
    fn a_more_urgent_thread_is_a_stall() {
        let watch = Watch::start().unwrap();
        let urgent = thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|number| allowed.is_set(*number)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            let is_urgent = set_priority(PRIORITY + 1);
            let since = Instant::now();
            while since.elapsed() < 60 * MS {
                std::hint::spin_loop();
            }
            is_urgent.then_some(since)
        });
        let Some(since) = urgent.join().unwrap() else {
            eprintln!("SKIPPED: SCHED_FIFO is not permitted here, so no thread can take a processor away");
            return;
        };
        let until = Instant::now();
        let stalled = watch.between(since, until).within(since, until);
        assert!(stalled > 50 * MS, "{stalled:?}");
        assert!(watch.between(since + 10 * MS, since + 20 * MS).hit(since + 10 * MS, since + 20 * MS));
        let sums = watch.sums();
        assert!(sums["how"] == "fifo" && sums["stalls"].as_u64() > Some(0), "{sums}");
        assert!(sums["longest_ms"].as_f64() > Some(50.0), "{sums}");
        assert!(sums["stalled_seconds"].as_f64() <= sums["seconds"].as_f64(), "{sums}");
    }
}
