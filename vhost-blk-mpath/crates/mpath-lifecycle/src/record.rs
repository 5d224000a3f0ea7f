//! Decides: an inherited fence takes this long (`open`).
//! Decides: an end in order leaves a fence, a guest or lost writes to the next daemon (`end`).
//! Decides: a socket serves only the namespace that it had.
//!
//! The record of associations that may still have writes under way. A killed daemon cannot lift their fences, so the
//! next daemon reads here how long requests have to wait.
//!
//! The record also names the disk's namespace. A guest may come back with requests in flight, which must not run on
//! another namespace. As long as this is possible, the record is kept, even without any association.

use std::collections::BTreeMap;

use monotonic::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::AssociationId;
use crate::namespace_name::NamespaceName;

/// A killed process disappears a moment before the kernel has closed all of its sockets.
pub const EXIT_MAX: Duration = Duration::from_millis(500);
/// The upper bound of any fence: one week. The longest possible is far shorter. Three keep-alive timeouts, rounded up
/// by the coarsest KAS (6553.5 s), and the longest CQT are 5.5 hours. MPTCP connections may linger for minutes
/// (`net.mptcp.close_timeout`).
pub const FENCE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The content of a record.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecordContent {
    /// The association with the longest of the fences that are not lifted. A daemon reads longer lists too.
    pub associations: Vec<RecordedAssociation>,
    /// The namespace of the disk. A guest that comes back repeats its requests in flight on it and on no other.
    /// Absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceName>,
    /// The orderly end of the last daemon. `None` while a daemon keeps the record, and after a kill.
    #[serde(default, rename = "left", skip_serializing_if = "Option::is_none")]
    pub orderly_end: Option<OrderlyEnd>,
    /// The namespace of acknowledged writes that were lost and that no flush has reported. The next flush must fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_writes: Option<NamespaceName>,
}

/// What a record says about one association.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAssociation {
    /// The path's address, for readers.
    pub path: String,
    /// The controller, for readers.
    pub cntlid: u16,
    /// The time from the end of its sockets until its controller executes nothing of it, in milliseconds.
    pub fence_ms: u64,
}

/// One run of a daemon. It recognises the fences that it left itself and waits for their rest only. How much of
/// another daemon's fence has passed is unknown, even if that was the same daemon before a reboot.
#[derive(Debug, Clone)]
pub struct DaemonRun {
    id: String,
    started: Instant,
}

/// When a fence left by a daemon is over, in terms that only this daemon can use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrderlyEnd {
    /// The id of the daemon's run.
    daemon: String,
    /// The end of the fence, in milliseconds since the start of that run.
    until_ms: u64,
}

impl DaemonRun {
    /// A run that starts at `now`. `id` must be unique for all time.
    #[must_use]
    pub fn new(id: String, now: Instant) -> Self {
        Self { id, started: now }
    }

    /// The mark for a fence that this run leaves.
    fn mark_end(&self, now: Instant, fence: Duration) -> OrderlyEnd {
        // Round up to a whole millisecond.
        OrderlyEnd { daemon: self.id.clone(), until_ms: (now - self.started + fence).as_millis() + 1 }
    }

    /// The rest of the fence, if this run left the fence.
    #[must_use]
    pub fn remaining(&self, now: Instant, end: &OrderlyEnd) -> Option<Duration> {
        let until = Duration::from_millis(end.until_ms);
        (end.daemon == self.id).then(|| until.saturating_sub(now - self.started))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The longest fence that earlier daemons have left.
    Inherited,
    Own(AssociationId),
}

/// The record of one disk while a daemon keeps it. Each change is written, as [`content`](Self::content), before
/// anything relies on it.
#[derive(Debug, Clone)]
pub struct Record {
    associations: BTreeMap<Key, RecordedAssociation>,
    /// The namespace of the earlier daemon, if it has left anything.
    previous_namespace: Option<NamespaceName>,
    /// The namespace on which an earlier daemon lost writes that no flush has reported. It stays recorded until this
    /// daemon's orderly end: if this daemon is killed, the guest may not have been told.
    lost_writes: Option<NamespaceName>,
}

/// The state of a disk after its shutdown, when all sockets are closed.
#[derive(Debug, Clone, Copy)]
pub struct DiskShutdown {
    /// Requests that change data were given up and may still be executed.
    pub in_doubt: bool,
    /// What is left of the inherited fences.
    pub inherited_left: Duration,
    /// The guest may have requests without an answer.
    pub unanswered: bool,
    /// Writes were lost that no flush has reported.
    pub lost_writes: bool,
}

/// The longest fence that a disk leaves at its shutdown.
#[derive(Debug)]
pub struct RemainingFence {
    /// The association, with the fence counted from now.
    pub association: RecordedAssociation,
    /// The namespace, if a path or an earlier daemon has reported it.
    pub namespace: Option<NamespaceName>,
    /// The fence is the disk's own and was not inherited.
    pub is_own: bool,
    /// The longest inherited fence that is left.
    inherited: Option<RecordedAssociation>,
}

impl RemainingFence {
    /// The fence of a disk that only reads. Its own associations changed nothing, but what it inherited counts.
    #[must_use]
    pub fn inherited_only(self) -> Option<Self> {
        let association = self.inherited.clone()?;
        Some(Self { association, is_own: false, ..self })
    }
}

/// The longest of these fences. The next daemon waits only for the longest, so the record names no other. Otherwise a
/// path that flaps would let the file grow with each association.
#[must_use]
pub fn longest_fence(found: impl IntoIterator<Item = RecordedAssociation>) -> Option<RecordedAssociation> {
    found.into_iter().max_by_key(|association| association.fence_ms)
}

impl Record {
    /// Takes over what an earlier daemon left. If that daemon did not end in order, also returns how long its fences
    /// still take. Fences of another daemon count in full. Only the rest of this run's own fences counts, which may
    /// be zero.
    #[must_use]
    pub fn open(found: RecordContent, daemon_run: &DaemonRun, now: Instant) -> (Self, Option<Duration>) {
        let RecordContent { associations, namespace, orderly_end, lost_writes } = found;
        let (longest, fence) = match longest_fence(associations) {
            Some(longest) => {
                let in_full = Duration::from_millis(longest.fence_ms);
                // A daemon that has recorded its end has closed its sockets before.
                let remaining = |end| daemon_run.remaining(now, end).map_or(in_full, |left| left.min(in_full));
                let fence = orderly_end.as_ref().map_or(in_full + EXIT_MAX, remaining);
                (Some(longest), Some(fence))
            }
            // The earlier daemon was killed while it had no association. If this daemon is killed too, the next one has
            // to know of it.
            None if namespace.is_some() && orderly_end.is_none() => {
                let none = RecordedAssociation { path: String::new(), cntlid: 0, fence_ms: 0 };
                (Some(none), Some(Duration::ZERO))
            }
            None => (None, None),
        };
        let associations = longest.into_iter().map(|left| (Key::Inherited, left)).collect();
        (Self { associations, previous_namespace: namespace, lost_writes }, fence)
    }

    /// The namespace of the earlier daemon, if it has left anything.
    #[must_use]
    pub fn previous_namespace(&self) -> Option<&NamespaceName> {
        self.previous_namespace.as_ref()
    }

    /// Whether an earlier daemon has left anything.
    #[must_use]
    pub fn has_predecessor(&self) -> bool {
        self.previous_namespace.is_some() || self.associations.contains_key(&Key::Inherited)
    }

    /// The namespace on which an earlier daemon lost writes. The first flush of the guest on that namespace must
    /// fail.
    #[must_use]
    pub fn lost_writes(&self) -> Option<&NamespaceName> {
        self.lost_writes.as_ref()
    }

    /// Adds an association before it is used.
    pub fn add(&mut self, id: AssociationId, association: RecordedAssociation) {
        self.associations.insert(Key::Own(id), association);
    }

    /// Removes an association, because its fence is lifted.
    pub fn remove(&mut self, id: AssociationId) {
        self.associations.remove(&Key::Own(id));
    }

    /// Adds a fence that another disk has left on this disk's namespace.
    pub fn inherit(&mut self, association: RecordedAssociation) {
        let before = self.associations.remove(&Key::Inherited);
        let longest = longest_fence(before.into_iter().chain([association]));
        self.associations.extend(longest.map(|association| (Key::Inherited, association)));
    }

    /// Removes the inherited fences, because they are lifted.
    pub fn remove_inherited(&mut self) {
        self.associations.remove(&Key::Inherited);
    }

    /// Forgets the namespace of the earlier daemon, because its guest cannot come back.
    pub fn forget_guest(&mut self) {
        self.previous_namespace = None;
    }

    /// Forgets the losses that no flush has reported, because there is no guest to be told.
    pub fn forget_lost_writes(&mut self) {
        self.lost_writes = None;
    }

    /// The content to be written. `namespace` is the disk's, if it is known.
    #[must_use]
    pub fn content(&self, namespace: Option<&NamespaceName>) -> RecordContent {
        // The two namespaces differ only if this disk is refused. Then the guest of the earlier disk may still come
        // back.
        let namespace = self.previous_namespace.as_ref().or(namespace).cloned();
        let associations = longest_fence(self.associations.values().cloned()).into_iter().collect();
        RecordContent { associations, namespace, orderly_end: None, lost_writes: self.lost_writes.clone() }
    }

    /// Closes the record at the shutdown of the disk, when all sockets are closed. Returns the content to be written,
    /// and the longest fence that other writers of the namespace have to wait for.
    ///
    /// Without writes in doubt nothing can change the data, so the disk's own fences are dropped. Inherited fences
    /// are kept with what is left of them, so that repeated restarts wait once. The namespace is kept while the guest
    /// may have requests without an answer.
    #[must_use]
    pub fn end(
        mut self,
        namespace: Option<&NamespaceName>,
        DiskShutdown { in_doubt, inherited_left, unanswered, lost_writes }: DiskShutdown,
        daemon_run: &DaemonRun,
        now: Instant,
    ) -> (RecordContent, Option<RemainingFence>) {
        if !in_doubt {
            self.associations.retain(|key, _| *key == Key::Inherited);
        }
        let inherited_ms = inherited_left.as_millis();
        if inherited_ms == 0 && !unanswered {
            self.remove_inherited();
        }
        // The returned fence includes what is left of `EXIT_MAX`. The record does not: the next reader adds that again.
        let left = self.associations.iter().map(|(key, left)| match key {
            Key::Inherited => (RecordedAssociation { fence_ms: inherited_ms, ..left.clone() }, false),
            Key::Own(_) => (left.clone(), true),
        });
        let left = left.max_by_key(|(left, _)| left.fence_ms).filter(|(left, _)| left.fence_ms > 0);
        let inherited = self.associations.get(&Key::Inherited).filter(|_| inherited_ms > 0);
        let inherited = inherited.map(|left| RecordedAssociation { fence_ms: inherited_ms, ..left.clone() });
        if let Some(inherited) = self.associations.get_mut(&Key::Inherited) {
            inherited.fence_ms = inherited.fence_ms.min(inherited_ms);
        }
        let mut content = self.content(namespace);
        let fence = Duration::from_millis(left.as_ref().map_or(0, |(left, _)| left.fence_ms));
        content.orderly_end = Some(daemon_run.mark_end(now, fence));
        // A daemon that has not served the namespace with the losses has told no guest of them.
        let unreported = self.lost_writes.filter(|of| !namespace.is_some_and(|own| of.is_same(own)));
        content.lost_writes = namespace.filter(|_| lost_writes).cloned().or(unreported);
        if content.associations.is_empty() && !unanswered {
            content.namespace = None;
        }
        let namespace = content.namespace.clone();
        let left = left.map(|(association, is_own)| RemainingFence { association, namespace, is_own, inherited });
        (content, left)
    }
}

impl RecordContent {
    /// Whether there is nothing to record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.associations.is_empty() && self.namespace.is_none() && self.lost_writes.is_none()
    }

    /// Records that the fence left at the end is over, so that no daemon waits for it. Returns whether it is over.
    /// The record still says on which namespace requests in flight may be repeated.
    pub fn expire(&mut self, daemon_run: &DaemonRun, now: Instant) -> bool {
        let is_over = self.orderly_end.as_ref().and_then(|end| daemon_run.remaining(now, end)) == Some(Duration::ZERO);
        if is_over {
            self.associations.iter_mut().for_each(|association| association.fence_ms = 0);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use mpath_core::{Epoch, PathId};
    use nvme_tcp::host::NamespaceIdentity;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const IN_ORDER: DiskShutdown =
        DiskShutdown { in_doubt: false, inherited_left: Duration::ZERO, unanswered: false, lost_writes: false };

    fn id(path: u16, epoch: u64) -> AssociationId {
        AssociationId { path: PathId(path), epoch: Epoch(epoch) }
    }

    fn association(fence_ms: u64) -> RecordedAssociation {
        RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms }
    }

    /// Opens the record as a daemon that has not run before.
    fn open(found: RecordContent) -> (Record, Option<Duration>) {
        let now = Instant::now();
        Record::open(found, &DaemonRun::new("another".into(), now), now)
    }

    #[test]
    fn the_longest_fence_counts_from_the_end_of_the_last_socket() {
        let (mut record, inherited) = open(RecordContent::default());
        assert_eq!(inherited, None, "no earlier daemon");
        record.add(id(0, 1), association(5_000));
        record.add(id(1, 1), association(9_000));
        record.add(id(1, 2), association(3_000));
        assert_eq!(open(record.content(None)).1, Some(9 * SECOND + EXIT_MAX));
        record.remove(id(1, 1));
        assert_eq!(open(record.content(None)).1, Some(5 * SECOND + EXIT_MAX));
    }

    #[test]
    fn what_the_operator_voids_is_not_kept() {
        let name = NamespaceName::new("nqn.example", &crate::testing::namespace());
        let content = RecordContent {
            associations: vec![association(5_000)],
            namespace: Some(name.clone()),
            orderly_end: None,
            lost_writes: Some(name),
        };
        let (mut record, _) = open(content);
        record.forget_guest();
        record.remove_inherited();
        record.forget_lost_writes();
        assert!(!record.has_predecessor() && record.content(None).is_empty());
    }

    #[test]
    fn a_flapping_path_does_not_let_the_record_grow() {
        let (mut record, _) = open(RecordContent::default());
        for epoch in 1..100 {
            record.add(id(0, epoch), association(5_000));
        }
        assert_eq!(record.content(None).associations, [association(5_000)]);
    }

    #[test]
    fn a_killed_daemon_passes_on_its_inherited_fence() {
        let (mut first, _) = open(RecordContent::default());
        first.add(id(0, 1), association(9_000));
        let (mut second, _) = open(first.content(None));
        second.add(id(0, 1), association(4_000));
        let (third, inherited) = open(second.content(None));
        assert_eq!(inherited, Some(9 * SECOND + EXIT_MAX));
        assert_eq!(third.content(None).associations.len(), 1, "they do not add up");
        second.remove_inherited();
        assert_eq!(open(second.content(None)).1, Some(4 * SECOND + EXIT_MAX));
    }

    /// Its unflushed writes may be in any controller until every path was tried.
    #[test]
    fn a_daemon_killed_without_an_association_is_remembered_until_it_is_over() {
        let now = Instant::now();
        let by = DaemonRun::new("this".into(), now);
        let name = NamespaceName::new("nqn.2026-11.io.example:disk", &crate::testing::namespace());
        let killed = open(RecordContent::default()).0.content(Some(&name));
        let end = |unanswered| {
            let (second, inherited) = open(killed.clone());
            assert_eq!(inherited, Some(Duration::ZERO));
            open(second.end(Some(&name), DiskShutdown { unanswered, ..IN_ORDER }, &by, now).0).1
        };
        assert_eq!((end(true), end(false)), (Some(Duration::ZERO), None));
    }

    #[test]
    fn a_daemon_waits_for_the_rest_of_its_own_fence() {
        let start = Instant::now();
        let (this, other) = (DaemonRun::new("this".into(), start), DaemonRun::new("other".into(), start));
        let (mut record, _) = Record::open(RecordContent::default(), &this, start);
        record.add(id(0, 1), association(5_000));
        let leaving = DiskShutdown { in_doubt: true, ..IN_ORDER };
        let (content, left) = record.end(None, leaving, &this, start);
        assert!(left.is_some_and(|left| left.is_own && left.association == association(5_000)));
        let inherited = |by, after| Record::open(content.clone(), by, start + after).1;
        assert_eq!(inherited(&this, 2 * SECOND), Some(3 * SECOND + Duration::from_millis(1)));
        assert_eq!(inherited(&this, 6 * SECOND), Some(Duration::ZERO));
        assert_eq!(inherited(&other, 6 * SECOND), Some(5 * SECOND), "its sockets were closed in order");
    }

    #[test]
    fn a_fence_expires_once_it_is_over() {
        let start = Instant::now();
        let (this, other) = (DaemonRun::new("this".into(), start), DaemonRun::new("other".into(), start));
        let (mut record, _) = Record::open(RecordContent::default(), &this, start);
        record.add(id(0, 1), association(5_000));
        let (content, _) = record.end(None, DiskShutdown { in_doubt: true, ..IN_ORDER }, &this, start);
        let expires = |run, after| content.clone().expire(run, start + after);
        assert!(!expires(&this, 5 * SECOND) && !expires(&other, 6 * SECOND));
        assert!(expires(&this, 5 * SECOND + Duration::from_millis(1)));
    }

    #[test]
    fn lost_writes_are_recorded_until_the_next_orderly_end() {
        let now = Instant::now();
        let by = DaemonRun::new("this".into(), now);
        let (record, _) = open(RecordContent::default());
        assert!(record.end(None, IN_ORDER, &by, now).0.is_empty());
        let (record, _) = open(RecordContent::default());
        let name = NamespaceName::new("nqn.2026-11.io.example:disk", &crate::testing::namespace());
        let (content, left) = record.end(Some(&name), DiskShutdown { lost_writes: true, ..IN_ORDER }, &by, now);
        assert!(!content.is_empty() && left.is_none());
        let (record, fence) = open(content);
        assert!(record.lost_writes().is_some_and(|of| of.is_same(&name)) && !record.has_predecessor());
        assert_eq!(fence, None, "no fence");
        // A killed daemon may not have told its guest.
        assert!(record.content(None).lost_writes.is_some());
        // A daemon without a path, or with a path to another namespace, has not told the guest either.
        let another = NamespaceIdentity { nsid: 9, uuid: [9; 16], nguid: [9; 16], ..crate::testing::namespace() };
        let other = NamespaceName::new("nqn.2026-11.io.example:disk", &another);
        for served in [None, Some(&other)] {
            let (content, _) = record.clone().end(served, IN_ORDER, &by, now);
            assert!(content.lost_writes.is_some_and(|of| of.is_same(&name)));
        }
        assert!(record.end(Some(&name), IN_ORDER, &by, now).0.is_empty());
    }
}
