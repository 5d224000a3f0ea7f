//! Late binding: a request gets its path at the last moment, when that path has room.

use std::time::Instant;

use super::Group;
use crate::policy::{Candidate, Choice, Query};
use crate::requests::{Request, State};
use crate::{Action, AnaState, DiskId, PathId, Tag};

impl Group {
    /// Which paths policies may choose from for each disk: those in the best ANA state there is among the ones that answer, or
    /// among the suspect ones if there are no others. Draining ones are no choice, whatever else there is.
    pub(super) fn refresh_eligible(&mut self, now: Instant) {
        let all = self.paths.iter().zip((0..).map(PathId));
        self.suspects = all.filter(|(path, _)| path.watch.is_suspect()).fold(0, |set, (_, id)| set | id.bit());
        self.rest_ends = None;
        for disk in self.disks() {
            self.refresh_disk(now, disk);
        }
    }

    fn refresh_disk(&mut self, now: Instant, disk: DiskId) {
        // Optimized and not, first those that answer, then those that are suspect.
        let mut groups = [0; 4];
        for (path, id) in self.paths.iter().zip((0..).map(PathId)) {
            let suspect = self.suspects & id.bit() != 0;
            match path.usable(now, disk) {
                Some(_) if path.draining => {}
                Some(ana) => {
                    groups[2 * usize::from(suspect) + usize::from(ana != AnaState::Optimized)] |= id.bit();
                }
                None if path.association.is_some() => {
                    let ends = path.of_disk[disk.index()].hold.ends(now);
                    self.rest_ends = self.rest_ends.into_iter().chain(ends).min();
                }
                None => {}
            }
        }
        let eligible = groups.into_iter().find(|paths| *paths != 0).unwrap_or(0);
        self.disks[disk.index()].eligible = eligible;
        self.scheduler.set_blocked(now, disk, eligible == 0);
        self.desert(now, disk, groups[0] | groups[1] != 0);
    }

    /// Flushes under way and other requests take turns where both wait for room.
    pub(super) fn bind_next(&mut self, now: Instant) -> Option<Action> {
        let action = if self.flushes.first {
            self.dispatch_flush(now).or_else(|| self.dispatch(now))
        } else {
            self.dispatch(now).or_else(|| self.dispatch_flush(now))
        };
        self.flushes.first ^= action.is_some();
        action
    }

    /// Binds waiting requests until one is to be issued.
    pub(super) fn dispatch(&mut self, now: Instant) -> Option<Action> {
        self.ask_again = None;
        let mut last = None;
        // Paths that a request which had its turn earlier waits for. Others may not take the room there before it, or a
        // stream of small requests would starve a large one.
        let mut awaited = 0;
        while let Some((place, tag)) = self.scheduler.candidate(now, last) {
            if self.has_legs(tag) {
                // Which paths it has to reach shows only when there are some.
                if self.paths.iter().all(|path| path.association.is_none()) {
                    last = Some(place);
                    continue;
                }
                self.scheduler.take(now, place);
                self.start_flush(now, tag);
                if let Some(action) = self.dispatch_flush(now) {
                    return Some(action);
                }
                (last, awaited) = (None, 0);
                continue;
            }
            match self.ask(now, tag, awaited) {
                Choice::Path(path) => {
                    self.scheduler.take(now, place);
                    if let Some(action) = self.bind(now, tag, path) {
                        return Some(action);
                    }
                    (last, awaited) = (None, 0);
                }
                Choice::Wait { again } => {
                    self.ask_again = self.ask_again.into_iter().chain(again).min();
                    let full = self.candidates.iter().filter(|c| !c.has_room);
                    awaited |= full.fold(0, |set, c| set | c.path.bit());
                    last = Some(place);
                    // With many flows most of the walk would be for nothing.
                    if self.scheduler.all_need_paths() && self.disks.iter().all(|disk| disk.eligible & !awaited == 0) {
                        break;
                    }
                }
            }
        }
        self.awaited = awaited;
        None
    }

    fn ask(&mut self, now: Instant, tag: Tag, awaited: u64) -> Choice {
        let Request { io, avoid, .. } = self.requests[tag];
        let class = io.op.class();
        self.candidates.clear();
        let eligible = self.disks[io.disk.index()].eligible;
        let mut left = match avoid {
            Some(path) if eligible & !path.bit() != 0 => eligible & !path.bit(),
            _ => eligible,
        };
        let mut room = false;
        while left != 0 {
            let id = PathId(left.trailing_zeros() as u16);
            left &= left - 1;
            let path = &self.paths[id.index()];
            let has_room = awaited & id.bit() == 0 && path.has_room(self.config.window, io.bytes);
            room |= has_room;
            self.candidates.push(Candidate {
                path: id,
                has_room,
                in_flight: path.usage.ios + path.watch.abandoned(),
                in_flight_bytes: path.usage.bytes,
                of_class: path.by_class[class.index()],
                numa_distance: path.config.numa_distance,
                oldest: self.requests.oldest(path.in_flight[class.index()]),
            });
        }
        if !room {
            return Choice::Wait { again: None };
        }
        let query = Query { now, class, bytes: io.bytes, flow: io.flow, queued: self.scheduler.ready() };
        let choice = self.policies.of(class).select(&query, &self.candidates);
        match choice {
            Choice::Path(path) => assert!(
                self.candidates.iter().any(|c| c.path == path && c.has_room),
                "a policy chooses among the candidates with room"
            ),
            Choice::Wait { .. } => {
                let will_change = |c: &Candidate| !c.has_room || c.in_flight > 0;
                assert!(self.candidates.iter().any(will_change), "a policy waits only for a path that holds something");
            }
        }
        choice
    }

    /// Gives a request to a path: an action, unless the path's injection holds it.
    fn bind(&mut self, now: Instant, tag: Tag, id: PathId) -> Option<Action> {
        let path = &mut self.paths[id.index()];
        let association = path.association.expect("an eligible path is live");
        let request = &mut self.requests[tag];
        let io = request.io;
        if let Some(since) = request.moving_since.take() {
            self.moves.record(io.op.class(), now - since);
        }
        let class = io.op.class().index();
        request.path = id;
        request.epoch = association.epoch;
        request.bound_at = now;
        let dirties =
            association.volatile_write_cache && !self.config.shared_write_cache && io.op.is_mutating() && !io.fua;
        request.dirties = dirties.then_some(path.of_disk[io.disk.index()].life);
        request.avoid = None;
        request.fence_lifted = false;
        request.recalled = false;
        request.may_hedge = self.hedges.bound(now, &io);
        path.usage.take(io.bytes);
        path.by_class[class].take(io.bytes);
        path.stats[class].in_flight += 1;
        self.requests.link(&mut path.in_flight[class], tag);
        if let Some(state) = self.hold_by_injection(now, id, tag) {
            self.requests[tag].state = state;
            return None;
        }
        self.requests[tag].state = State::InFlight;
        self.watch_issue(now, id);
        Some(Action::Issue { path: id, tag })
    }

    /// Takes a request from its path again: it was answered, or never left.
    pub(super) fn unbind(&mut self, tag: Tag) {
        let request = &self.requests[tag];
        let (io, class) = (request.io, request.io.op.class().index());
        let path = &mut self.paths[request.path.index()];
        path.usage.give_back(io.bytes);
        path.by_class[class].give_back(io.bytes);
        path.stats[class].in_flight -= 1;
        self.requests.unlink(&mut path.in_flight[class], tag);
        self.drop_hedge(tag);
    }
}
