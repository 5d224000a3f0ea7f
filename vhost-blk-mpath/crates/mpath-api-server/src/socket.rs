//! Decides: these users may connect to a socket (`give_to`).
//!
//! A Unix socket that a daemon listens on. The daemon creates it, or another process hands it over. The daemon never takes a
//! socket away from another process, and removes the file of its own socket at the end.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mpath_config::{Account, DEFAULT_API_SOCKET, SocketAccess, SocketPath};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Group, User};
use rustix::fs::{
    Access, AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Uid, access, chmod, chownat, fchmod, flock, fstat,
    open,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use serde::{Deserialize, Serialize};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// What a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The control API: for its owner only (mode 0600) from its creation, whatever the umask.
    Api,
    /// The control API without changes: likewise.
    ReadOnlyApi,
    /// A disk's vhost-user socket: QEMU often runs as another user, so the umask decides.
    VhostUser,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Api => "API socket",
            Self::ReadOnlyApi => "read-only API socket",
            Self::VhostUser => "vhost-user socket",
        })
    }
}

impl Role {
    /// The beginning of the names of the socket's settings.
    fn settings(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::ReadOnlyApi => "api-read-only",
            Self::VhostUser => "socket",
        }
    }
}

/// Why a socket cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there, or this process was passed the socket under another spelling of its path.
    #[error(
        "{path}: another process listens on this {role}; give each daemon its own, and name a socket from socket activation as it was bound"
    )]
    Busy {
        /// The socket.
        path: SocketPath,
        /// The role of the socket.
        role: Role,
    },
    /// The path is no socket, so it is not removed.
    #[error("{path}: exists and is no socket; remove it or name another {role}")]
    NotASocket {
        /// The path.
        path: SocketPath,
        /// The role of the socket.
        role: Role,
    },
    /// The directory cannot be used.
    #[error("{path}: the directory of the {role} cannot be used: {source}; create it or name another")]
    Directory {
        /// The socket.
        path: SocketPath,
        /// The role of the socket.
        role: Role,
        /// The operating system's error.
        source: io::Error,
    },
    /// The owner or group is not in the user database, or cannot be looked up.
    #[error(
        "{path}: `{}-{}`: {} `{name}` is unknown on this host{}; create it, or give a name or number that exists",
        role.settings(), kind.setting(), kind.noun(), Because(source.as_ref())
    )]
    UnknownAccount {
        /// The socket.
        path: SocketPath,
        /// The role of the socket.
        role: Role,
        /// Whether it is the owner or the group.
        kind: AccountKind,
        /// The name.
        name: String,
        /// The error of the look-up, if it failed.
        source: Option<io::Error>,
    },
    /// The owner, group or mode of the socket file cannot be set.
    #[error(
        "{path}: cannot set `{}-{setting}` of the {role}: {source}; run the daemon as root, or give a group of the daemon's user and no \
         other owner",
        role.settings()
    )]
    Access {
        /// The socket.
        path: SocketPath,
        /// The role of the socket.
        role: Role,
        /// The end of the name of the setting: `mode`, `owner` or `group`.
        setting: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{path}: cannot {step} the {role}: {source}; {}", step.remedy())]
    Step {
        /// The socket.
        path: SocketPath,
        /// The role of the socket.
        role: Role,
        /// The step.
        step: Step,
        /// The operating system's error.
        source: io::Error,
    },
}

impl BindError {
    /// Whether the configuration is wrong, whatever the state of the socket.
    #[must_use]
    pub fn is_of_configuration(&self) -> bool {
        matches!(self, Self::UnknownAccount { .. } | Self::Access { .. })
    }
}

/// The account that a socket file is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountKind {
    /// Its owner.
    User,
    /// Its group.
    Group,
}

impl AccountKind {
    /// The end of the name of the setting.
    fn setting(self) -> &'static str {
        match self {
            Self::User => "owner",
            Self::Group => "group",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
        }
    }

    /// Looks the name up in the user database. `None` if it is not there.
    fn look_up(self, name: &str) -> io::Result<Option<u32>> {
        Ok(match self {
            Self::User => User::from_name(name)?.map(|user| user.uid.as_raw()),
            Self::Group => Group::from_name(name)?.map(|group| group.gid.as_raw()),
        })
    }
}

/// The error of a look-up, if there is one, in brackets.
struct Because<'a>(Option<&'a io::Error>);

impl std::fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |error| write!(f, " ({error})"))
    }
}

/// A step in creating a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `socket`, `fchmod`, `bind`.
    Create,
    /// `listen`.
    Listen,
    /// The connection attempt that finds out whether a process has the socket.
    Probe,
    /// Removing a stale socket file.
    Replace,
    /// Duplicating the descriptor of a passed socket.
    Duplicate,
}

impl Step {
    /// What may help if the step fails.
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

/// A listening, non-blocking socket. Dropping it removes the socket file that it created.
#[derive(Debug)]
pub struct ListeningSocket {
    /// `None` for a passed socket, whose file belongs to another process. Dropped before `listener`: while this listens, no other
    /// process takes the file for stale and replaces it by its own, which the drop would then remove.
    file: Option<SocketFile>,
    listener: UnixListener,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    role: Role,
    /// Device and inode, so that the file of another process is not removed.
    identity: (u64, u64),
    /// Another process has the socket and removes the file.
    is_of_another: AtomicBool,
}

impl ListeningSocket {
    /// Creates the socket and listens. A stale socket file is replaced. The directory of the default API socket is created if it is
    /// missing and its parent exists. Mode, owner and group are as `access` says before the first client can connect.
    pub fn bind(path: &SocketPath, role: Role, access: &SocketAccess) -> Result<Self, BindError> {
        let owner = resolve(path, role, AccountKind::User, access.owner.as_ref())?;
        let group = resolve(path, role, AccountKind::Group, access.group.as_ref())?;
        let directory = directory_of(path);
        // Only the directory of the default: another missing directory is probably a typing error.
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
        let file = SocketFile::at(path, role).map_err(failed(Step::Create))?;
        let socket = Self { listener, file: Some(file) };
        give_to(path.as_path(), access, owner, group).map_err(|(setting, source)| BindError::Access {
            path: path.clone(),
            role,
            setting,
            source,
        })?;
        // Before this, nobody can connect.
        listen(&socket.listener, BACKLOG).map_err(|e| failed(Step::Listen)(e.into()))?;
        Ok(socket)
    }

    /// Takes a listening socket that another process passed and keeps. Clients that connect while no daemon runs wait for the next
    /// daemon.
    pub fn from_listener(listener: &UnixListener, path: &SocketPath, role: Role) -> Result<Self, BindError> {
        let duplicate = listener.try_clone().and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let failed = |source| BindError::Step { path: path.clone(), role, step: Step::Duplicate, source };
        Ok(Self { listener: duplicate.map_err(failed)?, file: None })
    }

    /// Takes a listening socket of another process, with its file of this [identity](Self::file_identity). The file stays
    /// that process's until [`own_file`](Self::own_file). `None` if the file is not there any more, or is another one.
    pub fn take_over(
        listener: &UnixListener,
        path: &SocketPath,
        role: Role,
        identity: (u64, u64),
    ) -> Result<Option<Self>, BindError> {
        let Ok(file) = SocketFile::at(path, role) else { return Ok(None) };
        file.is_of_another.store(true, Ordering::SeqCst);
        if file.identity != identity {
            return Ok(None);
        }
        Ok(Some(Self { file: Some(file), ..Self::from_listener(listener, path, role)? }))
    }

    /// The use of the socket. `None` if another process has created it.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        self.file.as_ref().map(|file| file.role)
    }

    /// Device and inode of the socket file. `None` for a passed socket, whose file belongs to another process.
    #[must_use]
    pub fn file_identity(&self) -> Option<(u64, u64)> {
        self.file.as_ref().map(|file| file.identity)
    }

    /// Leaves the socket file to another process, which has this socket open.
    pub fn give_file_away(&self) {
        self.file.iter().for_each(|file| file.is_of_another.store(true, Ordering::SeqCst));
    }

    /// Takes the socket file, which its process has [given away](Self::give_file_away).
    pub fn own_file(&self) {
        self.file.iter().for_each(|file| file.is_of_another.store(false, Ordering::SeqCst));
    }

    /// Makes the kernel name this process to clients (`SO_PEERCRED`), and not the one that created the socket: the last one that called
    /// `listen`. Clients that wait stay.
    ///
    /// # Errors
    /// The socket does not listen any more.
    pub fn listen_again(&self) -> io::Result<()> {
        Ok(listen(&self.listener, BACKLOG)?)
    }

    /// A handle to [`accept`] with. Dropping it leaves the socket file.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

/// The next connection, in blocking mode. `None` if no client waits.
pub fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The process at the other end of a connection, as it was when it connected. `None` for a process in another PID namespace.
#[must_use]
pub fn peer_pid(stream: &UnixStream) -> Option<u32> {
    let peer = getsockopt(stream, PeerCredentials).ok()?;
    u32::try_from(peer.pid()).ok().filter(|pid| *pid > 0)
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl SocketFile {
    /// The file that is there now.
    fn at(path: &SocketPath, role: Role) -> io::Result<Self> {
        let found = fs::symlink_metadata(path.as_path())?;
        let identity = (found.dev(), found.ino());
        Ok(Self { path: path.as_path().into(), role, identity, is_of_another: AtomicBool::new(false) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_of_another.load(Ordering::SeqCst) {
            return;
        }
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(socket = %self.path.display(), %error, "cannot remove the {}", self.role);
        }
    }
}

/// Locks the directory, so that two daemons that start at once do not both find the socket stale. The lock is held for
/// milliseconds. If another program keeps it for a second, the daemon goes on without the lock.
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

/// Removes a socket file that no process listens on.
fn clear_stale(path: &SocketPath, role: Role) -> Result<(), BindError> {
    if is_stale(path, role)? {
        let failed = |source| BindError::Step { path: path.clone(), role, step: Step::Replace, source };
        fs::remove_file(path.as_path()).map_err(failed)?;
    }
    Ok(())
}

/// Whether there is a socket file that no process listens on.
fn is_stale(path: &SocketPath, role: Role) -> Result<bool, BindError> {
    match fs::symlink_metadata(path.as_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: path.clone(), role });
        }
        // The next step reports any other error.
        _ => {}
    }
    match probe(path.as_path()) {
        // A process has bound it, with this socket type or another.
        Ok(()) | Err(Errno::PROTOTYPE) => Err(BindError::Busy { path: path.clone(), role }),
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(errno) => Err(BindError::Step { path: path.clone(), role, step: Step::Probe, source: errno.into() }),
    }
}

/// Finds out whether a process has the socket. Connects with another socket type, which Linux refuses with another error than a
/// connection to a stale file. The process does not notice. It would take a real connection for a front-end.
fn probe(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Creates the socket file. Linux gives it the mode of the socket less the umask, so the mode is set before `bind`. No other user can
/// connect at any moment.
fn create(path: &Path, role: Role) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if role != Role::VhostUser {
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    }
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixListener::from(socket))
}

/// Checks what [`ListeningSocket::bind`] needs of this host, and changes nothing: owner, group, directory, and what is at the path.
/// Returns all errors. The process that has a [busy](BindError::Busy) socket may be the running daemon.
#[must_use]
pub fn check(path: &SocketPath, role: Role, access: &SocketAccess) -> Vec<BindError> {
    let accounts = [(AccountKind::User, &access.owner), (AccountKind::Group, &access.group)];
    let unknown = accounts.into_iter().filter_map(|(kind, account)| resolve(path, role, kind, account.as_ref()).err());
    unknown.chain(check_place(path, role).err()).collect()
}

fn check_place(path: &SocketPath, role: Role) -> Result<(), BindError> {
    let directory = directory_of(path);
    match fs::metadata(directory) {
        Ok(_) => {}
        // The daemon creates the directory of the default API socket.
        Err(_) if Some(directory) == Path::new(DEFAULT_API_SOCKET).parent() => return Ok(()),
        Err(source) => return Err(BindError::Directory { path: path.clone(), role, source }),
    }
    is_stale(path, role)?;
    let failed = |errno: Errno| BindError::Step { path: path.clone(), role, step: Step::Create, source: errno.into() };
    access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(failed)
}

fn directory_of(path: &SocketPath) -> &Path {
    match path.as_path().parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn resolve(
    path: &SocketPath,
    role: Role,
    kind: AccountKind,
    account: Option<&Account>,
) -> Result<Option<u32>, BindError> {
    let name = match account {
        None => return Ok(None),
        Some(Account::Id(id)) => return Ok(Some(*id)),
        Some(Account::Name(name)) => name,
    };
    let unknown = |source| BindError::UnknownAccount { path: path.clone(), role, kind, name: name.clone(), source };
    let found = kind.look_up(name).map_err(|error| unknown(Some(error)))?;
    found.ok_or_else(|| unknown(None)).map(Some)
}

/// Sets owner and group, then mode, of the socket file. An error names the setting.
///
/// The file is opened first, so that a user who may write to the directory cannot redirect this to another file.
fn give_to(
    path: &Path,
    access: &SocketAccess,
    owner: Option<u32>,
    group: Option<u32>,
) -> Result<(), (&'static str, io::Error)> {
    if access.is_default() {
        return Ok(());
    }
    let because = |setting| move |errno: Errno| (setting, errno.into());
    let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map_err(because("mode"))?;
    let mode = fstat(&file).map_err(because("mode"))?.st_mode;
    if !FileType::from_raw_mode(mode).is_socket() {
        return Err(("mode", Errno::NOTSOCK.into()));
    }
    if let Some(owner) = owner {
        chownat(&file, "", Some(Uid::from_raw(owner)), None, AtFlags::EMPTY_PATH).map_err(because("owner"))?;
    }
    if let Some(group) = group {
        chownat(&file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH).map_err(because("group"))?;
    }
    if let Some(mode) = access.mode {
        // A descriptor without access rights takes no `fchmod`.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        chmod(path, Mode::from_raw_mode(mode.bits())).map_err(because("mode"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::unistd::{getgid, getuid};

    use super::*;

    /// What a socket with these settings is like: mode, owner and group.
    fn bound(access: &SocketAccess, role: Role) -> Result<(u32, u32, u32), BindError> {
        let place = tempfile::tempdir().unwrap();
        let path: SocketPath = place.path().join("s").to_str().unwrap().parse().unwrap();
        let socket = ListeningSocket::bind(&path, role, access);
        assert_eq!(socket.is_ok(), path.as_path().exists(), "an error leaves nothing behind");
        let _socket = socket?;
        let file = fs::metadata(path.as_path()).unwrap();
        Ok((file.mode() & 0o777, file.uid(), file.gid()))
    }

    #[test]
    fn mode_owner_and_group_are_those_of_the_settings() {
        let (user, group) = (getuid(), getgid());
        let own = (user.as_raw(), group.as_raw());
        let mode = Some("0666".parse().unwrap());
        let by_number = SocketAccess { mode, owner: Some(Account::Id(own.0)), group: Some(Account::Id(own.1)) };
        // A usual umask takes bits away.
        assert_eq!(bound(&by_number, Role::VhostUser).unwrap(), (0o666, own.0, own.1));
        assert_eq!(bound(&by_number, Role::Api).unwrap(), (0o666, own.0, own.1));
        let name = User::from_uid(user).unwrap().unwrap().name;
        let by_name = SocketAccess {
            owner: Some(Account::Name(name)),
            group: Some(Account::Name(Group::from_gid(group).unwrap().unwrap().name)),
            ..SocketAccess::default()
        };
        assert_eq!(bound(&by_name, Role::Api).unwrap(), (0o600, own.0, own.1));
    }

    #[test]
    fn a_name_that_does_not_exist_is_an_error_that_names_it() {
        let ghost = Some(Account::Name("no-such-account".into()));
        let refused = |access: &SocketAccess, role| {
            let error = bound(access, role).unwrap_err();
            assert!(error.is_of_configuration());
            error.to_string()
        };
        let access = SocketAccess { owner: ghost.clone(), ..SocketAccess::default() };
        let told = "`socket-owner`: user `no-such-account` is unknown on this host; create it, or give a name or number that exists";
        assert!(refused(&access, Role::VhostUser).ends_with(told));
        let access = SocketAccess { group: ghost, ..SocketAccess::default() };
        let told = "`api-group`: group `no-such-account` is unknown on this host; create it, or give a name or number that exists";
        assert!(refused(&access, Role::Api).ends_with(told));
    }

    #[test]
    fn only_root_gives_a_socket_to_another_user() {
        let other = SocketAccess { owner: Some(Account::Id(65_533)), ..SocketAccess::default() };
        match bound(&other, Role::VhostUser) {
            Ok((_, owner, _)) => assert_eq!((owner, getuid().is_root()), (65_533, true)),
            Err(error) => assert!(error.to_string().contains("cannot set `socket-owner`"), "{error}"),
        }
    }
}
