//! What flows work at a time, and which rows each table has.

use burst_sim::Load;
use burst_sim::scenario::{SERVICE, SLOTS, attackers, bulk, interactive};
use burst_sim::targets::{BUSY, COUNTS, MANY};
use serde::Serialize;
use std::time::Duration;

/// N of the first table, K of the others.
pub(crate) const COUNT: u32 = 32;
pub(crate) const BUSY_FLOWS: usize = 16;

/// Attackers, and what each sends at once.
const ATTACKS: [Flows; 3] =
    [Flows { flows: 1, count: 64 }, Flows { flows: 4, count: 64 }, Flows { flows: 4, count: 32 }];
/// It has a victim.
const ATTACK: Flows = ATTACKS[1];
/// Within a turn and its part of the service: 2 in 60 ms are 33/s, of 62/s.
const VICTIM: Flows = Flows { flows: 1, count: 2 };

/// A cell of the tables beside those that were published: the worst second is one of several.
pub(crate) const LONGER: Duration = Duration::from_secs(4);
/// Rounds of these.
const MOST_ROUNDS: u16 = 3;

/// So many flows that send bursts of so many requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Flows {
    pub(crate) flows: usize,
    pub(crate) count: u32,
}

/// The flows of a row, which have the virtqueues in the order of [`Whose`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct RowSpec {
    /// They keep a deep queue.
    pub(crate) busy: usize,
    /// They pause between bursts.
    pub(crate) interactive: Flows,
    /// They do not.
    pub(crate) attackers: Flows,
}

/// What a virtqueue does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Interactive,
    Attacker,
    Busy,
}

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// Bursts of 32 against K busy flows
    K,
    /// Bursts of N against 16 busy flows
    N,
    /// Attackers, and a victim, against 16 busy flows
    A,
    /// m interactive flows at once against 16 busy ones
    M,
}

impl Table {
    pub(crate) const ALL: [Self; 4] = [Self::K, Self::N, Self::A, Self::M];
    /// Those that were published.
    pub(crate) const PUBLISHED: [Self; 2] = [Self::K, Self::N];
    /// Those with sustained bursts.
    pub(crate) const SUSTAINED: [Self; 2] = [Self::A, Self::M];

    pub(crate) fn rows(self) -> Vec<RowSpec> {
        let against = |interactive, attackers| RowSpec { busy: BUSY_FLOWS, interactive, attackers };
        let none = Flows::default();
        match self {
            Self::K => BUSY.map(|busy| RowSpec::one(COUNT, busy)).into(),
            Self::N => COUNTS.map(|count| RowSpec::one(count, BUSY_FLOWS)).into(),
            Self::A => ATTACKS.map(|attack| against(if attack == ATTACK { VICTIM } else { none }, attack)).into(),
            Self::M => MANY.map(|flows| against(Flows { flows, count: COUNT }, none)).into(),
        }
    }

    pub(crate) fn rounds(self, rounds: u16) -> u16 {
        if Self::SUSTAINED.contains(&self) { rounds.min(MOST_ROUNDS) } else { rounds }
    }

    /// How long a cell is measured.
    pub(crate) fn time(self, seconds: Duration) -> Duration {
        if Self::SUSTAINED.contains(&self) { seconds.max(LONGER) } else { seconds }
    }
}

impl RowSpec {
    /// One flow with bursts of so many against so many busy ones.
    pub(crate) fn one(count: u32, busy: usize) -> Self {
        Self { busy, interactive: Flows { flows: 1, count }, ..Self::default() }
    }

    /// The interactive flows alone: their floor.
    pub(crate) fn alone(self) -> Self {
        Self { interactive: self.interactive, ..Self::default() }
    }

    /// Virtqueues.
    pub(crate) fn queues(self) -> usize {
        self.interactive.flows + self.attackers.flows + self.busy
    }

    /// Of those that send bursts how many requests each, and whether it pauses.
    pub(crate) fn bursts(self) -> impl Iterator<Item = (u32, bool)> {
        let flows = |of: Flows, pauses| std::iter::repeat_n((of.count, pauses), of.flows);
        flows(self.interactive, true).chain(flows(self.attackers, false))
    }

    pub(crate) fn whose(self, queue: usize) -> Whose {
        match queue {
            queue if queue < self.interactive.flows => Whose::Interactive,
            queue if queue < self.interactive.flows + self.attackers.flows => Whose::Attacker,
            _ => Whose::Busy,
        }
    }

    /// The same flows in virtual time.
    pub(crate) fn load(self) -> Vec<Load> {
        let interactive = vec![interactive(self.interactive.count); self.interactive.flows];
        [interactive, attackers(self.attackers.flows, self.attackers.count), bulk(self.busy)].concat()
    }

    /// As progress and targets call it.
    pub(crate) fn name(self) -> String {
        let interactive = match self.interactive {
            Flows { flows: 0, .. } => None,
            Flows { flows: 1, count } => Some(format!("N={count}")),
            Flows { flows, count } => Some(format!("{flows} × N={count}")),
        };
        let Flows { flows, count } = self.attackers;
        let attackers = (flows > 0).then(|| format!("{flows} × {count} without a pause"));
        let busy = Some(format!("K={}", self.busy));
        [interactive, attackers, busy].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// What a burst takes if every flow gets a request in its turn.
    pub(crate) fn longest_burst(self) -> Duration {
        let count = self.bursts().map(|(count, _)| count).max().unwrap_or(0);
        SERVICE * self.queues() as u32 * count / SLOTS as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtqueues_are_dealt_to_interactive_flows_attackers_and_busy_ones() {
        let row = Table::A.rows()[1];
        let whose: Vec<Whose> = (0..row.queues()).map(|queue| row.whose(queue)).collect();
        assert_eq!((whose.len(), whose[0]), (21, Whose::Interactive));
        assert!(whose[1..5].iter().all(|whose| *whose == Whose::Attacker));
        assert!(whose[5..].iter().all(|whose| *whose == Whose::Busy));
        assert_eq!(row.bursts().collect::<Vec<_>>(), [(2, true), (64, false), (64, false), (64, false), (64, false)]);
        assert_eq!((row.alone().queues(), row.alone().interactive), (1, VICTIM));
        assert_eq!(row.load().len(), 21);
    }

    #[test]
    fn names_say_who_is_there() {
        let names = |table: Table| table.rows().into_iter().map(RowSpec::name).collect::<Vec<_>>();
        let attacks =
            ["1 × 64 without a pause, K=16", "N=2, 4 × 64 without a pause, K=16", "4 × 32 without a pause, K=16"];
        assert_eq!(names(Table::A), attacks);
        assert_eq!(names(Table::M)[..2], ["N=32, K=16", "2 × N=32, K=16"]);
    }

    #[test]
    fn a_burst_among_many_takes_their_turns() {
        assert_eq!(RowSpec::one(13, 9).longest_burst(), SERVICE * 10);
        let eight = Table::M.rows()[5];
        assert_eq!(eight.longest_burst(), SERVICE * 24 * 32 / 13);
        assert_eq!(RowSpec { busy: 16, ..RowSpec::default() }.longest_burst(), Duration::ZERO);
    }
}
