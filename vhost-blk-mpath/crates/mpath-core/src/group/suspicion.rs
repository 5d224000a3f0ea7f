//! Paths that owe answers and stay silent: no new requests for them, and their reads are recalled.
//!
//! A suspect path is *deserted* by a disk while another path usable for it, of whatever ANA state, is not suspect. Only then are its reads
//! recalled: a suspect path is better than none. Writes stay, since their fate is known only to the path: if it comes back to
//! life it answers them, and no fence is needed. So do flushes, each of which is about that path, unless the cache is shared.

use std::time::Instant;

use super::Group;
use crate::path::Path;
use crate::requests::State;
use crate::{Action, DiskId, Epoch, OpClass, Outcome, PathId, Tag};

impl Group {
    /// A sign of life of a live path that ends nothing the group waits for: data of a request under way, or the answers of
    /// `answered` requests that ended in [`Outcome::Recalled`] with `abandoned` set.
    pub fn progress(&mut self, now: Instant, path: PathId, answered: u32) {
        let id = path;
        let path = &mut self.paths[id.index()];
        // It may have been lost while the news was on its way.
        if path.association.is_some() {
            path.watch.progress(now, answered);
            self.watch_changed(now, id);
        }
    }

    /// The driver is given a request for this path.
    pub(super) fn watch_issue(&mut self, now: Instant, id: PathId) {
        self.paths[id.index()].watch.issued(now);
        self.watch_changed(now, id);
    }

    /// The driver has answered a request that was issued under that association.
    pub(super) fn watch_outcome(&mut self, now: Instant, id: PathId, epoch: Epoch, outcome: Outcome) {
        let path = &mut self.paths[id.index()];
        if path.association.is_none_or(|live| live.epoch != epoch) {
            return;
        }
        match outcome {
            Outcome::Recalled { abandoned } => path.watch.recalled(abandoned),
            Outcome::Lost { .. } | Outcome::GivenUp => path.watch.gone(),
            Outcome::Success | Outcome::PathError | Outcome::Retry { .. } | Outcome::Failed(_) => {
                path.watch.answered(now);
            }
        }
        self.watch_changed(now, id);
    }

    pub(super) fn watch_changed(&mut self, now: Instant, id: PathId) {
        let watch = &self.paths[id.index()].watch;
        if let Some(due) = watch.due() {
            self.watch_at = Some(self.watch_at.map_or(due, |at| at.min(due)));
        }
        if self.suspects & id.bit() != 0 && !watch.is_suspect() {
            self.refresh_eligible(now);
        }
    }

    /// When the next path becomes suspect, if nothing happens.
    pub(super) fn next_suspicion(&self) -> Option<Instant> {
        self.paths.iter().filter_map(|path| path.watch.due()).min()
    }

    /// When the first path is stuck, if nothing happens.
    pub(super) fn next_stuck(&self) -> Option<Instant> {
        self.paths.iter().filter_map(|path| path.watch.stuck_at()).min()
    }

    /// A live path that has owed answers and been silent for so long that its association is to be given up: the driver closes
    /// it, as if it had been lost.
    #[must_use]
    pub fn stuck(&self, now: Instant) -> Option<PathId> {
        let stuck = |path: &Path| path.association.is_some() && path.watch.stuck_at().is_some_and(|at| at <= now);
        self.paths.iter().zip(0..).find(|(path, _)| stuck(path)).map(|(_, id)| PathId(id))
    }

    /// Looks for paths that have become suspect.
    pub(super) fn check_watches(&mut self, now: Instant) {
        // Never later than the first one is due, and often earlier: signs of life do not move it.
        if self.watch_at.is_none_or(|at| now < at) {
            return;
        }
        let mut news = false;
        for path in &mut self.paths {
            if path.watch.check(now) {
                path.suspicions += 1;
                news = true;
            }
        }
        self.watch_at = self.next_suspicion();
        if news {
            self.refresh_eligible(now);
        }
    }

    /// The suspect paths, and whether a disk has a better one to go to, may have changed.
    pub(super) fn desert(&mut self, now: Instant, disk: DiskId, elsewhere: bool) {
        let deserted = if elsewhere { self.suspects } else { 0 };
        let before = std::mem::replace(&mut self.disks[disk.index()].deserted, deserted);
        let mut new = deserted & !before;
        if new != 0 {
            self.recall_at = Some(now);
        } else if self.deserted() == 0 {
            self.recall_at = None;
        }
        while new != 0 {
            let id = PathId(new.trailing_zeros() as u16);
            new &= new - 1;
            self.take_back_unsent_of(now, id, disk);
        }
    }

    /// The paths that some disk has deserted.
    fn deserted(&self) -> u64 {
        self.disks.iter().fold(0, |all, disk| all | disk.deserted)
    }

    /// The next request to be recalled from a deserted path, a read or a flush that any path can do: the newest first, as each of them goes in front of its flow.
    pub(super) fn poll_recall(&mut self, now: Instant) -> Option<Action> {
        while self.recall_at.is_some_and(|at| at <= now) {
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
        let mut left = self.deserted();
        while left != 0 {
            let id = PathId(left.trailing_zeros() as u16);
            left &= left - 1;
            let path = &self.paths[id.index()];
            let live = path.association.map(|association| association.epoch);
            let newest = |class: OpClass| path.in_flight[class.index()].newest();
            let mut left = [newest(OpClass::Read), newest(OpClass::Other)].into_iter().flatten();
            let mut next = left.next();
            while let Some(tag) = next {
                let request = &mut self.requests[tag];
                next = request.older().or_else(|| left.next());
                // The driver has that on its way already, or the loss of the path that it was bound to.
                let with_path = matches!(request.state, State::InFlight | State::Stalled | State::Answered);
                let deserted = self.disks[request.io.disk.index()].deserted & id.bit() != 0;
                let recallable = deserted && with_path && !request.io.op.is_mutating() && !request.recalled;
                if !recallable || Some(request.epoch) != live {
                    continue;
                }
                let at = path.watch.recall_at(request.recalls).expect("a suspect path is waited for");
                if at <= now {
                    request.recalled = true;
                    let state = request.state;
                    self.recall_at = Some(now);
                    self.drop_hedge(tag);
                    return Some((id, tag, state));
                }
                self.recall_at = Some(self.recall_at.map_or(at, |earlier| earlier.min(at)));
            }
        }
        None
    }
}
