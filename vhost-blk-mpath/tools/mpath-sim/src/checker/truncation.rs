//! Requests that are under way while the memory of their guest is truncated.

use std::time::Duration;

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

    /// The request that a controller executes with a payload that is zero in part.
    pub(super) fn writer_of_torn(&mut self, disk: usize, lba: u64, payload: &[u8], block_bytes: usize) -> Option<u64> {
        let writers = self.disks[disk].torn_writes.writers(disk, lba, payload, block_bytes);
        let id = *writers.iter().find(|&id| self.open.contains_key(id)).or(writers.first())?;
        self.counts.torn_writes += 1;
        if writers.len() == 1 {
            self.disks[disk].torn_writes.set_zeroed(id);
        }
        Some(id)
    }

    /// A read that is answered returns these bytes of a block.
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
