//! Decides: two daemons may not serve one disk.
//!
//! The lock of a fence record, a file next to it. Only one of two daemons that share an activation socket serves the disk.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use monotonic::{Duration, Instant};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// More than the digits of a process id.
const PID_BYTES: u64 = 16;

/// Why the lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error("cannot lock {}: another daemon{holder} serves this disk or is still ending; stop it first", file.display())]
    Held { file: PathBuf, holder: Holder },
    #[error("cannot lock {}: {source}; its directory has to be writable", file.display())]
    Cannot { file: PathBuf, source: io::Error },
}

/// The process that holds the lock, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |pid| write!(f, " (pid {pid})"))
    }
}

/// A lock. It ends with its process at the latest.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock, and waits at most that long. Blocks.
    pub(crate) fn wait_for(path: PathBuf, at_most: Duration) -> Result<Self, LockError> {
        let deadline = Instant::now() + at_most;
        let mut has_warned = false;
        loop {
            match Self::try_lock(&path) {
                Ok(Ok(file)) => return Ok(Self { path, _file: file }),
                Ok(Err(holder)) if Instant::now() < deadline => {
                    if !std::mem::replace(&mut has_warned, true) {
                        tracing::warn!(
                            file = %path.display(),
                            "cannot lock {} yet: another daemon{holder} serves this disk or is still ending; waiting at most {at_most:?}",
                            path.display()
                        );
                    }
                    thread::sleep(RETRY_INTERVAL.into());
                }
                Ok(Err(holder)) => return Err(LockError::Held { file: path, holder }),
                Err(source) => return Err(LockError::Cannot { file: path, source }),
            }
        }
    }

    /// Tries to take the lock. Returns the file, or else the holder.
    fn try_lock(path: &Path) -> io::Result<Result<File, Holder>> {
        // A symbolic link is not followed: the file behind it would be emptied. Whoever may open the file may lock it.
        let mut file = File::options()
            .mode(0o600)
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
                // The pid is for messages only and may be missing.
                let read = file.take(PID_BYTES).read_to_string(&mut text);
                return Ok(Err(Holder(read.ok().and_then(|_| text.trim_end().parse().ok()))));
            }
            Err(errno) => return Err(errno.into()),
        }
        // The last holder may have removed the file since it was opened. A lock on a removed file protects nothing.
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let locked = identity(file.metadata()?);
        match fs::metadata(path).map(identity) {
            Ok(found) if found == locked => {
                // A full file system must not prevent the lock.
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
        // Remove it while it is locked. No other process can then lock this file and believe it has the lock.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(file = %self.path.display(), %error, "cannot remove the lock file");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn no_other_user_can_open_the_lock() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("lock");
        let _lock = Lock::wait_for(file.clone(), Duration::ZERO).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn one_daemon_holds_the_lock_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("lock");
        let lock = |at_most| Lock::wait_for(file.clone(), at_most);
        let first = lock(Duration::ZERO).unwrap();
        let error = lock(Duration::from_millis(50)).unwrap_err();
        let (pid, name) = (std::process::id(), file.display());
        let message = "serves this disk or is still ending; stop it first";
        assert_eq!(error.to_string(), format!("cannot lock {name}: another daemon (pid {pid}) {message}"));
        fs::write(&file, "nobody").unwrap();
        let error = lock(Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot lock {name}: another daemon {message}"));
        // Each waiting thread gets the lock once, and only one at a time.
        let holders = Mutex::new(());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _lock = lock(Duration::from_secs(60)).unwrap();
                    let alone = holders.try_lock().expect("one at a time");
                    thread::sleep(Duration::from_millis(5).into());
                    drop(alone);
                });
            }
            drop(first);
        });
        assert!(!file.exists());
        // A lock file that a killed daemon left does not lock.
        fs::write(&file, "4194304 and more than there will be").unwrap();
        let again = lock(Duration::ZERO).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{pid}\n"));
        drop(again);
        fs::write(&file, "").unwrap();
        drop(lock(Duration::ZERO).unwrap());
    }
}
