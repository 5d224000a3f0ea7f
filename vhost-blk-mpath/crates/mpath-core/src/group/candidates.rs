//! The candidates for requests of each class, kept from one request to the next: only changed paths are looked at again.

use std::fmt;

use monotonic::Duration;

use super::{Group, paths_of};
use crate::path::Path;
use crate::policy::{Candidate, Oldest};
use crate::requests::Requests;
use crate::window::Usage;
use crate::{Io, OpClass, PathId};

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
    /// The last version of a candidate.
    version: u64,
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

    /// Whether these are the candidates.
    pub(super) fn are(&self, others: &[Candidate]) -> bool {
        self.list.iter().map(|candidate| Candidate { version: 0, ..*candidate }).eq(others.iter().copied())
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
    #[inline]
    pub(super) fn update_candidates(&mut self, class: OpClass, bytes: u32, choices: u64, reserved_paths: u64) {
        let Self { candidates, paths, requests, config, .. } = self;
        let of = &mut candidates[class.index()];
        let stale = if of.choices == choices { of.stale & choices } else { choices };
        let changed = if of.request == (bytes, reserved_paths) { stale } else { choices };
        if of.choices != choices {
            of.list.clear();
            of.list.extend(paths_of(choices).map(Candidate::unknown));
            (of.choices, of.with_room) = (choices, 0);
        }
        for id in paths_of(changed) {
            let bit = id.bit();
            let (at, path) = ((choices & (bit - 1)).count_ones() as usize, &paths[id.index()]);
            let candidate = &mut of.list[at];
            if stale & bit != 0 {
                of.version += 1;
                candidate.version = of.version;
                candidate.update(path, class, requests, config.suspect_timeout);
            }
            candidate.has_room = reserved_paths & bit == 0 && path.has_room(config.window, bytes);
            of.with_room = if candidate.has_room { of.with_room | bit } else { of.with_room & !bit };
        }
        (of.request, of.stale) = ((bytes, reserved_paths), of.stale & !choices);
    }

    /// The candidates for a request among `choices`, looked at anew.
    pub(super) fn offer(&self, io: &Io, choices: u64, reserved_paths: u64) -> Vec<Candidate> {
        let of = |id: PathId| {
            let (path, mut candidate) = (&self.paths[id.index()], Candidate::unknown(id));
            candidate.update(path, io.op.class(), &self.requests, self.config.suspect_timeout);
            candidate.has_room = reserved_paths & id.bit() == 0 && path.has_room(self.config.window, io.bytes);
            candidate
        };
        paths_of(choices).map(of).collect()
    }
}

/// The candidates without room, as a set.
pub(super) fn without_room(candidates: &[Candidate]) -> u64 {
    let full = candidates.iter().filter(|candidate| !candidate.has_room);
    full.fold(0, |set, candidate| set | candidate.path.bit())
}

impl Candidate {
    /// A path that was not looked at yet.
    fn unknown(path: PathId) -> Self {
        let (of_class, numa_distance) = (Usage::default(), 0);
        let oldest = None;
        Self { path, has_room: false, in_flight: 0, in_flight_bytes: 0, of_class, numa_distance, oldest, version: 0 }
    }

    /// Looks at the path again. A request counts as lost if the path has answered a request of the class that was bound
    /// at least the suspect timeout later. Lost requests are left out, or they would fill the window for good.
    #[inline]
    fn update(&mut self, path: &Path, class: OpClass, requests: &Requests, suspect_timeout: Duration) {
        let (class, answered_to) = (class.index(), path.answered_to[class.index()]);
        self.in_flight = path.usage.ios + path.watch.abandoned();
        self.in_flight_bytes = path.usage.bytes;
        self.of_class = path.by_class[class];
        self.numa_distance = path.config.numa_distance;
        self.oldest = None;
        let mut next = path.in_flight[class].oldest();
        while let Some(tag) = next {
            let request = &requests[tag];
            let (bound_at, bytes) = (request.bound_at, request.io.bytes);
            if answered_to < Some(bound_at + suspect_timeout) {
                self.oldest = Some(Oldest { bound_at, bytes });
                break;
            }
            self.in_flight -= 1;
            self.in_flight_bytes -= u64::from(bytes);
            self.of_class.give_back(bytes);
            next = request.newer();
        }
    }
}
