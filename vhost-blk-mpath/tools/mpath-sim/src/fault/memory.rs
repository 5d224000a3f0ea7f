//! Memory of a guest that goes away: what the machine, the daemon and the judge make of that.

use crate::target::Ctx;
use crate::world::World;

impl World {
    /// Memory of the guest of a disk is cut off, if it has a front-end.
    pub(super) fn cut_off(&mut self, disk: usize, choice: u64) {
        let machine = &mut self.machines[disk];
        if self.daemon.as_ref().is_some_and(|daemon| daemon.has_front_end(disk)) && !machine.is_cut_off() {
            machine.cut_off(choice);
            self.check.counts.cut_off += 1;
            self.check.cut_off(self.clock.elapsed(), machine.out());
        }
    }

    /// A guest whose memory is cut off is reset, at once unless the daemon has hung up on it.
    pub(super) fn reset_cut_off(&mut self, disk: usize) {
        let has_front_end = self.daemon.as_ref().is_some_and(|daemon| daemon.has_front_end(disk));
        if self.machines[disk].is_cut_off() && has_front_end {
            self.hang_up(disk, true);
        }
        self.connect(disk);
    }

    /// An I/O thread may have found that memory of guests is gone.
    pub(crate) fn turn_faults(&mut self, thread: usize) {
        let Self { clock, net, check, verbose, machines, .. } = self;
        let mut ctx = Ctx { clock, net, check, verbose: *verbose };
        let Some(daemon) = &mut self.daemon else { return };
        for (disk, machine) in machines.iter_mut().enumerate() {
            if daemon.has_faulted(thread, disk) {
                ctx.say(|| format!("the daemon hangs up on the front-end of disk {disk}"));
                ctx.check.limits_lifted(disk);
                ctx.check.counts.hung_up_on += 1;
                self.unsettled[disk] = true;
                daemon.fault(&mut ctx, disk, machine);
            }
        }
    }
}
