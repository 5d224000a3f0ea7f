//! Decides: links and faults of the simulator act like this.
//!
//! The network: byte streams with latency, jitter, bandwidth and arbitrary cuts, and their failures.
//!
//! A stream behaves like TCP: bytes arrive in order or not at all. Data that a black hole swallows are sent again when it ends,
//! for as long as the sender's socket exists. A closed socket sends a reset and nothing more. A half-closed socket sends the
//! bytes that it holds, and then the end of the stream. Bytes that are on their way may still arrive, up to
//! [`LinkPlan::lifetime`] later.

mod closing;
mod corruption;
mod encryption;
mod stream;

use std::collections::{BTreeMap, VecDeque};

use monotonic::{Duration, Instant};
use nvme_tcp::wire::Digests;

use self::corruption::PduTracker;
use crate::clock::{Clock, Event};
use crate::connection::{ConnId, Side};
use crate::rng::Rng;
use crate::tls::ControllerEnd;

/// The plan of a link for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct LinkPlan {
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
    pub(crate) bytes_per_second: u64,
    /// The longest piece in which bytes travel.
    pub(crate) fragment_max: u64,
    /// Bytes that a socket holds, at the sender and at the receiver.
    pub(crate) socket_bytes: usize,
    /// The longest time after which a packet arrives whose sender is gone.
    pub(crate) lifetime: Duration,
}

/// The faults of a link at present.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinkState {
    /// By [`Side`]: nothing arrives at that end.
    pub(crate) black_hole: [bool; 2],
    pub(crate) extra_latency: Duration,
    /// Pieces of ten thousand that arrive with a flipped bit.
    pub(crate) flips_per_10k: u64,
    /// The other end has no listener.
    pub(crate) refused: bool,
    /// Percentage of connections that the kernel at the other end accepts and that are never read.
    pub(crate) silent_percent: u64,
}

/// The state of the sender, which decides what follows its last byte.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SenderState {
    #[default]
    Open,
    /// The sender has closed in order.
    Closed,
    /// Bytes were lost for good, so no later byte arrives.
    Cut,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Pipe {
    /// In the sender's socket.
    unsent: VecDeque<u8>,
    /// Pieces on their way, and when they are due.
    in_flight: VecDeque<(Instant, Vec<u8>)>,
    in_flight_bytes: usize,
    last_due: Option<Instant>,
    /// When the wire is free again.
    free_at: Option<Instant>,
    /// Some data are due, and wait for the end of a black hole or for room at the receiver.
    stuck: bool,
    /// The sender has more bytes than its socket took.
    wants_room: bool,
    sender: SenderState,
    /// The place of the last byte that arrived.
    pdus: PduTracker,
}

/// Whether a reset has arrived. The kernel reports it once: later reads find the end of the stream.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reset {
    #[default]
    None,
    Arrived,
    Reported,
}

/// The socket at one end of a connection.
#[derive(Debug, Default)]
struct Socket {
    open: bool,
    reset: Reset,
    /// The other end was closed in order, and its end of stream has arrived.
    finished: bool,
    received: VecDeque<u8>,
}

#[derive(Debug)]
struct Connection {
    path: usize,
    established: bool,
    /// By receiving [`Side`].
    pipes: [Pipe; 2],
    sockets: [Socket; 2],
    /// By receiving [`Side`]: this connection delivers nothing there.
    frozen: [bool; 2],
    /// The kernel of the target has accepted it, and the target does not read it.
    silent: bool,
    /// The digests that both ends check. Only protected bits may be flipped.
    digests: Digests,
    /// The target's end, if the connection uses TLS. All bits may be flipped then.
    tls: Option<ControllerEnd>,
}

/// All links and connections of a run.
#[derive(Debug)]
pub(crate) struct Net {
    rng: Rng,
    plans: Vec<LinkPlan>,
    pub(crate) links: Vec<LinkState>,
    /// For silent ports only.
    silence_rng: Rng,
    conns: BTreeMap<ConnId, Connection>,
    next: u32,
    /// Pieces that took the extra latency of their link.
    pub(crate) pieces_delayed: u64,
    /// Deliveries that waited for the end of a freeze.
    pub(crate) deliveries_frozen: u64,
    /// Sessions that failed at the target.
    pub(crate) tls_failures: u64,
    /// Connections that the target has reset while nothing could reach the host.
    undelivered_resets: Vec<ConnId>,
}

impl Net {
    pub(crate) fn new(rng: Rng, plans: Vec<LinkPlan>) -> Self {
        let links = vec![LinkState::default(); plans.len()];
        // Drawn from a copy, so that the other random numbers of the network stay the same.
        let silence_rng = Rng::new(rng.clone().next_u64(), 0x511e);
        Self {
            rng,
            plans,
            links,
            silence_rng,
            conns: BTreeMap::new(),
            next: 0,
            pieces_delayed: 0,
            deliveries_frozen: 0,
            tls_failures: 0,
            undelivered_resets: Vec::new(),
        }
    }

    /// Begins a connection of the host over a path; [`Event::Established`] or [`Event::Reset`] follows, or nothing.
    pub(crate) fn connect(&mut self, clock: &mut Clock, path: usize) -> ConnId {
        let id = ConnId(self.next);
        self.next += 1;
        let mut sockets = <[Socket; 2]>::default();
        sockets[Side::Host as usize].open = true;
        let conn = Connection {
            path,
            established: false,
            pipes: <[Pipe; 2]>::default(),
            sockets,
            frozen: [false; 2],
            silent: false,
            digests: Digests::default(),
            tls: None,
        };
        self.conns.insert(id, conn);
        let delay = self.delay(path) * 2;
        clock.after(delay, Event::Established(id));
        id
    }

    /// Handles [`Event::Established`]. Returns whether the target has a new connection.
    pub(crate) fn on_established(&mut self, clock: &mut Clock, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let link = &self.links[conn.path];
        if !conn.sockets[Side::Host as usize].open || link.black_hole != [false; 2] {
            return false;
        }
        if link.refused {
            clock.after(Duration::ZERO, Event::Reset(id, Side::Host));
            return false;
        }
        conn.established = true;
        conn.sockets[Side::Target as usize].open = true;
        let silent_percent = link.silent_percent;
        conn.silent = silent_percent > 0 && self.silence_rng.percent(silent_percent);
        !conn.silent
    }

    pub(crate) fn path_of(&self, id: ConnId) -> usize {
        self.conns.get(&id).map_or(0, |conn| conn.path)
    }

    pub(crate) fn is_established(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.established)
    }

    /// Whether the target does not read the connection.
    pub(crate) fn is_silent(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.silent)
    }

    /// From now on these digests protect both directions.
    pub(crate) fn protect(&mut self, id: ConnId, digests: Digests) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.digests = digests;
        }
    }

    /// Whether the socket failed, is closed, or receives nothing more.
    pub(crate) fn is_reset(&self, id: ConnId, side: Side) -> bool {
        let ended = |socket: &Socket| socket.reset != Reset::None || socket.finished || !socket.open;
        self.conns.get(&id).is_none_or(|conn| ended(&conn.sockets[side as usize]))
    }

    /// Whether the other end was closed in order, and all its bytes have been received.
    pub(crate) fn has_ended(&self, id: ConnId, side: Side) -> bool {
        let finished = |socket: &Socket| socket.finished && socket.reset == Reset::None && socket.received.is_empty();
        self.conns.get(&id).is_some_and(|conn| finished(&conn.sockets[side as usize]))
    }

    /// Whether the end of the other end's stream or a reset has arrived, even if bytes before it were not received.
    pub(crate) fn peer_has_ended(&self, id: ConnId, side: Side) -> bool {
        let ended = |socket: &Socket| socket.finished || socket.reset != Reset::None;
        self.conns.get(&id).is_none_or(|conn| ended(&conn.sockets[side as usize]))
    }

    /// Whether a reset has arrived.
    pub(crate) fn was_reset(&self, id: ConnId, side: Side) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.sockets[side as usize].reset != Reset::None)
    }

    /// Notes that the kernel has reported a reset to this end, if one has arrived.
    pub(crate) fn reset_reported(&mut self, id: ConnId, side: Side) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.sockets[side as usize].reset == Reset::Arrived
        {
            conn.sockets[side as usize].reset = Reset::Reported;
        }
    }

    /// The result of a read after the last byte: the end of the stream, or a failure. `None` while more bytes may come.
    pub(crate) fn end_of_stream(&self, id: ConnId, side: Side) -> Option<Result<(), ()>> {
        let Some(conn) = self.conns.get(&id) else { return Some(Err(())) };
        let socket = &conn.sockets[side as usize];
        match socket.reset {
            Reset::None => (socket.finished && socket.received.is_empty()).then_some(Ok(())),
            Reset::Arrived => Some(Err(())),
            Reset::Reported => Some(Ok(())),
        }
    }

    fn delay(&mut self, path: usize) -> Duration {
        let plan = &self.plans[path];
        plan.latency + self.rng.up_to(plan.jitter) + self.links[path].extra_latency
    }

    /// The connections over a path on which the host's end is open.
    pub(crate) fn connections_of_path(&self, path: usize) -> Vec<ConnId> {
        let open = |conn: &Connection| conn.path == path && conn.sockets[Side::Host as usize].open;
        self.conns.iter().filter(|(_, conn)| open(conn)).map(|(&id, _)| id).collect()
    }

    /// The connections on which the host's end is open.
    pub(crate) fn connections_of_host(&self) -> Vec<ConnId> {
        let open = |conn: &Connection| conn.sockets[Side::Host as usize].open;
        self.conns.iter().filter(|(_, conn)| open(conn)).map(|(&id, _)| id).collect()
    }
}
