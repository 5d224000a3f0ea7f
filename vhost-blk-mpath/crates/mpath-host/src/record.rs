//! The record of associations under which writes may be on their way. A daemon that was killed cannot lift their fences; the one
//! that follows reads here how long requests have to wait.
//!
//! It also says what namespace the disk is, and stays for that alone where a guest may come back with requests in flight: these
//! are executed on the same namespace, or not at all.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::AssociationId;
use crate::namespace_name::NamespaceName;

/// A process is gone for others a moment before the kernel has closed all of its sockets.
pub const EXIT_MAX: Duration = Duration::from_millis(500);
/// No fence takes as long as this week: three times a keep-alive time-out that a controller has rounded up by the coarsest KAS,
/// 6553.5 s, and the longest CQT are 5.5 hours, and connections of MPTCP may linger for minutes (`net.mptcp.close_timeout`).
pub const FENCE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// What is written down, as a whole.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecordContent {
    /// Those whose fences are not lifted.
    pub associations: Vec<RecordedAssociation>,
    /// What the disk is. A guest that comes back repeats what it had in flight there, and nowhere else. Older versions did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceName>,
    /// Who has left it so. `None` while a daemon keeps it, and of one that was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<LeftBy>,
    /// Writes to this namespace were acknowledged and then lost, and no flush has told the guest: the next one is to fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_writes: Option<NamespaceName>,
}

/// What is written down of an association.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAssociation {
    /// The path's address, for people.
    pub path: String,
    /// The controller, for people.
    pub cntlid: u16,
    /// From the end of its sockets to the moment after which its controller executes nothing of it, in milliseconds.
    pub fence_ms: u64,
}

/// One run of a daemon, by which it knows again what it has left itself: it waits for the rest of that only. How much has passed
/// of what another one has left, be it this one before a reboot, is not known.
#[derive(Debug, Clone)]
pub struct Incarnation {
    id: String,
    begun: Instant,
}

/// When a fence is over that a daemon has left, as only that daemon knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeftBy {
    /// Its incarnation.
    daemon: String,
    /// Since the begin of that.
    until_ms: u64,
}

impl Incarnation {
    /// One that begins now. `id` is nobody else's, ever.
    #[must_use]
    pub fn new(id: String, now: Instant) -> Self {
        Self { id, begun: now }
    }

    /// What is written down of a fence that it leaves.
    fn leaves(&self, now: Instant, fence: Duration) -> LeftBy {
        // The last one is a whole one.
        LeftBy { daemon: self.id.clone(), until_ms: (now - self.begun + fence).as_millis() as u64 + 1 }
    }

    /// What is left of that, if it is its own.
    #[must_use]
    pub fn remains(&self, now: Instant, left: &LeftBy) -> Option<Duration> {
        let until = Duration::from_millis(left.until_ms);
        (left.daemon == self.id).then(|| until.saturating_sub(now - self.begun))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The longest that daemons before this one have left.
    Inherited,
    Own(AssociationId),
}

/// The record of one disk while a daemon keeps it. Each change is on the disk, as [`content`](Self::content), before anything
/// relies on it.
#[derive(Debug, Clone)]
pub struct Record {
    associations: BTreeMap<Key, RecordedAssociation>,
    /// What it was of, if who had the disk before has left something.
    namespace_before: Option<NamespaceName>,
    /// Who had the disk before has lost writes to this namespace, which no flush has reported. That stays written down until the orderly
    /// end of the one who has the disk now: if that one is killed, its guest may not have been told.
    lost_writes: Option<NamespaceName>,
}

/// How a disk is left when it is not served any more, and all sockets are closed.
#[derive(Debug, Clone, Copy)]
pub struct Leaving {
    /// Requests that change data were given up, and may still be executed.
    pub in_doubt: bool,
    /// What is left of the fences that were inherited.
    pub inherited_left: Duration,
    /// There may be requests that the guest was not answered.
    pub unanswered: bool,
    /// Writes were lost that no flush has reported.
    pub lost_writes: bool,
}

/// The longest fence that a disk leaves when it is not served any more.
#[derive(Debug)]
pub struct LeftFence {
    /// From now on.
    pub association: RecordedAssociation,
    /// On what, if a path has told or an earlier daemon has said so.
    pub namespace: Option<NamespaceName>,
    /// It is the disk's own, and not that of who had it before.
    pub is_own: bool,
    /// What is left in it of who had the disk before.
    inherited: Option<RecordedAssociation>,
}

impl LeftFence {
    /// Of a disk that has only read: it has left nothing itself, though others over its paths may have.
    #[must_use]
    pub fn without_its_own(self) -> Option<Self> {
        let association = self.inherited.clone()?;
        Some(Self { association, is_own: false, ..self })
    }
}

/// All others are lifted before the longest is. Kept one by one they would add up from one killed daemon to the next.
#[must_use]
pub fn longest_fence(found: impl IntoIterator<Item = RecordedAssociation>) -> Option<RecordedAssociation> {
    found.into_iter().max_by_key(|association| association.fence_ms)
}

impl Record {
    /// Takes over what was found, and if who had the disk before did not end in order, how much longer that one's fences take: in
    /// full those of another daemon, of this one what is left, which may be nothing.
    #[must_use]
    pub fn open(found: RecordContent, incarnation: &Incarnation, now: Instant) -> (Self, Option<Duration>) {
        let RecordContent { associations, namespace, left, lost_writes } = found;
        let longest = longest_fence(associations);
        let fence = match &longest {
            Some(longest) => {
                let in_full = Duration::from_millis(longest.fence_ms);
                // Who has written down that it leaves has closed its sockets before.
                let remains = |left| incarnation.remains(now, left).map_or(in_full, |left| left.min(in_full));
                Some(left.as_ref().map_or(in_full + EXIT_MAX, remains))
            }
            // It was killed while it had no association.
            None => (namespace.is_some() && left.is_none()).then_some(Duration::ZERO),
        };
        let associations = longest.into_iter().map(|left| (Key::Inherited, left)).collect();
        (Self { associations, namespace_before: namespace, lost_writes }, fence)
    }

    /// What the disk was, if who had it before has left something.
    #[must_use]
    pub fn namespace_before(&self) -> Option<&NamespaceName> {
        self.namespace_before.as_ref()
    }

    /// Whether who had the disk before has left something.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.namespace_before.is_some() || self.associations.contains_key(&Key::Inherited)
    }

    /// The namespace on which who had the disk before has lost writes: the first flush of a guest that has it is to fail.
    #[must_use]
    pub fn lost_writes(&self) -> Option<&NamespaceName> {
        self.lost_writes.as_ref()
    }

    /// An association is about to be used.
    pub fn add(&mut self, id: AssociationId, association: RecordedAssociation) {
        self.associations.insert(Key::Own(id), association);
    }

    /// The fence of an association is lifted.
    pub fn remove(&mut self, id: AssociationId) {
        self.associations.remove(&Key::Own(id));
    }

    /// Somebody else has left a fence on what this disk writes to.
    pub fn inherit(&mut self, association: RecordedAssociation) {
        let before = self.associations.remove(&Key::Inherited);
        let longest = longest_fence(before.into_iter().chain([association]));
        self.associations.extend(longest.map(|association| (Key::Inherited, association)));
    }

    /// The fences that an earlier daemon left are lifted.
    pub fn remove_inherited(&mut self) {
        self.associations.remove(&Key::Inherited);
    }

    /// What is to be written down, of a disk that is this namespace, if that is known.
    #[must_use]
    pub fn content(&self, namespace: Option<&NamespaceName>) -> RecordContent {
        // They are the same, unless this disk is refused: who had it before may come back.
        let namespace = self.namespace_before.as_ref().or(namespace).cloned();
        let associations = self.associations.values().cloned().collect();
        RecordContent { associations, namespace, left: None, lost_writes: self.lost_writes.clone() }
    }

    /// The disk is not served any more, and all sockets are closed. Unless there are writes in doubt nothing can change its data
    /// any more. So much is left of the fences that it has inherited: who restarts it again and again waits for them once. While
    /// there may be requests that its guest was not answered the record says whose the socket is. What is to be written down, and
    /// the longest fence that whoever writes to the same has to wait for.
    #[must_use]
    pub fn end(
        mut self,
        namespace: Option<&NamespaceName>,
        Leaving { in_doubt, inherited_left, unanswered, lost_writes }: Leaving,
        incarnation: &Incarnation,
        now: Instant,
    ) -> (RecordContent, Option<LeftFence>) {
        if !in_doubt {
            self.associations.retain(|key, _| *key == Key::Inherited);
        }
        let inherited_ms = inherited_left.as_millis() as u64;
        if inherited_ms == 0 && !unanswered {
            self.remove_inherited();
        }
        // The moment that a killed process takes to go is left as well; whoever opens the record counts it anew.
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
        content.left = Some(incarnation.leaves(now, fence));
        // A daemon that has not served that namespace has told nobody.
        let untold = self.lost_writes.filter(|of| !namespace.is_some_and(|own| of.is_same(own)));
        content.lost_writes = namespace.filter(|_| lost_writes).cloned().or(untold);
        if content.associations.is_empty() && !unanswered {
            content.namespace = None;
        }
        let namespace = content.namespace.clone();
        let left = left.map(|(association, is_own)| LeftFence { association, namespace, is_own, inherited });
        (content, left)
    }
}

impl RecordContent {
    /// Whether there is nothing to be written down.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.associations.is_empty() && self.namespace.is_none() && self.lost_writes.is_none()
    }

    /// The fence that was left at the end is over, though what was in flight is still to be repeated nowhere else: whether that is
    /// so, and nobody has to wait for it any more.
    pub fn expire(&mut self, incarnation: &Incarnation, now: Instant) -> bool {
        let is_over = self.left.as_ref().and_then(|left| incarnation.remains(now, left)) == Some(Duration::ZERO);
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

    const IN_ORDER: Leaving =
        Leaving { in_doubt: false, inherited_left: Duration::ZERO, unanswered: false, lost_writes: false };

    fn id(path: u16, epoch: u64) -> AssociationId {
        AssociationId { path: PathId(path), epoch: Epoch(epoch) }
    }

    fn association(fence_ms: u64) -> RecordedAssociation {
        RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms }
    }

    /// By a daemon that nobody has seen before.
    fn open(found: RecordContent) -> (Record, Option<Duration>) {
        let now = Instant::now();
        Record::open(found, &Incarnation::new("another".into(), now), now)
    }

    #[test]
    fn the_longest_fence_is_waited_for_from_the_end_of_the_last_socket_on() {
        let (mut record, inherited) = open(RecordContent::default());
        assert_eq!(inherited, None, "nobody had the disk");
        record.add(id(0, 1), association(5_000));
        record.add(id(1, 1), association(9_000));
        record.add(id(1, 2), association(3_000));
        assert_eq!(open(record.content(None)).1, Some(9 * SECOND + EXIT_MAX));
        record.remove(id(1, 1));
        assert_eq!(open(record.content(None)).1, Some(5 * SECOND + EXIT_MAX));
    }

    #[test]
    fn a_daemon_killed_before_the_inherited_fence_is_lifted_leaves_that_too() {
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

    #[test]
    fn a_daemon_waits_for_the_rest_of_what_it_has_left_itself() {
        let start = Instant::now();
        let (this, other) = (Incarnation::new("this".into(), start), Incarnation::new("other".into(), start));
        let (mut record, _) = Record::open(RecordContent::default(), &this, start);
        record.add(id(0, 1), association(5_000));
        let leaving = Leaving { in_doubt: true, ..IN_ORDER };
        let (content, left) = record.end(None, leaving, &this, start);
        assert!(left.is_some_and(|left| left.is_own && left.association == association(5_000)));
        let inherited = |by, after| Record::open(content.clone(), by, start + after).1;
        assert_eq!(inherited(&this, 2 * SECOND), Some(3 * SECOND + Duration::from_millis(1)));
        assert_eq!(inherited(&this, 6 * SECOND), Some(Duration::ZERO));
        assert_eq!(inherited(&other, 6 * SECOND), Some(5 * SECOND), "its sockets were closed in order");
    }

    #[test]
    fn lost_writes_are_written_down_until_the_next_orderly_end() {
        let now = Instant::now();
        let by = Incarnation::new("this".into(), now);
        let (record, _) = open(RecordContent::default());
        assert!(record.end(None, IN_ORDER, &by, now).0.is_empty());
        let (record, _) = open(RecordContent::default());
        let name = NamespaceName::new("nqn.2026-11.io.example:disk", &crate::testing::namespace());
        let (content, left) = record.end(Some(&name), Leaving { lost_writes: true, ..IN_ORDER }, &by, now);
        assert!(!content.is_empty() && left.is_none());
        let (record, fence) = open(content);
        assert!(record.lost_writes().is_some_and(|of| of.is_same(&name)) && !record.is_left());
        assert_eq!(fence, None, "nobody has to wait");
        // Killed, it may not have told its guest.
        assert!(record.content(None).lost_writes.is_some());
        // Nor has it if no path was there, or one to another namespace.
        let another = NamespaceIdentity { nsid: 9, uuid: [9; 16], nguid: [9; 16], ..crate::testing::namespace() };
        let other = NamespaceName::new("nqn.2026-11.io.example:disk", &another);
        for served in [None, Some(&other)] {
            let (content, _) = record.clone().end(served, IN_ORDER, &by, now);
            assert!(content.lost_writes.is_some_and(|of| of.is_same(&name)));
        }
        assert!(record.end(Some(&name), IN_ORDER, &by, now).0.is_empty());
    }
}
