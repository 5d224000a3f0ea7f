//! Flushes of the daemon itself, for writes that no flush of the guest has covered. A path that is to be closed gets them, and
//! all paths at the end of the daemon.

use monotonic::{Duration, Instant};

use super::Group;
use super::flush::LOOK_AGAIN;
use crate::{DiskId, Outcome, PathId};

/// How soon to try again on a path that does not serve the disk.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Group {
    /// Begins daemon flushes on a path. Returns the disks with unflushed writes that the controller of the path may hold. For each
    /// of them the driver sends one flush command ([`crate::Tag::of_daemon_flush`]), and answers with [`Group::daemon_flushed`].
    /// A disk is left out while its daemon flush is under way, or delayed by the controller. A controller shutdown is not
    /// enough: some controllers do not write back their caches then.
    pub fn begin_daemon_flush(&mut self, now: Instant, id: PathId) -> Vec<DiskId> {
        let Some(association) = self.paths[id.index()].association.filter(|_| !self.config.shared_write_cache) else {
            return Vec::new();
        };
        let mut begun = Vec::new();
        for disk in self.disks() {
            let unflushed = &self.disks[disk.index()].unflushed;
            if unflushed.is_unflushed(id)
                && association.ana.of(disk).is_selectable()
                && self.paths[id.index()].per_disk[disk.index()].may_begin_daemon_flush(now)
                && let Some(round) = unflushed.begin_flush(id, association.epoch)
            {
                let path = &mut self.paths[id.index()];
                path.per_disk[disk.index()].daemon_flush = Some((association.epoch, round));
                path.daemon_flushes += 1;
                // A controller that loses the command must not keep the path for ever.
                path.issued(now, self.config.io_timeout);
                begun.push(disk);
            }
        }
        self.update_slots(id);
        begun
    }

    /// Takes the outcome of a daemon flush. A final error is a loss, which the guest's next flush reports:
    /// no later flush can show that the writes are durable. So is the last retry. After any other outcome the writes stay unflushed.
    pub fn daemon_flushed(&mut self, now: Instant, id: PathId, disk: DiskId, outcome: Outcome) {
        let path = &mut self.paths[id.index()];
        let Some((epoch, round)) = path.per_disk[disk.index()].daemon_flush.take() else { return };
        path.daemon_flushes -= 1;
        path.clear_expiry_if_idle();
        self.update_slots(id);
        let per_disk = &mut self.paths[id.index()].per_disk[disk.index()];
        let unflushed = &self.disks[disk.index()].unflushed;
        if outcome.may_lose_cache() {
            // A path that was used again meanwhile may have taken writes since, and the cache may have lost these too.
            unflushed.flush_failed(now, id, epoch);
        }
        match outcome {
            Outcome::Success => {
                per_disk.daemon_flush_retries = 0;
                if !unflushed.flushed(id, epoch, round) {
                    per_disk.daemon_flush_after = Some(now + LOOK_AGAIN);
                }
            }
            Outcome::Retry { after, .. } if per_disk.daemon_flush_retries < self.config.max_retries => {
                per_disk.daemon_flush_retries += 1;
                per_disk.daemon_flush_after = Some(now + after);
            }
            Outcome::Failed(_) | Outcome::Retry { .. } => {
                per_disk.daemon_flush_retries = 0;
                unflushed.daemon_flush_failed(now, id, epoch, round);
            }
            _ => per_disk.daemon_flush_after = Some(now + AGAIN_AFTER),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use monotonic::{Duration, Instant};

    use super::{AGAIN_AFTER, LOOK_AGAIN};

    use crate::{
        Action, AnaState, Association, DiskId, Epoch, FlowId, Group, GroupConfig, Io, IoError, Op, Outcome, PathConfig,
        PathId, RetryCause, SharedDisk, Tag, UnflushedPaths,
    };

    const P: PathId = PathId(0);
    const E: Epoch = Epoch(1);
    const DISK: DiskId = DiskId(0);
    const FAILED: Outcome = Outcome::Failed(IoError::Controller);

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
    fn flushed_writes_are_not_lost_with_the_daemon() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        assert_eq!(group.begin_daemon_flush(Instant::now(), P), [DISK]);
        assert!(unflushed.has_unreported_loss(), "not yet");
        group.daemon_flushed(Instant::now(), P, DISK, Outcome::Success);
        group.path_closed(Instant::now(), P);
        assert!(!unflushed.has_unreported_loss());
        assert!(group.begin_daemon_flush(Instant::now(), P).is_empty());
    }

    #[test]
    fn a_daemon_flush_takes_room_in_the_queue_pair() {
        let (mut group, _) = group(AnaState::Optimized, false);
        let now = Instant::now();
        group.begin_daemon_flush(now, P);
        for tag in (0..8).map(Tag) {
            group.submit(now, Io { tag, op: Op::Read, bytes: 4096, disk: DISK, flow: FlowId(0), fua: false });
        }
        for tag in (0..7).map(Tag) {
            assert_eq!(group.poll_action(now), Some(Action::Issue { path: P, tag }));
        }
        assert_eq!(group.poll_action(now), None, "eight commands are in the queue pair");
        group.daemon_flushed(now, P, DISK, Outcome::Success);
        assert_eq!(group.poll_action(now), Some(Action::Issue { path: P, tag: Tag(7) }));
    }

    /// A failed flush of the guest is the report of its loss. Nobody sees that the flush of the daemon has failed.
    #[test]
    fn the_guests_next_flush_reports_that_a_daemon_flush_has_failed() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        let now = Instant::now();
        group.begin_daemon_flush(now, P);
        assert!(group.begin_daemon_flush(now, P).is_empty(), "one is under way");
        group.daemon_flushed(now, P, DISK, FAILED);
        assert!(!unflushed.is_unflushed(P) && unflushed.has_known_loss());
        let mut flush = |at| {
            let io = Io { tag: Tag(0), op: Op::Flush, bytes: 0, disk: DISK, flow: FlowId(0), fua: false };
            group.submit(at, io);
            group.poll_action(at)
        };
        let finish = |result| Some(Action::Finish { tag: Tag(0), result });
        let later = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(flush(later(1)), finish(Err(IoError::LostWrites)));
        assert_eq!(flush(later(2)), finish(Ok(())));
    }

    /// A daemon flush covers the writes that had completed when it began, and no later ones.
    #[test]
    fn a_write_that_completes_during_a_daemon_flush_stays_unflushed() {
        for outcome in [Outcome::Success, FAILED] {
            let (mut group, unflushed) = group(AnaState::Optimized, false);
            let now = Instant::now();
            group.begin_daemon_flush(now, P);
            unflushed.mark(now, P, E);
            group.daemon_flushed(now, P, DISK, outcome);
            assert!(unflushed.is_unflushed(P));
            assert_eq!(unflushed.has_known_loss(), outcome == FAILED);
        }
    }

    #[test]
    fn a_daemon_flush_that_was_not_executed_is_repeated_when_the_controller_allows_it() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        let (now, after) = (Instant::now(), Duration::from_secs(3));
        group.begin_daemon_flush(now, P);
        group.daemon_flushed(now, P, DISK, Outcome::Retry { after, cause: RetryCause::NotExecuted });
        assert!(unflushed.is_unflushed(P) && !unflushed.has_known_loss());
        assert!(group.begin_daemon_flush(now + after / 2, P).is_empty());
        assert_eq!(group.begin_daemon_flush(now + after, P), [DISK]);
        let now = now + after;
        group.daemon_flushed(now, P, DISK, Outcome::PathError);
        assert!(group.begin_daemon_flush(now, P).is_empty());
        assert_eq!(group.begin_daemon_flush(now + AGAIN_AFTER, P), [DISK]);
    }

    #[test]
    fn a_daemon_flush_that_succeeds_while_the_ana_log_is_read_is_repeated() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        let now = Instant::now();
        group.begin_daemon_flush(now, P);
        unflushed.ana_reading_begun(P, E);
        group.daemon_flushed(now, P, DISK, Outcome::Success);
        unflushed.ana_read(P, E);
        assert!(unflushed.is_unflushed(P) && group.begin_daemon_flush(now, P).is_empty());
        assert_eq!(group.begin_daemon_flush(now + LOOK_AGAIN, P), [DISK]);
        group.daemon_flushed(now + LOOK_AGAIN, P, DISK, Outcome::Success);
        assert!(!unflushed.has_unreported_loss());
    }

    #[test]
    fn a_daemon_flush_that_is_never_carried_out_is_a_loss_in_the_end() {
        for (cause, lost_at_once) in [(RetryCause::NotExecuted, false), (RetryCause::Internal, true)] {
            let (mut group, unflushed) = group(AnaState::Optimized, false);
            let now = Instant::now();
            for attempt in 0..=group.config.max_retries {
                assert_eq!(group.begin_daemon_flush(now, P), [DISK]);
                group.daemon_flushed(now, P, DISK, Outcome::Retry { after: Duration::ZERO, cause });
                let is_last = attempt == group.config.max_retries;
                assert_eq!(
                    (unflushed.is_unflushed(P), unflushed.has_known_loss()),
                    (!is_last, is_last || lost_at_once)
                );
            }
            assert!(group.begin_daemon_flush(now, P).is_empty());
        }
    }

    #[test]
    fn a_controller_that_loses_a_daemon_flush_loses_its_path() {
        let (mut group, _) = group(AnaState::Optimized, false);
        let (now, io_timeout) = (Instant::now(), group.io_timeout());
        assert_eq!(group.timed_out(now + io_timeout, |_| None), None, "nothing is owed");
        group.begin_daemon_flush(now, P);
        assert_eq!(group.stats(now).path(P).unwrap().flushes_open, 1);
        assert_eq!(group.timed_out(now + io_timeout, |_| Some(now)), Some(P));
        group.path_lost(now, P);
        assert_eq!(group.stats(now).path(P).unwrap().flushes_open, 0);
    }

    #[test]
    fn writes_that_are_not_flushed_count_as_lost() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        group.begin_daemon_flush(Instant::now(), P);
        group.daemon_flushed(Instant::now(), P, DISK, FAILED);
        assert!(unflushed.has_unreported_loss());
        // No flush goes to a namespace that is not accessible on the path.
        let (mut group, unflushed) = self::group(AnaState::Inaccessible, false);
        assert!(group.begin_daemon_flush(Instant::now(), P).is_empty() && unflushed.has_unreported_loss());
        // With a shared cache a lost path loses nothing, so nothing is flushed.
        assert!(self::group(AnaState::Optimized, true).0.begin_daemon_flush(Instant::now(), P).is_empty());
    }

    #[test]
    fn an_association_that_one_thread_leaves_can_be_flushed_by_the_others() {
        let (mut group, unflushed) = group(AnaState::Optimized, false);
        group.path_closed(Instant::now(), P);
        assert!(!unflushed.need(P, None).lost && unflushed.begin_flush(P, E).is_some());
    }

    #[test]
    fn tags_distinguish_daemon_flushes_hedges_and_probes() {
        for disk in [DiskId(0), DiskId(63)] {
            let tag = Tag::of_daemon_flush(disk);
            assert_eq!((tag.daemon_flushed(), tag.hedged()), (Some(disk), None));
        }
        assert_eq!((Tag::PROBE.daemon_flushed(), Tag(0).daemon_flushed()), (None, None));
        let last = Tag(Tag::COUNT - 1).of_hedge();
        assert_eq!((last.daemon_flushed(), last.hedged()), (None, Some(Tag(Tag::COUNT - 1))));
    }
}
