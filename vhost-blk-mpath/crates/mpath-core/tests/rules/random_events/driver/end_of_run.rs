//! The end of a run.

use mpath_core::{AnaState, Outcome};

use super::Driver;
use crate::random_events::events::Event;
use crate::random_events::{DISKS, PATHS};

impl Driver {
    /// Brings all paths back, lifts all fences and lets everything succeed. Then checks that every request has ended.
    pub(crate) fn finish_all(&mut self) {
        while !self.issued.is_empty() && self.issued.iter().any(|i| !self.is_live(i)) {
            self.report_lost(1);
        }
        for path in 0..PATHS {
            self.clear_injection(path);
        }
        for (path, epoch) in std::mem::take(&mut self.fences) {
            self.lift_fence(path, epoch);
        }
        for path in 0..PATHS {
            self.add(path);
            self.drain(path, false);
            self.path_up(path, [AnaState::Optimized; DISKS]);
            self.progress(path, u32::MAX);
            for disk in 0..DISKS {
                self.apply(&Event::Ana { path, disk, ana: AnaState::Optimized });
            }
        }
        for _ in 0..10_000 {
            self.poll();
            if self.open.is_empty() {
                break;
            }
            self.hedged(0, Outcome::Success);
            self.poll();
            if self.open.is_empty() {
                break;
            }
            if self.issued.is_empty() {
                let at = self.group.next_timeout().expect("something to wait for while requests are open");
                self.sleep(at - self.now);
            } else {
                self.answer(0, Outcome::Success);
            }
        }
        assert!(self.open.is_empty(), "lost: {:?}", self.open);
        assert_eq!(self.finished, self.submitted);
        assert!(self.hedges.is_empty());
        // On an idle disk the probes come to an end.
        for _ in 0..100 {
            self.probed(0, true);
            self.poll();
            if let Some(at) = self.group.next_timeout() {
                self.sleep(at - self.now);
            }
        }
        assert!(self.paths.iter().all(|path| path.probing.is_none()), "an idle disk is not probed for ever");
        assert_eq!(self.group.next_timeout(), None, "nothing is left to do");
        let stats = self.group.stats(self.now);
        assert_eq!((stats.queued, stats.backoff), (0, 0));
        assert!(stats.scheduler.flows.iter().all(|flow| flow.queued + flow.outstanding == 0));
        for path in &stats.paths {
            assert_eq!((path.fenced, path.flushes_open), (0, 0));
            assert!(path.classes.iter().all(|class| class.in_flight == 0));
        }
    }
}
