//! Decides: a thread polls for this long.
//!
//! When an I/O thread polls: it looks for requests and answers for a while before it sleeps.
//!
//! A polling thread needs no wake-up, and no guest has to kick it. But polling takes a core, which the target, the guest or others may
//! need more. So the thread asks every millisecond whether threads of the host wait for a processor, and sleeps if they do. Otherwise
//! it tries: in a trial it polls and sleeps by turns, and compares how much time passes for each request that it finishes. Polling
//! goes on for a while if that time became shorter by a tenth.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use monotonic::{Duration, Instant};

/// The number of idle times in a trial. An idle time lasts from the end of a turn to the next event.
const TRIAL: u32 = 128;
/// The number of idle times after which a trial changes between polling and sleeping.
const RUN: u32 = 8;
/// How long polling goes on after a trial in which it paid.
const PAYS_FOR: Duration = Duration::from_millis(200);
/// The time without polling after polling has ended or did not pay. It doubles until a thread polls for [`PAYS_FOR`].
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(1);
/// The number of idle times in a row, each longer than the limit, after which polling ends.
const MISSES_MAX: u32 = 2;
/// How often a thread that does not rest asks whether others wait for a processor. The answer takes about a microsecond.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// Decides when a thread polls, and for how long.
#[derive(Debug)]
pub(crate) struct Polling {
    /// The longest time to poll without an event.
    limit: Duration,
    phase: Phase,
    /// The length of the next rest.
    rest: Duration,
    /// The number of idle times in a row that were longer than the limit.
    misses: u32,
    /// When to ask again whether others wait for a processor.
    ask_at: Option<Instant>,
    polled: Arc<PolledTime>,
}

/// The time that a thread has polled since its start. Other threads may read it.
#[derive(Debug, Default)]
pub(crate) struct PolledTime {
    nanoseconds: AtomicU64,
}

impl PolledTime {
    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    fn add(&self, time: Duration) {
        self.nanoseconds.fetch_add(time.as_nanos(), Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Phase {
    Trial(Trial),
    Polls { until: Instant },
    Rests { until: Instant },
}

#[derive(Debug, Default)]
struct Trial {
    /// Idle times so far.
    count: u32,
    slept: Side,
    polled: Side,
    /// The end of the last idle time, and the requests finished until then.
    last: Option<(Instant, u64)>,
}

/// The part of a trial with polling, or the one without.
#[derive(Debug, Default)]
struct Side {
    time: Duration,
    requests: u64,
}

impl Polling {
    /// No polling, until [`Polling::set_limit`]. Its time is added to `polled`.
    pub(crate) fn new(polled: Arc<PolledTime>) -> Self {
        Self {
            limit: Duration::ZERO,
            phase: Phase::Trial(Trial::default()),
            rest: REST_MIN,
            misses: 0,
            ask_at: None,
            polled,
        }
    }

    /// Polls for at most `limit` at a time from now on. Zero: not at all.
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Whether the thread may poll at all.
    pub(crate) fn is_allowed(&self) -> bool {
        !self.limit.is_zero()
    }

    /// How long to poll in the idle time that begins, at most. Zero: sleep at once. `others_wait` says whether runnable threads wait
    /// for a processor.
    pub(crate) fn begin_idle(&mut self, now: Instant, others_wait: impl FnOnce() -> bool) -> Duration {
        if let Phase::Polls { until } | Phase::Rests { until } = self.phase
            && until <= now
        {
            if self.polls() {
                self.rest = REST_MIN;
            }
            self.phase = Phase::Trial(Trial::default());
        }
        if !matches!(self.phase, Phase::Rests { .. }) && self.ask_at.is_none_or(|at| at <= now) {
            self.ask_at = Some(now + ASK_EVERY);
            if others_wait() {
                self.rest(now);
            }
        }
        if self.polls() { self.limit } else { Duration::ZERO }
    }

    fn polls(&self) -> bool {
        match &self.phase {
            Phase::Trial(trial) => trial.polls(),
            Phase::Polls { .. } => true,
            Phase::Rests { .. } => false,
        }
    }

    fn rest(&mut self, now: Instant) {
        self.phase = Phase::Rests { until: now + self.rest };
        self.rest = REST_MAX.min(2 * self.rest);
        self.misses = 0;
    }

    /// Takes note of an idle time that has ended. `requests` have finished since the start of the thread.
    pub(crate) fn end_idle(&mut self, now: Instant, idle: Duration, requests: u64) {
        if self.polls() {
            self.polled.add(idle.min(self.limit));
            self.misses = if idle > self.limit { self.misses + 1 } else { 0 };
        }
        if self.misses >= MISSES_MAX {
            return self.rest(now);
        }
        if let Phase::Trial(trial) = &mut self.phase
            && let Some(pays) = trial.add(now, idle.saturating_sub(2 * self.limit), requests)
        {
            if pays {
                self.phase = Phase::Polls { until: now + PAYS_FOR };
            } else {
                self.rest(now);
            }
        }
    }
}

impl Trial {
    fn polls(&self) -> bool {
        self.count / RUN % 2 == 1
    }

    /// Adds an idle time without its part `late`. That part says nothing about the time to wake up: the next request
    /// came late. At the end of the trial, returns whether polling pays.
    fn add(&mut self, now: Instant, late: Duration, requests: u64) -> Option<bool> {
        let side = if self.polls() { &mut self.polled } else { &mut self.slept };
        if let Some((ended, finished)) = self.last.replace((now, requests)) {
            side.time += (now - ended).saturating_sub(late);
            side.requests += requests - finished;
        }
        self.count += 1;
        (self.count == TRIAL).then(|| {
            // Compares the time for a request, without a division.
            let [polled, slept] = [(&self.polled, self.slept.requests), (&self.slept, self.polled.requests)]
                .map(|(side, others)| u128::from(side.time.as_nanos()) * u128::from(others));
            10 * polled <= 9 * slept && slept > 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(200);

    /// A thread that is idle for `polled_us` if it polls, or for `slept_us` if it sleeps, and then finishes a request.
    struct Test {
        now: Instant,
        polling: Polling,
        polled_us: u64,
        slept_us: u64,
        /// The requests that finish after each idle time asleep.
        merged: u64,
        requests: u64,
        others_wait: bool,
        /// How often the thread has asked whether others wait.
        asked: u32,
    }

    impl Test {
        fn new(polled_us: u64, slept_us: u64) -> Self {
            let (now, mut polling) = (Instant::now(), Polling::new(Arc::default()));
            polling.set_limit(LIMIT);
            Self { now, polling, polled_us, slept_us, merged: 1, requests: 7, others_wait: false, asked: 0 }
        }

        /// Passes an idle time. Returns whether the thread has polled.
        fn idle(&mut self, late: Duration) -> bool {
            let polls = !self
                .polling
                .begin_idle(self.now, || {
                    self.asked += 1;
                    self.others_wait
                })
                .is_zero();
            let idle = late + Duration::from_micros(if polls { self.polled_us } else { self.slept_us });
            self.now += idle;
            self.requests += if polls { 1 } else { self.merged };
            self.polling.end_idle(self.now, idle, self.requests);
            polls
        }

        /// Lets this much time pass. Returns the share of idle times in which the thread polled.
        fn pass(&mut self, time: Duration) -> f64 {
            let (until, mut polled, mut all) = (self.now + time, 0, 0);
            while self.now < until {
                polled += u32::from(self.idle(Duration::ZERO));
                all += 1;
            }
            f64::from(polled) / f64::from(all)
        }
    }

    #[test]
    fn polls_where_that_pays() {
        assert!(Test::new(30, 60).pass(Duration::from_secs(5)) > 0.9);
        assert!(Test::new(58, 60).pass(Duration::from_secs(5)) < 0.02, "it saves too little");
        assert!(Test::new(90, 60).pass(Duration::from_secs(5)) < 0.02, "it takes a core from the target, say");
        assert!(Test::new(1000, 1030).pass(Duration::from_secs(5)) < 0.02, "nothing comes in time");
    }

    /// Answers that come while a thread wakes up are taken at once.
    #[test]
    fn shorter_idle_times_with_fewer_requests_do_not_pay() {
        let merged = Test { merged: 2, ..Test::new(30, 60) };
        assert!({ merged }.pass(Duration::from_secs(5)) < 0.02);
    }

    #[test]
    fn the_end_of_the_load_ends_polling() {
        let mut test = Test::new(30, 60);
        test.pass(Duration::from_millis(100));
        assert!(test.idle(5 * LIMIT));
        assert!(test.idle(5 * LIMIT), "one pause of the guest is no end of its load");
        assert!(!test.idle(5 * LIMIT));
    }

    #[test]
    fn a_thread_never_polls_while_others_wait_for_a_processor() {
        let mut test = Test::new(30, 60);
        test.pass(Duration::from_millis(100));
        test.others_wait = true;
        test.pass(ASK_EVERY);
        test.asked = 0;
        assert!(test.pass(Duration::from_secs(5)) == 0.0);
        assert!((3..10).contains(&test.asked), "{}", test.asked);
        test.others_wait = false;
        test.pass(REST_MAX);
        assert!(test.pass(Duration::from_secs(5)) > 0.9, "the others have gone");
    }

    #[test]
    fn the_time_of_polling_is_counted_and_no_other() {
        let mut test = Test::new(30, 60);
        assert!(!test.idle(Duration::ZERO));
        assert_eq!(test.polling.polled.get(), Duration::ZERO);
        while !test.idle(Duration::ZERO) {}
        assert_eq!(test.polling.polled.get(), Duration::from_micros(30));
        assert!(test.idle(5 * LIMIT));
        assert_eq!(test.polling.polled.get(), Duration::from_micros(30) + LIMIT, "then the thread slept");
    }

    #[test]
    fn a_polling_thread_seldom_asks_whether_others_wait() {
        let mut test = Test::new(30, 60);
        test.pass(Duration::from_secs(1));
        assert!((500..1001).contains(&test.asked), "{}", test.asked);
    }
}
