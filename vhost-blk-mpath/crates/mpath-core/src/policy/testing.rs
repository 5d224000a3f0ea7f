//! Test helpers of policies.

use super::*;

pub(super) fn candidate(path: u16) -> Candidate {
    Candidate {
        path: PathId(path),
        has_room: true,
        in_flight: 0,
        in_flight_bytes: 0,
        of_class: Usage::default(),
        numa_distance: 10,
        oldest: None,
        version: 0,
    }
}

pub(super) fn full(path: u16) -> Candidate {
    Candidate { has_room: false, in_flight: 1, ..candidate(path) }
}

pub(super) fn read(now: Instant) -> Query {
    Query { now, class: OpClass::Read, bytes: 4096, flow: FlowId(0), queued: 1 }
}

/// A candidate with one read of 4 KiB in flight since `since`.
pub(super) fn busy(path: u16, since: Instant) -> Candidate {
    let oldest = Some(Oldest { bound_at: since, bytes: 4096 });
    let usage = Usage { ios: 1, bytes: 4096 };
    Candidate { in_flight: 1, in_flight_bytes: 4096, of_class: usage, oldest, ..candidate(path) }
}

/// A read of 4 KiB that succeeded.
pub(super) fn done(now: Instant, path: u16, latency: Duration) -> CompletedAttempt {
    CompletedAttempt {
        now,
        path: PathId(path),
        class: OpClass::Read,
        bytes: 4096,
        latency,
        ended: AttemptEnd::Answered,
        of_class: Usage::default(),
    }
}

pub(super) fn path(path: u16) -> Choice {
    Choice::Path(PathId(path))
}

pub(super) const WAIT: Choice = Choice::Wait { again: None };

pub(super) fn start() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// A policy with a long history of paths with these latencies in µs. The latest sample is just now.
pub(super) fn known(spec: &PolicySpec, now: Instant, latencies: &[u64]) -> Box<dyn Policy> {
    let mut policy = spec.kind().build(spec, 1);
    for n in (0..1000).rev() {
        let at = now.checked_sub(Duration::from_micros(n * 100)).expect("the clock is past 100 ms");
        for (path, us) in (0..).zip(latencies) {
            // The policy sees one path at a time.
            policy.select(&read(at), &[candidate(path)]);
            policy.completed(&done(at, path, Duration::from_micros(*us)));
        }
    }
    policy
}

/// The next choices of a policy on idle paths.
pub(super) fn choices(policy: &mut dyn Policy, now: Instant, paths: u16, count: usize) -> Vec<Choice> {
    let candidates: Vec<Candidate> = (0..paths).map(candidate).collect();
    (0..count).map(|_| policy.select(&read(now), &candidates)).collect()
}
