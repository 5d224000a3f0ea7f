//! The program: its output and its exit status.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nvme_tcp::host::{ControllerConfig, IoCommand};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{NQN, PATIENCE, connect, eventually, host_config};

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpath-target"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running program, which is killed on drop, even after a failed assertion.
struct Running(Child);

type Lines = std::io::Lines<BufReader<std::process::ChildStdout>>;

impl Running {
    fn lines(&mut self) -> Lines {
        BufReader::new(self.0.stdout.take().unwrap()).lines()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id().cast_signed()).unwrap(), signal).unwrap();
    }
}

/// The addresses of the two ports of a target.
fn listening(lines: &mut Lines) -> [SocketAddr; 2] {
    ["1", "2"].map(|port| {
        let line = lines.next().unwrap().unwrap();
        let (addr, rest) = line.strip_prefix("listening on ").unwrap().split_once(' ').unwrap();
        assert_eq!(rest, format!("nqn {NQN} port {port}"));
        addr.parse().unwrap()
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn refused(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = program(args).output().unwrap();
    assert!(stdout.is_empty());
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn it_prints_its_addresses_and_ends_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let args =
            ["--nqn", NQN, "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0,delay=1ms", "--namespace", "mem:1MiB"];
        let mut running = Running(program(&args).spawn().unwrap());
        let mut lines = running.lines();
        let addrs = listening(&mut lines);
        let (_admin, mut queue, _) = connect(addrs[1], host_config());
        queue.write(0, &[5; 512], false).unwrap();
        running.signal(signal);
        let start = Instant::now();
        let status = loop {
            if let Some(status) = running.0.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(status.code(), Some(0));
        assert!(lines.next().is_none());
    }
}

/// A host relies on a fence: a target that was stopped for longer than the keep-alive timeout must not execute commands that wait
/// in its sockets.
#[test]
fn a_target_stopped_for_longer_than_kato_does_not_execute_waiting_commands() {
    let args = ["--nqn", NQN, "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--namespace", "mem:1MiB"];
    let mut running = Running(program(&args).spawn().unwrap());
    let addrs = listening(&mut running.lines());
    let keep_alive_tmo = Duration::from_secs(1);
    let (mut admin, mut first, _) =
        connect(addrs[0], ControllerConfig { keep_alive_tmo: keep_alive_tmo.into(), ..host_config() });
    first.write(0, &[1; 512], false).unwrap();
    running.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", running.0.id());
    eventually("it is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    let stopped = Instant::now();
    first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, vec![2; 512]);
    first.flush().unwrap();
    while stopped.elapsed() < keep_alive_tmo {
        // Keep-alives that wait in the socket do not restart the timer. The host may give up before the time is over.
        if let Err(error) = admin.turn() {
            assert!(format!("{error:?}").contains("KeepAlive"), "{error:?}");
        }
    }
    running.signal(Signal::CONT);
    assert!(first.completion().is_err(), "the connection ends, and the write is not answered");
    let (_admin, mut second, _) = connect(addrs[1], host_config());
    assert!(second.read(0, 1).unwrap() == [1; 512]);
}

#[test]
fn bad_arguments_lead_to_exit_status_2_and_one_line() {
    for (args, word) in [
        (vec![], "--nqn"),
        (vec!["--nqn", NQN, "--listen", "127.0.0.1", "--namespace", "mem:1MiB"], "127.0.0.1"),
        (vec!["--nqn", NQN, "--listen", "127.0.0.1:0", "--namespace", "mem:1000"], "1000"),
    ] {
        let (code, message) = refused(&args);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.starts_with("mpath-target: ") && message.contains(word), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn an_unusable_address_or_file_leads_to_exit_status_1_and_one_line() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = busy.local_addr().unwrap().to_string();
    let args = ["--nqn", NQN, "--listen", &addr, "--namespace", "mem:1MiB"];
    let (code, message) = refused(&args);
    assert_eq!(code, Some(1));
    assert!(message.contains(&addr) && message.lines().count() == 1, "{message}");
    let args = ["--nqn", NQN, "--listen", "127.0.0.1:0", "--namespace", "file:/nonexistent/disk:1MiB"];
    let (code, message) = refused(&args);
    assert_eq!(code, Some(1));
    assert!(message.contains("/nonexistent/disk") && message.lines().count() == 1, "{message}");
}

/// A running target with an API socket.
struct Api {
    running: Running,
    socket: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Api {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("api.sock");
        let path = socket.to_str().unwrap();
        let args = ["--nqn", NQN, "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0,ana=non-optimized"];
        let rest = ["--namespace", "mem:1MiB", "--discovery", "127.0.0.1:0", "--api", path];
        let mut running = Running(program(&[&args[..], &rest[..]].concat()).spawn().unwrap());
        let lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        let lines: Vec<_> = lines.take(3).map(Result::unwrap).collect();
        assert!(lines[2].starts_with("discovery on 127.0.0.1:"), "{lines:?}");
        Self { running, socket, _dir: dir }
    }

    fn ctl(&self, args: &[&str]) -> Output {
        let api = ["ctl", "--api", self.socket.to_str().unwrap()];
        program(&[&api[..], args].concat()).output().unwrap()
    }

    fn status(&self) -> mpath_target::api::Status {
        let Output { status, stdout, .. } = self.ctl(&["status"]);
        assert!(status.success());
        serde_json::from_slice(&stdout).unwrap()
    }

    /// The answer of the API to these bytes.
    fn http(&self, request: &str) -> String {
        let mut stream = std::os::unix::net::UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn put(&self, body: &str) -> String {
        let len = body.len();
        self.http(&format!("PUT /v1/settings HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{body}"))
    }
}

#[test]
fn ctl_shows_the_status_and_changes_settings() {
    let api = Api::start();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&api.socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let status = api.status();
    assert_eq!((status.pid, status.nqn.as_str(), status.listeners.len()), (api.running.0.id(), NQN, 2));
    assert_eq!(status.listeners[1].ana[0].state, "non-optimized");
    let generation = status.discovery.unwrap().generation;

    let done = api.ctl(&["set", "1", "ana=inaccessible", "delay=3ms", "hold=on", "listen=off"]);
    assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
    let status = api.status();
    let [first, second] = &status.listeners[..] else { panic!("{status:?}") };
    assert_eq!((first.ana[0].state.as_str(), first.delay_us, first.holding), ("inaccessible", 3000, true));
    assert_eq!((first.listening, second.listening, second.delay_us, second.holding), (false, true, 0, false));
    assert!(status.discovery.unwrap().generation > generation);

    assert!(api.ctl(&["set", "all", "delay=1ms"]).status.success());
    assert!(api.status().listeners.iter().all(|listener| listener.delay_us == 1000));
    assert!(api.ctl(&["set", "discovery", "reset=all"]).status.success());
}

#[test]
fn a_failed_ctl_prints_one_line_and_returns_an_exit_status() {
    let api = Api::start();
    for (args, code, word) in [
        (vec!["set", "3", "delay=1ms"], 1, "port 3"),
        (vec!["set", "1", "ana=2:change"], 1, "group 2"),
        (vec!["set", "discovery", "hold=on"], 1, "hold=on"),
        (vec!["set", "1", "hold=maybe"], 2, "maybe"),
        (vec!["set", "1"], 2, "SETTING"),
        (vec!["reset"], 2, "reset"),
    ] {
        let Output { status, stdout, stderr } = api.ctl(&args);
        let message = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{message}");
        assert!(stdout.is_empty() && message.starts_with("mpath-target: ") && message.contains(word), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    let (code, message) = refused(&["ctl", "--api", "/nonexistent/api.sock", "status"]);
    assert_eq!(code, Some(3));
    assert!(message.contains("/nonexistent/api.sock") && message.lines().count() == 1, "{message}");
}

#[test]
fn malformed_requests_get_one_error_line() {
    let api = Api::start();
    for (body, word) in [
        ("", "EOF"),
        ("{}", "port"),
        (r#"{"port":1,"settings":[]}"#, "expected a port ID"),
        (r#"{"port":"1","settings":["delay=fast"]}"#, "fast"),
        (r#"{"port":"1","settings":["delay=1ms"],"then":1}"#, "then"),
    ] {
        let answer = api.put(body);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let (_, error) = answer.split_once("\r\n\r\n").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["error"]["code"], "bad-request");
        assert!(error["error"]["message"].as_str().unwrap().contains(word), "{error}");
    }
    let long = api.http("PUT /v1/settings HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n");
    assert!(long.starts_with("HTTP/1.1 413 "), "{long}");
    let unknown = api.http("GET /v1/faults HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(unknown.starts_with("HTTP/1.1 404 "), "{unknown}");
    let method = api.http("DELETE /v1/status HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(method.starts_with("HTTP/1.1 405 "), "{method}");
    assert_eq!(api.status().listeners[0].delay_us, 0);
}

#[test]
fn an_api_socket_in_use_is_refused() {
    let api = Api::start();
    let path = api.socket.to_str().unwrap();
    let (code, message) = refused(&["--nqn", NQN, "--listen", "127.0.0.1:0", "--namespace", "mem:1MiB", "--api", path]);
    assert_eq!(code, Some(1));
    assert!(message.contains(path) && message.lines().count() == 1, "{message}");
}
