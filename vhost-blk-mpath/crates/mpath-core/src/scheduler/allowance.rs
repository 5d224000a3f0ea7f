//! What the upper tiers may take from the normal one before that is owed a request.

use std::time::{Duration, Instant};

use super::last_second::WHOLE;

/// Within what bounds, as of now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Of the service, what the upper tiers may have; in parts of [`WHOLE`].
    pub(super) share: i64,
    /// How long they may hold the normal tier back by the clock ...
    pub(super) gap: Duration,
    /// ... if that is at least so much cost.
    pub(super) least: u64,
    /// What may be saved up, in thousandths of cost.
    pub(super) most: i64,
}

/// Of the flows of all disks, or of those of one. Bursts within their fair share may overdraw it by what may be saved up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// In thousandths of cost.
    level: i64,
    /// How far it may be overdrawn: by as much as may be saved up, and no further than it was when the normal tier had been held back for `gap`
    /// by the clock, until there is something left again.
    floor: i64,
    /// Since when the upper tiers have held the normal one back, and what went meanwhile.
    held: Option<(Instant, u64)>,
}

impl Allowance {
    pub(super) const NONE: Self = Self { level: 0, floor: 0, held: None };

    pub(super) fn is_spent(&self) -> bool {
        self.level <= 0
    }

    /// Nobody goes before the normal tier any more.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.level <= self.floor
    }

    pub(super) fn level(&self) -> i64 {
        self.level
    }

    /// Nobody was kept waiting: what the upper tiers took is forgotten.
    pub(super) fn fill(&mut self, bounds: &Bounds) {
        (self.level, self.floor) = (bounds.most, -bounds.most);
    }

    pub(super) fn cap(&mut self, most: i64) {
        self.level = self.level.min(most);
    }

    /// Nobody had turns for a while, so nobody was held back.
    pub(super) fn interrupted(&mut self) {
        self.held = None;
    }

    /// A request goes; `holds_back`: it is one of the upper tiers, and something waits in the normal one.
    pub(super) fn dispatched(&mut self, now: Instant, cost: u64, holds_back: bool, bounds: &Bounds) {
        let taken = if holds_back { WHOLE } else { 0 };
        let change = cost.cast_signed() * (bounds.share - taken) / (WHOLE / 1000);
        // What they get while nothing of the normal tier finds a path takes nothing from it: they owe this, and what they can have.
        self.level = if change < 0 {
            (self.level + change).max(change - bounds.most).min(bounds.most)
        } else {
            (self.level + change).min(bounds.most)
        };
        self.floor = if self.level > 0 { -bounds.most } else { self.floor.max(-bounds.most) };
        self.hold(now, cost, holds_back, bounds);
    }

    /// What was saved up ends when the normal tier has been held back for `gap` by the clock: under a limit what the service can do in
    /// that time takes many times as long.
    fn hold(&mut self, now: Instant, cost: u64, holds_back: bool, bounds: &Bounds) {
        if !holds_back {
            self.held = None;
            return;
        }
        let (since, work) = self.held.unwrap_or((now, 0));
        let work = work.saturating_add(cost);
        self.held = Some((since, work));
        if now - since > bounds.gap && work >= bounds.least {
            self.level = self.level.min(0);
            self.floor = self.floor.max(self.level);
        }
    }
}
