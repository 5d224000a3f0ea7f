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
        ring.turn(Some(TIMEOUT.into()), &mut events).unwrap();
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
        ring.turn(Some(TIMEOUT.into()), &mut events).unwrap();
    }
    let mut tokens: Vec<_> = events.iter().map(|event| event.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..BURST).collect::<Vec<_>>());
    no_event(&mut ring);
}

/// The controller's end of a connection confirms something only if the host has ended its side first.
#[test]
fn a_stream_ends_only_towards_a_peer_that_has_not_ended_its_own() {
    let mut ring = Uring::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (OwnedFd::from(ours), listener.accept().unwrap().0)
    };
    let read = |socket: &OwnedFd| TcpStream::from(socket.try_clone().unwrap()).read(&mut [0]);

    let (ours, mut theirs) = connect();
    theirs.write_all(&[1]).unwrap();
    assert!(ring.end_sending(&ours), "bytes that were not received do not matter");
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    drop(theirs);
    assert_eq!((read(&ours).unwrap(), read(&ours).unwrap()), (1, 0), "the peer has ended in order");

    let (ours, theirs) = connect();
    assert!(ring.end_sending(&ours));
    reset(theirs);
    assert_eq!(read(&ours).unwrap_err().kind(), ErrorKind::ConnectionReset, "a later reset is reported");

    let (ours, mut theirs) = connect();
    theirs.write_all(&[1]).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read(&ours).unwrap(), 1);
    assert!(!ring.end_sending(&ours));

    let (ours, theirs) = connect();
    reset(theirs);
    assert_eq!(read(&ours).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(read(&ours).unwrap(), 0, "the kernel reports a reset once");
    assert!(!ring.end_sending(&ours));
}
