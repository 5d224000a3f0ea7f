//! `queue-depth`: the path with the fewest requests in flight.
//!
//! Rule: the path with the fewest requests in flight, optimized paths strictly before non-optimized. The first wins
//! ties. Source: Linux `drivers/nvme/host/multipath.c`, `nvme_queue_depth_path`. Linux counts per controller over all
//! CPUs. This policy counts per I/O thread, each of which has its own queue pair.
//!
//! Its alias `queue` is the btrfs read policy in Kai Krakow's series: the mirror with the fewest requests in flight,
//! the first wins ties. Mirrors have no ANA states. Among paths in one state the two rules are the same.

use super::{Candidate, Choice, Opinion, Policy, PolicyInfo, Query};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "queue-depth",
    aliases: &["queue"],
    description: "the path with the fewest requests in flight",
    params: &[],
    build: |_, _| Box::new(QueueDepth),
};

#[derive(Clone, Debug)]
pub(super) struct QueueDepth;

impl Policy for QueueDepth {
    fn select(&mut self, _query: &Query, candidates: &[Candidate]) -> Choice {
        candidates
            .iter()
            .filter(|c| c.has_room)
            .min_by_key(|c| c.in_flight)
            .map_or(Choice::Wait { again: None }, |c| Choice::Path(c.path))
    }

    fn opinions(&mut self, _query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        candidates.iter().map(|candidate| Opinion::InFlight { in_flight: candidate.in_flight }).collect()
    }
}

#[cfg(test)]
mod tests {
    use monotonic::Instant;

    use super::*;
    use crate::policy::testing::{WAIT, candidate, full, path, read};

    fn loaded(path: u16, in_flight: u32) -> Candidate {
        Candidate { in_flight, ..candidate(path) }
    }

    #[test]
    fn fewest_in_flight_and_first_wins_ties() {
        let query = read(Instant::now());
        let select = |candidates: &[Candidate]| QueueDepth.select(&query, candidates);
        assert_eq!(select(&[loaded(0, 3), loaded(1, 2), loaded(2, 2)]), path(1));
        assert_eq!(select(&[loaded(0, 3), full(1), loaded(2, 4)]), path(0));
        assert_eq!(select(&[full(0), full(1)]), WAIT);
    }
}
