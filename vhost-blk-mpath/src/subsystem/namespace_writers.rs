//! Decides: two disks may not write to one namespace.
//!
//! Ensures that no two disks of the daemon write to the same namespace. Their guests know nothing of each other and
//! would overwrite each other's data. Namespaces are compared as the paths identify them, not by NSID.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mpath_lifecycle::NamespaceName;

/// The namespaces that disks of the daemon write to. The first disk that a path leads to a namespace gets the
/// namespace.
#[derive(Default)]
pub(crate) struct NamespaceWriters(Mutex<Vec<Writer>>);

struct Writer {
    disk: String,
    /// The disk that owns the paths. Disks with the same owner never have the same namespace.
    owner: String,
    namespace: NamespaceName,
}

impl NamespaceWriters {
    /// Adds a disk that writes to the namespace. Fails with the name of the disk of another subsystem that already
    /// does.
    pub(crate) fn add(&self, owner: &str, disk: &str, namespace: &NamespaceName) -> Result<(), String> {
        let mut writers = self.writers();
        if let Some(other) = writers.iter().find(|other| other.owner != owner && other.namespace.is_same(namespace)) {
            return Err(other.disk.clone());
        }
        let is_there =
            |writer: &Writer| (&*writer.owner, &*writer.disk) == (owner, disk) && writer.namespace.is_same(namespace);
        if writers.iter().any(is_there) {
            return Ok(());
        }
        writers.push(Writer { disk: disk.to_owned(), owner: owner.to_owned(), namespace: namespace.clone() });
        Ok(())
    }

    /// Removes all disks that use this disk's paths. To be called when their writes cannot be executed any more, or
    /// are known to whoever uses the namespaces next.
    pub(crate) fn remove(&self, owner: &str) {
        self.writers().retain(|writer| writer.owner != owner);
    }

    /// Removes a disk from all namespaces but one. To be called when no guest of the others can come back, and no write
    /// to them can be executed any more.
    pub(crate) fn keep_only(&self, disk: &str, namespace: Option<&NamespaceName>) {
        let is_kept = |writer: &Writer| namespace.is_some_and(|kept| writer.namespace.is_same(kept));
        self.writers().retain(|writer| writer.disk != disk || is_kept(writer));
    }

    fn writers(&self) -> MutexGuard<'_, Vec<Writer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::geometry;

    #[test]
    fn a_namespace_has_the_writer_that_came_first() {
        let identity = geometry::tests::controller().namespaces[0].as_ref().unwrap().identity;
        let name = |uuid| {
            NamespaceName::new("nqn.example", &nvme_tcp::host::NamespaceIdentity { uuid: [uuid; 16], ..identity })
        };
        let writers = NamespaceWriters::default();
        assert_eq!(writers.add("a", "a", &name(1)), Ok(()));
        assert_eq!(writers.add("b", "sharer", &name(1)), Err("a".into()));
        assert_eq!(writers.add("b", "b", &name(2)), Ok(()));
        // A path that is refused for another reason is tried again and again.
        assert_eq!(writers.add("b", "b", &name(2)), Ok(()));
        assert_eq!(writers.writers().len(), 2);
        writers.keep_only("b", Some(&name(2)));
        assert_eq!(writers.writers().len(), 2);
        writers.remove("a");
        assert_eq!(writers.add("b", "sharer", &name(1)), Ok(()));
        assert_eq!(writers.add("a", "a", &name(2)), Err("b".into()));
    }
}
