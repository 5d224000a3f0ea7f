//! Recognises a socket under any spelling of its path. Without this, a disk with another disk's socket would fail
//! with a misleading message about another process, or wait for a lock that this daemon itself holds.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mpath_config::{Config, DiskName, SocketPath};

use crate::disk::settings::DiskSettings;

/// The location of a socket: device and inode of its directory, and its file name. It is determined once, so that a
/// file system that hangs later delays no other disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketLocation {
    directory: (u64, u64),
    name: OsString,
}

impl SocketLocation {
    /// The location of this socket; `None` if the directory does not exist. Blocks as long as the file system does.
    pub(crate) fn of(socket: &SocketPath) -> Option<Self> {
        let path = socket.as_path();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = fs::metadata(parent.unwrap_or(Path::new("."))).ok()?;
        Some(Self { directory: (directory.dev(), directory.ino()), name: path.file_name()?.to_owned() })
    }
}

/// Two disks of a configuration use one socket, or a disk uses the API's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketConflict {
    #[error("disk {disk}: `socket-path` {socket} is the same socket as {other} of disk {of}; give each disk its own")]
    Disk { disk: DiskName, socket: SocketPath, of: DiskName, other: SocketPath },
    #[error("disk {disk}: `socket-path` {socket} is the same socket as the API's, {api}; give each its own")]
    Api { disk: DiskName, socket: SocketPath, api: SocketPath },
    #[error("`api-read-only` {read_only} is the same socket as `api` {api}; give each its own")]
    Apis { api: SocketPath, read_only: SocketPath },
}

/// Checks that each disk has its own socket and does not use the API's. Returns the first conflict.
pub(crate) fn check(config: &Config) -> Result<(), SocketConflict> {
    conflicts(config).into_iter().next().map_or(Ok(()), Err)
}

/// All conflicts of [`check`]. Identical spellings were refused before.
pub(crate) fn conflicts(config: &Config) -> Vec<SocketConflict> {
    let apis: Vec<_> = config.api_sockets().filter_map(|api| Some((SocketLocation::of(api)?, api))).collect();
    let mut places: Vec<(SocketLocation, DiskSettings)> = Vec::new();
    let mut conflicts = Vec::new();
    if let [(first, api), (second, read_only)] = &apis[..]
        && first == second
    {
        conflicts.push(SocketConflict::Apis { api: (*api).clone(), read_only: (*read_only).clone() });
    }
    for disk in config.disks.iter().flat_map(DiskSettings::all) {
        let Some(place) = SocketLocation::of(&disk.socket_path) else { continue };
        let socket = disk.socket_path.clone();
        if let Some((_, api)) = apis.iter().find(|(there, _)| *there == place) {
            conflicts.push(SocketConflict::Api { disk: disk.name, socket, api: (*api).clone() });
        } else if let Some((_, other)) = places.iter().find(|(there, _)| *there == place) {
            let (of, other) = (other.name.clone(), other.socket_path.clone());
            conflicts.push(SocketConflict::Disk { disk: disk.name, socket, of, other });
        } else {
            places.push((place, disk));
        }
    }
    conflicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_recognised_under_any_spelling() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_str().unwrap();
        fs::create_dir(place.path().join("sub")).unwrap();
        std::os::unix::fs::symlink(root, place.path().join("link")).unwrap();
        let of = |path: &str| SocketLocation::of(&path.parse().unwrap());
        let at = |name: &str| of(&format!("{root}/{name}"));
        let disk = at("disk.sock");
        assert!(disk.is_some());
        for same in ["./disk.sock", "/disk.sock", "sub/../disk.sock", "link/disk.sock"] {
            assert_eq!(at(same), disk, "{same}");
        }
        for different in ["sub/disk.sock", "Disk.sock"] {
            assert_ne!(at(different), disk, "{different}");
        }
        assert_eq!(at("nowhere/disk.sock"), None, "and no other one is the same");
        // A relative path counts from the working directory.
        let here = std::env::current_dir().unwrap();
        assert_eq!(of("disk.sock"), of(here.join("disk.sock").to_str().unwrap()));
        assert_eq!(of("./disk.sock"), of("disk.sock"));
    }
}
