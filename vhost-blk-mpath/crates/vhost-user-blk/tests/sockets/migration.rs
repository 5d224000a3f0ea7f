//! The dirty log of a migration: when the front-end enables it, and its content.

use std::os::unix::net::UnixStream;

use vhost::VhostBackend;
use vhost_user_blk::{DirtyLogError, RequestError, ServeError};
use virtio_guest::DirtyLog;
use virtio_guest::features::{FLUSH, FORMATS, LOG_ALL, PROTOCOL_FEATURES};

use crate::guest::{Guest, Ring};
use crate::{Server, geometry};

const FEATURES: u64 = PROTOCOL_FEATURES | FLUSH;
const IN: u32 = 0;

/// Reads 4 KiB in slot 0. The data begin in the page of its header and status, and end in the next page.
fn read(ring: &mut Ring) {
    ring.submit(0, IN, 0, &[0xff; 4096]);
    assert_eq!(ring.finish(), [0]);
    assert_eq!(ring.data(0), [0; 4096]);
}

/// Takes the marks and checks them: all writes of `queue` for one [`read`], and of the other queues at most their event
/// setting from the start.
///
/// In a queue's part of memory the first page has the descriptors. The second page has the used ring with the event
/// setting; in a packed ring it has only that. The next two pages are slot 0's.
fn assert_marked(log: &DirtyLog, queue: u64, format: u64) {
    let (mut own, others): (Vec<_>, Vec<_>) = log.take().into_iter().partition(|page| page / 0x80 == queue);
    let ring = if format == 0 {
        1
    } else {
        own.retain(|page| page % 0x80 != 1);
        0
    };
    assert_eq!(own, [ring, 2, 3].map(|page| queue * 0x80 + page));
    assert!(others.iter().all(|page| page % 0x80 == 1), "{others:x?}");
}

/// The start of a migration, as QEMU does it: the log, the features, the addresses.
fn begin(guest: &Guest, format: u64) -> DirtyLog {
    let log = guest.set_log(Guest::LOG_BYTES, Guest::LOG_BYTES).unwrap();
    guest.set_features(FEATURES | format | LOG_ALL);
    (0..2).for_each(|index| guest.set_addresses(index, true));
    log
}

#[test]
fn writes_of_running_queues_are_marked_from_the_start_of_a_migration_to_its_end() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), FEATURES | format);
        guest.share_memory();
        let mut rings = [guest.start(0), guest.start(1)];
        rings.iter_mut().for_each(read);
        let log = begin(&guest, format);
        for _ in 0..2 {
            for (ring, queue) in rings.iter_mut().zip(0..) {
                read(ring);
                assert_eq!(guest.frontend.get_vring_base(ring.index).unwrap(), ring.position());
                assert_marked(&log, queue, format);
                guest.frontend.set_vring_kick(ring.index, &ring.kick).unwrap();
            }
        }
        // The migration was cancelled.
        guest.set_features(FEATURES | format);
        (0..2).for_each(|index| guest.set_addresses(index, false));
        let _ = log.take();
        rings.iter_mut().for_each(read);
        assert!(log.take().is_empty());
        drop(guest);
        server.outcome().unwrap();
    }
}

/// When the marked pages are copied, the memories are equal.
#[test]
fn a_guest_continues_elsewhere_with_the_marked_pages() {
    for format in FORMATS {
        let (first, second) = (Server::start(geometry()), Server::start(geometry()));
        let mut guest = Guest::connect(&first.socket(), FEATURES | format);
        guest.share_memory();
        let mut rings = [guest.start(0), guest.start(1)];
        rings.iter_mut().for_each(read);
        let log = begin(&guest, format);
        let copy = guest.copy_memory();
        for ring in &mut rings {
            ring.write_also_to(&copy);
            (0..3).for_each(|_| read(ring));
        }
        let positions = rings.each_ref().map(|ring| guest.frontend.get_vring_base(ring.index).unwrap());
        assert!(!guest.copy_marked(&copy, &[]).is_empty(), "something was written");
        let lost = guest.copy_marked(&copy, &log.take());
        assert!(lost.is_empty(), "not marked: {lost:x?}");

        let stream = UnixStream::connect(second.socket()).unwrap();
        let mut arrived = Guest::arriving(stream, FEATURES | format, copy);
        arrived.share_memory();
        for (ring, position) in rings.iter_mut().zip(positions) {
            arrived.restart_here(ring, position);
            read(ring);
        }
        drop((guest, arrived));
        first.outcome().unwrap();
        second.outcome().unwrap();
    }
}

#[test]
fn a_log_may_take_the_place_of_another() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), FEATURES | format);
        guest.share_memory();
        let mut rings = [guest.start(0), guest.start(1)];
        let first = begin(&guest, format);
        read(&mut rings[0]);
        let second = guest.set_log(Guest::LOG_BYTES + 8, Guest::LOG_BYTES + 8).unwrap();
        assert_marked(&first, 0, format);
        read(&mut rings[0]);
        guest.frontend.get_vring_base(0).unwrap();
        assert!(first.take().is_empty(), "after the answer");
        assert_marked(&second, 0, format);
        drop(guest);
        server.outcome().unwrap();
    }
}

/// A device that starts during a migration gets the features first and the log last.
#[test]
fn nothing_runs_between_the_features_and_the_log() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), FEATURES | format | LOG_ALL);
        guest.share_memory();
        let mut ring = guest.start(1);
        guest.set_addresses(1, true);
        ring.submit(0, IN, 0, &[0xff; 4096]);
        ring.assert_idle();
        let log = guest.set_log(Guest::LOG_BYTES, Guest::LOG_BYTES).unwrap();
        assert_eq!(ring.finish(), [0]);
        guest.frontend.get_vring_base(1).unwrap();
        assert_marked(&log, 1, format);
        drop(guest);
        server.outcome().unwrap();
    }
}

#[test]
fn a_log_that_cannot_be_used_ends_the_connection() {
    let server = Server::start(geometry());
    let refused = |what: &str| match server.outcome() {
        Err(ServeError::Request(RequestError::DirtyLog(error))) => error,
        other => panic!("{what}: {other:?}"),
    };

    let guest = Guest::connect(&server.socket(), FEATURES);
    assert!(guest.set_log(Guest::LOG_BYTES, Guest::LOG_BYTES - 1).is_err());
    assert!(matches!(refused("longer than its file"), DirtyLogError::Map(_)));

    let mut guest = Guest::connect(&server.socket(), FEATURES);
    guest.share_memory();
    let _ring = guest.start(0);
    guest.set_log(Guest::LOG_BYTES - 1, Guest::LOG_BYTES).unwrap();
    assert!(guest.frontend.set_features(FEATURES | LOG_ALL).is_err());
    assert!(matches!(refused("too short for guest memory"), DirtyLogError::TooShort { .. }));
}
