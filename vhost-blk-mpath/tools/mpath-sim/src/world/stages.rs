//! The stages after the last fault: guests flush their disks until that succeeds, and read all blocks.

use monotonic::Duration;

use super::{Stage, World};
use crate::blocks::Operation;
use crate::clock::Event;
use crate::guest::{Guest, GuestRequest};
use crate::host::Daemon;

/// The time before failed flushes are repeated. A loss is reported to all flushes that are under way.
const FLUSH_RETRY_DELAY: Duration = Duration::from_millis(200);

impl World {
    /// Begins the next stage once all guests are answered.
    pub(super) fn next_stage(&mut self) {
        let is_ready =
            self.serves.iter().all(|serves| *serves) && self.daemon.as_ref().is_some_and(Daemon::can_use_all_paths);
        if !self.guests.iter().all(|guest| guest.is_over(&self.ctx.clock)) || !is_ready {
            return;
        }
        self.stage = match self.stage {
            Stage::Work => self.flush_unflushed(self.plan.host.paths + 1),
            Stage::Flush(_) if self.flushed.iter().all(|flushed| *flushed) => {
                for disk in 0..self.guests.len() {
                    let guest = &mut self.guests[disk];
                    let (flows, blocks) = (guest.flows(), guest.blocks());
                    let reads: Vec<GuestRequest> =
                        (0..flows).map(|user| guest.request(user, Operation::Read, 0..blocks)).collect();
                    for read in reads {
                        self.submit(read);
                    }
                }
                Stage::ReadBack
            }
            Stage::Flush(1) => {
                self.ctx.checker.violate(self.ctx.clock.elapsed(), None, "flushes still fail after the last fault");
                Stage::Over
            }
            Stage::Flush(left) => {
                self.ctx.clock.after(FLUSH_RETRY_DELAY, Event::Quiet);
                Stage::Wait(left - 1)
            }
            Stage::Wait(left) => Stage::Wait(left),
            Stage::ReadBack if !self.is_as_listed() || self.waits_for_given_up() => Stage::ReadBack,
            Stage::ReadBack | Stage::Over => Stage::Over,
        };
    }

    /// Whether the paths are as discovery controllers list them, if there are any.
    fn is_as_listed(&self) -> bool {
        let daemon = self.daemon.as_ref().zip(self.controllers.as_ref());
        daemon.is_none_or(|(daemon, controllers)| daemon.is_as_listed(controllers))
    }

    /// Whether requests that were given up may be left. A controller may have lost their commands, or still hold them. These
    /// requests end at the I/O timeout at the latest.
    fn waits_for_given_up(&self) -> bool {
        let is_left = |daemon: &Daemon| daemon.leaks(self.ctx.clock.now()).is_some();
        self.ctx.checker.counts.given_up > 0 && self.daemon.as_ref().is_some_and(is_left)
    }

    /// [`Event::Quiet`] has come.
    pub(super) fn on_quiet(&mut self) {
        if let Stage::Wait(left) = self.stage {
            self.stage = self.flush_unflushed(left);
        }
    }

    /// Has each guest flush whose last flush has not succeeded.
    fn flush_unflushed(&mut self, left: usize) -> Stage {
        let flush = |guest: &mut Guest| guest.request(0, Operation::Flush, 0..0);
        let unflushed = self.guests.iter_mut().zip(&self.flushed).filter(|(_, flushed)| !**flushed);
        let flushes: Vec<GuestRequest> = unflushed.map(|(guest, _)| flush(guest)).collect();
        for flush in flushes {
            self.submit(flush);
        }
        Stage::Flush(left)
    }
}
