//! The fences of associations that have ended, driven by the clock of the simulator, and the record of associations for the
//! daemon that follows.

use std::time::{Duration, Instant};

use mpath_core::{Epoch, PathId};
use mpath_host::{
    AssociationId, Ended, Incarnation, Left, LiftedBy, NamespaceName, Record, RecordContent, RecordedAssociation,
};
use nvme_tcp::host::CrossResetOutcome;
use nvme_tcp::wire::ControllerInstance;

use super::HostPlan;
use crate::clock::Event;
use crate::rng::Rng;
use crate::target::Ctx;

/// The file that survives the daemon. Those of several disks say the same.
#[derive(Debug, Default)]
pub(crate) struct RecordFile(RecordContent);

#[derive(Debug)]
pub(crate) struct Fences {
    held: mpath_host::Fences,
    record: Record,
    file: RecordFile,
    /// What the disk is.
    namespace: NamespaceName,
    /// How often it cannot be written.
    fails_percent: u64,
    rng: Rng,
    /// Associations that have ended and need no fence.
    clean: Vec<AssociationId>,
    wake_at: Option<Instant>,
}

impl Fences {
    /// Those of a daemon that finds this file, and how long it has to wait for the fences of the one before, if that was killed.
    pub(super) fn open(
        now: Instant,
        number: u64,
        file: RecordFile,
        plan: &HostPlan,
        rng: Rng,
    ) -> (Self, Option<Duration>) {
        let incarnation = Incarnation::new(number.to_string(), now);
        let (record, inherited) = Record::open(file.0.clone(), &incarnation, now);
        let namespace = NamespaceName::new(plan.controller.subnqn.as_str(), &plan.disks[0].namespace);
        let fences = Self {
            held: mpath_host::Fences::default(),
            record,
            file,
            namespace,
            fails_percent: plan.record_fails_percent,
            rng,
            clean: Vec::new(),
            wake_at: None,
        };
        (fences, inherited)
    }

    /// The daemon is killed.
    pub(super) fn into_file(self) -> RecordFile {
        self.file
    }

    /// Changes the record: whether that is on the disk.
    fn change_record(&mut self, change: impl FnOnce(&mut Record)) -> bool {
        change(&mut self.record);
        let is_written = !self.rng.percent(self.fails_percent);
        if is_written {
            self.file = RecordFile(self.record.content(Some(&self.namespace)));
        }
        is_written
    }

    /// Writes an association down: whether that is on the disk.
    pub(super) fn record(&mut self, id: AssociationId, fence_time: Duration) -> bool {
        let (path, fence_ms) = (id.path.to_string(), fence_time.as_millis() as u64);
        self.change_record(|record| record.add(id, RecordedAssociation { path, cntlid: 0, fence_ms }))
    }

    pub(super) fn forget(&mut self, id: AssociationId) {
        self.change_record(|record| record.remove(id));
    }

    /// The fences of the daemon before this one are over.
    pub(super) fn forget_inherited(&mut self) {
        self.change_record(Record::remove_inherited);
    }

    /// The sockets of an association are closed.
    pub(super) fn ended(&mut self, now: Instant, path: PathId, Left { epoch, info, is_clean, .. }: &Left) {
        let of = AssociationId { path, epoch: *epoch };
        if *is_clean {
            self.clean.push(of);
        } else {
            let (fence_time, instance) = (info.fence_time(), info.instance());
            self.held.begin(now, Ended { of, fence_time, instance, is_draining: false });
        }
    }

    /// Whether commands of this path's associations may still be executed.
    pub(super) fn holds(&self, path: PathId) -> bool {
        self.held.holds(path)
    }

    pub(super) fn offer_resets(&mut self, id: AssociationId) {
        self.held.offer_resets(id);
    }

    pub(super) fn withdraw_resets(&mut self, path: PathId) {
        self.held.withdraw_resets(path);
    }

    pub(super) fn next_reset(&mut self, now: Instant, path: PathId) -> Option<ControllerInstance> {
        self.held.next_reset(now, path)
    }

    pub(super) fn has_reset(&self, path: PathId) -> bool {
        self.held.has_reset(path)
    }

    pub(super) fn reset_answered(&mut self, ctx: &mut Ctx<'_>, path: PathId, outcome: Option<CrossResetOutcome>) {
        self.held.reset_answered(ctx.clock.now(), path, outcome);
    }

    /// Lifts what is due: which associations can change nothing any more.
    pub(super) fn turn(&mut self, ctx: &mut Ctx<'_>) -> Vec<(PathId, Epoch)> {
        let now = ctx.clock.now();
        self.held.handle_timeout(now);
        let mut lifted = std::mem::take(&mut self.clean);
        while let Some(fence) = self.held.poll_lifted() {
            ctx.check.counts.resets += u64::from(matches!(fence.by, LiftedBy::CrossReset(_)));
            lifted.push(fence.of);
        }
        for id in &lifted {
            self.forget(*id);
        }
        if let Some(at) = self.held.next_timeout()
            && self.wake_at.is_none_or(|wake| wake <= now || at < wake)
        {
            self.wake_at = Some(at);
            ctx.clock.at(at, Event::Fences);
        }
        lifted.into_iter().map(|AssociationId { path, epoch }| (path, epoch)).collect()
    }
}
