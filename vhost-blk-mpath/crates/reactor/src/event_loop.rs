//! Decides: an I/O thread sleeps or polls in this turn.
//!
//! The loop of an I/O thread. It waits for the kernel, and passes events and the time to the path sets that they concern. A path set
//! without an event, a message or a timeout takes no part in a turn, so quiet disks cost nothing.

use std::cell::RefCell;
use std::hint::spin_loop;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use monotonic::{Duration, Instant};
use mpath_core::{Stall, TurnWatch, Waking};

use crate::interrupt_timer::InterruptTimer;
use crate::io_thread::IoThread;
use crate::polling::Polling;
use crate::processor_times::ProcessorMeter;
use crate::ring::{Event, Ring, SharedRing, Uring};
use crate::ring_token::{Generation, ThreadToken};
use crate::runnable::Runnable;
use crate::thread_message::{PathSetConfig, SetId, ThreadMessage};
use crate::wake_channel::WakeReceiver;

/// While a thread is busy, a turn comes at least this often. A thread that is woken later knows that it did not run. Path sets with open
/// requests take part in such a turn.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A thread is busy for this long after it had an open request. So a disk in use is watched, and the thread of quiet ones sleeps.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// A path set in the thread.
struct Member {
    /// See [`SetId::number`].
    number: u64,
    set: IoThread<SharedRing>,
    /// The longest time to poll for it.
    poll_limit: Duration,
    /// Whether it had requests since the poll limit of the thread was updated.
    is_used: bool,
    /// When its next turn is due, even without an event.
    due: Option<Instant>,
    /// Whether it takes part in this turn.
    takes_part: bool,
    has_ended: Arc<AtomicBool>,
    ended: Box<dyn FnOnce(bool) + Send>,
}

/// The place of a path set, which tokens name.
#[derive(Default)]
struct Place {
    member: Option<Member>,
    /// That of the last virtqueue of an earlier path set here.
    generation: Generation,
}

/// An I/O thread: one ring, and the path sets that use it.
pub(crate) struct EventLoop {
    ring: Rc<RefCell<Uring>>,
    inbox: WakeReceiver<ThreadMessage>,
    places: Vec<Place>,
    members: usize,
    /// The places of the path sets that take part in this turn.
    taking_part: Vec<u16>,
    /// No turn of any path set is due earlier.
    due: Option<Instant>,
    /// The last turn with open requests at its end.
    busy_at: Option<Instant>,
    /// The last turn in which all path sets with open requests took part.
    looked_at: Instant,
    is_ending: bool,
    polling: Polling,
    /// `None`: the thread cannot know whether others wait for a processor, and never polls.
    runnable: Option<Runnable>,
    /// Whether guests need not kick.
    is_polling: bool,
    /// When the idle time began, in which the thread has looked at the time.
    idle_since: Option<Instant>,
    /// Requests finished since the start.
    finished: u64,
    meter: ProcessorMeter,
    watch: TurnWatch,
    /// Armed in each turn, and while a busy thread sleeps.
    interrupts: InterruptTimer,
    /// Called with each stall of the thread.
    stalled: Box<dyn Fn(Stall) + Send>,
}

impl EventLoop {
    /// The loop of the calling thread.
    pub(crate) fn new(
        ring: Uring,
        inbox: WakeReceiver<ThreadMessage>,
        polling: Polling,
        runnable: Option<Runnable>,
        meter: ProcessorMeter,
        interrupts: InterruptTimer,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let thread = Self {
            ring: Rc::new(RefCell::new(ring)),
            inbox,
            places: Vec::new(),
            members: 0,
            taking_part: Vec::new(),
            due: None,
            busy_at: None,
            looked_at: now,
            is_ending: false,
            polling,
            runnable,
            is_polling: false,
            idle_since: None,
            finished: 0,
            meter,
            watch: TurnWatch::new(now),
            interrupts,
            stalled: Box::new(drop),
        };
        thread.watch_inbox()?;
        Ok(thread)
    }

    /// Runs until [`ThreadMessage::End`] has come and all path sets have ended.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        while !self.is_ending || self.members > 0 {
            if let Err(error) = self.turn(&mut events) {
                // No single operation fails like this, so the ring itself is unusable. Without it, the thread's guests
                // would wait for ever.
                panic!("io_uring failed under load: {error}");
            }
        }
    }

    /// Makes the ring report messages in the inbox.
    fn watch_inbox(&self) -> io::Result<()> {
        self.ring.borrow_mut().watch(self.inbox.as_fd(), ThreadToken::Inbox.encode())
    }

    fn turn(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let begun = Instant::now();
        let due = self.turn_due(begun);
        if !self.is_busy(begun) {
            self.interrupts.arm(false);
        }
        let now = self.wait_for_events(begun, due, events)?;
        self.interrupts.arm(true);
        let times = self.meter.since_last(now);
        let (processor_wait, processor_time) = (times.waited, times.ran);
        let waking = Waking { idle_since: begun, due, processor_wait, processor_time };
        if let Some(standstill) = self.watch.begin_turn(now, waking) {
            self.members_mut().for_each(|member| member.set.stood_still(&standstill));
            standstill.stall().into_iter().for_each(&self.stalled);
        }
        self.carry_out(now, events)
    }

    /// The turn after the wait.
    fn carry_out(&mut self, now: Instant, events: &mut Vec<Event>) -> io::Result<()> {
        self.begin_due(now);
        for event in events.drain(..) {
            match ThreadToken::decode(event.token) {
                ThreadToken::Inbox => self.take_messages(now, event)?,
                ThreadToken::Set { set, token } => {
                    // The last events of a path set may come after its end.
                    if let Some(member) = self.take_part(set) {
                        member.set.on_event(now, Event { token, ..event })?;
                    }
                }
            }
        }
        if self.is_polling {
            self.begin_polled();
        }
        self.finish_turn(now)
    }

    /// Whether the thread had an open request lately.
    fn is_busy(&self, now: Instant) -> bool {
        self.busy_at.is_some_and(|at| now - at < BUSY_FOR)
    }

    /// When the next turn has to come, even without an event.
    fn turn_due(&self, now: Instant) -> Option<Instant> {
        let look_at = self.is_busy(now).then(|| now + LOOK_EVERY);
        self.due.into_iter().chain(look_at).min()
    }

    /// Waits for events or requests, by polling or asleep. Returns the time.
    fn wait_for_events(
        &mut self,
        begun: Instant,
        due: Option<Instant>,
        events: &mut Vec<Event>,
    ) -> io::Result<Instant> {
        if due.is_some_and(|due| due <= begun) {
            // No idle time: the thread neither polls nor sleeps.
            self.idle_since = None;
            self.ring.borrow_mut().turn(Some(Duration::ZERO), events)?;
            return Ok(begun);
        }
        let Some(runnable) = self.runnable.as_ref().filter(|_| self.polling.is_allowed()) else {
            return self.wait(begun, due, Duration::ZERO, events);
        };
        let poll_time = self.polling.begin_idle(begun, || runnable.exceed_processors());
        let now = self.wait(begun, due, poll_time, events)?;
        let is_watch = events.is_empty() && !self.has_requests() && self.due.is_none_or(|at| now < at);
        let since = self.idle_since.take().unwrap_or(begun);
        if is_watch {
            // The thread is still idle: it has only looked at the time.
            self.idle_since = Some(since);
        } else {
            self.polling.end_idle(now, now - since, self.finished);
        }
        Ok(now)
    }

    /// Waits: at first by polling, for at most `poll_time`, and then asleep.
    fn wait(
        &mut self,
        begun: Instant,
        due: Option<Instant>,
        poll_time: Duration,
        events: &mut Vec<Event>,
    ) -> io::Result<Instant> {
        let poll_until = due.map_or(begun + poll_time, |due| due.min(begun + poll_time));
        let mut now = begun;
        if now < poll_until && !self.is_polling {
            self.start_polling();
        }
        while now < poll_until {
            let mut ring = self.ring.borrow_mut();
            if ring.has_work() {
                ring.turn(Some(Duration::ZERO), events)?;
            }
            drop(ring);
            let has_found = !events.is_empty() || self.has_requests();
            now = Instant::now();
            if has_found {
                return Ok(now);
            }
            spin_loop();
        }
        if std::mem::take(&mut self.is_polling) {
            let mut must_not_sleep = false;
            for place in 0..self.places.len() as u16 {
                if self.member_mut(place).is_some_and(|member| member.set.stop_polling()) {
                    self.take_part(place);
                    must_not_sleep = true;
                }
            }
            if must_not_sleep {
                return Ok(now);
            }
        }
        self.ring.borrow_mut().turn(due.map(|at| at.saturating_duration_since(now)), events)?;
        Ok(Instant::now())
    }

    fn start_polling(&mut self) {
        self.is_polling = true;
        self.members_mut().for_each(|member| member.set.start_polling());
    }

    fn has_requests(&self) -> bool {
        self.places.iter().filter_map(|place| place.member.as_ref()).any(|member| member.set.has_requests())
    }

    fn members_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.places.iter_mut().filter_map(|place| place.member.as_mut())
    }

    fn member_mut(&mut self, place: u16) -> Option<&mut Member> {
        self.places.get_mut(usize::from(place))?.member.as_mut()
    }

    /// Has the path set in this place take part in this turn.
    fn take_part(&mut self, place: u16) -> Option<&mut Member> {
        let member = self.places.get_mut(usize::from(place))?.member.as_mut()?;
        if !std::mem::replace(&mut member.takes_part, true) {
            self.taking_part.push(place);
            if self.is_polling {
                member.set.start_polling();
            }
        }
        Some(member)
    }

    /// Has path sets take part whose turns are due, or all with open requests after a while.
    fn begin_due(&mut self, now: Instant) {
        let looks = now - self.looked_at >= LOOK_EVERY;
        if !looks && self.due.is_none_or(|due| now < due) {
            return;
        }
        if looks {
            self.looked_at = now;
            self.update_poll_limit();
            self.members_mut().for_each(|member| member.is_used = member.set.is_busy());
        }
        for place in 0..self.places.len() as u16 {
            let is_due =
                |member: &mut Member| member.due.is_some_and(|due| due <= now) || looks && member.set.is_busy();
            if self.member_mut(place).is_some_and(is_due) {
                self.take_part(place);
            }
        }
        let of_others = self.members_mut().filter(|member| !member.takes_part).filter_map(|member| member.due);
        self.due = of_others.min();
    }

    /// Has path sets take part whose guests have queued requests without a kick.
    fn begin_polled(&mut self) {
        for place in 0..self.places.len() as u16 {
            if self.member_mut(place).is_some_and(|member| member.set.has_requests()) {
                self.take_part(place);
            }
        }
    }

    fn take_messages(&mut self, now: Instant, event: Event) -> io::Result<()> {
        if !event.more {
            self.watch_inbox()?;
        }
        self.inbox.clear();
        while let Some(message) = self.inbox.try_recv() {
            match message {
                ThreadMessage::Add { set, config } => self.add(set, *config),
                // A path set that has ended needs no message.
                ThreadMessage::ToSet { set, message } => {
                    if self.member_mut(set.place).is_some_and(|member| member.number == set.number)
                        && let Some(member) = self.take_part(set.place)
                    {
                        member.set.handle(now, message)?;
                    }
                }
                ThreadMessage::Host(reply) => reply(self.watch.stats().clone()),
                ThreadMessage::ReportStalls(stalled) => self.stalled = stalled,
                ThreadMessage::End => self.is_ending = true,
            }
        }
        Ok(())
    }

    fn add(&mut self, SetId { place, number }: SetId, config: PathSetConfig) {
        let index = usize::from(place);
        if index >= self.places.len() {
            self.places.resize_with(index + 1, Place::default);
        }
        let of_place = &mut self.places[index];
        let mut set = IoThread::new(SharedRing::new(&self.ring, place), config.part.group, config.part.report);
        set.continue_from(of_place.generation);
        let (poll_limit, has_ended, ended) = (config.part.poll_limit, config.has_ended, config.ended);
        let member = Member { number, set, poll_limit, is_used: true, due: None, takes_part: false, has_ended, ended };
        assert!(of_place.member.replace(member).is_none(), "a place is given to one path set at a time");
        self.members += 1;
        self.update_poll_limit();
        self.take_part(place);
    }

    /// Polls as long as one of the path sets wants that are in use.
    fn update_poll_limit(&mut self) {
        let used = self.members_mut().filter(|member| member.is_used);
        let longest = used.map(|member| member.poll_limit).max();
        self.polling.set_limit(longest.unwrap_or_default());
    }

    /// Ends the turn of all path sets that take part.
    fn finish_turn(&mut self, now: Instant) -> io::Result<()> {
        let mut some_ended = false;
        for at in 0..self.taking_part.len() {
            let place = self.taking_part[at];
            let of_place = &mut self.places[usize::from(place)];
            let member = of_place.member.as_mut().expect("a path set that takes part is there");
            member.takes_part = false;
            member.set.finish_turn(now)?;
            let finished = member.set.take_finished();
            self.finished += finished;
            member.is_used |= finished > 0 || member.set.is_busy();
            if member.set.is_busy() {
                self.busy_at = Some(now);
            }
            if member.set.is_over() {
                of_place.generation = member.set.generation();
                let member = of_place.member.take().expect("it was there");
                self.members -= 1;
                some_ended = true;
                member.has_ended.store(true, Ordering::Release);
                (member.ended)(member.set.has_writes_in_doubt());
                continue;
            }
            member.due = member.set.next_timeout();
            self.due = self.due.into_iter().chain(member.due).min();
        }
        self.taking_part.clear();
        if some_ended {
            self.update_poll_limit();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
