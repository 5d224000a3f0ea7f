//! The lock beside a fence record: of two daemons that share a handed-over socket one serves the disk.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

const LOOK: Duration = Duration::from_millis(20);
/// More than the digits of a process id.
const PID_BYTES: u64 = 16;

/// Why it cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error("{}: another daemon{holder} serves this disk, or has not ended yet; end it first", file.display())]
    Held { file: PathBuf, holder: Holder },
    #[error("{}: cannot be locked: {source}; the directory of the vhost-user socket has to be writable", file.display())]
    Cannot { file: PathBuf, source: io::Error },
}

/// Who has a lock, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |pid| write!(f, " (pid {pid})"))
    }
}

/// A lock that ends with its process, if not before.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Has it, within that time. Blocks.
    pub(crate) fn wait_for(path: PathBuf, at_most: Duration) -> Result<Self, LockError> {
        let deadline = Instant::now() + at_most;
        let mut told = false;
        loop {
            match Self::take(&path) {
                Ok(Ok(file)) => return Ok(Self { path, _file: file }),
                Ok(Err(holder)) if Instant::now() < deadline => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(
                            "{}: another daemon{holder} serves this disk, or has not ended yet; waiting {at_most:?} at most for its end",
                            path.display()
                        );
                    }
                    thread::sleep(LOOK);
                }
                Ok(Err(holder)) => return Err(LockError::Held { file: path, holder }),
                Err(source) => return Err(LockError::Cannot { file: path, source }),
            }
        }
    }

    /// The file, with who has it in it, or who else has it.
    fn take(path: &Path) -> io::Result<Result<File, Holder>> {
        // What it leads to would be emptied.
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // Only for people: what it does not say is not known.
                let read = file.take(PID_BYTES).read_to_string(&mut text);
                return Ok(Err(Holder(read.ok().and_then(|_| text.trim_end().parse().ok()))));
            }
            Err(errno) => return Err(errno.into()),
        }
        // Whoever had it may have removed it since it was opened: then it keeps nobody out.
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let locked = identity(file.metadata()?);
        match fs::metadata(path).map(identity) {
            Ok(found) if found == locked => {
                // A full disk keeps nobody from the lock.
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                Ok(Ok(file))
            }
            Ok(_) => Ok(Err(Holder(None))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Err(Holder(None))),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked: nobody else can take this file for the lock any more.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "lock file stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn one_daemon_has_it_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("lock");
        let lock = |at_most| Lock::wait_for(file.clone(), at_most);
        let first = lock(Duration::ZERO).unwrap();
        let error = lock(Duration::from_millis(50)).unwrap_err();
        let (pid, name) = (std::process::id(), file.display());
        let message = "serves this disk, or has not ended yet; end it first";
        assert_eq!(error.to_string(), format!("{name}: another daemon (pid {pid}) {message}"));
        fs::write(&file, "nobody").unwrap();
        let error = lock(Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), format!("{name}: another daemon {message}"));
        // Each of those that wait has it once, and none beside another.
        let holders = Mutex::new(());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _lock = lock(Duration::from_secs(60)).unwrap();
                    let alone = holders.try_lock().expect("one at a time");
                    thread::sleep(Duration::from_millis(5));
                    drop(alone);
                });
            }
            drop(first);
        });
        assert!(!file.exists());
        // What a killed daemon left of it is no lock.
        fs::write(&file, "4194304 and more than there will be").unwrap();
        let again = lock(Duration::ZERO).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{pid}\n"));
        drop(again);
        fs::write(&file, "").unwrap();
        drop(lock(Duration::ZERO).unwrap());
    }
}
