//! Decides: a disk is degraded because its host is starved (`starved`).
//!
//! Times in which this host did not run the daemon: its process was stopped, or a thread waited for a processor.

use std::collections::VecDeque;
use std::fs;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use monotonic::{Duration, Instant};
use mpath_core::Stall;

/// Shorter stalls are only counted, by the I/O threads.
const TOLD: Duration = Duration::from_millis(100);
/// The host is starved if the stalls of this time...
const STARVED_WITHIN: Duration = Duration::from_secs(60);
/// ...come to this.
const STARVED: Duration = Duration::from_secs(1);
/// The time between two events at least.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// A connection that ends this long after a stall may have ended because of the stall.
const SEEN_AFTER: Duration = Duration::from_secs(5);
/// The most stalls that are kept. No more stalls of [`TOLD`] fit into [`STARVED_WITHIN`].
const MOST: usize = 600;
/// How often the control thread calls [`HostStalls::beat`].
pub(crate) const BEAT: Duration = Duration::from_millis(500);

/// The stalls of I/O threads that were not looked at yet. More are lost.
const SENT_MAX: usize = 64;

/// The recent stalls of all threads.
pub(crate) struct HostStalls {
    /// The kernel counts how long threads wait for a processor.
    kernel_counts: bool,
    sender: SyncSender<Stall>,
    stalls: Mutex<Stalls>,
}

/// Passes the stalls of an I/O thread on. It never blocks.
pub(crate) struct StallSender(SyncSender<Stall>);

impl StallSender {
    pub(crate) fn send(&self, stall: Stall) {
        if stall.time() >= TOLD {
            let _ = self.0.try_send(stall);
        }
    }
}

struct Stalls {
    sent: Receiver<Stall>,
    /// Stalls that do not overlap, by their end.
    kept: VecDeque<Kept>,
    told_at: Option<Instant>,
    /// The last [`HostStalls::beat`], and the time that the control thread had run until then; `None` while nothing watches.
    beat: Option<(Instant, Duration)>,
    /// Begin and end of the last stall of the control thread, which sends keep-alives.
    of_control: Option<(Instant, Instant)>,
}

/// Ends [`HostStalls::watch`].
pub(crate) struct Watched<'a>(&'a HostStalls);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.lock().beat = None;
    }
}

struct Kept {
    began: Instant,
    ended: Instant,
    /// The stalls of all threads in this time that know of their waits for a processor, and these waits.
    counted: Duration,
    waited: Duration,
    is_told: bool,
}

impl Kept {
    /// The stall of one thread, with its wait for a processor if that is known.
    fn new(began: Instant, ended: Instant, waited: Option<Duration>) -> Self {
        let counted = if waited.is_some() { ended - began } else { Duration::ZERO };
        Self { began, ended, counted, waited: waited.unwrap_or_default(), is_told: false }
    }

    fn time(&self) -> Duration {
        self.ended - self.began
    }
}

/// Several stalls together.
struct Sum {
    count: usize,
    total: Duration,
    longest: Duration,
    counted: Duration,
    waited: Duration,
}

impl Sum {
    fn of<'a>(stalls: impl Iterator<Item = &'a Kept>) -> Self {
        let zero = Duration::ZERO;
        let none = Self { count: 0, total: zero, longest: zero, counted: zero, waited: zero };
        stalls.fold(none, |sum, kept| Self {
            count: sum.count + 1,
            total: sum.total + kept.time(),
            longest: sum.longest.max(kept.time()),
            counted: sum.counted + kept.counted,
            waited: sum.waited + kept.waited,
        })
    }

    /// The cause that most of the time shows.
    fn cause(&self) -> &'static str {
        if self.counted.is_zero() {
            "it was stopped, or had no processor"
        } else if self.waited >= self.counted / 2 {
            "it waited for a processor"
        } else {
            "it was stopped (SIGSTOP, a debugger, a frozen cgroup or virtual machine)"
        }
    }

    fn text(&self) -> String {
        let Self { count, total, longest, .. } = self;
        if *count == 1 {
            format!("for {total:.1?}")
        } else {
            format!("{count} times, for {total:.1?} in all and {longest:.1?} at most")
        }
    }
}

impl HostStalls {
    pub(crate) fn new() -> Self {
        let (sender, sent) = mpsc::sync_channel(SENT_MAX);
        let stalls = Stalls { sent, kept: VecDeque::new(), told_at: None, beat: None, of_control: None };
        // The first number is the time that the thread ran. Without the counts of the kernel it is zero.
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let kernel_counts = schedstat.split(' ').next().is_some_and(|ran| ran.parse().is_ok_and(|ran: u64| ran > 0));
        Self { kernel_counts, sender, stalls: Mutex::new(stalls) }
    }

    pub(crate) fn sender(&self) -> StallSender {
        StallSender(self.sender.clone())
    }

    /// The stalls, with those that I/O threads have sent meanwhile.
    fn lock(&self) -> MutexGuard<'_, Stalls> {
        let mut stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Stall { began, ended, waited }) = stalls.sent.try_recv() {
            stalls.add(Kept::new(began, ended, self.kernel_counts.then_some(waited)));
        }
        stalls
    }

    /// The control thread begins to call [`HostStalls::beat`].
    pub(crate) fn watch(&self, now: Instant, processor_time: Duration) -> Watched<'_> {
        self.lock().beat = Some((now, processor_time));
        Watched(self)
    }

    /// The control thread runs, and has run for `processor_time` so far. It calls this every [`BEAT`], so a longer time without a
    /// call is a stall, less the time in which it worked.
    pub(crate) fn beat(&self, now: Instant, processor_time: Duration) {
        self.lock().beat(now, Some(processor_time));
    }

    /// The text of an event, if there are stalls of which none has told.
    pub(crate) fn untold(&self, now: Instant, time: SystemTime) -> Option<String> {
        let mut stalls = self.lock();
        if stalls.told_at.is_some_and(|at| now - at < TELL_EVERY) {
            return None;
        }
        // Each thread notices a stall by itself, and a part of it. Threads that stall in turn may do so without end.
        let is_due = |kept: &Kept| !kept.is_told && (now - kept.ended >= BEAT || now - kept.began >= TELL_EVERY);
        let first = stalls.kept.iter().find(|kept| is_due(kept))?.began;
        let last = stalls.kept.iter().rev().find(|kept| is_due(kept))?.ended;
        let sum = Sum::of(stalls.kept.iter().filter(|kept| is_due(kept)));
        stalls.kept.iter_mut().filter(|kept| is_due(kept)).for_each(|kept| kept.is_told = true);
        stalls.told_at = Some(now);
        drop(stalls);
        let utc = |at: Instant| humantime::format_rfc3339_millis(time - (now - at).into());
        Some(format!(
            "this host did not run the daemon, or a thread of it, {}, from {} until {}: {}; its requests waited for this host and not \
             for storage",
            sum.text(),
            utc(first),
            utc(last),
            sum.cause(),
        ))
    }

    /// Why the host counts as starved, if it does.
    pub(crate) fn starved(&self, now: Instant) -> Option<String> {
        let sum = Sum::of(self.lock().kept.iter().filter(|kept| now - kept.ended < STARVED_WITHIN));
        let text = || {
            format!(
                "the host is starved: in the last minute it did not run the daemon, or a thread of it, {}: {}",
                sum.text(),
                sum.cause()
            )
        };
        (sum.total >= STARVED).then(text)
    }

    /// An explanation why a controller with this keep-alive timeout has just ended its connections: this host was silent.
    pub(crate) fn silence(&self, now: Instant, keep_alive: Duration) -> Option<String> {
        let mut stalls = self.lock();
        // The control thread may look at its connections before it looks at the time.
        stalls.beat(now, None);
        let (began, ended) = stalls.of_control.filter(|(_, ended)| now - *ended < SEEN_AFTER)?;
        let last = ended - began;
        // The host speaks twice in this time.
        (last >= keep_alive / 2).then(|| {
            format!(
                "; just before, this host did not run the daemon for {last:.1?}, so the controller may have missed the \
                 keep-alive of this host (keep-alive-tmo {keep_alive:?})"
            )
        })
    }
}

impl Stalls {
    fn add(&mut self, mut stall: Kept) {
        self.kept.retain(|kept| {
            let overlaps = kept.began <= stall.ended && stall.began <= kept.ended;
            if overlaps {
                (stall.began, stall.ended) = (stall.began.min(kept.began), stall.ended.max(kept.ended));
                stall.counted += kept.counted;
                stall.waited += kept.waited;
                // What is added may be an event's worth.
                stall.is_told |= kept.is_told && stall.time() < kept.time() + TOLD;
            }
            !overlaps
        });
        if self.kept.len() == MOST {
            self.kept.pop_front();
        }
        let at = self.kept.partition_point(|kept| kept.ended < stall.ended);
        self.kept.insert(at, stall);
    }

    /// `processor_time` is `None` if it is not known: then it counts as not having grown.
    fn beat(&mut self, now: Instant, processor_time: Option<Duration>) {
        let Some((last, had_run)) = self.beat else { return };
        let processor_time = processor_time.unwrap_or(had_run);
        self.beat = Some((now, processor_time));
        let due = last + BEAT + processor_time.saturating_sub(had_run);
        if now > due + TOLD {
            self.of_control = Some((due, now));
            self.add(Kept::new(due, now, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Test {
        start: Instant,
        stalls: HostStalls,
    }

    impl Test {
        fn new() -> Self {
            let (start, stalls) = (Instant::now(), HostStalls { kernel_counts: true, ..HostStalls::new() });
            std::mem::forget(stalls.watch(start, Duration::ZERO));
            Self { start, stalls }
        }

        fn at(&self, ms: u32) -> Instant {
            self.start + ms * MS
        }

        fn add(&self, began: u32, ended: u32) {
            self.add_waiting(began, ended, 0);
        }

        fn add_waiting(&self, began: u32, ended: u32, waited: u32) {
            let stall = Stall { began: self.at(began), ended: self.at(ended), waited: waited * MS };
            self.stalls.sender().send(stall);
        }

        fn untold(&self, ms: u32) -> Option<String> {
            self.stalls.untold(self.at(ms), SystemTime::UNIX_EPOCH + (ms * MS).into())
        }
    }

    #[test]
    fn stalls_of_several_threads_at_one_time_are_one() {
        let test = Test::new();
        test.add(0, 99);
        assert_eq!(test.untold(100), None, "too short");
        for (began, ended) in [(50, 850), (350, 851), (20, 849)] {
            test.add(began, ended);
        }
        assert_eq!(test.untold(1350), None, "others may have been stopped for longer");
        let text = test.untold(1351).unwrap();
        let expected = "this host did not run the daemon, or a thread of it, for 831.0ms, from 1970-01-01T00:00:00.020Z until \
                        1970-01-01T00:00:00.851Z: it was stopped (SIGSTOP, a debugger, a frozen cgroup or virtual machine); ";
        assert!(text.starts_with(expected), "{text}");
        test.add(400, 852);
        assert_eq!(test.untold(20_000), None, "told before");
    }

    #[test]
    fn events_are_told_every_ten_seconds_at_most() {
        let test = Test::new();
        test.add(0, 200);
        assert!(test.untold(700).is_some());
        test.add(1000, 1300);
        test.add(2000, 2200);
        assert_eq!(test.untold(10_699), None);
        let text = test.untold(10_700).unwrap();
        assert!(
            text.starts_with(
                "this host did not run the daemon, or a thread of it, 2 times, for 500.0ms in all and 300.0ms at most, "
            ),
            "{text}"
        );
        assert_eq!(test.untold(30_000), None);
    }

    #[test]
    fn a_host_is_starved_by_a_second_in_a_minute() {
        let test = Test::new();
        let starved = |ms| test.stalls.starved(test.at(ms));
        test.add(0, 600);
        assert_eq!(starved(1000), None);
        test.add(5000, 5400);
        let text = "the host is starved: in the last minute it did not run the daemon, or a thread of it, 2 times, for 1.0s in all and 600.0ms at most: it was stopped (SIGSTOP, a debugger, a frozen cgroup or virtual machine)";
        assert_eq!(starved(60_599).as_deref(), Some(text));
        assert_eq!(starved(60_600), None);
    }

    #[test]
    fn a_control_thread_that_is_not_run_notices() {
        let test = Test::new();
        let beat = |ms, ran: u32| test.stalls.beat(test.at(ms), ran * MS);
        for (ms, ran) in [(500, 0), (1000, 0), (1100, 0), (1700, 0), (3000, 700)] {
            beat(ms, ran);
            assert_eq!(test.untold(ms), None, "in time, or at work");
        }
        beat(4300, 700);
        beat(4800, 700);
        let text = test.untold(4800).unwrap();
        assert!(text.contains("until 1970-01-01T00:00:04.300Z: it was stopped, or had no processor;"), "{text}");
        drop(Watched(&test.stalls));
        beat(20_000, 700);
        assert_eq!(test.untold(20_000), None, "nothing watches any more");
    }

    #[test]
    fn a_stopped_daemon_is_told_from_one_without_a_processor() {
        let test = Test::new();
        test.add_waiting(0, 800, 750);
        test.add_waiting(1000, 1300, 0);
        assert!(test.untold(2000).unwrap().contains(": it waited for a processor;"));
        test.add(5000, 5700);
        assert!(test.stalls.starved(test.at(6000)).unwrap().ends_with("virtual machine)"), "most of the time");
        for (began, ended) in [(10_000, 10_800), (10_700, 11_500), (11_400, 12_200)] {
            test.add_waiting(began, ended, 790);
        }
        assert!(test.untold(22_000).unwrap().contains(": it waited for a processor;"), "one thread after the other");
        (60..70).for_each(|half| test.stalls.beat(test.at(500 * half), Duration::ZERO));
        test.stalls.beat(test.at(38_000), Duration::ZERO);
        test.add_waiting(37_000, 37_300, 290);
        let text = test.untold(39_000).unwrap();
        assert!(text.contains(": it waited for a processor;"), "the control thread knows of no wait: {text}");
        let unknown = Test { stalls: HostStalls { kernel_counts: false, ..HostStalls::new() }, ..test };
        unknown.add(0, 800);
        assert!(unknown.untold(2000).unwrap().contains(": it was stopped, or had no processor;"));
    }

    #[test]
    fn stalls_of_threads_in_turn_are_told_although_they_never_end() {
        let test = Test::new();
        let told = (0..30).filter(|second| {
            test.add(1000 * second, 1000 * second + 1100);
            test.untold(1000 * second + 1100).is_some()
        });
        assert_eq!(told.collect::<Vec<_>>(), [9, 19, 29]);
    }

    #[test]
    fn a_stall_that_grows_is_told_again() {
        let test = Test::new();
        test.add(0, 200);
        assert!(test.untold(700).is_some());
        test.add(150, 220);
        assert_eq!(test.untold(15_000), None);
        test.add(150, 900);
        assert!(test.untold(30_000).unwrap().contains("for 900.0ms"));
    }

    #[test]
    fn a_silent_host_may_be_why_a_controller_ended_its_connections() {
        let test = Test::new();
        let silence = |ms, keep_alive| test.stalls.silence(test.at(ms), keep_alive);
        assert_eq!(silence(100, 5000 * MS), None);
        test.add(100, 20_000);
        let text = silence(12_600, 5000 * MS).unwrap();
        assert!(text.contains("did not run the daemon for 12.0s") && text.ends_with("(keep-alive-tmo 5s)"), "{text}");
        assert_eq!(silence(12_700, 30_000 * MS), None, "the stall was too short");
        (26..36).for_each(|half| test.stalls.beat(test.at(500 * half), Duration::ZERO));
        assert_eq!(silence(17_600, 5000 * MS), None, "long after, and an I/O thread sends no keep-alives");
    }

    #[test]
    fn the_memory_is_bounded() {
        let test = Test::new();
        for n in 0..2000 {
            test.add(1000 * n, 1000 * n + 500);
            assert!(test.stalls.lock().kept.len() <= MOST);
        }
        (0..2000).for_each(|n| test.add(1000 * n, 1000 * n + 500));
        assert_eq!(test.stalls.lock().kept.len(), MOST);
    }
}
