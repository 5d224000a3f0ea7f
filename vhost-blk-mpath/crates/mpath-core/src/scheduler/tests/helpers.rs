//! Test helpers: a scheduler with two disks.

use std::sync::Arc;

use monotonic::Instant;

use crate::scheduler::{DiskLimits, Place, Scheduler, SchedulerSpec, Tier};
use crate::{DiskId, FlowId, Io, Op, Tag};

pub(super) fn io(disk: u16, flow: u16, tag: u32, bytes: u32) -> Io {
    Io { tag: Tag(tag), op: Op::Read, bytes, disk: DiskId(disk), flow: FlowId(flow), fua: false }
}

pub(super) struct Test {
    pub(super) now: Instant,
    pub(super) scheduler: Scheduler,
    /// The limits of the disks.
    pub(super) limits: [Arc<DiskLimits>; 2],
}

impl Test {
    pub(super) fn new(kind: &str, params: &[(&str, &str)]) -> Self {
        let kind = kind.parse().expect("a scheduler");
        let spec = SchedulerSpec::new(kind, params.iter().copied()).expect("parameters of it");
        Self::of(spec)
    }

    pub(super) fn of(spec: SchedulerSpec) -> Self {
        let now = Instant::now();
        let limits = [(); 2].map(|()| Arc::default());
        Self { now, scheduler: Scheduler::new(spec, limits.iter().cloned()), limits }
    }

    /// Other parameters of the same scheduler.
    pub(super) fn set(&mut self, params: &[(&str, &str)]) {
        let kind = self.scheduler.spec().kind();
        self.scheduler.set(SchedulerSpec::new(kind, params.iter().copied()).expect("parameters of it"));
    }

    pub(super) fn tier(&self, flow: u16) -> Tier {
        let settings = &self.scheduler.settings;
        let flow = self.scheduler.flows.get(usize::from(flow));
        flow.map_or(Tier::Bulk, |flow| flow.member.tier(settings, flow.is_idle()))
    }

    pub(super) fn tier_of_disk(&self, disk: u16) -> Tier {
        let disk = &self.scheduler.disks[usize::from(disk)];
        disk.member.tier(&self.scheduler.settings, disk.is_idle())
    }

    pub(super) fn allowance_of_first_disk(&self) -> i64 {
        self.scheduler.disks[0].turns.allowance()
    }

    pub(super) fn push(&mut self, flow: u16, tag: u32, bytes: u32) {
        self.push_of(0, flow, tag, bytes);
    }

    pub(super) fn push_of(&mut self, disk: u16, flow: u16, tag: u32, bytes: u32) {
        self.scheduler.push_back(self.now, &io(disk, flow, tag, bytes), true);
    }

    /// Takes up to `count` requests.
    pub(super) fn take(&mut self, count: usize) -> Vec<u32> {
        self.scheduler.handle_timeout(self.now);
        (0..count).map_while(|_| self.take_at(0)).collect()
    }

    /// Takes the request of the flow that comes after `turn` others.
    pub(super) fn take_at(&mut self, turn: usize) -> Option<u32> {
        let (place, tag) = self.shown().nth(turn)?;
        self.scheduler.take(self.now, place);
        Some(tag.0)
    }

    /// The requests that may go, in order.
    pub(super) fn shown(&mut self) -> impl Iterator<Item = (Place, Tag)> {
        let mut last = None;
        std::iter::from_fn(move || {
            let shown = self.scheduler.candidate(self.now, last)?;
            last = Some(shown.0);
            Some(shown)
        })
    }

    /// The next request, after a wait for limits.
    pub(super) fn wait(&mut self) -> Option<u32> {
        while self.scheduler.len() > 0 {
            if let Some(tag) = self.take(1).first() {
                return Some(*tag);
            }
            self.now = self.now.max(self.scheduler.next_timeout().expect("limits keep it"));
        }
        None
    }

    pub(super) fn drain(&mut self) -> Vec<u32> {
        self.take(usize::MAX)
    }

    pub(super) fn complete(&mut self, flow: u16) {
        self.scheduler.finished(FlowId(flow));
    }
}
