//! Sockets that whoever starts the daemon has made and hands over: one by `--fd`, or any number as systemd does for units with
//! sockets (`LISTEN_FDS`, `sd_listen_fds(3)`). Who keeps such a socket can end a daemon and start another one while front-ends wait
//! in its backlog.
//!
//! Descriptors are duplicated, not taken: nothing here can know who else in this process counts on the number.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use mpath_api::config::{SocketPath, SocketPathError};
use mpath_api::server::Server;
use mpath_api::socket::{BindError, ListeningSocket, Role};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tokio::sync::oneshot;

use crate::frontend::Door;

/// The first descriptor of `LISTEN_FDS`.
const FIRST: RawFd = 3;
/// More than one for each disk, and the API's.
const COUNT_MAX: RawFd = 1024;

/// What cannot be used of what is handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandedOverError {
    #[error("file descriptor {fd} cannot be used: {source}")]
    Descriptor { fd: RawFd, source: io::Error },
    #[error("file descriptor {fd} is no Unix stream socket")]
    NotASocket { fd: RawFd },
    #[error("file descriptor {fd} does not listen: LISTEN_FDS is for sockets that do")]
    NotListening { fd: RawFd },
    #[error("LISTEN_FDS: `{value}` is no number of sockets from 0 to {COUNT_MAX}")]
    Count { value: String },
    #[error("file descriptor {fd}: {source}")]
    Path { fd: RawFd, source: SocketPathError },
}

/// Sockets that wait for those whose they are.
#[derive(Default)]
pub(crate) struct HandedOver {
    listening: Vec<(PathBuf, ListeningSocket)>,
    /// That of `--fd`, by the path that its disk is given.
    by_flag: Option<(PathBuf, Door)>,
    /// Resolves when the only front-end there will be has left.
    left: Option<oneshot::Receiver<()>>,
}

impl HandedOver {
    /// What this process was given by `LISTEN_FDS`, if it is meant.
    pub(crate) fn from_environment() -> Result<Self, HandedOverError> {
        let mut handed_over = Self::default();
        let variable = |name| std::env::var(name).unwrap_or_default();
        if variable("LISTEN_PID") != std::process::id().to_string() {
            return Ok(handed_over);
        }
        let value = variable("LISTEN_FDS");
        let count = value.parse().ok().filter(|count| (0..=COUNT_MAX).contains(count));
        let count: RawFd = count.ok_or(HandedOverError::Count { value })?;
        for fd in FIRST..FIRST + count {
            let (listener, path) = match socket(fd)? {
                Socket::Listening(listener, path) => (listener, path),
                Socket::Connected(..) => return Err(HandedOverError::NotListening { fd }),
            };
            let socket = ListeningSocket::handed_over(listener);
            let socket = socket.map_err(|source| HandedOverError::Descriptor { fd, source })?;
            handed_over.listening.push((path.unwrap_or_default(), socket));
        }
        Ok(handed_over)
    }

    /// Takes the socket of `--fd`; by which path its disk is known. One without a path is known by that of the API, which each daemon
    /// has its own of.
    pub(crate) fn take_flag(&mut self, fd: RawFd, api: &SocketPath) -> Result<SocketPath, HandedOverError> {
        let (door, path) = match socket(fd)? {
            Socket::Listening(listener, path) => {
                let socket = ListeningSocket::handed_over(listener);
                (Door::Listening(socket.map_err(|source| HandedOverError::Descriptor { fd, source })?), path)
            }
            Socket::Connected(stream, path) => {
                let (leaves, left) = oneshot::channel();
                self.left = Some(left);
                (Door::Connected(stream, leaves), path)
            }
        };
        let path = path.unwrap_or_else(|| format!("{api}.fd").into());
        let known = path.display().to_string().parse();
        let known: SocketPath = known.map_err(|source| HandedOverError::Path { fd, source })?;
        self.by_flag = Some((path, door));
        Ok(known)
    }

    /// Resolves when the only front-end there will be has left.
    pub(crate) fn left(&mut self) -> Option<oneshot::Receiver<()>> {
        self.left.take()
    }

    /// Where the front-ends of a disk come from: the socket that was handed over for it, else one of its own.
    pub(crate) fn door(&mut self, path: &SocketPath) -> Result<Door, BindError> {
        if let Some((_, door)) = self.by_flag.take_if(|(of, _)| of.as_path() == path.as_path()) {
            return Ok(door);
        }
        Ok(Door::Listening(self.listening(path, Role::VhostUser)?))
    }

    /// The same for the API.
    pub(crate) fn server(&mut self, path: &SocketPath) -> Result<Server, BindError> {
        Ok(Server::on(self.listening(path, Role::Api)?))
    }

    fn listening(&mut self, path: &SocketPath, role: Role) -> Result<ListeningSocket, BindError> {
        match self.listening.iter().position(|(of, _)| of.as_path() == path.as_path()) {
            Some(found) => Ok(self.listening.swap_remove(found).1),
            None => ListeningSocket::bind(path, role),
        }
    }

    /// Those that nobody has asked for.
    pub(crate) fn left_over(&self) -> impl Iterator<Item = &Path> {
        self.listening.iter().map(|(path, _)| path.as_path())
    }
}

enum Socket {
    Listening(UnixListener, Option<PathBuf>),
    Connected(UnixStream, Option<PathBuf>),
}

fn socket(fd: RawFd) -> Result<Socket, HandedOverError> {
    let failed = |source: io::Error| HandedOverError::Descriptor { fd, source };
    let socket = duplicate(fd).map_err(failed)?;
    let is_stream = socket_domain(&socket) == Ok(AddressFamily::UNIX) && socket_type(&socket) == Ok(SocketType::STREAM);
    if !is_stream {
        return Err(HandedOverError::NotASocket { fd });
    }
    if socket_acceptconn(&socket).map_err(|errno| failed(errno.into()))? {
        let listener = UnixListener::from(socket);
        let path = listener.local_addr().map_err(failed)?.as_pathname().map(Path::to_owned);
        return Ok(Socket::Listening(listener, path));
    }
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
    use std::os::fd::AsRawFd;

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
        let Ok(Door::Listening(socket)) = handed_over.door(&known) else { panic!("it listens") };
        let _connecting = UnixStream::connect(&path).unwrap();
        let accepted = socket.accept().unwrap().unwrap();
        drop(socket);
        assert!(path.exists(), "the file is not ours");

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
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        assert_eq!(refused(fd), format!("file descriptor {fd} is no Unix stream socket"));
        let datagrams = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let fd = datagrams.as_raw_fd();
        assert_eq!(refused(fd), format!("file descriptor {fd} is no Unix stream socket"));
        for fd in [100_000, -1] {
            assert_eq!(refused(fd), format!("file descriptor {fd} cannot be used: Bad file descriptor (os error 9)"));
        }
    }
}
