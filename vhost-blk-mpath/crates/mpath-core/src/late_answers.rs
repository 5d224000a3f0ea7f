//! Decides: too many alarms were false.
//!
//! The budget of late answers.
//!
//! A request is under way at an alarm, and its first path answers after all: this is a *late answer*. Then a recalled
//! read was read twice, or a suspect path was only slow. An array that is slow on all paths would be read over and over.
//! So late answers may be a tenth of all answers. A group that has had more is *overdrawn*. It waits for `FACTOR` times
//! what the path itself has taken, even if that is more than `suspect-timeout`.
//!
//! The budget counts when an answer is late, and not when a request is recalled. So the first alarm is free, however
//! many requests it moves. A path that stops for seconds may cause many late answers, and the answers of the other paths
//! pay for them.

/// One answer in this number may be late.
const SHARE: i64 = 10;
/// The most late answers that are saved.
const SAVED_MAX: i64 = 8;

/// The most late answers that are owed. A path that comes back after a stop may have many of them.
const OWED_MAX: i64 = 32;

/// Late answers that may follow, in parts of [`SHARE`]; less than 0 if there were too many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateAnswers(i64);

impl Default for LateAnswers {
    fn default() -> Self {
        Self(SAVED_MAX * SHARE)
    }
}

impl LateAnswers {
    /// Counts an answer.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.0 += i64::from(self.0 < SAVED_MAX * SHARE);
    }

    /// Counts late answers.
    pub(crate) fn late(&mut self, count: u32) {
        self.0 = (self.0 - i64::from(count) * SHARE).max(-OWED_MAX * SHARE);
    }

    #[inline]
    pub(crate) fn is_overdrawn(self) -> bool {
        self.0 < 0
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
}
