//! Changes of one disk that must not affect others: it grows, or it is migrated.
//!
//! Guests on the other disks work all the time and check what they read. Their latency during a change is compared
//! with that at rest.

use std::iter;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mpath_config::{DiskConfig, PolicyKind, SharerConfig};
use vhost::VhostBackend;
use virtio_guest::PAGE_BYTES;
use virtio_guest::features::{FLUSH, LOG_ALL, PROTOCOL_FEATURES};

use crate::guest::{Guest, Ring, assert_told};
use crate::support::{
    Bystanders, Daemon, DaemonDirectory, Periods, Priority, ROUNDS, SERVICE, Slots, Target, disk, sharer, socket_of,
    target_of,
};

pub(crate) const FEATURES: u64 = PROTOCOL_FEATURES | FLUSH;
pub(crate) const SEED: u64 = 20_815;
pub(crate) const PATHS: usize = 2;
pub(crate) const MIB: u64 = 1 << 20;
/// Turns of each round: at rest, then with a change.
pub(crate) const TURNS: usize = 3;

/// Requests in flight on each virtqueue of the changing disk.
const DEPTH: u16 = 8;
/// A time at rest, long enough for some requests of each disk.
pub(crate) const QUIET: Duration = Duration::from_millis(250);

/// The configuration of a disk, of disks that share its paths, and of disks that do not. A [`Guest`] can use any of
/// them. The policy does not learn: `bdp` treats a guest that arrives like one that begins to work.
pub(crate) fn disks(
    place: &DaemonDirectory,
    target: &Target,
    first: usize,
    sharers: &[usize],
    others: &[usize],
) -> Vec<DiskConfig> {
    let queues = "4".parse().unwrap();
    let share_paths_with = sharers.iter().map(|&number| SharerConfig { queues, ..sharer(place, number) }).collect();
    let first = DiskConfig { share_paths_with, ..disk(place, target, first) };
    let others = others.iter().map(|&number| disk(place, target, number));
    let disks = iter::once(first).chain(others);
    disks.map(|disk| DiskConfig { queues, policy: PolicyKind::RoundRobin.into(), ..disk }).collect()
}

pub(crate) fn start(disks: impl FnOnce(&DaemonDirectory) -> Vec<DiskConfig>) -> Daemon {
    let place = DaemonDirectory::new();
    let command = place.configured(disks(&place));
    place.spawn(command).ready()
}

/// Guests working on these disks of a daemon.
pub(crate) fn at_work(daemon: &Daemon, numbers: &[usize]) -> Bystanders {
    println!("disks {numbers:?}: seed {}", SEED + numbers[0] as u64);
    Bystanders::start(numbers.iter().map(|&number| socket_of(&daemon.place, number)), SEED + numbers[0] as u64)
}

/// Makes each request take time from now on.
pub(crate) fn serve_slowly(target: &Target) {
    (0..PATHS).for_each(|path| target.set_delay(path, SERVICE));
}

/// Checks for errors and losses that a front-end may not have noticed.
pub(crate) fn lost_no_path(daemon: &Daemon) {
    let (paths, log) = (daemon.paths(), daemon.log());
    assert!(paths.iter().all(|path| path.errors() == 0), "{paths:?}");
    assert!(!log.contains("path down") && !log.contains("panicked"), "{log}");
}

/// A guest whose disk grows.
struct GrowingGuest {
    guest: Guest,
    channel: UnixStream,
    /// To try out the new blocks.
    ring: Ring,
    /// The virtqueue that works meanwhile.
    slots: Slots,
    mib: u64,
}

const AT_FIRST_MIB: u64 = 8;
/// The number of growths in each turn, by 1 MiB each.
const GROWTHS: usize = 12;
const OUT: u32 = 1;
const IN: u32 = 0;
const OK: u8 = 0;
const IOERR: u8 = 1;

impl GrowingGuest {
    fn connect(socket: &Path) -> Self {
        let mut guest = Guest::connect(socket, FEATURES);
        let mut channel = guest.listen();
        guest.share_memory();
        let (ring, slots) = (guest.start(0), Slots::new(guest.start(1), SEED));
        // A new front-end is notified, because it may know an old size.
        assert_told(&mut channel);
        Self { guest, channel, ring, slots, mib: AT_FIRST_MIB }
    }

    /// Reads or writes the sector at this many MiB.
    fn run(&mut self, kind: u32, mib: u64, byte: u8) -> (u8, [u8; 512]) {
        self.ring.submit(0, kind, mib * (MIB / 512), &[byte; 512]);
        assert_eq!(self.ring.finish(), [0]);
        (self.ring.status(0), self.ring.data(0))
    }

    /// The work of the guest while the disk grows, without the growth.
    fn work(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.slots.submit(DEPTH);
            assert_eq!(self.run(IN, 0, 0xff).0, OK);
            self.slots.finish();
        }
    }

    fn grow(&mut self, target: &Target) {
        let end = self.mib;
        assert_eq!(self.run(OUT, end, 0xff).0, IOERR, "behind the end");
        self.slots.submit(DEPTH);
        self.mib += 1;
        (0..PATHS).for_each(|path| target.set(path, &format!("size=1:{}MiB", self.mib)));
        assert_told(&mut self.channel);
        assert_eq!(self.guest.capacity_sectors(), self.mib * (MIB / 512));
        assert_eq!(self.run(OUT, end, end as u8).0, OK, "not behind the end any more");
        self.slots.finish();
    }

    /// Checks that all data written is there.
    fn finish(mut self) {
        self.slots.read_back();
        for mib in AT_FIRST_MIB..self.mib {
            assert_eq!(self.run(IN, mib, 0xff), (OK, [mib as u8; 512]), "what was new at {mib} MiB");
        }
    }
}

#[test]
fn a_disk_that_grows_harms_no_other_disk() {
    let _priority = Priority::take();
    let (sharers, others) = ([1, 2, 3], [4, 5, 6]);
    let target = target_of(7, PATHS, 256 * MIB);
    (0..PATHS).for_each(|path| target.set(path, &format!("size=1:{AT_FIRST_MIB}MiB")));
    let daemon = start(|place| disks(place, &target, 0, &sharers, &others));
    serve_slowly(&target);
    let (sharing, apart) = (at_work(&daemon, &sharers), at_work(&daemon, &others));
    let mut growing = GrowingGuest::connect(&socket_of(&daemon.place, 0));
    let mut windows = Periods::default();
    for round in 0..ROUNDS {
        for _ in 0..TURNS {
            windows.alone(round, || growing.work(QUIET));
            windows.beside(round, || (0..GROWTHS).for_each(|_| growing.grow(&target)));
        }
    }
    growing.finish();
    windows.judge(&sharing.finish(), "disks that share its paths", "one that grows");
    windows.judge(&apart.finish(), "disks of the same daemon", "one that grows");
    lost_no_path(&daemon);
}

/// A guest that migrates, with its requests on two virtqueues.
struct MigratingGuest {
    guest: Guest,
    queues: [Slots; 2],
}

/// The number of batches of requests while the dirty log is on.
const BATCHES: usize = 6;

impl MigratingGuest {
    fn connect(socket: &Path) -> Self {
        let mut guest = Guest::connect(socket, FEATURES);
        guest.share_memory();
        let queues = [0, 1].map(|index| Slots::new(guest.start(index), SEED));
        Self { guest, queues }
    }

    fn work_for(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.work();
        }
    }

    fn work(&mut self) {
        for queue in &mut self.queues {
            queue.submit(DEPTH);
        }
        self.queues.iter_mut().for_each(Slots::finish);
    }

    /// Migrates to the disk at another socket. Requests are in flight when the dirty log arrives and when the
    /// virtqueues are stopped. Returns its downtime.
    fn move_to(&mut self, socket: &Path) -> Duration {
        let Self { guest, queues } = self;
        for queue in queues.iter_mut() {
            queue.submit(DEPTH);
        }
        let log = guest.set_log(Guest::LOG_BYTES, Guest::LOG_BYTES).unwrap();
        guest.set_features(FEATURES | LOG_ALL);
        (0..queues.len()).for_each(|index| guest.set_addresses(index, true));
        // Data written before are in the copy. From here on, every other page written must be marked.
        let copy = guest.copy_memory();
        for queue in queues.iter_mut() {
            queue.ring.write_also_to(&copy);
        }
        queues.iter_mut().for_each(Slots::finish);
        (0..BATCHES).for_each(|_| self.work());

        let Self { guest, queues } = self;
        for queue in queues.iter_mut() {
            queue.submit(DEPTH);
        }
        thread::sleep(SERVICE / 2);
        let begun = Instant::now();
        let positions = queues.each_mut().map(|queue| {
            let position = guest.frontend.get_vring_base(queue.ring.index).unwrap();
            queue.reap();
            assert_eq!(position, queue.ring.position(), "drained");
            position
        });
        let marked = log.take();
        assert!(marked.len() < Guest::PAGES as usize / 2, "and not all that there is: {marked:x?}");
        let lost = guest.copy_marked(&copy, &marked);
        assert!(lost.is_empty(), "pages {lost:x?} were written, and {marked:x?} marked, of {PAGE_BYTES} bytes each");

        let mut arrived = Guest::arriving(UnixStream::connect(socket).unwrap(), FEATURES, copy);
        arrived.share_memory();
        for (queue, position) in queues.iter_mut().zip(positions) {
            arrived.restart_here(&mut queue.ring, position);
        }
        for queue in queues.iter_mut() {
            queue.submit(1);
        }
        queues.iter_mut().for_each(Slots::finish);
        // The guest leaves the first daemon.
        *guest = arrived;
        begun.elapsed()
    }
}

#[test]
fn a_disk_that_is_migrated_harms_no_other_disk_of_either_daemon() {
    let _priority = Priority::take();
    let (sharers, others) = ([[1, 2], [5, 6]], [[3, 4], [7, 8]]);
    let target = target_of(9, PATHS, MIB);
    let daemons = [0, 1].map(|daemon| start(|place| disks(place, &target, 0, &sharers[daemon], &others[daemon])));
    serve_slowly(&target);
    let sharing = [0, 1].map(|daemon| at_work(&daemons[daemon], &sharers[daemon]));
    let apart = [0, 1].map(|daemon| at_work(&daemons[daemon], &others[daemon]));
    let [first, second] = daemons.each_ref().map(|daemon| socket_of(&daemon.place, 0));
    let mut moving = MigratingGuest::connect(&first);
    let (mut windows, mut longest) = (Periods::default(), Duration::ZERO);
    for round in 0..ROUNDS {
        for _ in 0..TURNS {
            windows.alone(round, || moving.work_for(QUIET));
            windows.beside(round, || {
                for socket in [&second, &first] {
                    moving.work();
                    longest = longest.max(moving.move_to(socket));
                }
            });
        }
    }
    println!("the guest stood still for {longest:?} at most");
    moving.queues.iter_mut().for_each(Slots::read_back);
    let others = [
        "disks that share its paths in the first daemon",
        "disks that share its paths in the second daemon",
        "disks of the first daemon",
        "disks of the second daemon",
    ];
    for (requests, whom) in sharing.into_iter().chain(apart).zip(others) {
        windows.judge(&requests.finish(), whom, "one that is migrated");
    }
    daemons.iter().for_each(lost_no_path);
}
