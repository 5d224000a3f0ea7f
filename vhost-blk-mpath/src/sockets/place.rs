//! A socket is the same however its path is spelled. Who takes another disk's under another name would be told that another process
//! listens on it, or wait for the lock beside it, which this very daemon has.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mpath_api::Config;
use mpath_api::config::{DiskName, SocketPath};

use crate::disk::settings::DiskSettings;

/// Where a socket is: device and inode of its directory, and its name there. Once it is known no file system has to be asked again: one that
/// does not answer any more holds up nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    directory: (u64, u64),
    name: OsString,
}

impl Place {
    /// None if there is no such directory. Blocks as long as a file system does.
    pub(crate) fn of(socket: &SocketPath) -> Option<Self> {
        let path = socket.as_path();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = fs::metadata(parent.unwrap_or(Path::new("."))).ok()?;
        Some(Self { directory: (directory.dev(), directory.ino()), name: path.file_name()?.to_owned() })
    }
}

/// Two disks of a configuration have one socket, or a disk has the API's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SameSocket {
    #[error(
        "disk {disk}: its `socket-path`, {socket}, is also that of disk {of}, by the name of {other}; give each disk its own"
    )]
    Disk { disk: DiskName, socket: SocketPath, of: DiskName, other: SocketPath },
    #[error(
        "disk {disk}: its `socket-path`, {socket}, is also the API's socket, by the name of {api}; give each its own"
    )]
    Api { disk: DiskName, socket: SocketPath, api: SocketPath },
}

/// Checks that each disk has a socket of its own, and none the API's. Those that are spelled alike were refused before.
pub(crate) fn check(config: &Config) -> Result<(), SameSocket> {
    let api = Place::of(&config.api);
    let mut places: Vec<(Place, DiskSettings)> = Vec::new();
    for disk in config.disks.iter().flat_map(DiskSettings::all) {
        let Some(place) = Place::of(&disk.socket_path) else { continue };
        if api.as_ref() == Some(&place) {
            let api = config.api.clone();
            return Err(SameSocket::Api { disk: disk.name, socket: disk.socket_path, api });
        }
        if let Some((_, other)) = places.iter().find(|(there, _)| *there == place) {
            let (of, other) = (other.name.clone(), other.socket_path.clone());
            return Err(SameSocket::Disk { disk: disk.name, socket: disk.socket_path, of, other });
        }
        places.push((place, disk));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_any_spelling() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_str().unwrap();
        fs::create_dir(place.path().join("sub")).unwrap();
        std::os::unix::fs::symlink(root, place.path().join("link")).unwrap();
        let of = |path: &str| Place::of(&path.parse().unwrap());
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
        // From where the daemon is.
        let here = std::env::current_dir().unwrap();
        assert_eq!(of("disk.sock"), of(here.join("disk.sock").to_str().unwrap()));
        assert_eq!(of("./disk.sock"), of("disk.sock"));
    }
}
