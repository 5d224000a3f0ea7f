//! The measurement of one cell: which bursts and answers count.

use crate::bursts::Burst;
use crate::rows::{Role, RowSpec};
use crate::stalls::Stalls;
use crate::timeline::Timeline;
use mpath_sim::bursts::quantile_ms;
use std::time::{Duration, Instant};
use vublk_bench::harness::{Cell, Sample};

/// A sample is reliable if at most one of this many bursts was set aside.
const RELIABLE: usize = 10;

/// One measurement under way.
///
/// The time that counts begins at the end of a burst, under two conditions. The warm-up has passed. And each flow that sends
/// bursts has ended a burst that began after the start, because a scheduler treats the first bursts of new flows as bulk. Without
/// flows that send bursts, the time begins at any answer.
///
/// A burst counts, up to its end, if it begins in that time. Rates are taken from answer to answer, because all slots of the
/// service answer at about the same moment: from the last answer of the burst at the beginning to the last answer that counts.
#[derive(Debug)]
pub(crate) struct CellMeasurement {
    spec: RowSpec,
    start: Instant,
    warm_until: Instant,
    /// Flows that have not yet ended a burst which began after the start.
    new: Vec<usize>,
    time: Duration,
    from: Option<Instant>,
    last: Option<Instant>,
    bursts: Vec<Burst>,
    /// By virtqueue.
    answers: Vec<u64>,
    timeline: Timeline,
}

impl CellMeasurement {
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

    /// Whether an event at this moment counts.
    pub(crate) fn covers(&self, now: Instant) -> bool {
        self.from.is_some_and(|from| now >= from && now - from < self.time)
    }

    /// Notes answers of a virtqueue.
    pub(crate) fn answered(&mut self, now: Instant, queue: usize, answers: u32) {
        if self.covers(now) && self.from != Some(now) {
            self.answers[queue] += u64::from(answers);
            self.timeline.add(now, answers, self.spec.role(queue) == Role::Busy);
            self.last = Some(now);
        }
        if self.spec.bursts().next().is_none() {
            self.begin(now);
        }
    }

    /// Notes a burst that has ended.
    pub(crate) fn burst(&mut self, queue: usize, burst: Burst) {
        if self.covers(burst.since) && self.spec.role(queue) == Role::Interactive {
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

    /// Whether the time is over. A burst that counts may still be under way.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.from.is_some_and(|from| now - from >= self.time)
    }

    /// The time that counts, until the last burst ends.
    pub(crate) fn span(&self) -> (Instant, Instant) {
        let from = self.from.unwrap_or(self.warm_until);
        (from, self.bursts.iter().map(|burst| burst.until).fold(from + self.time, Instant::max))
    }

    /// The figures of the measurement, given the stalls of the machine. A burst is set aside if a stall overlaps its time, and
    /// only then. How long the burst took does not matter.
    pub(crate) fn sample(self, stalls: &Stalls) -> Sample {
        let seconds = self.from.zip(self.last).map_or(0.0, |(from, last)| (last - from).as_secs_f64());
        let rate = |answers: u64| if seconds > 0.0 { answers as f64 / seconds } else { 0.0 };
        let of = |role| {
            let queues = self.answers.iter().enumerate().filter(move |(queue, _)| self.spec.role(*queue) == role);
            queues.map(|(_, answers)| *answers)
        };
        let from = self.from.unwrap_or(self.warm_until);
        let (aside, counted): (Vec<&Burst>, Vec<&Burst>) =
            self.bursts.iter().partition(|burst| stalls.hit(burst.since, burst.until));
        let [bursts_ms, set_aside_ms] =
            [counted, aside].map(|bursts| bursts.iter().map(|burst| ms(burst.took())).collect::<Vec<f64>>());
        let [iops, busy_iops, attackers_iops] =
            [self.answers.iter().sum(), of(Role::Busy).sum(), of(Role::Attacker).sum()].map(rate);
        let percent = |part: f64| if iops > 0.0 { part / iops * 100.0 } else { 0.0 };
        let mut sample = Sample::new(&[("iops", iops)]);
        let mut add = |name: &str, value: f64| sample.figures.insert(name.to_owned(), value);
        if self.spec.busy > 0 {
            add("busy_iops", busy_iops);
            add("busy_percent", percent(busy_iops));
            add("busy_least_iops", rate(of(Role::Busy).min().unwrap_or(0)));
            add("busy_most_iops", rate(of(Role::Busy).max().unwrap_or(0)));
            add("longest_gap_ms", ms(self.timeline.longest_gap(from, from + self.time, stalls)));
            if let Some(worst) = self.timeline.worst_second_percent(from) {
                add("worst_second_percent", worst);
            }
        }
        if self.spec.attackers.flows > 0 {
            add("attackers_percent", percent(attackers_iops));
        }
        if !bursts_ms.is_empty() {
            add("p50_ms", quantile(bursts_ms.iter().copied(), 0.5));
            add("mean_ms", bursts_ms.iter().sum::<f64>() / bursts_ms.len() as f64);
        }
        let lists = [("bursts_ms", bursts_ms), ("set_aside_ms", set_aside_ms)];
        sample.lists.extend(lists.map(|(name, values)| (name.to_owned(), values)));
        sample
    }
}

/// Whether enough of a sample's bursts count.
pub(crate) fn is_reliable(sample: &Sample) -> bool {
    let aside = sample.list("set_aside_ms").len();
    aside * RELIABLE <= sample.list("bursts_ms").len() + aside
}

/// Adds the figures of all rounds together: one round has too few bursts for a p99.
pub(crate) fn add_all_rounds(cell: &mut Cell) {
    let [bursts, aside] = ["bursts_ms", "set_aside_ms"].map(|name| cell.list(name).count());
    if bursts + aside > 0 {
        cell.set("bursts", bursts as f64);
        cell.set("set_aside", aside as f64);
    }
    if bursts > 0 {
        cell.set("p99_ms", quantile(cell.list("bursts_ms"), 0.99));
    }
    if !cell.samples.iter().all(is_reliable) {
        cell.set("unreliable", 1.0);
    }
    let repeated = cell.samples.iter().filter(|sample| sample.figures.contains_key("repeated")).count();
    if repeated > 0 {
        cell.set("repeated", repeated as f64);
    }
}

/// The quantile of times in ms, as the simulator takes it.
pub(crate) fn quantile(ms: impl Iterator<Item = f64>, quantile: f64) -> f64 {
    quantile_ms(ms.map(|ms| Duration::from_secs_f64(ms / 1e3).into()), quantile)
}

/// Milliseconds to three decimals.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Flows;
    use crate::stalls::Stall;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn counts_from_the_end_of_a_burst_to_the_end_of_its_time() {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let burst = |since, until| Burst { since: at(since), until: at(until) };
        let mut counted = CellMeasurement::new(RowSpec::one(32, 2), start, 100 * MS, 1000 * MS);
        counted.answered(at(80), 0, 4);
        counted.burst(0, burst(50, 80));
        assert!(!counted.is_over(at(5000)));
        // This burst begins in the warm-up and ends after it. So the measurement starts at its end, after all answers of
        // that moment.
        counted.answered(at(160), 0, 7);
        counted.burst(0, burst(90, 160));
        counted.answered(at(160), 1, 12);
        counted.answered(at(161), 1, 1);
        counted.burst(0, burst(210, 240));
        counted.answered(at(240), 0, 32);
        assert!(!counted.is_over(at(1159)) && counted.is_over(at(1160)));
        assert!(!counted.covers(at(159)) && counted.covers(at(160)) && !counted.covers(at(1160)));
        // This burst is under way at the end of the time. It counts, but its last answers do not.
        counted.answered(at(1060), 2, 57);
        counted.answered(at(1160), 1, 1000);
        counted.burst(0, burst(1150, 1200));
        // A burst that begins when the time is over does not count.
        counted.burst(0, burst(1160, 1170));
        // 90 answers count, in the 900 ms to the last answer in time.
        let sample = counted.sample(&Stalls::default());
        assert_eq!(sample.list("bursts_ms"), [30.0, 50.0]);
        let in_900_ms = |name: &str| (sample.figures[name] * 0.9).round();
        assert_eq!((in_900_ms("iops"), in_900_ms("busy_iops")), (90.0, 58.0), "{sample:?}");
        assert_eq!((in_900_ms("busy_least_iops"), in_900_ms("busy_most_iops")), (1.0, 57.0));
        // The last answer comes after 900 ms, so there is no whole second.
        assert!(!sample.figures.contains_key("worst_second_percent"));
        assert!((sample.figures["longest_gap_ms"] - 899.0).abs() < 1e-9);
    }

    #[test]
    fn a_burst_from_before_does_not_begin_the_measurement() {
        let before = Instant::now();
        let start = before + 10 * MS;
        let mut counted = CellMeasurement::new(RowSpec::one(1, 1), start, Duration::ZERO, 1000 * MS);
        counted.burst(0, Burst { since: before, until: start + MS });
        assert!(!counted.covers(start + MS));
        counted.burst(0, Burst { since: start, until: start + 2 * MS });
        assert!(counted.covers(start + 2 * MS));
    }

    #[test]
    fn bursts_that_a_stall_overlaps_are_set_aside() {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let mut counted = CellMeasurement::new(RowSpec::one(1, 1), start, Duration::ZERO, 1000 * MS);
        counted.burst(0, Burst { since: at(0), until: at(100) });
        for (since, until) in [(150, 190), (240, 340), (400, 410), (1090, 1200)] {
            counted.burst(0, Burst { since: at(since), until: at(until) });
        }
        for answered in (0..=50).chain(60..=99) {
            counted.answered(at(100 + 10 * answered), 1, 1);
        }
        assert_eq!(counted.span(), (at(100), at(1200)), "the last burst ends behind the time");
        // Stalls: in a pause; from within a burst to the beginning of the next one; while the busy flow has no answer; in the
        // last burst, after the time that counts.
        let stalls = [(200, 240), (300, 400), (610, 670), (1150, 1160)];
        let stalls = stalls.map(|(since, until)| Stall { since: at(since), until: at(until) }).into_iter().collect();
        let sample = counted.sample(&stalls);
        assert_eq!(sample.list("bursts_ms"), [40.0, 10.0]);
        assert_eq!(sample.list("set_aside_ms"), [100.0, 110.0]);
        // The gap of 100 ms begins at 600 ms. Without the stall, 40 ms of it are left.
        assert!((sample.figures["longest_gap_ms"] - 40.0).abs() < 1e-9);
    }

    #[test]
    fn one_in_ten_may_be_set_aside() {
        let reliable = |bursts, aside| {
            let mut sample = Sample::default();
            sample.lists.insert("bursts_ms".into(), vec![1.0; bursts]);
            sample.lists.insert("set_aside_ms".into(), vec![1.0; aside]);
            is_reliable(&sample)
        };
        assert!(reliable(9, 1) && reliable(10, 0) && reliable(0, 0) && reliable(18, 2));
        assert!(!reliable(8, 1) && !reliable(0, 1) && !reliable(17, 2));
    }

    #[test]
    fn bursts_of_attackers_only_begin_the_measurement() {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let four = Flows { flows: 2, count: 64 };
        let spec =
            RowSpec { busy: 1, interactive: Flows { flows: 1, count: 2 }, attackers: four, ..RowSpec::default() };
        let mut counted = CellMeasurement::new(spec, start, Duration::ZERO, 3000 * MS);
        // The time begins when each flow has ended a burst that began after the start.
        for (queue, until) in [(2, 4), (0, 6), (1, 10)] {
            assert!(!counted.covers(at(until)), "flow {queue} is new");
            counted.burst(queue, Burst { since: at(0), until: at(until) });
        }
        assert!(counted.covers(at(10)));
        // This burst is under way when the time begins.
        counted.burst(0, Burst { since: at(8), until: at(20) });
        for step in 1..=20 {
            counted.answered(at(10 + 100 * step), 1, 30);
            counted.answered(at(10 + 100 * step), 2, 40);
            counted.answered(at(10 + 100 * step), 3, 30);
        }
        counted.burst(2, Burst { since: at(30), until: at(40) });
        counted.burst(0, Burst { since: at(40), until: at(52) });
        let sample = counted.sample(&Stalls::default());
        assert_eq!(sample.list("bursts_ms"), [12.0]);
        // The busy flow is starved from 2010 ms on to the end.
        for (name, expected) in [
            ("iops", 1000.0),
            ("busy_iops", 300.0),
            ("attackers_percent", 70.0),
            ("worst_second_percent", 30.0),
            ("longest_gap_ms", 1000.0),
        ] {
            assert!((sample.figures[name] - expected).abs() < 1e-9, "{name}: {sample:?}");
        }
    }

    #[test]
    fn without_bursts_the_measurement_begins_with_an_answer() {
        let start = Instant::now();
        let mut counted = CellMeasurement::new(RowSpec { busy: 1, ..RowSpec::default() }, start, 10 * MS, 1000 * MS);
        counted.answered(start + 9 * MS, 0, 5);
        assert!(!counted.is_over(start + 5000 * MS));
        counted.answered(start + 11 * MS, 0, 5);
        counted.answered(start + 511 * MS, 0, 50);
        assert!(counted.is_over(start + 1011 * MS));
        assert!((counted.sample(&Stalls::default()).figures["iops"] - 100.0).abs() < 1e-9);
    }

    #[test]
    fn without_answers_there_is_no_rate() {
        let sample = CellMeasurement::new(RowSpec::one(1, 0), Instant::now(), MS, MS).sample(&Stalls::default());
        assert_eq!((sample.figures["iops"], sample.figures.contains_key("p50_ms")), (0.0, false));
    }

    #[test]
    fn the_tail_is_that_of_all_rounds_that_count() {
        let mut cell = Cell::new("fifo");
        for (bursts, aside) in [(vec![10.0; 20], vec![]), (vec![10.0, 90.0], vec![500.0])] {
            let mut sample = Sample::new(&[("iops", 1.0)]);
            sample.lists = [("bursts_ms".to_owned(), bursts), ("set_aside_ms".to_owned(), aside)].into();
            cell.add(sample);
        }
        add_all_rounds(&mut cell);
        let figures = ["bursts", "set_aside", "p99_ms", "unreliable"].map(|name| cell.median(name).unwrap());
        assert_eq!(figures.map(|figure| figure.round() as i64), [22, 1, 90, 1]);
    }
}
