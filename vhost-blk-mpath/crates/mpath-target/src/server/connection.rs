//! One connection, served by one thread: receive a lot, execute all of it, send all of it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use low_water::LowWater;
use nvme_tcp::target::{AdminReply, QueueIdentity, TargetCommand, TargetQueue};
use nvme_tcp::wire::{CROSS_RESET_DONE, Opcode, Status};
use rustix::event::PollFlags;

use super::association::{Association, Gate};
use super::delay::DelayQueue;
use super::execute::{execute, flush_all};
use super::hold::HeldCommands;
use super::late::Late;
use super::registry::Registration;
use super::shared::{Port, Shared};
use super::wake::{Wake, poll};
use crate::setting::{BlackHole, CrossReset};

/// Bytes taken from the socket at once.
const RECEIVE_BYTES: usize = 256 << 10;
/// With so many bytes unsent, nothing more is executed or received.
const BACKLOG_BYTES: usize = 4 << 20;
/// Below this a delay is kept by spinning at its end, because waking up takes too long a part of it.
const SPIN_DELAY: Duration = Duration::from_millis(1);
/// How long before the end of a delay to start spinning: what waking up takes at most, also in a virtual machine.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// Time for a connection to become a queue of a controller.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a host to hang up after a terminate request.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a connection ends.
enum End {
    /// The host has closed its side, and everything it had sent is executed and answered.
    Finished,
    /// A fatal protocol error; a terminate request may be pending.
    Terminated,
    /// The socket failed, the controller is gone, or the listener is stopped: nothing more is executed.
    Dropped,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Dropped
    }
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    port: Arc<Port>,
    wake: Arc<Wake>,
    registration: Registration,
    stream: TcpStream,
    low_water: LowWater,
    queue: TargetQueue,
    role: Role,
    delayed: DelayQueue<TargetCommand>,
    held: HeldCommands,
    buffer: Box<[u8]>,
    /// The host will send nothing more.
    eof: bool,
}

#[derive(Clone)]
enum Role {
    /// No Connect was accepted yet; the time for it ends at this instant.
    New(Instant),
    Admin {
        cntlid: u16,
    },
    Io(Arc<Association>),
}

impl Connection {
    pub(super) fn new(
        shared: Arc<Shared>,
        port: Arc<Port>,
        wake: Arc<Wake>,
        registration: Registration,
        stream: TcpStream,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut queue = TargetQueue::new(shared.limits);
        queue.set_digest_faults(Arc::clone(&port.faults.digests));
        queue.set_answer_faults(Arc::clone(&port.faults.answers));
        Ok(Self {
            queue,
            held: HeldCommands::new(Arc::clone(&port)),
            shared,
            port,
            wake,
            registration,
            stream,
            low_water: LowWater::new(),
            role: Role::New(Instant::now() + HANDSHAKE_TIMEOUT),
            delayed: DelayQueue::new(),
            buffer: vec![0; RECEIVE_BYTES].into(),
            eof: false,
        })
    }

    /// Serves the connection to its end.
    pub(super) fn run(mut self) {
        // Delays below a millisecond are to be met; by default the kernel rounds by 50 µs. Without it they are
        // merely less exact.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let Err(end) = self.serve();
        if let Some(identity) = self.queue.identity() {
            self.shared.control().disconnected(identity, &self.wake);
        }
        match end {
            End::Finished => {}
            End::Terminated if self.held.is_empty() => self.terminate(),
            End::Terminated | End::Dropped => {
                // What is still in the socket must not reach the host as if all were well; nor must an end of the
                // data, which says that nothing is left to be executed.
                let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
            }
        }
        let Self { shared, port, role, held, registration, stream, .. } = self;
        let late = match role {
            Role::Io(association) => Late::new(&shared, &port, association, held),
            Role::New(_) | Role::Admin { .. } => None,
        };
        drop(stream);
        drop(registration);
        if let Some(late) = late {
            late.run();
        }
    }

    fn serve(&mut self) -> Result<std::convert::Infallible, End> {
        loop {
            if self.wake.is_stopped() {
                return Err(End::Dropped);
            }
            if self.port.faults.black_hole() == Some(BlackHole::Stall) {
                self.stall()?;
                continue;
            }
            let received = self.receive()?;
            let now = Instant::now();
            match self.role.clone() {
                Role::New(deadline) => self.handshake(now, deadline)?,
                Role::Admin { cntlid } => self.admin(now, cntlid)?,
                Role::Io(association) => self.io(now, &association)?,
            }
            self.send()?;
            if self.eof && self.queue.pending().is_empty() && self.is_drained() {
                return Err(End::Finished);
            }
            if !received {
                self.wait(now)?;
            }
        }
    }

    /// Does nothing until the port is no longer stalled. Meanwhile nobody is held to a time, as a target that is stopped
    /// does not look at its clock either.
    fn stall(&mut self) -> Result<(), End> {
        while self.port.faults.black_hole() == Some(BlackHole::Stall) && !self.wake.is_stopped() {
            let (socket, wake) = poll(&self.stream, PollFlags::empty(), &self.wake, None)?;
            if wake {
                self.wake.drain();
            }
            if !socket.is_empty() {
                return Err(End::Dropped);
            }
        }
        let now = Instant::now();
        match &mut self.role {
            Role::New(deadline) => *deadline = now + HANDSHAKE_TIMEOUT,
            Role::Admin { cntlid } => self.shared.control().restart_keep_alive(now, *cntlid),
            // Whichever of a controller's connections goes on first.
            Role::Io(association) => self.shared.control().restart_keep_alive(now, association.instance.cntlid),
        }
        Ok(())
    }

    fn is_mute(&self) -> bool {
        self.port.faults.black_hole() == Some(BlackHole::Mute)
    }

    /// Whether everything received in full is executed. What is cut off by the end never will be, nor are
    /// event requests that are held for good.
    fn is_drained(&self) -> bool {
        self.delayed.is_empty() && self.held.is_empty() && !self.queue.has_ready() && !self.is_mute()
    }

    fn is_backlogged(&self) -> bool {
        self.queue.pending().len() >= BACKLOG_BYTES
    }

    /// Takes what the socket has; whether there was anything.
    fn receive(&mut self) -> Result<bool, End> {
        if self.eof || self.is_backlogged() {
            return Ok(false);
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => {
                self.eof = true;
                Ok(true)
            }
            Ok(bytes) => {
                self.low_water.received(bytes);
                match self.queue.receive(&self.buffer[..bytes]) {
                    Ok(()) => Ok(true),
                    Err(_) => Err(End::Terminated),
                }
            }
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self) -> Result<(), End> {
        while !self.queue.pending().is_empty() && !self.is_mute() {
            match self.stream.write(self.queue.pending()) {
                Ok(bytes) => self.queue.sent(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn handshake(&mut self, now: Instant, deadline: Instant) -> Result<(), End> {
        if now >= deadline {
            return Err(End::Dropped);
        }
        // Before its Connect is accepted a queue holds one command at most.
        let Some(command) = self.queue.poll_command() else {
            return Ok(());
        };
        let connected = self.shared.control().connect(now, &self.port, &command, &self.wake);
        match connected {
            Ok((identity, association)) => {
                self.registration.set_qid(identity.qid);
                self.role = match identity {
                    QueueIdentity { cntlid, qid: 0, .. } => Role::Admin { cntlid },
                    _ => Role::Io(association),
                };
                self.queue.accept(command.token, identity);
            }
            Err((status, result)) => self.queue.complete(command.token, status, result),
        }
        Ok(())
    }

    fn admin(&mut self, now: Instant, cntlid: u16) -> Result<(), End> {
        // Even if a keep-alive has come meanwhile: after a time in which nothing ran here nobody knows how old it is.
        if self.shared.control().keep_alive_deadline(cntlid).is_some_and(|deadline| deadline <= now) {
            return Err(End::Dropped);
        }
        while !self.is_backlogged()
            && let Some(command) = self.queue.poll_command()
        {
            if Opcode(command.sqe.opcode) == Opcode::CROSS_CONTROLLER_RESET {
                match self.port.faults.cross_reset() {
                    CrossReset::On => {}
                    CrossReset::Fail => {
                        self.queue.complete(command.token, Status::INTERNAL_ERROR, 0);
                        continue;
                    }
                    CrossReset::Mute => continue,
                }
            }
            let reply = self.shared.control().admin(now, cntlid, command);
            match reply {
                AdminReply::Done { token, status, result } => {
                    self.queue.complete(token, status, result);
                }
                AdminReply::Data { token, data } => {
                    let fill = |offset: u32, part: &mut [u8]| {
                        part.copy_from_slice(&data[offset as usize..][..part.len()]);
                        Ok(())
                    };
                    self.queue.complete_with_data(token, data.len() as u32, fill);
                }
                AdminReply::Shutdown { token } => {
                    let status = flush_all(&self.shared);
                    self.queue.complete(token, status, 0);
                }
                AdminReply::ResetController { token, .. } => {
                    // Its fence holds: `Control::admin` returns only then. What it has ended may go.
                    self.shared.late.notify_all();
                    self.queue.complete(token, Status::SUCCESS, CROSS_RESET_DONE);
                }
                AdminReply::Deferred => {}
            }
        }
        let mut control = self.shared.control();
        while let Some((token, status, result)) = control.poll_event(cntlid) {
            self.queue.complete(token, status, result);
        }
        Ok(())
    }

    fn io(&mut self, now: Instant, association: &Association) -> Result<(), End> {
        let delay = self.port.faults.delay();
        let gate = association.gate();
        if !gate.view.enabled || self.wake.is_stopped() {
            return Err(End::Dropped);
        }
        while !self.is_backlogged() {
            if let Some(change) = self.held.pop_over(now) {
                let status = change.make(&self.shared);
                self.queue.complete(change.token, status, 0);
            } else if let Some(command) = self.delayed.pop_due(now) {
                self.execute(now, &gate, command)?;
            } else if let Some(command) = self.queue.poll_command() {
                let bytes = command.payload.len() + command.expects_bytes as usize;
                let due = self.port.faults.pipe.pass(now, bytes) + delay + self.queue.fault_delay(&command.token);
                if due <= now {
                    self.execute(now, &gate, command)?;
                } else {
                    self.delayed.push(due, command);
                }
            } else {
                break;
            }
        }
        Ok(())
    }

    fn execute(&mut self, now: Instant, gate: &Gate, command: TargetCommand) -> Result<(), End> {
        // By the clock as it is now: this thread may just have been stopped for longer than any host waits.
        if gate.view.is_expired(Instant::now()) {
            return Err(End::Dropped);
        }
        if let Some(status) = self.port.faults.take_failure() {
            self.queue.complete(command.token, status, 0);
        } else if let Some(change) = execute(&self.shared, &gate.view, &mut self.queue, command) {
            if let Some(until) = self.port.faults.hold_from(now) {
                self.held.push(until, change);
            } else {
                let status = change.make(&self.shared);
                self.queue.complete(change.token, status, 0);
            }
        }
        Ok(())
    }

    /// Sleeps until there may be something to do.
    fn wait(&mut self, now: Instant) -> Result<(), End> {
        let backlogged = self.is_backlogged();
        let deadline = match &self.role {
            // Left over from when there was a backlog.
            _ if !backlogged && self.queue.has_ready() => Some(now),
            Role::New(deadline) => Some(*deadline),
            Role::Admin { cntlid } => self.shared.control().keep_alive_deadline(*cntlid),
            Role::Io(_) if backlogged => None,
            Role::Io(_) => {
                let delayed = self.delayed.next_due().map(|due| self.wake_up_for(due));
                [delayed, self.held.next_due()].into_iter().flatten().min()
            }
        };
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Nothing can be done before the rest of a payload is here.
        self.low_water.wait_for(&self.stream, self.queue.missing_bytes())?;
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, !self.eof && !backlogged);
        events.set(PollFlags::OUT, !self.queue.pending().is_empty() && !self.is_mute());
        let (socket, wake) = poll(&self.stream, events, &self.wake, timeout)?;
        if wake {
            self.wake.drain();
        }
        // After the end of the host's data only a dead socket is left to be noticed.
        if self.eof && socket.intersects(PollFlags::ERR | PollFlags::HUP) {
            return Err(End::Dropped);
        }
        Ok(())
    }

    /// When to wake up for something that is due at `due`.
    fn wake_up_for(&self, due: Instant) -> Instant {
        let early = if self.port.faults.delay() < SPIN_DELAY { SPIN_TIME } else { Duration::ZERO };
        due.checked_sub(early).unwrap_or(due)
    }

    /// Gives the host the time to read a terminate request: closing at once could overtake it.
    fn terminate(&mut self) {
        let deadline = Instant::now() + TERMINATE_TIMEOUT;
        let mut half_closed = false;
        while !self.wake.is_stopped() && self.send().is_ok() {
            if self.queue.pending().is_empty() && !half_closed {
                half_closed = true;
                if self.stream.shutdown(Shutdown::Write).is_err() {
                    return;
                }
            }
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return,
                Ok(_) => continue,
                Err(error) if is_transient(&error) => {}
                Err(_) => return,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let mut events = PollFlags::IN;
            events.set(PollFlags::OUT, !self.queue.pending().is_empty());
            if left.is_zero() || poll(&self.stream, events, &self.wake, Some(left)).is_err() {
                return;
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
