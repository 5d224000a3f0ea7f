//! `numa`: one path takes everything.
//!
//! Rule: the nearest optimized path by NUMA distance, else the nearest non-optimized path. The first wins ties. The
//! path stays the same while no path comes or goes. Source: Linux `drivers/nvme/host/multipath.c`, `nvme_find_path`.
//! Linux caches the choice per node, and chooses again when the cached path goes or an optimized path comes. A new
//! choice for each request has the same result.
//!
//! While the window of the path is full, requests wait: any other path would make this another policy.

use super::{Candidate, Choice, Opinion, Policy, PolicyInfo, Query};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "numa",
    aliases: &[],
    description: "only the nearest path by NUMA distance; the others stand by",
    params: &[],
    build: |_, _| Box::new(Numa),
};

#[derive(Clone, Debug)]
pub(super) struct Numa;

impl Policy for Numa {
    fn select(&mut self, _query: &Query, candidates: &[Candidate]) -> Choice {
        match candidates.iter().min_by_key(|c| c.numa_distance) {
            Some(nearest) if nearest.has_room => Choice::Path(nearest.path),
            _ => Choice::Wait { again: None },
        }
    }

    fn opinions(&mut self, _query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        candidates.iter().map(|candidate| Opinion::NumaDistance { distance: candidate.numa_distance }).collect()
    }
}

#[cfg(test)]
mod tests {
    use monotonic::Instant;

    use super::*;
    use crate::policy::testing::{WAIT, candidate, full, path, read};

    #[test]
    fn nearest_and_first_wins_ties() {
        let query = read(Instant::now());
        let far = Candidate { numa_distance: 20, ..candidate(0) };
        assert_eq!(Numa.select(&query, &[candidate(0), candidate(1)]), path(0));
        assert_eq!(Numa.select(&query, &[far, candidate(1), candidate(2)]), path(1));
    }

    #[test]
    fn waits_for_its_path() {
        let query = read(Instant::now());
        assert_eq!(Numa.select(&query, &[full(0), candidate(1)]), WAIT);
    }
}
