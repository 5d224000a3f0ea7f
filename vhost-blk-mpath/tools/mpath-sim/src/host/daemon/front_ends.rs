//! The front-ends of all disks.

use mpath_core::DiskId;

use super::Daemon;
use crate::context::Ctx;
use crate::machine::Machine;

impl Daemon {
    /// Connects front-ends that wait. Guests that could not go on are reset first. Returns the disks of these guests, and the
    /// disks that have become settled.
    pub(crate) fn turn_front_ends(&mut self, ctx: &mut Ctx, machines: &mut [Machine]) -> (Vec<usize>, Vec<usize>) {
        let (mut reset, mut settled) = (Vec::new(), Vec::new());
        let front_ends = self.front_ends.iter_mut().zip(&mut self.disk_tasks).zip(&self.wants_front_end).zip(machines);
        for (index, (((front_end, task), wants), machine)) in front_ends.enumerate() {
            let is_free = front_end.turn(ctx, &mut self.threads, machine);
            if is_free
                && *wants
                && self.shutdown.is_none()
                && self.disks.is_open(index)
                && let Some(blocks) = self.disks.shown(index)
            {
                if machine.must_be_reset() {
                    machine.disconnect(true);
                    ctx.checker.guest_gone(machine.given_up());
                    reset.push(index);
                }
                if blocks < machine.blocks() {
                    let what = format_args!("disk {index} is shown with {blocks} blocks, and had {}", machine.blocks());
                    ctx.checker.violate(ctx.clock.elapsed(), None, what);
                }
                machine.grow(blocks);
                front_end.connect(ctx, &mut self.threads, machine, (task, self.disks.driver(index)), blocks);
            }
            if task.poll_settled(ctx, &mut self.threads, self.disks.driver(index)) && front_end.serves() {
                settled.push(index);
            }
        }
        (reset, settled)
    }

    /// The front-end of a disk hangs up, and its guest may be reset.
    pub(crate) fn hang_up(&mut self, ctx: &mut Ctx, disk: usize, machine: &mut Machine, is_reset: bool) {
        self.wants_front_end[disk] = false;
        self.front_ends[disk].hang_up(ctx, &mut self.threads, machine, is_reset);
    }

    /// The front-end of a disk stops its virtqueues.
    pub(crate) fn stop_queues(&mut self, ctx: &mut Ctx, disk: usize, machine: &mut Machine) {
        self.front_ends[disk].stop_queues(ctx, &mut self.threads, machine);
    }

    /// The front-end of a disk starts its virtqueues again.
    pub(crate) fn start_queues(&mut self, disk: usize) {
        self.front_ends[disk].start_queues();
    }

    /// The front-end of a disk begins to migrate the guest.
    pub(crate) fn begin_migration(&mut self, disk: usize) {
        self.front_ends[disk].begin_migration();
    }

    /// The front-end of a disk ends the migration.
    pub(crate) fn end_migration(&mut self, disk: usize, is_cancelled: bool) {
        self.front_ends[disk].end_migration(is_cancelled);
    }

    /// Whether a disk has a front-end.
    pub(crate) fn has_front_end(&self, disk: usize) -> bool {
        self.front_ends[disk].serves()
    }

    /// Whether a thread has found in this turn that memory of a disk's front-end is gone.
    pub(crate) fn has_faulted(&self, thread: usize, disk: usize) -> bool {
        self.has_front_end(disk) && self.threads.0[thread].has_faulted(DiskId(disk as u16))
    }

    /// The daemon hangs up on the front-end of a disk because memory has faulted.
    pub(crate) fn memory_faulted(&mut self, ctx: &mut Ctx, disk: usize, machine: &mut Machine) {
        self.wants_front_end[disk] = false;
        self.front_ends[disk].memory_faulted(ctx, &mut self.threads, machine);
    }

    /// A front-end of a disk connects as soon as it can.
    pub(crate) fn connect(&mut self, disk: usize) {
        self.wants_front_end[disk] = true;
    }
}
