//! Where flushes are sent and why they fail, seen on the wire.
//!
//! * A flush is not sent to an association without unflushed data of its disk. An association has none under two conditions. An
//!   earlier flush of the disk was answered there before this flush was submitted. The guest has changed no data since that
//!   earlier flush was submitted.
//! * A flush fails for lost writes only if a lost association can have held unflushed data of its disk.
//!
//! If all controllers share one cache, a flush may go to any of them, and no data are lost with an association.
//!
//! Commands of other disks do not count. The check is on the safe side: it assumes more unflushed data than there are.

use std::collections::{BTreeMap, BTreeSet};

use mpath_core::{Epoch, PathId};

use super::history::Moment;

/// A disk, and an association of one of its paths.
pub(crate) type DiskAssociation = (usize, PathId, Epoch);

/// The state of the check, for all disks.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// All controllers have one cache.
    is_shared: bool,
    moment: Moment,
    /// When a command that leaves data in the cache was last sent there, or answered.
    written: BTreeMap<DiskAssociation, Moment>,
    /// When the last flush that succeeded there was submitted, and when it was answered.
    flushed: BTreeMap<DiskAssociation, (Moment, Moment)>,
    /// By disk and request: when each flush that is not answered was submitted.
    open: BTreeMap<(usize, u64), Moment>,
    /// By disk: the number of requests under way that change data, and when it changed last.
    changing: BTreeMap<usize, (u64, Moment)>,
    /// Flush commands on their way, in order: when the first flush that they may belong to was submitted.
    sent: BTreeMap<DiskAssociation, Vec<Moment>>,
    /// Associations that have ended, for all disks or for one.
    ended: BTreeSet<DiskAssociation>,
    /// When an I/O thread last heard that the disk's namespace became usable or unusable there.
    namespace_changes: BTreeMap<DiskAssociation, Moment>,
    /// Disks that may have lost writes.
    may_have_lost_writes: BTreeSet<usize>,
    /// Disks with flush commands that have failed, so that a cache may have lost their data.
    failed: BTreeSet<usize>,
}

impl Flushes {
    /// Another daemon follows. It can know only of data that earlier daemons have lost.
    pub(super) fn daemon_replaced(&mut self) {
        let may_have_lost_writes = std::mem::take(&mut self.may_have_lost_writes);
        let failed = std::mem::take(&mut self.failed);
        *self = Self { may_have_lost_writes, failed, ..Self::new(self.is_shared) };
    }

    /// A disk may have lost data that a killed daemon had left unflushed.
    pub(super) fn may_have_lost(&mut self, disk: usize) {
        self.may_have_lost_writes.insert(disk);
    }

    /// A flush command of a disk has failed. The guest learns of that from its next flush too.
    pub(super) fn flush_failed(&mut self, disk: usize) {
        self.failed.insert(disk);
    }

    pub(super) fn new(is_shared: bool) -> Self {
        Self { is_shared, ..Self::default() }
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// A command that leaves data in the cache is sent, or was answered.
    pub(crate) fn cache_written(&mut self, association: DiskAssociation) {
        let moment = self.tick();
        self.written.insert(association, moment);
        if self.ended.contains(&association) {
            self.may_have_lost_writes.insert(association.0);
        }
    }

    /// Notes that the guest submits a request that changes data.
    pub(crate) fn change_submitted(&mut self, disk: usize) {
        let moment = self.tick();
        let changing = self.changing.entry(disk).or_default();
        *changing = (changing.0 + 1, moment);
    }

    /// Notes that a request that changes data is answered. Its data count as written now, because the host may have heard of the
    /// controller's answer only now.
    pub(crate) fn change_answered(&mut self, disk: usize) {
        let moment = self.tick();
        let changing = self.changing.entry(disk).or_default();
        *changing = (changing.0.saturating_sub(1), moment);
        self.written
            .iter_mut()
            .filter(|(association, _)| association.0 == disk)
            .for_each(|(_, written)| *written = moment);
    }

    /// Whether the association has no unflushed data of the disk.
    fn is_flushed(&self, association: DiskAssociation) -> bool {
        let Some(&(submitted, _)) = self.flushed.get(&association) else { return false };
        self.written.get(&association).is_none_or(|written| *written < submitted)
    }

    /// The guest submits a flush.
    pub(crate) fn flush_submitted(&mut self, id: u64, disk: usize) {
        let moment = self.tick();
        self.open.insert((disk, id), moment);
    }

    /// A flush command is sent.
    pub(crate) fn flush_sent(&mut self, association: DiskAssociation) -> Result<(), String> {
        let disk = association.0;
        let moment = self.tick();
        let first = self.open.range((disk, 0)..=(disk, u64::MAX)).map(|(_, submitted)| *submitted).min();
        let needless = self.flushed.get(&association).is_some_and(|&(before, answered)| {
            let &(changing, changed) = self.changing.get(&disk).unwrap_or(&(0, 0));
            changing == 0 && changed < before && first.is_some_and(|first| answered < first)
        });
        // Without a flush of the guest, it is a flush of the daemon itself, which covers what was answered before.
        self.sent.entry(association).or_default().push(first.unwrap_or(moment));
        if needless && !self.is_shared {
            return Err(format!("a flush is sent to path {}, which can hold nothing of disk {disk}", association.1));
        }
        Ok(())
    }

    /// A flush command was answered; `counts` if the host knows of a success.
    pub(crate) fn flush_answered(&mut self, association: DiskAssociation, counts: bool) {
        let moment = self.tick();
        let sent = self.sent.entry(association).or_default();
        // The command belongs to a flush that was submitted at `first` or later.
        let first = (!sent.is_empty()).then(|| sent.remove(0));
        // A flush from before the namespace came back does not cover the data that are there now.
        let changed = self.namespace_changes.get(&association).copied();
        if counts && let Some(submitted) = first.filter(|submitted| changed.is_none_or(|at| at < *submitted)) {
            let before = self.flushed.entry(association).or_insert((submitted, moment));
            if before.0 < submitted {
                *before = (submitted, moment);
            }
        }
    }

    /// Notes the answer of a flush. If it failed and nothing else explains that (`unexplained`), the disk must have lost writes.
    pub(crate) fn flush_ended(&mut self, id: u64, disk: usize, unexplained: bool) -> Result<(), String> {
        self.open.remove(&(disk, id));
        let may_have_lost = !self.is_shared && self.may_have_lost_writes.contains(&disk);
        if unexplained && !may_have_lost && !self.failed.contains(&disk) {
            return Err(format!("flush #{id} failed though disk {disk} can have lost nothing"));
        }
        Ok(())
    }

    /// The association has ended, or its controller has lost the unflushed data of the disk.
    pub(crate) fn association_ended(&mut self, association: DiskAssociation) {
        if self.written.contains_key(&association) && !self.is_flushed(association) {
            self.may_have_lost_writes.insert(association.0);
        }
        self.ended.insert(association);
        self.namespace_changed(association);
    }

    /// An I/O thread hears that the disk's namespace is usable there again. Another thread may have heard that earlier and flushed
    /// the namespace, which this thread cannot know.
    pub(crate) fn namespace_changed(&mut self, association: DiskAssociation) {
        let moment = self.tick();
        self.namespace_changes.insert(association, moment);
        self.flushed.remove(&association);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DiskAssociation = (0, PathId(0), Epoch(1));
    const B: DiskAssociation = (1, PathId(0), Epoch(1));

    fn write(flushes: &mut Flushes, association: DiskAssociation) {
        flushes.change_submitted(association.0);
        flushes.cache_written(association);
        flushes.change_answered(association.0);
    }

    fn flush(flushes: &mut Flushes, id: u64, association: DiskAssociation) -> Result<(), String> {
        flushes.flush_submitted(id, association.0);
        let flushes_sent = flushes.flush_sent(association);
        flushes.flush_answered(association, true);
        flushes.flush_ended(id, association.0, false).unwrap();
        flushes_sent
    }

    #[test]
    fn a_flushed_association_is_not_flushed_for_another_disk() {
        let mut flushes = Flushes::default();
        write(&mut flushes, A);
        assert!(flush(&mut flushes, 1, A).is_ok() && flush(&mut flushes, 2, B).is_ok(), "nothing is known of B");
        write(&mut flushes, A);
        assert!(flush(&mut flushes, 3, B).is_err());
        assert!(flush(&mut flushes, 4, A).is_ok());
        assert!(flush(&mut flushes, 5, A).is_err());
        write(&mut flushes, B);
        assert!(flush(&mut flushes, 6, B).is_ok());
    }

    #[test]
    fn a_flush_that_came_in_before_may_be_needless() {
        let mut flushes = Flushes::default();
        flushes.flush_submitted(2, 0);
        flushes.flush_submitted(1, 0);
        flushes.flush_sent(A).unwrap();
        flushes.flush_answered(A, true);
        flushes.flush_ended(1, 0, false).unwrap();
        assert!(flushes.flush_sent(A).is_ok());
        flushes.flush_submitted(3, 0);
        write(&mut flushes, A);
        flushes.flush_answered(A, true);
        flushes.flush_ended(2, 0, false).unwrap();
        assert!(flushes.flush_sent(A).is_ok(), "written while the other flush was under way");
    }

    #[test]
    fn a_shared_cache_is_flushed_anywhere_and_loses_nothing() {
        let mut flushes = Flushes::new(true);
        write(&mut flushes, A);
        assert!(flush(&mut flushes, 1, A).is_ok() && flush(&mut flushes, 2, A).is_ok());
        write(&mut flushes, A);
        flushes.association_ended(A);
        assert!(flushes.flush_ended(3, A.0, true).is_err());
    }

    #[test]
    fn only_a_disk_that_may_have_lost_writes_fails() {
        let mut flushes = Flushes::default();
        write(&mut flushes, A);
        write(&mut flushes, B);
        assert!(flush(&mut flushes, 1, B).is_ok());
        flushes.association_ended(A);
        flushes.association_ended(B);
        assert!(flushes.flush_ended(2, A.0, true).is_ok());
        assert!(flushes.flush_ended(3, B.0, true).is_err());
        assert!(flushes.flush_ended(4, B.0, false).is_ok());
        flushes.cache_written(B);
        assert!(flushes.flush_ended(5, B.0, true).is_ok(), "answered after the end");
    }
}
