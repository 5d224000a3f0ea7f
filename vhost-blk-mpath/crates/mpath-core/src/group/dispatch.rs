//! Decides: a path may be chosen for a disk (ANA state, drained, suspect, resting) (`refresh_disk`).
//!
//! Late binding: a request gets a path when that path has room.

use monotonic::Instant;

use super::{Group, GroupDisk, earlier};
use crate::failovers::Failover;
use crate::path::Standing;
use crate::policy::{Choice, Query};
use crate::requests::{Request, State};
use crate::scheduler::Place;
use crate::{Action, AnaState, DiskId, Io, PathId, Tag};

/// The question about a request that its policy is asked, while `queued` requests wait for a path.
#[inline]
pub(super) fn query(now: Instant, io: &Io, queued: usize) -> Query {
    Query { now, class: io.op.class(), bytes: io.bytes, flow: io.flow, queued: queued.max(1) }
}

impl Group {
    /// Finds the paths that policies may choose from, for each disk. These are the usable paths in the best ANA
    /// state. If there is no usable path, they are the suspect paths in the best ANA state. Draining paths are never
    /// eligible.
    pub(super) fn refresh_eligible(&mut self, now: Instant) {
        let all = self.paths.iter().zip((0..).map(PathId));
        self.suspects = all.filter(|(path, _)| path.watch.is_suspect()).fold(0, |set, (_, id)| set | id.bit());
        // A path that was lost answers nothing.
        self.expect_late_answers();
        self.rest_ends_at = None;
        self.eligible = 0;
        for id in (0..self.paths.len() as u16).map(PathId) {
            self.update_slots(id);
        }
        for disk in self.disks() {
            self.refresh_disk(now, disk);
        }
    }

    fn refresh_disk(&mut self, now: Instant, disk: DiskId) {
        // Usable optimized, usable non-optimized, suspect optimized, suspect non-optimized.
        let (mut groups, mut live) = ([0; 4], 0);
        for (path, id) in self.paths.iter().zip((0..).map(PathId)) {
            live |= if path.association.is_some() { id.bit() } else { 0 };
            match path.standing(now, disk) {
                Standing::Usable(ana) => groups[usize::from(ana != AnaState::Optimized)] |= id.bit(),
                Standing::Suspect(ana) => groups[2 + usize::from(ana != AnaState::Optimized)] |= id.bit(),
                Standing::Resting { until } => {
                    self.rest_ends_at = Some(self.rest_ends_at.map_or(until, |earlier| earlier.min(until)));
                }
                Standing::Down | Standing::NotAccessible(_) | Standing::Draining => {}
            }
        }
        let eligible = groups.into_iter().find(|paths| *paths != 0).unwrap_or(0);
        self.disks[disk.index()].eligible = eligible;
        self.eligible |= eligible;
        let usable = groups[0] | groups[1];
        let changed = std::mem::replace(&mut self.disks[disk.index()].usable, usable) != usable;
        // A suspect path is better than none. If every path refuses the disk, none is usable until a request has succeeded.
        let shown = if usable == 0 { eligible } else { usable };
        let shown = if self.disks[disk.index()].no_path_since.is_some() { 0 } else { shown };
        self.disks[disk.index()].published.publish(live, shown, self.suspects);
        if changed && self.paths.iter().any(|path| path.watch.owes()) {
            // An overdue read may have another path now, and a silent path may be the slower one.
            self.recall_by(now);
            self.paths.iter_mut().for_each(|path| path.watch.compare_now());
            self.watch_at = Some(now);
        }
        self.scheduler.set_blocked(now, disk, eligible == 0);
        self.update_bypassed(now, disk, usable != 0);
    }

    /// Binds the next request or flush command. If requests and flush commands both wait for room, they take turns.
    pub(super) fn bind_next(&mut self, now: Instant) -> Option<Action> {
        let are_first = self.flushes.first && self.flushes.is_waiting();
        let action = if are_first { self.dispatch_flush(now) } else { None };
        let action = action.or_else(|| self.dispatch(now)).or_else(|| self.dispatch_flush(now));
        self.flushes.first ^= action.is_some();
        action
    }

    /// Binds waiting requests until one is to be issued.
    pub(super) fn dispatch(&mut self, now: Instant) -> Option<Action> {
        self.select_again_at = None;
        let mut last = None;
        // Paths that an earlier request waits for. Later requests may not take the room there. Otherwise a stream of
        // small requests would starve a large one.
        let mut reserved_paths = 0;
        // By class: the paths that a request may go to and waits for. If the policy treats flows alike, other requests that may
        // go to the same paths wait too.
        let mut waiting_for = [0; 3];
        while let Some((place, tag)) = self.scheduler.candidate(now, last) {
            let request = &self.requests[tag];
            let io = request.io;
            let (class, was_tried) = (io.op.class(), request.tried.is_some());
            if self.fans_out(io.op) {
                // The paths of a flush are known only when some path is up.
                if self.paths.iter().all(|path| path.association.is_none()) {
                    last = Some(place);
                    continue;
                }
                self.scheduler.take(now, place);
                self.start_flush(now, tag);
                if let Some(action) = self.dispatch_flush(now) {
                    return Some(action);
                }
                (last, reserved_paths, waiting_for) = (None, 0, [0; 3]);
                continue;
            }
            if was_tried && self.is_delayed(now, tag) {
                self.scheduler.take(now, place);
                self.back_off_until_delay_is_over(now, tag);
                (last, reserved_paths, waiting_for) = (None, 0, [0; 3]);
                continue;
            }
            let choices =
                if was_tried { self.choices(now, &self.requests[tag]) } else { self.disks[io.disk.index()].eligible };
            if choices != 0 && waiting_for[class.index()] == choices {
                last = Some(self.pass(place, io.disk, &waiting_for));
                continue;
            }
            match self.select_path(now, &io, choices, reserved_paths) {
                Choice::Path(path) => {
                    self.scheduler.take(now, place);
                    if let Some(action) = self.bind(now, tag, path) {
                        return Some(action);
                    }
                    (last, reserved_paths, waiting_for) = (None, 0, [0; 3]);
                }
                Choice::Wait { again } => {
                    self.select_again_at = earlier(self.select_again_at, again);
                    reserved_paths |= choices & !self.candidates[class.index()].with_room();
                    if self.policies.treats_flows_alike(class) {
                        waiting_for[class.index()] = choices;
                    }
                    last = Some(self.pass(place, io.disk, &waiting_for));
                    // Every eligible path has an earlier request that waits for it. With many flows, most of the walk
                    // would find nothing.
                    if self.scheduler.all_need_paths() && self.eligible & !reserved_paths == 0 {
                        break;
                    }
                }
            }
        }
        self.reserved_paths = reserved_paths;
        None
    }

    /// The place after which the walk goes on, from a request that waits. If all requests of the disk wait for the same paths, it
    /// goes on with the next disk.
    fn pass(&self, place: Place, disk: DiskId, waiting_for: &[u64; 3]) -> Place {
        let eligible = self.disks[disk.index()].eligible;
        if self.scheduler.are_all_of(disk, waiting_for.map(|paths| paths == eligible)) {
            place.last_of_disk()
        } else {
            place
        }
    }

    /// The paths that a request may go to, as a set: the best ones. This leaves out paths with controllers that asked
    /// for a delay, and the path to avoid if there is another. A request that was recalled or delayed may take a
    /// worse path.
    pub(super) fn choices(&self, now: Instant, request: &Request) -> u64 {
        let GroupDisk { eligible, usable, .. } = self.disks[request.io.disk.index()];
        let Some(tried) = &request.tried else { return eligible };
        let not_delayed = !tried.delayed_paths(now);
        let not_avoided = tried.avoid.map_or(u64::MAX, |path| !path.bit()) & not_delayed;
        let instead_of_avoided = if tried.recalls > 0 { usable & not_avoided } else { 0 };
        let sets = [eligible & not_avoided, instead_of_avoided, eligible & not_delayed, usable & not_delayed];
        sets.into_iter().find(|paths| *paths != 0).unwrap_or(0)
    }

    #[inline]
    fn select_path(&mut self, now: Instant, io: &Io, choices: u64, reserved_paths: u64) -> Choice {
        let class = io.op.class();
        self.update_candidates(class, io.bytes, choices, reserved_paths);
        let candidates = &self.candidates[class.index()];
        debug_assert!(candidates.are(&self.offer(io, choices, reserved_paths)), "each change of a path was noted");
        let with_room = candidates.with_room();
        if with_room == 0 {
            return Choice::Wait { again: None };
        }
        let query = query(now, io, self.scheduler.ready());
        let choice = self.policies.of(class).select(&query, candidates.list());
        match choice {
            Choice::Path(path) => assert!(with_room & path.bit() != 0, "a policy chooses a candidate with room"),
            Choice::Wait { .. } => assert!(
                choices & !with_room != 0 || candidates.list().iter().any(|c| c.in_flight > 0),
                "a policy waits only for a path without room or with requests in flight"
            ),
        }
        choice
    }

    /// Binds a request to a path. Returns the action, unless the path's injection keeps the request.
    fn bind(&mut self, now: Instant, tag: Tag, id: PathId) -> Option<Action> {
        if let Some(tried) = &mut self.requests[tag].tried {
            tried.avoid = None;
            if let Some(failover) = tried.failover.take() {
                self.count_failover(now, tag, failover);
            }
        }
        let Self { paths, requests, scheduler, hedges, config, .. } = self;
        let path = &mut paths[id.index()];
        let association = path.association.as_ref().expect("an eligible path is live");
        let request = &mut requests[tag];
        let io = request.io;
        let class = io.op.class().index();
        request.history.bound(now, id, || scheduler.pauses(now, io.disk));
        request.path = id;
        request.epoch = association.epoch;
        request.bound_at = now;
        let unflushed_in =
            association.volatile_write_cache && !config.shared_write_cache && io.op.is_mutating() && !io.fua;
        request.unflushed_in = unflushed_in.then(|| path.per_disk[io.disk.index()].cache_period);
        request.recalled = false;
        request.may_hedge = hedges.bound(now, &io);
        request.state = State::InFlight;
        path.usage.take(io.bytes);
        path.by_class[class].take(io.bytes);
        path.stats[class].in_flight += 1;
        requests.link(&mut path.in_flight[class], tag);
        let is_injected = path.injections.is_some();
        self.note_room(id);
        if is_injected && let Some(state) = self.apply_injection(now, id, tag) {
            self.requests[tag].state = state;
            return None;
        }
        self.issued(now, id, tag);
        Some(Action::Issue { path: id, tag })
    }

    /// Counts the failover of a request. Only the first failover at each failure of a path says how long I/O stood
    /// still.
    #[cold]
    fn count_failover(&mut self, now: Instant, tag: Tag, Failover { since, is_of_path }: Failover) {
        let Request { io, path, .. } = self.requests[tag];
        self.failover_times.record(io.op.class(), now - since);
        if is_of_path && self.paths[path.index()].first_move.moves(now, since) {
            self.failover_times.record_first(now - since);
        }
    }

    /// A request, a flush command or a hedge takes up room on a path.
    pub(super) fn take_room(&mut self, id: PathId, bytes: u32) {
        self.paths[id.index()].usage.take(bytes);
        self.note_room(id);
    }

    pub(super) fn give_room_back(&mut self, id: PathId, bytes: u32) {
        self.paths[id.index()].usage.give_back(bytes);
        self.note_room(id);
    }

    /// Updates what the queue pair of a path can take, after a change of its association or of the commands that it holds.
    pub(super) fn update_slots(&mut self, id: PathId) {
        let path = &mut self.paths[id.index()];
        path.update_slots(self.config.window);
        self.probed = self.probed & !id.bit() | if path.probe.is_some() { id.bit() } else { 0 };
        self.note_room(id);
    }

    /// Takes note of a change of what a path holds, or of what it can take.
    #[inline]
    pub(super) fn note_room(&mut self, id: PathId) {
        let has_room = self.paths[id.index()].has_room(self.config.window, 0);
        self.with_room = self.with_room & !id.bit() | if has_room { id.bit() } else { 0 };
        self.candidates.iter_mut().for_each(|of| of.changed(id));
    }

    /// Releases a request from its path: it was answered, or was never sent.
    #[inline]
    pub(super) fn unbind(&mut self, tag: Tag) {
        let Self { paths, requests, .. } = self;
        let request = &requests[tag];
        let (id, bytes, class) = (request.path, request.io.bytes, request.io.op.class().index());
        let path = &mut paths[id.index()];
        path.usage.give_back(bytes);
        path.by_class[class].give_back(bytes);
        path.stats[class].in_flight -= 1;
        requests.unlink(&mut path.in_flight[class], tag);
        self.note_room(id);
        self.drop_hedge(tag);
    }
}
