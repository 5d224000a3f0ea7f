//! Decides: an overdue read is recalled.
//!
//! Requests taken back from their paths: overdue reads, and all reads of a suspect path. With a shared write cache,
//! also the flushes of a suspect path, which any path can do.
//!
//! Commands that may change data are never recalled. The path may still execute a recalled command. The driver keeps
//! a late answer away from the memory and the tag.

use monotonic::Instant;

use super::{Group, earlier};
use crate::overdue_reads::{Read, size};
use crate::requests::{Request, State};
use crate::silence::{COMPARE_EVERY, FLOOR};
use crate::{Action, Op, OpClass, PathId, Tag};

impl Group {
    /// Records that the driver gets a request, or that an injection stalls the request. The age of the request counts
    /// from here.
    pub(super) fn issued(&mut self, now: Instant, id: PathId, tag: Tag) {
        let request = &mut self.requests[tag];
        request.issued_at = now;
        // Without another usable path no recall is due. When a path becomes usable, the group looks again.
        let elsewhere = self.disks[request.io.disk.index()].usable & !id.bit() != 0;
        // No read is overdue before this.
        let soonest = now + FLOOR.min(self.config.suspect_timeout);
        if request.io.op == Op::Read && elsewhere && self.recall_at.is_none_or(|at| at > soonest) {
            let read = Read { issued_at: now, bytes: request.io.bytes, recalls: request.known().recalls };
            let at = self.paths[id.index()].read_deadlines.earliest(read);
            self.recall_by(at);
        }
        self.watch_issue(now, id);
    }

    /// Has the group look for requests to recall at this time or earlier.
    pub(super) fn recall_by(&mut self, at: Instant) {
        self.recall_at = Some(self.recall_at.map_or(at, |earlier| earlier.min(at)));
    }

    pub(super) fn is_recall_due(&self, now: Instant) -> bool {
        self.recall_at.is_some_and(|at| at <= now)
    }

    /// The next request to recall: the newest first, because each goes to the front of its flow.
    pub(super) fn poll_recall(&mut self, now: Instant) -> Option<Action> {
        while self.is_recall_due(now) {
            let (path, tag, state) = self.next_recall(now)?;
            if state == State::InFlight {
                return Some(Action::Recall { path, tag });
            }
            // An injection keeps the request, so the driver does not have it.
            self.recall_from_injection(now, path, tag);
        }
        None
    }

    fn next_recall(&mut self, now: Instant) -> Option<(PathId, Tag, State)> {
        self.recall_at = None;
        for id in (0..self.paths.len() as u16).map(PathId) {
            let path = &mut self.paths[id.index()];
            path.read_deadlines.begin_check();
            let newest = [OpClass::Read, OpClass::Other].map(|class| path.in_flight[class.index()].newest());
            let mut left = newest.into_iter().flatten();
            let mut next = left.next();
            while let Some(tag) = next {
                next = self.requests[tag].older().or_else(|| left.next());
                let Some(at) = self.recall_time(now, id, tag) else { continue };
                if at <= now {
                    let request = &mut self.requests[tag];
                    request.recalled = true;
                    let state = request.state;
                    self.recall_at = Some(now);
                    self.drop_hedge(tag);
                    return Some((id, tag, state));
                }
                self.recall_by(at);
            }
        }
        None
    }

    /// When to recall a request from its path; `None`: never, as far as is known.
    fn recall_time(&mut self, now: Instant, id: PathId, tag: Tag) -> Option<Instant> {
        let request = &self.requests[tag];
        let path = &mut self.paths[id.index()];
        let live = path.association.is_some_and(|live| live.epoch == request.epoch);
        let with_path = matches!(request.state, State::InFlight | State::Stalled | State::Answered);
        // The driver is already giving back recalled requests.
        if !live || !with_path || request.io.op.is_mutating() || request.recalled {
            return None;
        }
        let disk = &self.disks[request.io.disk.index()];
        let bypassed = disk.bypassed & id.bit() != 0;
        let by_silence = if bypassed { path.watch.recall_at(request.known().recalls, &self.attention) } else { None };
        // An answer that an injection delays has arrived, so it does not age. A stalled answer does.
        let stalled = |path: &crate::path::Path| path.injections.as_ref().is_some_and(|held| held.is_stalled(tag));
        let ages = request.io.op == Op::Read && (request.state != State::Answered || stalled(path));
        let elsewhere = disk.usable & !id.bit();
        if !ages || elsewhere == 0 {
            return by_silence;
        }
        let (&Request { io, issued_at, .. }, recalls) = (request, request.known().recalls);
        let (read, patient) = (Read { issued_at, bytes: io.bytes, recalls }, self.late_answers.is_overdrawn());
        let mut by_age = path.read_deadlines.due_at(now, read, &self.attention, patient);
        let waited = self.attention.between(issued_at, now);
        if by_age <= now && !self.is_other_faster(now, id, elsewhere, Some(size(io.bytes)), waited) {
            by_age = now + COMPARE_EVERY;
        }
        earlier(by_silence, Some(by_age))
    }
}
