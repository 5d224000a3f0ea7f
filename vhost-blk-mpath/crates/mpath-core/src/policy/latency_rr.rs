//! `latency-rr`: each path in turn that is near the best latency.
//!
//! Rule: round-robin over the paths with an average latency within 125 % of the lowest (`threshold`). Source: the
//! btrfs read policy of this name in Kai Krakow's series. [`super::latency_policy`] has the averages, and how other
//! paths are measured again.
//!
//! Doubt about a young average counts for the path in question and against the best. Otherwise one unlucky sample
//! would shut a good path out until its next measurement, or one lucky sample would shut out all the others.

use super::latency_policy::{AGE, BURST, LatencyPolicy, MEMORY, PROBE_COST, REHABILITATION, Spread};
use super::{Param, PolicyInfo};

const THRESHOLD: Param = Param::ratio(
    "threshold",
    (1000, 10_000),
    1250,
    "a path takes part while its average latency is at most this many times the lowest",
);

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "latency-rr",
    aliases: &[],
    description: "each path in turn that is within 125 % of the lowest average latency",
    params: &[THRESHOLD, MEMORY, REHABILITATION, PROBE_COST, AGE, BURST],
    build: |spec, seed| Box::new(LatencyPolicy::new(|spec| Spread::Band(spec.number(THRESHOLD.name())), spec, seed)),
};

#[cfg(test)]
mod tests {
    use monotonic::{Duration, Instant};

    use crate::policy::testing::{busy, candidate, done, full, path, read};
    use crate::policy::testing::{choices, known, start};
    use crate::policy::{Candidate, Choice, Oldest, Policy, PolicyKind, Query};
    use crate::{OpClass, PathId};

    const MS: Duration = Duration::from_millis(1);

    fn latency_rr(now: Instant, latencies: &[u64]) -> Box<dyn Policy> {
        known(&PolicyKind::LatencyRr.into(), now, latencies)
    }

    #[test]
    fn takes_turns_within_125_percent_of_the_best() {
        let now = start();
        let mut policy = latency_rr(now, &[1240, 1260, 1000, 30_000]);
        assert_eq!(choices(&mut *policy, now, 4, 4), [path(0), path(2), path(0), path(2)]);
    }

    #[test]
    fn a_new_path_is_measured_at_once_by_one_request() {
        let now = start();
        let mut policy = latency_rr(now, &[1000]);
        assert_eq!(policy.select(&read(now), &[candidate(0), candidate(1)]), path(1));
        assert_eq!(policy.select(&read(now), &[candidate(0), busy(1, now)]), path(0));
        policy.completed(&done(now, 1, 30 * MS));
        assert_eq!(choices(&mut *policy, now, 2, 2), [path(0), path(0)]);
    }

    #[test]
    fn one_unlucky_sample_does_not_shut_a_path_out() {
        let now = start();
        let mut policy = latency_rr(now, &[1000]);
        policy.completed(&done(now, 1, Duration::from_micros(1800)));
        assert!(choices(&mut *policy, now, 2, 2).contains(&path(1)));
        // One lucky sample does not shut out all the others either.
        policy.completed(&done(now + MS, 2, Duration::from_micros(500)));
        assert!(choices(&mut *policy, now + MS, 3, 3).contains(&path(0)));
    }

    #[test]
    fn a_jump_counts_with_the_first_samples() {
        let now = start();
        let mut policy = latency_rr(now, &[200, 200]);
        assert!(choices(&mut *policy, now, 2, 2).contains(&path(0)));
        for _ in 0..2 {
            policy.completed(&done(now, 0, 30 * MS));
        }
        assert_eq!(choices(&mut *policy, now, 2, 2), [path(1), path(1)]);
    }

    #[test]
    fn silence_counts_before_any_sample() {
        let now = start();
        let mut policy = latency_rr(now, &[1000, 1000]);
        let stuck = busy(0, now);
        let mut at = |us| {
            let query = read(now + Duration::from_micros(us));
            [policy.select(&query, &[stuck, candidate(1)]), policy.select(&query, &[stuck, candidate(1)])]
        };
        assert!(at(1200).contains(&path(0)));
        assert_eq!(at(1300), [path(1), path(1)]);
    }

    #[test]
    fn probes_come_one_at_a_time_after_a_rest() {
        let mut now = start();
        let mut policy = latency_rr(now, &[200, 30_000]);
        assert_eq!(choices(&mut *policy, now, 2, 1), [path(0)]);
        // 32 × 30 ms and up to 1/8 more.
        now += 1081 * MS;
        policy.completed(&done(now, 0, MS / 5));
        assert_eq!(choices(&mut *policy, now, 2, 1), [path(1)]);
        now += 5000 * MS;
        policy.completed(&done(now, 0, MS / 5));
        let probed = busy(1, now);
        assert_eq!(policy.select(&read(now), &[candidate(0), probed]), path(0), "still under way");
        // Good again: its old average is forgotten.
        policy.completed(&done(now, 1, MS / 5));
        assert!(choices(&mut *policy, now, 2, 2).contains(&path(1)));
    }

    #[test]
    fn waits_for_a_full_good_path_and_asks_again() {
        let now = start();
        let mut policy = latency_rr(now, &[1000, 30_000]);
        let good = Candidate { oldest: Some(Oldest { bound_at: now, bytes: 4096 }), ..full(0) };
        let again = Some(now + MS);
        assert_eq!(policy.select(&read(now), &[good, candidate(1)]), Choice::Wait { again });
        // The good path would need 40 ms for this queue: the other path is better.
        let query = Query { queued: 40, ..read(now) };
        assert_eq!(policy.select(&query, &[good, candidate(1)]), path(1));
    }

    #[test]
    fn classes_are_separate_and_a_changed_path_is_new() {
        let now = start();
        let mut policy = latency_rr(now, &[200, 30_000]);
        assert_eq!(policy.estimate(PathId(0), OpClass::Write).latency, None);
        policy.path_changed(PathId(1));
        assert_eq!(choices(&mut *policy, now, 2, 1), [path(1)]);
    }
}
