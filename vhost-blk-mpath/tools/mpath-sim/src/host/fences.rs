//! The fences of a daemon on the clock of the simulator, and its fence records.

use monotonic::{Duration, Instant};
use mpath_core::{Epoch, PathId};
use mpath_lifecycle::{
    AssociationId, DaemonRun, DiskShutdown, InheritedFence, LiftedBy, NamespaceName, Record, RecordContent,
    RecordedAssociation, RemainingFence,
};

use super::plan::HostPlan;
use super::process::Process;
use crate::clock::Event;
use crate::context::Ctx;
use crate::rng::Rng;

/// The fence records as files, by disk. They survive the daemon.
#[derive(Debug, Default)]
pub(super) struct RecordFiles(pub(super) Vec<RecordContent>);

/// The fences and fence records of a daemon.
#[derive(Debug)]
pub(crate) struct Fences {
    /// The shipping fences.
    pub(super) inner: mpath_lifecycle::Fences,
    /// By disk.
    records: Vec<Record>,
    run: DaemonRun,
    files: RecordFiles,
    /// By disk: its namespace, once it is known.
    namespaces: Vec<Option<NamespaceName>>,
    /// Percentage of writes of a record that fail.
    fails_percent: u64,
    rng: Rng,
    wake_at: Option<Instant>,
}

impl Fences {
    /// The fences of a daemon that finds these files, and the fence that its disks wait for.
    pub(super) fn open(
        now: Instant,
        process: &Process,
        files: RecordFiles,
        plan: &HostPlan,
        rng: Rng,
    ) -> (Self, Option<InheritedFence>) {
        let run = process.run.clone();
        let found = files.0.iter().cloned().chain(std::iter::repeat_with(RecordContent::default));
        let opened = found.take(plan.disks.len()).map(|content| Record::open(content, &run, now));
        let (records, inherited): (Vec<_>, Vec<_>) = opened.unzip();
        let fences = Self {
            inner: mpath_lifecycle::Fences::default(),
            records,
            run,
            files,
            namespaces: vec![None; plan.disks.len()],
            fails_percent: plan.record_fails_percent,
            rng,
            wake_at: None,
        };
        (fences, InheritedFence::longest(now, inherited))
    }

    /// The files that a killed daemon leaves.
    pub(super) fn into_files(self) -> RecordFiles {
        self.files
    }

    /// Ends the fences of a daemon that has ended in order and leaves the disks in this state. Returns the files, whether they
    /// were written, and the fences that are left.
    pub(super) fn end(
        self,
        now: Instant,
        leaving: &[DiskShutdown],
    ) -> (RecordFiles, bool, Vec<Option<RemainingFence>>) {
        let Self { records, namespaces, run, files, fails_percent, mut rng, .. } = self;
        let disks = records.into_iter().zip(&namespaces).zip(leaving);
        let end = |((record, namespace), leaving): ((Record, &Option<NamespaceName>), &DiskShutdown)| {
            record.end(namespace.as_ref(), *leaving, &run, now)
        };
        let (contents, left) = disks.map(end).unzip();
        if rng.percent(fails_percent) { (files, false, left) } else { (RecordFiles(contents), true, left) }
    }

    /// Whether the predecessor has lost writes of a disk, which flushes have to report.
    pub(super) fn has_lost_writes(&self, disk: usize) -> bool {
        self.records[disk].lost_writes().is_some()
    }

    /// Whether a guest may come back with requests that the predecessor fetched.
    pub(super) fn has_predecessor(&self, disk: usize) -> bool {
        self.records[disk].has_predecessor()
    }

    /// The namespace of a guest of a disk that may come back.
    pub(super) fn namespace_of_guest(&self, disk: usize) -> Option<&NamespaceName> {
        self.records[disk].previous_namespace()
    }

    /// Changes all records. Returns whether all of them were written.
    fn change_records(&mut self, change: impl Fn(&mut Record)) -> bool {
        let disks = 0..self.records.len();
        disks.fold(true, |are_written, disk| self.change_record(disk, &change) & are_written)
    }

    /// Changes the record of a disk. Returns whether it was written.
    fn change_record(&mut self, disk: usize, change: impl Fn(&mut Record)) -> bool {
        self.files.0.resize(self.records.len(), RecordContent::default());
        change(&mut self.records[disk]);
        let is_written = !self.rng.percent(self.fails_percent);
        if is_written {
            self.files.0[disk] = self.records[disk].content(self.namespaces[disk].as_ref());
        }
        is_written
    }

    /// The namespace of a disk is known. Its record names the namespace from the next change on.
    pub(super) fn set_namespace(&mut self, disk: usize, namespace: &NamespaceName) {
        self.namespaces[disk].get_or_insert_with(|| namespace.clone());
    }

    /// Names the namespace of a disk in its record. Returns whether the record was written.
    pub(super) fn record_namespace(&mut self, disk: usize) -> bool {
        self.change_record(disk, |_| {})
    }

    /// Records an association for all disks. Returns whether all records were written.
    pub(super) fn record(&mut self, id: AssociationId, fence_time: Duration) -> bool {
        let (path, fence_ms) = (id.path.to_string(), fence_time.as_millis());
        self.change_records(|record| record.add(id, RecordedAssociation { path: path.clone(), cntlid: 0, fence_ms }))
    }

    /// Records a fence that a removed disk has left. Returns whether the record was written.
    pub(super) fn inherit(&mut self, disk: usize, association: &RecordedAssociation) -> bool {
        self.change_record(disk, |record| record.inherit(association.clone()))
    }

    pub(super) fn forget(&mut self, id: AssociationId) {
        self.change_records(|record| record.remove(id));
    }

    /// The inherited fence of a disk is over.
    pub(super) fn forget_inherited(&mut self, disk: usize) {
        self.change_record(disk, Record::remove_inherited);
    }

    /// Lifts fences that are due. Returns their associations, which cannot change data any more.
    pub(super) fn turn(&mut self, ctx: &mut Ctx) -> Vec<(PathId, Epoch)> {
        let now = ctx.clock.now();
        self.inner.handle_timeout(now);
        let mut lifted = Vec::new();
        while let Some(fence) = self.inner.poll_lifted() {
            ctx.checker.counts.cross_resets += u64::from(matches!(fence.by, LiftedBy::CrossReset(_)));
            ctx.checker.counts.fences_lifted_by_drain += u64::from(fence.by == LiftedBy::Drain);
            lifted.push(fence.of);
        }
        for id in &lifted {
            self.forget(*id);
        }
        if let Some(at) = self.inner.next_timeout()
            && self.wake_at.is_none_or(|wake| wake <= now || at < wake)
        {
            self.wake_at = Some(at);
            ctx.clock.at(at, Event::Fences);
        }
        lifted.into_iter().map(|AssociationId { path, epoch }| (path, epoch)).collect()
    }
}
