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
    /// of a subsystem, no target dictates it.
    pub fn validate(&self) -> Result<(), ConflictError> {
        if let Some(name) = self.hostnqn.as_ref().filter(|name| !name.has_form()) {
            return Err(ConflictError::HostNqn { name: name.clone() });
        }
        let disks: Vec<_> = self.disks.iter().enumerate().flat_map(|(index, disk)| placed(index, disk)).collect();
        if disks.is_empty() || disks.len() > MAX_DISKS {
            let sharing = disks.len() - self.disks.len();
            return Err(ConflictError::DiskCount { count: disks.len(), sharing });
        }
        unique(disks.iter().map(|disk| disk.name)).map_err(|(first, second)| ConflictError::SameName {
            first: disks[first].place,
            second: disks[second].place,
            name: disks[second].name.clone(),
        })?;
        if let Some(disk) = disks.iter().find(|disk| *disk.socket == self.api) {
            return Err(ConflictError::ApiSocket { disk: disk.place, path: self.api.clone() });
        }
        for (index, disk) in self.disks.iter().enumerate() {
            check_paths(index, disk)?;
            check_sharers(index, disk)?;
        }
        unique(disks.iter().map(|disk| disk.socket)).map_err(|(first, second)| ConflictError::SameSocket {
            first: disks[first].place,
            second: disks[second].place,
            path: disks[second].socket.clone(),
        })
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

fn check_paths(index: usize, disk: &DiskConfig) -> Result<(), ConflictError> {
    if disk.paths.is_empty() && disk.discovery.is_empty() {
        return Err(ConflictError::NoPath { disk: index });
    }
    if disk.paths.len() > MAX_PATHS {
        return Err(ConflictError::PathCount { disk: index, count: disk.paths.len() });
    }
    if disk.discovery.len() > MAX_DISCOVERY {
        return Err(ConflictError::DiscoveryCount { disk: index, count: disk.discovery.len() });
    }
    unique(&disk.discovery).map_err(|(first, second)| ConflictError::SameDiscovery {
        disk: index,
        first,
        second,
        address: disk.discovery[second].clone(),
    })?;
    unique(&disk.paths).map_err(|(first, second)| ConflictError::SamePath {
        disk: index,
        first,
        second,
        address: disk.paths[second].clone(),
    })
}

fn check_sharers(index: usize, disk: &DiskConfig) -> Result<(), ConflictError> {
    let sharers = &disk.share_paths_with;
    if sharers.is_empty() {
        return Ok(());
    }
    if sharers.len() >= MAX_SHARING {
        return Err(ConflictError::SharerCount { disk: index, count: sharers.len() });
    }
    let own = disk.namespace.ok_or_else(|| ConflictError::NoNamespace { disk: index, name: disk.name.clone() })?;
    let namespaces: Vec<_> = std::iter::once(own).chain(sharers.iter().map(|sharer| sharer.namespace)).collect();
    let place = |position: usize| DiskPlace { disk: index, sharer: position.checked_sub(1) };
    unique(&namespaces).map_err(|(first, second)| ConflictError::SameNamespace {
        first: place(first),
        second: place(second),
        namespace: namespaces[second],
    })
}

/// The positions of the first two equal items, if any.
fn unique<T: Eq + Hash>(items: impl IntoIterator<Item = T>) -> Result<(), (usize, usize)> {
    let mut seen = HashMap::new();
    for (index, item) in items.into_iter().enumerate() {
        if let Some(first) = seen.insert(item, index) {
            return Err((first, index));
        }
    }
    Ok(())
}
