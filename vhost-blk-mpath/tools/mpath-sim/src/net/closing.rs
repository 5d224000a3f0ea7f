//! Connections that are closed, reset or frozen, and their bytes that still arrive.

use monotonic::Duration;

use super::{Connection, Net, Reset, SenderState};
use crate::clock::{Clock, Event};
use crate::connection::{ConnId, Side};

impl Net {
    /// The target closes its end in order: all bytes in its socket are sent, and then the end of the stream.
    pub(crate) fn close_in_order(&mut self, clock: &mut Clock, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let socket = &mut conn.sockets[Side::Target as usize];
        if !std::mem::take(&mut socket.open) {
            return;
        }
        socket.received.clear();
        if conn.tls.is_some() && self.rng.percent(50) {
            self.end_session(id);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let pipe = &mut conn.pipes[Side::Host as usize];
        pipe.sender = if pipe.sender == SenderState::Cut { SenderState::Cut } else { SenderState::Closed };
        let last = pipe.last_due.map_or(clock.now(), |last| last.max(clock.now()));
        clock.at(last + self.plans[conn.path].latency, Event::Deliver(id, Side::Host));
        self.forget(id);
    }

    /// The host closes its sending side: all bytes in its socket are sent, and then the end of the stream.
    pub(crate) fn shut_down_sending(&mut self, clock: &mut Clock, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let pipe = &mut conn.pipes[Side::Target as usize];
        if pipe.sender != SenderState::Open {
            return;
        }
        pipe.sender = SenderState::Closed;
        let last = pipe.last_due.map_or(clock.now(), |last| last.max(clock.now()));
        clock.at(last + self.plans[conn.path].latency, Event::Deliver(id, Side::Target));
    }

    /// Closes an end with a reset. The bytes in its socket are gone. Bytes on their way may still arrive, and so may the reset.
    pub(crate) fn close(&mut self, clock: &mut Clock, id: ConnId, side: Side) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let socket = &mut conn.sockets[side as usize];
        if !socket.open {
            return;
        }
        socket.open = false;
        socket.received.clear();
        if conn.silent {
            conn.sockets[side.other() as usize].open = false;
        }
        let (plan, link) = (&self.plans[conn.path], self.links[conn.path]);
        let to = side.other();
        let pipe = &mut conn.pipes[to as usize];
        pipe.unsent.clear();
        pipe.sender = SenderState::Cut;
        let blocked = link.black_hole[to as usize] || conn.frozen[to as usize];
        // Bytes that are lost from now on are not sent again.
        let survivors = if blocked { 0 } else { self.rng.index(pipe.in_flight.len() + 1) };
        pipe.in_flight.truncate(survivors);
        let mut last = clock.now();
        let late = if self.rng.percent(40) { self.rng.up_to(plan.lifetime) } else { Duration::ZERO };
        for (due, _) in &mut pipe.in_flight {
            *due = (*due + late).min(clock.now() + plan.lifetime);
            last = last.max(*due);
            clock.at(*due, Event::Deliver(id, to));
        }
        pipe.in_flight_bytes = pipe.in_flight.iter().map(|(_, bytes)| bytes.len()).sum();
        // A host sends a reset, and a reset is sent only once. A target may repeat its reset until the host hears it.
        let lost = match side {
            Side::Host => blocked || self.rng.percent(20),
            Side::Target => self.rng.percent(if blocked { 50 } else { 5 }),
        };
        if conn.established && blocked && !lost {
            self.undelivered_resets.push(id);
        } else if conn.established && !lost {
            // The reset may overtake bytes in flight. Those bytes then find the connection gone.
            let when = if self.rng.percent(70) { last } else { clock.now() };
            clock.at(when + plan.latency, Event::Reset(id, to));
        }
        self.forget(id);
    }

    /// Handles [`Event::Reset`]. Returns whether this end is open and had not heard of a reset before.
    pub(crate) fn on_reset(&mut self, id: ConnId, side: Side) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let socket = &mut conn.sockets[side as usize];
        let news = socket.open && socket.reset == Reset::None;
        if socket.reset == Reset::None {
            socket.reset = Reset::Arrived;
        }
        news
    }

    /// Ends a connection as a middlebox or a kernel does. Each end may hear a reset, or nothing.
    pub(crate) fn reset(&mut self, clock: &mut Clock, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        for side in [Side::Host, Side::Target] {
            let pipe = &mut conn.pipes[side as usize];
            pipe.unsent.clear();
            pipe.sender = SenderState::Cut;
            let keep = self.rng.index(pipe.in_flight.len() + 1);
            pipe.in_flight.truncate(keep);
            pipe.in_flight_bytes = pipe.in_flight.iter().map(|(_, bytes)| bytes.len()).sum();
            let delay = self.rng.up_to(Duration::from_millis(20));
            if self.rng.percent(85) {
                clock.after(delay, Event::Reset(id, side));
            }
        }
    }

    /// Freezes or thaws a connection. `to` says for each receiving end whether nothing is delivered there.
    pub(crate) fn freeze(&mut self, id: ConnId, to: [bool; 2]) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.frozen = to;
        }
    }

    /// Sends stuck data again after a black hole or a freeze has ended, if their sender still exists.
    pub(crate) fn resume(&mut self, clock: &mut Clock) {
        let host = Side::Host as usize;
        for id in std::mem::take(&mut self.undelivered_resets) {
            match self.conns.get(&id) {
                Some(conn) if conn.frozen[host] || self.links[conn.path].black_hole[host] => {
                    self.undelivered_resets.push(id);
                }
                Some(_) => clock.after(self.rng.up_to(Duration::from_millis(400)), Event::Reset(id, Side::Host)),
                None => {}
            }
        }
        for (&id, conn) in &mut self.conns {
            for side in [Side::Host, Side::Target] {
                let to = side as usize;
                let has_sender =
                    conn.sockets[side.other() as usize].open || conn.pipes[to].sender == SenderState::Closed;
                let blocked = conn.frozen[to] || self.links[conn.path].black_hole[to];
                if !blocked && std::mem::take(&mut conn.pipes[to].stuck) {
                    if !has_sender {
                        conn.pipes[to].in_flight.clear();
                        conn.pipes[to].in_flight_bytes = 0;
                    }
                    // Retransmission timers back off.
                    let delay = self.rng.up_to(Duration::from_millis(400));
                    clock.after(delay, Event::Deliver(id, side));
                }
            }
        }
    }

    /// Removes a connection that both ends have closed and of which nothing arrives any more.
    pub(super) fn forget(&mut self, id: ConnId) {
        let done = |conn: &Connection| {
            conn.sockets.iter().all(|socket| !socket.open)
                && conn.pipes.iter().all(|pipe| pipe.in_flight.is_empty() || pipe.stuck)
        };
        if self.conns.get(&id).is_some_and(done) {
            self.conns.remove(&id);
        }
    }
}
