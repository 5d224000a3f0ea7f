//! Bytes on their way from one end of a connection to the other.

use monotonic::Duration;

use super::corruption::corrupt_any;
use super::{Net, Reset, SenderState};
use crate::clock::{Clock, Event};
use crate::connection::{ConnId, Side};

impl Net {
    /// Room in the socket for bytes to send.
    pub(crate) fn room(&self, id: ConnId, from: Side) -> usize {
        let Some(conn) = self.conns.get(&id) else { return 0 };
        let pipe = &conn.pipes[from.other() as usize];
        self.plans[conn.path].socket_bytes.saturating_sub(pipe.unsent.len())
    }

    /// Passes bytes to the socket, and plain text to that of a target with TLS. Returns the number of bytes that it takes.
    pub(crate) fn send(&mut self, clock: &mut Clock, id: ConnId, from: Side, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room(id, from));
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.pipes[from.other() as usize].wants_room = taken < bytes.len();
            match conn.tls.as_mut().filter(|_| from == Side::Target) {
                Some(end) => {
                    let encrypted = end.encrypt(&bytes[..taken]);
                    self.put(id, from, &encrypted);
                }
                None => self.put(id, from, &bytes[..taken]),
            }
        }
        self.transmit(clock, id, from.other());
        taken
    }

    /// Puts bytes into the socket.
    pub(super) fn put(&mut self, id: ConnId, from: Side, bytes: &[u8]) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let pipe = &mut conn.pipes[from.other() as usize];
        if pipe.sender != SenderState::Cut {
            pipe.unsent.extend(bytes);
        }
    }

    /// Sends the bytes in the socket, as far as the receiver can take them.
    pub(super) fn transmit(&mut self, clock: &mut Clock, id: ConnId, to: Side) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let (plan, link) = (&self.plans[conn.path], self.links[conn.path]);
        let pipe = &mut conn.pipes[to as usize];
        while !pipe.unsent.is_empty() && pipe.in_flight_bytes < plan.socket_bytes {
            let longest = if self.rng.percent(5) { 1 + self.rng.below(8) } else { plan.fragment_max };
            let length = pipe.unsent.len().min(self.rng.range(1, longest) as usize);
            let bytes: Vec<u8> = pipe.unsent.drain(..length).collect();
            let wire = Duration::from_nanos(1_000_000_000 * length as u64 / plan.bytes_per_second);
            let sent = pipe.free_at.map_or(clock.now(), |free| free.max(clock.now())) + wire;
            pipe.free_at = Some(sent);
            let due = sent + plan.latency + self.rng.up_to(plan.jitter) + link.extra_latency;
            let due = pipe.last_due.map_or(due, |last| last.max(due));
            pipe.last_due = Some(due);
            self.pieces_delayed += u64::from(!link.extra_latency.is_zero());
            pipe.in_flight_bytes += length;
            pipe.in_flight.push_back((due, bytes));
            clock.at(due, Event::Deliver(id, to));
        }
    }

    /// Handles [`Event::Deliver`]. Returns whether this end has new bytes to read, and whether the other end has room to send.
    pub(crate) fn on_deliver(&mut self, clock: &mut Clock, id: ConnId, to: Side) -> (bool, bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return (false, false) };
        let (plan, link) = (&self.plans[conn.path], self.links[conn.path]);
        let mut delivered = false;
        while let Some(&(due, _)) = conn.pipes[to as usize].in_flight.front() {
            if due > clock.now() {
                break;
            }
            let (pipe, socket) = (&mut conn.pipes[to as usize], &mut conn.sockets[to as usize]);
            let full = socket.open && socket.received.len() >= plan.socket_bytes;
            if link.black_hole[to as usize] || conn.frozen[to as usize] || full {
                self.deliveries_frozen += u64::from(conn.frozen[to as usize] && !pipe.stuck);
                pipe.stuck = true;
                break;
            }
            let (_, mut bytes) = pipe.in_flight.pop_front().expect("just seen");
            pipe.in_flight_bytes -= bytes.len();
            if !socket.open || socket.reset != Reset::None {
                // This end is closed: its kernel answers with a reset.
                clock.after(plan.latency, Event::Reset(id, to.other()));
                continue;
            }
            if conn.tls.is_some() {
                corrupt_any(&mut self.rng, link.flips_per_10k, &mut bytes);
            } else {
                pipe.pdus.corrupt(&mut self.rng, conn.digests, link.flips_per_10k, &mut bytes);
            }
            socket.received.extend(bytes);
            delivered = true;
        }
        delivered |= self.deliver_end(id, to);
        self.transmit(clock, id, to);
        let room = self.room(id, to.other()) > 0;
        let wants_room =
            self.conns.get_mut(&id).is_some_and(|conn| room && std::mem::take(&mut conn.pipes[to as usize].wants_room));
        self.forget(id);
        (delivered, wants_room)
    }

    /// Delivers the end of the stream after its last byte. Returns whether the end has arrived.
    fn deliver_end(&mut self, id: ConnId, to: Side) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let (pipe, socket) = (&mut conn.pipes[to as usize], &mut conn.sockets[to as usize]);
        if pipe.sender != SenderState::Closed
            || socket.finished
            || !pipe.unsent.is_empty()
            || !pipe.in_flight.is_empty()
        {
            return false;
        }
        pipe.stuck = self.links[conn.path].black_hole[to as usize] || conn.frozen[to as usize];
        socket.finished = !pipe.stuck;
        socket.finished
    }

    /// Takes up to `most` bytes out of the socket. At a target with TLS, these become plain text.
    pub(crate) fn receive(&mut self, clock: &mut Clock, id: ConnId, at: Side, most: usize) -> Vec<u8> {
        loop {
            let bytes = self.take(clock, id, at, most);
            if at == Side::Host || bytes.is_empty() {
                return bytes;
            }
            let plain = self.decrypt(clock, id, bytes);
            if !plain.is_empty() {
                return plain;
            }
        }
    }

    fn take(&mut self, clock: &mut Clock, id: ConnId, at: Side, most: usize) -> Vec<u8> {
        let Some(conn) = self.conns.get_mut(&id) else { return Vec::new() };
        let socket = &mut conn.sockets[at as usize];
        let count = socket.received.len().min(most);
        let bytes = socket.received.drain(..count).collect();
        let pipe = &mut conn.pipes[at as usize];
        if pipe.stuck && !conn.frozen[at as usize] && !self.links[conn.path].black_hole[at as usize] {
            pipe.stuck = false;
            clock.after(Duration::ZERO, Event::Deliver(id, at));
        }
        bytes
    }

    /// The number of bytes that wait in the socket.
    pub(crate) fn received_bytes(&self, id: ConnId, at: Side) -> usize {
        self.conns.get(&id).map_or(0, |conn| conn.sockets[at as usize].received.len())
    }

    pub(crate) fn has_received(&self, id: ConnId, at: Side) -> bool {
        self.received_bytes(id, at) > 0
    }
}
