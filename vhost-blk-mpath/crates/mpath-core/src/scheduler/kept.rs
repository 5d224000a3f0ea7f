//! Flows that may not be sent, as limits keep their disk or it has no path, and those that have waited for too long behind others.

use std::time::Instant;

use super::rings::Place;
use super::turns::Keeper;
use super::{LOOK_EACH, Scheduler, Tier, by_flow};
use crate::{DiskId, FlowId};

impl Scheduler {
    /// A flow of the second tier that was taken out goes to the normal one.
    fn demote(&mut self, id: FlowId) {
        self.rule.demote(id);
        self.add(id);
        self.count(id);
    }

    /// The turn of a flow has come, and it may not be sent.
    pub(super) fn park(&mut self, now: Instant, place: Place, keeper: Keeper) {
        let disk = self.flow(place.flow).disk;
        match keeper {
            Keeper::Limits => self.rings.keep(place, disk, self.rule.tier(place.flow)),
            Keeper::Path => {
                self.rings.remove(place);
                self.disks.park(disk, place.flow);
            }
        }
        self.unpark_at = self.disks.next_timeout();
        self.end_backlog(now);
    }

    /// Limits may let a disk's flows go. What they do not is kept again when its turn comes.
    fn open(&mut self, now: Instant, disk: DiskId) {
        if self.disks.is_blocked(disk) {
            // Some of its requests need no path, so its flows are not kept together.
            self.unpark(now, disk);
            return;
        }
        self.disks.open(now, disk);
        self.begin_backlog(now, true);
        self.make_up(now, disk);
        self.rings.open(disk);
        self.unpark_at = self.disks.next_timeout();
    }

    /// Limits are about to let a disk's flows go. If those of its upper tiers use up what there is each time, while other disks have
    /// the turns of the lower ones, then neither the patience of its bursts nor the share of its busy flows shows in the rings.
    fn make_up(&mut self, now: Instant, disk: DiskId) {
        let passed = self.disks.passed_since(disk);
        if let Some(flow) = self.rings.first_kept(disk, Tier::Second)
            && self.is_stuck(now, flow, passed)
            && self.rings.release(disk, Tier::Second).is_some()
        {
            self.demote(flow);
        }
        self.raise_owed(disk);
    }

    /// Limits have let a disk's flows go, or one of them has gone: if its normal tier is owed a request now, that is the next to go.
    pub(super) fn raise_owed(&mut self, disk: DiskId) {
        // Alone on its paths it has its turns by the rule, and where the normal tier goes first, too.
        let by_rule =
            !self.disks.are_limited(disk) || !self.disks.others_wait(disk) || self.rule.order()[0] == Tier::Normal;
        if by_rule || !self.rule.owes_normal(disk) {
            return;
        }
        // One at a time.
        if self.rings.front(Tier::First).is_some_and(|front| self.rule.tier(front.flow) == Tier::Normal) {
            return;
        }
        let flows = &self.flows;
        let of_disk = |id: FlowId| flows[usize::from(id.0)].disk == disk;
        if let Some(flow) =
            self.rings.release(disk, Tier::Normal).or_else(|| self.rings.take_out(Tier::Normal, of_disk))
        {
            self.rings.raise(flow);
        }
    }

    /// Whatever keeps a disk's flows may let each of them go.
    pub(super) fn unpark(&mut self, now: Instant, disk: DiskId) {
        self.disks.open(now, disk);
        if self.disks.queued_of(disk) > 0 {
            self.begin_backlog(now, true);
        }
        self.rings.open_each(disk);
        for id in self.disks.unpark(disk) {
            self.rings.bring_back(id, self.rule.tier(id));
        }
        self.unpark_at = self.disks.next_timeout();
    }

    /// What a flow has goes whatever the limits of its disk are, which then wait for what was too much.
    pub(crate) fn lift_limits_of(&mut self, now: Instant, id: FlowId) {
        let flow = by_flow(&mut self.flows, id);
        flow.unlimited = !flow.is_idle();
        let disk = flow.disk;
        self.unpark(now, disk);
    }

    /// A disk has no path, or has one again. Only what needs none is shown meanwhile.
    pub(crate) fn set_blocked(&mut self, now: Instant, disk: DiskId, blocked: bool) {
        if self.disks.set_blocked(disk, blocked) {
            self.unpark(now, disk);
            // Nobody of it had a turn, or nobody at all.
            let all = !self.disks.others_wait(disk);
            if all {
                self.passed_since = None;
            }
            self.rule.interrupted(disk, all);
        }
    }

    /// Lets go what limits have kept for long enough. To be called before [`Scheduler::candidate`], and when time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while self.unpark_at.is_some()
            && let Some(disk) = self.disks.opened(now)
        {
            self.open(now, disk);
        }
        self.hurry_late(now);
        self.demote_if_stuck(now);
    }

    /// A flow with a large burst, or of a disk of small weight, may have its turn far behind others that begin again and again.
    fn hurry_late(&mut self, now: Instant) {
        let Some(patience) = self.rule.patience().filter(|_| self.rings.waits_in(Tier::Second)) else { return };
        if self.looked_at.is_some_and(|at| now - at < LOOK_EACH) {
            return;
        }
        self.looked_at = Some(now);
        let (flows, rule, disks) = (&self.flows, &self.rule, &mut self.disks);
        self.rings.hurry(|id| {
            let flow = &flows[usize::from(id.0)];
            // A large request waits for longer: turns by time would be worth more to those that have these.
            let late =
                flow.queue.front().zip(flow.next_since()).is_some_and(|(first, next)| {
                    now - next > patience.saturating_mul(rule.worth(rule.cost(first.bytes)))
                });
            late && disks.hurry(now, flow.disk)
        });
    }

    /// The first tier may be full for as long as many sparse flows ask for all that is theirs. It takes nothing from the normal tier
    /// beyond its share, so that is where the flow next in turn in the second tier goes when it has waited for too long.
    ///
    /// Time in which limits keep a disk counts: it is what those that went before have used up.
    pub(super) fn demote_if_stuck(&mut self, now: Instant) {
        if !self.rings.waits_in(Tier::First) {
            return;
        }
        let Some(front) = self.rings.front(Tier::Second) else { return };
        if self.is_stuck(now, front.flow, self.passed_since) {
            self.rings.remove(front);
            self.demote(front.flow);
        }
    }

    /// Whether a flow of the second tier has had no turn for too long, as the first one has gone past it since `passed`.
    fn is_stuck(&self, now: Instant, flow: FlowId, passed: Option<Instant>) -> bool {
        let (Some(patience), Some(passed)) = (self.rule.patience(), passed) else { return false };
        let next = self.flow(flow).next_since();
        next.is_some_and(|next| now - passed.max(next) > patience)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.unpark_at
    }
}
