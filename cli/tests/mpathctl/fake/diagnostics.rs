//! Explanations and slow requests that are made up.

use monotonic::Duration;
use mpath_api::types::{
    ClassFigures, Decision, ExplainedPath, FlushTarget, GuestErrorReason, GuestOperation, HistoryMinute, MinuteFigures,
    NextRequest, Opinion, Path, PathId, PathMinute, PathReason, PathState, SlowRequest, Stages, ThreadExplanation,
    WaitCause, Waiting,
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
        paths: of_disk0(
            [None, Some(PathReason::Down)],
            Opinion::AnsweredIn { answered_in: Duration::from_micros(210) },
        ),
    };
    let write = NextRequest {
        exists: true,
        bytes: 65_536,
        limit_left_us: Some(87_000),
        decision: Decision::NoRoom,
        index: None,
        left_us: None,
        paths: of_disk0([Some(PathReason::WindowFull), Some(PathReason::Down)], Opinion::Turn),
    };
    let flush = FlushTarget { path: PathId(0), is_presumed: false, has_lost_writes: false, is_reachable: true };
    let lost = FlushTarget { path: PathId(1), is_presumed: false, has_lost_writes: true, is_reachable: false };
    let waiting = |cause, path, ends_in, behind| Waiting {
        cause,
        path,
        requests: 2,
        oldest: Duration::from_micros(3_250),
        ends_in,
        behind,
    };
    vec![ThreadExplanation {
        thread: 0,
        queues: vec![0, 2],
        held_ms: None,
        suspended: false,
        read,
        write,
        flush: Some(vec![flush, lost]),
        waiting: vec![
            waiting(WaitCause::Limit, None, Some(Duration::from_millis(87)), 1),
            waiting(WaitCause::Answer, Some(PathId(0)), None, 0),
        ],
    }]
}

/// A read of each disk. The slower one was injected, and the other failed after a retry.
pub(super) fn slow() -> Vec<SlowRequest> {
    let us = Duration::from_micros;
    let stages = Stages { injection: us(30_000), path: us(210), queue: us(3), ..Stages::default() };
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
    let stages = Stages { retry: us(100_000), earlier_attempts: us(250), path: us(50_000), ..Stages::default() };
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

/// Two minutes: the host stood still in the second one.
pub(super) fn history() -> Vec<HistoryMinute> {
    let figures = |ios, p50_us| Some(MinuteFigures { ios, p50_us, p99_us: p50_us * 4, max_us: p50_us * 50 });
    let io = |p50_us| ClassFigures { read: figures(120_000, p50_us), write: figures(6_000, 2 * p50_us), other: None };
    let path = |index, p50_us| {
        let address = format!("tcp://192.0.2.{}:4420", index + 1);
        PathMinute { index, address, io: io(p50_us) }
    };
    let minute = |began: &str, stalled_ms| HistoryMinute {
        began: began.into(),
        seconds: if stalled_ms > 0 { 30 } else { 60 },
        guest: io(200),
        long_requests: Stages {
            path: Duration::from_millis(250),
            host: Duration::from_millis(stalled_ms),
            ..Stages::default()
        },
        host_stalled_ms: stalled_ms,
        oldest_request_ms: (stalled_ms > 0).then_some(12_400),
        slowest: (stalled_ms > 0).then(|| slow().remove(0)),
        paths: vec![path(0, 180), path(1, 30_000)],
    };
    vec![minute("2026-11-25T03:12:00.000Z", 0), minute("2026-11-25T03:13:00.000Z", 750)]
}
