//! The fences that removed disks have left. A new disk waits for the fence of a removed disk on the same namespace,
//! whichever socket and paths it uses.

use std::time::{Duration, Instant};

use mpath_host::{NamespaceName, RecordedAssociation, RemainingFence};

use crate::disk::Disk;

/// The fences that removed disks have left on their namespaces, once for each name of a namespace.
#[derive(Default)]
pub(crate) struct PendingFences(Vec<PendingFence>);

/// Writes that may still be executed.
#[derive(Clone)]
pub(crate) struct PendingFence {
    /// The disk of this daemon that sent them; `None` if an earlier daemon did.
    pub(crate) disk: Option<String>,
    namespace: NamespaceName,
    /// The end of the fence.
    pub(crate) until: Instant,
    association: RecordedAssociation,
}

impl PendingFence {
    /// The record of an association for the rest of the fence.
    pub(crate) fn recorded(&self, now: Instant) -> RecordedAssociation {
        let left = self.until.saturating_duration_since(now);
        // Round up to a whole millisecond.
        RecordedAssociation { fence_ms: left.as_millis() as u64 + 1, ..self.association.clone() }
    }
}

impl PendingFences {
    /// Adds the fence that a disk has left, its own or an inherited one.
    pub(crate) fn add(&mut self, disk: &Disk, left: &RemainingFence, now: Instant) {
        self.0.retain(|left| left.until > now);
        let RemainingFence { association, namespace: Some(namespace), .. } = left else { return };
        let until = now + Duration::from_millis(association.fence_ms);
        // Not `is_same`: one namespace may have two names with different identifiers, and either may be found next.
        if self.0.iter().any(|left| left.namespace == *namespace && left.until >= until) {
            return;
        }
        self.0.retain(|left| left.namespace != *namespace);
        // A disk that was held or refused passes on the fence it found.
        let of_others = || disk.inherited_fence().and_then(|fence| fence.of);
        let disk = if left.is_own { Some(disk.name().into()) } else { of_others() };
        self.0.push(PendingFence { disk, namespace: namespace.clone(), until, association: association.clone() });
    }

    /// The longest fence that a disk on this namespace has to wait for. A disk that only reads waits too, as its data
    /// must not change under it.
    pub(crate) fn on(&self, namespace: &NamespaceName, now: Instant) -> Option<&PendingFence> {
        let counts = |left: &&PendingFence| left.until > now && namespace.is_same(&left.namespace);
        self.0.iter().filter(counts).max_by_key(|left| left.until)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mpath_core::{Epoch, PathId};
    use mpath_host::DiskShutdown;
    use nvme_tcp::host::{HostIdentity, NamespaceIdentity};
    use tokio::sync::watch;

    use super::*;
    use crate::disk::geometry;
    use crate::events::EventLog;
    use crate::fence_record::FenceRecords;
    use crate::subsystem::Subsystem;
    use crate::subsystem::shared_context::SharedContext;

    fn name(uuid: u8, nguid: u8) -> NamespaceName {
        let known = geometry::tests::controller().namespaces[0].as_ref().unwrap().identity;
        NamespaceName::new("nqn.example", &NamespaceIdentity { uuid: [uuid; 16], nguid: [nguid; 16], ..known })
    }

    /// The name with more identifiers has the shorter fence.
    #[tokio::test]
    async fn a_fence_is_found_by_each_name_of_its_namespace() {
        let place = tempfile::tempdir().unwrap();
        let records = |file: &str| FenceRecords::open([place.path().join(file).as_path()].into_iter()).unwrap().0;
        let host = HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] };
        let common = SharedContext { host, io_threads: 1, events: Arc::new(EventLog::new()), writers: Arc::default() };
        let (_ends, ending) = watch::channel(false);
        let subsystem = Subsystem::new(geometry::tests::config(), &common, records("disk"), None, ending);
        let (mut pending_fences, now) = (PendingFences::default(), Instant::now());
        for (file, namespace, fence_ms) in [("one", name(7, 0), 20_000), ("two", name(7, 8), 10_000)] {
            let records = records(file);
            records.set_namespace(0, namespace);
            let association = RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms };
            records.add(PathId(0), Epoch(1), association).await.unwrap();
            let left = records
                .end(&[DiskShutdown {
                    in_doubt: true,
                    inherited_left: Duration::ZERO,
                    unanswered: false,
                    lost_writes: false,
                }])
                .remove(0)
                .unwrap();
            pending_fences.add(&subsystem.disks[0], &left, now);
        }
        let by = |name: NamespaceName| pending_fences.0.iter().filter(|left| left.namespace.is_same(&name)).count();
        assert_eq!((by(name(7, 0)), by(name(0, 8)), by(name(0, 9))), (2, 1, 0));
    }
}
