//! Small files next to a socket: bounded reads, and durable replacement as a whole.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Far larger than any of these files.
pub(super) const LARGEST_BYTES: u64 = 1 << 20;

/// The path of `file` with this suffix.
pub(crate) fn with_suffix(file: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Reads a file; `None` if there is none.
pub(super) fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() <= LARGEST_BYTES => fs::read(file).map(Some),
        Ok(_) => Err(io::ErrorKind::FileTooLarge.into()),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens an ordinary file. Neither follows a link that another user has put there, nor waits for the other end of a pipe.
pub(super) fn open(file: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not an ordinary file")) }
}

/// Replaces the file by this value as JSON. File and directory are synced when this returns.
pub(super) fn replace(file: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    replace_with(file, &text)
}

/// Replaces the file. File and directory are synced when this returns.
pub(super) fn replace_with(file: &Path, content: &[u8]) -> io::Result<()> {
    let new = with_suffix(file, ".new");
    let mut writing = open(&new, File::options().write(true).create(true).truncate(true))?;
    writing.write_all(content)?;
    writing.sync_all()?;
    fs::rename(&new, file)?;
    sync_directory(file)
}

/// Removes the file, if it exists. The directory is synced when this returns.
pub(super) fn remove(file: &Path) -> io::Result<()> {
    fs::remove_file(file).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    sync_directory(file)
}

fn sync_directory(file: &Path) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_for_its_owner_alone() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        replace(&file, &1).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
