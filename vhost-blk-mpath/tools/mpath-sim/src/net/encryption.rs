//! Connections with TLS.

use super::Net;
use crate::clock::Clock;
use crate::connection::{ConnId, Side};
use crate::tls::{ControllerEnd, Received};

impl Net {
    /// The target uses TLS on a connection that it has accepted.
    pub(crate) fn encrypt(&mut self, id: ConnId, end: ControllerEnd) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.tls = Some(end);
        }
    }

    /// The host passes the connection and its session to an I/O thread.
    pub(crate) fn handed_over(&mut self, id: ConnId) {
        if let Some(end) = self.conns.get_mut(&id).and_then(|conn| conn.tls.as_mut()) {
            end.handed_over();
        }
    }

    /// Whether TLS has failed at the target.
    pub(crate) fn has_tls_failed(&self, id: ConnId) -> bool {
        self.conns.get(&id).and_then(|conn| conn.tls.as_ref()).is_some_and(ControllerEnd::has_failed)
    }

    /// The plain text of bytes that an I/O thread hands to its socket. `None` if they are not encrypted as they have to be.
    pub(crate) fn plain_sent(&mut self, id: ConnId, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.conns.get_mut(&id).and_then(|conn| conn.tls.as_mut()) {
            Some(end) => end.host_sends(bytes),
            None => Some(bytes.to_vec()),
        }
    }

    /// The plain text of bytes that an I/O thread receives.
    pub(crate) fn plain_received(&mut self, id: ConnId, bytes: &[u8]) -> (Vec<u8>, Received) {
        match self.conns.get_mut(&id).and_then(|conn| conn.tls.as_mut()) {
            Some(end) => end.host_receives(bytes),
            None => (bytes.to_vec(), Received::Authentic),
        }
    }

    /// Decrypts bytes that the target receives, and sends the answer of its session.
    pub(super) fn decrypt(&mut self, clock: &mut Clock, id: ConnId, bytes: Vec<u8>) -> Vec<u8> {
        let Some(conn) = self.conns.get_mut(&id) else { return bytes };
        let Some(end) = &mut conn.tls else { return bytes };
        let had_failed = end.has_failed();
        let (plain, answer) = end.receive(&bytes);
        self.tls_failures += u64::from(end.has_failed() && !had_failed);
        if !answer.is_empty() {
            self.put(id, Side::Target, &answer);
            self.transmit(clock, id, Side::Host);
        }
        plain
    }

    /// Tells the host that the target's stream ends, if the connection uses TLS.
    pub(super) fn end_session(&mut self, id: ConnId) {
        let Some(end) = self.conns.get_mut(&id).and_then(|conn| conn.tls.as_mut()) else { return };
        if !end.has_failed() {
            let alert = end.close();
            self.put(id, Side::Target, &alert);
        }
    }
}
