//! Many disks in one daemon, one of whose guests breaks all rules.

use std::time::{Duration, Instant};

use mpath_api::config::{DiskConfig, SharerConfig};
use mpath_target::NamespaceConfig;
use vublk_bench::request::Status;

use crate::support::{Daemon, Disk, Hostile, NQN, Place, Target};

const DISKS: usize = 64;
/// What the target takes for a request: beside it this machine, which others use too, weighs little.
const SERVICE: Duration = Duration::from_millis(8);
/// Of each of two kinds of turns: with and without the hostile guest, which alternate so that whatever else this machine does is the same for
/// both. In each, every other disk reads once.
const TURNS: u64 = 6;
/// Reads of a turn that do not count.
const FIRST: u8 = 8;
/// The p99 beside the hostile guest is at most so many times that without.
const HARM: f64 = 1.5;
/// Rounds of turns, most of which have to show that: this machine may stand still in one of them.
const ROUNDS: u64 = 3;
/// A disk that is held up by another one's guest is so for longer, and never is: front-ends that leave have ten seconds.
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
fn unharmed(daemon: &Daemon, target: &Target) {
    let mut disks: Vec<_> = (1..DISKS).map(|disk| Disk::connect(&daemon.place.file(&format!("disk-{disk}")))).collect();
    for (disk, byte) in disks.iter_mut().zip(1..) {
        assert_eq!(disk.write(0, byte), Status::Ok);
    }
    target.set_delay(0, SERVICE);
    let mut times = [0.0; ROUNDS as usize];
    for (round, times) in (0..).zip(&mut times) {
        let (mut alone, mut beside, mut lives) = (Vec::new(), Vec::new(), 0);
        for turn in 0..2 * TURNS {
            let seed = round * 2 * TURNS + turn;
            let hostile = (turn % 2 == 1).then(|| Hostile::start(daemon.place.file("disk-0"), seed));
            let took = if hostile.is_some() { &mut beside } else { &mut alone };
            for (disk, byte) in disks.iter_mut().zip(1..) {
                let begun = Instant::now();
                assert_eq!(disk.read(0), byte);
                // The first ones may meet what the hostile guest has left, or meet it not yet.
                if byte > FIRST {
                    took.push(begun.elapsed());
                }
            }
            lives += hostile.map_or(0, Hostile::end);
        }
        assert!(lives >= TURNS, "it did something");
        let p99_and_most = |took: &mut Vec<Duration>| {
            took.sort_unstable();
            (took[took.len() * 99 / 100], took[took.len() - 1])
        };
        let (alone, beside) = (p99_and_most(&mut alone), p99_and_most(&mut beside));
        *times = beside.0.as_secs_f64() / alone.0.as_secs_f64();
        println!(
            "p99 and most: alone {alone:?}, beside the hostile guest {beside:?}, {times:.2} times; it came {lives} times"
        );
        assert!(beside.1 < HELD_UP, "a read took {:?} beside the hostile guest", beside.1);
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    assert!(median <= HARM, "beside the hostile guest the p99 of the others is {median:.2} times what it is without");
    target.set_delay(0, Duration::ZERO);
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
    unharmed(&daemon, &target);
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
    unharmed(&daemon, &target);
}
