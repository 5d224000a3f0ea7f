//! A socket of the task of a path, in clear text or in TLS.

use std::collections::VecDeque;

use nvme_tls::Session;

use super::socket::{IoFailure, send_all};
use crate::connection::{ConnId, Side};
use crate::context::Ctx;

/// A socket with its send buffer.
#[derive(Debug)]
pub(super) struct ControlSocket {
    pub(super) conn: ConnId,
    session: Option<Session>,
    out: VecDeque<u8>,
    received: Vec<u8>,
}

impl ControlSocket {
    pub(super) fn new(conn: ConnId, session: Option<Session>) -> Self {
        Self { conn, session, out: VecDeque::new(), received: Vec::new() }
    }

    /// Goes on with the handshakes of TCP and TLS. Returns whether they are over.
    pub(super) fn connect(&mut self, ctx: &mut Ctx) -> Result<bool, IoFailure> {
        if !ctx.net.is_established(self.conn) {
            return Ok(false);
        }
        let Some(session) = &mut self.session else { return Ok(true) };
        loop {
            let done = session.handshake();
            self.out.extend(session.pending().drain(..));
            send_all(ctx, self.conn, &mut self.out);
            if done.map_err(|_| IoFailure)? {
                return Ok(true);
            }
            let bytes = ctx.net.receive(&mut ctx.clock, self.conn, Side::Host, 16 * 1024);
            if bytes.is_empty() {
                return Ok(false);
            }
            session.receive(&bytes);
        }
    }

    /// Sends these bytes and those that are left, as far as the socket takes them.
    pub(super) fn send(&mut self, ctx: &mut Ctx, bytes: &[u8]) -> Result<(), IoFailure> {
        match &mut self.session {
            Some(session) => {
                session.write(bytes).map_err(|_| IoFailure)?;
                self.out.extend(session.pending().drain(..));
            }
            None => self.out.extend(bytes),
        }
        send_all(ctx, self.conn, &mut self.out);
        Ok(())
    }

    /// Takes up to `most` bytes off the socket at a time. Returns none if no more have arrived.
    pub(super) fn receive(&mut self, ctx: &mut Ctx, most: usize) -> Result<&[u8], IoFailure> {
        loop {
            if let Some(session) = &mut self.session {
                self.received.resize(16 * 1024, 0);
                if let bytes @ 1.. = session.read(&mut self.received).map_err(|_| IoFailure)? {
                    return Ok(&self.received[..bytes]);
                }
            }
            self.received = ctx.net.receive(&mut ctx.clock, self.conn, Side::Host, most);
            match &mut self.session {
                Some(session) if !self.received.is_empty() => session.receive(&self.received),
                _ => return Ok(&self.received),
            }
        }
    }

    /// The connection and its session, for an I/O thread.
    pub(super) fn into_parts(self) -> (ConnId, Option<Session>) {
        (self.conn, self.session)
    }
}
