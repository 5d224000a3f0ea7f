//! `latency`: the path with the lowest average latency.
//!
//! Rule: all requests go to the path with the lowest average latency. Source: the btrfs read policy of this name in
//! Kai Krakow's series. [`super::latency_policy`] has the averages, and how other paths are measured again.
//!
//! While the window of that path is full, requests wait for it, unless another path would answer sooner.

use super::PolicyInfo;
use super::latency_policy::{AGE, BURST, LatencyPolicy, MEMORY, PROBE_COST, REHABILITATION, Spread};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "latency",
    aliases: &[],
    description: "the path with the lowest average latency",
    params: &[MEMORY, REHABILITATION, PROBE_COST, AGE, BURST],
    build: |spec, seed| Box::new(LatencyPolicy::new(|_| Spread::Lowest, spec, seed)),
};

#[cfg(test)]
mod tests {
    use monotonic::Duration;

    use crate::policy::testing::{candidate, done, full, path, read};
    use crate::policy::testing::{choices, known, start};
    use crate::policy::{Choice, Policy, PolicyKind, PolicySpec};
    use crate::{OpClass, PathId};

    #[test]
    fn takes_only_the_path_with_the_lowest_latency() {
        let now = start();
        let mut policy = known(&PolicyKind::Latency.into(), now, &[1010, 1000, 30_000]);
        assert_eq!(choices(&mut *policy, now, 3, 3), [path(1); 3]);
        for _ in 0..600 {
            policy.completed(&done(now, 1, Duration::from_micros(1100)));
        }
        assert_eq!(choices(&mut *policy, now, 3, 2), [path(0); 2]);
    }

    #[test]
    fn waits_for_the_best_path_unless_another_is_sooner() {
        let now = start();
        let mut policy = known(&PolicyKind::Latency.into(), now, &[1000, 1400]);
        let waits = policy.select(&read(now), &[full(0), candidate(1)]);
        assert!(matches!(waits, Choice::Path(PathId(1))), "one waits behind one in flight: 2 ms, {waits:?}");
        let full = crate::policy::Candidate { in_flight: 4, ..full(0) };
        let waits = policy.select(&read(now), &[full, candidate(1)]);
        assert!(matches!(waits, Choice::Wait { again: Some(_) }), "1.25 ms: {waits:?}");
    }

    /// As published: at an age of more than 10,000 I/Os a path counts as the fastest for 100 of them.
    #[test]
    fn rehabilitation_by_ios() {
        let now = start();
        let spec = PolicySpec::new(PolicyKind::Latency, [("rehabilitation", "ios")]).expect("valid");
        let mut policy = known(&spec, now, &[1000, 30_000]);
        let mut run = |count| {
            let chosen = choices(&mut *policy, now, 2, count);
            chosen.iter().filter(|choice| **choice == path(1)).count()
        };
        assert_eq!(run(10_001), 0);
        assert_eq!(run(100), 100);
        assert_eq!(run(10_000), 0);
        let estimate = policy.estimate(PathId(1), OpClass::Read);
        assert_eq!((estimate.age, estimate.ignored), (Some(10_000), Some(20_001)));
        assert_eq!((estimate.checkpoints, estimate.checkpoint_ios), (Some(1), Some(0)));
        // Only the new measurement counts.
        policy.completed(&done(now, 1, Duration::from_micros(900)));
        assert_eq!(policy.estimate(PathId(1), OpClass::Read).latency, Some(Duration::from_micros(900)));
        assert_eq!(choices(&mut *policy, now, 2, 2), [path(1); 2]);
    }

    #[test]
    fn a_burst_ends_with_the_rehabilitation_rule() {
        let now = start();
        let spec = |rule| PolicySpec::new(PolicyKind::Latency, [("rehabilitation", rule)]).expect("valid");
        let mut policy = known(&spec("ios"), now, &[1000, 30_000]);
        choices(&mut *policy, now, 2, 10_050);
        let age = |policy: &dyn Policy| policy.estimate(PathId(1), OpClass::Read).age;
        assert_eq!(age(&*policy), Some(-51));
        policy.configure(&spec("time"));
        assert_eq!(age(&*policy), Some(0));
    }
}
