//! The in-flight log over a socket: the next server continues where the last one ended.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, memfd_create};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserInflight;
use vhost_user_blk::{BlkStatus, InflightError, InflightMemoryError, RequestError, RingError, ServeError};
use virtio_guest::features::{FLUSH, FORMATS, PACKED, PROTOCOL_FEATURES};

use crate::guest::{Guest, Ring, wait_readable};
use crate::queue_runners::{QueueHolder, serve_stream};
use crate::{Server, geometry};

const FEATURES: u64 = PROTOCOL_FEATURES | FLUSH;
const OUT: u32 = 1;
/// Entries of each queue, and the length of one log.
const ENTRIES: u16 = 64;
const AREA_BYTES: u64 = 1088;
const PACKED_AREA_BYTES: u64 = 2112;
/// Length of a log with the most entries that the disk accepts, and of one with twice as many.
const LARGEST_AREA_BYTES: u64 = 16448;
const TOO_LARGE_AREA_BYTES: u64 = 32832;

/// The origin of in-flight memory.
#[derive(Clone, Copy, Debug)]
enum Memory {
    /// The server created it, asked for queues of this many entries.
    Asked(u16),
    /// An earlier server created it exactly as asked, for the real queue size.
    AsAsked,
}

const MEMORIES: [Memory; 3] = [Memory::Asked(ENTRIES), Memory::Asked(8), Memory::AsAsked];

impl Memory {
    fn get(self, guest: &mut Guest, format: u64) -> (VhostUserInflight, File) {
        match self {
            Self::Asked(entries) => guest.get_inflight_for(entries),
            Self::AsAsked => {
                let bytes = 4 * if format == PACKED { PACKED_AREA_BYTES } else { AREA_BYTES };
                let file = File::from(memfd_create("inflight", MemfdFlags::CLOEXEC).unwrap());
                file.set_len(bytes).unwrap();
                (VhostUserInflight::new(bytes, 0, 4, ENTRIES), file)
            }
        }
    }
}

/// A guest whose server was killed during five writes in queue 1. The server took four of them and answered only the
/// second.
struct Left {
    format: u64,
    guest: Guest,
    ring: Ring,
    inflight: (VhostUserInflight, File),
}

impl Left {
    fn new(format: u64, memory: Memory) -> Self {
        let holder = QueueHolder { accepts: true, gives_back: true, ..QueueHolder::default() };
        let mut left = None;
        let outcome = serve_stream(&holder, |stream| {
            let mut guest = Guest::over(stream, FEATURES | format);
            guest.share_memory();
            let inflight = memory.get(&mut guest, format);
            guest.set_inflight(&inflight);
            let mut ring = guest.start(1);
            for slot in 0..5 {
                if slot == 4 {
                    take_and_answer_one(&holder);
                }
                ring.submit(slot, OUT, u64::from(slot) * 8, &[10 + slot as u8; 4096]);
            }
            assert_eq!(ring.reap(), [1]);
            guest.hang_up();
            left = Some(Self { format, guest, ring, inflight });
        });
        assert!(matches!(outcome, Err(ServeError::NotDrained(1))), "{outcome:?}");
        left.unwrap()
    }

    /// Connects to a server and runs the queue. Passes the used index as the ring's position, as QEMU does. A packed
    /// ring has no such index in memory, so its start position is passed.
    fn reconnect(&mut self, stream: UnixStream) {
        self.guest.reconnect(stream, FEATURES | self.format);
        self.guest.set_inflight(&self.inflight);
        let position = if self.format == PACKED { 0x8000_8000 } else { self.ring.position() };
        self.guest.restart(&self.ring, position);
    }

    /// Checks that the next server finishes all writes.
    fn assert_all_finished(mut self) {
        let server = Server::start(geometry());
        self.reconnect(UnixStream::connect(server.socket()).unwrap());
        assert_eq!(self.ring.finish(), [0, 2, 3, 4], "in the order in which they were taken, then what is new");
        for slot in 0..4 {
            self.ring.submit(slot, 0, u64::from(slot) * 8, &[0; 4096]);
        }
        assert_eq!(self.ring.finish(), [0, 1, 2, 3]);
        let written: Vec<_> = (0..4).map(|slot| self.ring.data::<1>(slot)[0]).collect();
        assert_eq!(written, [10, 0, 12, 13], "what was answered by the first one is not executed again");
        let base = self.guest.frontend.get_vring_base(1).unwrap();
        assert_eq!(base, self.ring.position());
    }
}

/// Takes the requests of queue 1, and answers the second one.
fn take_and_answer_one(holder: &QueueHolder) {
    let mut queues = holder.queues.lock().unwrap();
    let mut requests: Vec<_> = std::iter::from_fn(|| queues[0].pop().unwrap()).collect();
    assert_eq!(requests.len(), 4);
    queues[0].complete(requests.remove(1), BlkStatus::Ok);
    queues[0].publish();
}

#[test]
fn requests_in_flight_are_resubmitted_by_the_next_server() {
    for format in FORMATS {
        for memory in MEMORIES {
            Left::new(format, memory).assert_all_finished();
        }
    }
}

#[test]
fn requests_that_are_not_resubmitted_stay_in_the_log() {
    for format in FORMATS {
        let mut left = Left::new(format, Memory::Asked(ENTRIES));
        let idle = QueueHolder { accepts: true, gives_back: true, ..QueueHolder::default() };
        let outcome = serve_stream(&idle, |stream| {
            left.reconnect(stream);
            // A queue may be stopped and started for a change of set-up.
            left.guest.share_memory();
            assert_eq!(idle.queues.lock().unwrap().len(), 1);
            assert!(left.guest.frontend.get_vring_base(1).is_err(), "no position says which of them are missing");
        });
        assert!(matches!(outcome, Err(ServeError::NotResubmitted(1))), "{outcome:?}");
        left.assert_all_finished();
    }
}

/// A server may be killed after it has published a completion and before it has signalled it.
#[test]
fn a_driver_is_signalled_when_the_next_server_starts() {
    let server = Server::start(geometry());
    let mut guest = Guest::connect(&server.socket(), FEATURES);
    guest.share_memory();
    let ring = guest.start(0);
    // SAFETY: the descriptor is borrowed for this call only, while `ring` lives.
    wait_readable(unsafe { BorrowedFd::borrow_raw(ring.call.as_raw_fd()) });
}

#[test]
fn a_position_counts_while_the_log_is_new() {
    let server = Server::start(geometry());
    let mut guest = Guest::connect(&server.socket(), FEATURES);
    guest.share_memory();
    let inflight = guest.get_inflight();
    guest.set_inflight(&inflight);
    // The guest has used this ring with a server without a log.
    let mut ring = guest.start(0);
    for _ in 0..5 {
        ring.submit(0, OUT, 0, &[1; 512]);
        assert_eq!(ring.finish(), [0]);
    }
    assert_eq!(guest.frontend.get_vring_base(0).unwrap(), 5);
    ring.submit(1, OUT, 0, &[1; 512]);
    let fresh = guest.get_inflight();
    guest.set_inflight(&fresh);
    guest.restart(&ring, 5);
    assert_eq!(ring.finish(), [1]);
    // From now on the log counts, not the front-end's position.
    assert_eq!(guest.frontend.get_vring_base(0).unwrap(), 6);
    ring.submit(2, OUT, 0, &[1; 512]);
    guest.restart(&ring, 4);
    assert_eq!(ring.finish(), [2]);
}

#[test]
fn the_memory_has_the_documented_layout() {
    let server = Server::start(geometry());
    let mut guest = Guest::connect(&server.socket(), FEATURES);
    let (told, file) = guest.get_inflight();
    let (bytes, offset) = (told.mmap_size, told.mmap_offset);
    assert_eq!((bytes, offset), (4 * LARGEST_AREA_BYTES, 0));
    assert_eq!(({ told.num_queues }, { told.queue_size }), (4, ENTRIES));
    let mut content = vec![0xff; bytes as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    assert!(content.iter().all(|&byte| byte == 0), "a new guest's");
    assert!(file.set_len(0).is_err(), "sealed");
    // Memory that another server created may start at any aligned offset.
    let file = File::from(memfd_create("inflight", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(4096 + 2 * AREA_BYTES).unwrap();
    guest.share_memory();
    guest.set_inflight(&(VhostUserInflight::new(2 * AREA_BYTES, 4096, 2, ENTRIES), file.try_clone().unwrap()));
    let mut ring = guest.start(1);
    ring.submit(0, OUT, 0, &[1; 512]);
    assert_eq!(ring.finish(), [0]);
    let mut version = [0; 2];
    file.read_exact_at(&mut version, 4096 + AREA_BYTES + 8).unwrap();
    assert_eq!(u16::from_ne_bytes(version), 1);
}

/// QEMU 10.0.13 asks for the 128 entries of its `queue-size`, and gives queues 1024.
#[test]
fn queues_may_be_larger_than_the_size_that_memory_was_asked_for() {
    for format in FORMATS {
        let server = Server::start(geometry());
        let mut guest = Guest::connect(&server.socket(), FEATURES | format);
        guest.share_memory();
        let inflight = guest.get_inflight_for(128);
        assert_eq!({ inflight.0.queue_size }, 128, "as asked");
        guest.set_inflight(&inflight);
        let ring = guest.set_up(3);
        guest.frontend.set_vring_num(3, 1024).unwrap();
        guest.frontend.set_vring_kick(3, &ring.kick).unwrap();
        guest.frontend.set_vring_enable(3, true).unwrap();
        assert_eq!(server.ram.running(), 1);
        let mut entries = [0; 2];
        // The number of entries, at the same place in both formats.
        inflight.1.read_exact_at(&mut entries, inflight.0.mmap_size / 4 * 3 + 10).unwrap();
        assert_eq!(u16::from_ne_bytes(entries), 1024);
        // More entries than the disk accepts are refused.
        assert!(guest.frontend.set_vring_num(3, 2048).is_err());
        assert!(matches!(server.outcome(), Err(ServeError::Request(RequestError::QueueSize { size: 2048, .. }))));
    }
}

type Attempt = fn(&mut Guest) -> bool;
type Reason = fn(&ServeError) -> bool;

fn memory_error(error: &ServeError) -> Option<&InflightMemoryError> {
    if let ServeError::Request(RequestError::Inflight(error)) = error { Some(error) } else { None }
}

fn set(guest: &mut Guest, told: &VhostUserInflight, file_bytes: u64) -> bool {
    let file = File::from(memfd_create("inflight", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(file_bytes).unwrap();
    guest.frontend.set_inflight_fd(told, file.as_raw_fd()).is_err()
}

/// Whether a queue of 128 entries is refused.
fn refuses_a_queue_of_128(guest: &mut Guest) -> bool {
    guest.share_memory();
    let ring = guest.set_up(1);
    guest.frontend.set_vring_num(1, 128).unwrap();
    guest.frontend.set_vring_kick(1, &ring.kick).unwrap();
    guest.frontend.set_vring_enable(1, true).is_err()
}

fn area_is_too_small_for_128(error: &ServeError) -> bool {
    let size = RingError::Inflight(InflightError::Size { entries: ENTRIES, size: 128 });
    matches!(error, ServeError::Ring { index: 1, error } if *error == size)
}

#[test]
fn impossible_in_flight_memory_ends_the_connection() {
    let server = Server::start(geometry());
    let cases: [(&str, Attempt, Reason); 9] = [
        (
            "get: more queues than there are",
            |guest| guest.frontend.get_inflight_fd(&VhostUserInflight::new(0, 0, 5, ENTRIES)).is_err(),
            |error| matches!(memory_error(error), Some(InflightMemoryError::Shape { num_queues: 5, .. })),
        ),
        (
            "get: queues that are too large",
            |guest| guest.frontend.get_inflight_fd(&VhostUserInflight::new(0, 0, 4, 40_000)).is_err(),
            |error| matches!(memory_error(error), Some(InflightMemoryError::Shape { queue_size: 40_000, .. })),
        ),
        (
            "set: more queues than there are",
            |guest| set(guest, &VhostUserInflight::new(1 << 20, 0, 5, ENTRIES), 1 << 20),
            |error| matches!(memory_error(error), Some(InflightMemoryError::Shape { num_queues: 5, .. })),
        ),
        (
            "set: too small for its queues",
            |guest| set(guest, &VhostUserInflight::new(4 * AREA_BYTES - 1, 0, 4, ENTRIES), 1 << 20),
            |error| matches!(memory_error(error), Some(InflightMemoryError::TooSmall { .. })),
        ),
        (
            "set: beyond its file",
            |guest| set(guest, &VhostUserInflight::new(4 * AREA_BYTES, 4096, 4, ENTRIES), 8000),
            |error| matches!(memory_error(error), Some(InflightMemoryError::Map(_))),
        ),
        (
            "rings that it is not for",
            |guest| {
                assert!(!set(guest, &VhostUserInflight::new(4 * AREA_BYTES, 0, 4, ENTRIES), 1 << 20));
                guest.frontend.set_features(FEATURES | PACKED).unwrap();
                guest.share_memory();
                let ring = guest.set_up(1);
                guest.frontend.set_vring_kick(1, &ring.kick).unwrap();
                guest.frontend.set_vring_enable(1, true).is_err()
            },
            |error| {
                let format = RingError::Inflight(InflightError::Format { packed: false });
                matches!(error, ServeError::Ring { index: 1, error } if *error == format)
            },
        ),
        (
            "a queue that is larger than its area",
            |guest| {
                assert!(!set(guest, &VhostUserInflight::new(4 * AREA_BYTES, 0, 4, ENTRIES), 1 << 20));
                refuses_a_queue_of_128(guest)
            },
            area_is_too_small_for_128,
        ),
        (
            "a queue that is larger than its area is told to be, in memory for larger ones than the disk has",
            |guest| {
                let told = VhostUserInflight::new(4 * TOO_LARGE_AREA_BYTES, 0, 4, ENTRIES);
                assert!(!set(guest, &told, 1 << 20));
                refuses_a_queue_of_128(guest)
            },
            area_is_too_small_for_128,
        ),
        (
            "a queue that it is not for",
            |guest| {
                assert!(!set(guest, &VhostUserInflight::new(AREA_BYTES, 0, 1, ENTRIES), 1 << 20));
                guest.share_memory();
                let ring = guest.set_up(1);
                guest.frontend.set_vring_kick(1, &ring.kick).unwrap();
                guest.frontend.set_vring_enable(1, true).is_err()
            },
            |error| {
                let none = RingError::Inflight(InflightError::NoArea { num_queues: 1 });
                matches!(error, ServeError::Ring { index: 1, error } if *error == none)
            },
        ),
    ];
    for (name, attempt, reason) in cases {
        let mut guest = Guest::connect(&server.socket(), FEATURES);
        assert!(attempt(&mut guest), "{name} is refused");
        let error = server.outcome().expect_err(name);
        assert!(reason(&error), "{name}: {error}");
    }
}

#[test]
fn an_invalid_log_is_reported_with_its_queue() {
    let server = Server::start(geometry());
    let mut guest = Guest::connect(&server.socket(), FEATURES);
    guest.share_memory();
    let (told, file) = guest.get_inflight();
    // An unknown version.
    file.write_all_at(&7_u16.to_ne_bytes(), 3 * LARGEST_AREA_BYTES + 8).unwrap();
    guest.set_inflight(&(told, file));
    let ring = guest.set_up(3);
    guest.frontend.set_vring_kick(3, &ring.kick).unwrap();
    assert!(guest.frontend.set_vring_enable(3, true).is_err());
    let error = server.outcome().unwrap_err();
    assert_eq!(error.to_string(), "queue 3: the in-flight log has unknown version 7 or features 0x0");
}
