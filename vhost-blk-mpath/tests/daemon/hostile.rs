//! Many disks in one daemon, one of whose guests breaks all rules.

use std::time::{Duration, Instant};

use mpath_api::config::{DiskConfig, SharerConfig};
use mpath_target::NamespaceConfig;
use vublk_bench::request::Status;

use crate::support::{Daemon, Disk, Hostile, NQN, Place, Target};

const DISKS: usize = 64;
/// Of each of two kinds of turns: with and without the hostile guest, which alternate so that whatever else this machine does is the same for
/// both.
const TURNS: u64 = 8;
/// Reads of every other disk in a turn.
const READS: u64 = 4;
/// A disk that is held up by another one's guest is so for longer: front-ends that leave have ten seconds. What is shorter is no matter of
/// this test, which has no machine of its own.
const HELD_UP: Duration = Duration::from_secs(2);

fn socket(place: &Place, disk: usize) -> mpath_api::config::SocketPath {
    place.file(&format!("disk-{disk}")).to_str().unwrap().parse().unwrap()
}

fn named(place: &Place, target: &Target, disk: usize) -> DiskConfig {
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}").parse().unwrap()).collect();
    let config = DiskConfig::new(socket(place, disk), NQN.parse().unwrap(), paths);
    let (name, namespace) = (format!("disk-{disk}").parse().unwrap(), (disk + 1).to_string().parse().ok());
    DiskConfig { name, namespace, ..config }
}

fn target() -> Target {
    Target::with(1, |config| config.namespaces = vec![NamespaceConfig::memory(1 << 20); DISKS])
}

/// Reads of all disks, one after the other, while the hostile guest is there and while it is not.
fn unharmed(daemon: &Daemon) {
    let mut disks: Vec<_> = (1..DISKS).map(|disk| Disk::connect(&daemon.place.file(&format!("disk-{disk}")))).collect();
    for (disk, byte) in disks.iter_mut().zip(1..) {
        assert_eq!(disk.write(0, byte), Status::Ok);
    }
    let (mut alone, mut beside, mut lives) = (Vec::new(), Vec::new(), 0);
    for turn in 0..2 * TURNS {
        let hostile = (turn % 2 == 1).then(|| Hostile::start(daemon.place.file("disk-0"), turn));
        let took = if hostile.is_some() { &mut beside } else { &mut alone };
        for _ in 0..READS {
            for (disk, byte) in disks.iter_mut().zip(1..) {
                let begun = Instant::now();
                assert_eq!(disk.read(0), byte);
                took.push(begun.elapsed());
            }
        }
        lives += hostile.map_or(0, Hostile::end);
    }
    let p99_and_most = |took: &mut Vec<Duration>| {
        took.sort_unstable();
        (took[took.len() * 99 / 100], took[took.len() - 1])
    };
    let (alone, beside) = (p99_and_most(&mut alone), p99_and_most(&mut beside));
    println!("p99 and most: alone {alone:?}, beside the hostile guest {beside:?}, which came {lives} times");
    println!("p99 beside it is {:.2} times that without", beside.0.as_secs_f64() / alone.0.as_secs_f64());
    assert!(lives >= TURNS, "it did something");
    assert!(beside.1 < HELD_UP, "a read took {:?} beside the hostile guest, {:?} at most without", beside.1, alone.1);
    // One that keeps to the rules finds the disk as it should be.
    let mut disk = Disk::connect_patiently(&daemon.place.file("disk-0"));
    assert_eq!((disk.write(0, 200), disk.read(0)), (Status::Ok, 200));
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_guest_that_breaks_all_rules_harms_no_other_disk() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    for disk in 0..DISKS {
        daemon.api.add_disk(&named(&daemon.place, &target, disk)).unwrap();
    }
    unharmed(&daemon);
}

/// They share its paths, and the one I/O thread.
#[test]
fn nor_one_that_is_served_by_the_same_thread() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    let mut config = named(&daemon.place, &target, 0);
    let sharer = |disk: usize| {
        let (name, namespace) = (format!("disk-{disk}").parse().unwrap(), (disk + 1).to_string().parse().unwrap());
        SharerConfig::new(name, socket(&daemon.place, disk), namespace)
    };
    config.share_paths_with = (1..DISKS).map(sharer).collect();
    assert_eq!(daemon.api.add_disk(&config).unwrap().len(), DISKS);
    unharmed(&daemon);
}
