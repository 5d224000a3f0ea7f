//! Explanations and slow requests: the answers of the I/O threads, with what only the control thread knows.

use std::time::SystemTime;

use monotonic::Instant;
use mpath_api::types::{ExplainedPath, NextRequest, PathReason, SlowRequest, ThreadExplanation};
use mpath_api_server::ControlError;
use mpath_core::{DiskId, PathVerdict, WaitCause, Waiting};
use tokio::sync::oneshot;

use crate::events::utc;
use crate::subsystem::Subsystem;
use crate::subsystem::path_injection::PathInjection;

/// The next requests of a disk in each I/O thread of its subsystem.
pub(crate) async fn explain(subsystem: &Subsystem, disk: DiskId) -> Result<Vec<ThreadExplanation>, ControlError> {
    let mut waits = Vec::new();
    for thread in subsystem.threads() {
        let (reply, wait) = oneshot::channel();
        // The client may have stopped waiting.
        thread.explain(disk, Box::new(move |explained| drop(reply.send(explained))));
        waits.push((thread.thread().number(), wait));
    }
    let mut threads = Vec::new();
    for (number, wait) in waits {
        let explained = wait.await.map_err(|_| ControlError::Ending)?;
        threads.push(describe(subsystem, disk, number, &explained));
    }
    let is_served = threads.iter().any(|thread| !thread.queues.is_empty());
    if is_served {
        threads.retain(|thread| !thread.queues.is_empty());
    } else {
        threads.truncate(1);
    }
    Ok(threads)
}

fn describe(
    subsystem: &Subsystem,
    disk: DiskId,
    thread: u16,
    explained: &reactor::ThreadExplanation,
) -> ThreadExplanation {
    let first_flow = subsystem.disk(disk).first_flow;
    let path = |verdict: &PathVerdict| describe_path(subsystem, disk, verdict);
    let group = &explained.group;
    ThreadExplanation {
        thread,
        queues: explained.queues.iter().map(|flow| flow.0 - first_flow.0).collect(),
        // Rounded up, so that 0 is never shown while requests are held.
        held_ms: explained.held_for.map(|left| left.as_millis() + 1),
        suspended: explained.is_suspended,
        read: NextRequest::new(&group.read, path),
        write: NextRequest::new(&group.write, path),
        flush: group.flush.clone(),
        waiting: group.waiting.iter().map(|of| with_fence(subsystem, *of)).collect(),
    }
}

/// Adds when the fence ends at the latest, which the I/O thread does not know.
fn with_fence(subsystem: &Subsystem, of: Waiting) -> Waiting {
    let fence = of.path.filter(|_| of.cause == WaitCause::Fence);
    Waiting { ends_in: of.ends_in.or_else(|| subsystem.fence_left(fence?)), ..of }
}

/// A path as the API explains it. `None` if the path was removed meanwhile.
fn describe_path(subsystem: &Subsystem, disk: DiskId, verdict: &PathVerdict) -> Option<ExplainedPath> {
    let state = subsystem.state();
    let status = state.path(verdict.path)?;
    let (reason, left, ana_state) = match verdict.why_not {
        Some(why_not) => {
            let (reason, left, ana_state) = PathReason::of(why_not);
            (Some(reason), left, ana_state)
        }
        None => (None, None, None),
    };
    Some(ExplainedPath {
        index: verdict.path.0,
        address: status.address.clone(),
        state: status.api_state(),
        reason,
        left_us: left.map(monotonic::Duration::as_micros),
        ana_state,
        opinion: verdict.opinion,
        in_flight: verdict.in_flight,
        in_flight_bytes: verdict.in_flight_bytes,
        suspect: verdict.is_suspect,
        injections: status.injections.iter().map(PathInjection::for_api).collect(),
        detail: status.unusable(disk, &subsystem.disk(disk).shared.usable),
    })
}

/// The slowest requests of a subsystem in the last minutes.
pub(crate) async fn slow(subsystem: &Subsystem) -> Result<Vec<SlowRequest>, ControlError> {
    let mut waits = Vec::new();
    for thread in subsystem.threads() {
        let (reply, wait) = oneshot::channel();
        thread.slow_requests(Box::new(move |slow| drop(reply.send(slow))));
        waits.push(wait);
    }
    let mut all = Vec::new();
    for wait in waits {
        let slow = wait.await.map_err(|_| ControlError::Ending)?;
        let (now, time) = (Instant::now(), SystemTime::now());
        all.extend(slow.iter().map(|of| {
            let disk = subsystem.disk(of.io.disk);
            let ended = time.checked_sub((now - of.ended_at).into()).unwrap_or(time);
            SlowRequest::new(disk.name().into(), utc(ended), of.io.flow.0 - disk.first_flow.0, of)
        }));
    }
    Ok(all)
}
