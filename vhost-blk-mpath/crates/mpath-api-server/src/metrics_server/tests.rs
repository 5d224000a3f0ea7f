use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use patience::PATIENCE;
use tokio::sync::oneshot;

use super::*;
use crate::tests::{Fake, Running};

/// A listener on an address of its own, so that no other program gets its port after it.
fn listener() -> TcpListener {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let (process, host) = (std::process::id() & 0xfff, NEXT.fetch_add(1, Ordering::Relaxed));
    TcpListener::bind((Ipv4Addr::from_bits(127 << 24 | process << 12 | host), 0)).unwrap()
}

/// A server in a thread of its own. Dropping it ends the server.
struct Serving {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start(limits: Limits) -> Self {
        let listener = listener();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let server = MetricsServer { listener, limits };
            runtime.block_on(server.serve(Arc::new(Fake::new()), async { drop(ended.await) })).unwrap();
        });
        Self { address, end: Some(end), thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Status, head and body of the answer.
    fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = self.connect();
        stream.write_all(format!("{request} HTTP/1.0\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.into(), body.into())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn address(text: &str) -> MetricsAddress {
    text.parse().unwrap()
}

#[test]
fn metrics_are_those_of_the_api_and_nothing_else_is_told() {
    let (server, api) = (Serving::start(Limits::default()), Running::start(Limits::default()));
    let (status, head, text) = server.ask("GET /metrics");
    let of_api = api.raw(b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(status == 200 && of_api.ends_with(&format!("\r\n\r\n{text}")) && text.len() > 10_000, "{text}");
    assert!(head.contains("content-type: text/plain; version=0.0.4") && !head.contains("9.8.7"), "{head}");
    let (status, head, text) = server.ask("HEAD /metrics");
    assert_eq!((status, &*text), (200, ""), "{head}");
    for route in
        ["/", "/v1/status", "/v1/configuration", "/healthz", "/openapi.json", "/metrics/", "/metrics/x", "//metrics"]
    {
        let (status, _, text) = server.ask(&format!("GET {route}"));
        assert_eq!(status, 404, "{route}: {text}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "MADE-UP"] {
        let (status, _, text) = server.ask(&format!("{method} /metrics"));
        assert_eq!(status, 405, "{method}: {text}");
    }
    assert_eq!(server.ask("POST /v1/upgrade?force=true").0, 404);
}

#[test]
fn silent_and_slow_clients_do_not_keep_others_out() {
    // An hour: nobody gets in because these time out.
    let hour = Duration::from_secs(3600);
    let server =
        Serving::start(Limits { connections: CONNECTIONS, header: hour, connection: hour, ..Limits::default() });
    let silent: Vec<_> = (0..2 * CONNECTIONS).map(|_| server.connect()).collect();
    // Some are displaced already.
    for mut stream in &silent {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost:");
    }
    for _ in 0..2 * CONNECTIONS {
        assert_eq!(server.ask("GET /metrics").0, 200);
    }
    // The oldest were displaced.
    let displaced = (&silent[0]).read(&mut [0; 1]).map_err(|error| error.kind());
    assert!(matches!(displaced, Ok(0) | Err(ErrorKind::ConnectionReset)), "{displaced:?}");
}

#[test]
fn slow_clients_are_hung_up_on() {
    let brief = Duration::from_millis(600);
    let server = Serving::start(Limits { header: brief, connection: 5 * brief, ..Limits::default() });
    let mut stream = server.connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost:").unwrap();
    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
    // A client that closes its half has sent all it wants to send, and is answered.
    let mut stream = server.connect();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
}

#[test]
fn an_address_that_cannot_be_used_is_an_error_that_names_the_remedy() {
    let refused = |text: &str| MetricsServer::bind(address(text)).unwrap_err().to_string();
    let listener = listener();
    let busy = listener.local_addr().unwrap().to_string();
    let told = "another process listens on";
    assert_eq!(refused(&busy), format!("metrics-address: {told} {busy}; give another port, and each daemon its own"));
    assert!(matches!(MetricsServer::check(address(&busy)), Err(MetricsBindError::InUse { .. })));
    // An address for documentation (RFC 5737).
    let told = "192.0.2.1:9464 is no address of this host; give one that `ip address` lists, or 127.0.0.1";
    assert_eq!(refused("192.0.2.1:9464"), format!("metrics-address: {told}"));
    let checked = MetricsServer::check(address("192.0.2.1:9464")).unwrap_err().to_string();
    assert_eq!(checked, refused("192.0.2.1:9464"));
    let forbidden = failed(address("127.0.0.1:80"), Errno::ACCESS).to_string();
    let told =
        "the daemon may not listen on 127.0.0.1:80: Permission denied (os error 13); give a port from 1024 to 65535";
    assert_eq!(forbidden, format!("metrics-address: {told}"));
}

/// Otherwise a daemon that is started again would wait for the connections of the earlier one to be forgotten.
#[test]
fn an_address_with_closed_connections_can_be_used_again() {
    let server = Serving::start(Limits::default());
    let used = address(&server.address.to_string());
    // The server closes first, so its end of the connection stays in TIME_WAIT.
    assert_eq!(server.ask("GET /metrics").0, 200);
    drop(server);
    MetricsServer::bind(used).unwrap();
}
