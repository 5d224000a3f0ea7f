//! Exit codes, wrong values, an unreachable daemon and a closed terminal.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use crate::daemon::{Daemon, finish, mpathctl};

#[test]
fn a_refusal_of_the_daemon_exits_with_1() {
    let daemon = Daemon::start();
    for (args, message) in [
        (
            &["path", "list", "--disk", "disk9"][..],
            "no disk is named `disk9`; did you mean `disk0`? `mpathctl status` shows the disks",
        ),
        (&["policy", "get", "--disk", "a b&c=d"], "no disk is named `a b&c=d`; `mpathctl status` shows the disks"),
        (
            &["policy", "set", "numa", "--disk", "\u{e4}"],
            "no disk is named `\u{e4}`; `mpathctl status` shows the disks",
        ),
        (&["inject", "set", "7", "--latency", "1ms"], "no path is `7`; `mpathctl path list` shows the paths"),
        (
            &["inject", "set", "1", "--latency", "1ms", "--disk", "disk1"],
            "no path is `1`; `mpathctl path list` shows the paths",
        ),
        (&["inject", "clear", "10.0.0.1"], "no path is `tcp://10.0.0.1:4420`; `mpathctl path list` shows the paths"),
    ] {
        assert_eq!(daemon.fail(args), (1, format!("mpathctl: {message}\n")), "{args:?}");
    }
}

#[test]
fn a_value_that_only_the_daemon_can_check_exits_with_2() {
    let daemon = Daemon::start();
    let (code, stderr) = daemon.fail(&["policy", "set", "numa", "--param", "gain=1"]);
    assert_eq!((code, stderr.as_str()), (2, "mpathctl: policy 'numa' has no parameter 'gain'; it has none\n"));
}

/// A program that reads the answer as JSON reads the error in the same form, on stderr.
#[test]
fn errors_have_the_format_of_the_output() {
    let daemon = Daemon::start();
    for (args, exit, code) in [
        (&["path", "list", "--disk", "disk9", "-o", "json"][..], 1, "unknown-disk"),
        (&["policy", "set", "numa", "--param", "gain=1", "-o", "json"], 2, "bad-request"),
        (&["policy", "set", "fastest", "-o", "json"], 2, "usage"),
        (&["--api", "/nowhere", "status", "-o", "json"], 3, "unreachable"),
    ] {
        let (found, stderr) = daemon.fail(args);
        let error: serde_json::Value = serde_json::from_str(&stderr).unwrap();
        assert_eq!((found, stderr.lines().count(), error["error"]["code"].as_str()), (exit, 1, Some(code)), "{stderr}");
        assert!(!error["error"]["message"].as_str().unwrap().is_empty(), "{stderr}");
    }
    let (_, stderr) = daemon.fail(&["path", "list", "--disk", "disk9", "-o", "yaml"]);
    assert!(stderr.starts_with("error:\n  code: unknown-disk\n  message: "), "{stderr}");
}

#[test]
fn a_wrong_value_prints_one_line_and_exits_with_2() {
    let daemon = Daemon::start();
    for (args, parts) in [
        (&["policy", "set", "fastest"][..], &["fastest", "latency-rr"][..]),
        (&["policy", "set", "latency-rr", "--param", "threshold"], &["--param", "NAME=VALUE"]),
        (&["policy", "set", "numa", "--class", "flush"], &["--class", "flush", "read, write"]),
        (&["inject", "set", "1", "--latency", "30"], &["'30'", "give a value such as 30ms"]),
        (&["inject", "set", "1", "--latency", "1\n2"], &["'1 2'"]),
        (&["inject", "set", "1", "--latency", "0ms"], &["1us to 60s"]),
        (&["inject", "set", "1", "--latency", "2min"], &["1us to 60s"]),
        (&["inject", "set", "1", "--rate", "1MB"], &["--rate", "64KiB to 100GiB"]),
        (&["inject", "set", "1", "--error-rate", "101%"], &["--error-rate", "0.0001% to 100%"]),
        (&["inject", "set", "1", "--error-rate", "1%", "--status", "x"], &["--status", "give one of: path-error"]),
        (&["inject", "set", "1", "--stall", "--class", "flush"], &["--class", "read, write, other"]),
        (&["inject", "set", "1"], &["at least one of latency, jitter, rate, error rate and stall"]),
        (&["inject", "set", "1", "--class", "read"], &["at least one of latency"]),
        (&["inject", "set", "1", "--latency", "1ms", "--status", "path-error"], &["give an error rate"]),
        (&["inject", "set", "1", "--latency", "1ms", "--distribution", "normal"], &["give a jitter"]),
        (&["inject", "set", "1", "--latency", "1ms", "--stall"], &["leave latency"]),
        (&["inject", "set", "rdma://h", "--latency", "1ms"], &["unknown transport `rdma`"]),
        (&["inject", "clear", "h:0"], &["`0` is no port"]),
        (&["inject", "clear", "-1"], &["`-1` is no index of a path"]),
        (&["path", "remove", "-1"], &["`-1` is no index of a path", "`path list`"]),
        (&["path", "drain", "00"], &["`00` is no index of a path"]),
        (&["path", "drain", "+1"], &["`+1` is no index of a path"]),
        (&["path", "show", ""], &["selects no path", "`all`"]),
        (&["path", "add", "", "--disk", "disk0"], &["tcp://HOST:PORT"]),
        (&["events", "--since", "x"], &["'x'", "--since", "number of an event"]),
        (&["events", "--since", "-1"], &["'-1'", "--since", "number of an event"]),
        (&["limit", "set", "--burst", "2"], &["'2'", "give a number and its unit", "such as 300ms, 1.5s or 5m"]),
        (&["status", "-o", "xml"], &["xml", "table, json, yaml"]),
    ] {
        let (code, stderr) = daemon.fail(args);
        assert_eq!((code, stderr.lines().count()), (2, 1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("mpathctl: ") && parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    }
    // An empty command line gets the help.
    for args in [&[][..], &["policy"]] {
        let (code, stderr) = daemon.fail(args);
        assert!(code == 2 && stderr.contains("\nUsage: mpathctl"), "{args:?}: {code}: {stderr}");
    }
    for (args, meant) in [
        (&["drain", "p1"][..], "unrecognized subcommand 'drain'; did you mean `mpathctl path drain`?"),
        (
            &["clear"],
            "'clear'; did you mean `mpathctl limit clear` or `mpathctl inject clear` or `mpathctl fence clear`?",
        ),
        (&["fence", "drain"], "'drain'; did you mean `mpathctl path drain`?"),
        (&["paths"], "unrecognized subcommand 'paths'; did you mean `health` or `path`?"),
        (&["path", "drian"], "unrecognized subcommand 'drian'; did you mean `drain`?"),
    ] {
        let (code, stderr) = daemon.fail(args);
        assert_eq!((code, stderr.lines().count()), (2, 1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("mpathctl: ") && stderr.contains(meant), "{args:?}: {stderr}");
    }
    for args in [&["xyz"][..], &["inject", "set"], &["policy", "set"], &["status", "--json"]] {
        let (code, stderr) = daemon.fail(args);
        assert_eq!((code, stderr.lines().count()), (2, 1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("mpathctl: ") && stderr.ends_with("; see --help\n"), "{args:?}: {stderr}");
    }
}

#[test]
fn an_unreachable_daemon_exits_with_3() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let name = path.to_str().unwrap();
    let fail = || {
        let (code, stdout, stderr) = finish(&mut mpathctl(&["--api", name, "policy", "get"]));
        assert_eq!(stdout, "");
        (code, stderr)
    };
    let not_running = format!(
        "mpathctl: no daemon listens on {name}; start vhost-blk-mpath, or name its API socket with --api or MPATH_API\n"
    );

    assert_eq!(fail(), (3, not_running.clone()));
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(fail(), (3, not_running));
    fs::remove_file(&path).unwrap();

    // A process that listens and is no daemon.
    let listener = UnixListener::bind(&path).unwrap();
    let stranger = |answer: &'static [u8]| {
        let listener = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        })
    };
    for (answer, part) in [
        (&b""[..], "broke: "),
        (b"SSH-2.0-OpenSSH\r\n", "broke: "),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[", "broke: "),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "cannot read"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nhi", "sent an answer (HTTP 500)"),
    ] {
        let thread = stranger(answer);
        let (code, stderr) = fail();
        thread.join().unwrap();
        assert_eq!((code, stderr.lines().count()), (3, 1), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn the_flag_wins_over_the_environment() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let mut command = mpathctl(&["status", "--api", socket.to_str().unwrap()]);
    assert_eq!(finish(command.env("MPATH_API", "/nowhere")).0, 0);
    let (code, _, stderr) = finish(&mut daemon.command(&["--api", "/nowhere", "status"]));
    assert!(code == 3 && stderr.contains("/nowhere"), "{stderr}");
}

#[test]
fn an_empty_environment_variable_is_ignored() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let mut command = mpathctl(&["status", "--api", socket.to_str().unwrap()]);
    assert_eq!(finish(command.env("MPATH_API", "")).0, 0);
    let (code, _, stderr) = finish(mpathctl(&["status"]).env("MPATH_API", ""));
    // The default socket was used, whether a daemon listens there or not.
    assert!(code == 0 || stderr.contains(mpath_config::DEFAULT_API_SOCKET), "{code}: {stderr}");
}

#[test]
fn help_and_version() {
    let (code, help, _) = finish(&mut mpathctl(&["--help"]));
    assert_eq!(code, 0);
    for part in ["/run/vhost-blk-mpath/api.sock", "MPATH_API", "Exit codes:", "policy", "inject"] {
        assert!(help.contains(part), "{part}\n{help}");
    }
    let (code, version, stderr) = finish(&mut mpathctl(&["--version"]));
    assert_eq!((code, &*version, &*stderr), (0, &*format!("mpathctl {}\n", env!("VHOST_BLK_MPATH_VERSION")), ""));
    // The commit, of 12 digits or more, is there if the tests are built from git.
    let commit = env!("VHOST_BLK_MPATH_VERSION").strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
    let commit = commit.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')')).unwrap_or("000000000000");
    assert!(commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{version}");
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_device_is() {
    let daemon = Daemon::start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = daemon.command(&["path", "list"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));

    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = daemon.command(&["path", "list"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(stderr, "mpathctl: cannot write the output: No space left on device (os error 28)\n");
}

#[test]
fn the_help_reports_a_full_device_and_notes_survive_one() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [&["--help"][..], &["--version"], &["help", "path"], &["path", "list", "-h"]] {
        let output = mpathctl(args).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let said = "mpathctl: cannot write the output: No space left on device (os error 28)\n";
        assert_eq!((output.status.code(), &*stderr), (Some(5), said), "{args:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = mpathctl(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]), "{args:?}");
    }
    // The error cannot be printed either.
    let status = mpathctl(&["--help"]).stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(5));
    // This command also prints a note.
    let daemon = Daemon::start_sharing();
    let status =
        daemon.command(&["disk", "remove", "disk0", "--force"]).stdout(Stdio::null()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn the_daemon_answers_after_garbage() {
    let daemon = Daemon::start();
    let connect = || UnixStream::connect(daemon.socket()).unwrap();
    // A write may fail because the server has closed the connection.
    let send = |bytes: &[u8]| {
        let mut stream = connect();
        let _ = stream.write_all(bytes);
        stream
    };
    let mut open = Vec::new();
    open.push(send(b"GET /v1/sta"));
    open.push(send(b"PUT /v1/settings HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{\"policy\""));
    let mut large = b"PUT /v1/settings HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\n".to_vec();
    large.resize(large.len() + (1 << 20), b' ');
    open.push(send(&large));
    open.push(send(&vec![0xa5; 1 << 20]));
    for _ in 0..200 {
        open.push(connect());
    }
    assert_eq!(daemon.run(&["policy", "set", "numa"]), "DISK   POLICY\ndisk0  numa\ndisk1  numa\n");
    drop(open);
    assert_eq!(daemon.run(&["policy", "get", "--disk", "disk0"]), "DISK   POLICY\ndisk0  numa\n");
}
