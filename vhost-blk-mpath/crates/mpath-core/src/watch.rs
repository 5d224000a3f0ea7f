//! Whether a path answers: the progress watch.
//!
//! A grey path takes commands and answers none: its target has stopped while the kernel below it goes on acknowledging, or
//! packets are dropped. The host sees the same in both cases, silence. A path is *suspect* while it owes answers and has
//! given no sign of life for longer than its deadline. Other paths are then preferred. One sign of life ends the suspicion.
//!
//! Suspicion ends no association: only the keep-alive and the I/O timeout do. Single reads that a path loses while it answers
//! others are the matter of [`crate::overdue`].
//!
//! * **Silence** is the time since the last sign of life, or since the issue of the first request after the path owed nothing.
//!   A request that was issued before the last sign waits from that sign on, so no list of requests is needed. The delay of
//!   an injection comes before the issue and does not count. A deep queue does not count either: a path that works it off
//!   gives a sign with each answer. Up to 32 KiB of data on their way count as one sign.
//! * **The deadline of silence** is `FACTOR` times the longest silence that ended well within the last one or two `WINDOW`s, at
//!   least `FLOOR`, at most the setting. A maximum over time and not an average with its variance (RFC 6298): an average over
//!   answers forgets, at 100,000 a second, within a millisecond that a target pauses for 40 ms every other second. A false
//!   alarm becomes history itself, so that a path raises few of them.
//! * **A slow path** that takes longer than the setting for each answer, with nothing between, is suspect each time. Its
//!   reads go elsewhere, at most twice that soon (see `doubled`); its writes wait for it.

use std::time::{Duration, Instant};

/// The shortest deadline: longer than scheduling and retransmission (Linux: RTO ≥ 200 ms, but a tail loss probe after two
/// round trips) make a healthy path wait in a data centre.
pub(crate) const FLOOR: Duration = Duration::from_millis(100);
/// Deadline over the longest wait of late.
pub(crate) const FACTOR: u32 = 4;
/// How long a wait is remembered, at least, and at most twice that.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Most doublings of the time before a request is recalled again.
const DOUBLINGS_MAX: u32 = 8;

/// The longest wait of this window and of the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longest {
    waits: [Duration; 2],
    /// When this window ends; the first one begins with the first wait.
    window_end: Option<Instant>,
}

impl Longest {
    /// Nothing is known: for the first window at least `wait` is assumed.
    pub(crate) fn assumed(wait: Duration) -> Self {
        Self { waits: [wait, Duration::ZERO], window_end: None }
    }

    /// The longest wait of late; `None` if there was none.
    pub(crate) fn of(&self, now: Instant) -> Option<Duration> {
        let end = self.window_end?;
        match now {
            now if now < end => Some(self.waits[0].max(self.waits[1])),
            now if now < end + WINDOW => Some(self.waits[0]),
            _ => None,
        }
    }

    /// Takes a wait that ended now: the new longest one, if it may have changed.
    pub(crate) fn remember(&mut self, now: Instant, wait: Duration) -> Option<Duration> {
        let end = *self.window_end.get_or_insert(now + WINDOW);
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

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// The setting.
    timeout: Duration,
    /// Requests issued and neither answered nor recalled.
    issued: u32,
    /// Requests recalled whose answers have yet to come.
    abandoned: u32,
    /// Since when the path, which owes something, has been silent.
    waiting_since: Option<Instant>,
    suspect: bool,
    silences: Longest,
    deadline: Duration,
}

impl Watch {
    /// Of a fresh association. Nothing is known of it: for the first window its deadline is `timeout`, the longest.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            issued: 0,
            abandoned: 0,
            waiting_since: None,
            suspect: false,
            silences: Longest::assumed(timeout),
            deadline: timeout,
        }
    }

    /// A request was issued.
    pub(crate) fn issued(&mut self, now: Instant) {
        self.issued += 1;
        self.waiting_since.get_or_insert(now);
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.issued -= 1;
        self.sign_of_life(now);
    }

    /// A request was recalled: its answer is still to come if it is `abandoned`, otherwise it was never sent.
    pub(crate) fn recalled(&mut self, abandoned: bool) {
        self.issued -= 1;
        self.abandoned += u32::from(abandoned);
        self.settle();
    }

    /// A request came back unanswered, and is not going to be answered.
    pub(crate) fn gone(&mut self) {
        self.issued -= 1;
        self.settle();
    }

    /// The path gave a sign of life: data, or the answers of so many abandoned requests.
    pub(crate) fn progress(&mut self, now: Instant, answered: u32) {
        assert!(answered <= self.abandoned, "an abandoned request is answered once");
        self.abandoned -= answered;
        self.sign_of_life(now);
    }

    /// So many requests were not really issued, so many not really abandoned: an injection has ended. Whatever else the path
    /// owes is waited for from now on, and nothing is remembered.
    pub(crate) fn forget(&mut self, now: Instant, issued: u32, abandoned: u32) {
        self.issued -= issued;
        self.abandoned -= abandoned;
        self.suspect = false;
        self.waiting_since = Some(now);
        self.settle();
    }

    /// Requests that the queue pair still holds although nobody waits for them.
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

    /// When the path becomes suspect if it stays silent.
    pub(crate) fn due(&self) -> Option<Instant> {
        Some(self.waiting_since.filter(|_| !self.suspect)? + self.deadline)
    }

    /// Whether the path becomes suspect now.
    pub(crate) fn check(&mut self, now: Instant) -> bool {
        let becomes = self.due().is_some_and(|due| due <= now);
        self.suspect |= becomes;
        becomes
    }

    /// When a request that was recalled `recalls` times before is recalled from this path, which is suspect.
    pub(crate) fn recall_at(&self, recalls: u32) -> Option<Instant> {
        Some(self.waiting_since? + doubled(self.deadline, recalls))
    }

    fn sign_of_life(&mut self, now: Instant) {
        if let Some(since) = self.waiting_since
            && let Some(longest) = self.silences.remember(now, now - since)
        {
            self.deadline = longest.saturating_mul(FACTOR).max(FLOOR).min(self.timeout);
        }
        self.waiting_since = Some(now);
        self.suspect = false;
        self.settle();
    }

    /// Who owes nothing is not waited for.
    fn settle(&mut self) {
        if !self.owes() {
            self.waiting_since = None;
            self.suspect = false;
        }
    }
}

/// The time before a request is recalled that was recalled `recalls` times before. Twice that is at once, for two paths may
/// turn grey together; afterwards the time doubles, so that a request comes to its end on slow paths too, however many of
/// them there are.
pub(crate) fn doubled(time: Duration, recalls: u32) -> Duration {
    time * (1 << recalls.saturating_sub(1).min(DOUBLINGS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const TIMEOUT: Duration = Duration::from_millis(300);

    /// A path that has answered single requests after `latency` for so long that nothing else is remembered.
    fn known(now: &mut Instant, latency: Duration) -> Watch {
        let mut watch = Watch::new(TIMEOUT);
        for _ in 0..3 {
            one(&mut watch, now, latency);
            *now += WINDOW;
        }
        watch
    }

    fn one(watch: &mut Watch, now: &mut Instant, latency: Duration) {
        watch.issued(*now);
        *now += latency;
        watch.answered(*now);
        assert_eq!(watch.due(), None, "nothing is owed");
    }

    #[test]
    fn the_first_issue_counts_and_then_each_sign_of_life() {
        let start = Instant::now();
        let mut watch = Watch::new(TIMEOUT);
        assert_eq!(watch.due(), None);
        watch.issued(start);
        watch.issued(start + 200 * MS);
        assert_eq!(watch.due(), Some(start + TIMEOUT));
        watch.answered(start + 250 * MS);
        assert_eq!(watch.due(), Some(start + 250 * MS + TIMEOUT));
        watch.progress(start + 260 * MS, 0);
        assert_eq!(watch.due(), Some(start + 260 * MS + TIMEOUT));
        assert!(!watch.check(start + 559 * MS));
        assert!(watch.check(start + 560 * MS) && watch.is_suspect());
        assert!(!watch.check(start + 561 * MS), "once");
        watch.answered(start + 600 * MS);
        assert!(!watch.is_suspect());
    }

    #[test]
    fn the_deadline_follows_the_longest_wait_within_its_bounds() {
        for (latency, deadline) in [(MS, 100), (30 * MS, 120), (60 * MS, 240), (200 * MS, 300)] {
            let mut now = Instant::now();
            let mut watch = known(&mut now, latency);
            watch.issued(now);
            assert_eq!(watch.due(), Some(now + deadline * MS), "{latency:?}");
        }
        // A setting below the floor wins.
        let now = Instant::now();
        let mut watch = Watch::new(50 * MS);
        watch.issued(now);
        assert_eq!(watch.due(), Some(now + 50 * MS));
    }

    #[test]
    fn a_pause_is_remembered_for_a_window_whatever_comes_between() {
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
    fn a_deep_queue_is_no_reason_while_it_is_worked_off() {
        let mut now = Instant::now();
        let mut watch = known(&mut now, MS);
        (0..1000).for_each(|_| watch.issued(now));
        for _ in 0..1000 {
            now += 2 * MS;
            assert!(!watch.check(now));
            watch.answered(now);
        }
    }

    #[test]
    fn abandoned_requests_are_owed_and_unsent_ones_are_not() {
        let now = Instant::now();
        let mut watch = Watch::new(TIMEOUT);
        watch.issued(now);
        watch.issued(now);
        assert!(watch.check(now + TIMEOUT));
        watch.recalled(true);
        watch.recalled(false);
        assert!(watch.is_suspect() && watch.abandoned() == 1);
        watch.progress(now + 2 * TIMEOUT, 1);
        assert!(!watch.is_suspect() && watch.due().is_none());
        watch.issued(now);
        assert!(watch.check(now + TIMEOUT));
        watch.recalled(false);
        assert!(!watch.is_suspect(), "nothing that was sent is unanswered");
    }

    #[test]
    fn the_third_recall_of_a_request_takes_longer() {
        let now = Instant::now();
        let mut watch = Watch::new(TIMEOUT);
        assert_eq!(watch.recall_at(0), None);
        watch.issued(now);
        let times = [0, 1, 2, 3, 9, 10, u32::MAX].map(|recalls| watch.recall_at(recalls).unwrap() - now);
        assert_eq!(times, [1, 1, 2, 4, 256, 256, 256].map(|times| TIMEOUT * times));
    }
}
