//! No two disks of a daemon write to one namespace: their guests know nothing of each other, and what one of them has written the other
//! would overwrite. Whose namespace it is, paths tell: the same one may be configured by its number, or as the subsystem's only one.
//!
//! Nor does one write to a namespace to which writes of a removed one may still be on their way: it waits for their fence, whichever
//! socket and paths it has.

use std::time::{Duration, Instant};

use mpath_host::{LeftFence, NamespaceName, RecordedAssociation};

use crate::disk::Disk;
use crate::service::start_error::StartError;
use crate::subsystem::Subsystem;

/// Checks that the disks of one subsystem write to nothing that those of others write to.
pub(crate) fn check<'a>(new: &Subsystem, mut others: impl Iterator<Item = &'a Subsystem>) -> Result<(), StartError> {
    others.try_for_each(|other| {
        let theirs = |ours: &Used<'_>| writers(other).find(|theirs| ours.namespace.is_same(&theirs.namespace));
        match writers(new).find_map(|ours| Some((theirs(&ours)?, ours))) {
            Some((of, Used { disk, namespace: NamespaceName { subsystem, nsid, .. } })) => {
                Err(StartError::SameNamespace { disk: disk.into(), of: of.disk.into(), nsid, subsystem })
            }
            None => Ok(()),
        }
    })
}

/// What a disk reads and writes.
struct Used<'a> {
    disk: &'a str,
    namespace: NamespaceName,
}

fn writers(subsystem: &Subsystem) -> impl Iterator<Item = Used<'_>> {
    used(subsystem, |disk| !disk.settings.read_only)
}

fn used(subsystem: &Subsystem, which: impl Fn(&Disk) -> bool) -> impl Iterator<Item = Used<'_>> {
    let disks = subsystem.disks.iter().filter(move |disk| which(disk));
    disks.filter_map(|disk| Some(Used { disk: disk.name(), namespace: subsystem.namespace_name(disk)? }))
}

/// The fences that removed disks have left on what they wrote to; each namespace once by each name.
#[derive(Default)]
pub(crate) struct LeftBehind(Vec<Left>);

/// Writes that may still be executed.
#[derive(Clone)]
pub(crate) struct Left {
    /// By which disk of this daemon, unless they are of whoever had its socket before.
    pub(crate) disk: Option<String>,
    namespace: NamespaceName,
    /// But not from then on.
    pub(crate) until: Instant,
    association: RecordedAssociation,
}

impl Left {
    /// What the record of whoever waits for it has to say, now.
    pub(crate) fn recorded(&self, now: Instant) -> RecordedAssociation {
        let left = self.until.saturating_duration_since(now);
        // The last one is a whole one.
        RecordedAssociation { fence_ms: left.as_millis() as u64 + 1, ..self.association.clone() }
    }
}

impl LeftBehind {
    /// A disk of a subsystem has left a fence on what it wrote to, or who had its socket before.
    pub(crate) fn add(&mut self, subsystem: &Subsystem, disk: &Disk, left: &LeftFence, now: Instant) {
        self.0.retain(|left| left.until > now);
        let LeftFence { association, namespace: Some(namespace), .. } = left else { return };
        let until = now + Duration::from_millis(association.fence_ms);
        // Not by `is_same`: of one by two names, which tell different identifiers, either may be what it is known by next.
        if self.0.iter().any(|left| left.namespace == *namespace && left.until >= until) {
            return;
        }
        self.0.retain(|left| left.namespace != *namespace);
        // A disk that was held, or refused, passes on what it found.
        let of_others = || subsystem.inherited_fence().and_then(|fence| fence.of);
        let disk = if left.is_own { Some(disk.name().into()) } else { of_others() };
        self.0.push(Left { disk, namespace: namespace.clone(), until, association: association.clone() });
    }

    /// The longest of those that the disks of a subsystem have to wait for. Those that only read wait as well: they shall not see what
    /// they read change.
    pub(crate) fn on(&self, subsystem: &Subsystem, now: Instant) -> Option<&Left> {
        let counts = |left: &&Left| {
            left.until > now && used(subsystem, |_| true).any(|used| used.namespace.is_same(&left.namespace))
        };
        self.0.iter().filter(counts).max_by_key(|left| left.until)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mpath_core::{Epoch, PathId};
    use mpath_host::Leaving;
    use nvme_tcp::host::{HostIdentity, NamespaceIdentity};
    use tokio::sync::watch;

    use super::*;
    use crate::disk::geometry;
    use crate::events::EventLog;
    use crate::fence_record::FenceRecords;
    use crate::subsystem::common::Common;

    fn name(uuid: u8, nguid: u8) -> NamespaceName {
        let known = geometry::tests::controller().namespaces[0].as_ref().unwrap().identity;
        NamespaceName::new("nqn.example", &NamespaceIdentity { uuid: [uuid; 16], nguid: [nguid; 16], ..known })
    }

    /// The shorter fence is on a name that says more.
    #[tokio::test]
    async fn a_fence_counts_by_each_name_of_its_namespace() {
        let place = tempfile::tempdir().unwrap();
        let records = |file: &str| FenceRecords::open([place.path().join(file).as_path()].into_iter()).unwrap().0;
        let host = HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] };
        let common = Common { host, io_threads: 1, events: Arc::new(EventLog::new()) };
        let (_ends, ending) = watch::channel(false);
        let subsystem = Subsystem::new(geometry::tests::config(), &common, records("disk"), None, ending);
        let (mut left_behind, now) = (LeftBehind::default(), Instant::now());
        for (file, namespace, fence_ms) in [("one", name(7, 0), 20_000), ("two", name(7, 8), 10_000)] {
            let records = records(file);
            records.set_namespace(0, namespace);
            let association = RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms };
            records.add(PathId(0), Epoch(1), association).await.unwrap();
            let left = records
                .end(&[Leaving {
                    in_doubt: true,
                    inherited_left: Duration::ZERO,
                    unanswered: false,
                    lost_writes: false,
                }])
                .remove(0)
                .unwrap();
            left_behind.add(&subsystem, &subsystem.disks[0], &left, now);
        }
        let by = |name: NamespaceName| left_behind.0.iter().filter(|left| left.namespace.is_same(&name)).count();
        assert_eq!((by(name(7, 0)), by(name(0, 8)), by(name(0, 9))), (2, 1, 0));
    }
}
