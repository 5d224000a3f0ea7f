//! What the tests of rules share.

use std::sync::Arc;
use std::time::Instant;

use super::{DiskLimits, Scheduler, SchedulerSpec};
use crate::{FlowId, Tag};

pub(super) struct Test {
    pub(super) now: Instant,
    pub(super) scheduler: Scheduler,
    /// Those of the disk.
    pub(super) limits: Arc<DiskLimits>,
}

impl Test {
    pub(super) fn new(kind: &str, params: &[(&str, &str)]) -> Self {
        let kind = kind.parse().expect("a scheduler");
        let spec = SchedulerSpec::new(kind, params.iter().copied()).expect("parameters of it");
        Self::of(spec)
    }

    pub(super) fn of(spec: SchedulerSpec) -> Self {
        let now = Instant::now();
        let (mut scheduler, limits) = (Scheduler::new(now, spec), Arc::default());
        scheduler.share_limits(Arc::clone(&limits));
        Self { now, scheduler, limits }
    }

    pub(super) fn push(&mut self, flow: u16, tag: u32, bytes: u32) {
        self.scheduler.push_back(self.now, FlowId(flow), Tag(tag), bytes);
    }

    /// So many, or as many as there are.
    pub(super) fn take(&mut self, count: usize) -> Vec<u32> {
        self.scheduler.handle_timeout(self.now);
        (0..count).map_while(|_| self.take_at(0)).collect()
    }

    /// What the flow has whose turn comes after `turn` others.
    pub(super) fn take_at(&mut self, turn: usize) -> Option<u32> {
        let (place, tag) = self.scheduler.candidate(turn)?;
        self.scheduler.take(self.now, place);
        Some(tag.0)
    }

    pub(super) fn drain(&mut self) -> Vec<u32> {
        self.take(usize::MAX)
    }

    pub(super) fn complete(&mut self, flow: u16, bytes: u32) {
        self.scheduler.finished(self.now, FlowId(flow), bytes, true);
    }
}
