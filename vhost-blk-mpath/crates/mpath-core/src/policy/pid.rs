//! `pid`: each virtqueue keeps to one path.
//!
//! Rule: virtqueue `q` uses the path at position `q` modulo the number of paths. Source: btrfs `fs/btrfs/volumes.c`,
//! `find_live_mirror`, `current->pid % num_stripes`: a process keeps its mirror. A backend sees virtqueues instead of
//! processes. A guest assigns virtqueues to its CPUs, so a CPU of the guest keeps its path.
//!
//! While the window of a path is full, its requests wait. When a path comes or goes, virtqueues change their paths.

use super::{Candidate, Choice, Opinion, Policy, PolicyInfo, Query};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "pid",
    aliases: &[],
    description: "each virtqueue keeps to one path: the virtqueue's number modulo the number of paths",
    params: &[],
    build: |_, _| Box::new(Pid),
};

#[derive(Clone, Debug)]
struct Pid;

/// The position of the virtqueue's path among the candidates.
fn position(query: &Query, candidates: &[Candidate]) -> usize {
    usize::from(query.flow.0) % candidates.len().max(1)
}

impl Policy for Pid {
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice {
        match candidates.get(position(query, candidates)) {
            Some(its) if its.has_room => Choice::Path(its.path),
            _ => Choice::Wait { again: None },
        }
    }

    fn treats_flows_alike(&self) -> bool {
        false
    }

    fn opinions(&mut self, query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        let kept = position(query, candidates);
        (0..candidates.len()).map(|at| Opinion::Kept { here: at == kept }).collect()
    }
}

#[cfg(test)]
mod tests {
    use monotonic::Instant;

    use super::*;
    use crate::FlowId;
    use crate::policy::testing::{WAIT, candidate, full, path, read};

    #[test]
    fn a_virtqueue_keeps_its_path() {
        let of = |flow| Query { flow: FlowId(flow), ..read(Instant::now()) };
        let three = [candidate(0), candidate(3), candidate(5)];
        for (flow, expected) in [(0, 0), (1, 3), (2, 5), (3, 0), (7, 3), (7, 3)] {
            assert_eq!(Pid.select(&of(flow), &three), path(expected));
        }
        assert_eq!(Pid.select(&of(1), &[candidate(0), full(1)]), WAIT);
    }
}
