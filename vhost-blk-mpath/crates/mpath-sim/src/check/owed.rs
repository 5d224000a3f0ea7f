//! What flushes owe: seen from the driver, which knows what it has sent where and what came of it.
//!
//! * A flush is not sent to an association that can hold nothing of its disk: one that a flush of the disk, answered before this one
//!   was submitted, has made clean, with nothing of the disk sent or answered there since that flush was submitted. (When exactly it
//!   was sent is known to the core alone, as injections hold it.)
//! * A flush does not fail for writes that were lost if no association that was lost can have held any of its disk.
//!
//! What other disks have sent counts for neither. Both rules are on the safe side: more is taken to be dirty than is.

use std::collections::{BTreeMap, BTreeSet};

use mpath_core::{DiskId, Epoch, PathId};

use super::Moment;

/// A disk on an association.
type Place = (DiskId, PathId, Epoch);

#[derive(Debug, Default)]
pub(crate) struct Owed {
    moment: Moment,
    /// When something that may dirty it was last sent there, or answered.
    touched: BTreeMap<Place, Moment>,
    /// When the last flush was submitted that has succeeded there, and when it did.
    cleaned: BTreeMap<Place, (Moment, Moment)>,
    /// When a flush was submitted that is not over.
    flushes: BTreeMap<u64, Moment>,
    /// Associations that are over, be it for one disk alone.
    over: BTreeSet<Place>,
    /// When an I/O thread last heard that the disk's namespace can, or can no longer, be used there.
    changed: BTreeMap<Place, Moment>,
    /// Disks that may have lost writes.
    lossy: BTreeSet<DiskId>,
}

impl Owed {
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

    fn is_clean(&self, place: Place) -> Option<Moment> {
        let &(submitted, answered) = self.cleaned.get(&place)?;
        self.touched.get(&place).is_none_or(|touched| *touched < submitted).then_some(answered)
    }

    pub(crate) fn flush_submitted(&mut self, id: u64) {
        let moment = self.tick();
        self.flushes.insert(id, moment);
    }

    /// Whether a flush may be sent there.
    pub(crate) fn flush_sent(&self, id: u64, place: Place) -> Result<(), String> {
        match self.is_clean(place) {
            Some(answered) if self.flushes.get(&id).is_some_and(|submitted| answered < *submitted) => {
                Err(format!("flush #{id} is sent to path {}, which can hold nothing of disk {}", place.1, place.0.0))
            }
            _ => Ok(()),
        }
    }

    /// A flush has succeeded there.
    pub(crate) fn flush_succeeded(&mut self, id: u64, place: Place) {
        let moment = self.tick();
        // One that was sent before the namespace came back says nothing of what is there now.
        let changed = self.changed.get(&place).copied();
        if let Some(&submitted) = self.flushes.get(&id).filter(|submitted| changed.is_none_or(|at| at < **submitted)) {
            let before = self.cleaned.entry(place).or_insert((submitted, moment));
            if before.0 < submitted {
                *before = (submitted, moment);
            }
        }
    }

    /// Whether a flush may fail for what was lost.
    pub(crate) fn flush_over(&mut self, id: u64, disk: DiskId, unexplained: bool) -> Result<(), String> {
        self.flushes.remove(&id);
        if unexplained && !self.lossy.contains(&disk) {
            return Err(format!("flush #{id} failed though disk {} can have lost nothing", disk.0));
        }
        Ok(())
    }

    /// The association has ended, or the disk's namespace has lost there what was not flushed.
    pub(crate) fn over(&mut self, place: Place) {
        if self.touched.contains_key(&place) && self.is_clean(place).is_none() {
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

    const A: Place = (DiskId(0), PathId(0), Epoch(1));
    const B: Place = (DiskId(1), PathId(0), Epoch(1));

    fn flush(owed: &mut Owed, id: u64, place: Place) -> Result<(), String> {
        owed.flush_submitted(id);
        let sent = owed.flush_sent(id, place);
        owed.flush_succeeded(id, place);
        sent
    }

    #[test]
    fn a_clean_association_is_not_flushed_for_another_disk() {
        let mut owed = Owed::default();
        owed.touched(A);
        assert!(flush(&mut owed, 1, A).is_ok() && flush(&mut owed, 2, B).is_ok(), "nothing is known of B");
        owed.touched(A);
        assert!(flush(&mut owed, 3, B).is_err());
        assert!(flush(&mut owed, 4, A).is_ok());
        assert!(flush(&mut owed, 5, A).is_err());
        owed.touched(B);
        assert!(flush(&mut owed, 6, B).is_ok());
    }

    #[test]
    fn a_flush_that_came_in_before_may_be_needless() {
        let mut owed = Owed::default();
        owed.flush_submitted(2);
        assert!(flush(&mut owed, 1, A).is_ok());
        assert!(owed.flush_sent(2, A).is_ok());
        owed.flush_submitted(3);
        owed.touched(A);
        owed.flush_succeeded(2, A);
        assert!(owed.flush_sent(3, A).is_ok(), "dirtied while the other was under way");
    }

    #[test]
    fn only_a_disk_that_may_have_lost_writes_fails() {
        let mut owed = Owed::default();
        owed.touched(A);
        owed.touched(B);
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
