//! What of a cell counts.

use crate::bursts::Burst;
use serde::Serialize;
use std::time::{Duration, Instant};

/// One measurement as it goes on. It begins where a burst ends, once the time to warm up has passed; of bursts those count that
/// begin in its time, to their ends. The slots of the service answer at about the same moment, all of them, so rates are taken
/// from answer to answer: from the moment of the burst's last one to that of the last one that counts.
#[derive(Debug)]
pub(crate) struct Counted {
    warm_until: Instant,
    time: Duration,
    from: Option<Instant>,
    last: Option<Instant>,
    bursts: Vec<Duration>,
    interactive: u64,
    busy: u64,
}

/// Whose answer it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Interactive,
    Busy,
}

/// One cell in one round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// In the order in which they were sent.
    pub(crate) bursts_ms: Vec<f64>,
    /// Requests answered per second.
    pub(crate) iops: f64,
    /// Those of them that were of busy flows.
    pub(crate) busy_iops: f64,
}

impl Counted {
    pub(crate) fn new(now: Instant, warmup: Duration, time: Duration) -> Self {
        let warm_until = now + warmup;
        Self { warm_until, time, from: None, last: None, bursts: Vec::new(), interactive: 0, busy: 0 }
    }

    /// Requests were answered.
    pub(crate) fn answered(&mut self, now: Instant, whose: Whose, answers: u32) {
        if self.from.is_some_and(|from| now > from && now - from < self.time) {
            match whose {
                Whose::Interactive => self.interactive += u64::from(answers),
                Whose::Busy => self.busy += u64::from(answers),
            }
            self.last = Some(now);
        }
    }

    /// A burst is over.
    pub(crate) fn burst(&mut self, burst: Burst) {
        match self.from {
            // One that begins when the time is over would have to be waited for: none does, see `is_over`.
            Some(_) => self.bursts.push(burst.took()),
            None if burst.until >= self.warm_until => self.from = Some(burst.until),
            None => {}
        }
    }

    /// Whether nothing more can count, unless a burst is under way.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.from.is_some_and(|from| now - from >= self.time)
    }

    pub(crate) fn sample(self) -> Sample {
        let seconds = self.from.zip(self.last).map_or(0.0, |(from, last)| (last - from).as_secs_f64());
        let rate = |answers: u64| if seconds > 0.0 { answers as f64 / seconds } else { 0.0 };
        Sample {
            // Microseconds are enough to read.
            bursts_ms: self.bursts.iter().map(|took| took.as_micros() as f64 / 1e3).collect(),
            iops: rate(self.interactive + self.busy),
            busy_iops: rate(self.busy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn counts_from_the_end_of_a_burst_to_the_end_of_its_time() {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let burst = |since, until| Burst { since: at(since), until: at(until) };
        let mut counted = Counted::new(start, 100 * MS, 1000 * MS);
        counted.answered(at(80), Whose::Interactive, 4);
        counted.burst(burst(50, 80));
        assert!(!counted.is_over(at(5000)));
        // It begins in the warm-up and ends behind it: what is measured starts there, after all that is answered in that moment.
        counted.answered(at(160), Whose::Interactive, 7);
        counted.burst(burst(90, 160));
        counted.answered(at(160), Whose::Busy, 12);
        counted.answered(at(161), Whose::Busy, 1);
        counted.burst(burst(210, 240));
        counted.answered(at(240), Whose::Interactive, 32);
        assert!(!counted.is_over(at(1159)) && counted.is_over(at(1160)));
        // Under way at the end: it counts, its last answers do not.
        counted.answered(at(1060), Whose::Busy, 57);
        counted.answered(at(1160), Whose::Busy, 1000);
        counted.burst(burst(1150, 1200));
        // 90 in the 900 ms to the last answer in time.
        let sample = counted.sample();
        assert_eq!(sample.bursts_ms, [30.0, 50.0]);
        assert!((sample.iops - 100.0).abs() < 1e-9 && (sample.busy_iops * 0.9 - 58.0).abs() < 1e-9, "{sample:?}");
    }

    #[test]
    fn of_nothing_there_is_no_rate() {
        let sample = Counted::new(Instant::now(), MS, MS).sample();
        assert_eq!(sample, Sample { bursts_ms: vec![], iops: 0.0, busy_iops: 0.0 });
    }
}
