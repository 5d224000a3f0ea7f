//! Starts an I/O thread, and tells what the thread and this host do.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use monotonic::{Duration, Instant};
use mpath_core::HostStats;
use sandbox::{RestrictError, ThreadKind, restrict_thread};

use crate::event_loop::EventLoop;
use crate::interrupt_timer::InterruptTimer;
use crate::polling::{PolledTime, Polling};
use crate::processor_times::{ProcessorMeter, ProcessorTimes, Schedstat};
use crate::ring::{RingError, Uring};
use crate::runnable::Runnable;
use crate::thread_message::ThreadMessage;
use crate::wake_channel::{self, WakeReceiver, WakeSender};

/// Why an I/O thread cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The ring cannot be set up.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The thread, its eventfd or its timer cannot be created.
    #[error("cannot start an I/O thread: {0}")]
    Thread(#[from] io::Error),
    /// The thread cannot be restricted to its system calls.
    #[error("cannot restrict an I/O thread: {0}")]
    Restrict(#[from] RestrictError),
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// A running I/O thread.
pub struct IoThreadControl {
    /// Its number, from 0.
    number: u16,
    inbox: WakeSender<ThreadMessage>,
    polled: Arc<PolledTime>,
    schedstat: Arc<Schedstat>,
    /// Which places have a path set.
    places: Mutex<Vec<bool>>,
}

impl IoThreadControl {
    /// Starts the thread, and returns when its ring is set up and the thread is restricted. So a resource limit is
    /// reported here and not under load.
    pub(crate) fn start(number: u16) -> Result<Self, StartError> {
        let (inbox, receiver) = wake_channel::wake_channel()?;
        let (ready, started) = mpsc::sync_channel(1);
        let polled = Arc::<PolledTime>::default();
        let of_thread = Arc::clone(&polled);
        std::thread::Builder::new().name(format!("io{number}")).spawn(move || {
            // Unwinding would unmap guest memory that the kernel still writes to, and leave guests waiting for ever.
            let _guard = AbortOnUnwind;
            match set_up(receiver, of_thread) {
                Ok((event_loop, schedstat)) => {
                    drop(ready.send(Ok(schedstat)));
                    event_loop.run();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        match started.recv() {
            Ok(Ok(schedstat)) => Ok(Self { number, inbox, polled, schedstat, places: Mutex::default() }),
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => Err(StartError::Thread(io::Error::other("the thread ended while starting"))),
        }
    }

    /// The number of the thread, from 0.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The time that the thread has polled since its start.
    #[must_use]
    pub fn polled(&self) -> Duration {
        self.polled.get()
    }

    /// The processor time of the thread; `None` if the kernel does not count it, or the thread has ended.
    #[must_use]
    pub fn processor_times(&self) -> Option<ProcessorTimes> {
        self.schedstat.read()
    }

    /// Calls `reply` from the I/O thread with what this host has cost. Never calls it if the thread has ended.
    pub fn host_stats(&self, reply: Box<dyn FnOnce(HostStats) + Send>) {
        let _ = self.send(ThreadMessage::Host(reply));
    }

    pub(crate) fn send(&self, message: ThreadMessage) -> Result<(), ThreadMessage> {
        self.inbox.send(message)
    }

    /// Takes a free place for a path set.
    pub(crate) fn take_place(&self) -> u16 {
        let mut places = self.places();
        let free = places.iter().position(|is_taken| !is_taken).unwrap_or(places.len());
        if free == places.len() {
            places.push(false);
        }
        places[free] = true;
        u16::try_from(free).expect("a daemon has fewer path sets")
    }

    /// The path set in this place has ended.
    pub(crate) fn free_place(&self, place: u16) {
        self.places()[usize::from(place)] = false;
    }

    /// The number of path sets.
    pub(crate) fn path_sets(&self) -> usize {
        self.places().iter().filter(|is_taken| **is_taken).count()
    }

    fn places(&self) -> MutexGuard<'_, Vec<bool>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that an I/O thread needs of this host. To be called in the thread.
fn set_up(
    inbox: WakeReceiver<ThreadMessage>,
    polled: Arc<PolledTime>,
) -> Result<(EventLoop, Arc<Schedstat>), StartError> {
    // The thread that uses the ring must create it (IORING_SETUP_SINGLE_ISSUER).
    let ring = Uring::new()?;
    let runnable = Runnable::open();
    if let Err(error) = &runnable {
        tracing::warn!(%error, "cannot count the runnable threads of the host (/proc/loadavg); an I/O thread does not poll");
    }
    let schedstat = Arc::new(Schedstat::of_this_thread());
    let meter = ProcessorMeter::new(Instant::now(), Arc::clone(&schedstat));
    let interrupts = InterruptTimer::of_this_thread()?;
    let event_loop = EventLoop::new(ring, inbox, Polling::new(polled), runnable.ok(), meter, interrupts)?;
    restrict_thread(ThreadKind::Io)?;
    Ok((event_loop, schedstat))
}

/// Starts a thread with all that an I/O thread needs of this host, and ends it.
///
/// A system call filter of the unit may not return an error, but end the process with SIGSYS.
pub fn rehearse_start() -> Result<(), StartError> {
    let thread = std::thread::Builder::new().name("rehearsal".into()).spawn(|| {
        let _ring = Uring::new()?;
        let _interrupts = InterruptTimer::of_this_thread()?;
        Ok(restrict_thread(ThreadKind::Io)?)
    })?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread has panicked").into()))
}
