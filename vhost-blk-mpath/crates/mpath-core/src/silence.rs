//! Decides: a path is suspect from this time on.
//!
//! The silence of paths, by which suspect paths are recognised.
//!
//! A grey path takes commands and answers none: its target has stopped while the kernel below still acknowledges, or
//! packets are dropped. The host sees silence in both cases. A path is *suspect* while it owes answers, has been
//! silent for longer than its deadline, and **another path is faster**. The faster path answers such requests in less
//! time than this path has been silent. It is then preferred. One sign of life ends the suspicion.
//!
//! Suspicion compares, because a slow array is no reason to leave a path. Where all paths are silent, none is suspect,
//! and requests stay where they are. `Group::is_other_faster` compares: a path without such requests counts as faster,
//! until a request that moves there shows otherwise. Late answers show it too ([`crate::late_answers`]): if there are
//! many, only a longer deadline counts.
//!
//! Suspicion ends no association. Only the keep-alive and the I/O timeout do. [`crate::overdue_reads`] handles single
//! reads that a path loses while it answers others.
//!
//! * **Silence** is the time since the last sign of life, or since the issue of the first request after the path owed
//!   nothing. An older request waits from the last sign of life, so no list of requests is needed. The delay of an
//!   injection comes before the issue and does not count. A deep queue does not count: a path that works it off gives
//!   a sign with each answer. Up to 32 KiB of arriving data count as one sign. Only time in which this process looked
//!   counts ([`crate::attention`]).
//! * **The deadline of silence** is `FACTOR` times the longest silence that ended well within the last one or two
//!   `WINDOW`s. It is at least `FLOOR` and at most the setting, unless late answers are overdrawn. It follows a maximum
//!   over time, not an average with its variance (RFC 6298). At 100,000 answers a second, an average forgets within a
//!   millisecond that a target pauses for 40 ms every other second. A false alarm raises the maximum too, so a path
//!   raises few of them.

use monotonic::{Duration, Instant};

use crate::attention::Attention;

/// The shortest deadline. A healthy path in a data centre may wait for scheduling and retransmission, but not for so
/// long (Linux: RTO ≥ 200 ms, but a tail loss probe after two round trips).
pub(crate) const FLOOR: Duration = Duration::from_millis(100);
/// The deadline, as a multiple of the longest recent wait.
pub(crate) const FACTOR: u32 = 4;
/// How long a wait is remembered, at least; at most twice that.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// How long the latency of a path's last request is remembered, at most.
const LATENCY_KEPT: Duration = Duration::from_secs(60);
/// How long after the deadline, and again, a path is compared with others.
pub(crate) const COMPARE_EVERY: Duration = Duration::from_millis(20);
/// How long after the deadline, and again, a path without others is looked at. News of others has the path compared at once.
const ALONE_EVERY: Duration = Duration::from_secs(1);
/// The most doublings of the time before a request is recalled again.
const DOUBLINGS_MAX: u32 = 8;

/// The longest wait of this window and of the window before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongestWait {
    waits: [Duration; 2],
    /// When this window ends. The first window begins with the first wait.
    window_end: Option<Instant>,
}

impl LongestWait {
    /// The waits of a path without history: in the first window, the longest wait is at least `wait`.
    pub(crate) fn assumed(wait: Duration) -> Self {
        Self { waits: [wait, Duration::ZERO], window_end: None }
    }

    /// The longest recent wait; `None` if there was none.
    #[inline]
    pub(crate) fn of(&self, now: Instant) -> Option<Duration> {
        let end = self.window_end?;
        match now {
            now if now < end => Some(self.waits[0].max(self.waits[1])),
            now if now < end + WINDOW => Some(self.waits[0]),
            _ => None,
        }
    }

    /// Records a wait that ended now. Returns the new longest wait, if it may have changed.
    #[inline]
    pub(crate) fn remember(&mut self, now: Instant, wait: Duration) -> Option<Duration> {
        let end = *self.window_end.get_or_insert_with(|| now + WINDOW);
        if now >= end {
            let last = if now < end + WINDOW { self.waits[0] } else { Duration::ZERO };
            self.waits = [wait, last];
            self.window_end = Some(now + WINDOW);
        } else if wait > self.waits[0] {
            self.waits[0] = wait;
        } else {
            return None;
        }
        Some(self.waits[0].max(self.waits[1]))
    }
}

/// The latency of the last request of a kind that a path has answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastLatency {
    pub(crate) answered_at: Instant,
    pub(crate) latency: Duration,
}

impl LastLatency {
    /// The latency, unless it is too old to count.
    pub(crate) fn get(self, now: Instant) -> Option<Duration> {
        (now < self.answered_at + LATENCY_KEPT).then_some(self.latency)
    }

    /// The latency as a measure for a silent path whose own last latency is `own`. After `WINDOW` it counts only if it is no
    /// more than twice `own`: a pause of all paths must not excuse a silence for long.
    pub(crate) fn compared(self, now: Instant, own: Option<Duration>) -> Option<Duration> {
        let is_recent = now < self.answered_at + WINDOW;
        self.get(now).filter(|latency| is_recent || own.is_some_and(|own| *latency <= 2 * own))
    }
}

/// The silence of one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SilenceWatch {
    /// The setting `suspect-timeout`.
    timeout: Duration,
    /// Requests issued and neither answered nor recalled.
    issued: u32,
    /// Recalled requests with answers that have not arrived yet.
    abandoned: u32,
    /// The time since which the path owes answers and has been silent.
    waiting_since: Option<Instant>,
    suspect: bool,
    /// When to compare the path again. It has been silent for its deadline, and no other path was faster.
    compare_at: Option<Instant>,
    /// The path was suspect, and answers requests that it has kept.
    false_alarm: bool,
    silences: LongestWait,
    deadline: Duration,
    /// The deadline without its bounds.
    long_deadline: Duration,
}

impl SilenceWatch {
    /// The silence of a new association. It has no history, so the deadline is the longest, `timeout`, for the first
    /// window.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            issued: 0,
            abandoned: 0,
            waiting_since: None,
            suspect: false,
            compare_at: None,
            false_alarm: false,
            silences: LongestWait::assumed(timeout),
            deadline: timeout,
            long_deadline: FACTOR * timeout,
        }
    }

    /// Counts an issued request. Returns whether the path owed nothing before.
    #[inline]
    pub(crate) fn issued(&mut self, now: Instant) -> bool {
        self.issued += 1;
        let is_first = self.waiting_since.is_none();
        self.waiting_since.get_or_insert(now);
        is_first
    }

    /// Counts an answered request, which ends the silence.
    #[inline]
    pub(crate) fn answered(&mut self, now: Instant, attention: &Attention) {
        self.sign_of_life(now, attention);
        self.issued -= 1;
        self.stop_if_idle();
    }

    /// Counts a recalled request. If `abandoned`, its answer has yet to arrive; otherwise it was never sent.
    pub(crate) fn recalled(&mut self, abandoned: bool) {
        self.issued -= 1;
        self.abandoned += u32::from(abandoned);
        self.stop_if_idle();
    }

    /// Counts a request that came back without an answer and will get none.
    pub(crate) fn returned_unanswered(&mut self) {
        self.issued -= 1;
        self.stop_if_idle();
    }

    /// Takes a sign of life of the path: data, or answers to `answered` abandoned requests.
    pub(crate) fn progress(&mut self, now: Instant, answered: u32, attention: &Attention) {
        assert!(answered <= self.abandoned, "an abandoned request is answered once");
        self.abandoned -= answered;
        self.sign_of_life(now, attention);
        self.stop_if_idle();
    }

    /// Corrects the counts after the end of an injection: `issued` requests were not really issued, and `abandoned`
    /// requests not really abandoned. For the other requests, silence counts from now on. The silence so far is not
    /// remembered.
    pub(crate) fn forget(&mut self, now: Instant, issued: u32, abandoned: u32) {
        self.issued -= issued;
        self.abandoned -= abandoned;
        self.suspect = false;
        self.compare_at = None;
        self.waiting_since = Some(now);
        self.stop_if_idle();
    }

    /// Recalled requests that the queue pair still holds.
    pub(crate) fn abandoned(&self) -> u32 {
        self.abandoned
    }

    /// Whether the path owes an answer.
    pub(crate) fn owes(&self) -> bool {
        self.issued + self.abandoned > 0
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// The silence after which the path is compared with others.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Takes whether a suspicion has ended, and the path answers requests that were not recalled.
    pub(crate) fn take_false_alarm(&mut self) -> bool {
        std::mem::take(&mut self.false_alarm)
    }

    /// How long the path has owed answers and been silent.
    pub(crate) fn silence(&self, now: Instant, attention: &Attention) -> Duration {
        self.waiting_since.map_or(Duration::ZERO, |since| attention.between(since, now))
    }

    /// When the path may become suspect if it stays silent.
    pub(crate) fn due(&self, attention: &Attention) -> Option<Instant> {
        let since = self.waiting_since.filter(|_| !self.suspect)?;
        Some(attention.after(since, self.deadline).max(self.compare_at.unwrap_or(since)))
    }

    /// Makes the path suspect if it is due and `is_other_faster` says so of the time that it has been silent. Returns
    /// whether it became suspect. `patient`: the setting does not bound the deadline.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        attention: &Attention,
        patient: bool,
        is_other_faster: impl FnOnce(Duration) -> bool,
    ) -> bool {
        if self.due(attention).is_none_or(|due| now < due) {
            return false;
        }
        let silence = self.silence(now, attention);
        self.suspect = (!patient || self.long_deadline <= silence) && is_other_faster(silence);
        self.compare_at = Some(now + COMPARE_EVERY);
        self.suspect
    }

    /// Puts the comparison off if it is due: there is no other path.
    pub(crate) fn put_off(&mut self, now: Instant, attention: &Attention) {
        if self.due(attention).is_some_and(|due| due <= now) {
            self.compare_at = Some(now + ALONE_EVERY);
        }
    }

    /// Has the path compared at once if it is due, because another path is usable now.
    pub(crate) fn compare_now(&mut self) {
        self.compare_at = None;
    }

    /// When to recall a request from this suspect path; `recalls`: how often the request was recalled before.
    pub(crate) fn recall_at(&self, recalls: u32, attention: &Attention) -> Option<Instant> {
        Some(attention.after(self.waiting_since?, doubled(self.deadline, recalls)))
    }

    fn sign_of_life(&mut self, now: Instant, attention: &Attention) {
        if self.waiting_since == Some(now) && !self.suspect {
            // One of several answers that arrived together.
            return;
        }
        self.false_alarm |= self.suspect && self.issued > 0;
        if let Some(since) = self.waiting_since
            && let Some(longest) = self.silences.remember(now, attention.between(since, now))
        {
            self.long_deadline = longest.saturating_mul(FACTOR);
            self.deadline = self.long_deadline.max(FLOOR).min(self.timeout);
        }
        self.waiting_since = Some(now);
        self.suspect = false;
        self.compare_at = None;
    }

    /// Ends silence and suspicion if the path owes nothing.
    #[inline]
    fn stop_if_idle(&mut self) {
        if !self.owes() {
            self.waiting_since = None;
            self.suspect = false;
            self.compare_at = None;
        }
    }
}

/// The time after which a request is recalled that has already been recalled `recalls` times. The first two recalls
/// come after `time`, because two paths may turn grey together. Then the time doubles, so that a request ends even if
/// all paths are slow.
#[inline]
pub(crate) fn doubled(time: Duration, recalls: u32) -> Duration {
    time * (1 << recalls.saturating_sub(1).min(DOUBLINGS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const TIMEOUT: Duration = Duration::from_millis(300);

    /// A path with a long history of single requests that took `latency` each.
    fn known(now: &mut Instant, latency: Duration) -> SilenceWatch {
        let mut watch = SilenceWatch::new(TIMEOUT);
        for _ in 0..3 {
            one(&mut watch, now, latency);
            *now += WINDOW;
        }
        watch
    }

    fn one(watch: &mut SilenceWatch, now: &mut Instant, latency: Duration) {
        watch.issued(*now);
        *now += latency;
        watch.answered(*now, &always());
        assert_eq!(watch.due(&always()), None, "nothing is owed");
    }

    /// The attention of a thread that has never stood still.
    fn always() -> Attention {
        Attention::new()
    }

    /// Whether the path becomes suspect, with another path that is always faster.
    fn check(watch: &mut SilenceWatch, now: Instant) -> bool {
        watch.check(now, &always(), false, |_| true)
    }

    #[test]
    fn the_first_issue_counts_and_then_each_sign_of_life() {
        let start = Instant::now();
        let mut watch = SilenceWatch::new(TIMEOUT);
        assert_eq!(watch.due(&always()), None);
        watch.issued(start);
        watch.issued(start + 200 * MS);
        assert_eq!(watch.due(&always()), Some(start + TIMEOUT));
        watch.answered(start + 250 * MS, &always());
        assert_eq!(watch.due(&always()), Some(start + 250 * MS + TIMEOUT));
        watch.progress(start + 260 * MS, 0, &always());
        assert_eq!(watch.due(&always()), Some(start + 260 * MS + TIMEOUT));
        assert!(!check(&mut watch, start + 559 * MS));
        assert!(check(&mut watch, start + 560 * MS) && watch.is_suspect());
        assert!(!check(&mut watch, start + 561 * MS), "once");
        watch.answered(start + 600 * MS, &always());
        assert!(!watch.is_suspect());
    }

    #[test]
    fn the_deadline_follows_the_longest_wait_within_its_bounds() {
        for (latency, deadline) in [(MS, 100), (30 * MS, 120), (60 * MS, 240), (200 * MS, 300)] {
            let mut now = Instant::now();
            let mut watch = known(&mut now, latency);
            watch.issued(now);
            assert_eq!(watch.due(&always()), Some(now + deadline * MS), "{latency:?}");
        }
        // A setting below `FLOOR` replaces it.
        let now = Instant::now();
        let mut watch = SilenceWatch::new(50 * MS);
        watch.issued(now);
        assert_eq!(watch.due(&always()), Some(now + 50 * MS));
    }

    #[test]
    fn a_pause_is_remembered_for_a_window_despite_fast_answers() {
        let mut now = Instant::now();
        let mut watch = known(&mut now, MS);
        one(&mut watch, &mut now, 50 * MS);
        let pause = now;
        let mut deadline = || {
            one(&mut watch, &mut now, MS);
            watch.deadline
        };
        for _ in 0..9000 {
            assert_eq!(deadline(), 200 * MS);
        }
        while deadline() > FLOOR {}
        assert!((WINDOW..=2 * WINDOW + 2 * MS).contains(&(now - pause)), "{:?}", now - pause);
    }

    #[test]
    fn a_deep_queue_that_is_worked_off_is_no_silence() {
        let mut now = Instant::now();
        let mut watch = known(&mut now, MS);
        assert_eq!((0..1000).filter(|_| watch.issued(now)).count(), 1);
        for _ in 0..1000 {
            now += 2 * MS;
            assert!(!check(&mut watch, now));
            watch.answered(now, &always());
        }
    }

    #[test]
    fn abandoned_requests_are_owed_and_unsent_ones_are_not() {
        let now = Instant::now();
        let mut watch = SilenceWatch::new(TIMEOUT);
        watch.issued(now);
        watch.issued(now);
        assert!(check(&mut watch, now + TIMEOUT));
        watch.recalled(true);
        watch.recalled(false);
        assert!(watch.is_suspect() && watch.abandoned() == 1);
        watch.progress(now + 2 * TIMEOUT, 1, &always());
        assert!(!watch.is_suspect() && watch.due(&always()).is_none());
        watch.issued(now);
        assert!(check(&mut watch, now + TIMEOUT));
        watch.recalled(false);
        assert!(!watch.is_suspect(), "nothing that was sent is unanswered");
    }

    #[test]
    fn the_third_recall_of_a_request_takes_longer() {
        let now = Instant::now();
        let mut watch = SilenceWatch::new(TIMEOUT);
        assert_eq!(watch.recall_at(0, &always()), None);
        watch.issued(now);
        let times = [0, 1, 2, 3, 9, 10, u32::MAX].map(|recalls| watch.recall_at(recalls, &always()).unwrap() - now);
        assert_eq!(times, [1, 1, 2, 4, 256, 256, 256].map(|times| TIMEOUT * times));
    }
}
