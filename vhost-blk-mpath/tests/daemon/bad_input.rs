//! Bad input and missing resources. One line on stderr says why, the exit code is the documented one, and nothing is
//! left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mpath_target::NamespaceConfig;
use nvme_tls::psk::{ConfiguredPsk, RetainedHash};

use crate::support::{Daemon, DaemonDirectory, NQN, Refusal, Target, program, refusing_address};

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NO_PATH: i32 = 3;
const SOCKET: i32 = 4;

/// Starts a daemon with these flags and those of a disk with one working path.
fn refused_with(flags: &str) -> Refusal {
    let (place, target) = (DaemonDirectory::new(), Target::start(1));
    let refusal = place.refused(place.command(&target.addrs(), flags));
    nothing_left(&place);
    refusal
}

/// Starts a daemon with this configuration file.
pub(crate) fn refused_file(text: &str) -> (Refusal, String) {
    let place = DaemonDirectory::new();
    let file = place.file("config.yaml");
    fs::write(&file, text).unwrap();
    let mut command = program();
    command.arg("--config").arg(&file);
    let refusal = place.refused(command);
    nothing_left(&place);
    (refusal, file.to_str().unwrap().to_owned())
}

#[track_caller]
fn nothing_left(place: &DaemonDirectory) {
    assert!(!place.socket().exists() && !place.api().exists());
}

#[test]
fn an_unknown_policy_error_lists_the_policies() {
    let refusal = refused_with("--policy fastest");
    refusal.says(USAGE, &["--policy", "fastest", "numa", "round-robin", "queue-depth", "latency-rr"]);
    refusal.alone();
}

#[test]
fn a_key_on_the_command_line_is_not_repeated() {
    for text in ["NVMeTLSkey-1:01:c2VjcmV0:", "'NVMeTLSkey-1:01:c2VjcmV0:'"] {
        let refusal = refused_with(&format!("--tls-key-file {text}"));
        refusal.says(USAGE, &["--tls-key-file", "(hidden)", "write the key to a file"]);
        assert!(!refusal.log.contains("c2VjcmV0"), "{}", refusal.log);
    }
}

#[test]
fn a_value_out_of_range_error_names_the_range() {
    let refusal = refused_with("--queues 257");
    refusal.says(USAGE, &["--queues", "257", "1 to 256"]);
    refusal.alone();
}

#[test]
fn a_path_given_twice_is_refused() {
    let (place, target) = (DaemonDirectory::new(), Target::start(1));
    let address = target.addrs()[0];
    let refusal = place.refused(place.command(&[address, address], ""));
    refusal.says(USAGE, &["paths[1]", &address.to_string(), "paths[0]"]);
    refusal.alone();
}

#[test]
fn a_missing_flag_is_named() {
    let place = DaemonDirectory::new();
    let mut command = program();
    command.args(["--subsystem", NQN]);
    let refusal = place.refused(command);
    refusal.says(USAGE, &["no socket: give --socket-path PATH", "--help"]);
    refusal.alone();
}

#[test]
fn a_missing_path_error_names_both_options() {
    let place = DaemonDirectory::new();
    let refusal = place.refused(place.command(&[], ""));
    refusal.says(USAGE, &["no path: give --path tcp://", "--discovery tcp://"]);
    refusal.alone();
    nothing_left(&place);
}

/// nvme-cli's -1 and 0 mean "forever".
#[test]
fn values_for_forever_are_refused() {
    for setting in ["ctrl-loss-tmo", "fast-io-fail-tmo"] {
        for value in ["-1", "0"] {
            let refusal = refused_with(&format!("--{setting}={value}"));
            let said = format!("'{value}' for '--{setting} <SECONDS>'");
            refusal.says(
                USAGE,
                &[
                    &said,
                    "a whole number of seconds from 1 to 86400, such as 5 or 5s; leave the setting out for no limit",
                ],
            );
            refusal.alone();
            let disk = "{socket-path: /tmp/s, subsystem: nqn.a, paths: ['tcp://127.0.0.1']";
            let (refusal, _) = refused_file(&format!("disks:\n  - {disk}, {setting}: {value}}}\n"));
            refusal.says(USAGE, &[setting, value, "leave the setting out for no limit"]);
            refusal.alone();
        }
    }
}

#[test]
fn an_empty_path_error_shows_the_format() {
    let refusal = refused_with("--path=");
    refusal.says(USAGE, &["--path", "tcp://HOST:PORT"]);
    refusal.alone();
}

#[test]
fn an_invalid_hostnqn_is_refused_and_an_odd_subsystem_is_a_warning() {
    let refusal = refused_with("--hostnqn foo");
    refusal.says(USAGE, &["hostnqn: `foo` does not start with `nqn.`", "nqn.2014-08.org.nvmexpress:uuid:"]);
    refusal.alone();
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
    let (place, first, second) = (DaemonDirectory::new(), refusing_address(), refusing_address());
    let refusal = place.refused(place.command(&[first.1, second.1], "--wait-for any"));
    let addresses = [first.1.to_string(), second.1.to_string()];
    refusal.says(NO_PATH, &["disk0", &addresses[0], &addresses[1], "Connection refused"]);
    nothing_left(&place);
}

#[test]
fn an_unknown_subsystem_is_named() {
    let (place, target) = (DaemonDirectory::new(), Target::with(1, |config| config.nqn = "nqn.other".into()));
    let refusal = place.refused(place.command(&target.addrs(), "--wait-for any"));
    refusal.says(NO_PATH, &["SUBNQN", NQN, "no subsystem of this NQN", &target.addrs()[0].to_string()]);
    nothing_left(&place);
}

#[test]
fn a_missing_namespace_error_lists_the_namespaces() {
    let (place, target) = (DaemonDirectory::new(), two_namespaces());
    let refusal = place.refused(place.command(&target.addrs(), "--namespace 9 --wait-for any"));
    refusal.says(NO_PATH, &["`namespace` 9", "1, 2"]);
    nothing_left(&place);
}

#[test]
fn several_namespaces_need_a_choice() {
    let (place, target) = (DaemonDirectory::new(), two_namespaces());
    place.refused(place.command(&target.addrs(), "--wait-for any")).says(NO_PATH, &["1, 2"]);
}

fn two_namespaces() -> Target {
    Target::with(1, |config| config.namespaces.push(NamespaceConfig::memory(1 << 20)))
}

#[test]
fn malformed_yaml_is_located() {
    let (refusal, file) = refused_file("api: /tmp/a\n\tdisks: []\n");
    refusal.says(USAGE, &[&format!("{file}:2:1: ")]);
    refusal.alone();
}

#[test]
fn an_unknown_key_is_located() {
    let (refusal, file) = refused_file("disks:\n  - socket-path: /tmp/s\n    polcy: numa\n");
    refusal.says(USAGE, &[&format!("{file}:3:5: "), "polcy", "policy"]);
    refusal.alone();
}

#[test]
fn a_missing_file_is_named() {
    let place = DaemonDirectory::new();
    let mut command = program();
    command.args(["--config", "/nonexistent/config.yaml"]);
    let refusal = place.refused(command);
    refusal.says(USAGE, &["/nonexistent/config.yaml: No such file"]);
    refusal.alone();
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

/// `--check` with this file: exit code, stdout and the lines of stderr.
fn checked(text: &str, more: &[&str]) -> (Option<i32>, String, Vec<String>) {
    let place = DaemonDirectory::new();
    let file = place.file("config.yaml");
    fs::write(&file, text).unwrap();
    let mut command = program();
    command.arg("--check").arg("--config").arg(&file).args(more).stdin(Stdio::null());
    let output = command.output().unwrap();
    nothing_left(&place);
    let name = file.to_str().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(name, "FILE");
    (output.status.code(), text(output.stdout), text(output.stderr).lines().map(String::from).collect())
}

#[test]
fn a_check_reports_all_errors_and_starts_nothing() {
    let (code, out, errors) =
        checked("io-threads: 0\ndisks:\n  - socket-path: /tmp/s\n    polcy: numa\n    paths: ['tcp://h']\n", &[]);
    assert_eq!((code, &*out, errors.len()), (Some(USAGE), "", 3), "{errors:?}");
    assert!(errors[0].starts_with("FILE:1:13: io-threads: invalid value: integer `0`"), "{errors:?}");
    assert!(errors[1].starts_with("FILE:3:5: disks[0]: missing field `subsystem`"), "{errors:?}");
    assert!(errors[2].starts_with("FILE:4:5: disks[0]: unknown field `polcy`: did you mean `policy`?"), "{errors:?}");
    let disk = "disks:\n  - {socket-path: /tmp/no.sock, subsystem: nqn.a, paths: ['tcp://127.0.0.1'], namespace: 1";
    let (code, out, errors) =
        checked(&format!("{disk}, share-paths-with: [{{name: s, socket-path: /tmp/t, namespace: 2}}]}}\n"), &[]);
    assert_eq!((code, &*out, errors), (Some(0), "FILE: no errors; disks: 2\n", vec![]));
}

#[test]
fn a_check_includes_what_the_host_lacks() {
    let disk = "disks:\n  - {socket-path: /nonexistent/s, subsystem: nqn.a, paths: ['tcp://127.0.0.1'], socket-owner: no-such-user";
    let (code, out, errors) = checked(&format!("{disk}, socket-group: no-such-group}}\n"), &[]);
    assert_eq!((code, &*out, errors.len()), (Some(USAGE), "", 3), "{errors:?}");
    for (error, part) in errors.iter().zip(["user `no-such-user` is unknown", "group `no-such-group`", "directory"]) {
        assert!(error.starts_with("FILE:2:19: disk disk0: /nonexistent/s: ") && error.contains(part), "{error}");
    }
    let sharer = "share-paths-with: [{name: s, namespace: 2, socket-path: /nonexistent/t}]";
    let disk = "socket-path: /tmp/no.sock, subsystem: nqn.a, paths: ['tcp://127.0.0.1'], namespace: 1";
    let (_, _, errors) = checked(
        &format!("api: /nonexistent/a\nmetrics-address: 192.0.2.1:9\ndisks:\n  - {{{disk},\n{sharer}}}\n"),
        &[],
    );
    for (error, begins) in errors.iter().zip([
        "FILE:1:6: /nonexistent/a: the directory of the API socket",
        "FILE:5:57: disk s: /nonexistent/t: the directory",
        "FILE:2:18: metrics-address: 192.0.2.1:9 is no address",
    ]) {
        assert!(error.starts_with(begins), "{errors:?}");
    }
    assert_eq!(errors.len(), 3, "{errors:?}");
}

#[test]
fn a_check_reads_keys_and_secrets() {
    let keys = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = keys.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let psk = ConfiguredPsk::new(RetainedHash::Sha256, &[7; 32]).unwrap();
    let key = file("key", &psk.to_interchange(), 0o600);
    let secret = file("secret", "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n", 0o600);
    let readable = file("readable", &psk.to_interchange(), 0o644);
    let check = |settings: &str| {
        checked(
            &format!(
                "disks:\n  - {{name: db, socket-path: /tmp/no.sock, subsystem: nqn.a, paths: ['tcp://127.0.0.1'], \
                 discovery: ['tcp://127.0.0.1'],\n{settings}}}\n"
            ),
            &[],
        )
    };
    let right = format!("tls-key-file: {key}, discovery-tls-key-file: {key}, dhchap-secret-file: {secret}");
    let (code, out, said) = check(&right);
    assert_eq!((code, &*out), (Some(0), "FILE: no errors; disks: 1\n"), "{said:?}");
    // Root can read all files, and does not know the daemon's user.
    let unchecked = said.iter().filter(|line| line.starts_with("not checked: whether the daemon's user may read"));
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!((unchecked.count(), said.len()), if is_root { (3, 3) } else { (0, 0) }, "{said:?}");

    let (code, _, said) = check(&format!("dhchap-secret-file: {secret}, concat: true"));
    assert_eq!(code, Some(0), "{said:?}");
    assert!(said[0].starts_with("warning: disk db: `concat` without `dhchap-ctrl-secret-file`"), "{said:?}");

    let wrong = format!(
        "tls-key-file: {secret},\ndiscovery-tls-key-file: {readable},\ndhchap-secret-file: {key},\n\
         dhchap-ctrl-secret-file: /nonexistent/secret"
    );
    let (code, out, mut errors) = check(&wrong);
    errors.retain(|line| !line.starts_with("not checked: "));
    assert_eq!((code, &*out, errors.len()), (Some(USAGE), "", 4), "{errors:?}");
    for (error, begins) in errors.iter().zip([
        format!("FILE:3:15: disk db: tls-key-file {secret}: the TLS key does not begin with"),
        format!("FILE:4:25: disk db: discovery-tls-key-file {readable}: mode 0644 gives other users access"),
        format!("FILE:5:21: disk db: dhchap-secret-file {key}: the secret does not start with"),
        "FILE:6:26: disk db: cannot read dhchap-ctrl-secret-file /nonexistent/secret: No such file".into(),
    ]) {
        assert!(error.starts_with(&begins), "{error}");
    }
    // systemd makes this file at the start.
    let credential = "tls-key-file /run/credentials/no-such.service/key, which systemd makes";
    let (code, out, said) = check("tls-key-file: /run/credentials/no-such.service/key");
    assert_eq!((code, &*out), (Some(0), "FILE: no errors; disks: 1\n"));
    assert!(said[0].starts_with(&format!("not checked: {credential}")), "{said:?}");
}

#[test]
fn a_check_finds_one_socket_under_several_spellings() {
    let disk = |name: &str, socket: &str| {
        format!("  - {{name: {name}, socket-path: {socket}, subsystem: nqn.{name}, paths: ['tcp://127.0.0.1']}}\n")
    };
    let disks = [("a", "/tmp/s"), ("b", "/tmp//s"), ("c", "/tmp/./s")].map(|(name, socket)| disk(name, socket));
    let (code, _, errors) = checked(&format!("disks:\n{}", disks.concat()), &[]);
    assert_eq!((code, errors.len()), (Some(USAGE), 2), "{errors:?}");
    assert!(
        errors[1].starts_with("disk c: `socket-path` /tmp/./s is the same socket as /tmp/s of disk a"),
        "{errors:?}"
    );
}

#[test]
fn flags_are_checked_too() {
    let place = DaemonDirectory::new();
    let address = refusing_address();
    let check = |more: &str| {
        let mut command = place.command(&[address.1], more);
        let output = command.arg("--check").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(check(""), (Some(0), "the flags: no errors; disks: 1\n".into(), String::new()));
    let (code, _, errors) = check(&format!("--hostnqn foo --path=tcp://{}", address.1));
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!((code, lines.len()), (Some(USAGE), 2), "{errors}");
    assert!(lines[0].starts_with("hostnqn: `foo`") && lines[1].starts_with("disks[0].paths[1]: "), "{errors}");
    let (code, _, errors) = check("--tls-key-file /nonexistent/key");
    assert_eq!(code, Some(USAGE));
    assert!(errors.starts_with("disk disk0: cannot read tls-key-file /nonexistent/key: No such file"), "{errors}");
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
