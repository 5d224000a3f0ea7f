//! Bad input and missing resources. One line on stderr says why, the exit code is the documented one, and nothing is
//! left behind. The texts for command lines and configurations are tested in `src/tests.rs`.

use std::env::consts::ARCH;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use mpath_target::NamespaceConfig;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use crate::support::{Daemon, DaemonDirectory, NQN, Target, program, refusing_address};

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NO_PATH: i32 = 3;
const SOCKET: i32 = 4;

#[track_caller]
fn nothing_left(place: &DaemonDirectory) {
    assert!(!place.socket().exists() && !place.api().exists());
}

#[test]
fn an_odd_subsystem_is_a_warning() {
    let (place, refusing) = (DaemonDirectory::new(), refusing_address());
    let mut command = program();
    command.arg("--socket-path").arg(place.socket()).arg("--api").arg(place.api());
    command.args(["--subsystem", "testnqn", "--path", &format!("tcp://{}", refusing.1), "--wait-for", "any"]);
    let (code, log) = place.fails_or_serves(command).unwrap();
    // The daemon has accepted the name and tried the path.
    assert_eq!(code, NO_PATH);
    assert!(log.contains("the name of the subsystem does not start with `nqn.`") && log.contains("testnqn"), "{log}");
}

#[test]
fn flags_with_a_configuration_file_are_refused() {
    let place = DaemonDirectory::new();
    let mut command = program();
    command.args(["--config", "/nonexistent", "--policy", "numa"]);
    let refusal = place.refused(command);
    refusal.says(USAGE, &["--config and --policy cannot be used together"]);
    refusal.alone();
}

#[test]
fn if_all_paths_fail_each_is_named() {
    let [first, second] = [refusing_address(), refusing_address()];
    let addresses = [first.1.to_string(), second.1.to_string()];
    no_path(&[first.1, second.1], "", &["disk0", &addresses[0], &addresses[1], "Connection refused"]);
}

#[test]
fn an_unknown_subsystem_is_named() {
    let target = Target::with(1, |config| config.nqn = "nqn.other".into());
    let address = target.addrs()[0].to_string();
    no_path(&target.addrs(), "", &["SUBNQN", NQN, "no subsystem of this NQN", &address]);
}

#[test]
fn namespaces_are_listed_if_one_is_missing_or_none_is_chosen() {
    let target = Target::with(1, |config| config.namespaces.push(NamespaceConfig::memory(1 << 20)));
    no_path(&target.addrs(), "--namespace 9", &["`namespace` 9", "1, 2"]);
    no_path(&target.addrs(), "", &["1, 2"]);
}

/// A daemon that waits for one of these paths ends without.
fn no_path(paths: &[SocketAddr], more: &str, words: &[&str]) {
    let place = DaemonDirectory::new();
    place.refused(place.command(paths, &format!("--wait-for any {more}"))).says(NO_PATH, words);
    nothing_left(&place);
}

/// A daemon whose flags name a socket on which another process listens. That socket is left alone, and the daemon's
/// own is removed.
fn busy(busy: impl Fn(&DaemonDirectory) -> PathBuf, other: impl Fn(&DaemonDirectory) -> PathBuf, role: &str) {
    let (place, target) = (DaemonDirectory::new(), Target::start(1));
    let path = busy(&place);
    let listener = UnixListener::bind(&path).unwrap();
    let refusal = place.refused(place.command(&target.addrs(), ""));
    refusal.says(SOCKET, &[path.to_str().unwrap(), "another process listens", role]);
    refusal.alone();
    assert!(!other(&place).exists());
    // The daemon has not connected to it. This test does.
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
    UnixStream::connect(&path).unwrap();
    assert!(listener.accept().is_ok());
    assert_eq!(target.connections(0), 0);
}

#[test]
fn a_busy_vhost_user_socket_is_left_alone() {
    busy(DaemonDirectory::socket, DaemonDirectory::api, "vhost-user socket");
}

#[test]
fn a_busy_api_socket_is_left_alone() {
    busy(DaemonDirectory::api, DaemonDirectory::socket, "API socket");
}

#[test]
fn sockets_that_nobody_listens_on_are_replaced() {
    let (place, target) = (DaemonDirectory::new(), Target::start(1));
    for path in [place.socket(), place.api()] {
        drop(UnixListener::bind(path).unwrap());
    }
    let command = place.command(&target.addrs(), "");
    let daemon: Daemon = place.spawn(command).ready();
    assert_eq!(daemon.status().disks.len(), 1);
}

#[test]
fn a_file_that_is_not_a_socket_is_not_replaced() {
    for path in [DaemonDirectory::socket, DaemonDirectory::api] {
        let (place, target) = (DaemonDirectory::new(), Target::start(1));
        fs::write(path(&place), "precious").unwrap();
        let refusal = place.refused(place.command(&target.addrs(), ""));
        refusal.says(SOCKET, &[path(&place).to_str().unwrap(), "no socket"]);
        refusal.alone();
        assert_eq!(fs::read_to_string(path(&place)).unwrap(), "precious");
    }
}

#[test]
fn an_invalid_fence_record_prevents_the_start_and_is_kept() {
    let (place, target) = (DaemonDirectory::new(), Target::start(1));
    fs::write(place.fence_record(), "precious").unwrap();
    let refusal = place.refused(place.command(&target.addrs(), ""));
    refusal.says(FAILED, &[place.fence_record().to_str().unwrap(), "is not a fence record", "remove it"]);
    refusal.alone();
    assert_eq!(fs::read_to_string(place.fence_record()).unwrap(), "precious");
    assert!(!place.socket().exists() && !place.api().exists());
}

#[test]
fn a_directory_that_cannot_be_created_is_named() {
    let place = DaemonDirectory::new();
    let mut command = program();
    command.arg("--socket-path").arg(place.socket()).args(["--api", "/nonexistent/deeper/api.sock"]);
    command.args(["--subsystem", NQN, "--path", "tcp://127.0.0.1:4420"]);
    let refusal = place.refused(command);
    refusal.says(SOCKET, &["/nonexistent/deeper/api.sock", "directory"]);
    refusal.alone();
    nothing_left(&place);
}

/// However few descriptors it may open, the daemon says so and leaves nothing behind.
#[test]
fn too_few_descriptors_are_reported() {
    let target = Target::start(1);
    // With fewer, the loader cannot open the libraries.
    for limit in [4, 5, 8, 16, 64, 256] {
        let place = DaemonDirectory::new();
        let daemon = place.command(&target.addrs(), "--wait-for any");
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n $0; exec \"$@\"", &limit.to_string()]);
        command.arg(daemon.get_program()).args(daemon.get_args());
        let refusal = place.refused(command);
        refusal.says(FAILED, &[&format!("the hard limit of open files is {limit};")]);
        refusal.alone();
        nothing_left(&place);
    }
}

/// Runs `work` in a thread whose child processes may not set up `io_uring`, as in a container.
fn without_io_uring<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let setup = [(libc::SYS_io_uring_setup, Vec::new())].into();
    let (refuse, arch) = (SeccompAction::Errno(libc::EPERM as u32), ARCH.try_into().unwrap());
    let filter: BpfProgram = SeccompFilter::new(setup, SeccompAction::Allow, refuse, arch).unwrap().try_into().unwrap();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            apply_filter(&filter).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_container_without_io_uring_is_explained_before_the_daemon_is_ready() {
    let (place, address) = (DaemonDirectory::new(), refusing_address());
    let refusal = without_io_uring(|| place.refused(place.command(&[address.1], "")));
    refusal.says(FAILED, &["io_uring cannot be set up: Operation not permitted", "seccomp profile of the container"]);
    refusal.alone();
    nothing_left(&place);
    let checked = without_io_uring(|| place.command(&[address.1], "--check").output().unwrap());
    let said = String::from_utf8(checked.stderr).unwrap();
    assert_eq!((checked.status.code(), said.lines().count()), (Some(USAGE), 1), "{said}");
    assert!(said.starts_with("io_uring cannot be set up: "), "{said}");
}

#[test]
fn a_check_starts_nothing() {
    let place = DaemonDirectory::new();
    let address = refusing_address();
    let check = |more: &str| {
        let output = place.command(&[address.1], more).arg("--check").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(check(""), (Some(0), "the flags: no errors; disks: 1\n".into(), String::new()));
    let (code, out, errors) = check(&format!("--hostnqn foo --path=tcp://{}", address.1));
    assert_eq!((code, &*out, errors.lines().count()), (Some(USAGE), "", 2), "{errors}");
    nothing_left(&place);
}

#[test]
fn print_capabilities_overrides_other_flags() {
    for flags in ["", "--policy fastest", "--config /nonexistent --queues x", "--no-such-flag --version"] {
        let mut command = program();
        command.args(flags.split_whitespace()).arg("--print-capabilities").stdin(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{flags}");
        let capabilities: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(capabilities, serde_json::json!({"type": "block", "features": ["read-only"]}), "{flags}");
    }
}
