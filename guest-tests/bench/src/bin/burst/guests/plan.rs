//! What is going to be measured, and how long that takes.

use crate::row::COUNT;
use burst_sim::scenario::{DEPTH, PAUSE, SERVICE, SLOTS};
use mpath_core::SchedulerKind;
use serde::Serialize;
use std::ops::Range;
use std::time::Duration;

/// Virtqueues of the bulk guest, and so its virtual processors: a flow each.
const FLOWS: usize = 8;

/// The interactive guest's disk has this one.
const WEIGHT: usize = 100;
/// Of the bulk guest's disk: the same, as two disks have that nobody has told anything; and as much for each virtqueue.
const BULK_WEIGHTS: [usize; 2] = [WEIGHT, WEIGHT * FLOWS];

/// To a scheduler that comes into force all virtqueues are new, and fio starts: what begins by then does not count.
const SETTLE: Duration = Duration::from_secs(2);

/// To start fio in an emulated guest, and to fetch what it logged.
const PER_CELL: Duration = Duration::from_millis(1800);
/// Starting, two guests at a time.
const ONCE: Duration = Duration::from_secs(20);

/// A run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plan {
    /// The window of the path.
    pub(crate) slots: usize,
    /// What the target holds each answer back.
    pub(crate) delay_ms: u64,
    /// Reads of a burst.
    pub(crate) count: u32,
    /// Between bursts.
    pub(crate) pause_ms: u64,
    /// Virtqueues of the bulk guest.
    pub(crate) flows: usize,
    /// Reads that each of them has outstanding.
    pub(crate) depth: u32,
    pub(crate) rounds: u16,
    /// `--guest-seconds`
    pub(crate) seconds: f64,
    pub(crate) settle_seconds: f64,
    /// Of the bulk guest's disk. The other one's is 100.
    pub(crate) bulk_weights: Vec<usize>,
    pub(crate) schedulers: Vec<String>,
}

impl Plan {
    pub(crate) fn new(schedulers: &[SchedulerKind], rounds: u16, seconds: Duration) -> Self {
        Self {
            slots: SLOTS,
            delay_ms: SERVICE.as_millis() as u64,
            count: COUNT,
            pause_ms: PAUSE.as_millis() as u64,
            flows: FLOWS,
            depth: DEPTH,
            rounds,
            seconds: seconds.as_secs_f64(),
            settle_seconds: SETTLE.as_secs_f64(),
            bulk_weights: BULK_WEIGHTS.into(),
            schedulers: schedulers.iter().map(ToString::to_string).collect(),
        }
    }

    /// Of the program that measures.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let numbers = [
            ("--slots", self.slots.to_string()),
            ("--delay-ms", self.delay_ms.to_string()),
            ("--count", self.count.to_string()),
            ("--pause-ms", self.pause_ms.to_string()),
            ("--flows", self.flows.to_string()),
            ("--depth", self.depth.to_string()),
            ("--rounds", self.rounds.to_string()),
            ("--seconds", self.seconds.to_string()),
            ("--settle", self.settle_seconds.to_string()),
            ("--bulk-weights", self.bulk_weights.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
            ("--schedulers", self.schedulers.join(",")),
        ];
        numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Every weight of the bulk guest's disk with every scheduler.
    pub(crate) fn cells(&self) -> Vec<(usize, String)> {
        let with = |weight: usize| self.schedulers.iter().map(move |scheduler| (weight, scheduler.clone()));
        self.bulk_weights.iter().copied().flat_map(with).collect()
    }

    /// Whether each virtqueue of either guest counts the same then.
    pub(crate) fn by_virtqueue(&self, bulk_weight: usize) -> bool {
        bulk_weight == WEIGHT * self.flows
    }

    /// When a burst of the interactive guest counts that begins then, from the start of fio.
    pub(crate) fn counts(&self) -> Range<Duration> {
        let settle = Duration::from_secs_f64(self.settle_seconds);
        settle..settle + Duration::from_secs_f64(self.seconds)
    }

    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(self.pause_ms)
    }

    /// What a burst takes at least, whoever sends it: the slots full as often as it needs.
    pub(crate) fn ideal_ms(&self) -> u64 {
        self.delay_ms * u64::from(self.count).div_ceil(self.slots as u64)
    }

    /// About how long it takes.
    pub(crate) fn time(&self) -> Duration {
        let cell = self.counts().end + PER_CELL;
        // The interactive guest alone, the bulk one alone for half as long, and both.
        let round = cell * (self.cells().len() as u32 + 1) + cell / 2;
        ONCE + round * u32::from(self.rounds)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::line::SCHEDULERS;

    pub(crate) fn plan() -> Plan {
        Plan::new(&SCHEDULERS, 5, Duration::from_secs(4))
    }

    /// The manual promises 7 minutes.
    #[test]
    fn the_default_run_takes_less_than_seven_minutes() {
        let time = plan().time();
        assert!((Duration::from_mins(4)..Duration::from_mins(7)).contains(&time), "{time:?}");
    }

    #[test]
    fn the_program_is_told_everything() {
        let arguments = plan().arguments().join(" ");
        let expected = "--slots 13 --delay-ms 10 --count 32 --pause-ms 50 --flows 8 --depth 32 --rounds 5 --seconds 4 --settle 2 \
                        --bulk-weights 100,800 --schedulers fifo,published,burst-credit";
        assert_eq!(arguments, expected);
    }

    #[test]
    fn every_scheduler_with_either_weight() {
        let cells = plan().cells();
        assert_eq!((cells.len(), &*cells[2].1, cells[3].0), (6, "burst-credit", 800));
        assert!(!plan().by_virtqueue(100) && plan().by_virtqueue(800));
    }

    #[test]
    fn a_burst_takes_as_many_services_as_it_fills_the_slots() {
        assert_eq!(plan().ideal_ms(), 30);
        assert_eq!(Plan { count: 26, ..plan() }.ideal_ms(), 20);
    }
}
