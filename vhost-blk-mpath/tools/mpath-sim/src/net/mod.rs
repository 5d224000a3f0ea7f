//! The network: byte streams with latency, jitter, bandwidth and arbitrary cuts, and all the ways in which they fail.
//!
//! A stream is what TCP makes of a network: bytes arrive in order or not at all. Data that a black hole swallows are sent
//! again when it lifts, for as long as the sender's socket exists. A socket that is closed sends a reset and nothing more; but
//! what was on its way already may still arrive, up to [`LinkPlan::lifetime`] later.

mod corruption;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use nvme_tcp::wire::Digests;

use self::corruption::Stream;
use crate::clock::{Clock, Event};
use crate::rng::Rng;

/// A connection, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnId(pub(crate) u32);

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Host,
    Target,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Host => Self::Target,
            Self::Target => Self::Host,
        }
    }
}

/// The plan of a link for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct LinkPlan {
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
    pub(crate) bytes_per_second: u64,
    /// Longest piece in which bytes travel.
    pub(crate) fragment_max: u64,
    /// Bytes a socket holds, at the sender as well as at the receiver.
    pub(crate) socket_bytes: usize,
    /// How long after its sender is gone a packet can still arrive.
    pub(crate) lifetime: Duration,
}

/// What a link is like now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinkState {
    /// Nothing arrives at the host, at the target.
    pub(crate) hole: [bool; 2],
    pub(crate) extra_latency: Duration,
    /// In ten thousand pieces, how many arrive with a bit flipped.
    pub(crate) corrupted: u64,
    /// The other end has no listener.
    pub(crate) refused: bool,
    /// Percentage of connections that the kernel at the other end accepts and that are never read.
    pub(crate) silent_percent: u64,
}

/// What follows the last byte that was sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Tail {
    #[default]
    More,
    /// The sender has closed in order.
    End,
    /// Bytes were lost for good: nothing that follows them arrives.
    Cut,
}

/// One direction.
#[derive(Debug, Default)]
struct Pipe {
    /// In the sender's socket.
    unsent: VecDeque<u8>,
    /// On the way: when it is due, and what.
    flight: VecDeque<(Instant, Vec<u8>)>,
    flight_bytes: usize,
    last_due: Option<Instant>,
    /// When the wire is free again.
    free_at: Option<Instant>,
    /// Data that are due wait for a hole to lift, or for the receiver.
    stuck: bool,
    /// The sender had more than its socket took.
    wanted: bool,
    tail: Tail,
    /// Where what has arrived ends.
    stream: Stream,
}

#[derive(Debug, Default)]
struct End {
    open: bool,
    /// A reset has arrived.
    reset: bool,
    /// The end of what the other one sends has arrived.
    finished: bool,
    received: VecDeque<u8>,
}

#[derive(Debug)]
struct Conn {
    path: usize,
    established: bool,
    /// By receiver.
    pipes: [Pipe; 2],
    ends: [End; 2],
    /// By receiver: this connection alone moves nothing.
    frozen: [bool; 2],
    /// The other end does not know of it.
    silent: bool,
    /// What both sides check: bits may be flipped there.
    digests: Digests,
}

#[derive(Debug)]
pub(crate) struct Net {
    rng: Rng,
    plans: Vec<LinkPlan>,
    pub(crate) links: Vec<LinkState>,
    /// For silent ports alone.
    silence_rng: Rng,
    conns: BTreeMap<ConnId, Conn>,
    next: u32,
    /// Connections that a target has ended while nothing could reach the host.
    unheard: Vec<ConnId>,
}

impl Net {
    pub(crate) fn new(rng: Rng, plans: Vec<LinkPlan>) -> Self {
        let links = vec![LinkState::default(); plans.len()];
        // Not drawn from the stream, which stays the same.
        let silence_rng = Rng::new(rng.clone().next_u64(), 0x511e);
        Self { rng, plans, links, silence_rng, conns: BTreeMap::new(), next: 0, unheard: Vec::new() }
    }

    /// Begins a connection of the host over a path; [`Event::Established`] or [`Event::Reset`] follows, or nothing.
    pub(crate) fn connect(&mut self, clock: &mut Clock, path: usize) -> ConnId {
        let id = ConnId(self.next);
        self.next += 1;
        let mut ends = <[End; 2]>::default();
        ends[Side::Host as usize].open = true;
        let conn = Conn {
            path,
            established: false,
            pipes: <[Pipe; 2]>::default(),
            ends,
            frozen: [false; 2],
            silent: false,
            digests: Digests::default(),
        };
        self.conns.insert(id, conn);
        let delay = self.delay(path) * 2;
        clock.after(delay, Event::Established(id));
        id
    }

    /// [`Event::Established`] has come: whether the target has a new connection.
    pub(crate) fn on_established(&mut self, clock: &mut Clock, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let link = &self.links[conn.path];
        if !conn.ends[Side::Host as usize].open || link.hole != [false; 2] {
            return false;
        }
        if link.refused {
            clock.after(Duration::ZERO, Event::Reset(id, Side::Host));
            return false;
        }
        conn.established = true;
        conn.ends[Side::Target as usize].open = true;
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

    /// From here on these digests protect both directions.
    pub(crate) fn protect(&mut self, id: ConnId, digests: Digests) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.digests = digests;
        }
    }

    /// The socket failed, or there is none, or nothing more comes.
    pub(crate) fn is_reset(&self, id: ConnId, side: Side) -> bool {
        let ended = |end: &End| end.reset || end.finished || !end.open;
        self.conns.get(&id).is_none_or(|conn| ended(&conn.ends[side as usize]))
    }

    /// The other end was closed in order, and all that was sent before has been received.
    pub(crate) fn is_finished(&self, id: ConnId, side: Side) -> bool {
        let finished = |end: &End| end.finished && !end.reset && end.received.is_empty();
        self.conns.get(&id).is_some_and(|conn| finished(&conn.ends[side as usize]))
    }

    /// The target closes its end in order: all that its socket holds is sent, and the end after it.
    pub(crate) fn finish(&mut self, clock: &mut Clock, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let end = &mut conn.ends[Side::Target as usize];
        if !std::mem::take(&mut end.open) {
            return;
        }
        end.received.clear();
        let pipe = &mut conn.pipes[Side::Host as usize];
        pipe.tail = if pipe.tail == Tail::Cut { Tail::Cut } else { Tail::End };
        let last = pipe.last_due.map_or(clock.now(), |last| last.max(clock.now()));
        clock.at(last + self.plans[conn.path].latency, Event::Deliver(id, Side::Host));
        self.forget(id);
    }

    fn delay(&mut self, path: usize) -> Duration {
        let plan = &self.plans[path];
        plan.latency + self.rng.up_to(plan.jitter) + self.links[path].extra_latency
    }

    /// Room in the socket for bytes to send.
    pub(crate) fn room(&self, id: ConnId, from: Side) -> usize {
        let Some(conn) = self.conns.get(&id) else { return 0 };
        let pipe = &conn.pipes[from.other() as usize];
        self.plans[conn.path].socket_bytes.saturating_sub(pipe.unsent.len())
    }

    /// Hands bytes to the socket, as many as it takes.
    pub(crate) fn send(&mut self, clock: &mut Clock, id: ConnId, from: Side, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room(id, from));
        if let Some(conn) = self.conns.get_mut(&id) {
            let pipe = &mut conn.pipes[from.other() as usize];
            if pipe.tail != Tail::Cut {
                pipe.unsent.extend(&bytes[..taken]);
            }
            pipe.wanted = taken < bytes.len();
        }
        self.transmit(clock, id, from.other());
        taken
    }

    /// Puts what the socket holds on the way, as far as the receiver can take it.
    fn transmit(&mut self, clock: &mut Clock, id: ConnId, to: Side) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let (plan, link) = (&self.plans[conn.path], self.links[conn.path]);
        let pipe = &mut conn.pipes[to as usize];
        while !pipe.unsent.is_empty() && pipe.flight_bytes < plan.socket_bytes {
            let longest = if self.rng.percent(5) { 1 + self.rng.below(8) } else { plan.fragment_max };
            let length = pipe.unsent.len().min(self.rng.range(1, longest) as usize);
            let bytes: Vec<u8> = pipe.unsent.drain(..length).collect();
            let wire = Duration::from_nanos(1_000_000_000 * length as u64 / plan.bytes_per_second);
            let sent = pipe.free_at.map_or(clock.now(), |free| free.max(clock.now())) + wire;
            pipe.free_at = Some(sent);
            let due = sent + plan.latency + self.rng.up_to(plan.jitter) + link.extra_latency;
            let due = pipe.last_due.map_or(due, |last| last.max(due));
            pipe.last_due = Some(due);
            pipe.flight_bytes += length;
            pipe.flight.push_back((due, bytes));
            clock.at(due, Event::Deliver(id, to));
        }
    }

    /// [`Event::Deliver`] has come: whether this end has something new to read, and whether the other one may send.
    pub(crate) fn on_deliver(&mut self, clock: &mut Clock, id: ConnId, to: Side) -> (bool, bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return (false, false) };
        let (plan, link) = (&self.plans[conn.path], self.links[conn.path]);
        let mut delivered = false;
        while let Some(&(due, _)) = conn.pipes[to as usize].flight.front() {
            if due > clock.now() {
                break;
            }
            let (pipe, end) = (&mut conn.pipes[to as usize], &mut conn.ends[to as usize]);
            let full = end.open && end.received.len() >= plan.socket_bytes;
            if link.hole[to as usize] || conn.frozen[to as usize] || full {
                pipe.stuck = true;
                break;
            }
            let (_, mut bytes) = pipe.flight.pop_front().expect("just seen");
            pipe.flight_bytes -= bytes.len();
            if !end.open || end.reset {
                // This end is closed: its kernel answers with a reset.
                clock.after(plan.latency, Event::Reset(id, to.other()));
                continue;
            }
            pipe.stream.corrupt(&mut self.rng, conn.digests, link.corrupted, &mut bytes);
            end.received.extend(bytes);
            delivered = true;
        }
        delivered |= self.deliver_end(id, to);
        self.transmit(clock, id, to);
        let room = self.room(id, to.other()) > 0;
        let wanted =
            self.conns.get_mut(&id).is_some_and(|conn| room && std::mem::take(&mut conn.pipes[to as usize].wanted));
        self.forget(id);
        (delivered, wanted)
    }

    /// The end of what was sent arrives when nothing is left before it: whether it has.
    fn deliver_end(&mut self, id: ConnId, to: Side) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let (pipe, end) = (&mut conn.pipes[to as usize], &mut conn.ends[to as usize]);
        if pipe.tail != Tail::End || end.finished || !pipe.unsent.is_empty() || !pipe.flight.is_empty() {
            return false;
        }
        pipe.stuck = self.links[conn.path].hole[to as usize] || conn.frozen[to as usize];
        end.finished = !pipe.stuck;
        end.finished
    }

    /// Takes up to `most` bytes out of the socket.
    pub(crate) fn receive(&mut self, clock: &mut Clock, id: ConnId, at: Side, most: usize) -> Vec<u8> {
        let Some(conn) = self.conns.get_mut(&id) else { return Vec::new() };
        let end = &mut conn.ends[at as usize];
        let count = end.received.len().min(most);
        let bytes = end.received.drain(..count).collect();
        let pipe = &mut conn.pipes[at as usize];
        if pipe.stuck && !conn.frozen[at as usize] && !self.links[conn.path].hole[at as usize] {
            pipe.stuck = false;
            clock.after(Duration::ZERO, Event::Deliver(id, at));
        }
        bytes
    }

    /// Bytes that wait for whoever has this end.
    pub(crate) fn received_bytes(&self, id: ConnId, at: Side) -> usize {
        self.conns.get(&id).map_or(0, |conn| conn.ends[at as usize].received.len())
    }

    pub(crate) fn has_received(&self, id: ConnId, at: Side) -> bool {
        self.received_bytes(id, at) > 0
    }

    /// Closes an end with a reset: what its socket holds is gone, what is on its way may arrive yet, and the reset too.
    pub(crate) fn close(&mut self, clock: &mut Clock, id: ConnId, side: Side) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let end = &mut conn.ends[side as usize];
        if !end.open {
            return;
        }
        end.open = false;
        end.received.clear();
        if conn.silent {
            conn.ends[side.other() as usize].open = false;
        }
        let (plan, link) = (&self.plans[conn.path], self.links[conn.path]);
        let to = side.other();
        let pipe = &mut conn.pipes[to as usize];
        pipe.unsent.clear();
        let holed = link.hole[to as usize] || conn.frozen[to as usize];
        // Nothing that is lost from now on is sent again.
        let survivors = if holed { 0 } else { self.rng.index(pipe.flight.len() + 1) };
        pipe.flight.truncate(survivors);
        let mut last = clock.now();
        let late = if self.rng.percent(40) { self.rng.up_to(plan.lifetime) } else { Duration::ZERO };
        for (due, _) in &mut pipe.flight {
            *due = (*due + late).min(clock.now() + plan.lifetime);
            last = last.max(*due);
            clock.at(*due, Event::Deliver(id, to));
        }
        pipe.flight_bytes = pipe.flight.iter().map(|(_, bytes)| bytes.len()).sum();
        // A host sends a reset, and a reset is sent only once. A target may repeat its end until the host hears it.
        let lost = match side {
            Side::Host => holed || self.rng.percent(20),
            Side::Target => self.rng.percent(if holed { 50 } else { 5 }),
        };
        if conn.established && holed && !lost {
            self.unheard.push(id);
        } else if conn.established && !lost {
            // The reset may overtake bytes in flight. Those bytes then find the connection gone.
            let when = if self.rng.percent(70) { last } else { clock.now() };
            clock.at(when + plan.latency, Event::Reset(id, to));
        }
        self.forget(id);
    }

    /// [`Event::Reset`] has come: whether the end did not know yet.
    pub(crate) fn on_reset(&mut self, id: ConnId, side: Side) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let end = &mut conn.ends[side as usize];
        let news = end.open && !end.reset;
        end.reset = true;
        news
    }

    /// A middlebox, or a peer's kernel, resets a connection at both ends; or forgets it, and an end or both hear nothing of it.
    pub(crate) fn reset(&mut self, clock: &mut Clock, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        for side in [Side::Host, Side::Target] {
            let pipe = &mut conn.pipes[side as usize];
            pipe.unsent.clear();
            pipe.tail = Tail::Cut;
            let keep = self.rng.index(pipe.flight.len() + 1);
            pipe.flight.truncate(keep);
            pipe.flight_bytes = pipe.flight.iter().map(|(_, bytes)| bytes.len()).sum();
            let delay = self.rng.up_to(Duration::from_millis(20));
            if self.rng.percent(85) {
                clock.after(delay, Event::Reset(id, side));
            }
        }
    }

    /// The connections over a path on which the host's end is open.
    pub(crate) fn of_path(&self, path: usize) -> Vec<ConnId> {
        let open = |conn: &Conn| conn.path == path && conn.ends[Side::Host as usize].open;
        self.conns.iter().filter(|(_, conn)| open(conn)).map(|(&id, _)| id).collect()
    }

    /// The connections on which the host's end is open.
    pub(crate) fn of_host(&self) -> Vec<ConnId> {
        let open = |conn: &Conn| conn.ends[Side::Host as usize].open;
        self.conns.iter().filter(|(_, conn)| open(conn)).map(|(&id, _)| id).collect()
    }

    pub(crate) fn freeze(&mut self, id: ConnId, to: [bool; 2]) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.frozen = to;
        }
    }

    /// After a hole or a freeze has ended: stuck data are sent again, if their sender still exists.
    pub(crate) fn resume(&mut self, clock: &mut Clock) {
        let host = Side::Host as usize;
        for id in std::mem::take(&mut self.unheard) {
            match self.conns.get(&id) {
                Some(conn) if conn.frozen[host] || self.links[conn.path].hole[host] => self.unheard.push(id),
                Some(_) => clock.after(self.rng.up_to(Duration::from_millis(400)), Event::Reset(id, Side::Host)),
                None => {}
            }
        }
        for (&id, conn) in &mut self.conns {
            for side in [Side::Host, Side::Target] {
                let to = side as usize;
                let sender = conn.ends[side.other() as usize].open || conn.pipes[to].tail == Tail::End;
                let blocked = conn.frozen[to] || self.links[conn.path].hole[to];
                if !blocked && std::mem::take(&mut conn.pipes[to].stuck) {
                    if !sender {
                        conn.pipes[to].flight.clear();
                        conn.pipes[to].flight_bytes = 0;
                    }
                    // Retransmission timers back off.
                    let delay = self.rng.up_to(Duration::from_millis(400));
                    clock.after(delay, Event::Deliver(id, side));
                }
            }
        }
    }

    /// Removes connections that both ends have left.
    fn forget(&mut self, id: ConnId) {
        let done = |conn: &Conn| {
            conn.ends.iter().all(|end| !end.open) && conn.pipes.iter().all(|pipe| pipe.flight.is_empty() || pipe.stuck)
        };
        if self.conns.get(&id).is_some_and(done) {
            self.conns.remove(&id);
        }
    }

    /// Connections that one end at least holds open.
    pub(crate) fn open(&self) -> usize {
        self.conns.values().filter(|conn| conn.ends.iter().any(|end| end.open)).count()
    }
}
