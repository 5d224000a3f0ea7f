//! A daemon that is replaced while guests work on its disks and on those of another daemon.
//!
//! The disks of the other daemon must not notice. Those of the replaced daemon are compared with the time at rest once
//! the next daemon has settled. The median of their times without service is bounded.

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

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use vhost::VhostBackend;

use crate::disk_isolation::{
    FEATURES, MIB, PATHS, QUIET, SEED, TURNS, at_work, disks, lost_no_path, serve_slowly, start,
};
use crate::guest::{Guest, Ring};
use crate::support::{
    Daemon, DaemonDirectory, PATIENCE, Periods, Priority, ROUNDS, RequestTime, Slots, activated, eventually, socket_of,
    started_by_fifo, target_of,
};

/// Guests of a daemon that is replaced. Their front-ends keep the in-flight log and reconnect when they are hung up
/// on.
pub(crate) struct ReplacedGuests {
    stop: Arc<AtomicBool>,
    /// How often one of them was served again.
    back: Arc<AtomicUsize>,
    guests: Vec<JoinHandle<(Vec<RequestTime>, Vec<Duration>)>>,
}

/// Requests in flight of one guest.
const IN_FLIGHT: u16 = 2;
/// A bound of the usual time without an answer when a daemon is replaced. The daemon drains for one second at its end, and
/// the next daemon needs a moment to connect.
const WITHOUT_SERVICE: Duration = Duration::from_secs(5);

impl ReplacedGuests {
    pub(crate) fn start(sockets: impl Iterator<Item = PathBuf>) -> Self {
        let (stop, back) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let guests = sockets.zip(SEED..).map(|(socket, seed)| {
            println!("{}: seed {seed}", socket.display());
            let (stop, back) = (Arc::clone(&stop), Arc::clone(&back));
            thread::spawn(move || be_replaced(&socket, seed, &stop, &back))
        });
        Self { guests: guests.collect(), stop, back }
    }

    /// Waits until all are served again for the n-th time.
    pub(crate) fn are_back(&self, times: usize) {
        eventually("all are served again", || self.back.load(Ordering::Relaxed) == times * self.guests.len());
    }

    /// Has all guests read everything again. Returns their earlier requests, and the time that each was without
    /// service, for each replacement.
    pub(crate) fn finish(mut self) -> (Vec<RequestTime>, Vec<Duration>) {
        self.stop.store(true, Ordering::Relaxed);
        let (requests, pauses): (Vec<_>, Vec<_>) = self.guests.drain(..).map(|guest| guest.join().unwrap()).unzip();
        (requests.concat(), pauses.concat())
    }
}

impl Drop for ReplacedGuests {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Waits for a call of the queue, or until the daemon hangs up. Returns whether it was a call.
fn is_called(guest: &Guest, ring: &Ring) -> bool {
    // SAFETY: both descriptors are borrowed for this call only, and their owners live longer.
    let fds = [ring.call.as_raw_fd(), guest.frontend.as_raw_fd()].map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let mut events = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    assert_ne!(poll(&mut events, Some(&PATIENCE.try_into().unwrap())).unwrap(), 0, "neither an answer nor the end");
    if !events[0].revents().is_empty() {
        ring.call.read().unwrap();
    }
    events[1].revents().is_empty()
}

/// The work of a guest whose daemon is replaced. Returns the requests that were not in flight when the daemon hung up,
/// and the times without service.
fn be_replaced(socket: &Path, seed: u64, stop: &AtomicBool, back: &AtomicUsize) -> (Vec<RequestTime>, Vec<Duration>) {
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
        // Late answers of the earlier daemon are no service.
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
            // QEMU also reads the used index at this moment.
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

/// A working daemon answers what is in flight within this time.
const ANSWERED: Duration = Duration::from_millis(50);
/// How long a replacement counts as a disturbance after all guests are served again.
const AFTERMATH: Duration = Duration::from_millis(60);

/// A daemon whose process exists, but which starts only when told to. Starting a process holds up all threads of the
/// parent, and the guests are threads of this process.
struct NextDaemon {
    daemon: Daemon,
    begin: PathBuf,
}

impl NextDaemon {
    fn spawn(place: DaemonDirectory, command: &Command, listeners: &[&UnixListener]) -> Self {
        let begin = place.file("begin");
        mknodat(CWD, &begin, FileType::Fifo, Mode::RWXU, 0).unwrap();
        Self { daemon: place.spawn(activated(&started_by_fifo(command, &begin), listeners)), begin }
    }

    fn begin(self) -> Daemon {
        // Without a reader, which the process is once it waits, opening fails.
        let begin = || File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&self.begin).is_ok();
        eventually("its process waits", begin);
        self.daemon
    }

    /// Starts on the sockets of a daemon, waits for it, and ends it.
    fn replace(self, first: Daemon) -> Daemon {
        let next = self.begin();
        eventually("it waits for the first one's end", || next.log().contains("waiting at most 10s"));
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
    let (target, sockets) = (target_of(8, PATHS, MIB), DaemonDirectory::new());
    let listeners = own.map(|number| UnixListener::bind(socket_of(&sockets, number)).unwrap());
    let spawn = || {
        let place = DaemonDirectory::new();
        let command = place.configured(disks(&sockets, &target, 0, &[1], &[2, 3]));
        NextDaemon::spawn(place, &command, &listeners.each_ref())
    };
    let mut daemon = spawn().begin().ready();
    let another = start(|place| disks(place, &target, 4, &[5], &[6, 7]));
    // The start of a process would count as time without service.
    priority.stay_behind();
    let mut next: Vec<_> = iter::repeat_with(spawn).take(ROUNDS * TURNS).collect();
    priority.go_first();
    serve_slowly(&target);
    let beside = at_work(&another, &of_another);
    let replaced = ReplacedGuests::start(own.iter().map(|&number| socket_of(&sockets, number)));
    priority.stay_behind();
    let (mut of_own, mut of_another) = (Periods::default(), Periods::default());
    for round in 0..ROUNDS {
        of_own.alone(round, || of_another.alone(round, || thread::sleep(QUIET * TURNS as u32)));
        for turn in 0..TURNS {
            daemon = of_another.beside(round, || {
                let next = next.pop().unwrap().replace(daemon);
                replaced.are_back(round * TURNS + turn + 1);
                // The disturbance includes work that the replacement leaves to other threads and processes.
                thread::sleep(AFTERMATH);
                next
            });
            of_own.beside(round, || thread::sleep(QUIET));
            // Requests in flight at the end are judged too, but not by the start of the next daemon.
            thread::sleep(ANSWERED);
        }
    }
    let (requests, mut pauses) = replaced.finish();
    pauses.sort_unstable();
    let (median, longest) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
    println!("without service for {median:?}, {longest:?} at most, of {}", pauses.len());
    // The longest has no bound, because the machine may have stood still.
    assert!(median < WITHOUT_SERVICE, "most disks were without service for {median:?}");
    of_own.judge(&requests, "disks of a daemon that was replaced", "the end of the removal");
    of_another.judge(&beside.finish(), "disks of another daemon", "one that is replaced");
    lost_no_path(&another);
    lost_no_path(&daemon);
}
