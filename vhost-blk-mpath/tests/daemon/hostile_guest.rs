//! Many disks in one daemon, one of them with a guest that breaks all rules.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use vhost::VhostBackend;
use vublk_bench::request::Status;

use crate::disk_isolation::{FEATURES, disks, start};
use crate::guest::Guest;
use crate::support::{
    Daemon, Disk, Harm, HostileGuest, Priority, ROUNDS, SERVICE, Target, disk, eventually, sharer, socket_of, target_of,
};

const DISKS: usize = 64;
/// Turns of each kind: with and without the hostile guest. In each turn every other disk reads once.
const TURNS: u64 = 2;
/// The first reads of a turn, which do not count.
const FIRST: u8 = 8;

fn target() -> Target {
    target_of(DISKS, 1, 1 << 20)
}

/// Reads of all disks, one after the other, with and without the hostile guest.
fn check_isolation(daemon: &Daemon, target: &Target) {
    let mut disks: Vec<_> = (1..DISKS).map(|disk| Disk::connect(&socket_of(&daemon.place, disk))).collect();
    for (disk, byte) in disks.iter_mut().zip(1..) {
        assert_eq!(disk.write(0, byte), Status::Ok);
    }
    target.set_delay(0, SERVICE);
    let mut harm = Harm::new("the other disks", "the hostile guest");
    for round in 0..ROUNDS {
        let mut lives = 0;
        for turn in 0..2 * TURNS {
            let seed = round as u64 * 2 * TURNS + turn;
            let hostile = (turn % 2 == 1).then(|| HostileGuest::start(socket_of(&daemon.place, 0), seed));
            for (disk, byte) in disks.iter_mut().zip(1..) {
                let begun = Instant::now();
                assert_eq!(disk.read(0), byte);
                // The first reads of a turn may see effects of the turn before.
                if byte > FIRST {
                    harm.took(round, hostile.is_some(), begun.elapsed());
                }
            }
            lives += hostile.map_or(0, HostileGuest::end);
        }
        println!("the hostile guest came {lives} times");
        assert!(lives >= TURNS, "it did something");
    }
    harm.judge();
    target.set_delay(0, Duration::ZERO);
    // A well-behaved front-end finds the disk in order.
    let mut disk = Disk::connect_patiently(&socket_of(&daemon.place, 0));
    assert_eq!((disk.write(0, 200), disk.read(0)), (Status::Ok, 200));
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_guest_that_breaks_all_rules_harms_no_other_disk() {
    let _priority = Priority::take();
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    for number in 0..DISKS {
        daemon.api.add_disk(&disk(&daemon.place, &target, number)).unwrap();
    }
    check_isolation(&daemon, &target);
}

/// The disks share its paths and the only I/O thread.
#[test]
fn a_guest_that_breaks_all_rules_harms_no_disk_on_its_io_thread() {
    let _priority = Priority::take();
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    let mut config = disk(&daemon.place, &target, 0);
    config.share_paths_with = (1..DISKS).map(|number| sharer(&daemon.place, number)).collect();
    assert_eq!(daemon.api.add_disk(&config).unwrap().len(), DISKS);
    check_isolation(&daemon, &target);
}

/// A front-end shares the flags of its descriptors. This one makes one of them blocking, and full, when the daemon has it.
#[test]
fn a_descriptor_that_blocks_costs_its_own_front_end_alone() {
    const READ: u32 = 0;
    let target = target_of(2, 1, 1 << 20);
    for is_error in [false, true] {
        let daemon = start(|place| disks(place, &target, 0, &[1], &[]));
        let mut guest = Guest::connect(&socket_of(&daemon.place, 0), FEATURES);
        guest.share_memory();
        let mut ring = guest.set_up(0);
        let mut other = Disk::connect(&socket_of(&daemon.place, 1));
        // SAFETY: the ring keeps the descriptor open.
        let full = unsafe { BorrowedFd::borrow_raw(ring.call.as_raw_fd()) };
        fcntl_setfl(full, OFlags::NONBLOCK).unwrap();
        if is_error {
            guest.frontend.set_vring_err(0, &ring.call).unwrap();
        }
        guest.restart(&ring, ring.position());
        // It may have been signalled.
        let _ = ring.call.read();
        ring.call.write(u64::MAX - 1).unwrap();
        fcntl_setfl(full, OFlags::empty()).unwrap();
        if is_error {
            ring.break_available_idx();
        } else {
            ring.submit(0, READ, 0, &[0; 512]);
        }
        ring.kick.write(1).unwrap();
        let lost = "front-end lost: it has made a call or error descriptor block an I/O thread";
        eventually("it is hung up on", || daemon.log().contains(lost));
        assert_eq!((other.write(0, 3), other.read(0)), (Status::Ok, 3), "another disk on the same I/O thread");
        let mut next = UnixStream::connect(socket_of(&daemon.place, 0)).unwrap();
        next.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        // VHOST_USER_GET_FEATURES.
        next.write_all(&[1_u32, 1, 0].map(u32::to_ne_bytes).concat()).unwrap();
        let answer = next.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(answer, Err(ErrorKind::WouldBlock), "none is served for a minute");
    }
}
