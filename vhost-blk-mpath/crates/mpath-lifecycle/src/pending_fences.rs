//! Decides: the inherited fence of a removed disk takes this long.
//!
//! The fences that removed disks have left. A new disk waits for the fence of a removed disk on the same namespace,
//! whichever socket and paths it uses.

use monotonic::{Duration, Instant};

use crate::disk_hold::{DiskHold, InheritedFence};
use crate::namespace_name::NamespaceName;
use crate::record::{RecordedAssociation, RemainingFence};

/// The fences that removed disks have left on their namespaces, once for each name of a namespace.
#[derive(Debug, Default)]
pub struct PendingFences(Vec<PendingFence>);

/// Writes that may still be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingFence {
    /// The fence, as a new disk inherits it.
    pub fence: InheritedFence,
    pub(crate) namespace: NamespaceName,
    pub(crate) association: RecordedAssociation,
}

impl PendingFence {
    /// The record of an association for the rest of the fence.
    #[must_use]
    pub fn recorded(&self, now: Instant) -> RecordedAssociation {
        let left = self.fence.until.saturating_duration_since(now);
        // Round up to a whole millisecond.
        RecordedAssociation { fence_ms: left.as_millis() + 1, ..self.association.clone() }
    }
}

impl PendingFences {
    /// Adds the fence that a removed disk has `left`, its own or an inherited one. Returns how long writes to its
    /// namespace may still be executed. A disk that only reads leaves only fences that it has inherited.
    pub fn disk_removed(
        &mut self,
        now: Instant,
        disk: &str,
        is_read_only: bool,
        hold: &DiskHold,
        left: RemainingFence,
    ) -> Option<Duration> {
        let left = if is_read_only { left.inherited_only()? } else { left };
        let lasts = Duration::from_millis(left.association.fence_ms);
        self.0.retain(|pending| pending.fence.until > now);
        let RemainingFence { association, namespace: Some(namespace), is_own, .. } = left else { return Some(lasts) };
        let until = now + lasts;
        // Not `is_same`: one namespace may have two names with different identifiers, and either may be found next.
        if !self.0.iter().any(|pending| pending.namespace == namespace && pending.fence.until >= until) {
            self.0.retain(|pending| pending.namespace != namespace);
            // A disk that was held or refused passes on the fence it found.
            let of_others = || hold.inherited_fence().and_then(|fence| fence.of.clone());
            let of = if is_own { Some(disk.to_owned()) } else { of_others() };
            self.0.push(PendingFence { fence: InheritedFence { until, of }, namespace, association });
        }
        Some(lasts)
    }

    /// The longest fence that a disk on this namespace has to inherit before it is opened. `None` if its hold knows of
    /// that fence. A disk that only reads waits too, because its data must not change while it reads.
    #[must_use]
    pub fn to_inherit(&self, now: Instant, namespace: &NamespaceName, hold: &DiskHold) -> Option<&PendingFence> {
        let known_until = hold.inherited_fence().map_or(now, |fence| fence.until.max(now));
        let on_namespace = self.0.iter().filter(|pending| namespace.is_same(&pending.namespace));
        let longest = on_namespace.max_by_key(|pending| pending.fence.until);
        longest.filter(|pending| pending.fence.until > known_until)
    }
}

#[cfg(test)]
mod tests {
    use mpath_core::{Epoch, PathId};
    use nvme_tcp::host::NamespaceIdentity;

    use super::*;
    use crate::AssociationId;
    use crate::record::{DaemonRun, DiskShutdown, Record, RecordContent};
    use crate::testing::namespace;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(uuid: u8, nguid: u8) -> NamespaceName {
        NamespaceName::new("nqn.example", &NamespaceIdentity { uuid: [uuid; 16], nguid: [nguid; 16], ..namespace() })
    }

    /// The fence that a disk leaves after its own associations, and after a fence that it has inherited.
    fn left(now: Instant, of: &NamespaceName, own: Option<Duration>, inherited: Duration) -> Option<RemainingFence> {
        let run = DaemonRun::new("this".into(), now);
        let association =
            |fence: Duration| RecordedAssociation { path: "tcp://a".into(), cntlid: 7, fence_ms: fence.as_millis() };
        let (mut record, _) = Record::open(RecordContent::default(), &run, now);
        if let Some(own) = own {
            record.add(AssociationId { path: PathId(0), epoch: Epoch(1) }, association(own));
        }
        record.inherit(association(inherited));
        let leaving = DiskShutdown { in_doubt: true, inherited_left: inherited, unanswered: false, lost_writes: false };
        record.end(Some(of), leaving, &run, now).1
    }

    fn hold(inherited: Option<InheritedFence>) -> DiskHold {
        DiskHold::new(inherited, false)
    }

    /// The name with more identifiers has the shorter fence.
    #[test]
    fn a_fence_is_found_by_each_name_of_its_namespace() {
        let (mut pending, now) = (PendingFences::default(), Instant::now());
        for (namespace, fence) in [(name(7, 0), 20 * SECOND), (name(7, 8), 10 * SECOND)] {
            let left = left(now, &namespace, Some(fence), Duration::ZERO).unwrap();
            assert_eq!(pending.disk_removed(now, "disk", false, &hold(None), left), Some(fence));
        }
        let left =
            |name: NamespaceName| pending.to_inherit(now, &name, &hold(None)).map(|pending| pending.fence.until - now);
        assert_eq!(left(name(7, 0)), Some(20 * SECOND));
        assert_eq!((left(name(0, 8)), left(name(0, 9))), (Some(10 * SECOND), None));
        let known = hold(Some(InheritedFence { until: now + 20 * SECOND, of: None }));
        assert!(pending.to_inherit(now, &name(7, 0), &known).is_none(), "inherited already");
        assert!(pending.to_inherit(now + 20 * SECOND, &name(7, 0), &hold(None)).is_none(), "over");
        let pending = pending.to_inherit(now, &name(7, 0), &hold(None)).unwrap();
        assert_eq!(pending.fence.of.as_deref(), Some("disk"));
        assert_eq!(pending.recorded(now + SECOND).fence_ms, 19_001);
    }

    #[test]
    fn the_longer_fence_on_a_namespace_stays() {
        let (mut pending, now) = (PendingFences::default(), Instant::now());
        for fence in [20 * SECOND, 10 * SECOND] {
            let left = left(now, &name(7, 0), Some(fence), Duration::ZERO).unwrap();
            pending.disk_removed(now, "disk", false, &hold(None), left);
        }
        let found = pending.to_inherit(now, &name(7, 0), &hold(None)).unwrap();
        assert_eq!((found.fence.until - now, pending.0.len()), (20 * SECOND, 1));
    }

    #[test]
    fn a_disk_that_only_reads_passes_on_what_it_has_inherited() {
        let (mut pending, now) = (PendingFences::default(), Instant::now());
        let waits = hold(Some(InheritedFence { until: now + 3 * SECOND, of: Some("before".into()) }));
        let own = left(now, &name(7, 0), Some(9 * SECOND), Duration::ZERO).unwrap();
        assert_eq!(pending.disk_removed(now, "disk", true, &hold(None), own), None);
        let both = left(now, &name(7, 0), Some(9 * SECOND), 3 * SECOND).unwrap();
        assert_eq!(pending.disk_removed(now, "disk", true, &waits, both), Some(3 * SECOND));
        let found = pending.to_inherit(now, &name(7, 0), &hold(None)).unwrap();
        assert_eq!((found.fence.until - now, found.fence.of.as_deref()), (3 * SECOND, Some("before")));
    }
}
