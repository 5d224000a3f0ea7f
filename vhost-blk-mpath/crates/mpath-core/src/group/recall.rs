//! Requests taken back from their paths: reads that are overdue, and from a path that has gone silent all reads, and flushes
//! that any path can do.
//!
//! Nothing that may change data is recalled. The path may yet execute what was recalled; the driver sees to it that late
//! answers reach neither the memory nor the tag.

use std::time::Instant;

use super::Group;
use crate::overdue::Read;
use crate::requests::State;
use crate::{Action, Op, OpClass, PathId, Tag};

impl Group {
    /// The driver is given a request, or an injection stalls it: it ages from now on.
    pub(super) fn issued(&mut self, now: Instant, id: PathId, tag: Tag) {
        let request = &mut self.requests[tag];
        request.issued_at = now;
        // Where there is no other path, a look follows when there is one.
        let elsewhere = self.disks[request.io.disk.index()].healthy & !id.bit() != 0;
        if request.io.op == Op::Read && elsewhere {
            let read = Read { issued_at: now, bytes: request.io.bytes, recalls: request.recalls };
            let at = self.paths[id.index()].overdue.earliest(read);
            self.recall_by(at);
        }
        self.watch_issue(now, id);
    }

    /// There may be a request to recall then.
    pub(super) fn recall_by(&mut self, at: Instant) {
        self.recall_at = Some(self.recall_at.map_or(at, |earlier| earlier.min(at)));
    }

    pub(super) fn is_recall_due(&self, now: Instant) -> bool {
        self.recall_at.is_some_and(|at| at <= now)
    }

    /// The next request to be recalled: the newest first, as each of them goes in front of its flow.
    pub(super) fn poll_recall(&mut self, now: Instant) -> Option<Action> {
        while self.is_recall_due(now) {
            let (path, tag, state) = self.next_recall(now)?;
            if state == State::InFlight {
                return Some(Action::Recall { path, tag });
            }
            // The driver has not got it.
            self.recall_held(now, path, tag);
        }
        None
    }

    fn next_recall(&mut self, now: Instant) -> Option<(PathId, Tag, State)> {
        self.recall_at = None;
        for id in (0..self.paths.len() as u16).map(PathId) {
            let path = &mut self.paths[id.index()];
            path.overdue.begin_check();
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

    /// When a request is to be recalled from its path, if it can be.
    fn recall_time(&mut self, now: Instant, id: PathId, tag: Tag) -> Option<Instant> {
        let request = &self.requests[tag];
        let path = &mut self.paths[id.index()];
        let live = path.association.is_some_and(|live| live.epoch == request.epoch);
        let with_path = matches!(request.state, State::InFlight | State::Stalled | State::Answered);
        // What was recalled the driver has on its way already.
        if !live || !with_path || request.io.op.is_mutating() || request.recalled {
            return None;
        }
        let disk = &self.disks[request.io.disk.index()];
        let deserted = disk.deserted & id.bit() != 0;
        let by_silence = if deserted { path.watch.recall_at(request.recalls) } else { None };
        // An answer that an injection delays has come.
        let stalled = |path: &crate::path::Path| path.impaired.as_ref().is_some_and(|held| held.is_stalled(tag));
        let ages = request.io.op == Op::Read && (request.state != State::Answered || stalled(path));
        let elsewhere = disk.healthy & !id.bit() != 0;
        let by_age = (ages && elsewhere).then(|| {
            path.overdue
                .due_at(now, Read { issued_at: request.issued_at, bytes: request.io.bytes, recalls: request.recalls })
        });
        by_silence.into_iter().chain(by_age).min()
    }
}
