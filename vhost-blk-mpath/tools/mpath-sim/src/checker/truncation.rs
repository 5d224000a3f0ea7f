//! Requests that are under way while the memory of their guest is truncated.

use monotonic::Duration;

use super::{Checker, DiskChecks};
use crate::blocks::{Block, Operation, Origin, pattern};

impl Checker {
    /// The memory of a guest is truncated while these requests of the guest are under way.
    pub(crate) fn memory_truncated(&mut self, at: Duration, ids: impl Iterator<Item = u64>) {
        for id in ids {
            let Some(request) = self.open.get_mut(&id) else { continue };
            request.is_truncated = true;
            let (disk, range) = (request.disk, request.range.clone());
            if matches!(request.operation, Operation::Write { .. }) {
                self.disks[disk].torn_writes.add(id, range.clone());
            }
            self.history.note(at, id, disk, range, || "the memory of its guest is truncated".into());
        }
    }

    /// Finds and notes the request that a controller begins to execute with a payload that is zero in part.
    pub(super) fn writer_of_torn(&mut self, disk: usize, lba: u64, payload: &[u8], block_bytes: usize) -> Option<u64> {
        let (writers, id) = self.torn_writer(disk, lba, payload, block_bytes);
        let id = id?;
        self.counts.torn_writes += 1;
        if writers == 1 {
            self.disks[disk].torn_writes.set_zeroed(id);
        }
        Some(id)
    }

    /// The origin of the next piece of a command that has begun to change the store at `lba`. Zeroes of truncated memory may fit
    /// several requests. If the request that was taken for the writer has been answered, the writer is an unanswered request that
    /// fits.
    pub(crate) fn origin_of_next_piece(
        &self,
        origin: Origin,
        disk: usize,
        lba: u64,
        payload: Option<&[u8]>,
        block_bytes: usize,
    ) -> Origin {
        match (origin, payload) {
            (Origin::Request(id), Some(payload)) if !self.open.contains_key(&id) => {
                Origin::Request(self.torn_writer(disk, lba, payload, block_bytes).1.unwrap_or(id))
            }
            _ => origin,
        }
    }

    /// The number of requests that fit a payload that may be zero in part, and the first of them: an unanswered one if there is one.
    fn torn_writer(&self, disk: usize, lba: u64, payload: &[u8], block_bytes: usize) -> (usize, Option<u64>) {
        let writers = self.disks[disk].torn_writes.writers(disk, lba, payload, block_bytes);
        let id = writers.iter().find(|&id| self.open.contains_key(id)).or(writers.first());
        (writers.len(), id.copied())
    }

    /// Judges the bytes of a block that an answered read has returned.
    pub(super) fn check_block(&mut self, at: Duration, id: u64, block: Block, bytes: &[u8]) -> Result<(), String> {
        let Block { disk, lba } = block;
        let parsed = pattern::parse(disk, bytes, lba);
        self.history.note(at, id, disk, lba..lba + 1, || format!("  read {parsed:?}"));
        let moment = self.moment;
        let DiskChecks { registers, torn_writes, .. } = &mut self.disks[disk];
        let is_whole = matches!(parsed, Ok(Origin::Request(_)));
        let result = parsed.and_then(|origin| registers.read(id, lba, origin, moment));
        if result.is_ok() || is_whole {
            return result;
        }
        let mut writers = torn_writes.writers(disk, lba, bytes, bytes.len()).into_iter();
        let accepts = |writer| registers.read(id, lba, Origin::Request(writer), moment).is_ok();
        if writers.any(accepts) { Ok(()) } else { result }
    }
}

#[cfg(test)]
mod tests {
    use mpath_core::GroupConfig;

    use super::*;

    const BYTES: usize = 512;

    #[test]
    fn zeroes_that_fit_several_writes_are_those_of_an_unanswered_one() {
        let mut checker = Checker::new([(8, BYTES as u64)].into_iter(), None, &GroupConfig::default(), false);
        let write = Operation::Write { fua: false };
        for id in [1, 2] {
            checker.submitted(Duration::ZERO, 0, id, write, 0..4);
        }
        checker.memory_truncated(Duration::ZERO, [1, 2].into_iter());
        let zeroes = [0; 2 * BYTES];
        assert_eq!(checker.writer_of_torn(0, 1, &zeroes, BYTES), Some(1));
        let next = |checker: &Checker| checker.origin_of_next_piece(Origin::Request(1), 0, 1, Some(&zeroes), BYTES);
        assert_eq!(next(&checker), Origin::Request(1));
        checker.open.remove(&1);
        assert_eq!(next(&checker), Origin::Request(2), "the first one was answered");
        checker.open.remove(&2);
        assert_eq!(next(&checker), Origin::Request(1), "a stale write");
    }
}
