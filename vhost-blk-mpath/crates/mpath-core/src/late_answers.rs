//! Decides: too many alarms were false.
//!
//! The budget of late answers.
//!
//! A request is recalled, and its first path answers after all: this is a *late answer*. The request was executed twice,
//! and an array that is slow on all paths would execute its reads over and over. A hedge that came too late counts too.
//! Writes stay with a suspect path, so its suspicion counts once if the path answers them. So late answers may be a tenth
//! of all answers. A group that has had more is *overdrawn*. It waits for `FACTOR` times what the path itself has taken,
//! even if that is more than `suspect-timeout`.
//!
//! The budget counts when an answer is late, and not when a request is recalled. So the first alarm is free, however many
//! requests it moves. Answers that come until then pay for it. After a second of silence, that is enough for the next
//! silence of another path.

/// One answer in this number may be late.
const SHARE: i64 = 10;
/// The most late answers that are saved, apart from those that are expected.
const SAVED_MAX: i64 = 8;

/// The most late answers that are owed. A path that comes back after a stop may have many of them.
const OWED_MAX: i64 = 32;

/// The late answers that may follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateAnswers {
    /// How many, in parts of [`SHARE`]; less than 0 if there were too many.
    left: i64,
    /// The most of `left`, in the same parts.
    left_max: i64,
}

impl Default for LateAnswers {
    fn default() -> Self {
        Self { left: SAVED_MAX * SHARE, left_max: SAVED_MAX * SHARE }
    }
}

impl LateAnswers {
    /// Counts an answer.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.left += i64::from(self.left < self.left_max);
    }

    /// Counts late answers.
    pub(crate) fn late(&mut self, count: u32) {
        self.left = (self.left - i64::from(count) * SHARE).max(-OWED_MAX * SHARE);
    }

    /// Takes the number of abandoned requests that may still be answered. As many late answers more are saved.
    pub(crate) fn expect(&mut self, requests: u32) {
        self.left_max = (SAVED_MAX + i64::from(requests)) * SHARE;
        self.left = self.left.min(self.left_max);
    }

    #[inline]
    pub(crate) fn is_overdrawn(self) -> bool {
        self.left < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_answers_may_be_late_and_the_first_alarm_is_free() {
        let mut answers = LateAnswers::default();
        assert!(!answers.is_overdrawn());
        answers.late(32);
        let paid = (1..10_000).find(|_| {
            answers.answered();
            !answers.is_overdrawn()
        });
        assert_eq!(paid, Some((32 - 8) * 10));
        (0..1000).for_each(|_| answers.answered());
        answers.late(8);
        assert!(!answers.is_overdrawn(), "some are saved, and no more");
        answers.late(1);
        assert!(answers.is_overdrawn());
        answers.late(1_000_000);
        (0..=OWED_MAX * SHARE).for_each(|_| answers.answered());
        assert!(!answers.is_overdrawn(), "a long stop is paid for in the end");
    }
    #[test]
    fn answers_during_a_silence_pay_for_its_late_answers() {
        let mut answers = LateAnswers::default();
        for _ in 0..3 {
            answers.expect(32);
            (0..320).for_each(|_| answers.answered());
            (0..32).rev().for_each(|left| {
                answers.late(1);
                answers.expect(left);
            });
            assert!(!answers.is_overdrawn());
        }
        answers.late(9);
        assert!(answers.is_overdrawn(), "no more are saved than before");
    }
}
