//! Migrations of a guest: to a copy of its memory, with a new front-end at the same daemon.

use super::{FrontEndConnection, FrontEndEvent, FrontEndServer, FrontEndState, Migration};
use crate::context::Ctx;
use crate::host::io_threads::IoThreads;
use crate::machine::Machine;

impl FrontEndServer {
    /// The front-end begins to migrate the guest.
    pub(crate) fn begin_migration(&mut self) {
        self.migration = Migration::Copy;
    }

    /// The front-end ends the migration.
    pub(crate) fn end_migration(&mut self, is_cancelled: bool) {
        self.migration = if is_cancelled { Migration::None } else { Migration::Move };
    }

    /// Begins and ends a migration while the virtqueues run.
    pub(super) fn turn_migration(
        &mut self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        machine: &mut Machine,
        connection: FrontEndConnection,
    ) {
        match (self.migration, machine.is_migrating()) {
            (Migration::Copy, false) | (Migration::None, true) => {
                connection.await_answer(machine.set_logging(self.migration == Migration::Copy));
                self.set_logging(ctx, threads, machine, connection);
            }
            (Migration::Move, true) => self.state = self.stop_next(ctx, threads, machine, connection, Vec::new()),
            _ => self.state = FrontEndState::Serving(connection),
        }
    }

    /// Continues to pass a dirty log, or to take it away. Each virtqueue stops and starts for that.
    pub(super) fn set_logging(
        &mut self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        machine: &mut Machine,
        connection: FrontEndConnection,
    ) {
        match connection.next() {
            FrontEndEvent::Stop(stop) => {
                let draining = self.drain(ctx, threads, machine, &connection, stop);
                self.state = FrontEndState::SettingLog { connection, draining };
            }
            FrontEndEvent::Answer(Ok(_)) => {
                machine.begin_copy();
                self.start_fetching(ctx, threads, machine, connection);
            }
            // The daemon hangs up, as when virtqueues are stopped.
            event => {
                machine.disconnect(false);
                self.state = self.close(ctx, threads, machine, connection, event);
            }
        }
    }

    /// Checks that a migration has copied all that the virtqueues wrote. All virtqueues have stopped.
    pub(super) fn check_migration(&self, ctx: &mut Ctx, machine: &mut Machine) {
        machine.copy_marked();
        ctx.checker.counts.migrations += u64::from(machine.has_copy());
        if let Some(at) = machine.first_not_copied() {
            let what = format_args!("the dirty log of disk {} does not mark a write at {at:#x}", self.disk.0);
            ctx.checker.violate(ctx.clock.elapsed(), None, what);
        }
    }

    /// Ends a migration before stopped virtqueues start again. Returns whether the guest moves to the copy of its memory, which
    /// another front-end has.
    pub(super) fn moves(&self, ctx: &mut Ctx, machine: &mut Machine) -> bool {
        if self.migration == Migration::Copy {
            return false;
        }
        let moves = self.migration == Migration::Move && machine.move_to_copy();
        ctx.checker.counts.moves += u64::from(moves);
        machine.end_migration();
        moves
    }
}
