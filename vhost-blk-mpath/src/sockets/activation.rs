//! Decides: an upgrade is refused because a front-end would lose its disk (`check_in_use`).
//!
//! Socket activation: sockets that the parent process has created and passes on. `--fd` passes one, and `LISTEN_FDS`
//! any number, as systemd does for socket units (`sd_listen_fds(3)`).
//!
//! The owner of such a socket can restart the daemon while front-ends wait in its backlog. The same holds within one
//! daemon: listening sockets stay here, and each disk or the API that uses one gets a duplicate.
//!
//! Descriptors are duplicated and not taken over, because other code of this process may use the number.

use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mpath_api_server::Server;
use mpath_api_server::socket::{BindError, ListeningSocket, Role};
use mpath_config::{Config, DiskConfig, SocketAccess, SocketPath, ValueError};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType, getpeername};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tokio::sync::oneshot;

use crate::disk::settings::DiskSettings;
use crate::sockets::frontend_source::FrontendSource;

/// The first descriptor of `LISTEN_FDS`.
const FIRST: RawFd = 3;
/// Enough for one socket for each disk, and the API's.
const COUNT_MAX: RawFd = 1024;

/// A descriptor, by the option or variable that named it.
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

/// Why an activation socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivationError {
    #[error("{descriptor} cannot be used: {source}; {}", unusable(.source))]
    Unusable { descriptor: Descriptor, source: io::Error },
    #[error("{descriptor} is not a Unix stream socket; pass a listening socket, or with --fd a front-end's connection")]
    NotASocket { descriptor: Descriptor },
    #[error(
        "{descriptor} is neither listening nor connected; pass a listening socket, or with --fd a front-end's connection"
    )]
    Idle { descriptor: Descriptor },
    #[error("{descriptor} is not listening; pass a listening socket, or with --fd a front-end's connection")]
    NotListening { descriptor: Descriptor },
    #[error(
        "LISTEN_FDS: `{value}` is not a number from 0 to {COUNT_MAX}; set both LISTEN_FDS and LISTEN_PID, or neither"
    )]
    Count { value: String },
    #[error("{descriptor}: {source}; bind the socket to another path")]
    Path { descriptor: Descriptor, source: ValueError },
    #[error("{descriptor}: the path of the socket, {}, is not UTF-8; bind the socket to another path", path.display())]
    NotUtf8 { descriptor: Descriptor, path: PathBuf },
}

/// The remedy for a descriptor that cannot be duplicated.
fn unusable(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(errno) if errno == Errno::PERM.raw_os_error() => {
            "a system call filter has to allow pidfd_open and pidfd_getfd; in systemd: SystemCallFilter=pidfd_open pidfd_getfd"
        }
        _ => "start the daemon with this descriptor open",
    }
}

/// A listening socket of the running daemon.
pub(crate) struct DaemonSocket {
    pub(crate) path: SocketPath,
    pub(crate) socket: Arc<ListeningSocket>,
    /// The disk of a connected front-end. The next daemon has to serve the same.
    pub(crate) in_use_by: Option<String>,
}

/// Describes the properties of a disk that must not change under a connected front-end.
pub(crate) fn disk_identity(config: &DiskConfig, disk: &DiskSettings) -> String {
    let namespace = disk.nsid.map_or_else(|| "the only namespace".into(), |nsid| format!("namespace {nsid}"));
    let mode = if disk.read_only { "read-only" } else { "writable" };
    format!("{namespace} of {}, {mode}, {} virtqueues", config.subsystem, disk.queues.get())
}

/// A listening socket of a running daemon that hands over.
pub(crate) struct TakenSocket {
    /// Its path as the configuration spells it.
    pub(crate) path: PathBuf,
    /// Device and inode of its file, which goes with it.
    pub(crate) file: Option<(u64, u64)>,
    /// The disk of a connected front-end.
    pub(crate) in_use_by: Option<String>,
    /// Its use in that daemon.
    pub(crate) role: Option<Role>,
    pub(crate) listener: UnixListener,
}

/// A change of the configuration would take a connected front-end's disk away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InUseError {
    #[error(
        "a front-end is connected to {path} ({disk}), and the configuration has no disk with this socket; add it, or use --force"
    )]
    NoDisk { path: String, disk: String },
    #[error(
        "a front-end is connected to {path} ({before}), and the configuration has {after} there; end the front-end first, or use --force"
    )]
    Changed { path: String, before: String, after: String },
    #[error(
        "{path} is the {before} of the running daemon, with its mode and owner, and the configuration has it as {after}; name another \
         socket, or restart the daemon"
    )]
    Role { path: String, before: Role, after: Role },
    #[error("the API's socket is now {path}, and clients use another; restart the daemon for that, or use --force")]
    Api { path: String },
    #[error(
        "{path} is the running daemon's API socket that only reads, and the configuration has none; add `api-read-only: {path}`, or use \
         --force"
    )]
    ReadOnlyApi { path: String },
}

/// The activation sockets, by the path of the disk or API that uses them.
#[derive(Default)]
pub(crate) struct ActivationSockets {
    /// Listening sockets by the path they are bound to. The socket of `--fd` has the path given to its disk.
    listening: Vec<(PathBuf, UnixListener)>,
    /// The connection of `--fd`, by the path given to its disk.
    connected: Mutex<Option<(PathBuf, FrontendSource)>>,
    /// Resolves when the front-end connected by `--fd` has left.
    left: Option<oneshot::Receiver<()>>,
    /// Sockets of a running daemon that hands over, which no disk uses yet.
    taken: Mutex<Vec<TakenSocket>>,
    /// The disks of connected front-ends at their sockets.
    in_use: Vec<(PathBuf, String)>,
    /// `--fd` was given.
    by_flag: bool,
}

impl ActivationSockets {
    /// Takes the sockets of `LISTEN_FDS`, if `LISTEN_PID` is this process.
    pub(crate) fn from_environment() -> Result<Self, ActivationError> {
        let mut activation_sockets = Self::default();
        let variable = |name| std::env::var(name).unwrap_or_default();
        let (meant, own, value) = (variable("LISTEN_PID"), std::process::id(), variable("LISTEN_FDS"));
        if meant != own.to_string() {
            if !(meant.is_empty() && value.is_empty()) {
                tracing::warn!(
                    "ignoring LISTEN_FDS `{value}`: LISTEN_PID is `{meant}`, and this is process {own}; if the sockets are for the daemon, \
                     start it as that process (in a shell: with `exec`), otherwise unset both variables"
                );
            }
            return Ok(activation_sockets);
        }
        let count = value.parse().ok().filter(|count| (0..=COUNT_MAX).contains(count));
        let count: RawFd = count.ok_or(ActivationError::Count { value })?;
        for fd in FIRST..FIRST + count {
            let descriptor = Descriptor::Environment(fd);
            match socket(descriptor, fd)? {
                Socket::Listening(listener, path) => {
                    if let Some(path) = path.as_ref().filter(|path| path.is_absolute() && !path.exists()) {
                        tracing::warn!(
                            socket = %path.display(),
                            "{descriptor}: the socket file {} is missing, so no front-end can connect; create the socket again (systemd: stop the \
                             daemon, restart its socket unit)",
                            path.display()
                        );
                    }
                    activation_sockets.listening.push((path.unwrap_or_default(), listener));
                }
                Socket::Connected(..) => return Err(ActivationError::NotListening { descriptor }),
            }
        }
        Ok(activation_sockets)
    }

    /// The sockets of a running daemon that hands over.
    pub(crate) fn taken_over(sockets: Vec<TakenSocket>) -> Self {
        let in_use =
            sockets.iter().filter_map(|socket| Some((socket.path.clone(), socket.in_use_by.clone()?))).collect();
        let (taken, passed): (Vec<_>, Vec<_>) = sockets.into_iter().partition(|socket| socket.file.is_some());
        let listening = passed.into_iter().map(|socket| (socket.path, socket.listener)).collect();
        Self { listening, taken: Mutex::new(taken), in_use, ..Self::default() }
    }

    /// Checks that connected front-ends of the running daemon keep their disks. To be called before sockets are used.
    pub(crate) fn check_in_use(&self, config: &Config) -> Result<(), InUseError> {
        let disks: Vec<_> =
            config.disks.iter().flat_map(|of| DiskSettings::all(of).into_iter().map(move |it| (of, it))).collect();
        for (path, before) in &self.in_use {
            let text = path.display().to_string();
            let Some((of, disk)) = disks.iter().find(|(_, disk)| disk.socket_path.as_path() == path) else {
                return Err(InUseError::NoDisk { path: text, disk: before.clone() });
            };
            let after = disk_identity(of, disk);
            if after != *before {
                return Err(InUseError::Changed { path: text, before: before.clone(), after });
            }
        }
        let has_api = self.taken().iter().map(|socket| &socket.path).any(|path| path == config.api.as_path())
            || self.listening.iter().any(|(path, _)| path == config.api.as_path());
        if !has_api {
            return Err(InUseError::Api { path: config.api.to_string() });
        }
        let is_wanted = |path: &Path| config.api_sockets().any(|wanted| wanted.as_path() == path);
        let taken = self.taken();
        match taken.iter().find(|socket| socket.role == Some(Role::ReadOnlyApi) && !is_wanted(&socket.path)) {
            Some(socket) => Err(InUseError::ReadOnlyApi { path: socket.path.display().to_string() }),
            None => Ok(()),
        }
    }

    /// Checks that no socket of the running daemon gets another use: mode and owner are those of its creation, and a socket for
    /// everyone must not become the API's. To be called before sockets are used.
    pub(crate) fn check_roles(&self, config: &Config) -> Result<(), InUseError> {
        let disks: Vec<_> = config.disks.iter().flat_map(DiskSettings::all).map(|disk| disk.socket_path).collect();
        let wanted = [(Some(&config.api), Role::Api), (config.api_read_only.as_ref(), Role::ReadOnlyApi)];
        let wanted = wanted.into_iter().filter_map(|(path, role)| Some((path?, role)));
        for (path, after) in wanted.chain(disks.iter().map(|path| (path, Role::VhostUser))) {
            let taken = self.taken();
            let before = taken.iter().find(|socket| socket.path == path.as_path()).and_then(|socket| socket.role);
            if let Some(before) = before.filter(|before| *before != after) {
                return Err(InUseError::Role { path: path.to_string(), before, after });
            }
        }
        Ok(())
    }

    /// Whether the socket or the front-end was passed by `--fd`.
    pub(crate) fn are_by_flag(&self) -> bool {
        self.by_flag
    }

    /// All listening sockets that belong to another process.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Path, &UnixListener)> {
        self.listening.iter().map(|(path, listener)| (path.as_path(), listener))
    }

    /// Closes and removes the sockets that this configuration does not use, after the end of their daemon.
    pub(crate) fn remove_untaken(&self) {
        for TakenSocket { path, file, listener, .. } in self.taken().drain(..) {
            tracing::warn!(
                socket = %path.display(),
                "the socket of the earlier daemon is removed, because the configuration does not use it; a disk added by mpathctl has to be added again"
            );
            let path: Option<SocketPath> = path.to_str().and_then(|path| path.parse().ok());
            if let Some((path, identity)) = path.zip(file)
                && let Ok(Some(socket)) = ListeningSocket::take_over(&listener, &path, Role::VhostUser, identity)
            {
                // Dropping it removes the file then.
                socket.own_file();
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<TakenSocket>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the socket of `--fd` and returns the path of its disk. A socket without a path gets one derived from the
    /// API's, which is unique to each daemon.
    pub(crate) fn take_flag(&mut self, fd: RawFd, api: &SocketPath) -> Result<SocketPath, ActivationError> {
        self.by_flag = true;
        let descriptor = Descriptor::Flag(fd);
        let socket = socket(descriptor, fd)?;
        let (Socket::Listening(_, path) | Socket::Connected(_, path)) = &socket;
        let path = path.clone().unwrap_or_else(|| format!("{api}.fd").into());
        // A path changed by lossy conversion would name another socket.
        let text = path.to_str().ok_or_else(|| ActivationError::NotUtf8 { descriptor, path: path.clone() })?;
        let known = text.parse().map_err(|source| ActivationError::Path { descriptor, source })?;
        match socket {
            Socket::Listening(listener, _) => self.listening.push((path, listener)),
            Socket::Connected(stream, _) => {
                let (leaves, left) = oneshot::channel();
                self.left = Some(left);
                self.connected = Mutex::new(Some((path, FrontendSource::Connected(stream, leaves))));
            }
        }
        Ok(known)
    }

    /// Resolves when the front-end connected by `--fd` has left. `None` for any other kind of socket.
    pub(crate) fn front_end_left(&mut self) -> Option<oneshot::Receiver<()>> {
        self.left.take()
    }

    /// The source of a disk's front-ends: its activation socket, or else a new socket.
    pub(crate) fn source(&self, path: &SocketPath, access: &SocketAccess) -> Result<FrontendSource, BindError> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, source)) = connected.take_if(|(of, _)| of.as_path() == path.as_path()) {
            return Ok(source);
        }
        drop(connected);
        Ok(FrontendSource::Listening(self.listening(path, Role::VhostUser, access)?))
    }

    /// The API's servers, each on its activation socket or a new socket.
    pub(crate) fn servers(&self, config: &Config) -> Result<ApiServers, BindError> {
        let server = |path, role, access| Ok(Server::on(self.listening(path, role, access)?));
        let access = config.api_read_only_access();
        let read_only = config.api_read_only.as_ref().map(|path| server(path, Role::ReadOnlyApi, &access));
        Ok(ApiServers {
            api: server(&config.api, Role::Api, &config.api_access())?,
            read_only: read_only.transpose()?.map(Server::read_only),
        })
    }

    fn listening(&self, path: &SocketPath, role: Role, access: &SocketAccess) -> Result<ListeningSocket, BindError> {
        let taken = {
            let mut taken = self.taken();
            taken.iter().position(|socket| socket.path == path.as_path()).map(|position| taken.swap_remove(position))
        };
        if let Some((listener, identity)) = taken.and_then(|socket| Some((socket.listener, socket.file?)))
            && let Some(socket) = ListeningSocket::take_over(&listener, path, role, identity)?
        {
            // Mode, owner and group are those of its creation.
            return Ok(socket);
        }
        let Some((_, listener)) = self.listening.iter().find(|(of, _)| of.as_path() == path.as_path()) else {
            return ListeningSocket::bind(path, role, access);
        };
        if !access.is_default() {
            tracing::warn!(
                socket = %path,
                "mode, owner and group of this {role} are not set: the process that passed the socket has set them; remove the settings, or \
                 set them there (systemd: SocketMode, SocketUser, SocketGroup)"
            );
        }
        ListeningSocket::from_listener(listener, path, role)
    }

    /// Activation sockets that neither a disk of `config` nor the API uses.
    pub(crate) fn unused(&self, config: &Config) -> Vec<&Path> {
        let disks = config.disks.iter().flat_map(DiskSettings::all).map(|disk| disk.socket_path);
        let wanted: Vec<_> = disks.chain(config.api_sockets().cloned()).collect();
        let paths = self.listening.iter().map(|(path, _)| path.as_path());
        paths.filter(|path| wanted.iter().all(|wanted| wanted.as_path() != *path)).collect()
    }
}

/// The servers of the API.
pub(crate) struct ApiServers {
    pub(crate) api: Server,
    /// The one that refuses changes, if it is configured.
    pub(crate) read_only: Option<Server>,
}

impl ApiServers {
    /// The sockets with their paths, as long as the servers have them.
    pub(crate) fn sockets(&self, config: &Config) -> Vec<(SocketPath, Weak<ListeningSocket>)> {
        let servers = [&self.api].into_iter().chain(&self.read_only);
        config.api_sockets().cloned().zip(servers.map(Server::socket)).collect()
    }
}

enum Socket {
    Listening(UnixListener, Option<PathBuf>),
    Connected(UnixStream, Option<PathBuf>),
}

fn socket(descriptor: Descriptor, fd: RawFd) -> Result<Socket, ActivationError> {
    let failed = |source: io::Error| ActivationError::Unusable { descriptor, source };
    let socket = duplicate(fd).map_err(failed)?;
    let is_stream = socket_domain(&socket) == Ok(AddressFamily::UNIX) && socket_type(&socket) == Ok(SocketType::STREAM);
    if !is_stream {
        return Err(ActivationError::NotASocket { descriptor });
    }
    if socket_acceptconn(&socket).map_err(|errno| failed(errno.into()))? {
        let listener = UnixListener::from(socket);
        let path = listener.local_addr().map_err(failed)?.as_pathname().map(Path::to_owned);
        return Ok(Socket::Listening(listener, path));
    }
    match getpeername(&socket) {
        Err(Errno::NOTCONN) => return Err(ActivationError::Idle { descriptor }),
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
    use mpath_api_server::socket::accept;
    use std::ffi::OsStr;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn api() -> SocketPath {
        "/tmp/api.sock".parse().unwrap()
    }

    #[test]
    fn listening_and_connected_descriptors_are_told_apart() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut activation_sockets = ActivationSockets::default();
        let known = activation_sockets.take_flag(listener.as_raw_fd(), &api()).unwrap();
        assert_eq!(known.as_path(), path);
        assert!(activation_sockets.front_end_left().is_none());
        let source = || match activation_sockets.source(&known, &SocketAccess::default()) {
            Ok(FrontendSource::Listening(socket)) => socket,
            _ => panic!("it listens"),
        };
        let socket = source();
        let _connecting = UnixStream::connect(&path).unwrap();
        let accepted = accept(&socket.listener().unwrap()).unwrap().unwrap();
        drop(socket);
        assert!(path.exists(), "the file is not ours");
        let _waiting = UnixStream::connect(&path).unwrap();
        assert!(accept(&source().listener().unwrap()).unwrap().is_some(), "the next disk can use the socket");

        let known = activation_sockets.take_flag(accepted.as_raw_fd(), &api()).unwrap();
        assert_eq!(known.as_path(), path);
        assert!(
            matches!(activation_sockets.source(&known, &SocketAccess::default()), Ok(FrontendSource::Connected(..)))
                && activation_sockets.front_end_left().is_some()
        );
        let (pair, _peer) = UnixStream::pair().unwrap();
        let known = activation_sockets.take_flag(pair.as_raw_fd(), &api()).unwrap();
        assert_eq!(known.to_string(), "/tmp/api.sock.fd");
    }

    #[test]
    fn a_descriptor_that_is_not_a_unix_stream_socket_is_refused() {
        let mut activation_sockets = ActivationSockets::default();
        let mut refused = |fd| activation_sockets.take_flag(fd, &api()).unwrap_err().to_string();
        let none = "is not a Unix stream socket; pass a listening socket, or with --fd a front-end's connection";
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        assert_eq!(refused(fd), format!("--fd {fd} {none}"));
        let datagrams = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let fd = datagrams.as_raw_fd();
        assert_eq!(refused(fd), format!("--fd {fd} {none}"));
        for fd in [100_000, -1] {
            let unusable =
                "cannot be used: Bad file descriptor (os error 9); start the daemon with this descriptor open";
            assert_eq!(refused(fd), format!("--fd {fd} {unusable}"));
        }
        let forbidden =
            ActivationError::Unusable { descriptor: Descriptor::Environment(3), source: Errno::PERM.into() };
        let said = forbidden.to_string();
        assert!(said.starts_with("LISTEN_FDS: file descriptor 3 cannot be used: Operation not permitted"), "{said}");
        assert!(said.ends_with("SystemCallFilter=pidfd_open pidfd_getfd"), "{said}");
    }

    #[test]
    fn a_socket_path_that_is_not_utf8_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(OsStr::from_bytes(b"disk-\xff.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let mut activation_sockets = ActivationSockets::default();
        let refused = activation_sockets.take_flag(listener.as_raw_fd(), &api()).unwrap_err().to_string();
        assert!(refused.contains("is not UTF-8; bind the socket to another path"), "{refused}");
        assert!(activation_sockets.listening.is_empty());
    }
}
