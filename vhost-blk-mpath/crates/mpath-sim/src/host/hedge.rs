//! Reads sent a second time, as `reactor::io_thread::hedge` has it, and what the core must keep to.

use mpath_core::{Outcome, PathId, Tag};
use nvme_tcp::host::IoCommand;

use super::thread::IoThread;
use crate::target::Ctx;

impl IoThread {
    pub(super) fn hedge(&mut self, ctx: &mut Ctx<'_>, path: PathId, tag: Tag) {
        let (now, at) = (ctx.clock.now(), ctx.clock.elapsed());
        let (command, bytes, id) = (self.requests.command(tag), self.requests.bytes(tag), self.requests.id(tag));
        let disk = self.requests.disk(tag);
        if !matches!(command, IoCommand::Read { .. }) {
            return ctx.check.violate(at, None, format_args!("#{id}, which is no read, is hedged"));
        }
        self.requests.hedged(tag);
        if !self.check_room(ctx, path, disk, bytes, id) {
            return;
        }
        ctx.check.counts.hedges += 1;
        let Some(connection) = self.connections.get_mut(&path) else { return };
        if connection.queue.submit(nvme_tcp::host::Tag(tag.of_hedge().0), disk.0, command).is_ok() {
            connection.hedges.insert(tag, bytes);
        } else {
            self.group.hedged(now, path, tag, Outcome::Lost { indeterminate: false });
        }
    }

    pub(super) fn hedged(&mut self, ctx: &mut Ctx<'_>, path: PathId, tag: Tag, outcome: Outcome) {
        if let Some(connection) = self.connections.get_mut(&path) {
            connection.hedges.remove(&tag);
        }
        self.group.hedged(ctx.clock.now(), path, tag, outcome);
    }

    pub(super) fn drop_hedge(&mut self, ctx: &mut Ctx<'_>, path: PathId, tag: Tag) {
        let connection = self.connections.get_mut(&path);
        if let Some(outcome) = connection.and_then(|connection| connection.recall(tag.of_hedge())) {
            self.hedged(ctx, path, tag, outcome);
        }
        self.requests.drop_hedge(tag);
    }

    pub(super) fn adopt(&mut self, ctx: &mut Ctx<'_>, tag: Tag) {
        ctx.check.counts.hedges_won += 1;
        if let Err(what) = self.requests.adopt(tag) {
            let at = ctx.clock.elapsed();
            ctx.check.violate(at, None, what);
        }
    }
}
