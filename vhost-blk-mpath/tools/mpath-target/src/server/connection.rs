//! One connection, served by one thread. Each turn receives many bytes, executes all commands, and sends all answers.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use low_water::LowWater;
use monotonic::{Duration, Instant};
use nvme_tcp::wire::{CROSS_RESET_DONE, FabricsCommand, Opcode, Status};
use nvme_tcp_target::{AdminReply, QueueIdentity, TargetAuthentication, TargetCommand, TargetQueue};
use nvme_tls::psk::generated_candidate;
use rustix::event::PollFlags;

use super::association::{Association, Gate};
use super::connection_registry::Registration;
use super::delay_queue::DelayQueue;
use super::execute::{ModifyingCommand, execute, flush_all};
use super::held_commands::HeldCommands;
use super::orphaned_commands::OrphanedCommands;
use super::shared::{Port, PortSecurity, Shared};
use super::stream::Stream;
use super::waker::{Waker, poll};
use crate::setting::{BlackHole, CrossReset};

/// The most bytes of one receive.
const RECEIVE_BYTES: usize = 256 << 10;
/// With this many unsent bytes, no command is executed and no byte is received.
const BACKLOG_BYTES: usize = 4 << 20;
/// Delays below this are ended by spinning, because waking up is too slow for them.
const SPIN_DELAY: Duration = Duration::from_millis(1);
/// How long before the end of a delay the spinning starts: the longest time to wake up, even in a virtual machine.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// The time limit for a successful Connect with its authentication.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a host to close the connection after a terminate request.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a connection ends.
enum ConnectionEnd {
    /// The host has closed its side, and all its commands are executed and answered.
    Finished,
    /// A fatal protocol error; a terminate request may be pending.
    Terminated,
    /// The socket failed, the controller is gone, or the listener is stopped. No further command is executed.
    Dropped,
}

impl From<io::Error> for ConnectionEnd {
    fn from(_: io::Error) -> Self {
        Self::Dropped
    }
}

/// A connection to a host.
pub(super) struct Connection {
    shared: Arc<Shared>,
    port: Arc<Port>,
    waker: Arc<Waker>,
    registration: Registration,
    stream: Stream,
    low_water: LowWater,
    queue: TargetQueue,
    role: Role,
    /// The role of a connection whose Connect was accepted, until its host is authenticated.
    next_role: Option<Role>,
    delayed: DelayQueue<TargetCommand>,
    held: HeldCommands,
    buffer: Box<[u8]>,
    /// The host has closed its side.
    eof: bool,
}

/// The queue that a connection carries.
#[derive(Clone)]
enum Role {
    /// No Connect was accepted, or its host is not authenticated. The time for both ends at this instant.
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
        waker: Arc<Waker>,
        registration: Registration,
        stream: TcpStream,
    ) -> io::Result<Self> {
        let stream = Stream::new(stream, &port.security)?;
        let mut queue = TargetQueue::new(shared.limits);
        queue.set_digest_faults(Arc::clone(&port.faults.digests));
        queue.set_answer_faults(Arc::clone(&port.faults.answers));
        Ok(Self {
            queue,
            held: HeldCommands::new(Arc::clone(&port)),
            shared,
            port,
            waker,
            registration,
            stream,
            low_water: LowWater::new(),
            role: Role::New(Instant::now() + HANDSHAKE_TIMEOUT),
            next_role: None,
            delayed: DelayQueue::new(),
            buffer: vec![0; RECEIVE_BYTES].into(),
            eof: false,
        })
    }

    /// Serves the connection until it ends.
    pub(super) fn run(mut self) {
        // By default the kernel rounds timers by 50 µs, which is too coarse for delays below a millisecond. If this fails, delays
        // are less exact.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let Err(end) = self.serve();
        if let Some(identity) = self.queue.identity() {
            self.shared.control().disconnected(identity, &self.waker);
        }
        match end {
            ConnectionEnd::Finished => {}
            ConnectionEnd::Terminated if self.held.is_empty() => self.terminate(),
            ConnectionEnd::Terminated | ConnectionEnd::Dropped => {
                // Close with RST, so that neither unsent bytes nor EOF reach the host. EOF promises that no command is left to be
                // executed.
                let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO.into()));
            }
        }
        let Self { shared, port, role, held, registration, stream, .. } = self;
        let orphaned = match role {
            Role::Io(association) => OrphanedCommands::new(&shared, &port, association, held),
            Role::New(_) | Role::Admin { .. } => None,
        };
        drop(stream);
        drop(registration);
        if let Some(orphaned) = orphaned {
            orphaned.run();
        }
    }

    fn serve(&mut self) -> Result<std::convert::Infallible, ConnectionEnd> {
        loop {
            if self.waker.is_stopped() {
                return Err(ConnectionEnd::Dropped);
            }
            if self.port.faults.black_hole() == Some(BlackHole::Stall) {
                self.stall()?;
                continue;
            }
            let may_have_more = self.receive()?;
            let now = Instant::now();
            match self.role.clone() {
                Role::New(deadline) => self.handshake(now, deadline)?,
                Role::Admin { cntlid } => self.admin(now, cntlid)?,
                Role::Io(association) => self.io(now, &association)?,
            }
            self.send()?;
            if self.eof && !self.has_unsent() && self.is_drained() {
                return Err(ConnectionEnd::Finished);
            }
            if !may_have_more {
                self.wait(now)?;
            }
        }
    }

    /// Does nothing while the port is stalled. Deadlines of the host start again afterwards: a stopped target does not
    /// check its clock either.
    fn stall(&mut self) -> Result<(), ConnectionEnd> {
        while self.port.faults.black_hole() == Some(BlackHole::Stall) && !self.waker.is_stopped() {
            let (socket, is_woken) = poll(&self.stream, PollFlags::empty(), &self.waker, None)?;
            if is_woken {
                self.waker.clear();
            }
            if !socket.is_empty() {
                return Err(ConnectionEnd::Dropped);
            }
        }
        let now = Instant::now();
        match &mut self.role {
            Role::New(deadline) => *deadline = now + HANDSHAKE_TIMEOUT,
            Role::Admin { cntlid } => self.shared.control().restart_keep_alive(now, *cntlid),
            // The first connection of a controller that continues restarts the timer.
            Role::Io(association) => self.shared.control().restart_keep_alive(now, association.instance.cntlid),
        }
        Ok(())
    }

    fn is_mute(&self) -> bool {
        self.port.faults.black_hole() == Some(BlackHole::Mute)
    }

    /// Whether all complete commands are executed. Incomplete commands and outstanding event requests do not count.
    fn is_drained(&self) -> bool {
        self.delayed.is_empty() && self.held.is_empty() && !self.queue.has_ready() && !self.is_mute()
    }

    fn has_unsent(&self) -> bool {
        !self.queue.pending().is_empty() || self.stream.has_unsent()
    }

    fn is_backlogged(&self) -> bool {
        self.queue.pending().len() >= BACKLOG_BYTES
    }

    /// Receives bytes from the socket. Returns whether there may be more.
    fn receive(&mut self) -> Result<bool, ConnectionEnd> {
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
                if self.queue.receive(&self.buffer[..bytes]).is_ok() {
                    return Ok(bytes == self.buffer.len());
                }
                // Only this side knows why it refuses a host.
                if let Some(error) = self.queue.authentication_error() {
                    eprintln!("mpath-target: authentication failed: {error}");
                }
                Err(ConnectionEnd::Terminated)
            }
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self) -> Result<(), ConnectionEnd> {
        if self.is_mute() {
            return Ok(());
        }
        self.stream.flush()?;
        while !self.queue.pending().is_empty() {
            match self.stream.write(self.queue.pending()) {
                Ok(bytes) => self.queue.sent(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn handshake(&mut self, now: Instant, deadline: Instant) -> Result<(), ConnectionEnd> {
        if now >= deadline {
            return Err(ConnectionEnd::Dropped);
        }
        if self.next_role.is_some() {
            self.keep_generated_key()?;
            // The queue itself answers a host that is not authenticated.
            if self.queue.is_authenticated()
                && let Some(role) = self.next_role.take()
            {
                self.role = role;
            }
            return Ok(());
        }
        // Before its Connect is accepted, a queue has at most one command.
        let Some(command) = self.queue.poll_command() else {
            return Ok(());
        };
        if self.is_io_queue_without_key(&command) {
            self.queue.complete(command.token, Status::CONNECT_INVALID_PARAMETERS.with_dnr(), 0);
            return Ok(());
        }
        let connected = self.shared.control().connect(now, &self.port, &command, &self.waker);
        match connected {
            Ok((identity, association)) => {
                self.registration.set_qid(identity.qid);
                let authentication = self.authentication(identity);
                let role = match identity {
                    QueueIdentity { cntlid, qid: 0, .. } => Role::Admin { cntlid },
                    _ => Role::Io(association),
                };
                if authentication.is_some() {
                    self.next_role = Some(role);
                } else {
                    self.role = role;
                }
                self.queue.accept(command.token, identity, authentication);
            }
            Err((status, result)) => self.queue.complete(command.token, status, result),
        }
        Ok(())
    }

    /// Whether this is a Connect of an I/O queue in clear text on a port that takes clear text for the generation of keys alone.
    fn is_io_queue_without_key(&self, command: &TargetCommand) -> bool {
        let is_for_keys = matches!(self.port.security, PortSecurity::Concatenation(_)) && !self.stream.is_encrypted();
        let connects_io = |command| matches!(command, FabricsCommand::Connect(connect) if connect.qid != 0);
        is_for_keys && FabricsCommand::parse(&command.sqe).is_ok_and(connects_io)
    }

    /// The authentication that the queue needs. A host that has a generated key is authenticated already.
    fn authentication(&self, identity: QueueIdentity) -> Option<Box<TargetAuthentication>> {
        match &self.port.security {
            PortSecurity::Concatenation(_) if self.stream.is_encrypted() => None,
            _ => self.shared.control().authentication(identity),
        }
    }

    /// Keeps the key that the authentication of this queue has generated, before the host learns that it succeeded.
    fn keep_generated_key(&mut self) -> Result<(), ConnectionEnd> {
        let (PortSecurity::Concatenation(keys), Some(identity)) = (&self.port.security, self.queue.identity()) else {
            return Ok(());
        };
        let Some(psk) = self.queue.take_generated_psk() else { return Ok(()) };
        let names = self.shared.control().names(identity.cntlid);
        let (hostnqn, subnqn) = names.ok_or(ConnectionEnd::Dropped)?;
        keys.insert(generated_candidate(psk.as_bytes(), &hostnqn, &subnqn).map_err(io::Error::other)?);
        Ok(())
    }

    fn admin(&mut self, now: Instant, cntlid: u16) -> Result<(), ConnectionEnd> {
        // A keep-alive that waits in the socket does not help: if this thread was stopped, the keep-alive may be old.
        if self.shared.control().keep_alive_deadline(cntlid).is_some_and(|deadline| deadline <= now) {
            return Err(ConnectionEnd::Dropped);
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
                    self.queue.complete_with_data(token, data.len() as u32, |part, out| {
                        out.extend_from_slice(&data[part]);
                        Ok(())
                    });
                }
                AdminReply::Shutdown { token } => {
                    let status = flush_all(&self.shared);
                    self.queue.complete(token, status, 0);
                }
                AdminReply::ResetController { token, .. } => {
                    // `Control::admin` has fenced the instance. Its orphaned commands can be discarded.
                    self.shared.orphans.notify_all();
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

    fn io(&mut self, now: Instant, association: &Association) -> Result<(), ConnectionEnd> {
        let delay = self.port.faults.delay();
        let gate = association.gate();
        if !gate.view.enabled || self.waker.is_stopped() {
            return Err(ConnectionEnd::Dropped);
        }
        while !self.is_backlogged() {
            if let Some(command) = self.held.pop_released(now) {
                self.execute_modifying(command);
            } else if let Some(command) = self.delayed.pop_due(now) {
                self.execute(now, &gate, command)?;
            } else if let Some(command) = self.queue.poll_command() {
                let bytes = command.payload.len() + command.expects_bytes as usize;
                let due =
                    self.port.faults.rate_limiter.schedule(now, bytes) + delay + self.queue.fault_delay(&command.token);
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

    fn execute(&mut self, now: Instant, gate: &Gate, command: TargetCommand) -> Result<(), ConnectionEnd> {
        // Read the clock again: this thread may have been stopped for longer than KATO.
        if gate.view.is_expired(Instant::now()) {
            return Err(ConnectionEnd::Dropped);
        }
        if let Some(status) = self.port.faults.take_failure() {
            self.queue.complete(command.token, status, 0);
        } else if let Some(command) = execute(&self.shared, &gate.view, &mut self.queue, command) {
            if let Some(period) = self.port.faults.hold_from(now) {
                self.held.push(period, command);
            } else {
                self.execute_modifying(command);
            }
        }
        Ok(())
    }

    fn execute_modifying(&mut self, command: ModifyingCommand) {
        let status = command.execute(&self.shared);
        self.queue.complete(command.token, status, 0);
        self.queue.reuse(command.payload);
    }

    /// Sleeps until there may be work.
    fn wait(&mut self, now: Instant) -> Result<(), ConnectionEnd> {
        let backlogged = self.is_backlogged();
        let deadline = match &self.role {
            // These commands are left from a backlog that has ended.
            _ if !backlogged && (self.queue.has_ready() || self.stream.has_unread()) => Some(now),
            Role::New(deadline) => Some(*deadline),
            Role::Admin { cntlid } => self.shared.control().keep_alive_deadline(*cntlid),
            Role::Io(_) if backlogged => None,
            Role::Io(_) => {
                let delayed = self.delayed.next_due().map(|due| self.wake_up_for(due));
                [delayed, self.held.next_due()].into_iter().flatten().min()
            }
        };
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // There is no work until the rest of a payload arrives.
        if !self.stream.is_encrypted() {
            self.low_water.wait_for(&self.stream, self.queue.missing_bytes())?;
        }
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, !self.eof && !backlogged);
        events.set(PollFlags::OUT, self.has_unsent() && !self.is_mute());
        let (socket, is_woken) = poll(&self.stream, events, &self.waker, timeout)?;
        if is_woken {
            self.waker.clear();
        }
        // After EOF from the host, the socket can only report that it is dead.
        if self.eof && socket.intersects(PollFlags::ERR | PollFlags::HUP) {
            return Err(ConnectionEnd::Dropped);
        }
        Ok(())
    }

    /// When to wake up for a command that is due at `due`.
    fn wake_up_for(&self, due: Instant) -> Instant {
        let early = if self.port.faults.delay() < SPIN_DELAY { SPIN_TIME } else { Duration::ZERO };
        due.checked_sub(early).unwrap_or(due)
    }

    /// Gives the host time to read a terminate request. An immediate close could discard it.
    fn terminate(&mut self) {
        let deadline = Instant::now() + TERMINATE_TIMEOUT;
        let mut half_closed = false;
        while !self.waker.is_stopped() && self.send().is_ok() {
            if !self.has_unsent() && !half_closed {
                half_closed = true;
                if self.stream.end().is_err() {
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
            events.set(PollFlags::OUT, self.has_unsent());
            if left.is_zero() || poll(&self.stream, events, &self.waker, Some(left)).is_err() {
                return;
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
