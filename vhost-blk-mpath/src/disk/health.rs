//! Decides: errors that the guest got are reasons of a condition.
//!
//! The health of one disk as last seen: its condition, and the errors that its guest got.

use std::collections::BTreeMap;
use std::time::SystemTime;

use monotonic::{Duration, Instant};
use mpath_api::types::{Condition, ConditionReason, EventKind, GuestErrorCount, GuestErrorReason, GuestOperation};
use mpath_core::{FailedRequest, GuestErrors, IoError};
use nvme_tcp::wire::Status;

use crate::events::utc;

/// A disk is failing for this long after an error.
const FAILING: Duration = Duration::from_secs(60);

/// What was last seen of one disk.
#[derive(Debug)]
pub(crate) struct HealthHistory {
    pub(crate) condition: Condition,
    /// Since when the disk is in this condition.
    pub(crate) since: SystemTime,
    /// Since when no path is usable.
    pub(crate) waiting_since: Option<SystemTime>,
    /// The last event of the condition of the paths: waiting, degraded or ok.
    pub(crate) told: Condition,
    /// Why no front-end can connect to the socket.
    pub(crate) lost_socket: Option<String>,
    errors: BTreeMap<(GuestOperation, GuestErrorReason), SeenErrors>,
}

/// The errors of one operation and reason.
#[derive(Debug)]
struct SeenErrors {
    count: u64,
    text: String,
    last_at: Instant,
    last_time: SystemTime,
}

impl Default for HealthHistory {
    fn default() -> Self {
        Self {
            condition: Condition::Ok,
            since: SystemTime::now(),
            waiting_since: None,
            told: Condition::Ok,
            lost_socket: None,
            errors: BTreeMap::new(),
        }
    }
}

impl HealthHistory {
    /// Notes errors that the guest got since the last call. Returns an event for each operation and reason that was quiet before.
    pub(crate) fn new_errors(
        &mut self,
        errors: &GuestErrors,
        now: Instant,
        time: SystemTime,
    ) -> Vec<(EventKind, String)> {
        let mut events = Vec::new();
        // A request is counted before it is kept, so this order misses none that is kept.
        let counts: Vec<_> = errors.counts().collect();
        let first = errors.take_first();
        for (op, error, count) in counts {
            let Some(reason) = GuestErrorReason::of(error) else { continue };
            let operation = GuestOperation::from(op);
            let seen = self.errors.get(&(operation, reason));
            if seen.is_some_and(|seen| seen.count == count) {
                continue;
            }
            let was_quiet = seen.is_none_or(|seen| now - seen.last_at >= FAILING);
            let text = format!("{}: {error}", failed(operation));
            if was_quiet && error != IoError::Unsupported {
                let kind = if reason.is_failure() { EventKind::DiskFailing } else { EventKind::MediumError };
                let failed = first.iter().find(|of| (Some(of.op), of.error) == (op, error));
                let details = failed.map(details).unwrap_or_default();
                events.push((kind, format!("the guest got an error: {text}{details}")));
            }
            self.errors.insert((operation, reason), SeenErrors { count, text, last_at: now, last_time: time });
        }
        events
    }

    /// The reasons for which the disk is failing.
    pub(crate) fn failures(&self, now: Instant) -> Vec<ConditionReason> {
        let recent =
            self.errors.iter().filter(|((_, reason), seen)| reason.is_failure() && now - seen.last_at < FAILING);
        let message = |seen: &SeenErrors| {
            format!("the guest got errors: {}; {} so far, the last at {}", seen.text, seen.count, utc(seen.last_time))
        };
        recent.map(|(_, seen)| ConditionReason { condition: Condition::Failing, message: message(seen) }).collect()
    }

    /// The errors since the disk was added.
    pub(crate) fn guest_errors(&self) -> Vec<GuestErrorCount> {
        let one = |(&(operation, reason), seen): (&_, &SeenErrors)| GuestErrorCount {
            operation,
            reason,
            count: seen.count,
            last_at: utc(seen.last_time),
        };
        self.errors.iter().map(one).collect()
    }
}

fn failed(operation: GuestOperation) -> String {
    match operation {
        GuestOperation::Other => "a request was refused".into(),
        operation => format!("a {operation} failed"),
    }
}

/// The place of a failed request, and what a path has answered.
fn details(failed: &FailedRequest) -> String {
    let range = failed.range.map(|(sector, bytes)| format!("sector {sector}, {bytes} bytes"));
    let answer = failed.status.map(|(path, status)| format!("path {} answered `{}`", path.0, Status(status)));
    let details: Vec<_> = range.into_iter().chain(answer).collect();
    if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) }
}

#[cfg(test)]
mod tests {
    use mpath_core::{Op, PathId};

    use super::*;

    #[test]
    fn errors_are_told_once_a_minute_and_make_a_disk_failing_for_a_minute() {
        let (start, time) = (Instant::now(), SystemTime::UNIX_EPOCH);
        let (errors, mut history) = (GuestErrors::default(), HealthHistory::default());
        let look = |seconds: u64, history: &mut HealthHistory| {
            let now = start + Duration::from_secs(seconds);
            let told: Vec<_> = history.new_errors(&errors, now, time).into_iter().map(|(kind, _)| kind).collect();
            (told, history.failures(now).len())
        };
        assert_eq!(look(0, &mut history), (vec![], 0));
        errors.add(Some(Op::Read), IoError::Medium, 3);
        errors.add(Some(Op::Discard), IoError::Unsupported, 1);
        assert_eq!(look(1, &mut history), (vec![EventKind::MediumError], 0));
        errors.add(Some(Op::Write), IoError::NoPath, 2);
        assert_eq!(look(2, &mut history), (vec![EventKind::DiskFailing], 1));
        errors.add(Some(Op::Write), IoError::NoPath, 1);
        errors.add(Some(Op::Read), IoError::Medium, 1);
        assert_eq!(look(40, &mut history), (vec![], 1));
        assert_eq!(look(99, &mut history), (vec![], 1));
        assert_eq!(look(100, &mut history), (vec![], 0), "a minute after the last one");
        errors.add(Some(Op::Write), IoError::NoPath, 1);
        assert_eq!(look(101, &mut history), (vec![EventKind::DiskFailing], 1));
        let counts: Vec<_> = history.guest_errors().iter().map(|of| (of.operation, of.reason, of.count)).collect();
        let (read, write, discard) = (GuestOperation::Read, GuestOperation::Write, GuestOperation::Discard);
        assert_eq!(
            counts,
            [
                (read, GuestErrorReason::Medium, 4),
                (write, GuestErrorReason::NoPath, 4),
                (discard, GuestErrorReason::Unsupported, 1)
            ]
        );
    }

    #[test]
    fn an_event_has_the_first_failed_request_and_the_answer_of_its_path() {
        let (errors, mut history) = (GuestErrors::default(), HealthHistory::default());
        let mut told = |seconds: u64| -> Vec<String> {
            let now = Instant::now() + Duration::from_secs(seconds);
            history.new_errors(&errors, now, SystemTime::UNIX_EPOCH).into_iter().map(|(_, text)| text).collect()
        };
        let fail = |op, error, range, status| {
            errors.add(Some(op), error, 1);
            errors.record(FailedRequest { op, error, range, status });
        };
        fail(
            Op::Write,
            IoError::Controller,
            Some((2048, 4096)),
            Some((PathId(1), Status::INTERNAL_ERROR.with_dnr().0)),
        );
        fail(Op::Write, IoError::Controller, Some((4096, 512)), None);
        fail(Op::Flush, IoError::LostWrites, None, None);
        assert_eq!(
            told(0),
            [
                "the guest got an error: a write failed: the controller failed the command (sector 2048, 4096 bytes, \
                 path 1 answered `Internal Error, Do Not Retry`)",
                "the guest got an error: a flush failed: unflushed writes were lost",
            ]
        );
        fail(Op::Write, IoError::Controller, Some((8, 512)), None);
        assert_eq!(told(1), Vec::<String>::new(), "told before");
        fail(Op::Write, IoError::Controller, Some((16, 512)), None);
        let again = "the guest got an error: a write failed: the controller failed the command (sector 16, 512 bytes)";
        assert_eq!(told(100), [again]);
    }
}
