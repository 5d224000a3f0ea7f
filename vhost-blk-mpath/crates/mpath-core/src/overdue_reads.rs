//! Decides: a single read is overdue.
//!
//! Overdue reads: a path may lose a single command and answer others.
//!
//! A read is *overdue* when it has waited for much longer than the reads of its path take. It must also have waited for
//! longer than such reads take on another path (`Group::is_other_faster`). It is then recalled and sent to another path.
//! An overdue read makes no path suspect, and ends no association.
//!
//! * **The deadline** is `FACTOR` times the longest latency of the path's reads of that size, at least `FLOOR`. The
//!   latencies are those of the last one or two windows of [`LongestWait`]. Without such reads, the deadline is the
//!   setting `suspect-timeout`. A late answer to a recalled read counts too, so that a path raises few false alarms.
//! * **The setting** bounds a longer deadline if there is evidence, as in RACK (RFC 8985). Evidence is an answer to a
//!   read that is no smaller and was issued at least the setting later. Without evidence, the bound is
//!   `WITHOUT_EVIDENCE_FACTOR` times the setting. If age alone counted, each read of a deep queue would be recalled,
//!   and a saturated target would serve all of them twice.
//!   Nothing bounds the deadline while late answers are overdrawn ([`crate::late_answers`]).
//! * **Age** counts from the issue, so after the delay of an injection. A stalled read ages. Only time in which this
//!   process looked counts ([`crate::attention`]).

use monotonic::{Duration, Instant};

use crate::attention::Attention;
use crate::silence::{FACTOR, FLOOR, LastLatency, LongestWait, doubled};

/// The longest deadline without evidence, as a multiple of the setting.
const WITHOUT_EVIDENCE_FACTOR: u32 = 3;
/// Size classes: up to 16 KiB, 128 KiB, 1 MiB, and more.
const SIZES: usize = 4;

/// The size class, as an index.
#[inline]
pub(crate) fn size(bytes: u32) -> usize {
    const SMALL: u32 = 16 << 10;
    if bytes <= SMALL {
        return 0;
    }
    1 + usize::from(bytes > 128 << 10) + usize::from(bytes > 1 << 20)
}

/// The properties of a read that its deadline depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) issued_at: Instant,
    pub(crate) bytes: u32,
    /// How often the read has been recalled.
    pub(crate) recalls: u32,
}

/// The deadlines of reads on one association.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadDeadlines {
    /// The setting `suspect-timeout`.
    timeout: Duration,
    /// By size.
    latencies: [LongestWait; SIZES],
    /// By size: the last read that was answered and not recalled.
    last: [Option<LastLatency>; SIZES],
    /// By size: the latest issue time among the answered reads of that size or a larger one.
    answered_to: [Option<Instant>; SIZES],
    /// By size: an answer to a read issued at this time or later makes a waiting read overdue.
    evidence_at: [Option<Instant>; SIZES],
}

impl ReadDeadlines {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            latencies: [LongestWait::assumed(timeout / FACTOR); SIZES],
            last: [None; SIZES],
            answered_to: [None; SIZES],
            evidence_at: [None; SIZES],
        }
    }

    /// Takes the answer to a read. Returns whether the answer is evidence that may make another read overdue.
    #[inline]
    pub(crate) fn answered(&mut self, now: Instant, issued_at: Instant, bytes: u32, attention: &Attention) -> bool {
        let latency = attention.between(issued_at, now);
        self.record_latency(now, latency, bytes);
        self.last[size(bytes)] = Some(LastLatency { answered_at: now, latency });
        let mut may = false;
        for size in 0..=size(bytes) {
            self.answered_to[size] = self.answered_to[size].max(Some(issued_at));
            may |= self.evidence_at[size].take_if(|evidence_at| *evidence_at <= issued_at).is_some();
        }
        may
    }

    /// Records the latency of a read, recalled or not.
    pub(crate) fn record_latency(&mut self, now: Instant, latency: Duration, bytes: u32) {
        self.latencies[size(bytes)].remember(now, latency);
    }

    /// The last read of a size that was answered and not recalled.
    pub(crate) fn last(&self, size: usize) -> Option<LastLatency> {
        self.last[size]
    }

    #[inline]
    fn deadline(&self, now: Instant, read: Read) -> Duration {
        self.long_deadline(now, read).min(WITHOUT_EVIDENCE_FACTOR * self.timeout)
    }

    /// The deadline that nothing bounds from above.
    #[inline]
    fn long_deadline(&self, now: Instant, read: Read) -> Duration {
        let longest = self.latencies[size(read.bytes)].of(now);
        let deadline = longest.map_or(self.timeout, |longest| longest * FACTOR);
        deadline.max(FLOOR.min(self.timeout))
    }

    /// The earliest time at which a read that is issued now can be overdue.
    #[inline]
    pub(crate) fn earliest(&self, read: Read) -> Instant {
        read.issued_at + doubled(self.deadline(read.issued_at, read).min(self.timeout), read.recalls)
    }

    /// Starts a new pass over the waiting reads: [`ReadDeadlines::due_at`] follows for each of them.
    pub(crate) fn begin_check(&mut self) {
        self.evidence_at = [None; SIZES];
    }

    /// When a read is overdue. From now on [`ReadDeadlines::answered`] reports answers that may make this earlier.
    /// `patient`: nothing bounds the deadline from above.
    pub(crate) fn due_at(&mut self, now: Instant, read: Read, attention: &Attention, patient: bool) -> Instant {
        let after = |deadline| attention.after(read.issued_at, doubled(deadline, read.recalls));
        if patient {
            return after(self.long_deadline(now, read));
        }
        let due = after(self.deadline(now, read));
        let with_evidence = after(self.timeout);
        if due <= with_evidence {
            return due;
        }
        let size = size(read.bytes);
        if self.answered_to[size] >= Some(with_evidence) {
            return with_evidence;
        }
        let evidence_at = &mut self.evidence_at[size];
        *evidence_at = Some(evidence_at.map_or(with_evidence, |other| other.min(with_evidence)));
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::silence::WINDOW;

    const MS: Duration = Duration::from_millis(1);
    const TIMEOUT: Duration = Duration::from_millis(300);

    fn read(issued_at: Instant) -> Read {
        Read { issued_at, bytes: 4096, recalls: 0 }
    }

    /// The attention of a thread that has never stood still.
    fn always() -> Attention {
        Attention::new()
    }

    fn due_at(deadlines: &mut ReadDeadlines, now: Instant, read: Read) -> Instant {
        deadlines.due_at(now, read, &always(), false)
    }

    /// A path with a long history of reads that all took `latency`.
    fn known(now: &mut Instant, latency: Duration) -> ReadDeadlines {
        known_with(TIMEOUT, now, latency, 4096)
    }

    fn known_with(timeout: Duration, now: &mut Instant, latency: Duration, bytes: u32) -> ReadDeadlines {
        let mut deadlines = ReadDeadlines::new(timeout);
        for _ in 0..3 {
            *now += WINDOW;
            deadlines.answered(*now + latency, *now, bytes, &always());
        }
        *now += latency;
        deadlines
    }

    #[test]
    fn the_deadline_follows_the_longest_latency_within_its_bounds() {
        let now = Instant::now();
        assert_eq!(due_at(&mut ReadDeadlines::new(TIMEOUT), now, read(now)), now + TIMEOUT);
        assert_eq!(due_at(&mut ReadDeadlines::new(50 * MS), now, read(now)), now + 50 * MS);
        for (latency, deadline, earliest) in
            [(1, 100, 100), (30, 120, 120), (75, 300, 300), (200, 800, 300), (7000, 900, 300)]
        {
            let mut now = Instant::now();
            let mut deadlines = known(&mut now, latency * MS);
            assert_eq!(due_at(&mut deadlines, now, read(now)), now + deadline * MS, "{latency} ms");
            assert_eq!(deadlines.earliest(read(now)), now + earliest * MS);
        }
        // A setting below `FLOOR` replaces it.
        let mut now = Instant::now();
        let mut short = known_with(50 * MS, &mut now, MS, 4096);
        assert_eq!(due_at(&mut short, now, read(now)), now + 50 * MS);
    }

    #[test]
    fn old_latencies_are_forgotten_without_new_ones() {
        let mut now = Instant::now();
        let mut deadlines = known(&mut now, 200 * MS);
        now += WINDOW;
        assert_eq!(due_at(&mut deadlines, now, read(now)), now + 800 * MS);
        now += WINDOW;
        assert_eq!(due_at(&mut deadlines, now, read(now)), now + TIMEOUT);
    }

    #[test]
    fn small_reads_do_not_set_the_deadline_of_large_ones() {
        let mut now = Instant::now();
        let mut deadlines = known(&mut now, MS);
        assert_eq!(due_at(&mut deadlines, now, Read { bytes: 1 << 20, ..read(now) }), now + TIMEOUT);
        let mut deadlines = known_with(TIMEOUT, &mut now, 60 * MS, 1 << 20);
        assert_eq!(due_at(&mut deadlines, now, Read { bytes: 1 << 20, ..read(now) }), now + 240 * MS);
        assert_eq!(due_at(&mut deadlines, now, read(now)), now + TIMEOUT);
    }

    #[test]
    fn an_answer_to_a_later_read_is_evidence_and_one_to_an_earlier_read_is_none() {
        let mut now = Instant::now();
        let mut deadlines = known(&mut now, 200 * MS);
        let waiting = read(now);
        assert_eq!(due_at(&mut deadlines, now, waiting), now + 800 * MS);
        assert!(
            !deadlines.answered(now + 400 * MS, now + 299 * MS, 4096, &always()),
            "a deep queue is worked off in order"
        );
        assert_eq!(due_at(&mut deadlines, now, waiting), now + 800 * MS);
        assert!(deadlines.answered(now + 500 * MS, now + 300 * MS, 4096, &always()));
        assert_eq!(due_at(&mut deadlines, now, waiting), now + 300 * MS);
        assert!(!deadlines.answered(now + 501 * MS, now + 301 * MS, 4096, &always()), "that was said once");
    }

    #[test]
    fn small_reads_are_no_evidence_about_large_ones() {
        let mut now = Instant::now();
        let mut deadlines = known_with(TIMEOUT, &mut now, 200 * MS, 1 << 20);
        let large = Read { bytes: 1 << 20, ..read(now) };
        assert_eq!(due_at(&mut deadlines, now, large), now + 800 * MS);
        assert!(!deadlines.answered(now + 500 * MS, now + 499 * MS, 128 << 10, &always()));
        assert_eq!(due_at(&mut deadlines, now, large), now + 800 * MS);
        assert!(deadlines.answered(now + 600 * MS, now + 400 * MS, 1 << 20, &always()));
        assert_eq!(due_at(&mut deadlines, now, large), now + 300 * MS);
    }

    #[test]
    fn the_late_answer_to_a_recalled_read_raises_the_deadline() {
        let mut now = Instant::now();
        let mut deadlines = known(&mut now, MS);
        assert_eq!(due_at(&mut deadlines, now, read(now)), now + 100 * MS);
        deadlines.record_latency(now, 60 * MS, 4096);
        assert_eq!(due_at(&mut deadlines, now, read(now)), now + 240 * MS);
    }

    #[test]
    fn a_read_that_was_recalled_twice_waits_longer() {
        let now = Instant::now();
        let mut deadlines = ReadDeadlines::new(TIMEOUT);
        let times = [0, 1, 2, 3].map(|recalls| due_at(&mut deadlines, now, Read { recalls, ..read(now) }) - now);
        assert_eq!(times, [1, 1, 2, 4].map(|times| TIMEOUT * times));
    }
}
