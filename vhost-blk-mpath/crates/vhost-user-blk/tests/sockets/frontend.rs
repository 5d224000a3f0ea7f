//! vhost-user with the `vhost` crate's front-end: what QEMU does, and protocol violations.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vhost_user_blk::{DiskGeometry, RequestError, RingError, ServeError};
use virtio_guest::features::{CONFIG_WCE, FLUSH, FORMATS, PACKED, PROTOCOL_FEATURES};
use vmm_sys_util::eventfd::EventFd;

use crate::guest::{Guest, Ring, wait_readable};
use crate::{Server, geometry};

const IN: u32 = 0;
const OUT: u32 = 1;
const GET_ID: u32 = 8;
const OK: u8 = 0;

fn write_read_back(ring: &mut Ring, sector: u64, fill: u8) {
    ring.submit(0, OUT, sector, &[fill; 1024]);
    assert_eq!(ring.finish(), [0]);
    assert_eq!(ring.status(0), OK);
    ring.submit(1, IN, sector, &[0; 1024]);
    assert_eq!(ring.finish(), [1]);
    assert_eq!((ring.status(1), ring.data(1)), (OK, [fill; 1024]));
}

#[test]
fn a_queue_runs_when_it_is_enabled() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH | format);
        guest.share_memory();
        let mut ring = guest.set_up(2);
        guest.frontend.set_vring_kick(2, &ring.kick).unwrap();
        ring.submit(0, GET_ID, 0, &[0; 20]);
        ring.assert_idle();
        guest.frontend.set_vring_enable(2, true).unwrap();
        assert_eq!(ring.finish(), [0], "what came before is found without a kick");
        assert_eq!(&ring.data(0), b"from the test\0\0\0\0\0\0\0");
        write_read_back(&mut ring, 16, 5);
        guest.frontend.set_vring_enable(2, false).unwrap();
        ring.submit(1, IN, 16, &[0; 1024]);
        ring.assert_idle();
        guest.frontend.set_vring_enable(2, true).unwrap();
        assert_eq!(ring.finish(), [1]);
        drop(guest);
        server.outcome().unwrap();
    }
}

#[test]
fn without_protocol_features_rings_are_enabled_from_the_start() {
    let server = Server::start(geometry());
    let guest = Guest::connect(&server.socket(), FLUSH);
    guest.share_memory();
    let mut ring = guest.set_up(0);
    guest.frontend.set_vring_kick(0, &ring.kick).unwrap();
    write_read_back(&mut ring, 0, 9);
    drop(guest);
    server.outcome().unwrap();
}

#[test]
fn the_configuration_is_read_in_any_piece() {
    let server = Server::start(geometry());
    let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES);
    let flags = VhostUserConfigFlags::empty();
    let mut config =
        |offset, size: u32| guest.frontend.get_config(offset, size, flags, &vec![0; size as usize]).unwrap().1;
    let whole = config(0, 60);
    assert_eq!(whole[..8], 8192_u64.to_le_bytes());
    for (offset, size) in [(0, 1), (20, 4), (32, 1), (33, 27), (59, 1)] {
        assert_eq!(config(offset, size), whole[offset as usize..(offset + size) as usize]);
    }
    assert_eq!(config(58, 100)[2..], [0; 98], "past the fields");
    assert_eq!(config(0, 256).len(), 256);
}

#[test]
fn the_cache_mode_is_set_and_survives_a_reconnect() {
    let server = Server::start(geometry());
    let flags = VhostUserConfigFlags::WRITABLE;
    let writeback = |guest: &mut Guest| guest.frontend.get_config(32, 1, flags, &[0]).unwrap().1[0];
    let durable_writes = || server.ram.counters().lock().unwrap().durable_writes;
    let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH | CONFIG_WCE);
    guest.share_memory();
    let mut ring = guest.start(0);
    assert_eq!(writeback(&mut guest), 1);
    write_read_back(&mut ring, 0, 1);
    assert_eq!(durable_writes(), 0);
    guest.frontend.set_config(32, flags, &[0]).unwrap();
    assert_eq!(writeback(&mut guest), 0);
    write_read_back(&mut ring, 0, 2);
    assert_eq!(durable_writes(), 1);
    drop(guest);
    server.outcome().unwrap();
    let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH | CONFIG_WCE);
    assert_eq!(writeback(&mut guest), 0);
    assert!(!server.disk.writeback());
}

#[test]
fn a_refused_configuration_write_does_not_end_the_connection() {
    let server = Server::start(geometry());
    let flags = VhostUserConfigFlags::empty();
    let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH | CONFIG_WCE);
    for (offset, bytes) in [(0, &[1_u8; 8][..]), (31, &[1, 1]), (32, &[1, 1]), (33, &[1]), (255, &[0])] {
        assert!(guest.frontend.set_config(offset, flags, bytes).is_err(), "{offset}");
    }
    guest.frontend.set_config(32, flags, &[0]).unwrap();
    guest.frontend.set_features(PROTOCOL_FEATURES).unwrap();
    assert!(guest.frontend.set_config(32, flags, &[1]).is_err(), "not negotiated");
    assert!(!server.disk.writeback());
    drop(guest);
    server.outcome().unwrap();
}

#[test]
fn get_vring_base_stops_a_queue_under_load() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH | format);
        guest.share_memory();
        let mut ring = guest.start(1);
        for round in 0..50 {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let load = std::thread::spawn(move || {
                let mut free: Vec<u16> = (0..20).collect();
                while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    while let Some(slot) = free.pop() {
                        ring.submit(slot, if slot % 2 == 0 { IN } else { OUT }, 0, &[slot as u8; 4096]);
                    }
                    ring.kick.write(1).unwrap();
                    free.extend(ring.reap());
                }
                (ring, free)
            });
            std::thread::sleep(Duration::from_micros(200 * (round % 7)));
            let base = guest.frontend.get_vring_base(1).unwrap();
            drop(stop);
            let mut free;
            (ring, free) = load.join().unwrap();
            free.extend(ring.reap());
            assert_eq!(ring.position(), base, "all that was taken was completed, and nothing since");
            let waiting = 20 - free.len() as u16;
            assert_eq!(ring.driver.available - ring.driver.seen_used, ring.places(waiting));
            ring.assert_idle();
            // The next set-up continues where this one ended.
            guest.set_vring_base(1, base);
            guest.frontend.set_vring_kick(1, &ring.kick).unwrap();
            assert_eq!(ring.finish().len(), usize::from(waiting));
        }
        drop(guest);
        server.outcome().unwrap();
    }
}

#[test]
fn memory_may_change_while_queues_run() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH | format);
        guest.share_memory();
        let mut rings = [guest.start(0), guest.start(3)];
        let starts = || server.ram.counters().lock().unwrap().starts;
        for round in 0..10 {
            for ring in &mut rings {
                ring.submit(2, OUT, 0, &[round; 4096]);
                ring.kick.write(1).unwrap();
            }
            let before = starts();
            guest.share_memory();
            assert_eq!(starts(), before + 2, "both were stopped and started");
            for ring in &mut rings {
                assert_eq!(ring.finish(), [2]);
                write_read_back(ring, 8, round);
            }
        }
    }
}

#[test]
fn memory_may_come_and_go_in_slots() {
    let server = Server::start(geometry());
    let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH);
    assert_eq!(guest.frontend.get_max_mem_slots().unwrap(), 509);
    let region = guest.region();
    guest.frontend.add_mem_region(&region).unwrap();
    let mut ring = guest.start(0);
    write_read_back(&mut ring, 0, 3);
    let mut other = region;
    other.guest_phys_addr += 1 << 32;
    other.userspace_addr += 1 << 32;
    guest.frontend.add_mem_region(&other).unwrap();
    write_read_back(&mut ring, 0, 4);
    guest.frontend.remove_mem_region(&other).unwrap();
    write_read_back(&mut ring, 0, 5);
    // This region contains the ring.
    guest.frontend.remove_mem_region(&region).unwrap();
    assert_eq!(server.ram.running(), 0);
    guest.frontend.add_mem_region(&region).unwrap();
    write_read_back(&mut ring, 0, 6);
    assert!(guest.frontend.remove_mem_region(&other).is_err());
    assert!(matches!(server.outcome(), Err(ServeError::Request(RequestError::Memory(_)))));
}

#[test]
fn the_call_descriptor_may_change_while_a_queue_runs() {
    let server = Server::start(geometry());
    let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH);
    guest.share_memory();
    let mut ring = guest.start(0);
    let starts = server.ram.counters().lock().unwrap().starts;
    for fill in 0..5 {
        ring.call = EventFd::new(0).unwrap();
        guest.frontend.set_vring_call(0, &ring.call).unwrap();
        write_read_back(&mut ring, 0, fill);
    }
    assert_eq!(server.ram.counters().lock().unwrap().starts, starts, "without a stop");
}

#[test]
fn a_broken_queue_is_reported_and_the_others_live_on() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH | format);
        guest.share_memory();
        let (mut bad, mut good) = (guest.start(0), guest.start(1));
        let error = EventFd::new(0).unwrap();
        guest.frontend.set_vring_err(0, &error).unwrap();
        write_read_back(&mut bad, 0, 1);
        bad.break_available_idx();
        bad.kick.write(1).unwrap();
        // SAFETY: the descriptor is borrowed for this call only, while `error` lives.
        wait_readable(unsafe { BorrowedFd::borrow_raw(error.as_raw_fd()) });
        write_read_back(&mut good, 8, 2);
        // The driver resets: a new set-up runs again.
        let base = guest.frontend.get_vring_base(0).unwrap();
        assert_eq!(base, bad.position());
        bad.submit(3, IN, 8, &[0; 512]);
        guest.set_vring_base(0, base);
        guest.frontend.set_vring_kick(0, &bad.kick).unwrap();
        assert_eq!(bad.finish(), [3]);
        assert_eq!((bad.status(3), bad.data(3)), (OK, [2; 512]));
    }
}

/// Success may be in the status byte from the start. So a request without that byte is not returned, and the front-end
/// learns of it.
#[test]
fn a_request_without_a_status_byte_stops_its_queue_alone() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH | format);
        guest.share_memory();
        let inflight = guest.get_inflight();
        guest.set_inflight(&inflight);
        let (mut bad, mut good) = (guest.start(0), guest.start(1));
        let error = EventFd::new(0).unwrap();
        guest.frontend.set_vring_err(0, &error).unwrap();
        write_read_back(&mut bad, 0, 1);
        bad.submit_without_status(5);
        bad.kick.write(1).unwrap();
        // SAFETY: the descriptor is borrowed for this call only, while `error` lives.
        wait_readable(unsafe { BorrowedFd::borrow_raw(error.as_raw_fd()) });
        bad.assert_idle();
        write_read_back(&mut good, 8, 2);
        // The queue stops in front of that request.
        assert_eq!(guest.frontend.get_vring_base(0).unwrap(), bad.position());
        drop(guest);
        server.outcome().unwrap();
    }
}

type Attempt = fn(&mut Guest) -> bool;
type Reason = fn(&ServeError) -> bool;

/// An impossible message ends its connection with the reason. The next connection is served.
#[test]
fn impossible_requests_end_the_connection() {
    let server = Server::start(DiskGeometry { num_queues: 4, queue_size_max: 128, ..geometry() });
    let cases: [(&str, Attempt, Reason); 7] = [
        (
            "size",
            |guest| guest.frontend.set_vring_num(0, 100).is_err(),
            |error| matches!(error, ServeError::Request(RequestError::QueueSize { size: 100, max: 128 })),
        ),
        (
            "too large",
            |guest| guest.frontend.set_vring_num(0, 256).is_err(),
            |error| matches!(error, ServeError::Request(RequestError::QueueSize { size: 256, max: 128 })),
        ),
        (
            "features",
            |guest| guest.frontend.set_features(1 << 35).is_err(),
            |error| matches!(error, ServeError::Request(RequestError::Features(bit)) if *bit == 1 << 35),
        ),
        (
            "a size of packed rings that is kept for split ones",
            |guest| {
                guest.frontend.set_features(PROTOCOL_FEATURES | PACKED).unwrap();
                guest.share_memory();
                let ring = guest.set_up(0);
                guest.frontend.set_vring_num(0, 100).unwrap();
                guest.frontend.set_vring_kick(0, &ring.kick).unwrap();
                guest.frontend.set_features(PROTOCOL_FEATURES).unwrap();
                guest.frontend.set_vring_enable(0, true).is_err()
            },
            |error| matches!(error, ServeError::Ring { index: 0, error: RingError::Size { size: 100 } }),
        ),
        (
            "a position that is none",
            |guest| {
                guest.share_memory();
                let ring = guest.set_up(0);
                guest.set_vring_base(0, 1 << 16);
                guest.frontend.set_vring_kick(0, &ring.kick).unwrap();
                guest.frontend.set_vring_enable(0, true).is_err()
            },
            |error| {
                matches!(error, ServeError::Ring { index: 0, error: RingError::Position { position: 0x1_0000, .. } })
            },
        ),
        (
            "memory beyond its file",
            |guest| {
                let mut region = guest.region();
                region.mmap_offset = 4096;
                guest.frontend.set_mem_table(&[region]).is_err()
            },
            |error| matches!(error, ServeError::Request(RequestError::Memory(_))),
        ),
        (
            "ring outside of memory",
            |guest| {
                let ring = guest.set_up(0);
                guest.frontend.set_vring_kick(0, &ring.kick).unwrap();
                guest.frontend.set_vring_enable(0, true).is_err()
            },
            |error| matches!(error, ServeError::Ring { index: 0, .. }),
        ),
    ];
    for (name, attempt, reason) in cases {
        let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH);
        assert!(attempt(&mut guest), "{name} is refused");
        let error = server.outcome().expect_err(name);
        assert!(reason(&error), "{name}: {error}");
    }
}

#[test]
fn queues_beyond_the_disk_end_the_connection() {
    let server = Server::start(DiskGeometry { num_queues: 2, ..geometry() });
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    // SET_VRING_NUM, version 1, 8 bytes: queue 2, 64 entries. The `vhost` crate refuses to send it.
    let message: Vec<u8> = [8_u32, 1, 8, 2, 64].iter().flat_map(|word| word.to_le_bytes()).collect();
    stream.write_all(&message).unwrap();
    let error = server.outcome().unwrap_err();
    assert!(matches!(error, ServeError::Request(RequestError::QueueIndex { index: 2, num_queues: 2 })), "{error}");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "hung up");
}

#[test]
fn noise_ends_the_connection() {
    let server = Server::start(geometry());
    for noise in
        [&[0_u8; 12][..], &[0xff; 12], &[1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.write_all(noise).unwrap();
        assert!(matches!(server.outcome(), Err(ServeError::Message { .. } | ServeError::UnknownMessage(_))));
    }
    // Half a header, then nothing.
    drop(UnixStream::connect(server.socket()).and_then(|mut stream| stream.write_all(&[1, 0, 0])));
    assert!(server.outcome().is_err());
    let mut guest = Guest::connect(&server.socket(), PROTOCOL_FEATURES | FLUSH);
    guest.share_memory();
    write_read_back(&mut guest.start(0), 0, 1);
}
