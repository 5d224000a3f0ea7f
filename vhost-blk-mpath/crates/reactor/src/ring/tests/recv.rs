//! Receives.

use super::*;

/// Starts a receive, into these buffers first.
fn start(slot: &mut RecvSlot, ring: &mut Uring, socket: &OwnedFd, direct: &mut [Vec<u8>]) {
    let direct: Vec<_> = direct.iter_mut().map(|buffer| outside(buffer)).collect();
    // SAFETY: the buffers outlive the receive, which every test sees ended.
    unsafe { slot.start(ring, socket, TOKEN, direct.into_iter()).unwrap() };
    assert!(slot.in_flight());
}

fn finish(slot: &mut RecvSlot, ring: &mut Uring) -> io::Result<(usize, Vec<u8>)> {
    let result = event(ring).result;
    let received = slot.finished(result);
    assert!(!slot.in_flight());
    let received = received?;
    Ok((received.direct, slot.buffered(received.buffered).to_vec()))
}

#[test]
fn without_direct_memory_all_is_buffered() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
    for round in 1..4 {
        start(&mut slot, &mut ring, &here, &mut []);
        no_event(&mut ring);
        there.write_all(&vec![round; 1000]).unwrap();
        assert_eq!(finish(&mut slot, &mut ring).unwrap(), (0, vec![round; 1000]));
    }
}

#[test]
fn direct_memory_is_filled_first_and_the_rest_is_buffered() {
    let sent = pattern(1000);
    for arrives in [1, 299, 300, 301, 699, 700, 701, 1000] {
        let (here, mut there) = pair();
        let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
        there.write_all(&sent[..arrives]).unwrap();
        let mut direct = [vec![0xee; 300], vec![0xee; 400]];
        start(&mut slot, &mut ring, &here, &mut direct);
        let (bytes, buffered) = finish(&mut slot, &mut ring).unwrap();
        assert_eq!(bytes, arrives.min(700));
        let direct = direct.concat();
        assert_eq!(direct[..bytes], sent[..bytes]);
        assert!(direct[bytes..].iter().all(|&byte| byte == 0xee), "nothing beyond is touched");
        assert_eq!(buffered, sent[bytes..arrives]);
    }
}

#[test]
fn a_direct_receive_is_followed_by_a_buffered_one() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
    let mut direct = [vec![0; 10]];
    start(&mut slot, &mut ring, &here, &mut direct);
    there.write_all(b"0123456789").unwrap();
    assert_eq!(finish(&mut slot, &mut ring).unwrap(), (10, vec![]));
    start(&mut slot, &mut ring, &here, &mut []);
    there.write_all(b"abc").unwrap();
    assert_eq!(finish(&mut slot, &mut ring).unwrap(), (0, b"abc".to_vec()));
    assert_eq!(direct[0], b"0123456789");
}

#[test]
fn a_receive_waits_for_data_that_are_certain_to_arrive() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let here = OwnedFd::from(listener.accept().unwrap().0);
    let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
    let arrive = |there: &mut TcpStream, bytes: &[u8]| {
        let start = Instant::now();
        there.write_all(bytes).unwrap();
        while rustix::io::ioctl_fionread(&here).unwrap() < bytes.len() as u64 {
            assert!(start.elapsed() < TIMEOUT.into());
        }
    };
    let sent = pattern(1000);
    start(&mut slot, &mut ring, &here, &mut []);
    there.write_all(&sent[..1]).unwrap();
    assert_eq!(finish(&mut slot, &mut ring).unwrap(), (0, sent[..1].to_vec()));
    let mut direct = [vec![0; 999]];
    start(&mut slot, &mut ring, &here, &mut direct);
    no_event(&mut ring);
    arrive(&mut there, &sent[1..500]);
    no_event(&mut ring);
    there.write_all(&sent[500..]).unwrap();
    assert_eq!(finish(&mut slot, &mut ring).unwrap(), (999, vec![]));
    assert_eq!(direct[0], sent[1..]);
    // Later data are not certain to arrive.
    start(&mut slot, &mut ring, &here, &mut []);
    no_event(&mut ring);
    there.write_all(b"1").unwrap();
    assert_eq!(finish(&mut slot, &mut ring).unwrap(), (0, b"1".to_vec()));
    // After a cancellation, the next receive gets the data that have arrived.
    let mut direct = [vec![0; 999]];
    start(&mut slot, &mut ring, &here, &mut direct);
    no_event(&mut ring);
    arrive(&mut there, &sent[..500]);
    no_event(&mut ring);
    slot.cancel(&mut ring, TOKEN, TOKEN + 1).unwrap();
    assert_eq!(finish_cancelled(&mut slot, &mut ring).unwrap(), (0, vec![]));
    start(&mut slot, &mut ring, &here, &mut []);
    assert_eq!(finish(&mut slot, &mut ring).unwrap(), (0, sent[..500].to_vec()));
}

#[test]
fn more_segments_than_one_call_takes_are_cut_off() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
    let sent = pattern(1000);
    there.write_all(&sent).unwrap();
    let mut direct = vec![vec![0xee; 3]; 300];
    start(&mut slot, &mut ring, &here, &mut direct);
    let (bytes, buffered) = finish(&mut slot, &mut ring).unwrap();
    assert_eq!(bytes, 256 * 3);
    assert!(direct.concat()[..bytes] == sent[..bytes] && buffered == sent[bytes..]);
}

#[test]
fn the_end_of_the_stream_differs_from_errors() {
    let (here, there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
    start(&mut slot, &mut ring, &here, &mut []);
    drop(there);
    assert_eq!(finish(&mut slot, &mut ring).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    start(&mut slot, &mut ring, &here, &mut []);
    event(&mut ring);
    assert_eq!(slot.finished(-libc::ECONNRESET).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_shut_down_socket_gives_the_buffers_back() {
    let (here, _there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
    let mut direct = [vec![0; 100]];
    start(&mut slot, &mut ring, &here, &mut direct);
    no_event(&mut ring);
    ring.shutdown(&here);
    assert!(finish(&mut slot, &mut ring).is_err());
}

const CANCEL: u64 = 43;

/// Reaps the receive and its cancellation, in any order.
fn finish_cancelled(slot: &mut RecvSlot, ring: &mut Uring) -> io::Result<(usize, Vec<u8>)> {
    let (start, mut events) = (Instant::now(), Vec::new());
    while events.len() < 2 {
        assert!(start.elapsed() < TIMEOUT.into(), "{events:?}");
        ring.turn(Some(TIMEOUT.into()), &mut events).unwrap();
    }
    events.sort_by_key(|event| event.token);
    assert_eq!([events[0].token, events[1].token], [TOKEN, CANCEL]);
    let received = slot.finished(events[0].result)?;
    assert!(!slot.in_flight());
    Ok((received.direct, slot.buffered(received.buffered).to_vec()))
}

#[test]
fn a_cancelled_receive_comes_back_empty_and_leaves_later_data() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
    // Cancelled while it waits, and before the kernel has seen it.
    for waits in [true, false] {
        let mut direct = [vec![0xee; 100]];
        start(&mut slot, &mut ring, &here, &mut direct);
        if waits {
            no_event(&mut ring);
        }
        slot.cancel(&mut ring, TOKEN, CANCEL).unwrap();
        assert_eq!(finish_cancelled(&mut slot, &mut ring).unwrap(), (0, vec![]));
        there.write_all(b"later").unwrap();
        start(&mut slot, &mut ring, &here, &mut []);
        assert_eq!(finish(&mut slot, &mut ring).unwrap(), (0, b"later".to_vec()));
        assert!(direct[0].iter().all(|&byte| byte == 0xee), "nothing is written to memory that was given up");
    }
}

#[test]
fn a_receive_cancelled_too_late_comes_back_with_its_bytes() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), RecvSlot::new());
    there.write_all(b"0123456789").unwrap();
    let mut direct = [vec![0; 4]];
    start(&mut slot, &mut ring, &here, &mut direct);
    slot.cancel(&mut ring, TOKEN, CANCEL).unwrap();
    assert_eq!(finish_cancelled(&mut slot, &mut ring).unwrap(), (4, b"456789".to_vec()));
    assert_eq!(direct[0], b"0123");
    // A cancellation long ago must not hide an error.
    start(&mut slot, &mut ring, &here, &mut []);
    there.write_all(b"x").unwrap();
    event(&mut ring);
    assert!(slot.finished(-libc::ECANCELED).is_err());
}
