//! Events at once and as a stream, and whether the daemon is ready.

use mpath_api::client::{EventStream, Position};
use patience::eventually;

use super::*;

impl Running {
    fn happens(&self, last: u64) {
        self.control.happened.send_modify(|happened| happened.last = last);
    }
}

/// The numbers of the next events of a stream.
fn next(stream: &mut EventStream) -> Option<Vec<u64>> {
    let events = stream.read().unwrap()?;
    Some(events.events.iter().map(|event| event.seq).collect())
}

#[test]
fn events_are_read_at_once() {
    let server = Running::start(Limits::default());
    server.happens(3);
    let events = server.client().events(1).unwrap();
    assert_eq!((events.events.len(), events.last, &*events.boot_id), (2, 3, "boot"));
    let answer = server.raw(b"GET /v1/events HTTP/1.1\r\nlast-event-id: boot:2\r\nhost: x\r\n\r\n");
    assert!(answer.contains(r#""seq":3"#) && !answer.contains(r#""seq":2"#), "{answer}");
}

#[test]
fn a_stream_tells_events_as_they_happen_until_the_daemon_ends() {
    let server = Running::start(Limits::default());
    server.happens(2);
    let client = server.client();
    let mut stream = client.follow(&Position::After(1)).unwrap();
    assert_eq!(next(&mut stream), Some(vec![2]));
    server.happens(4);
    assert_eq!(next(&mut stream), Some(vec![3, 4]));
    server.control.happened.send_modify(|happened| (happened.last, happened.ends) = (5, true));
    assert_eq!(next(&mut stream), Some(vec![5]), "the last words of the daemon");
    assert_eq!(next(&mut stream), None);
}

#[test]
fn a_stream_resumes_after_its_last_message() {
    let server = Running::start(Limits::default());
    server.happens(3);
    let (client, seen) = (server.client(), |boot_id: &str, last| Position::Seen { boot_id: boot_id.into(), last });
    let first = |position| next(&mut client.follow(&position).unwrap());
    assert_eq!(first(seen("boot", 2)), Some(vec![3]));
    assert_eq!(first(seen("boot", 3)), Some(vec![]), "the first message comes at once");
    assert_eq!(first(seen("another", 2)), Some(vec![1, 2, 3]), "all events of another daemon are new");
    assert_eq!(first(seen("", 2)), Some(vec![1, 2, 3]));
}

#[test]
fn a_stream_outlasts_the_limits_of_other_requests_and_not_a_client_that_reads_nothing() {
    let server = Running::start(Limits { stall: Duration::from_secs(6), ..brief() });
    let start = Instant::now();
    let mut stream = server.connect();
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n").unwrap();
    let mut read = String::new();
    while !read.contains("\r\n:\n\n\r\n") {
        let mut part = [0; 256];
        let length = stream.read(&mut part).unwrap();
        assert_ne!(length, 0, "{read}");
        read.push_str(std::str::from_utf8(&part[..length]).unwrap());
    }
    assert!(start.elapsed() > brief().connection, "{read}");
    assert!(
        read.contains("content-type: text/event-stream") && read.contains("id: boot:0\ndata: {\"boot-id\""),
        "{read}"
    );
    // Messages that fill every buffer between server and client.
    let silent = server.connect();
    (&silent).write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n").unwrap();
    server.happens(20_000);
    drop(stream);
    let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut hang_up = [rustix::event::PollFd::new(&silent, rustix::event::PollFlags::RDHUP)];
    assert_eq!(rustix::event::poll(&mut hang_up, Some(&minute)), Ok(1), "the server hangs up");
    let length = std::io::copy(&mut &silent, &mut std::io::sink()).unwrap();
    assert!(length < 2 << 20, "the whole message was sent: {length} bytes");
}

#[test]
fn so_many_clients_follow_and_no_more() {
    let server = Running::start(Limits { followers: 2, ..Limits::default() });
    let client = server.client();
    let follow = || client.follow(&Position::After(0));
    let (first, _second) = (follow().unwrap(), follow().unwrap());
    let message = "2 clients follow events, which is the most allowed; end one of them";
    assert_eq!(refused(follow()), (ErrorCode::Unavailable, message.into()));
    assert_eq!(client.events(0).unwrap().last, 0, "a client that does not follow is answered");
    drop(first);
    // The server notices that the client has gone when it sends the next message.
    server.happens(1);
    eventually("another client may follow", || follow().is_ok());
}

#[test]
fn health_and_readiness() {
    let server = Running::start(Limits::default());
    assert_eq!(server.request("GET", "/healthz", ""), (200, "ok\n".into()));
    assert_eq!(server.request("GET", "/readyz", ""), (200, "ready\n".into()));
    server.control.is_starting.store(true, Ordering::Relaxed);
    let (status, answer) = server.request("GET", "/readyz", "");
    let reason = "the daemon starts, and waits for a live path of each disk (`wait-for: any`)";
    assert!(status == 503 && answer.contains(reason), "{answer}");
    assert_eq!(server.request("GET", "/healthz", "").0, 200);
}
