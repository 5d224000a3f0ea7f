//! Sockets that whoever starts the daemon has made and hands over: one by `--fd`, or any number as systemd does for units with
//! sockets (`LISTEN_FDS`, `sd_listen_fds(3)`). Who keeps such a socket can end a daemon and start another one while front-ends wait
//! in its backlog. So it is within one daemon: a socket that listens stays here, and whoever has a disk or the API on it has it as well.
//!
//! Descriptors are duplicated, not taken: nothing here can know who else in this process counts on the number.

use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use mpath_api::Config;
use mpath_api::config::{SocketPath, SocketPathError};
use mpath_api::server::Server;
use mpath_api::socket::{BindError, ListeningSocket, Role};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType, getpeername};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tokio::sync::oneshot;

use crate::disk::settings::DiskSettings;
use crate::sockets::door::Door;

/// The first descriptor of `LISTEN_FDS`.
const FIRST: RawFd = 3;
/// More than one for each disk, and the API's.
const COUNT_MAX: RawFd = 1024;

/// A descriptor, and by what it was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Flag(RawFd),
    Environment(RawFd),
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(fd) => write!(f, "--fd {fd}"),
            Self::Environment(fd) => write!(f, "LISTEN_FDS: file descriptor {fd}"),
        }
    }
}

/// What cannot be used of what is handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandedOverError {
    #[error("{descriptor} cannot be used: {source}; {}", unusable(.source))]
    Unusable { descriptor: Descriptor, source: io::Error },
    #[error("{descriptor} is no Unix stream socket; hand over one that listens, or by --fd a front-end's connection")]
    NotASocket { descriptor: Descriptor },
    #[error(
        "{descriptor} neither listens nor is connected; hand over a socket that listens, or the connection of a front-end by --fd"
    )]
    Idle { descriptor: Descriptor },
    #[error("{descriptor} does not listen; hand over a socket that does, or the connection of a front-end by --fd")]
    NotListening { descriptor: Descriptor },
    #[error(
        "LISTEN_FDS: `{value}` is no number of sockets from 0 to {COUNT_MAX}; unset LISTEN_PID, or have it set by what sets that"
    )]
    Count { value: String },
    #[error("{descriptor}: {source}; bind the socket to another path")]
    Path { descriptor: Descriptor, source: SocketPathError },
    #[error("{descriptor}: the path of the socket, {}, is not UTF-8; bind it to another", path.display())]
    NotUtf8 { descriptor: Descriptor, path: PathBuf },
}

/// What may help with a descriptor that the system does not let us have.
fn unusable(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(errno) if errno == Errno::PERM.raw_os_error() => {
            "a filter of system calls has to let pidfd_open and pidfd_getfd pass: in systemd, SystemCallFilter=pidfd_open pidfd_getfd"
        }
        _ => "start the daemon with it open",
    }
}

/// Sockets, and who may have them.
#[derive(Default)]
pub(crate) struct HandedOver {
    /// By the path that they are bound to, and for `--fd` by the one that its disk is given.
    listening: Vec<(PathBuf, UnixListener)>,
    /// The connection of `--fd`, by the path that its disk is given.
    connected: Mutex<Option<(PathBuf, Door)>>,
    /// Resolves when the only front-end there will be has left.
    left: Option<oneshot::Receiver<()>>,
}

impl HandedOver {
    /// What this process was given by `LISTEN_FDS`, if it is meant.
    pub(crate) fn from_environment() -> Result<Self, HandedOverError> {
        let mut handed_over = Self::default();
        let variable = |name| std::env::var(name).unwrap_or_default();
        let (meant, own, value) = (variable("LISTEN_PID"), std::process::id(), variable("LISTEN_FDS"));
        if meant != own.to_string() {
            if !(meant.is_empty() && value.is_empty()) {
                tracing::warn!(
                    "LISTEN_FDS, `{value}`, is ignored: LISTEN_PID is `{meant}`, and this is process {own}; if these sockets are the \
                     daemon's, have it be the process that they are handed to (a shell: by `exec`), and otherwise unset both"
                );
            }
            return Ok(handed_over);
        }
        let count = value.parse().ok().filter(|count| (0..=COUNT_MAX).contains(count));
        let count: RawFd = count.ok_or(HandedOverError::Count { value })?;
        for fd in FIRST..FIRST + count {
            let descriptor = Descriptor::Environment(fd);
            match socket(descriptor, fd)? {
                Socket::Listening(listener, path) => {
                    if let Some(path) = path.as_ref().filter(|path| path.is_absolute() && !path.exists()) {
                        tracing::warn!(
                            "{descriptor}: {} is gone, by which front-ends would find this socket; have it made again by what hands it over (systemd: \
                             stop the daemon, restart its socket unit)",
                            path.display()
                        );
                    }
                    handed_over.listening.push((path.unwrap_or_default(), listener));
                }
                Socket::Connected(..) => return Err(HandedOverError::NotListening { descriptor }),
            }
        }
        Ok(handed_over)
    }

    /// Takes the socket of `--fd`; by which path its disk is known. One without a path is known by that of the API, which each daemon
    /// has its own of.
    pub(crate) fn take_flag(&mut self, fd: RawFd, api: &SocketPath) -> Result<SocketPath, HandedOverError> {
        let descriptor = Descriptor::Flag(fd);
        let socket = socket(descriptor, fd)?;
        let (Socket::Listening(_, path) | Socket::Connected(_, path)) = &socket;
        let path = path.clone().unwrap_or_else(|| format!("{api}.fd").into());
        // Another spelling of it would be another socket.
        let text = path.to_str().ok_or_else(|| HandedOverError::NotUtf8 { descriptor, path: path.clone() })?;
        let known = text.parse().map_err(|source| HandedOverError::Path { descriptor, source })?;
        match socket {
            Socket::Listening(listener, _) => self.listening.push((path, listener)),
            Socket::Connected(stream, _) => {
                let (leaves, left) = oneshot::channel();
                self.left = Some(left);
                self.connected = Mutex::new(Some((path, Door::Connected(stream, leaves))));
            }
        }
        Ok(known)
    }

    /// Resolves when the only front-end there will be has left.
    pub(crate) fn left(&mut self) -> Option<oneshot::Receiver<()>> {
        self.left.take()
    }

    /// Where the front-ends of a disk come from: the socket that was handed over for it, else one of its own.
    pub(crate) fn door(&self, path: &SocketPath) -> Result<Door, BindError> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, door)) = connected.take_if(|(of, _)| of.as_path() == path.as_path()) {
            return Ok(door);
        }
        drop(connected);
        Ok(Door::Listening(self.listening(path, Role::VhostUser)?))
    }

    /// The same for the API.
    pub(crate) fn server(&self, path: &SocketPath) -> Result<Server, BindError> {
        Ok(Server::on(self.listening(path, Role::Api)?))
    }

    fn listening(&self, path: &SocketPath, role: Role) -> Result<ListeningSocket, BindError> {
        match self.listening.iter().find(|(of, _)| of.as_path() == path.as_path()) {
            Some((_, listener)) => ListeningSocket::from_listener(listener, path, role),
            None => ListeningSocket::bind(path, role),
        }
    }

    /// Those that are neither a disk's nor the API's.
    pub(crate) fn left_over(&self, config: &Config) -> Vec<&Path> {
        let disks = config.disks.iter().flat_map(DiskSettings::all).map(|disk| disk.socket_path);
        let wanted: Vec<_> = disks.chain([config.api.clone()]).collect();
        let paths = self.listening.iter().map(|(path, _)| path.as_path());
        paths.filter(|path| wanted.iter().all(|wanted| wanted.as_path() != *path)).collect()
    }
}

enum Socket {
    Listening(UnixListener, Option<PathBuf>),
    Connected(UnixStream, Option<PathBuf>),
}

fn socket(descriptor: Descriptor, fd: RawFd) -> Result<Socket, HandedOverError> {
    let failed = |source: io::Error| HandedOverError::Unusable { descriptor, source };
    let socket = duplicate(fd).map_err(failed)?;
    let is_stream = socket_domain(&socket) == Ok(AddressFamily::UNIX) && socket_type(&socket) == Ok(SocketType::STREAM);
    if !is_stream {
        return Err(HandedOverError::NotASocket { descriptor });
    }
    if socket_acceptconn(&socket).map_err(|errno| failed(errno.into()))? {
        let listener = UnixListener::from(socket);
        let path = listener.local_addr().map_err(failed)?.as_pathname().map(Path::to_owned);
        return Ok(Socket::Listening(listener, path));
    }
    match getpeername(&socket) {
        Err(Errno::NOTCONN) => return Err(HandedOverError::Idle { descriptor }),
        peer => peer.map_err(|errno| failed(errno.into()))?,
    };
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(failed)?;
    let path = stream.local_addr().map_err(failed)?.as_pathname().map(Path::to_owned);
    Ok(Socket::Connected(stream, path))
}

fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(own, fd, PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn api() -> SocketPath {
        "/tmp/api.sock".parse().unwrap()
    }

    #[test]
    fn a_descriptor_tells_what_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut handed_over = HandedOver::default();
        let known = handed_over.take_flag(listener.as_raw_fd(), &api()).unwrap();
        assert_eq!(known.as_path(), path);
        assert!(handed_over.left().is_none());
        let door = || match handed_over.door(&known) {
            Ok(Door::Listening(socket)) => socket,
            _ => panic!("it listens"),
        };
        let socket = door();
        let _connecting = UnixStream::connect(&path).unwrap();
        let accepted = socket.accept().unwrap().unwrap();
        drop(socket);
        assert!(path.exists(), "the file is not ours");
        let _waiting = UnixStream::connect(&path).unwrap();
        assert!(door().accept().unwrap().is_some(), "whoever has the disk next has the socket");

        let known = handed_over.take_flag(accepted.as_raw_fd(), &api()).unwrap();
        assert_eq!(known.as_path(), path);
        assert!(matches!(handed_over.door(&known), Ok(Door::Connected(..))) && handed_over.left().is_some());
        let (pair, _peer) = UnixStream::pair().unwrap();
        let known = handed_over.take_flag(pair.as_raw_fd(), &api()).unwrap();
        assert_eq!(known.to_string(), "/tmp/api.sock.fd");
    }

    #[test]
    fn a_descriptor_that_is_no_such_socket_is_refused() {
        let mut handed_over = HandedOver::default();
        let mut refused = |fd| handed_over.take_flag(fd, &api()).unwrap_err().to_string();
        let none = "is no Unix stream socket; hand over one that listens, or by --fd a front-end's connection";
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        assert_eq!(refused(fd), format!("--fd {fd} {none}"));
        let datagrams = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let fd = datagrams.as_raw_fd();
        assert_eq!(refused(fd), format!("--fd {fd} {none}"));
        for fd in [100_000, -1] {
            let unusable = "cannot be used: Bad file descriptor (os error 9); start the daemon with it open";
            assert_eq!(refused(fd), format!("--fd {fd} {unusable}"));
        }
        let forbidden =
            HandedOverError::Unusable { descriptor: Descriptor::Environment(3), source: Errno::PERM.into() };
        let said = forbidden.to_string();
        assert!(said.starts_with("LISTEN_FDS: file descriptor 3 cannot be used: Operation not permitted"), "{said}");
        assert!(said.ends_with("SystemCallFilter=pidfd_open pidfd_getfd"), "{said}");
    }

    #[test]
    fn a_path_that_no_setting_can_have_is_refused_and_not_made_another() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(OsStr::from_bytes(b"disk-\xff.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let mut handed_over = HandedOver::default();
        let refused = handed_over.take_flag(listener.as_raw_fd(), &api()).unwrap_err().to_string();
        assert!(refused.contains("is not UTF-8; bind it to another"), "{refused}");
        assert!(handed_over.listening.is_empty());
    }
}
