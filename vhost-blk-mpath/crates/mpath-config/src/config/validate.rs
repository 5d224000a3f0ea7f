//! Decides: the configuration is consistent.
//!
//! Checks of values against each other.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use super::{
    Config, ConflictError, DiskConfig, DiskName, MAX_DISCOVERY, MAX_DISKS, MAX_PATHS, MAX_SHARING, SocketPath,
};

/// The place of a disk in the configuration. Positions count from 0, as in the path of a YAML error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskPlace {
    /// Position of the disk, or of the disk whose paths it shares.
    pub disk: usize,
    /// Position in that disk's `share-paths-with`, if it is there.
    pub sharer: Option<usize>,
}

impl fmt::Display for DiskPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disks[{}]", self.disk)?;
        self.sharer.map_or(Ok(()), |sharer| write!(f, ".share-paths-with[{sharer}]"))
    }
}

/// A disk of either kind, with what must be unique.
struct PlacedDisk<'a> {
    place: DiskPlace,
    name: &'a DiskName,
    socket: &'a SocketPath,
}

impl Config {
    /// Checks counts, and that names, sockets, namespaces and paths are unique. Also checks that `hostnqn` conforms: unlike the NQN
    /// of a subsystem, no target dictates it. Returns the first conflict.
    pub fn validate(&self) -> Result<(), ConflictError> {
        self.conflicts().into_iter().next().map_or(Ok(()), Err)
    }

    /// All conflicts of [`Config::validate`].
    #[must_use]
    pub fn conflicts(&self) -> Vec<ConflictError> {
        let mut conflicts = Vec::new();
        if let Some(name) = self.hostnqn.as_ref().filter(|name| !name.has_form()) {
            conflicts.push(ConflictError::HostNqn { name: name.clone() });
        }
        if let Some(pool) = self.io_thread_pool.filter(|pool| pool.get() < self.io_threads.get()) {
            conflicts.push(ConflictError::SmallPool { pool: pool.get(), io_threads: self.io_threads.get() });
        }
        let disks: Vec<_> = self.disks.iter().enumerate().flat_map(|(index, disk)| placed(index, disk)).collect();
        if disks.is_empty() || disks.len() > MAX_DISKS {
            let sharing = disks.len() - self.disks.len();
            conflicts.push(ConflictError::DiskCount { count: disks.len(), sharing });
        }
        conflicts.extend(repeated(disks.iter().map(|disk| disk.name)).map(|(first, second)| ConflictError::SameName {
            first: disks[first].place,
            second: disks[second].place,
            name: disks[second].name.clone(),
        }));
        if self.api_read_only.is_none() && !self.api_read_only_access().is_default() {
            conflicts.push(ConflictError::NoReadOnlyApi);
        }
        if self.api_read_only.as_ref() == Some(&self.api) {
            conflicts.push(ConflictError::SameApiSocket { path: self.api.clone() });
        }
        let of_api = disks.iter().filter(|disk| self.api_sockets().any(|api| api == disk.socket));
        conflicts.extend(of_api.map(|disk| ConflictError::ApiSocket { disk: disk.place, path: disk.socket.clone() }));
        for (index, disk) in self.disks.iter().enumerate() {
            check_paths(index, disk, &mut conflicts);
            if disk.drain_fence && disk.uses_tls() {
                conflicts.push(ConflictError::DrainWithTls { disk: index });
            }
            if disk.discovery_tls_key_file.is_some() && disk.discovery.is_empty() {
                conflicts.push(ConflictError::NoDiscovery { disk: index });
            }
            if disk.dhchap_ctrl_secret_file.is_some() && disk.dhchap_secret_file.is_none() {
                conflicts.push(ConflictError::NoHostSecret { disk: index });
            }
            if disk.concat && disk.dhchap_secret_file.is_none() {
                conflicts.push(ConflictError::ConcatWithoutSecret { disk: index });
            }
            if disk.concat && disk.tls_key_file.is_some() {
                conflicts.push(ConflictError::ConcatWithKey { disk: index });
            }
            check_sharers(index, disk, &mut conflicts);
        }
        conflicts.extend(repeated(disks.iter().map(|disk| disk.socket)).map(|(first, second)| {
            let (path, first, second) = (disks[second].socket.clone(), disks[first].place, disks[second].place);
            ConflictError::SameSocket { first, second, path }
        }));
        conflicts
    }
}

/// A disk, and the disks that share its paths.
fn placed(index: usize, disk: &DiskConfig) -> impl Iterator<Item = PlacedDisk<'_>> {
    let place = move |sharer| DiskPlace { disk: index, sharer };
    let first = PlacedDisk { place: place(None), name: &disk.name, socket: &disk.socket_path };
    let sharers = disk.share_paths_with.iter().enumerate();
    std::iter::once(first).chain(sharers.map(move |(sharer, config)| PlacedDisk {
        place: place(Some(sharer)),
        name: &config.name,
        socket: &config.socket_path,
    }))
}

fn check_paths(index: usize, disk: &DiskConfig, conflicts: &mut Vec<ConflictError>) {
    if disk.paths.is_empty() && disk.discovery.is_empty() {
        conflicts.push(ConflictError::NoPath { disk: index });
    }
    if disk.paths.len() > MAX_PATHS {
        conflicts.push(ConflictError::PathCount { disk: index, count: disk.paths.len() });
    }
    if disk.discovery.len() > MAX_DISCOVERY {
        conflicts.push(ConflictError::DiscoveryCount { disk: index, count: disk.discovery.len() });
    }
    conflicts.extend(repeated(&disk.discovery).map(|(first, second)| ConflictError::SameDiscovery {
        disk: index,
        first,
        second,
        address: disk.discovery[second].clone(),
    }));
    conflicts.extend(repeated(&disk.paths).map(|(first, second)| ConflictError::SamePath {
        disk: index,
        first,
        second,
        address: disk.paths[second].clone(),
    }));
}

fn check_sharers(index: usize, disk: &DiskConfig, conflicts: &mut Vec<ConflictError>) {
    let sharers = &disk.share_paths_with;
    if sharers.is_empty() {
        return;
    }
    if sharers.len() >= MAX_SHARING {
        conflicts.push(ConflictError::SharerCount { disk: index, count: sharers.len() });
    }
    if disk.namespace.is_none() {
        conflicts.push(ConflictError::NoNamespace { disk: index, name: disk.name.clone() });
    }
    let own = disk.namespace.map(|namespace| (None, namespace));
    let others = sharers.iter().enumerate().map(|(sharer, config)| (Some(sharer), config.namespace));
    let namespaces: Vec<_> = own.into_iter().chain(others).collect();
    let place = |position: usize| DiskPlace { disk: index, sharer: namespaces[position].0 };
    conflicts.extend(repeated(namespaces.iter().map(|(_, namespace)| namespace)).map(|(first, second)| {
        ConflictError::SameNamespace { first: place(first), second: place(second), namespace: namespaces[second].1 }
    }));
}

/// The positions of each item that is equal to an earlier one, after the position of the first such item.
fn repeated<T: Eq + Hash>(items: impl IntoIterator<Item = T>) -> impl Iterator<Item = (usize, usize)> {
    let mut seen = HashMap::new();
    items.into_iter().enumerate().filter_map(move |(index, item)| {
        let first = *seen.entry(item).or_insert(index);
        (first != index).then_some((first, index))
    })
}
