//! Answers in the order of time, and the share of the busy flows.

use crate::stalls::Stalls;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// The answers at one moment.
#[derive(Debug, Clone, Copy)]
struct Answers {
    at: Instant,
    all: u32,
    busy: u32,
}

/// The answers of a measurement.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Vec<Answers>);

impl Timeline {
    /// Adds answers, to `busy` flows or others. They must not be earlier than those added before.
    pub(crate) fn add(&mut self, at: Instant, answers: u32, busy: bool) {
        let busy = if busy { answers } else { 0 };
        match self.0.last_mut() {
            Some(last) if last.at == at => {
                last.all += answers;
                last.busy += busy;
            }
            _ => self.0.push(Answers { at, all: answers, busy }),
        }
    }

    /// The least share of the busy flows in any second that begins at an answer or at `from`, in percent. `None` if the last answer
    /// comes within a second.
    pub(crate) fn worst_second_percent(&self, from: Instant) -> Option<f64> {
        let end = self.0.last()?.at;
        let behind = |(index, first): (usize, &Answers)| (first.at, index + 1);
        let begins = std::iter::once((from, 0)).chain(self.0.iter().enumerate().map(behind));
        let percent = |(begin, first): (Instant, usize)| {
            let second = self.0[first..].iter().take_while(|answers| answers.at <= begin + SECOND);
            let (all, busy) = second.fold((0, 0), |(all, busy), answers| (all + answers.all, busy + answers.busy));
            (all > 0).then(|| f64::from(busy) / f64::from(all) * 100.0)
        };
        begins.take_while(|(begin, _)| *begin + SECOND <= end).filter_map(percent).reduce(f64::min)
    }

    /// The longest time between `from` and `until` without an answer to any busy flow, less the stalls in it.
    pub(crate) fn longest_gap(&self, from: Instant, until: Instant, stalls: &Stalls) -> Duration {
        let ends = self.0.iter().filter(|answers| answers.busy > 0).map(|answers| answers.at).chain([until]);
        let (mut last, mut longest) = (from, Duration::ZERO);
        for at in ends {
            longest = longest.max(at.saturating_duration_since(last).saturating_sub(stalls.within(last, at)));
            last = at;
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::Stall;

    const MS: Duration = Duration::from_millis(1);

    /// All answers and those of busy flows, every 100 ms.
    fn timeline(start: Instant, answers: impl IntoIterator<Item = (u32, u32)>) -> Timeline {
        let mut timeline = Timeline::default();
        for ((all, busy), step) in answers.into_iter().zip(1..) {
            let at = start + step * 100 * MS;
            timeline.add(at, all - busy, false);
            timeline.add(at, busy, true);
        }
        timeline
    }

    fn is(percent: Option<f64>, expected: f64) -> bool {
        percent.is_some_and(|percent| (percent - expected).abs() < 1e-9)
    }

    #[test]
    fn the_worst_second_is_found_wherever_it_begins() {
        let start = Instant::now();
        // The busy flows have half of the answers, except for 700 ms in the middle, at the end, or at the very beginning.
        for silence in [7..14, 13..20, 0..7] {
            let answers = (0..20).map(|step| (10, if silence.contains(&step) { 0 } else { 5 }));
            let timeline = timeline(start, answers);
            assert!(is(timeline.worst_second_percent(start), 15.0), "{silence:?} {timeline:?}");
        }
        let even = timeline(start, [(10, 3); 20]);
        assert!(is(even.worst_second_percent(start), 30.0));
    }

    #[test]
    fn the_worst_second_takes_a_second() {
        let start = Instant::now();
        assert_eq!(timeline(start, [(10, 3); 9]).worst_second_percent(start), None);
        assert!(is(timeline(start, [(10, 3); 10]).worst_second_percent(start), 30.0));
        assert_eq!(Timeline::default().worst_second_percent(start), None);
    }

    #[test]
    fn gaps_count_from_the_beginning_between_answers_and_to_the_end() {
        let start = Instant::now();
        let gap = |busy: &[u32]| {
            let answers = busy.iter().map(|busy| (9, *busy));
            timeline(start, answers)
                .longest_gap(start, start + 100 * MS * (busy.len() as u32 + 1), &Stalls::default())
                .as_millis()
        };
        assert_eq!(gap(&[1, 1, 1]), 100);
        assert_eq!(gap(&[0, 0, 1]), 300);
        assert_eq!(gap(&[1, 0, 0, 0, 1, 1]), 400);
        assert_eq!(gap(&[1, 1, 0]), 200);
        assert_eq!(gap(&[0, 0, 0]), 400);
    }

    #[test]
    fn stalls_are_taken_off_a_gap() {
        let start = Instant::now();
        let stalled = |since: u32, until: u32| -> u128 {
            let stall = Stall { since: start + since * MS, until: start + until * MS };
            let timeline = timeline(start, [1, 0, 0, 0, 1, 1].map(|busy| (9, busy)));
            timeline.longest_gap(start, start + 700 * MS, &std::iter::once(stall).collect()).as_millis()
        };
        // The busy flows have no answer from 100 to 500 ms.
        assert_eq!((stalled(200, 260), stalled(50, 150), stalled(450, 600)), (340, 350, 350));
        // Only the stalled time is taken off: a stall does not hide the rest of a gap. Then another gap may be the longest.
        assert_eq!((stalled(520, 580), stalled(110, 490)), (400, 100));
    }
}
