//! At the end of the daemon, controllers write back unflushed writes, so that no loss goes unnoticed.

use super::Group;
use crate::{DiskId, PathId};

impl Group {
    /// Begins write-backs on a path. Returns the disks with unflushed writes that the controller of the path may hold. Call it at
    /// the end of the daemon, when no request is left. For each disk the driver sends one flush command
    /// ([`crate::Tag::of_write_back`]), and answers with [`Group::written_back`]. A controller shutdown is not enough: some
    /// controllers do not write back their caches then.
    pub fn begin_write_back(&mut self, id: PathId) -> Vec<DiskId> {
        let Some(association) = self.paths[id.index()].association.filter(|_| !self.config.shared_write_cache) else {
            return Vec::new();
        };
        let mut begun = Vec::new();
        for disk in self.disks() {
            let unflushed = &self.disks[disk.index()].unflushed;
            if unflushed.is_unflushed(id)
                && association.ana.of(disk).is_selectable()
                && let Some(round) = unflushed.begin_flush(id, association.epoch)
            {
                self.write_backs.insert((id, disk), (association.epoch, round));
                begun.push(disk);
            }
        }
        begun
    }

    /// Takes the outcome of the flush command of a write-back.
    pub fn written_back(&mut self, id: PathId, disk: DiskId, succeeded: bool) {
        if let Some((epoch, round)) = self.write_backs.remove(&(id, disk)).filter(|_| succeeded) {
            self.disks[disk.index()].unflushed.flushed(id, epoch, round);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use crate::{
        AnaState, Association, DiskId, Epoch, Group, GroupConfig, PathConfig, PathId, SharedDisk, Tag, UnflushedPaths,
    };

    const P: PathId = PathId(0);
    const E: Epoch = Epoch(1);
    const DISK: DiskId = DiskId(0);

    /// A group with one live path that holds an unflushed write.
    fn group(ana: AnaState, shared_write_cache: bool) -> (Group, Arc<UnflushedPaths>) {
        let (now, disk) = (Instant::now(), SharedDisk::default());
        let unflushed = Arc::clone(&disk.unflushed);
        let config = GroupConfig { shared_write_cache, ..GroupConfig::default() };
        let mut group = Group::new(now, config, &[disk]);
        group.add_path(P, PathConfig::default());
        let association = Association { epoch: E, ana: ana.into(), volatile_write_cache: true, queue_depth: 8 };
        group.path_up(now, P, association);
        unflushed.mark(now, P, E);
        (group, unflushed)
    }

    #[test]
    fn written_back_writes_are_not_lost_with_the_daemon() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        assert_eq!(group.begin_write_back(P), [DISK]);
        assert!(unflushed.has_unreported_loss(), "not yet");
        group.written_back(P, DISK, true);
        group.path_closed(Instant::now(), P);
        assert!(!unflushed.has_unreported_loss());
        assert!(group.begin_write_back(P).is_empty());
    }

    #[test]
    fn writes_that_are_not_written_back_count_as_lost() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        group.begin_write_back(P);
        group.written_back(P, DISK, false);
        assert!(unflushed.has_unreported_loss());
        // No flush goes to a namespace that is not accessible on the path.
        let (mut group, unflushed) = self::group(AnaState::Inaccessible, false);
        assert!(group.begin_write_back(P).is_empty() && unflushed.has_unreported_loss());
        // With a shared cache a lost path loses nothing, so nothing is written back.
        assert!(self::group(AnaState::Optimized, true).0.begin_write_back(P).is_empty());
    }

    #[test]
    fn an_association_that_one_thread_leaves_can_be_flushed_by_the_others() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        group.path_closed(Instant::now(), P);
        assert!(!unflushed.need(P, None).lost && unflushed.begin_flush(P, E).is_some());
    }

    #[test]
    fn tags_distinguish_write_backs_hedges_and_probes() {
        for disk in [DiskId(0), DiskId(63)] {
            let tag = Tag::of_write_back(disk);
            assert_eq!((tag.written_back(), tag.hedged()), (Some(disk), None));
        }
        assert_eq!((Tag::PROBE.written_back(), Tag(0).written_back()), (None, None));
        let last = Tag(Tag::COUNT - 1).of_hedge();
        assert_eq!((last.written_back(), last.hedged()), (None, Some(Tag(Tag::COUNT - 1))));
    }
}
