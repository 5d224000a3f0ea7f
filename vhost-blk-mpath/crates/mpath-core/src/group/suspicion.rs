//! Suspect paths: they get no new requests, and their reads are recalled.
//!
//! A disk *bypasses* a suspect path while another usable path, in any ANA state, is not suspect. Only then are the
//! path's reads recalled: a suspect path is better than none. Writes stay, because only the path can tell whether they
//! were executed. If the path recovers, it answers the writes, and no fence is needed. Flushes stay too, because each
//! concerns this path alone, unless the cache is shared.

use std::time::Instant;

use super::Group;
use crate::{DiskId, Epoch, Outcome, PathId};

impl Group {
    /// Takes a sign of life of a live path that ends no request of the group: data of a request under way, or answers
    /// to abandoned requests. `answered` counts answers to requests that ended in [`Outcome::Recalled`] with
    /// `abandoned` set. `read` is the oldest read among these: the time at which it was sent, and its bytes.
    pub fn progress(&mut self, now: Instant, path: PathId, answered: u32, read: Option<(Instant, u32)>) {
        let id = path;
        let path = &mut self.paths[id.index()];
        // The path may have been lost while this event was on its way.
        if path.association.is_some() {
            path.watch.progress(now, answered);
            if let Some((sent_at, bytes)) = read {
                path.read_deadlines.record_latency(now, now - sent_at, bytes);
            }
            self.watch_changed(now, id);
        }
    }

    /// Records that the driver gets a request for this path.
    pub(super) fn watch_issue(&mut self, now: Instant, id: PathId) {
        let path = &mut self.paths[id.index()];
        path.issued(now, self.config.io_timeout);
        if path.watch.issued(now) {
            self.watch_changed(now, id);
        }
    }

    /// Takes note that the driver has answered a request of this association. `read` is set for a read: when it was
    /// issued, and its bytes.
    pub(super) fn watch_outcome(
        &mut self,
        now: Instant,
        id: PathId,
        epoch: Epoch,
        outcome: Outcome,
        read: Option<(Instant, u32)>,
    ) {
        let path = &mut self.paths[id.index()];
        if path.association.is_none_or(|live| live.epoch != epoch) {
            return;
        }
        match outcome {
            Outcome::Recalled { abandoned } => path.watch.recalled(abandoned),
            Outcome::Lost { .. } | Outcome::GivenUp => path.watch.returned_unanswered(),
            Outcome::Success | Outcome::PathError | Outcome::Retry { .. } | Outcome::Failed(_) => {
                path.watch.answered(now);
                if let Some((issued_at, bytes)) = read
                    && path.read_deadlines.answered(now, issued_at, bytes)
                {
                    self.recall_by(now);
                }
            }
        }
        self.watch_changed(now, id);
    }

    pub(super) fn watch_changed(&mut self, now: Instant, id: PathId) {
        let path = &mut self.paths[id.index()];
        path.clear_expiry_if_idle();
        let watch = &path.watch;
        if let Some(due) = watch.due() {
            self.watch_at = Some(self.watch_at.map_or(due, |at| at.min(due)));
        }
        if self.suspects & id.bit() != 0 && !watch.is_suspect() {
            self.refresh_eligible(now);
        }
    }

    /// When the next path becomes suspect if nothing happens before.
    pub(super) fn next_suspicion(&self) -> Option<Instant> {
        self.paths.iter().filter_map(|path| path.watch.due()).min()
    }

    /// Looks for paths that have become suspect.
    pub(super) fn check_watches(&mut self, now: Instant) {
        // The time may be early, because signs of life do not move it.
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

    /// Updates the bypassed paths of a disk, after a change of the suspect paths or of `elsewhere`: whether the disk
    /// has a usable path.
    pub(super) fn update_bypassed(&mut self, now: Instant, disk: DiskId, elsewhere: bool) {
        let bypassed = if elsewhere { self.suspects } else { 0 };
        let before = std::mem::replace(&mut self.disks[disk.index()].bypassed, bypassed);
        let mut new = bypassed & !before;
        if new != 0 {
            self.recall_by(now);
        }
        while new != 0 {
            let id = PathId(new.trailing_zeros() as u16);
            new &= new - 1;
            self.take_back_unsent_of(now, id, disk);
        }
    }
}
