//! What happens to a disk in the course of its life, and that no other disk notices: it grows, it is migrated, its daemon is replaced.
//!
//! Guests are at work on the others all the time, and check what they read. What their requests take meanwhile is judged against what they
//! take while nothing happens. For the disks of a daemon that is replaced it is what their requests take once the next one has settled, and
//! the time without service is bounded.

use std::fs::File;
use std::iter;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mpath_api::PolicyKind;
use mpath_api::config::{DiskConfig, SharerConfig};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use vhost::VhostBackend;

use crate::guest::{FLUSH, Guest, LOG_ALL, PAGE_BYTES, PROTOCOL_FEATURES, Ring, assert_told};
use crate::support::{
    Daemon, Others, PATIENCE, Place, Priority, ROUNDS, SERVICE, Slots, Target, Took, Windows, activated, disk,
    eventually, held_back, sharer, socket_of, target_of,
};

const FEATURES: u64 = PROTOCOL_FEATURES | FLUSH;
const SEED: u64 = 20_815;
const PATHS: usize = 2;
const MIB: u64 = 1 << 20;
/// Of each round: nothing happens, then something does.
const TURNS: usize = 3;

/// Requests in flight of a virtqueue to which something happens.
const DEPTH: u16 = 8;
/// While nothing happens: long enough for some requests of each disk.
const QUIET: Duration = Duration::from_millis(250);

/// The configuration of a disk, of some that share its paths, and of some that do not. A [`Guest`] can have any of them. The policy is one
/// that has nothing to learn: what `bdp` makes of a guest that arrives is what it makes of one that begins to work.
fn disks(place: &Place, target: &Target, first: usize, sharers: &[usize], others: &[usize]) -> Vec<DiskConfig> {
    let queues = "4".parse().unwrap();
    let share_paths_with = sharers.iter().map(|&number| SharerConfig { queues, ..sharer(place, number) }).collect();
    let first = DiskConfig { share_paths_with, ..disk(place, target, first) };
    let others = others.iter().map(|&number| disk(place, target, number));
    let disks = iter::once(first).chain(others);
    disks.map(|disk| DiskConfig { queues, policy: PolicyKind::RoundRobin.into(), ..disk }).collect()
}

fn start(disks: impl FnOnce(&Place) -> Vec<DiskConfig>) -> Daemon {
    let place = Place::new();
    let command = place.configured(disks(&place));
    place.spawn(command).ready()
}

/// Guests at work on these disks of a daemon.
fn at_work(daemon: &Daemon, numbers: &[usize]) -> Others {
    println!("disks {numbers:?}: seed {}", SEED + numbers[0] as u64);
    Others::start(numbers.iter().map(|&number| socket_of(&daemon.place, number)), SEED + numbers[0] as u64)
}

/// From now on requests take a while.
fn serve_slowly(target: &Target) {
    (0..PATHS).for_each(|path| target.set_delay(path, SERVICE));
}

/// What front-ends may not have noticed.
fn lost_no_path(daemon: &Daemon) {
    let (paths, log) = (daemon.paths(), daemon.log());
    assert!(paths.iter().all(|path| path.errors() == 0), "{paths:?}");
    assert!(!log.contains("path down") && !log.contains("panicked"), "{log}");
}

/// A guest whose disk grows.
struct Growing {
    guest: Guest,
    channel: UnixStream,
    /// To try out what is new.
    ring: Ring,
    /// At work meanwhile.
    slots: Slots,
    mib: u64,
}

const AT_FIRST_MIB: u64 = 8;
/// In a turn, each by 1 MiB.
const GROWTHS: usize = 12;
const OUT: u32 = 1;
const IN: u32 = 0;
const OK: u8 = 0;
const IOERR: u8 = 1;

impl Growing {
    fn connect(socket: &Path) -> Self {
        let mut guest = Guest::connect(socket, FEATURES);
        let mut channel = guest.listen();
        guest.share_memory();
        let (ring, slots) = (guest.start(0), Slots::new(guest.start(1), SEED));
        // Who knows since when it has it?
        assert_told(&mut channel);
        Self { guest, channel, ring, slots, mib: AT_FIRST_MIB }
    }

    /// Reads or writes the sector at so many MiB.
    fn run(&mut self, kind: u32, mib: u64, byte: u8) -> (u8, [u8; 512]) {
        self.ring.submit(0, kind, mib * (MIB / 512), &[byte; 512]);
        assert_eq!(self.ring.finish(), [0]);
        (self.ring.status(0), self.ring.data(0))
    }

    /// What it does while the disk grows, without that.
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

    /// All that was written is there.
    fn finish(mut self) {
        self.slots.read_back();
        for mib in AT_FIRST_MIB..self.mib {
            assert_eq!(self.run(IN, mib, 0xff), (OK, [mib as u8; 512]), "what was new at {mib} MiB");
        }
    }
}

#[test]
fn a_disk_that_grows_harms_no_other_disk() {
    let priority = Priority::take();
    let (sharers, others) = ([1, 2, 3], [4, 5, 6]);
    let target = target_of(7, PATHS, 256 * MIB);
    (0..PATHS).for_each(|path| target.set(path, &format!("size=1:{AT_FIRST_MIB}MiB")));
    let daemon = start(|place| disks(place, &target, 0, &sharers, &others));
    serve_slowly(&target);
    let (sharing, apart) = (at_work(&daemon, &sharers), at_work(&daemon, &others));
    let mut growing = Growing::connect(&socket_of(&daemon.place, 0));
    let mut windows = Windows::default();
    for round in 0..ROUNDS {
        for _ in 0..TURNS {
            windows.alone(round, || growing.work(QUIET));
            windows.beside(round, || (0..GROWTHS).for_each(|_| growing.grow(&target)));
        }
    }
    growing.finish();
    windows.judge(&sharing.finish(), "disks that share its paths", "one that grows", priority.is_permitted());
    windows.judge(&apart.finish(), "disks of the same daemon", "one that grows", priority.is_permitted());
    lost_no_path(&daemon);
}

/// A guest that moves, and what it is doing on two virtqueues.
struct Moving {
    guest: Guest,
    queues: [Slots; 2],
}

/// While the dirty log is on.
const BATCHES: usize = 6;

impl Moving {
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

    /// Moves to the disk at another socket, with requests in flight when the dirty log comes and when the virtqueues are stopped. How long
    /// it stands still.
    fn move_to(&mut self, socket: &Path) -> Duration {
        let Self { guest, queues } = self;
        for queue in queues.iter_mut() {
            queue.submit(DEPTH);
        }
        let log = guest.set_log(Guest::LOG_BYTES, Guest::LOG_BYTES).unwrap();
        guest.set_features(FEATURES | LOG_ALL);
        (0..queues.len()).for_each(|index| guest.set_addresses(index, true));
        // What was written before is in the copy, and what the driver writes itself from now on. All else has to be marked.
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
        let marked = Guest::take_marked(&log);
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
        // The first daemon is left now.
        *guest = arrived;
        begun.elapsed()
    }
}

#[test]
fn a_disk_that_is_migrated_harms_no_other_disk_of_either_daemon() {
    let priority = Priority::take();
    let (sharers, others) = ([[1, 2], [5, 6]], [[3, 4], [7, 8]]);
    let target = target_of(9, PATHS, MIB);
    let daemons = [0, 1].map(|daemon| start(|place| disks(place, &target, 0, &sharers[daemon], &others[daemon])));
    serve_slowly(&target);
    let sharing = [0, 1].map(|daemon| at_work(&daemons[daemon], &sharers[daemon]));
    let apart = [0, 1].map(|daemon| at_work(&daemons[daemon], &others[daemon]));
    let [first, second] = daemons.each_ref().map(|daemon| socket_of(&daemon.place, 0));
    let mut moving = Moving::connect(&first);
    let (mut windows, mut longest) = (Windows::default(), Duration::ZERO);
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
        windows.judge(&requests.finish(), whom, "one that is migrated", priority.is_permitted());
    }
    daemons.iter().for_each(lost_no_path);
}

/// Guests of a daemon that is replaced. Their front-ends keep what is in flight, and connect again when they are hung up on.
struct Replaced {
    stop: Arc<AtomicBool>,
    /// How often one of them was served again.
    back: Arc<AtomicUsize>,
    guests: Vec<JoinHandle<(Vec<Took>, Vec<Duration>)>>,
}

/// Of one guest.
const IN_FLIGHT: u16 = 2;
/// The longest that a guest is without an answer when its daemon is replaced: what the end of a daemon leaves requests in flight is a
/// second, and the next one takes a moment to connect its paths.
const WITHOUT_SERVICE: Duration = Duration::from_secs(5);

impl Replaced {
    fn start(sockets: impl Iterator<Item = PathBuf>) -> Self {
        let (stop, back) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let guests = sockets.zip(SEED..).map(|(socket, seed)| {
            println!("{}: seed {seed}", socket.display());
            let (stop, back) = (Arc::clone(&stop), Arc::clone(&back));
            thread::spawn(move || be_replaced(&socket, seed, &stop, &back))
        });
        Self { guests: guests.collect(), stop, back }
    }

    /// Waits until all are served again, for the n-th time.
    fn are_back(&self, times: usize) {
        eventually("all are served again", || self.back.load(Ordering::Relaxed) == times * self.guests.len());
    }

    /// Has all of them read everything once more; what they did before that, and how long each was without service each time.
    fn finish(mut self) -> (Vec<Took>, Vec<Duration>) {
        self.stop.store(true, Ordering::Relaxed);
        let (requests, pauses): (Vec<_>, Vec<_>) = self.guests.drain(..).map(|guest| guest.join().unwrap()).unzip();
        (requests.concat(), pauses.concat())
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Waits for a call of the queue, or until the daemon hangs up: whether it did not.
fn is_called(guest: &Guest, ring: &Ring) -> bool {
    // SAFETY: both descriptors are borrowed for this call only, and what they are of lives for longer.
    let fds = [ring.call.as_raw_fd(), guest.frontend.as_raw_fd()].map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let mut events = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    assert_ne!(poll(&mut events, Some(&PATIENCE.try_into().unwrap())).unwrap(), 0, "neither an answer nor the end");
    if !events[0].revents().is_empty() {
        ring.call.read().unwrap();
    }
    events[1].revents().is_empty()
}

/// What such a guest does: the requests that were not in flight when it was hung up on, and how long it was without service each time.
fn be_replaced(socket: &Path, seed: u64, stop: &AtomicBool, back: &AtomicUsize) -> (Vec<Took>, Vec<Duration>) {
    let mut guest = Guest::connect(socket, FEATURES);
    guest.share_memory();
    let inflight = guest.get_inflight();
    guest.set_inflight(&inflight);
    let mut slots = Slots::new(guest.start(0), seed);
    let (mut requests, mut pauses) = (Vec::new(), Vec::new());
    let (mut since, mut answered_last, mut is_awaited) = (Instant::now(), Instant::now(), false);
    while !stop.load(Ordering::Relaxed) {
        slots.submit(IN_FLIGHT);
        let is_connected = is_called(&guest, &slots.ring);
        let answered = slots.reap();
        // What the daemon before still answers is no service.
        let fresh = answered.iter().find(|took| took.begun >= since).map(|took| took.ended);
        if let Some(ended) = fresh {
            if std::mem::take(&mut is_awaited) {
                pauses.push(ended - answered_last);
                back.fetch_add(1, Ordering::Relaxed);
            }
            answered_last = ended;
        }
        requests.extend(answered.into_iter().filter(|took| took.begun >= since));
        if !is_connected {
            // As a QEMU does, which looks at this moment how far it has come.
            let position = slots.ring.position();
            guest.reconnect(UnixStream::connect(socket).unwrap(), FEATURES);
            guest.set_inflight(&inflight);
            guest.restart(&slots.ring, position);
            (since, is_awaited) = (Instant::now(), true);
        }
    }
    slots.read_back();
    assert_eq!(guest.frontend.get_vring_base(0).unwrap(), slots.ring.position());
    (requests, pauses)
}

/// What is in flight of a daemon that works is answered after that.
const ANSWERED: Duration = Duration::from_millis(50);
/// After all are served again.
const AFTERMATH: Duration = Duration::from_millis(60);

/// A daemon whose process is there, but which does not begin before it is told to: a process that is started holds up all threads of
/// the one that starts it, and the guests are threads of this one.
struct Next {
    daemon: Daemon,
    begin: PathBuf,
}

impl Next {
    fn spawn(place: Place, command: &Command, listeners: &[&UnixListener]) -> Self {
        let begin = place.file("begin");
        mknodat(CWD, &begin, FileType::Fifo, Mode::RWXU, 0).unwrap();
        Self { daemon: place.spawn(activated(&held_back(command, &begin), listeners)), begin }
    }

    fn begin(self) -> Daemon {
        // Without a reader, which that process is once it waits, there is an error.
        let begin = || File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&self.begin).is_ok();
        eventually("its process waits", begin);
        self.daemon
    }

    /// Begins on the sockets of a daemon, waits for it, and has it end.
    fn replace(self, first: Daemon) -> Daemon {
        let next = self.begin();
        eventually("it waits for the first one's end", || next.log().contains("waiting 10s at most"));
        let (ended, _) = first.end(Signal::TERM);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        assert!(!ended.log.contains("whose fate is not known") && !ended.log.contains("panicked"), "{}", ended.log);
        next.ready()
    }
}

#[test]
fn a_daemon_that_is_replaced_harms_no_disk_of_another_and_serves_its_own_as_before() {
    let priority = Priority::take();
    let (own, of_another) = ([0, 1, 2, 3], [4, 5, 6, 7]);
    let (target, sockets) = (target_of(8, PATHS, MIB), Place::new());
    let listeners = own.map(|number| UnixListener::bind(socket_of(&sockets, number)).unwrap());
    let spawn = || {
        let place = Place::new();
        let command = place.configured(disks(&sockets, &target, 0, &[1], &[2, 3]));
        Next::spawn(place, &command, &listeners.each_ref())
    };
    let mut daemon = spawn().begin().ready();
    let another = start(|place| disks(place, &target, 4, &[5], &[6, 7]));
    // What a process takes to begin, the disks would miss.
    priority.stay_behind();
    let mut next: Vec<_> = iter::repeat_with(spawn).take(ROUNDS * TURNS).collect();
    priority.go_first();
    serve_slowly(&target);
    let beside = at_work(&another, &of_another);
    let replaced = Replaced::start(own.iter().map(|&number| socket_of(&sockets, number)));
    priority.stay_behind();
    let (mut of_own, mut of_another) = (Windows::default(), Windows::default());
    for round in 0..ROUNDS {
        of_own.alone(round, || of_another.alone(round, || thread::sleep(QUIET * TURNS as u32)));
        for turn in 0..TURNS {
            daemon = of_another.beside(round, || {
                let next = next.pop().unwrap().replace(daemon);
                replaced.are_back(round * TURNS + turn + 1);
                // What it leaves others to do is part of it.
                thread::sleep(AFTERMATH);
                next
            });
            of_own.beside(round, || thread::sleep(QUIET));
            // What is in flight at the end is judged too, and not by the next one's beginning.
            thread::sleep(ANSWERED);
        }
    }
    let (requests, mut pauses) = replaced.finish();
    pauses.sort_unstable();
    let (median, longest) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
    println!("without service for {median:?}, {longest:?} at most, of {}", pauses.len());
    assert!(longest < WITHOUT_SERVICE, "a disk was without service for {longest:?}");
    of_own.judge(&requests, "disks of a daemon that was replaced", "the end of it", priority.is_permitted());
    of_another.judge(&beside.finish(), "disks of another daemon", "one that is replaced", priority.is_permitted());
    lost_no_path(&another);
    lost_no_path(&daemon);
}
