//! A flow that sends bursts. It sends some requests at once, waits until all of them are answered, pauses or does not, and begins
//! again.

use mpath_sim::bursts::scenario::PAUSE;
use mpath_sim::rng::Rng;
use std::time::{Duration, Instant};

/// The begin and end of bursts.
#[derive(Debug)]
pub(crate) struct Bursts {
    count: u32,
    /// `None`: without a pause.
    pauses: Option<Rng>,
    /// When the next burst begins, if none is under way.
    next: Instant,
    under_way: Option<UnderWay>,
}

#[derive(Debug, Clone, Copy)]
struct UnderWay {
    since: Instant,
    /// Requests that are not answered.
    left: u32,
}

/// A burst that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burst {
    /// When its first request was sent.
    pub(crate) since: Instant,
    /// When its last answer was seen.
    pub(crate) until: Instant,
}

impl Bursts {
    /// Bursts of `count` requests, the first one after a pause.
    pub(crate) fn new(count: u32, pauses: Option<Rng>, now: Instant) -> Self {
        let mut bursts = Self { count, pauses, next: now, under_way: None };
        bursts.pause(now);
        bursts
    }

    /// A pause varies by a tenth either way, so that bursts meet the slots of the service in every phase.
    fn pause(&mut self, now: Instant) {
        let pause = |pauses: &mut Rng| pauses.between(9 * PAUSE / 10, 11 * PAUSE / 10).into();
        self.next = now + self.pauses.as_mut().map_or(Duration::ZERO, pause);
    }

    /// When the next burst begins; `None` while one is under way.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.under_way.is_none().then_some(self.next)
    }

    /// When the burst under way began.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.under_way.map(|burst| burst.since)
    }

    /// Begins a burst if it is due. Returns how many requests to send.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<u32> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        self.under_way = Some(UnderWay { since: now, left: self.count });
        Some(self.count)
    }

    /// Notes answers. Returns the burst if they were its last ones.
    pub(crate) fn answered(&mut self, now: Instant, answers: u32) -> Option<Burst> {
        let burst = self.under_way.as_mut()?;
        // The ledger knows every request, so there are never more answers.
        burst.left = burst.left.saturating_sub(answers);
        let ended = self.under_way.take_if(|burst| burst.left == 0)?;
        self.pause(now);
        Some(Burst { since: ended.since, until: now })
    }
}

impl Burst {
    pub(crate) fn took(self) -> Duration {
        self.until - self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_ends_with_its_last_answer() {
        let start = Instant::now();
        let mut bursts = Bursts::new(3, Some(Rng::new(1, 0)), start);
        assert_eq!((bursts.begin(start), bursts.since()), (None, None));
        let since = start + 60 * MS;
        assert_eq!(bursts.begin(since), Some(3));
        assert_eq!((bursts.begin(since + MS), bursts.due(), bursts.since()), (None, None, Some(since)));
        assert_eq!(bursts.answered(since + 10 * MS, 1), None);
        let burst = bursts.answered(since + 12 * MS, 2).unwrap();
        assert_eq!((burst, burst.took()), (Burst { since, until: since + 12 * MS }, 12 * MS));
        assert_eq!((bursts.answered(since + 13 * MS, 1), bursts.since()), (None, None));
    }

    #[test]
    fn without_a_pause_the_next_one_is_due_at_once() {
        let start = Instant::now();
        let mut bursts = Bursts::new(2, None, start);
        for at in [start, start + 20 * MS] {
            assert_eq!((bursts.due(), bursts.begin(at)), (Some(at), Some(2)));
            assert!(bursts.answered(at + 20 * MS, 2).is_some());
        }
    }

    #[test]
    fn pauses_vary_between_their_limits_and_repeat_by_seed() {
        let pauses = |seed| {
            let mut now = Instant::now();
            let mut bursts = Bursts::new(1, Some(Rng::new(seed, 0)), now);
            let pauses = (0..200).map(|_| {
                let due = bursts.due().unwrap();
                let pause = due - now;
                bursts.begin(due).unwrap();
                now = due + 10 * MS;
                bursts.answered(now, 1).unwrap();
                pause
            });
            pauses.collect::<Vec<_>>()
        };
        let one = pauses(1);
        assert!(one.iter().all(|pause| (45 * MS..=55 * MS).contains(pause)), "{one:?}");
        let (least, most) = (one.iter().min().unwrap(), one.iter().max().unwrap());
        assert!(*least < 46 * MS && *most > 54 * MS, "{least:?} {most:?}");
        assert!(one == pauses(1) && one != pauses(2));
    }
}
