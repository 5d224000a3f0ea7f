//! Clients that are slow, silent or many, and the socket itself.

use super::*;

#[test]
fn bounds_bodies() {
    let server = Running::start(brief());
    let mut padded = r#"{"policy":{"name":"numa"}}"#.to_string();
    padded.push_str(&" ".repeat((64 << 10) - padded.len()));
    assert_eq!(server.request("PUT", "/v1/settings", &padded).0, 200);
    padded.push(' ');
    let (status, body) = server.request("PUT", "/v1/settings", &padded);
    assert_eq!(status, 413);
    assert!(body.contains(r#""code":"body-too-large""#), "{body}");

    // Without a length there is nothing to refuse early.
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let head = "PUT /v1/settings HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = server.raw(format!("{head}{chunk}1\r\nx\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");

    // Bodies that never come to their end.
    for start in
        ["PUT /v1/settings HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nx".into(), format!("{head}{chunk}")]
    {
        let mut stream = server.connect();
        stream.write_all(start.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}

#[test]
fn bounds_heads() {
    let server = Running::start(brief());
    let headers = |count: usize| "x: y\r\n".repeat(count);
    let status = |target: &str, headers: &str| {
        let answer = server.raw(format!("GET {target} HTTP/1.1\r\n{headers}\r\n").as_bytes());
        answer.split(' ').nth(1).unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    assert_eq!(status("/v1/status", &headers(100)), "200");
    assert_eq!(status("/v1/status", &headers(101)), "431");
    let long = |bytes: usize| format!("/v1/disks?disk={}", "a".repeat(bytes));
    assert_eq!(status(&long(8 << 10), ""), "404");
    assert_eq!(status(&long(16 << 10), ""), "431");
    assert_eq!(status("/v1/status", &format!("x: {}\r\n", "y".repeat(16 << 10))), "431");
}

#[test]
fn bounds_the_depth_of_bodies() {
    let server = Running::start(brief());
    let levels = 10_000;
    let nested = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    let listed = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for (method, route) in [
        ("PUT", "/v1/settings"),
        ("PUT", "/v1/paths"),
        ("PUT", "/v1/injections"),
        ("POST", "/v1/disks"),
        ("POST", "/v1/disks/a/paths"),
    ] {
        for key in ["policy", "params", "limits", "injection", "x"] {
            for value in [&nested, &listed] {
                let (status, answer) = server.request(method, route, &format!(r#"{{"{key}":{value}}}"#));
                assert_eq!(status, 400, "{method} {route} {key}: {answer}");
            }
        }
    }
}

#[test]
fn closes_on_clients_that_send_no_request() {
    let server = Running::start(brief());
    for start in [&b""[..], b"G", b"GET /v1/status HTTP/1.1\r\nhost:"] {
        let mut stream = server.connect();
        stream.write_all(start).unwrap();
        let before = Instant::now();
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0, "{start:?}");
        assert!(before.elapsed() >= Duration::from_millis(100), "closed by the timeout, not by the request");
    }
    let garbage: Vec<u8> = (0..4096_u32).map(|i| (i * 31 % 251) as u8).collect();
    server.raw(&garbage);
    server.raw(format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20)).as_bytes());
    server.raw(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000).as_slice());
    assert_eq!(server.client().status().unwrap().pid, 7);
}

#[test]
fn a_client_that_closes_its_half_is_answered() {
    let server = Running::start(Limits::default());
    let mut stream = server.connect();
    stream.write_all(b"GET /v1/status HTTP/1.0\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    // An hour: nobody gets in because these time out.
    let hour = Duration::from_secs(3600);
    let server = Running::start(Limits { header: hour, connection: hour, ..Limits::default() });
    let silent: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for _ in 0..100 {
        assert_eq!(server.client().status().unwrap().pid, 7);
    }
    // The oldest were displaced.
    assert_eq!((&silent[0]).read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_daemon_that_does_not_answer_is_reported() {
    let mut server = Running::start(brief());
    server.control.stuck.store(true, Ordering::Relaxed);
    match server.client().status() {
        Err(ClientError::Refused(error)) => {
            assert_eq!(error.code, ErrorCode::Unavailable);
            assert_eq!(error.message, "the daemon's I/O threads do not answer; see its log");
        }
        other => panic!("{other:?}"),
    }
    server.end();
}

#[test]
fn a_slow_change_of_disks_is_not_reported_as_an_unresponsive_daemon() {
    let server = Running::start_with(Fake::with(&["db", "paths", "paths-of-db"]), brief());
    server.control.stuck.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let disk = DiskConfig::new("/tmp/s".parse().unwrap(), "nqn.a".parse().unwrap(), vec![]);
    let goes_on = |(code, said): (ErrorCode, String)| {
        assert!(code == ErrorCode::Unavailable && said.contains("the daemon goes on"), "{said}");
    };
    goes_on(refused(server.client().add_disk(&disk)));
    assert!(start.elapsed() >= 2 * brief().control, "it has more time than others");
    // A disk may have a name that looks like a part of another route.
    goes_on(refused(server.client().remove_disk("paths-of-db", true)));
    goes_on(refused(server.client().remove_disk("paths", true)));
    let (_, answer) = server.request("DELETE", "/v1/disks/db/paths/0", "");
    assert!(answer.contains("do not answer"), "{answer}");
}

#[test]
fn ends_at_once_with_silent_clients_about() {
    let mut server = Running::start(Limits::default());
    let mut silent = server.connect();
    // The server has answered a later connection, so it has accepted the silent one.
    server.client().status().unwrap();
    let path = server.path();
    assert!(path.exists());
    server.end();
    assert!(!path.exists());
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn the_socket_is_private_and_replaces_only_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let path = socket(&dir);
    let file = path.as_path();
    let bind = || Server::bind(&path);
    let refused = || bind().unwrap_err().to_string();

    let server = bind().unwrap();
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let busy = format!(
        "{path}: another process listens on this API socket; give each daemon its own, and name a socket from socket activation as it was bound"
    );
    assert_eq!(refused(), busy);
    drop(server);
    assert!(!file.exists());

    // Alive, but stuck.
    let stuck = UnixListener::bind(file).unwrap();
    rustix::net::listen(&stuck, 0).unwrap();
    let _waiting = UnixStream::connect(file).unwrap();
    assert_eq!(refused(), busy);
    drop(stuck);
    std::fs::remove_file(file).unwrap();

    // Left behind by a process that was killed.
    drop(UnixListener::bind(file).unwrap());
    let server = bind().unwrap();
    UnixStream::connect(file).unwrap();
    // A successor's socket is not ours to remove.
    std::fs::remove_file(file).unwrap();
    let successor = UnixListener::bind(file).unwrap();
    drop(server);
    assert!(file.exists());
    drop(successor);
    std::fs::remove_file(file).unwrap();

    std::fs::write(file, "precious").unwrap();
    assert_eq!(refused(), format!("{path}: exists and is no socket; remove it or name another API socket"));
    assert_eq!(std::fs::read(file).unwrap(), b"precious");
}

#[test]
fn a_directory_that_is_missing_is_not_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let path: SocketPath = dir.path().join("nowhere/api.sock").to_str().unwrap().parse().unwrap();
    let error = Server::bind(&path).unwrap_err().to_string();
    let reason = "the directory of the API socket cannot be used: No such file or directory (os error 2); create it or name another";
    assert_eq!(error, format!("{path}: {reason}"));
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn of_two_that_start_at_once_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let path = socket(&dir);
    for _ in 0..50 {
        drop(UnixListener::bind(path.as_path()).unwrap());
        let start = || {
            let path = path.clone();
            thread::spawn(move || Server::bind(&path))
        };
        let (a, b) = (start(), start());
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
        UnixStream::connect(path.as_path()).unwrap();
    }
}
