//! What of a cell counts.

use crate::bursts::Burst;
use crate::row::{RowSpec, Whose};
use crate::timeline::Timeline;
use serde::Serialize;
use std::time::{Duration, Instant};
use vublk_bench::stalls::Stalls;

/// More of the bursts set aside than one in so many, and the rest says little.
const RELIABLE: usize = 10;

/// One measurement as it goes on. It begins where a burst ends, once the time to warm up has passed and each flow that sends bursts
/// has ended one that began in it: flows that are new to a scheduler are bulk in their first bursts, some of them longer than others.
/// If nobody sends bursts, it begins where anything is answered. Of bursts those count that begin in its time, to their ends. The slots of the
/// service answer at about the same moment, all of them, so rates are taken from answer to answer: from the moment of
/// the burst's last one to that of the last one that counts.
#[derive(Debug)]
pub(crate) struct Counted {
    spec: RowSpec,
    start: Instant,
    warm_until: Instant,
    /// Flows that send bursts and have not ended one yet that began after the start.
    new: Vec<usize>,
    time: Duration,
    from: Option<Instant>,
    last: Option<Instant>,
    bursts: Vec<Burst>,
    /// By virtqueue.
    answers: Vec<u64>,
    timeline: Timeline,
}

/// One cell in one round.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Of interactive flows, in the order in which they ended.
    pub(crate) bursts_ms: Vec<f64>,
    /// Those of them in whose time the machine stood still, which count nowhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) set_aside_ms: Vec<f64>,
    /// When it did, from and to, since the beginning of what counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stalls_ms: Vec<[f64; 2]>,
    /// Whether the same was measured before, and too much of it was set aside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) repeated: bool,
    /// Requests answered per second.
    pub(crate) iops: f64,
    /// Those of them that were of busy flows.
    pub(crate) busy_iops: f64,
    /// The busy flow that has least, and the one that has most.
    pub(crate) busy_flow_iops: [f64; 2],
    /// Of all that was answered in any second; `None` if it was not measured for a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busy_worst_second_percent: Option<f64>,
    /// The longest time without an answer to any busy flow, in which the machine did not stand still.
    pub(crate) busy_longest_gap_ms: f64,
    /// Of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) attackers_iops: Vec<f64>,
}

impl Counted {
    pub(crate) fn new(spec: RowSpec, now: Instant, warmup: Duration, time: Duration) -> Self {
        Self {
            spec,
            start: now,
            warm_until: now + warmup,
            new: (0..spec.bursts().count()).collect(),
            time,
            from: None,
            last: None,
            bursts: Vec::new(),
            answers: vec![0; spec.queues()],
            timeline: Timeline::default(),
        }
    }

    /// Whether what happens now counts.
    pub(crate) fn covers(&self, now: Instant) -> bool {
        self.from.is_some_and(|from| now >= from && now - from < self.time)
    }

    /// Requests of a virtqueue were answered.
    pub(crate) fn answered(&mut self, now: Instant, queue: usize, answers: u32) {
        if self.covers(now) && self.from != Some(now) {
            self.answers[queue] += u64::from(answers);
            self.timeline.add(now, answers, self.spec.whose(queue) == Whose::Busy);
            self.last = Some(now);
        }
        if self.spec.bursts().next().is_none() {
            self.begin(now);
        }
    }

    /// A burst of a virtqueue is over.
    pub(crate) fn burst(&mut self, queue: usize, burst: Burst) {
        if self.covers(burst.since) && self.spec.whose(queue) == Whose::Interactive {
            self.bursts.push(burst);
        }
        if burst.since >= self.start {
            self.new.retain(|new| *new != queue);
        }
        self.begin(burst.until);
    }

    fn begin(&mut self, now: Instant) {
        if self.from.is_none() && now >= self.warm_until && self.new.is_empty() {
            self.from = Some(now);
        }
    }

    /// Whether nothing more can count, unless a burst that counts is under way.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.from.is_some_and(|from| now - from >= self.time)
    }

    /// The time that counts, to the end of the last burst.
    pub(crate) fn span(&self) -> (Instant, Instant) {
        let from = self.from.unwrap_or(self.warm_until);
        (from, self.bursts.iter().map(|burst| burst.until).fold(from + self.time, Instant::max))
    }

    /// What came of it, if the machine stood still then. That is no reason to leave out a burst, however long, in whose time it did
    /// not, nor to keep one, however short, in whose time it did.
    pub(crate) fn sample(self, stalls: &Stalls) -> Sample {
        let seconds = self.from.zip(self.last).map_or(0.0, |(from, last)| (last - from).as_secs_f64());
        let rate = |answers: u64| if seconds > 0.0 { answers as f64 / seconds } else { 0.0 };
        let of = |whose| {
            let queues = self.answers.iter().enumerate().filter(move |(queue, _)| self.spec.whose(*queue) == whose);
            queues.map(|(_, answers)| *answers)
        };
        let busy = || of(Whose::Busy);
        let from = self.from.unwrap_or(self.warm_until);
        let gap = self.timeline.longest_gap(from, from + self.time, stalls);
        let hit = |burst: &&Burst| stalls.hit(burst.since, burst.until);
        let took = |burst: &Burst| ms(burst.took());
        let since = |at: Instant| ms(at.saturating_duration_since(from));
        Sample {
            bursts_ms: self.bursts.iter().filter(|burst| !hit(burst)).map(took).collect(),
            set_aside_ms: self.bursts.iter().filter(hit).map(took).collect(),
            stalls_ms: stalls.iter().map(|stall| [since(stall.since), since(stall.until)]).collect(),
            repeated: false,
            iops: rate(self.answers.iter().sum()),
            busy_iops: rate(busy().sum()),
            busy_flow_iops: [busy().min(), busy().max()].map(|answers| rate(answers.unwrap_or(0))),
            busy_worst_second_percent: self.timeline.worst_second_percent(from).filter(|_| self.spec.busy > 0),
            busy_longest_gap_ms: if self.spec.busy > 0 { ms(gap) } else { 0.0 },
            attackers_iops: of(Whose::Attacker).map(rate).collect(),
        }
    }
}

impl Sample {
    /// Whether enough of its bursts count.
    pub(crate) fn is_reliable(&self) -> bool {
        let aside = self.set_aside_ms.len();
        aside * RELIABLE <= self.bursts_ms.len() + aside
    }
}

/// Microseconds are enough to read.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Flows;
    use vublk_bench::stalls::Stall;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn counts_from_the_end_of_a_burst_to_the_end_of_its_time() {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let burst = |since, until| Burst { since: at(since), until: at(until) };
        let mut counted = Counted::new(RowSpec::one(32, 2), start, 100 * MS, 1000 * MS);
        counted.answered(at(80), 0, 4);
        counted.burst(0, burst(50, 80));
        assert!(!counted.is_over(at(5000)));
        // It begins in the warm-up and ends behind it: what is measured starts there, after all that is answered in
        // that moment.
        counted.answered(at(160), 0, 7);
        counted.burst(0, burst(90, 160));
        counted.answered(at(160), 1, 12);
        counted.answered(at(161), 1, 1);
        counted.burst(0, burst(210, 240));
        counted.answered(at(240), 0, 32);
        assert!(!counted.is_over(at(1159)) && counted.is_over(at(1160)));
        assert!(!counted.covers(at(159)) && counted.covers(at(160)) && !counted.covers(at(1160)));
        // Under way at the end: it counts, its last answers do not.
        counted.answered(at(1060), 2, 57);
        counted.answered(at(1160), 1, 1000);
        counted.burst(0, burst(1150, 1200));
        // One that begins when the time is over does not.
        counted.burst(0, burst(1160, 1170));
        // 90 in the 900 ms to the last answer in time.
        let sample = counted.sample(&Stalls::default());
        assert_eq!(sample.bursts_ms, [30.0, 50.0]);
        assert!((sample.iops - 100.0).abs() < 1e-9 && (sample.busy_iops * 0.9 - 58.0).abs() < 1e-9, "{sample:?}");
        let [least, most] = sample.busy_flow_iops;
        assert_eq!(((least * 0.9).round(), (most * 0.9).round()), (1.0, 57.0));
        // To the last answer that is 900 ms.
        assert_eq!((sample.busy_worst_second_percent, sample.busy_longest_gap_ms), (None, 899.0));
    }

    #[test]
    fn a_burst_from_before_does_not_begin_it() {
        let before = Instant::now();
        let start = before + 10 * MS;
        let mut counted = Counted::new(RowSpec::one(1, 1), start, Duration::ZERO, 1000 * MS);
        counted.burst(0, Burst { since: before, until: start + MS });
        assert!(!counted.covers(start + MS));
        counted.burst(0, Burst { since: start, until: start + 2 * MS });
        assert!(counted.covers(start + 2 * MS));
    }

    #[test]
    fn bursts_in_whose_time_the_machine_stood_still_are_set_aside() {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let mut counted = Counted::new(RowSpec::one(1, 1), start, Duration::ZERO, 1000 * MS);
        counted.burst(0, Burst { since: at(0), until: at(100) });
        for (since, until) in [(150, 190), (240, 340), (400, 410), (1090, 1200)] {
            counted.burst(0, Burst { since: at(since), until: at(until) });
        }
        for answered in (0..=50).chain(60..=99) {
            counted.answered(at(100 + 10 * answered), 1, 1);
        }
        assert_eq!(counted.span(), (at(100), at(1200)), "the last burst ends behind the time");
        // In a pause; in a burst, and to the beginning of the next; while the busy flow has no answer; in the last burst, behind the time.
        let stalls = [(200, 240), (300, 400), (610, 670), (1150, 1160)];
        let stalls = stalls.map(|(since, until)| Stall { since: at(since), until: at(until) }).into_iter().collect();
        let sample = counted.sample(&stalls);
        assert_eq!((&sample.bursts_ms[..], &sample.set_aside_ms[..]), (&[40.0, 10.0][..], &[100.0, 110.0][..]));
        // Of 100 ms from 600 on 40 are left.
        assert_eq!(
            (sample.stalls_ms.len(), sample.stalls_ms[1], sample.busy_longest_gap_ms),
            (4, [200.0, 300.0], 40.0)
        );
    }

    #[test]
    fn one_in_ten_may_be_set_aside() {
        let reliable = |bursts, aside| {
            Sample { bursts_ms: vec![1.0; bursts], set_aside_ms: vec![1.0; aside], ..Sample::default() }.is_reliable()
        };
        assert!(reliable(9, 1) && reliable(10, 0) && reliable(0, 0) && reliable(18, 2));
        assert!(!reliable(8, 1) && !reliable(0, 1) && !reliable(17, 2));
    }

    #[test]
    fn attackers_are_counted_each_and_their_bursts_only_begin_it() {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let four = Flows { flows: 2, count: 64 };
        let spec = RowSpec { busy: 1, interactive: Flows { flows: 1, count: 2 }, attackers: four };
        let mut counted = Counted::new(spec, start, Duration::ZERO, 3000 * MS);
        // It begins when each flow has ended a burst that began in it.
        for (queue, until) in [(2, 4), (0, 6), (1, 10)] {
            assert!(!counted.covers(at(until)), "flow {queue} is new");
            counted.burst(queue, Burst { since: at(0), until: at(until) });
        }
        assert!(counted.covers(at(10)));
        // Under way when it began.
        counted.burst(0, Burst { since: at(8), until: at(20) });
        for step in 1..=20 {
            counted.answered(at(10 + 100 * step), 1, 30);
            counted.answered(at(10 + 100 * step), 2, 40);
            counted.answered(at(10 + 100 * step), 3, 30);
        }
        counted.burst(2, Burst { since: at(30), until: at(40) });
        counted.burst(0, Burst { since: at(40), until: at(52) });
        let sample = counted.sample(&Stalls::default());
        assert_eq!((sample.bursts_ms, sample.attackers_iops), (vec![12.0], vec![300.0, 400.0]));
        assert_eq!((sample.iops, sample.busy_iops, sample.busy_flow_iops), (1000.0, 300.0, [300.0; 2]));
        // Starved from 2010 on to the end.
        assert_eq!((sample.busy_worst_second_percent, sample.busy_longest_gap_ms), (Some(30.0), 1000.0));
    }

    #[test]
    fn without_bursts_it_begins_with_an_answer() {
        let start = Instant::now();
        let mut counted = Counted::new(RowSpec { busy: 1, ..RowSpec::default() }, start, 10 * MS, 1000 * MS);
        counted.answered(start + 9 * MS, 0, 5);
        assert!(!counted.is_over(start + 5000 * MS));
        counted.answered(start + 11 * MS, 0, 5);
        counted.answered(start + 511 * MS, 0, 50);
        assert!(counted.is_over(start + 1011 * MS));
        assert!((counted.sample(&Stalls::default()).iops - 100.0).abs() < 1e-9);
    }

    #[test]
    fn of_nothing_there_is_no_rate() {
        let sample = Counted::new(RowSpec::one(1, 0), Instant::now(), MS, MS).sample(&Stalls::default());
        assert_eq!(sample, Sample::default());
    }
}
