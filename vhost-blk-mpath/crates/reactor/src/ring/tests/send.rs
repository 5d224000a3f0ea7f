//! Sends.

use super::*;

/// Starts a send of `pieces`, alternately staged and outside.
fn start(slot: &mut SendSlot, ring: &mut Uring, socket: &OwnedFd, pieces: &mut [Vec<u8>]) {
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
    unsafe { slot.start(ring, socket, TOKEN, parts.into_iter()).unwrap() };
}

/// Reaps until the send is over. Returns the number of operations.
fn finish(slot: &mut SendSlot, ring: &mut Uring, socket: &OwnedFd) -> usize {
    for operations in 1.. {
        let event = event(ring);
        assert_eq!(event.token, TOKEN);
        match slot.finished(ring, socket, TOKEN, event.result).unwrap() {
            Sent::All => {
                assert!(!slot.in_flight());
                return operations;
            }
            Sent::Rest => assert!(slot.in_flight()),
            Sent::Unreadable(_) => panic!("all of it can be read"),
        }
    }
    unreachable!()
}

#[test]
fn parts_leave_in_order_and_a_slot_is_used_again() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    for round in 1..4 {
        let mut pieces: Vec<_> = (0..5).map(|piece| vec![round * 16 + piece; 100 * usize::from(piece + 1)]).collect();
        start(&mut slot, &mut ring, &here, &mut pieces);
        assert!(slot.in_flight());
        assert_eq!(finish(&mut slot, &mut ring, &here), 1);
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
    start(&mut slot, &mut ring, &here, &mut pieces);
    assert_eq!(finish(&mut slot, &mut ring, &here), 3, "1024 at a time");
    let mut received = vec![0; 3000 * 7];
    there.read_exact(&mut received).unwrap();
    assert!(received == pieces.concat());
}

#[test]
fn a_slow_reader_gets_all_of_it() {
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    let mut pieces = vec![pattern(1000), pattern(6 << 20)];
    start(&mut slot, &mut ring, &here, &mut pieces);
    no_event(&mut ring);
    let reading = std::thread::spawn(move || {
        let mut received = vec![0; 1000 + (6 << 20)];
        received.chunks_mut(100_000).for_each(|chunk| there.read_exact(chunk).unwrap());
        received
    });
    finish(&mut slot, &mut ring, &here);
    assert!(reading.join().unwrap() == pieces.concat());
}

#[test]
fn a_partial_send_continues_where_it_stopped() {
    // The kernel decides where a send stops. The test pretends that it stopped after each of these bytes.
    for said in [1, 99, 100, 101, 149, 150, 151, 299] {
        let (here, mut there) = pair();
        let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
        let mut pieces = vec![pattern(100), pattern(50), pattern(150)];
        start(&mut slot, &mut ring, &here, &mut pieces);
        assert_eq!(event(&mut ring).result, 300);
        let finished = slot.finished(&mut ring, &here, TOKEN, said).unwrap();
        assert!(matches!(finished, Sent::Rest));
        assert_eq!(finish(&mut slot, &mut ring, &here), 1);
        drop(here);
        let mut received = Vec::new();
        there.read_to_end(&mut received).unwrap();
        let all = pieces.concat();
        let left = &all[usize::try_from(said).unwrap()..];
        assert_eq!(received, [&all[..], left].concat(), "after {said}");
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
        unsafe { slot.start(&mut ring, &here, TOKEN, segments.map(SendPart::Outside).into_iter()).unwrap() };
        let reading = std::thread::spawn(move || {
            let mut received = vec![0; before + after + 10_000];
            there.read_exact(&mut received).unwrap();
            received
        });
        let mut found = 0;
        loop {
            let result = event(&mut ring).result;
            match slot.finished(&mut ring, &here, TOKEN, result).unwrap() {
                Sent::All => break,
                Sent::Rest => {}
                Sent::Unreadable(segment) => {
                    assert_eq!((segment.iov_base, segment.iov_len), (nowhere.iov_base, nowhere.iov_len));
                    found += 1;
                    slot.replace_unreadable(outside(&mut instead));
                    slot.try_again(&mut ring, &here, TOKEN).unwrap();
                }
            }
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
    start(&mut slot, &mut ring, &here, &mut [pattern(10)]);
    let result = event(&mut ring).result;
    let error = slot.finished(&mut ring, &here, TOKEN, result).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert!(!slot.in_flight());
}

#[test]
fn a_shut_down_socket_gives_the_buffers_back() {
    let (here, _there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    let mut pieces = [vec![], pattern(6 << 20)];
    start(&mut slot, &mut ring, &here, &mut pieces);
    no_event(&mut ring);
    ring.shutdown(&here);
    assert_eq!(event(&mut ring).token, TOKEN);
    slot.abandon();
    assert!(!slot.in_flight());
}

#[test]
fn a_cancelled_send_gives_the_buffers_back_and_leaves_the_connection() {
    const CANCEL: u64 = 43;
    let (here, mut there) = pair();
    let (mut ring, mut slot) = (Uring::new().unwrap(), SendSlot::new());
    let mut pieces = [vec![], pattern(6 << 20)];
    start(&mut slot, &mut ring, &here, &mut pieces);
    no_event(&mut ring);
    slot.cancel(&mut ring, TOKEN, CANCEL).unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        ring.turn(Some(TIMEOUT), &mut events).unwrap();
    }
    events.sort_unstable_by_key(|event| event.token);
    let [Event { token: TOKEN, result, .. }, Event { token: CANCEL, .. }] = events[..] else { panic!("{events:?}") };
    slot.abandon();
    assert!(ring.end_sending(&here));
    let mut sent = Vec::new();
    there.read_to_end(&mut sent).unwrap();
    assert_eq!(usize::try_from(result), Ok(sent.len()));
    assert!(sent.len() < pieces[1].len() && pieces[1].starts_with(&sent));
}
