//! `service-time`: the path with the fewest bytes in flight.
//!
//! Rule: least bytes in flight. Ties go to the first path. Source: Linux `drivers/md/dm-ps-service-time.c`, `st_compare_load`, with
//! the same relative throughput for all paths.
//!
//! A path with a full window is skipped.

use super::{Candidate, Choice, Opinion, Policy, PolicyInfo, Query};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "service-time",
    aliases: &[],
    description: "the path with the fewest bytes in flight",
    params: &[],
    build: |_, _| Box::new(ServiceTime),
};

#[derive(Clone, Debug)]
struct ServiceTime;

impl Policy for ServiceTime {
    fn select(&mut self, _: &Query, candidates: &[Candidate]) -> Choice {
        let with_room = candidates.iter().filter(|candidate| candidate.has_room);
        let best = with_room.min_by_key(|candidate| candidate.in_flight_bytes);
        best.map_or(Choice::Wait { again: None }, |best| Choice::Path(best.path))
    }

    fn opinions(&mut self, query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        let bytes = |candidate: &Candidate| candidate.in_flight_bytes + u64::from(query.bytes);
        candidates.iter().map(|candidate| Opinion::Service { bytes: bytes(candidate) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use monotonic::Instant;

    use super::*;
    use crate::policy::PolicyKind;
    use crate::policy::testing::{WAIT, candidate, full, path, read};

    #[test]
    fn bytes_in_flight_count_and_not_requests() {
        let select = |loads: &[u64]| {
            let mut policy = PolicyKind::ServiceTime.build(&PolicyKind::ServiceTime.into(), 0);
            let candidates: Vec<Candidate> =
                (0..).zip(loads).map(|(id, load)| Candidate { in_flight_bytes: *load, ..candidate(id) }).collect();
            policy.select(&read(Instant::now()), &candidates)
        };
        assert_eq!(select(&[8192, 4096, 4096]), path(1));
        assert_eq!(select(&[0, 0]), path(0));
    }

    #[test]
    fn passes_over_full_paths() {
        let mut policy = PolicyKind::ServiceTime.build(&PolicyKind::ServiceTime.into(), 0);
        let mut select = |candidates: &[Candidate]| policy.select(&read(Instant::now()), candidates);
        let loaded = Candidate { in_flight_bytes: 1 << 20, ..candidate(1) };
        assert_eq!(select(&[full(0), loaded]), path(1));
        assert_eq!(select(&[full(0), full(1)]), WAIT);
    }
}
