//! Front-ends that hang up and connect, stop their virtqueues and start them.

use super::World;

impl World {
    /// The front-end of a disk hangs up.
    pub(super) fn hang_up(&mut self, disk: usize, is_reset: bool) {
        let Self { ctx, machines, .. } = self;
        ctx.checker.limits_lifted(disk);
        if let Some(daemon) = &mut self.daemon {
            self.unsettled[disk] = true;
            ctx.checker.counts.hang_ups += 1;
            daemon.hang_up(ctx, disk, &mut machines[disk], is_reset);
            ctx.checker.guest_gone(machines[disk].given_up());
        }
    }

    /// The front-end of a disk stops its virtqueues.
    pub(super) fn stop_queues(&mut self, disk: usize) {
        let Self { ctx, machines, .. } = self;
        if let Some(daemon) = &mut self.daemon {
            daemon.stop_queues(ctx, disk, &mut machines[disk]);
        }
    }

    /// The front-end of a disk starts its virtqueues again.
    pub(super) fn start_queues(&mut self, disk: usize) {
        if let Some((daemon, _)) = self.daemon() {
            daemon.start_queues(disk);
        }
        self.turn_front_ends();
    }

    /// The front-end of a disk begins to migrate the guest.
    pub(super) fn begin_migration(&mut self, disk: usize) {
        if let Some((daemon, _)) = self.daemon() {
            daemon.begin_migration(disk);
        }
        self.turn_front_ends();
    }

    /// The front-end of a disk ends the migration.
    pub(super) fn end_migration(&mut self, disk: usize, is_cancelled: bool) {
        if let Some((daemon, _)) = self.daemon() {
            daemon.end_migration(disk, is_cancelled);
        }
        self.turn_front_ends();
    }

    /// The front-end of a disk connects again, or another one connects.
    pub(super) fn connect(&mut self, disk: usize) {
        if let Some((daemon, _)) = self.daemon() {
            daemon.connect(disk);
        }
        self.turn_front_ends();
    }

    /// Front-ends connect or leave, as far as they can.
    pub(super) fn turn_front_ends(&mut self) {
        let Self { ctx, machines, .. } = self;
        let Some(daemon) = &mut self.daemon else { return };
        let (reset, settled) = daemon.turn_front_ends(ctx, machines);
        for (guest, machine) in self.guests.iter_mut().zip(&self.machines) {
            guest.grow(machine.blocks());
        }
        for disk in reset {
            self.unsettled[disk] = true;
        }
        for disk in settled {
            self.unsettled[disk] = false;
        }
        self.drop_given_up();
    }

    /// Drops given-up requests that no daemon can execute any more.
    pub(super) fn drop_given_up(&mut self) {
        // Requests of an earlier daemon may be executed until its fences are over.
        let machines = self.machines.iter_mut().zip(&self.unsettled).zip(&self.serves);
        let machines = machines.filter(|((_, unsettled), serves)| **serves && !**unsettled);
        for request in machines.flat_map(|((machine, _), _)| machine.take_given_up()).collect::<Vec<_>>() {
            let at = self.ctx.clock.elapsed();
            self.ctx.checker.given_up(at, request.id);
            self.guests[request.disk].answered(&mut self.ctx.clock, request.user);
        }
    }
}
