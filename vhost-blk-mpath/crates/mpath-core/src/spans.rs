//! The latest times of some kind, each from a begin to an end.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};

/// Times that do not overlap, in order. Their number is bounded: the oldest are forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    /// Begin and end of each, the latest at the back.
    spans: VecDeque<(Instant, Instant)>,
    most: usize,
}

impl Spans {
    pub(crate) fn new(most: usize) -> Self {
        Self { spans: VecDeque::new(), most }
    }

    /// Adds a time after all others.
    pub(crate) fn add(&mut self, begin: Instant, end: Instant) {
        if self.spans.len() == self.most {
            self.spans.pop_front();
        }
        self.spans.push_back((begin, end));
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Instant, Instant)> {
        self.spans.iter().copied()
    }

    /// The part of them after `from`.
    #[inline]
    pub(crate) fn since(&self, from: Instant) -> Duration {
        match self.spans.back() {
            Some((_, end)) if from < *end => self.within(from, *end),
            _ => Duration::ZERO,
        }
    }

    /// The part of them after `from` and before `until`.
    pub(crate) fn within(&self, from: Instant, until: Instant) -> Duration {
        let later = self.spans.iter().rev().take_while(|(_, end)| from < *end);
        later.map(|(begin, end)| until.min(*end).saturating_duration_since(from.max(*begin))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn parts_of_the_latest_spans_add_up() {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let mut spans = Spans::new(2);
        assert_eq!(spans.within(at(0), at(900)), Duration::ZERO);
        for (begin, end) in [(0, 100), (200, 300), (500, 800)] {
            spans.add(at(begin), at(end));
        }
        let of = |from, until| spans.within(at(from), at(until)).as_millis();
        assert_eq!([of(0, 900), of(250, 600), of(300, 500), of(0, 200), of(800, 900)], [400, 150, 0, 0, 0]);
        assert_eq!([0, 250, 700, 800].map(|from| spans.since(at(from)).as_millis()), [400, 350, 100, 0]);
    }
}
