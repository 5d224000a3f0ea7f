//! Explanations and slow requests that are made up.

use mpath_api::types::{
    Decision, ExplainedPath, FlushTarget, GuestErrorReason, GuestOperation, NextRequest, Path, PathReason, PathState,
    PolicyOpinion, SlowRequest, SlowStages, ThreadExplanation, WaitReason, Waiting,
};

/// A thread with two virtqueues of `disk0`: reads go to the live path, and a write waits for the limits and for room.
pub(super) fn explained(paths: &[Path]) -> Vec<ThreadExplanation> {
    let explained = |path: &Path, reason, opinion| ExplainedPath {
        index: path.index,
        address: path.address.clone(),
        state: path.state,
        reason,
        left_us: None,
        ana_state: None,
        opinion,
        in_flight: 3,
        in_flight_bytes: 12_288,
        suspect: false,
        injections: path.injections.clone(),
        detail: (path.state != PathState::Live).then(|| "lost: Connection refused (os error 111)".into()),
    };
    let of_disk0 = |reasons: [Option<PathReason>; 2], opinion| {
        vec![explained(&paths[0], reasons[0], Some(opinion)), explained(&paths[1], reasons[1], None)]
    };
    let read = NextRequest {
        exists: false,
        bytes: 4096,
        limit_left_us: None,
        decision: Decision::Path,
        index: Some(0),
        left_us: None,
        paths: of_disk0([None, Some(PathReason::Down)], PolicyOpinion::AnsweredIn { answered_in_us: 210 }),
    };
    let write = NextRequest {
        exists: true,
        bytes: 65_536,
        limit_left_us: Some(87_000),
        decision: Decision::NoRoom,
        index: None,
        left_us: None,
        paths: of_disk0([Some(PathReason::WindowFull), Some(PathReason::Down)], PolicyOpinion::Turn),
    };
    let flush = FlushTarget { index: 0, presumed: false, lost_writes: false, reachable: true };
    let lost = FlushTarget { index: 1, presumed: false, lost_writes: true, reachable: false };
    let waiting =
        |cause, index, left_us, behind| Waiting { cause, index, requests: 2, oldest_us: 3_250, left_us, behind };
    vec![ThreadExplanation {
        thread: 0,
        queues: vec![0, 2],
        held_ms: None,
        suspended: false,
        read,
        write,
        flush: Some(vec![flush, lost]),
        waiting: vec![waiting(WaitReason::Limit, None, Some(87_000), 1), waiting(WaitReason::Answer, Some(0), None, 0)],
    }]
}

/// A read of each disk. The slower one was injected, and the other failed after a retry.
pub(super) fn slow() -> Vec<SlowRequest> {
    let stages = SlowStages { injection_us: 30_000, path_us: 210, queue_us: 3, ..SlowStages::default() };
    let injected = SlowRequest {
        disk: "disk0".into(),
        ended: "2026-11-21T07:00:01.000Z".into(),
        operation: GuestOperation::Read,
        queue: 2,
        sector: Some(8192),
        bytes: 4096,
        total_us: 30_213,
        stages,
        longest: "injection".into(),
        index: Some(1),
        paths: vec![1],
        attempts: 1,
        error: None,
    };
    let stages = SlowStages { retry_us: 100_000, earlier_attempts_us: 250, path_us: 50_000, ..SlowStages::default() };
    let failed = SlowRequest {
        disk: "disk1".into(),
        operation: GuestOperation::Flush,
        sector: None,
        bytes: 0,
        total_us: 150_250,
        stages,
        longest: "retry".into(),
        index: None,
        paths: vec![0, 1],
        attempts: 2,
        error: Some(GuestErrorReason::Attempts),
        ..injected.clone()
    };
    vec![injected, failed]
}
