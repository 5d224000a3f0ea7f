//! Decides: an I/O thread sleeps or polls in this turn.
//!
//! The loop of an I/O thread: it waits for the kernel, and passes events and the time to [`IoThread`].

use std::hint::spin_loop;
use std::io;
use std::os::fd::AsFd;

use monotonic::{Duration, Instant};
use mpath_core::{Stall, Waking};

use crate::IoThreadMessage;
use crate::io_thread::IoThread;
use crate::polling::Polling;
use crate::processor_times::ProcessorMeter;
use crate::ring::{Event, Ring, Uring};
use crate::ring_token::RingToken;
use crate::runnable::Runnable;
use crate::wake_channel::WakeReceiver;

/// While a thread is busy, a turn comes at least this often. A thread that is woken later knows that it did not run.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A thread is busy for this long after it had an open request. So a disk in use is watched, and the thread of a quiet one sleeps.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// Polling, processor time and stalls of one thread.
pub(crate) struct Processors {
    /// What decides about polling; `None`: the thread always sleeps.
    pub(crate) polling: Option<(Polling, Runnable)>,
    /// When the idle time began, in which the thread has looked at the time.
    pub(crate) idle_since: Option<Instant>,
    pub(crate) meter: ProcessorMeter,
    /// Called with each stall of the thread. It must not block.
    pub(crate) stalled: Box<dyn Fn(Stall) + Send>,
}

/// Runs until [`IoThreadMessage::End`] has been carried out. Returns whether writes that were given up may still
/// be executed.
pub(crate) fn run(
    mut thread: IoThread<Uring>,
    inbox: &WakeReceiver<IoThreadMessage>,
    mut processors: Processors,
) -> bool {
    let mut events = Vec::with_capacity(256);
    while !thread.is_over() {
        if let Err(error) = turn(&mut thread, inbox, &mut processors, &mut events) {
            // No single operation fails like this, so the ring itself is unusable. Without it, the thread's guests
            // would wait for ever.
            panic!("io_uring failed under load: {error}");
        }
    }
    thread.has_writes_in_doubt()
}

/// Makes the ring report messages in the inbox.
pub(crate) fn watch(ring: &mut Uring, inbox: &WakeReceiver<IoThreadMessage>) -> io::Result<()> {
    ring.watch(inbox.as_fd(), RingToken::Inbox.encode())
}

fn turn(
    thread: &mut IoThread<Uring>,
    inbox: &WakeReceiver<IoThreadMessage>,
    processors: &mut Processors,
    events: &mut Vec<Event>,
) -> io::Result<()> {
    let begun = Instant::now();
    let timeout = due(thread, begun);
    let now = match &mut processors.polling {
        _ if timeout.is_some_and(|timeout| timeout <= begun) => {
            // No idle time: the thread neither polls nor sleeps.
            processors.idle_since = None;
            thread.ring().turn(Some(Duration::ZERO), events)?;
            begun
        }
        Some((polling, runnable)) => {
            let poll_time = polling.begin_idle(begun, || runnable.exceed_processors());
            let now = wait(thread, begun, timeout, poll_time, events)?;
            let is_watch =
                events.is_empty() && !thread.has_requests() && thread.next_timeout().is_none_or(|at| now < at);
            let since = processors.idle_since.take().unwrap_or(begun);
            if is_watch {
                // The thread is still idle: it has only looked at the time.
                processors.idle_since = Some(since);
            } else {
                polling.end_idle(now, now - since, thread.finished());
            }
            now
        }
        None => wait(thread, begun, timeout, Duration::ZERO, events)?,
    };
    let times = processors.meter.since_last(now);
    let (processor_wait, processor_time) = (times.waited, times.ran);
    let waking = Waking { idle_since: begun, due: timeout, processor_wait, processor_time };
    if let Some(stall) = thread.begin_turn(now, waking) {
        (processors.stalled)(stall);
    }
    for event in events.drain(..) {
        if RingToken::decode(event.token) != RingToken::Inbox {
            thread.on_event(now, event)?;
            continue;
        }
        if !event.more {
            watch(thread.ring(), inbox)?;
        }
        inbox.clear();
        while let Some(message) = inbox.try_recv() {
            thread.handle(now, message)?;
        }
    }
    thread.finish_turn(now)
}

/// When the next turn has to come, even without an event.
fn due(thread: &IoThread<Uring>, now: Instant) -> Option<Instant> {
    let look_at = thread.busy_at().filter(|at| now - *at < BUSY_FOR).map(|_| now + LOOK_EVERY);
    thread.next_timeout().into_iter().chain(look_at).min()
}

/// Waits for events or requests: at first by polling, for at most `poll_time`, and then asleep. Returns the time.
fn wait(
    thread: &mut IoThread<Uring>,
    begun: Instant,
    timeout: Option<Instant>,
    poll_time: Duration,
    events: &mut Vec<Event>,
) -> io::Result<Instant> {
    let poll_until = timeout.map_or(begun + poll_time, |timeout| timeout.min(begun + poll_time));
    let mut now = begun;
    if now < poll_until {
        thread.start_polling();
    }
    while now < poll_until {
        if thread.ring().has_work() {
            thread.ring().turn(Some(Duration::ZERO), events)?;
        }
        let has_found = !events.is_empty() || thread.has_requests();
        now = Instant::now();
        if has_found {
            return Ok(now);
        }
        spin_loop();
    }
    if thread.stop_polling() {
        return Ok(now);
    }
    thread.ring().turn(timeout.map(|at| at.saturating_duration_since(now)), events)?;
    Ok(Instant::now())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use mpath_core::{Group, GroupConfig, SharedDisk};

    use super::*;
    use crate::DiskQueues;
    use crate::testing::{DISK, FLOW, Guest};

    /// A thread without a path, and the guest of its virtqueue.
    fn thread() -> (IoThread<Uring>, Guest) {
        let now = Instant::now();
        let group = Group::new(now, GroupConfig::default(), &[SharedDisk::default()]);
        let mut io = IoThread::new(Uring::new().unwrap(), group, Box::new(drop));
        let queues = std::sync::Arc::new(DiskQueues::new(0, now));
        let added = IoThreadMessage::AddDisk { disk: DISK, name: "disk".into(), block_size_bytes: 4096, queues };
        io.handle(now, added).unwrap();
        let guest = Guest::new();
        let queue = Box::new(guest.queue());
        io.handle(now, IoThreadMessage::StartQueue { disk: DISK, flow: FLOW, queue }).unwrap();
        (io, guest)
    }

    /// So the thread knows that it was woken late.
    #[test]
    fn a_turn_comes_soon_while_a_thread_is_busy() {
        let (mut io, mut guest) = thread();
        let now = Instant::now();
        assert_eq!(due(&io, now), None);
        guest.write(0, 4096);
        io.finish_turn(now).unwrap();
        for since in [0, 1, 999, 1000] {
            let later = now + Duration::from_millis(since);
            assert_eq!(due(&io, later), (since < 1000).then(|| later + LOOK_EVERY));
        }
    }

    /// If the guest had to kick, the ring would report an event.
    #[test]
    fn the_loop_finds_requests_without_a_kick() {
        let (mut io, mut guest) = thread();
        io.start_polling();
        io.finish_turn(Instant::now()).unwrap();
        let mut events = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20).into());
                guest.write(0, 4096);
                // Without this, a loop that sleeps would never end.
                thread::sleep(Duration::from_secs(2).into());
                guest.kick();
            });
            wait(&mut io, Instant::now(), None, Duration::from_secs(10), &mut events).unwrap();
            assert!(io.has_requests() && events.is_empty());
        });
    }
}
