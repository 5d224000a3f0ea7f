//! Decides: a daemon that hangs is told from a wrong socket (`of`).
//!
//! Why a socket that takes connections does not answer.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

use super::IsApiSocket;

/// The name of the daemon's process, as the kernel keeps it.
const DAEMON: &str = "vhost-blk-mpath";
/// The ending of the file that the daemon has next to each vhost-user socket.
const FENCE_RECORD: &str = ".fence";

/// Why a socket does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The socket is the vhost-user socket of a disk.
    DiskSocket,
    /// The daemon with this process id is stopped.
    Stopped(i32),
    /// The daemon with this process id runs.
    Hung(i32),
    /// The process that listens is not known to be a daemon.
    Unknown,
}

impl Silence {
    /// Looks at the socket, and at the process that listens on it, if that is known.
    pub(super) fn of(socket: &Path, listener: Option<i32>) -> Self {
        let mut record = socket.as_os_str().to_owned();
        record.push(FENCE_RECORD);
        if Path::new(&record).exists() {
            return Self::DiskSocket;
        }
        let stat = listener.and_then(|pid| Some((pid, fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)));
        stat.map_or(Self::Unknown, |(pid, stat)| Self::of_process(pid, &stat))
    }

    /// Judges a process by its `/proc/PID/stat`. Another process may have the id of a daemon that has ended.
    fn of_process(pid: i32, stat: &str) -> Self {
        let state = stat.split_once(" (").and_then(|(_, name)| name.rsplit_once(") "));
        match state {
            Some((DAEMON, state)) if state.starts_with(['T', 't']) => Self::Stopped(pid),
            Some((DAEMON, _)) => Self::Hung(pid),
            _ => Self::Unknown,
        }
    }
}

impl Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DiskSocket => f.write_str(
                "it is the vhost-user socket of a disk; name the API socket of the daemon (`api`) with --api or MPATH_API",
            ),
            Self::Stopped(pid) => {
                write!(f, "the daemon is stopped, by SIGSTOP or a debugger; continue it with `kill -CONT {pid}`")
            }
            Self::Hung(pid) => write!(
                f,
                "the daemon (process {pid}) runs and hangs, or has too much to do; look at its log, and restart it if it stays silent: \
                 guests wait meanwhile"
            ),
            Self::Unknown => write!(f, "the daemon hangs, or this is another socket: {IsApiSocket}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_hangs_is_told_from_a_wrong_socket() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        assert_eq!(Silence::of(&socket, None), Silence::Unknown);
        // This process is no daemon.
        assert_eq!(Silence::of(&socket, i32::try_from(std::process::id()).ok()), Silence::Unknown);
        fs::write(place.path().join("disk.sock.fence"), "").unwrap();
        assert_eq!(Silence::of(&socket, None), Silence::DiskSocket);
        for (stat, silence) in [
            ("7 (vhost-blk-mpath) S 1 7", Silence::Hung(7)),
            ("7 (vhost-blk-mpath) T 1 7", Silence::Stopped(7)),
            ("7 (vhost-blk-mpath) t 1 7", Silence::Stopped(7)),
            ("7 (systemd) S 1 7", Silence::Unknown),
            ("7 (a) T (vhost-blk-mpath) S 1 7", Silence::Unknown),
            ("", Silence::Unknown),
        ] {
            assert_eq!(Silence::of_process(7, stat), silence, "{stat}");
        }
        assert!(Silence::Stopped(7).to_string().ends_with("continue it with `kill -CONT 7`"));
    }
}
