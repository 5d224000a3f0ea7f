//! The process of a client, as `/proc` shows it: its login user, its command and its systemd unit.
//!
//! None of it is proof. A process may change its command line, and may pass a connection on.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use mpath_api::types::Caller;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The most bytes of a command.
const COMMAND_BYTES_MAX: usize = 256;
/// The most bytes of the list of control groups. Each hierarchy of version 1 is a line.
const CGROUPS_BYTES_MAX: u64 = 16 << 10;
/// The kernel waits for the memory map of the process to read its command line. A process that keeps the map locked must not hold up
/// its request.
const READ_MAX: Duration = Duration::from_millis(200);
/// The reads at a time: each that does not return keeps a thread.
static READS: Semaphore = Semaphore::const_new(4);
/// The login user of a process that no login has started.
const NO_LOGIN: u32 = u32::MAX;

/// The name of a process's program, up to 15 bytes of it. `None` if the process is gone or hidden from this daemon. Unlike the command
/// line, the kernel has the name at hand.
#[must_use]
pub fn program(pid: u32) -> Option<String> {
    read(&format!("/proc/{pid}/comm"), 16).ok().and_then(|text| command(text.trim_end()))
}

/// Adds what `/proc` says of the process. Leaves out what cannot be read, because the process is gone or hidden from this daemon.
pub(super) async fn describe(caller: Caller) -> Caller {
    let (Some(pid), Ok(permit)) = (caller.pid, READS.try_acquire()) else { return caller };
    // A read that takes too long keeps its permit.
    let read = timeout(READ_MAX, spawn_blocking(move || (Process::read(pid), drop(permit)).0)).await;
    let Process { login_uid, command, unit } = read.ok().and_then(Result::ok).unwrap_or_default();
    Caller { login_uid, command, unit, ..caller }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Process {
    login_uid: Option<u32>,
    command: Option<String>,
    unit: Option<String>,
}

impl Process {
    fn read(pid: u32) -> Self {
        let read = |file, bytes_max| read(&format!("/proc/{pid}/{file}"), bytes_max).ok();
        Self {
            login_uid: read("loginuid", 16).and_then(|text| login_uid(&text)),
            // One byte more shows that the command is longer.
            command: read("cmdline", COMMAND_BYTES_MAX as u64 + 1).and_then(|text| command(&text)),
            unit: read("cgroup", CGROUPS_BYTES_MAX).and_then(|text| unit(&text)),
        }
    }
}

fn read(file: &str, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(file)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn login_uid(text: &str) -> Option<u32> {
    text.trim().parse().ok().filter(|uid| *uid != NO_LOGIN)
}

/// The program and its arguments, each of which ends with a NUL.
fn command(text: &str) -> Option<String> {
    const MARK: &str = "...";
    let printable = |c: char| match c {
        '\0' => ' ',
        c if c.is_control() => '?',
        c => c,
    };
    let mut command: String = text.trim_end_matches('\0').chars().map(printable).collect();
    if command.len() > COMMAND_BYTES_MAX {
        let end = (0..=COMMAND_BYTES_MAX - MARK.len()).rev().find(|at| command.is_char_boundary(*at));
        command.truncate(end.unwrap_or(0));
        command.push_str(MARK);
    }
    (!command.is_empty()).then_some(command)
}

/// The service or scope in the path of the control group: the first one, because a service may have groups of its own below. Version 2
/// has one line, `0::PATH`. Version 1 has a line for each hierarchy, and systemd's is the one of this name.
fn unit(text: &str) -> Option<String> {
    let path = |start| text.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(start));
    let path = path("name=systemd:").or_else(|| path(":"))?;
    let is_unit = |part: &&str| part.rsplit_once('.').is_some_and(|(_, kind)| matches!(kind, "service" | "scope"));
    path.split('/').find(is_unit).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_login_has_no_login_user() {
        assert_eq!(login_uid("1000"), Some(1000));
        assert_eq!(login_uid("0\n"), Some(0));
        assert_eq!(login_uid("4294967295"), None);
        assert_eq!(login_uid(""), None);
    }

    #[test]
    fn a_command_is_one_short_line() {
        assert_eq!(command("/usr/bin/mpathctl\0policy\0set\0bdp\0").unwrap(), "/usr/bin/mpathctl policy set bdp");
        assert_eq!(command("a\0\x1b[2J\nb\0").unwrap(), "a ?[2J?b");
        assert_eq!((command(""), command("\0")), (None, None));
        let longest = "x".repeat(COMMAND_BYTES_MAX);
        assert_eq!(command(&longest).unwrap(), longest);
        let cut = command(&"\u{e4}".repeat(COMMAND_BYTES_MAX)).unwrap();
        assert!(cut.len() <= COMMAND_BYTES_MAX && cut.ends_with("\u{e4}..."), "{cut}");
    }

    #[test]
    fn a_unit_is_found_in_both_versions_of_control_groups() {
        for (text, expected) in [
            ("0::/system.slice/backup.service\n", Some("backup.service")),
            ("0::/user.slice/user-1000.slice/session-3.scope\n", Some("session-3.scope")),
            ("0::/system.slice/libvirtd.service/emulator\n", Some("libvirtd.service")),
            ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.service\n", Some("user@1000.service")),
            ("12:cpu:/x.service\n1:name=systemd:/system.slice/cron.service\n0::/\n", Some("cron.service")),
            ("0::/\n", None),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(unit(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_process_that_is_gone_is_not_described() {
        // Above the kernel's highest number of a process.
        assert_eq!((Process::read(u32::MAX), program(u32::MAX)), (Process::default(), None));
    }
}
