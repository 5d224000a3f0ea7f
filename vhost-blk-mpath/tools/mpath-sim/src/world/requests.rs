//! Requests on their way from a guest to its disk, and answers on their way back.

use mpath_core::DiskId;

use super::{Stage, World};
use crate::blocks::Operation;
use crate::guest::GuestRequest;
use crate::machine::Answer;

impl World {
    /// A guest submits a request.
    pub(super) fn submit(&mut self, request: GuestRequest) {
        let range = request.lba..request.lba + u64::from(request.blocks);
        self.ctx.say(|| request.to_string());
        self.ctx.checker.submitted(self.ctx.clock.elapsed(), request.disk, request.id, request.operation, range);
        let machine = &mut self.machines[request.disk];
        if !machine.is_read_unchanged(request.user) {
            let what = format_args!(
                "memory of disk {}, user {}, was written after its read was answered",
                request.disk, request.user
            );
            self.ctx.checker.violate(self.ctx.clock.elapsed(), None, what);
        }
        if machine.is_truncated() {
            self.ctx.checker.memory_truncated(self.ctx.clock.elapsed(), std::iter::once(request.id));
        }
        let queue = machine.queue_of(request.user) as u16;
        let is_kicked = machine.submit(request);
        self.ctx.checker.counts.long_chains += machine.take_long_chains();
        if is_kicked && let Some((daemon, ctx)) = self.daemon() {
            daemon.kick(ctx, DiskId(request.disk as u16), queue);
        }
    }

    /// Passes answers to the guest and the checker. `had_all_paths`: flushes have reached every controller.
    pub(super) fn answer(&mut self, answers: Vec<Answer>, had_all_paths: bool) {
        for answer in answers {
            let (used, expected) = (answer.used_bytes, answer.expected_used_bytes());
            let Answer { request, result, data, .. } = answer;
            let (at, disk) = (self.ctx.clock.elapsed(), request.disk);
            if used != expected && !self.machines[disk].is_truncated() {
                let what = format_args!("{request} has the used length {used}, and not {expected}: {result:?}");
                self.ctx.checker.violate(at, None, what);
            }
            self.ctx.say(|| format!("{request} answered: {result:?}"));
            if self.ctx.checker.first_attempts.is_waiting(disk) {
                let what = format_args!("#{} is answered before every path was tried", request.id);
                self.ctx.checker.violate(at, None, what);
            }
            let flushed = request.operation == Operation::Flush && result.is_ok();
            if flushed && had_all_paths {
                self.ctx.checker.recovered(disk);
            }
            self.ctx.checker.answered(at, request.id, result, &data);
            self.ctx.checker.counts.answered_over_packed_rings += u64::from(self.plan.guests[disk].rings.are_packed);
            if flushed {
                self.ctx.checker.flushed(at, disk, self.target.cached(disk));
                self.flushed[disk] |= matches!(self.stage, Stage::Flush(_));
            }
            self.guests[disk].answered(&mut self.ctx.clock, request.user);
        }
    }

    /// Disks are opened, and guests see the new sizes of their disks.
    pub(super) fn turn_disks(&mut self) {
        let Some((daemon, ctx)) = self.daemon() else { return };
        let (some_opened, grown) = daemon.turn_disks(ctx);
        // The guests of disks that are removed are gone.
        let is_seen = !daemon.is_removal();
        for (disk, blocks) in grown.into_iter().filter(|_| is_seen) {
            self.ctx.say(|| format!("disk {disk} has grown to {blocks} blocks"));
            self.ctx.checker.counts.disks_grown += 1;
            self.machines[disk].grow(blocks);
            self.guests[disk].grow(blocks);
        }
        if some_opened {
            self.turn_front_ends();
        }
    }
}
