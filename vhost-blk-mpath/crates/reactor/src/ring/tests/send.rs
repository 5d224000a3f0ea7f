//! Sends.

use super::*;

/// Starts a send of `pieces`, alternately staged and outside.
fn start<R: Ring>(slot: &mut SendSlot, ring: &mut R, socket: &R::Socket, pieces: &mut [Vec<u8>]) -> io::Result<Sent> {
    let staging = slot.staging();
    let parts: Vec<_> = pieces
        .iter_mut()
        .enumerate()
        .map(|(index, piece)| {
            if index % 2 == 1 {
                return SendPart::Outside(outside(piece));
            }
            let start = staging.len();
            staging.extend_from_slice(piece);
            SendPart::Staged { start, len: piece.len() }
        })
        .collect();
    // SAFETY: the pieces outlive the send, which every test sees ended.
    unsafe { slot.start(ring, socket, TOKEN, parts.into_iter()) }
}

/// Starts a send that must end at once.
fn send(slot: &mut SendSlot, ring: &mut Uring, socket: &OwnedFd, pieces: &mut [Vec<u8>]) {
    assert!(matches!(start(slot, ring, socket, pieces), Ok(Sent::All)));
    assert!(!slot.in_flight());
}

/// Starts a send for which the socket has no room.
fn start_long(slot: &mut SendSlot, ring: &mut Uring, socket: &OwnedFd, pieces: &mut [Vec<u8>]) {
    assert!(matches!(start(slot, ring, socket, pieces), Ok(Sent::UnderWay)));
    assert!(slot.in_flight());
    no_event(ring);
}

#[test]
fn parts_leave_in_order_and_a_slot_is_used_again() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    for round in 1..4 {
        let mut pieces: Vec<_> = (0..5).map(|piece| vec![round * 16 + piece; 100 * usize::from(piece + 1)]).collect();
        send(&mut slot, &mut ring, &here, &mut pieces);
        let mut received = vec![0; 1500];
        there.read_exact(&mut received).unwrap();
        assert_eq!(received, pieces.concat());
    }
}

#[test]
fn more_segments_than_one_call_takes_are_sent() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    let mut pieces: Vec<_> = (0..3000u32).map(|piece| vec![piece as u8; 7]).collect();
    send(&mut slot, &mut ring, &here, &mut pieces);
    let mut received = vec![0; 3000 * 7];
    there.read_exact(&mut received).unwrap();
    assert!(received == pieces.concat());
}

#[test]
fn a_slow_reader_gets_all_of_it() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    let mut pieces = vec![pattern(1000), pattern(6 << 20)];
    start_long(&mut slot, &mut ring, &here, &mut pieces);
    let reading = std::thread::spawn(move || {
        let mut received = vec![0; 1000 + (6 << 20)];
        received.chunks_mut(100_000).for_each(|chunk| there.read_exact(chunk).unwrap());
        received
    });
    while slot.in_flight() {
        let event = event(&mut ring);
        assert_eq!(event.token, TOKEN);
        let sent = slot.finished(&mut ring, &here, TOKEN, event.result).unwrap();
        assert_eq!(matches!(sent, Sent::UnderWay), slot.in_flight(), "{sent:?}");
    }
    assert!(reading.join().unwrap() == pieces.concat());
}

#[test]
fn a_partial_send_continues_where_it_stopped() {
    const SOCKET: u32 = 7;
    for stop in [1, 99, 100, 101, 149, 150, 151, 299] {
        let (mut ring, mut slot) = (SimulatedRing::new(), SendSlot::new());
        let mut pieces = vec![pattern(100), pattern(50), pattern(150)];
        start(&mut slot, &mut ring, &SOCKET, &mut pieces).unwrap();
        ring.sent(SOCKET, stop);
        ring.end_send(SOCKET, 0);
        let [Event { token: TOKEN, result, .. }] = ring.take_events()[..] else { panic!("one event") };
        let finished = slot.finished(&mut ring, &SOCKET, TOKEN, result).unwrap();
        assert!(matches!(finished, Sent::UnderWay) && slot.in_flight());
        assert_eq!(ring.unsent(SOCKET, 0..300).0, pieces.concat()[stop..], "after {stop}");
        ring.sent(SOCKET, 300 - stop);
        let [Event { token: TOKEN, result, .. }] = ring.take_events()[..] else { panic!("one event") };
        assert!(matches!(slot.finished(&mut ring, &SOCKET, TOKEN, result), Ok(Sent::All)));
    }
}

/// The unreadable segment comes twice, with readable segments of any length before and behind it.
#[test]
fn a_segment_that_cannot_be_read_is_found() {
    for (before, after) in [(0, 0), (10, 0), (0, 10), (3000, 100_000), (100_000, 3000)] {
        let (here, mut there) = pair();
        let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
        let (mut first, mut last, mut instead) = (pattern(before), pattern(after), pattern(5000));
        let nowhere = libc::iovec { iov_base: std::ptr::without_provenance_mut(4096), iov_len: 5000 };
        let segments = [outside(&mut first), nowhere, outside(&mut last), nowhere];
        slot.staging();
        // SAFETY: valid memory outlives the send. The invalid address is the point of the test.
        let mut sent =
            unsafe { slot.start(&mut ring, &here, TOKEN, segments.map(SendPart::Outside).into_iter()).unwrap() };
        let reading = std::thread::spawn(move || {
            let mut received = vec![0; before + after + 10_000];
            there.read_exact(&mut received).unwrap();
            received
        });
        let mut found = 0;
        loop {
            sent = match sent {
                Sent::All => break,
                Sent::UnderWay => {
                    let result = event(&mut ring).result;
                    slot.finished(&mut ring, &here, TOKEN, result).unwrap()
                }
                Sent::Unreadable(segment) => {
                    assert_eq!((segment.iov_base, segment.iov_len), (nowhere.iov_base, nowhere.iov_len));
                    found += 1;
                    slot.replace_unreadable(outside(&mut instead));
                    slot.try_again(&mut ring, &here, TOKEN).unwrap()
                }
            };
        }
        assert_eq!(found, 2);
        assert!(reading.join().unwrap() == [&first, &instead, &last, &instead].map(|part| &part[..]).concat());
    }
}

#[test]
fn a_closed_socket_is_an_error_and_no_signal() {
    let (here, there) = pair();
    drop(there);
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    let error = start(&mut slot, &mut ring, &here, &mut [pattern(10)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert!(!slot.in_flight());
}

#[test]
fn a_shut_down_socket_gives_the_buffers_back() {
    let (here, _there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    let mut pieces = [vec![], pattern(6 << 20)];
    start_long(&mut slot, &mut ring, &here, &mut pieces);
    ring.shutdown(&here);
    assert_eq!(event(&mut ring).token, TOKEN);
    slot.ignore_result();
    assert!(!slot.in_flight());
}

#[test]
fn a_cancelled_send_gives_the_buffers_back_and_leaves_the_connection() {
    const CANCEL: u64 = 43;
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    let mut pieces = [vec![], pattern(6 << 20)];
    start_long(&mut slot, &mut ring, &here, &mut pieces);
    slot.cancel(&mut ring, TOKEN, CANCEL).unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        ring.turn(Some(TIMEOUT.into()), &mut events).unwrap();
    }
    events.sort_unstable_by_key(|event| event.token);
    let [Event { token: TOKEN, result, .. }, Event { token: CANCEL, .. }] = events[..] else { panic!("{events:?}") };
    slot.ignore_result();
    assert!(ring.end_sending(&here));
    let mut sent = Vec::new();
    there.read_to_end(&mut sent).unwrap();
    assert_eq!(result, -libc::ECANCELED, "nothing was read meanwhile");
    assert!(sent.len() < pieces[1].len() && pieces[1].starts_with(&sent));
}
