//! After the last fault: every disk is flushed until that succeeds, and read.

use std::time::Duration;

use crate::check::Kind;
use crate::clock::Event;
use crate::guest::Guest;
use crate::host::Daemon;
use crate::machine::Asked;
use crate::world::World;

/// Before a flush that failed is repeated: a loss is reported to every flush that may have been under way.
const FLUSH_AGAIN: Duration = Duration::from_millis(200);

/// The current activity of all guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// They go about their business.
    Work,
    /// They flush. Those whose flushes fail repeat them up to this many times: a loss is reported once a path.
    Flush(usize),
    /// They wait before they flush again.
    Wait(usize),
    /// They read everything.
    ReadBack,
    Over,
}

impl World {
    /// When the guests have nothing out any more: the next thing for them to do.
    pub(crate) fn next_stage(&mut self) {
        let whole = self.serves && self.daemon.as_ref().is_some_and(Daemon::has_all);
        if !self.guests.iter().all(|guest| guest.is_over(&self.clock)) || !whole {
            return;
        }
        self.stage = match self.stage {
            Stage::Work => self.flush_again(self.plan.host.paths + 1),
            Stage::Flush(_) if self.flushed.iter().all(|flushed| *flushed) => {
                for disk in 0..self.guests.len() {
                    let guest = &mut self.guests[disk];
                    let (flows, blocks) = (guest.flows(), guest.blocks());
                    let reads: Vec<Asked> = (0..flows).map(|user| guest.asked(user, Kind::Read, 0..blocks)).collect();
                    for read in reads {
                        self.submit(read);
                    }
                }
                Stage::ReadBack
            }
            Stage::Flush(1) => {
                self.check.violate(self.clock.elapsed(), None, "flushes go on failing after the last fault");
                Stage::Over
            }
            Stage::Flush(left) => {
                self.clock.after(FLUSH_AGAIN, Event::Quiet);
                Stage::Wait(left - 1)
            }
            Stage::Wait(left) => Stage::Wait(left),
            Stage::ReadBack if !self.is_as_listed() => Stage::ReadBack,
            Stage::ReadBack | Stage::Over => Stage::Over,
        };
    }

    /// Whether the paths are those that discovery controllers list, if there are any.
    fn is_as_listed(&self) -> bool {
        let daemon = self.daemon.as_ref().zip(self.controllers.as_ref());
        daemon.is_none_or(|(daemon, controllers)| daemon.is_as_listed(controllers))
    }

    /// [`Event::Quiet`] has come.
    pub(crate) fn on_quiet(&mut self) {
        if let Stage::Wait(left) = self.stage {
            self.stage = self.flush_again(left);
        }
    }

    fn flush_again(&mut self, left: usize) -> Stage {
        let flush = |guest: &mut Guest| guest.asked(0, Kind::Flush, 0..0);
        let unflushed = self.guests.iter_mut().zip(&self.flushed).filter(|(_, flushed)| !**flushed);
        let flushes: Vec<Asked> = unflushed.map(|(guest, _)| flush(guest)).collect();
        for flush in flushes {
            self.submit(flush);
        }
        Stage::Flush(left)
    }
}
