//! The ring and its slots on real sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::{Event, RecvSlot, Ring, SendPart, SendSlot, Sent, Uring};

const TOKEN: u64 = 42;
const TIMEOUT: Duration = Duration::from_secs(20);

/// The next event.
fn event(ring: &mut Uring) -> Event {
    let (start, mut events) = (Instant::now(), Vec::new());
    while events.is_empty() {
        assert!(start.elapsed() < TIMEOUT, "no event");
        ring.turn(Some(TIMEOUT), &mut events).unwrap();
    }
    assert_eq!(events.len(), 1, "{events:?}");
    events[0]
}

fn no_event(ring: &mut Uring) {
    let mut events = Vec::new();
    ring.turn(Some(Duration::from_millis(1)), &mut events).unwrap();
    assert!(events.is_empty(), "{events:?}");
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8).collect()
}

/// `bytes` as memory outside any slot.
fn outside(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// A connected socket and its other end.
fn pair() -> (OwnedFd, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    (here.into(), there)
}

mod ring {
    use super::*;

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
}

mod send {
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
            let mut pieces: Vec<_> =
                (0..5).map(|piece| vec![round * 16 + piece; 100 * usize::from(piece + 1)]).collect();
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

    /// With any segments before and behind it, and repeated.
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
        ring.shutdown(&here, Shutdown::Both);
        assert_eq!(event(&mut ring).token, TOKEN);
        slot.abandon();
        assert!(!slot.in_flight());
    }
}

mod recv {
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
                assert!(start.elapsed() < TIMEOUT);
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
        ring.shutdown(&here, Shutdown::Both);
        assert!(finish(&mut slot, &mut ring).is_err());
    }

    const CANCEL: u64 = 43;

    /// Reaps the receive and its cancellation, in any order.
    fn finish_cancelled(slot: &mut RecvSlot, ring: &mut Uring) -> io::Result<(usize, Vec<u8>)> {
        let (start, mut events) = (Instant::now(), Vec::new());
        while events.len() < 2 {
            assert!(start.elapsed() < TIMEOUT, "{events:?}");
            ring.turn(Some(TIMEOUT), &mut events).unwrap();
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
}
