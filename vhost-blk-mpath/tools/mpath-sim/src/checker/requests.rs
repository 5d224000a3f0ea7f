//! Requests of guests, from their submission to their answer.

use std::ops::Range;

use monotonic::Duration;

use super::{Checker, DiskChecks, OpenRequest};
use crate::blocks::{Block, Operation};
use crate::machine::GuestError;

/// How long a request of a spared disk may take.
const SPARED_MAX: Duration = Duration::from_secs(2);

impl Checker {
    /// The guest of a disk submits a request.
    pub(crate) fn submitted(&mut self, at: Duration, disk: usize, id: u64, operation: Operation, range: Range<u64>) {
        let moment = self.tick();
        self.add_to_flushes(disk, id, operation);
        let registers = &mut self.disks[disk].registers;
        match operation {
            Operation::Read => {
                registers.read_submitted(id, range.clone());
                self.array_reads.asked(id, disk, range.clone());
            }
            Operation::Flush => {}
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard => {
                registers.write_submitted(id, range.clone(), operation.is_zeroing(), moment);
            }
        }
        self.history.note(at, id, disk, range.clone(), || format!("{operation:?} submitted"));
        let errors_met = self.disks[disk].reasons.snapshot(at);
        let errors_by_block = Vec::new();
        let request = OpenRequest {
            disk,
            operation,
            range,
            submitted: moment,
            at,
            errors_met,
            errors_by_block,
            is_truncated: false,
        };
        let before = self.open.insert(id, request);
        assert!(before.is_none(), "the guest gives each request a number of its own");
    }

    /// Tells the check of flushes that a request is under way.
    pub(super) fn add_to_flushes(&mut self, disk: usize, id: u64, operation: Operation) {
        if operation == Operation::Flush {
            self.flushes.flush_submitted(id, disk);
        } else if operation.changes_data() {
            self.flushes.change_submitted(disk);
        }
    }

    /// Returns an error if the request failed without a reason. Notes for the check of flushes that the request has ended.
    fn check_reason(
        &mut self,
        now: Duration,
        id: u64,
        request: &OpenRequest,
        result: Result<(), GuestError>,
    ) -> Result<(), String> {
        let &OpenRequest { disk, operation, errors_met, is_truncated, .. } = request;
        let (reasons, config) = (&self.disks[disk].reasons, &self.config);
        if operation == Operation::Flush {
            // Any controller can flush a shared cache, so this flush may fail like other requests.
            let is_explained = if config.shared_write_cache {
                reasons.explains(now, errors_met, config)
            } else {
                reasons.explains_flush(now, errors_met, config)
            };
            let of_loss = result.is_err() && !is_explained && !is_truncated;
            if result.is_err() && reasons.was_altered(errors_met) {
                // The daemon takes an injected failure for one of the controller, after which the next flush reports a loss.
                self.flushes.flush_failed(disk);
            }
            return self.flushes.flush_ended(id, disk, of_loss);
        }
        if operation.changes_data() {
            self.flushes.change_answered(disk);
        }
        if result.is_err() && !is_truncated && !reasons.explains(now, errors_met, config) {
            return Err(format!("#{id} of disk {disk} failed without need"));
        }
        Ok(())
    }

    /// Judges the answer to a request. `data` are the bytes of a read.
    pub(crate) fn answered(&mut self, at: Duration, id: u64, result: Result<(), GuestError>, data: &[u8]) {
        let moment = self.tick();
        let Some(request) = self.open.remove(&id) else {
            return self.violate(at, None, format_args!("request #{id} was answered twice"));
        };
        if let Err(what) = self.check_reason(at, id, &request, result) {
            self.violate(at, None, what);
        }
        let OpenRequest { disk, operation, range, submitted, at: submitted_at, errors_met, .. } = request;
        self.counts.repeated += u64::from(result.is_ok() && errors_met.has_errors());
        if result.is_ok() && operation != Operation::Flush {
            self.check_limits(at, disk, if operation.is_zeroing() { 0 } else { range.end - range.start });
        }
        self.counts.answered += 1;
        self.counts.failed += u64::from(result.is_err());
        self.counts.answered_by_other_disks += u64::from(disk > 0);
        self.history.note(at, id, disk, range.clone(), || format!("{operation:?} answered: {result:?}"));
        if operation == Operation::Read {
            self.array_reads.answered(id);
        }
        let took = at.saturating_sub(submitted_at);
        if self.spared == Some(disk) && (result.is_err() || took > SPARED_MAX) {
            let what =
                format_args!("#{id} of disk {disk}, which no fault concerns, was answered {result:?} after {took:?}");
            self.violate(at, None, what);
        }
        let wrong = match operation {
            Operation::Read if result.is_ok() => {
                let block_bytes = data.len() / (range.end - range.start) as usize;
                let mut found = None;
                for (lba, bytes) in range.clone().zip(data.chunks_exact(block_bytes)) {
                    let block = Block { disk, lba };
                    if let Err(what) = self.check_block(at, id, block, bytes) {
                        found.get_or_insert((block, what));
                    }
                }
                found
            }
            Operation::Read => None,
            Operation::Flush => {
                self.disks[disk].durability.flush_answered(submitted, moment, result.is_ok());
                None
            }
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard => {
                let DiskChecks { registers, durability, torn_writes, .. } = &mut self.disks[disk];
                let first = Block { disk, lba: range.start };
                registers.write_answered(id, range, moment, result.is_ok());
                if result.is_ok() {
                    durability.acknowledged(id, moment, operation.is_fua());
                }
                let is_true = result.is_err() || torn_writes.may_succeed(id);
                (!is_true).then(|| (first, "success, though zeroes were written in place of its data".into()))
            }
        };
        self.disks[disk].registers.read_over(id);
        if let Some((block, what)) = wrong {
            self.violate(at, Some(block), format_args!("request #{id}: {what}"));
        }
    }

    /// A request ended with its daemon, and the next daemon begins to serve. The request has no effect from now on.
    pub(crate) fn given_up(&mut self, at: Duration, id: u64) {
        let moment = self.tick();
        let Some(request) = self.open.remove(&id) else { return };
        // Without an answer there is nothing to judge, so only the check of flushes is told.
        let _ = self.check_reason(at, id, &request, Ok(()));
        let OpenRequest { disk, operation, range, .. } = request;
        self.counts.given_up += 1;
        self.history.note(at, id, disk, range.clone(), || format!("{operation:?} given up"));
        let registers = &mut self.disks[disk].registers;
        match operation {
            Operation::Read => {
                registers.read_over(id);
                self.array_reads.answered(id);
            }
            Operation::Flush => {}
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard => {
                registers.write_answered(id, range, moment, false);
            }
        }
    }

    /// The guest of these requests is gone, and they may still be executed. The result of a flush reaches no guest.
    pub(crate) fn guest_gone(&mut self, ids: impl Iterator<Item = u64>) {
        let moment = self.tick();
        for request in ids.filter_map(|id| self.open.get(&id)).filter(|request| request.operation == Operation::Flush) {
            self.disks[request.disk].durability.flush_answered(request.submitted, moment, false);
        }
    }

    /// A disk has executed a request with `blocks` blocks of data.
    fn check_limits(&mut self, at: Duration, disk: usize, blocks: u64) {
        let DiskChecks { limit_use, block_bytes, .. } = &mut self.disks[disk];
        if let Err(what) = limit_use.count(at, blocks * *block_bytes) {
            self.violate(at, None, format_args!("disk {disk} has more than its limits allow: {what}"));
        }
    }
}
