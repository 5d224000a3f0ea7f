//! The ring itself: waits, watches and memory.

use super::*;
use crate::reset;

#[test]
fn a_wait_ends_with_its_time() {
    let mut ring = Uring::new().unwrap();
    let (start, mut events) = (Instant::now(), Vec::new());
    ring.turn(Some(Duration::from_millis(20)), &mut events).unwrap();
    assert!(events.is_empty() && start.elapsed() >= Duration::from_millis(20));
    ring.turn(Some(Duration::ZERO), &mut events).unwrap();
    assert!(events.is_empty());
}

#[test]
fn a_watch_reports_each_signal_until_it_is_removed() {
    let mut ring = Uring::new().unwrap();
    let signal = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    ring.watch(signal.as_fd(), TOKEN).unwrap();
    for _ in 0..3 {
        no_event(&mut ring);
        rustix::io::write(&signal, &1u64.to_ne_bytes()).unwrap();
        let event = event(&mut ring);
        assert_eq!((event.token, event.more), (TOKEN, true));
        rustix::io::read(&signal, &mut [0; 8]).unwrap();
    }
    ring.unwatch(TOKEN, TOKEN + 1).unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        ring.turn(Some(TIMEOUT), &mut events).unwrap();
    }
    events.sort_by_key(|event| event.token);
    assert_eq!(
        events.iter().map(|event| (event.token, event.more)).collect::<Vec<_>>(),
        [(TOKEN, false), (TOKEN + 1, false)]
    );
    rustix::io::write(&signal, &1u64.to_ne_bytes()).unwrap();
    no_event(&mut ring);
}

#[test]
fn a_burst_beyond_the_ring_is_not_lost() {
    const BURST: u64 = 700;
    let mut ring = Uring::new().unwrap();
    for token in 0..BURST {
        ring.unwatch(u64::MAX, token).unwrap();
    }
    let mut events = Vec::new();
    while (events.len() as u64) < BURST {
        ring.turn(Some(TIMEOUT), &mut events).unwrap();
    }
    let mut tokens: Vec<_> = events.iter().map(|event| event.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..BURST).collect::<Vec<_>>());
    no_event(&mut ring);
}

/// A connection drains only while it has a peer. The kernel reports a reset once, and that must not hide it.
#[test]
fn a_connection_that_was_reset_has_no_peer() {
    let ring = Uring::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (OwnedFd::from(ours), listener.accept().unwrap().0)
    };
    let (ours, theirs) = connect();
    assert!(ring.is_connected(&ours));
    TcpStream::from(ours.try_clone().unwrap()).shutdown(Shutdown::Write).unwrap();
    assert!(ring.is_connected(&ours), "the host has ended its side, as a drain does");
    reset(theirs);
    let read = || TcpStream::from(ours.try_clone().unwrap()).read(&mut [0]);
    assert_eq!(read().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(read().unwrap(), 0, "as after an orderly end");
    assert!(!ring.is_connected(&ours));
}
