//! `service-time`: the path that finishes the request and everything in flight first.
//!
//! Rule: least `(bytes in flight + bytes of the request) / relative throughput`. Ties go to the greater relative
//! throughput, then to the first path. Source: Linux `drivers/md/dm-ps-service-time.c`, `st_compare_load`. As there,
//! the relative throughput of a path (`throughput`) is configured, not measured; the default is 1. `throughput=4,1`
//! says that the first path is four times as fast as the second. In Linux, 0 keeps a path out while there are others;
//! here draining does.
//!
//! A path with a full window is skipped.

use std::cmp::Reverse;

use super::{Candidate, Choice, Opinion, Param, Policy, PolicyInfo, PolicySpec, Query};
use crate::{MAX_PATHS, PathId};

const THROUGHPUT: Param =
    Param::per_path("throughput", "how fast each path is, in relation to the others, in the order of the paths");

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "service-time",
    aliases: &[],
    description: "the path with the fewest bytes in flight relative to its throughput",
    params: &[THROUGHPUT],
    build: |spec, _| {
        let mut policy = ServiceTime { throughput: Vec::new() };
        policy.configure(spec);
        Box::new(policy)
    },
};

#[derive(Clone, Debug)]
struct ServiceTime {
    /// By path.
    throughput: Vec<u64>,
}

impl ServiceTime {
    /// The key by which paths are compared: bytes divided by relative throughput. The unit is 1/1024 of a byte, so that
    /// rounding does not make unequal paths equal.
    fn service_time(&self, query: &Query, candidate: &Candidate) -> (u64, Reverse<u64>) {
        let throughput = self.throughput[candidate.path.index()];
        (((candidate.in_flight_bytes + u64::from(query.bytes)) << 10) / throughput, Reverse(throughput))
    }
}

impl Policy for ServiceTime {
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice {
        let with_room = candidates.iter().filter(|candidate| candidate.has_room);
        let best = with_room.min_by_key(|candidate| self.service_time(query, candidate));
        best.map_or(Choice::Wait { again: None }, |best| Choice::Path(best.path))
    }

    fn opinions(&mut self, query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        let bytes = |candidate: &Candidate| self.service_time(query, candidate).0 >> 10;
        candidates.iter().map(|candidate| Opinion::Service { bytes: bytes(candidate) }).collect()
    }

    fn configure(&mut self, spec: &PolicySpec) {
        let of = |path| u64::from(spec.of_path(THROUGHPUT.name(), PathId(path)));
        self.throughput = (0..MAX_PATHS as u16).map(of).collect();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::policy::PolicyKind;
    use crate::policy::testing::{WAIT, candidate, full, path, read};

    fn select(throughput: &str, bytes: u32, loads: &[u64]) -> Choice {
        let spec = PolicySpec::new(PolicyKind::ServiceTime, [("throughput", throughput)]).expect("valid");
        let mut policy = PolicyKind::ServiceTime.build(&spec, 0);
        let candidates: Vec<Candidate> =
            (0..).zip(loads).map(|(id, load)| Candidate { in_flight_bytes: *load, ..candidate(id) }).collect();
        policy.select(&Query { bytes, ..read(Instant::now()) }, &candidates)
    }

    #[test]
    fn bytes_in_flight_and_the_request_by_throughput() {
        assert_eq!(select("default", 4096, &[8192, 4096, 4096]), path(1));
        // Bytes count, not requests. The request counts too: (12 + 4)/4 < (0 + 8)/1, but not with 32 in flight.
        assert_eq!(select("4,1", 4096, &[12_288, 4096]), path(0));
        assert_eq!(select("4,1", 4096, &[32_768, 4096]), path(1));
        assert_eq!(select("4,1", 65_536, &[32_768, 4096]), path(0));
        // Idle: the faster path first. Requests without bytes: by bytes in flight.
        assert_eq!(select("1,4", 0, &[0, 0]), path(1));
        assert_eq!(select("4,1", 0, &[4096, 0]), path(1));
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
