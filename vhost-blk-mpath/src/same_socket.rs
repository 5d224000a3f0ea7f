//! A socket is the same however its path is spelled. Who takes another disk's under another name would wait for the lock beside it, which
//! this very daemon has.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;

use mpath_api::config::SocketPath;

/// Device and inode of its directory, and its name there; none if there is no such directory.
fn place(path: &SocketPath) -> Option<((u64, u64), &OsStr)> {
    let path = path.as_path();
    let directory = fs::metadata(path.parent()?).ok()?;
    Some(((directory.dev(), directory.ino()), path.file_name()?))
}

/// The first two that are one, of these and of those, by position. Blocks as long as a file system does.
pub(crate) fn find(these: &[SocketPath], those: &[SocketPath]) -> Option<(usize, usize)> {
    let places: Vec<_> = those.iter().map(place).collect();
    these.iter().enumerate().find_map(|(index, path)| {
        let here = place(path)?;
        Some((index, places.iter().position(|place| *place == Some(here))?))
    })
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
        let path = |name: &str| format!("{root}/{name}").parse::<SocketPath>().unwrap();
        let there = [path("other"), path("disk.sock"), path("nowhere/./disk.sock")];
        for same in ["disk.sock", "./disk.sock", "/disk.sock", "sub/../disk.sock", "link/disk.sock"] {
            assert_eq!(find(&[path("new"), path(same)], &there), Some((1, 1)), "{same}");
        }
        // Directories that are not there are not one another.
        for different in ["sub/disk.sock", "Disk.sock", "nowhere/disk.sock"] {
            assert_eq!(find(&[path(different)], &there), None, "{different}");
        }
    }
}
