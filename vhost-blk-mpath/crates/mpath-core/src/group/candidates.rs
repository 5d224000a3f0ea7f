//! The candidates for requests of each class, kept from one request to the next: only changed paths are looked at again.

use std::fmt;

use super::Group;
use crate::policy::{Candidate, Oldest};
use crate::requests::Request;
use crate::{OpClass, PathId};

/// The candidates for requests of one class.
#[derive(Default)]
pub(super) struct Candidates {
    /// In the order of their ids.
    list: Vec<Candidate>,
    /// The paths in the list.
    choices: u64,
    /// The paths that have changed since they were last looked at.
    stale: u64,
    /// The request that `has_room` is about: its bytes, and the paths that earlier requests wait for.
    request: (u32, u64),
    /// The candidates with room.
    with_room: u64,
}

/// Empty: the list follows from the paths.
impl fmt::Debug for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidates").finish_non_exhaustive()
    }
}

impl Candidates {
    pub(super) fn list(&self) -> &[Candidate] {
        &self.list
    }

    /// The candidates with room, as a set.
    pub(super) fn with_room(&self) -> u64 {
        self.with_room
    }

    /// Takes note that a path has changed.
    #[inline]
    pub(super) fn changed(&mut self, path: PathId) {
        self.stale |= path.bit();
    }
}

impl Group {
    /// Brings the candidates for a request of this class and size among `choices` up to date.
    pub(super) fn update_candidates(&mut self, class: OpClass, bytes: u32, choices: u64, reserved_paths: u64) {
        let mut of = std::mem::take(&mut self.candidates[class.index()]);
        let mut changed = of.stale & choices;
        if of.choices != choices {
            of.list.clear();
            of.list.extend(super::paths_of(choices).map(|id| self.candidate(id, class, false)));
            changed = choices;
        } else if of.request != (bytes, reserved_paths) {
            changed = choices;
        }
        for id in super::paths_of(changed) {
            let at = (choices & (id.bit() - 1)).count_ones() as usize;
            let has_room = reserved_paths & id.bit() == 0 && self.paths[id.index()].has_room(self.config.window, bytes);
            if of.stale & id.bit() != 0 {
                of.list[at] = self.candidate(id, class, has_room);
            } else {
                of.list[at].has_room = has_room;
            }
            of.with_room = of.with_room & !id.bit() | if has_room { id.bit() } else { 0 };
        }
        (of.choices, of.request, of.stale) = (choices, (bytes, reserved_paths), of.stale & !choices);
        of.with_room &= choices;
        self.candidates[class.index()] = of;
    }

    /// Adds the candidates for a request among `choices`, in the order of their ids. Returns whether one of them has room
    /// for it.
    pub(super) fn offer(
        &self,
        request: &Request,
        choices: u64,
        reserved_paths: u64,
        mut add: impl FnMut(Candidate),
    ) -> bool {
        let (bytes, class) = (request.io.bytes, request.io.op.class());
        let mut room = false;
        for id in super::paths_of(choices) {
            let has_room = reserved_paths & id.bit() == 0 && self.paths[id.index()].has_room(self.config.window, bytes);
            room |= has_room;
            add(self.candidate(id, class, has_room));
        }
        room
    }

    /// A path as policies see it. A request counts as lost if the path has answered a request of the class that was bound
    /// at least the suspect timeout later. Lost requests are left out, or they would fill the window for good.
    fn candidate(&self, id: PathId, class: OpClass, has_room: bool) -> Candidate {
        let path = &self.paths[id.index()];
        let mut candidate = Candidate {
            path: id,
            has_room,
            in_flight: path.usage.ios + path.watch.abandoned(),
            in_flight_bytes: path.usage.bytes,
            of_class: path.by_class[class.index()],
            numa_distance: path.config.numa_distance,
            oldest: None,
        };
        let mut next = path.in_flight[class.index()].oldest();
        while let Some(tag) = next {
            let request = &self.requests[tag];
            let (bound_at, bytes) = (request.bound_at, request.io.bytes);
            if path.answered_to[class.index()] < Some(bound_at + self.config.suspect_timeout) {
                candidate.oldest = Some(Oldest { bound_at, bytes });
                break;
            }
            candidate.in_flight -= 1;
            candidate.in_flight_bytes -= u64::from(bytes);
            candidate.of_class.give_back(bytes);
            next = request.newer();
        }
        candidate
    }
}
