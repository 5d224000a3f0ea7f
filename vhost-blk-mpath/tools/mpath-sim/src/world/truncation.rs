//! Memory of guests that is truncated, and front-ends that the daemon hangs up on for it.

use super::World;

impl World {
    /// The memory of the guest of a disk is truncated, if the disk has a front-end.
    pub(super) fn truncate_memory(&mut self, disk: usize, choice: u64) {
        let machine = &mut self.machines[disk];
        if self.daemon.as_ref().is_some_and(|daemon| daemon.has_front_end(disk)) && !machine.is_truncated() {
            machine.truncate(choice);
            self.ctx.checker.counts.truncations += 1;
            self.ctx.checker.memory_truncated(self.ctx.clock.elapsed(), machine.open_requests());
        }
    }

    /// A guest with truncated memory is reset, and its front-end connects again.
    pub(super) fn reset_truncated(&mut self, disk: usize) {
        let has_front_end = self.daemon.as_ref().is_some_and(|daemon| daemon.has_front_end(disk));
        if self.machines[disk].is_truncated() && has_front_end {
            self.hang_up(disk, true);
        }
        self.connect(disk);
    }

    /// The daemon hangs up on front-ends whose memory an I/O thread found to be gone.
    pub(super) fn turn_memory_faults(&mut self, thread: usize) {
        let Self { ctx, machines, .. } = self;
        let Some(daemon) = &mut self.daemon else { return };
        for (disk, machine) in machines.iter_mut().enumerate() {
            if daemon.has_faulted(thread, disk) {
                ctx.say(|| format!("the daemon hangs up on the front-end of disk {disk}"));
                ctx.checker.limits_lifted(disk);
                ctx.checker.counts.hung_up_by_daemon += 1;
                self.unsettled[disk] = true;
                daemon.memory_faulted(ctx, disk, machine);
            }
        }
    }
}
