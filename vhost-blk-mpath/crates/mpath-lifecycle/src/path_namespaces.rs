//! Decides: a path leads to a disk, and its size bounds growth.
//!
//! The namespaces of all disks on one path, as its controller reports them.
//!
//! They count from just before an association becomes live until every I/O thread has closed its queue pair. As long as
//! an I/O thread may use the path, no disk grows beyond what its controller reports.

use mpath_core::{AnaState, DiskId};

use crate::disks::{NamespaceUpdate, ServedNamespace, Unusable};

/// The namespace of one disk on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceStatus {
    /// `persistent-loss` if the namespace cannot be used.
    pub ana: AnaState,
    /// Why it cannot be used.
    pub unusable: Option<String>,
    /// Its size on this path in blocks; 0 if it cannot be used.
    pub blocks: u64,
}

impl NamespaceStatus {
    /// The ANA state that the controller has reported.
    #[must_use]
    pub fn reported_ana(&self) -> Option<AnaState> {
        self.unusable.is_none().then_some(self.ana)
    }
}

impl From<NamespaceUpdate> for NamespaceStatus {
    fn from(update: NamespaceUpdate) -> Self {
        Self { ana: update.state, unusable: update.unusable, blocks: update.blocks }
    }
}

/// The namespaces on one path by disk. There are none without an association.
#[derive(Debug, Default)]
pub struct PathNamespaces(Vec<NamespaceStatus>);

impl PathNamespaces {
    /// Begins with the namespaces of an association that is about to become live. `served` has the namespaces of disks
    /// at this moment.
    ///
    /// # Errors
    /// A disk has grown beyond its namespace on this path, and nothing has begun.
    pub fn begin(
        &mut self,
        namespaces: Vec<NamespaceUpdate>,
        served: impl Fn(DiskId) -> Option<ServedNamespace>,
    ) -> Result<(), (DiskId, Unusable)> {
        namespaces.iter().filter(|update| update.unusable.is_none()).try_for_each(|update| {
            let checked = served(update.disk).map_or(Ok(()), |served| served.check_size(update.blocks));
            checked.map_err(|error| (update.disk, error))
        })?;
        self.0 = namespaces.into_iter().map(NamespaceStatus::from).collect();
        Ok(())
    }

    /// Takes a change, once the I/O threads were told.
    pub fn update(&mut self, update: NamespaceUpdate) {
        let disk = usize::from(update.disk.0);
        self.0[disk] = update.into();
    }

    /// Ends: every I/O thread has closed its queue pair.
    pub fn end(&mut self) {
        self.0.clear();
    }

    /// The namespace of that disk.
    #[must_use]
    pub fn of(&self, disk: DiskId) -> Option<&NamespaceStatus> {
        self.0.get(usize::from(disk.0))
    }

    /// The blocks of that disk's namespace. `None` if the path does not lead to it.
    #[must_use]
    pub fn blocks(&self, disk: DiskId) -> Option<u64> {
        self.of(disk).filter(|namespace| namespace.unusable.is_none()).map(|namespace| namespace.blocks)
    }

    /// Whether the path leads to the namespace of that disk.
    #[must_use]
    pub fn leads_to(&self, disk: DiskId) -> bool {
        self.blocks(disk).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::namespace;

    const DISKS: [DiskId; 2] = [DiskId(0), DiskId(1)];

    fn update(disk: DiskId, blocks: u64) -> NamespaceUpdate {
        let state = AnaState::Optimized;
        NamespaceUpdate { disk, state, unusable: None, blocks, added: None, changed: true }
    }

    fn gone(disk: DiskId) -> NamespaceUpdate {
        let state = AnaState::PersistentLoss;
        NamespaceUpdate { disk, state, unusable: Some("gone".into()), blocks: 0, added: None, changed: true }
    }

    fn begin(path: &mut PathNamespaces, updates: [NamespaceUpdate; 2], shown_blocks: u64) -> Result<(), DiskId> {
        let served = ServedNamespace { namespace: namespace(), shown_blocks };
        path.begin(updates.into(), |_| Some(served)).map_err(|(disk, _)| disk)
    }

    fn blocks(path: &PathNamespaces) -> [Option<u64>; 2] {
        DISKS.map(|disk| path.blocks(disk))
    }

    #[test]
    fn a_path_counts_for_a_disk_from_its_admission_to_its_end() {
        let mut path = PathNamespaces::default();
        assert_eq!((blocks(&path), path.of(DISKS[0])), ([None; 2], None));
        begin(&mut path, [update(DISKS[0], 2000), gone(DISKS[1])], 1000).unwrap();
        assert_eq!(blocks(&path), [Some(2000), None], "a namespace that cannot be used bounds no growth");
        assert_eq!(path.of(DISKS[1]).and_then(NamespaceStatus::reported_ana), None);
        path.update(gone(DISKS[0]));
        path.update(update(DISKS[1], 3000));
        assert_eq!((blocks(&path), DISKS.map(|disk| path.leads_to(disk))), ([None, Some(3000)], [false, true]));
        path.end();
        assert_eq!((blocks(&path), path.of(DISKS[1])), ([None; 2], None));
    }

    /// Disks may have grown since the path was admitted.
    #[test]
    fn a_path_with_fewer_blocks_than_guests_see_does_not_begin() {
        let mut path = PathNamespaces::default();
        assert_eq!(begin(&mut path, [update(DISKS[0], 2000), update(DISKS[1], 1999)], 2000), Err(DISKS[1]));
        assert_eq!(blocks(&path), [None; 2]);
        begin(&mut path, [update(DISKS[0], 2000), gone(DISKS[1])], 2000).unwrap();
        assert_eq!(blocks(&path), [Some(2000), None]);
    }
}
