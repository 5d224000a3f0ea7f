//! Decides: another path is faster than a silent one, and what follows (`is_other_faster`).
//!
//! Suspect paths: they get no new requests, and their reads are recalled.
//!
//! A disk *bypasses* a suspect path while another usable path, in any ANA state, is not suspect. Only then are the
//! path's reads recalled: a suspect path is better than none. Writes stay, because only the path can tell whether they
//! were executed. If the path recovers, it answers the writes, and no fence is needed. Flushes stay too, because each
//! concerns this path alone, unless the cache is shared.

use monotonic::{Duration, Instant};

use super::Group;
use crate::overdue_reads::size;
use crate::silence::LastLatency;
use crate::{DiskId, Epoch, OpClass, Outcome, PathId, Standstill};

impl Group {
    /// Publishes the age of the oldest request of each disk, if that is due. Call it in each turn.
    pub fn publish_oldest_if_due(&mut self, now: Instant) {
        if now >= self.publish_oldest_at && self.open > 0 {
            self.publish_oldest(now);
        }
    }

    /// Takes note of a time in which the driver stood still. Call it before anything else in the turn.
    pub fn stood_still(&mut self, standstill: &Standstill) {
        standstill.gap.into_iter().for_each(|gap| self.attention.add_gap(gap));
        self.host_time.add(standstill);
    }

    /// Takes a sign of life of a live path that ends no request of the group: data of a request under way, or answers
    /// to abandoned requests. `answered` counts answers to requests that ended in [`Outcome::Recalled`] with
    /// `abandoned` set. `read` is the oldest read among these: the time at which it was sent, and its bytes.
    pub fn progress(&mut self, now: Instant, path: PathId, answered: u32, read: Option<(Instant, u32)>) {
        let id = path;
        let path = &mut self.paths[id.index()];
        // The path may have been lost while this event was on its way.
        if path.association.is_some() {
            path.watch.progress(now, answered, &self.attention);
            if let Some((sent_at, bytes)) = read {
                path.read_deadlines.record_latency(now, self.attention.between(sent_at, now), bytes);
            }
            if answered > 0 {
                self.late_answered(answered);
            }
            self.watch_changed(now, id);
        }
    }

    /// Counts answers to abandoned requests.
    pub(super) fn late_answered(&mut self, answers: u32) {
        self.late_answers.late(answers);
        self.expect_late_answers();
    }

    /// Counts the abandoned requests that may still be answered.
    pub(super) fn expect_late_answers(&mut self) {
        self.late_answers.expect(self.paths.iter().map(|path| path.watch.abandoned()).sum());
    }

    /// Records that the driver gets a request for this path.
    pub(super) fn watch_issue(&mut self, now: Instant, id: PathId) {
        let path = &mut self.paths[id.index()];
        path.issued(now, self.config.io_timeout);
        if path.watch.issued(now) {
            self.silence_begins(now, id);
        }
    }

    /// Takes note that the driver has answered a request of this association. `request` is set unless it is a hedge or a flush
    /// command: its class, when it was issued, and its bytes.
    #[inline]
    pub(super) fn watch_outcome(
        &mut self,
        now: Instant,
        id: PathId,
        epoch: Epoch,
        outcome: Outcome,
        request: Option<(OpClass, Instant, u32)>,
    ) {
        let path = &mut self.paths[id.index()];
        if path.association.as_ref().is_none_or(|live| live.epoch != epoch) {
            return;
        }
        match outcome {
            Outcome::Recalled { abandoned } => {
                path.watch.recalled(abandoned);
                self.expect_late_answers();
            }
            Outcome::Lost { .. } | Outcome::GivenUp => path.watch.returned_unanswered(),
            Outcome::Success | Outcome::PathError | Outcome::Retry { .. } | Outcome::Failed(_) => {
                path.watch.answered(now, &self.attention);
                self.late_answers.answered();
                if let Some((class, issued_at, bytes)) = request {
                    if class != OpClass::Read {
                        let latency = self.attention.between(issued_at, now);
                        path.last[class.index()] = Some(LastLatency { answered_at: now, latency });
                    } else if path.read_deadlines.answered(now, issued_at, bytes, &self.attention) {
                        self.recall_by(now);
                    }
                }
                return self.silence_begins(now, id);
            }
        }
        self.watch_changed(now, id);
    }

    /// Takes note that the path was heard of now, or owes an answer from now on.
    #[inline]
    fn silence_begins(&mut self, now: Instant, id: PathId) {
        let path = &mut self.paths[id.index()];
        if path.watch.owes() {
            let due = now + path.watch.deadline();
            self.watch_at = Some(self.watch_at.map_or(due, |at| at.min(due)));
        } else {
            path.clear_expiry_if_idle();
        }
        if self.suspects & id.bit() != 0 {
            self.silence_changed(now, id);
        }
    }

    /// Takes note of a change of what the path owes.
    pub(super) fn watch_changed(&mut self, now: Instant, id: PathId) {
        self.update_slots(id);
        self.silence_changed(now, id);
    }

    fn silence_changed(&mut self, now: Instant, id: PathId) {
        let path = &mut self.paths[id.index()];
        path.clear_expiry_if_idle();
        let watch = &mut path.watch;
        if let Some(due) = watch.due(&self.attention) {
            self.watch_at = Some(self.watch_at.map_or(due, |at| at.min(due)));
        }
        if self.suspects & id.bit() != 0 && !watch.is_suspect() {
            self.late_answers.late(watch.take_false_alarm().into());
            self.refresh_eligible(now);
        }
    }

    /// When to compare the next silent path with others if nothing happens before.
    pub(super) fn next_suspicion(&self) -> Option<Instant> {
        self.paths.iter().filter_map(|path| path.watch.due(&self.attention)).min()
    }

    /// Whether to look for suspect paths. The time may be early, because signs of life do not move it.
    pub(super) fn is_watch_due(&self, now: Instant) -> bool {
        self.watch_at.is_some_and(|at| at <= now)
    }

    /// Looks for paths that have become suspect.
    pub(super) fn check_watches(&mut self, now: Instant) {
        if !self.is_watch_due(now) {
            return;
        }
        for id in (0..self.paths.len() as u16).map(PathId) {
            let others = self.others(id);
            if others == 0 {
                self.paths[id.index()].watch.put_off(now, &self.attention);
                continue;
            }
            let mut watch = self.paths[id.index()].watch;
            let (patient, deadline) = (self.late_answers.is_overdrawn(), watch.deadline());
            let suspect = watch.check(now, &self.attention, patient, |silence| {
                let waited = self.waits_for(now, id, silence).filter(|waited| *waited >= deadline);
                waited.is_some_and(|waited| self.is_other_faster(now, id, others, self.smallest_read(id), waited))
            });
            self.paths[id.index()].watch = watch;
            if suspect {
                self.paths[id.index()].suspicions += 1;
                // The next path is compared with the paths that are left.
                self.refresh_eligible(now);
            }
        }
        self.watch_at = self.next_suspicion();
    }

    /// Whether one of `others` answers requests in less time than this path, or a request there, has `waited`. `size` is set
    /// for a read: its size class.
    ///
    /// * A path that has itself been silent for half of that time is no faster, unless no such request is there.
    /// * The latency of the path's last read of that size counts. If there was none lately, the path counts as faster: a read
    ///   that moves there will tell.
    /// * Other requests do not move. So the latency of the path's last write counts, or of this path's if there was none there.
    ///   If this path owes no write either, the same is true of discards, and of flushes of a shared cache.
    pub(super) fn is_other_faster(
        &self,
        now: Instant,
        this: PathId,
        others: u64,
        size: Option<usize>,
        waited: Duration,
    ) -> bool {
        let owes_write = self.paths[this.index()].in_flight[OpClass::Write.index()].newest().is_some();
        let class = match size {
            Some(_) => OpClass::Read,
            None if owes_write => OpClass::Write,
            None => OpClass::Other,
        };
        let last = |id: PathId| {
            let path = &self.paths[id.index()];
            size.map_or(path.last[class.index()], |size| path.read_deadlines.last(size))
        };
        let own = last(this).and_then(|last| last.get(now));
        let is_faster = |id: PathId| {
            let path = &self.paths[id.index()];
            let is_silent = path.in_flight[class.index()].newest().is_some()
                && 2 * path.watch.silence(now, &self.attention) > waited;
            let known = last(id).and_then(|last| last.compared(now, own));
            let latency = if size.is_some() { known } else { known.or(own) };
            !is_silent && latency.is_none_or(|latency| latency < waited)
        };
        (0..self.paths.len() as u16).map(PathId).any(|id| others & id.bit() != 0 && is_faster(id))
    }

    /// How long a silent path has owed an answer that another path could give. A flush of the path's own cache is none, and
    /// neither is a hedge, whose read waits elsewhere.
    fn waits_for(&self, now: Instant, id: PathId, silence: Duration) -> Option<Duration> {
        let path = &self.paths[id.index()];
        if path.watch.abandoned() > 0 {
            return Some(silence);
        }
        let oldest =
            path.in_flight.iter().filter_map(|of_class| Some(self.requests[of_class.oldest()?].issued_at)).min()?;
        Some(self.attention.between(oldest, now).min(silence))
    }

    /// The other usable paths of the disks that a path leads to.
    fn others(&self, id: PathId) -> u64 {
        let path = &self.paths[id.index()];
        let disks = self.disks().filter(|disk| path.leads_to(*disk));
        disks.fold(0, |set, disk| set | self.disks[disk.index()].usable) & !id.bit()
    }

    /// The size class of the smallest read on a path.
    fn smallest_read(&self, id: PathId) -> Option<usize> {
        let mut next = self.paths[id.index()].in_flight[OpClass::Read.index()].oldest();
        let reads = std::iter::from_fn(|| {
            let request = &self.requests[next?];
            next = request.newer();
            Some(size(request.io.bytes))
        });
        reads.min()
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
