//! `round-robin`: each path in turn.
//!
//! Rule: the next optimized path after the last one used; a non-optimized path only if there is no optimized one.
//! Source: Linux `drivers/nvme/host/multipath.c`, `nvme_round_robin_path`.
//!
//! A path with a full window loses its turn to the next path with room. So a slow path delays no more requests than
//! its window.

use super::{Candidate, Choice, Opinion, Policy, PolicyInfo, Query, next_after};
use crate::PathId;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "round-robin",
    aliases: &[],
    description: "each path in turn",
    params: &[],
    build: |_, _| Box::<RoundRobin>::default(),
};

#[derive(Clone, Debug, Default)]
pub(super) struct RoundRobin {
    last: Option<PathId>,
}

impl Policy for RoundRobin {
    fn select(&mut self, _query: &Query, candidates: &[Candidate]) -> Choice {
        let with_room = candidates.iter().filter(|c| c.has_room).map(|c| c.path);
        match next_after(self.last, with_room) {
            Some(path) => {
                self.last = Some(path);
                Choice::Path(path)
            }
            None => Choice::Wait { again: None },
        }
    }

    fn opinions(&mut self, _query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        vec![Opinion::Turn; candidates.len()]
    }
}

#[cfg(test)]
mod tests {
    use monotonic::Instant;

    use super::*;
    use crate::policy::testing::{WAIT, candidate, full, path, read};

    fn run(policy: &mut RoundRobin, candidates: &[Candidate]) -> Choice {
        policy.select(&read(Instant::now()), candidates)
    }

    #[test]
    fn takes_turns() {
        let mut policy = RoundRobin::default();
        let three = [candidate(0), candidate(1), candidate(2)];
        for expected in [0, 1, 2, 0, 1] {
            assert_eq!(run(&mut policy, &three), path(expected));
        }
    }

    #[test]
    fn passes_over_full_paths() {
        let mut policy = RoundRobin::default();
        let some = [candidate(0), full(1), candidate(2)];
        for expected in [0, 2, 0, 2] {
            assert_eq!(run(&mut policy, &some), path(expected));
        }
        assert_eq!(run(&mut policy, &[full(0), full(1)]), WAIT);
    }
}
