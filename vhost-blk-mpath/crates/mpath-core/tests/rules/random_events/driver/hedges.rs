//! Events of hedged reads.

use monotonic::Duration;
use mpath_core::{AnaState, Hedging, MAX_HEDGE_BYTES, Op, Outcome, PathId, Tag};

use super::{Driver, ModelHedge};
use crate::random_events::DISKS;
use crate::random_events::events::Event;

impl Driver {
    pub(crate) fn set_hedging(&mut self, hedging: Option<Hedging>) {
        self.hedging = hedging;
        self.group.set_hedging(hedging);
    }

    /// Reads until the group knows the latencies of all usual sizes.
    pub(crate) fn learn(&mut self) {
        for path in [0, 2] {
            self.path_up(path, [AnaState::Optimized; DISKS]);
        }
        for n in 0..220 {
            let bytes = [512, 4096][n % 2];
            self.apply(&Event::Submit { op: Op::Read, bytes, fua: false, flow: 0 });
            self.sleep(Duration::from_micros(100 + 50 * (n as u64 % 7)));
            while !self.issued.is_empty() {
                self.answer(0, Outcome::Success);
                self.poll();
            }
            self.probed(0, true);
        }
    }

    /// The hedges on the sockets of a path.
    pub(super) fn hedges_on(&self, id: PathId) -> Vec<(Tag, ModelHedge)> {
        let all = self.hedges.iter().map(|(tag, hedge)| (*tag, *hedge));
        all.filter(|(_, hedge)| hedge.path == id && self.is_on_path(hedge)).collect()
    }

    fn is_on_path(&self, hedge: &ModelHedge) -> bool {
        let live = self.paths[usize::from(hedge.path.0)].live;
        hedge.answered.is_none() && live.is_none_or(|(epoch, _)| epoch == hedge.epoch)
    }

    pub(super) fn hedge(&mut self, id: PathId, tag: Tag) {
        let io = self.open[&tag];
        assert!(io.op == Op::Read && io.bytes <= MAX_HEDGE_BYTES, "{io:?} is hedged");
        assert!(self.issued.iter().all(|i| i.tag != tag || i.path != id), "hedged by the path that it is on");
        self.hedged += 1;
        assert!(self.hedged * 1000 <= self.hedged_max_permille + 8000, "beyond the budget");
        self.take_room(id, io);
        let (epoch, _) = self.path(id).live.expect("a live path");
        let before = self.hedges.insert(tag, ModelHedge { path: id, epoch, at: self.now, answered: None });
        assert!(before.is_none() && self.hedges.len() <= 8, "one a read, and eight in all");
    }

    pub(super) fn hedged(&mut self, which: usize, outcome: Outcome) {
        let out: Vec<Tag> = self.hedges.iter().filter(|(_, h)| h.answered.is_none()).map(|(tag, _)| *tag).collect();
        let Some(&tag) = out.get(which % out.len().max(1)) else { return };
        let hedge = self.hedges[&tag];
        if self.path(hedge.path).live.is_some_and(|(epoch, _)| epoch == hedge.epoch) {
            self.leave(tag);
            self.path(hedge.path).heard_of = Some(self.now);
            self.hedges.get_mut(&tag).expect("just seen").answered = Some(outcome == Outcome::Success);
            self.group.hedged(self.now, hedge.path, tag, outcome);
        }
    }

    /// The hedge of this read leaves its path.
    pub(super) fn leave(&mut self, tag: Tag) {
        let (id, bytes) = (self.hedges[&tag].path, self.open[&tag].bytes);
        let path = self.path(id);
        path.ios -= 1;
        path.bytes -= u64::from(bytes);
    }

    pub(super) fn drop_hedge(&mut self, id: PathId, tag: Tag) {
        let hedge = self.hedges[&tag];
        assert_eq!(hedge.path, id);
        if hedge.answered.is_none() && self.path(id).live.is_some_and(|(epoch, _)| epoch == hedge.epoch) {
            self.leave(tag);
            let abandoned = self.hedged.is_multiple_of(2);
            let at = hedge.at;
            self.path(id).abandoned.extend(abandoned.then_some(at));
            self.group.hedged(self.now, id, tag, Outcome::Recalled { abandoned });
        }
        self.hedges.remove(&tag);
    }

    pub(super) fn adopt(&mut self, id: PathId, tag: Tag) {
        let hedge = self.hedges.remove(&tag).expect("only a hedge is adopted");
        assert_eq!((hedge.path, hedge.answered), (id, Some(true)));
        assert!(self.issued.iter().all(|i| i.tag != tag), "a path may still write to the memory of {tag:?}");
        self.read.insert(tag);
    }
}
