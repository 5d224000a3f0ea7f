//! What flushes owe: seen from the wire, from what the host has sent where and what it has heard of that.
//!
//! * A flush is not sent to an association that can hold nothing of its disk. An earlier flush of the disk has made it clean: that
//!   flush was answered before this one was submitted, and the guest has changed no data since it was submitted.
//! * A flush does not fail for writes that were lost if no association that was lost can have held any of its disk.
//!
//! Where all controllers share one cache a flush may go anywhere, and nothing is ever lost with an association.
//!
//! Commands of other disks count for neither. Both rules are on the safe side: more is taken to be dirty than is.

use std::collections::{BTreeMap, BTreeSet};

use mpath_core::{Epoch, PathId};

use super::Moment;

/// A disk on an association.
pub(crate) type Place = (usize, PathId, Epoch);

#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// All controllers have one cache.
    is_shared: bool,
    moment: Moment,
    /// When something that may dirty it was last sent there, or answered.
    touched: BTreeMap<Place, Moment>,
    /// When the last flush was submitted that has succeeded there, and when it did.
    cleaned: BTreeMap<Place, (Moment, Moment)>,
    /// By disk: when flushes were submitted that are not answered.
    flushes: BTreeMap<(usize, u64), Moment>,
    /// By disk: how many requests are under way that change data, and when that was last another number.
    changing: BTreeMap<usize, (u64, Moment)>,
    /// Flushes on their way, in their order: when the first that they may be for was submitted.
    sent: BTreeMap<Place, Vec<Option<Moment>>>,
    /// Associations that have ended, for all disks or for one.
    over: BTreeSet<Place>,
    /// When an I/O thread last heard that the disk's namespace can, or can no longer, be used there.
    changed: BTreeMap<Place, Moment>,
    /// Disks that may have lost writes.
    lossy: BTreeSet<usize>,
}

impl Owed {
    /// Another daemon follows. It may know what this one, or one before it, has lost, and nothing else.
    pub(super) fn restarted(&mut self) {
        let lossy = std::mem::take(&mut self.lossy);
        *self = Self { lossy, ..Self::new(self.is_shared) };
    }

    /// A disk may have lost what a killed daemon had left.
    pub(super) fn may_have_lost(&mut self, disk: usize) {
        self.lossy.insert(disk);
    }

    pub(super) fn new(is_shared: bool) -> Self {
        Self { is_shared, ..Self::default() }
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// Something that leaves data in the cache is sent, or was answered.
    pub(crate) fn touched(&mut self, place: Place) {
        let moment = self.tick();
        self.touched.insert(place, moment);
        if self.over.contains(&place) {
            self.lossy.insert(place.0);
        }
    }

    /// The guest asks for a change of data.
    pub(crate) fn change_submitted(&mut self, disk: usize) {
        let moment = self.tick();
        let changing = self.changing.entry(disk).or_default();
        *changing = (changing.0 + 1, moment);
    }

    /// The guest is answered. The host may have heard of the answers of paths only now.
    pub(crate) fn change_answered(&mut self, disk: usize) {
        let moment = self.tick();
        let changing = self.changing.entry(disk).or_default();
        *changing = (changing.0.saturating_sub(1), moment);
        self.touched.iter_mut().filter(|(place, _)| place.0 == disk).for_each(|(_, touched)| *touched = moment);
    }

    fn is_clean(&self, place: Place) -> bool {
        let Some(&(submitted, _)) = self.cleaned.get(&place) else { return false };
        self.touched.get(&place).is_none_or(|touched| *touched < submitted)
    }

    /// The guest flushes.
    pub(crate) fn flush_submitted(&mut self, id: u64, disk: usize) {
        let moment = self.tick();
        self.flushes.insert((disk, id), moment);
    }

    /// A flush is sent there.
    pub(crate) fn flush_sent(&mut self, place: Place) -> Result<(), String> {
        let disk = place.0;
        let first = self.flushes.range((disk, 0)..=(disk, u64::MAX)).map(|(_, submitted)| *submitted).min();
        let needless = self.cleaned.get(&place).is_some_and(|&(before, answered)| {
            let &(changing, changed) = self.changing.get(&disk).unwrap_or(&(0, 0));
            changing == 0 && changed < before && first.is_some_and(|first| answered < first)
        });
        self.sent.entry(place).or_default().push(first);
        if needless && !self.is_shared {
            return Err(format!("a flush is sent to path {}, which can hold nothing of disk {disk}", place.1));
        }
        Ok(())
    }

    /// One of them was answered there; `counts` if the host knows of a success.
    pub(crate) fn flush_answered(&mut self, place: Place, counts: bool) {
        let moment = self.tick();
        let sent = self.sent.entry(place).or_default();
        // Which one it is does not matter as long as it is not a later one.
        let first = if sent.is_empty() { None } else { sent.remove(0) };
        // One that was sent before the namespace came back says nothing of what is there now.
        let changed = self.changed.get(&place).copied();
        if counts && let Some(submitted) = first.filter(|submitted| changed.is_none_or(|at| at < *submitted)) {
            let before = self.cleaned.entry(place).or_insert((submitted, moment));
            if before.0 < submitted {
                *before = (submitted, moment);
            }
        }
    }

    /// Whether a flush may fail for what was lost.
    pub(crate) fn flush_over(&mut self, id: u64, disk: usize, unexplained: bool) -> Result<(), String> {
        self.flushes.remove(&(disk, id));
        if unexplained && (self.is_shared || !self.lossy.contains(&disk)) {
            return Err(format!("flush #{id} failed though disk {disk} can have lost nothing"));
        }
        Ok(())
    }

    /// The association has ended, or the disk's namespace has lost there what was not flushed.
    pub(crate) fn over(&mut self, place: Place) {
        if self.touched.contains_key(&place) && !self.is_clean(place) {
            self.lossy.insert(place.0);
        }
        self.over.insert(place);
        self.back(place);
    }

    /// An I/O thread hears that the disk's namespace can be used there again. Another one may have heard so earlier, and have
    /// flushed it; this one cannot know.
    pub(crate) fn back(&mut self, place: Place) {
        let moment = self.tick();
        self.changed.insert(place, moment);
        self.cleaned.remove(&place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Place = (0, PathId(0), Epoch(1));
    const B: Place = (1, PathId(0), Epoch(1));

    fn write(owed: &mut Owed, place: Place) {
        owed.change_submitted(place.0);
        owed.touched(place);
        owed.change_answered(place.0);
    }

    fn flush(owed: &mut Owed, id: u64, place: Place) -> Result<(), String> {
        owed.flush_submitted(id, place.0);
        let sent = owed.flush_sent(place);
        owed.flush_answered(place, true);
        owed.flush_over(id, place.0, false).unwrap();
        sent
    }

    #[test]
    fn a_clean_association_is_not_flushed_for_another_disk() {
        let mut owed = Owed::default();
        write(&mut owed, A);
        assert!(flush(&mut owed, 1, A).is_ok() && flush(&mut owed, 2, B).is_ok(), "nothing is known of B");
        write(&mut owed, A);
        assert!(flush(&mut owed, 3, B).is_err());
        assert!(flush(&mut owed, 4, A).is_ok());
        assert!(flush(&mut owed, 5, A).is_err());
        write(&mut owed, B);
        assert!(flush(&mut owed, 6, B).is_ok());
    }

    #[test]
    fn a_flush_that_came_in_before_may_be_needless() {
        let mut owed = Owed::default();
        owed.flush_submitted(2, 0);
        owed.flush_submitted(1, 0);
        owed.flush_sent(A).unwrap();
        owed.flush_answered(A, true);
        owed.flush_over(1, 0, false).unwrap();
        assert!(owed.flush_sent(A).is_ok());
        owed.flush_submitted(3, 0);
        write(&mut owed, A);
        owed.flush_answered(A, true);
        owed.flush_over(2, 0, false).unwrap();
        assert!(owed.flush_sent(A).is_ok(), "dirtied while the other was under way");
    }

    #[test]
    fn a_shared_cache_is_flushed_anywhere_and_loses_nothing() {
        let mut owed = Owed::new(true);
        write(&mut owed, A);
        assert!(flush(&mut owed, 1, A).is_ok() && flush(&mut owed, 2, A).is_ok());
        write(&mut owed, A);
        owed.over(A);
        assert!(owed.flush_over(3, A.0, true).is_err());
    }

    #[test]
    fn only_a_disk_that_may_have_lost_writes_fails() {
        let mut owed = Owed::default();
        write(&mut owed, A);
        write(&mut owed, B);
        assert!(flush(&mut owed, 1, B).is_ok());
        owed.over(A);
        owed.over(B);
        assert!(owed.flush_over(2, A.0, true).is_ok());
        assert!(owed.flush_over(3, B.0, true).is_err());
        assert!(owed.flush_over(4, B.0, false).is_ok());
        owed.touched(B);
        assert!(owed.flush_over(5, B.0, true).is_ok(), "answered after the end");
    }
}
