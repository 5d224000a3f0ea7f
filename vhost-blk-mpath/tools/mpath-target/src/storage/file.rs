//! A namespace in a file. The page cache is its volatile write cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::Store;

/// Zeroes, which are written in parts of this size if the file system can neither punch holes nor zero ranges.
static ZEROES: [u8; 128 * 1024] = [0; 128 * 1024];

/// Why a file cannot hold a namespace.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is not a regular file: give a regular file, or a path where one can be created", path.display())]
    NotRegular { path: PathBuf },
    /// The file is longer than the namespace, so a part of it would be inaccessible.
    #[error(
        "{} has {actual} bytes, more than the namespace with {wanted}: give the size of the file, or another file",
        path.display()
    )]
    Longer { path: PathBuf, actual: u64, wanted: u64 },
}

/// A namespace in a regular file.
pub(crate) struct FileStore {
    file: File,
    identity: FileIdentity,
}

/// The identity of a file on this machine. It survives renames and restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl FileStore {
    /// Opens `path` for `bytes` bytes, creating it (sparse) or extending it as needed.
    pub(crate) fn open(path: &Path, bytes: u64) -> Result<Self, FileError> {
        let failed = |source| FileError::Open { path: path.to_owned(), source };
        // Check the type first: opening a pipe or a terminal may block or have side effects.
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            return Err(FileError::NotRegular { path: path.to_owned() });
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if meta.len() > bytes {
            let path = path.to_owned();
            return Err(FileError::Longer { path, actual: meta.len(), wanted: bytes });
        }
        if meta.len() < bytes {
            file.set_len(bytes).map_err(failed)?;
        }
        let identity = FileIdentity { dev: meta.dev(), ino: meta.ino() };
        Ok(Self { file, identity })
    }

    pub(crate) fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Calls fallocate. Returns `false` if the file system does not support the operation.
    fn try_fallocate(&self, flags: FallocateFlags, offset: u64, bytes: u64) -> io::Result<bool> {
        loop {
            match rustix::fs::fallocate(&self.file, flags, offset, bytes) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Store for FileStore {
    fn read(&self, offset: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + bytes, 0);
        self.file.read_exact_at(&mut out[start..], offset)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> io::Result<()> {
        self.file.write_all_at(data, offset)?;
        if fua { self.flush() } else { Ok(()) }
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, deallocate: bool, fua: bool) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let keep = FallocateFlags::KEEP_SIZE;
        let punched = deallocate && self.try_fallocate(FallocateFlags::PUNCH_HOLE | keep, offset, bytes)?;
        if !punched && !self.try_fallocate(FallocateFlags::ZERO_RANGE | keep, offset, bytes)? {
            let end = offset + bytes;
            let mut at = offset;
            while at < end {
                let len = (end - at).min(ZEROES.len() as u64);
                self.file.write_all_at(&ZEROES[..len as usize], at)?;
                at += len;
            }
        }
        if fua { self.flush() } else { Ok(()) }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_survive_a_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let store = FileStore::open(&path, 1 << 20).unwrap();
        store.write(4096, &[5; 512], true).unwrap();
        let identity = store.identity();
        drop(store);
        let store = FileStore::open(&path, 1 << 20).unwrap();
        let mut buf = Vec::new();
        store.read(4096, 1024, &mut buf).unwrap();
        assert_eq!(buf[..512], [5; 512]);
        assert_eq!(buf[512..], [0; 512]);
        assert_eq!(store.identity(), identity);
    }

    #[test]
    fn zeroes_and_holes_read_as_zero_and_keep_the_size() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(&dir.path().join("disk"), 1 << 20).unwrap();
        for deallocate in [false, true] {
            store.write(0, &vec![1; 1 << 20], false).unwrap();
            store.write_zeroes(512, (1 << 20) - 512, deallocate, false).unwrap();
            let mut buf = Vec::new();
            store.read(0, 1 << 20, &mut buf).unwrap();
            assert_eq!(buf[..512], [1; 512]);
            assert!(buf[512..].iter().all(|&byte| byte == 0));
        }
        assert_eq!(store.file.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_longer_file_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, [1; 4096]).unwrap();
        let error = FileStore::open(&path, 2048).err().unwrap();
        assert!(matches!(error, FileError::Longer { actual: 4096, wanted: 2048, .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), [1; 4096]);
    }

    #[test]
    fn a_path_that_is_not_a_regular_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = FileStore::open(dir.path(), 4096).err().unwrap();
        assert!(matches!(error, FileError::NotRegular { .. }), "{error}");
        let error = FileStore::open(Path::new("/dev/null"), 4096).err().unwrap();
        assert!(matches!(error, FileError::NotRegular { .. }), "{error}");
    }
}
