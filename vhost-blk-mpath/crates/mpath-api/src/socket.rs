//! A Unix socket that a daemon listens on: never taken from another process, and its file gone at the end. Or one that is handed over.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::DEFAULT_API_SOCKET;
use crate::config::SocketPath;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// What a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The control API: for its owner only (mode 0600) from its first moment, whatever the umask.
    Api,
    /// A disk's vhost-user socket: QEMU often runs as another user, so the umask decides.
    VhostUser,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Api => "API socket",
            Self::VhostUser => "vhost-user socket",
        })
    }
}

/// Why a socket could not be created.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process answers there; or this one has the socket, handed over, and knows it by another spelling of its path.
    #[error(
        "{path}: another process listens on this {role}; give each daemon its own, and name one that is handed over as it was bound"
    )]
    Busy {
        /// The socket.
        path: SocketPath,
        /// What it was to be.
        role: Role,
    },
    /// Something else has that name, and is not ours to remove.
    #[error("{path}: exists and is no socket; remove it or name another {role}")]
    NotASocket {
        /// The path.
        path: SocketPath,
        /// What it was to be.
        role: Role,
    },
    /// The directory is missing.
    #[error("{path}: the directory of the {role} cannot be used: {source}; create it or name another")]
    Directory {
        /// The socket.
        path: SocketPath,
        /// What it was to be.
        role: Role,
        /// The system's answer.
        source: io::Error,
    },
    /// A step failed.
    #[error("{path}: cannot {step} the {role}: {source}; {}", step.remedy())]
    Step {
        /// The socket.
        path: SocketPath,
        /// What it was to be.
        role: Role,
        /// Which step.
        step: Step,
        /// The system's answer.
        source: io::Error,
    },
}

/// The steps to a listening socket that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `socket`, `fchmod`, `bind`.
    Create,
    /// `listen`.
    Listen,
    /// The attempt at a connection, to see whether anybody has the socket.
    Probe,
    /// Removing the file that nobody listens on.
    Replace,
    /// A descriptor more for one that is handed over.
    Duplicate,
}

impl Step {
    /// What may help if it fails.
    fn remedy(self) -> &'static str {
        match self {
            Self::Create | Self::Listen => "name one in a directory that this user may write to",
            Self::Probe | Self::Replace => "remove it, or name another",
            Self::Duplicate => "raise the limit of open files",
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Listen => "listen on",
            Self::Probe => "probe",
            Self::Replace => "replace",
            Self::Duplicate => "duplicate",
        })
    }
}

/// A socket that listens, non-blocking. One of ours has its file, which goes when this does.
#[derive(Debug)]
pub struct ListeningSocket {
    /// `None` if it was handed over: it is another process's too, and so is its file. Goes first: while this listens, no other
    /// process takes the file for stale, and makes one of its own that then would go.
    _file: Option<OwnFile>,
    listener: UnixListener,
}

#[derive(Debug)]
struct OwnFile {
    path: PathBuf,
    role: Role,
    /// Device and inode, so that the file of a successor is left alone.
    identity: (u64, u64),
}

impl ListeningSocket {
    /// Creates the socket and listens. A file that nobody listens on is replaced; the directory is created if only it is
    /// missing.
    pub fn bind(path: &SocketPath, role: Role) -> Result<Self, BindError> {
        let directory = match path.as_path().parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Only the default's own: a directory that does not exist otherwise is a slip of the pen.
        if Some(directory) == Path::new(DEFAULT_API_SOCKET).parent()
            && let Err(source) = fs::create_dir(directory)
            && source.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(BindError::Directory { path: path.clone(), role, source });
        }
        if let Err(source) = fs::metadata(directory) {
            return Err(BindError::Directory { path: path.clone(), role, source });
        }
        // Released when the function ends.
        let _lock = lock_directory(directory);
        let failed = |step| {
            let path = path.clone();
            move |source: io::Error| BindError::Step { path, role, step, source }
        };
        clear_stale(path, role)?;
        let listener = create(path.as_path(), role).map_err(failed(Step::Create))?;
        let created = fs::symlink_metadata(path.as_path()).map_err(failed(Step::Create))?;
        let file = OwnFile { path: path.as_path().into(), role, identity: (created.dev(), created.ino()) };
        let socket = Self { listener, _file: Some(file) };
        listen(&socket.listener, BACKLOG).map_err(|e| failed(Step::Listen)(e.into()))?;
        Ok(socket)
    }

    /// One that listens already, and that another process keeps: who connects while no daemon runs waits for the next one.
    pub fn handed_over(listener: &UnixListener, path: &SocketPath, role: Role) -> Result<Self, BindError> {
        let duplicate = listener.try_clone().and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let failed = |source| BindError::Step { path: path.clone(), role, step: Step::Duplicate, source };
        Ok(Self { listener: duplicate.map_err(failed)?, _file: None })
    }

    /// A handle to accept with.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// The next connection, which blocks, if one waits.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.listener.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the {} stays behind", self.role);
        }
    }
}

/// Two daemons that start at once with one socket must not both find it stale. The lock lasts for
/// milliseconds; who cannot have it for a second (a stranger locks this directory) goes without.
fn lock_directory(directory: &Path) -> Option<File> {
    let file = File::open(directory).ok()?;
    for _ in 0..100 {
        match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(file),
            Err(Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(10)),
            Err(_) => return None,
        }
    }
    None
}

/// Removes a socket file that nobody listens on.
fn clear_stale(path: &SocketPath, role: Role) -> Result<(), BindError> {
    match fs::symlink_metadata(path.as_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: path.clone(), role });
        }
        // What else is wrong shows in the next step.
        _ => {}
    }
    match probe(path.as_path()) {
        // It is bound, and of the type that daemons have or of the one that was tried.
        Ok(()) | Err(Errno::PROTOTYPE) => Err(BindError::Busy { path: path.clone(), role }),
        Err(Errno::CONNREFUSED) => fs::remove_file(path.as_path()).map_err(|source| BindError::Step {
            path: path.clone(),
            role,
            step: Step::Replace,
            source,
        }),
        Err(errno) => Err(BindError::Step { path: path.clone(), role, step: Step::Probe, source: errno.into() }),
    }
}

/// Whether a process has the socket, without it noticing: by a connection of another type, which Linux refuses in another way than one
/// to a file that nobody is behind. One that is accepted would be taken for a front-end.
fn probe(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Linux gives a new socket file the mode of the socket less the umask, so a mode is set before the file exists: there is no
/// moment in which others may connect.
fn create(path: &Path, role: Role) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if role == Role::Api {
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    }
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixListener::from(socket))
}
