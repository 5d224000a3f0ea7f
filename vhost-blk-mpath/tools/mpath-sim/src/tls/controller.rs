//! The controller's end of a connection.
//!
//! ```text
//!   bytes that arrive ──→ session ──→ plain text                       until the host has handed over the connection
//!
//!   bytes that the host sends ──→ session ──→ plain text, for the checker at once             afterwards
//!   bytes that arrive ──→ compared with these ──→ the same plain text, for the target later
//! ```
//!
//! The checker needs a command when the host hands its bytes to the socket. These bytes may arrive late or never. So the session
//! decrypts them then, and a record that arrives counts as authentic if it is the record that was sent.

use nvme_tls::{Session, TlsError};

use super::records::{Received, Records, take_record};
use crate::connection::Side;

/// The records of an I/O connection that were sent since the host handed it over.
#[derive(Debug)]
struct Tap {
    /// Bytes of the host that are not a whole record yet.
    unparsed: Vec<u8>,
    /// By receiving [`Side`].
    records: [Records; 2],
}

/// The controller's end of a connection.
#[derive(Debug)]
pub(crate) struct ControllerEnd {
    session: Session,
    has_failed: bool,
    tap: Option<Tap>,
}

impl ControllerEnd {
    pub(super) fn new(session: Session) -> Self {
        Self { session, has_failed: false, tap: None }
    }

    /// Whether the connection has ended with an error.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The host has passed its session to an I/O thread. Nothing is on its way.
    pub(crate) fn handed_over(&mut self) {
        self.tap = Some(Tap { unparsed: Vec::new(), records: [Records::new(), Records::new()] });
    }

    /// Takes bytes that have arrived at the target. Returns plain text, and bytes for the host.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
        if self.has_failed {
            return (Vec::new(), Vec::new());
        }
        if let Some(tap) = &mut self.tap {
            let (plain, received) = tap.records[Side::Target as usize].receive(bytes);
            self.has_failed = received != Received::Authentic;
            return (plain, Vec::new());
        }
        let plain = self.decrypt(bytes);
        self.has_failed = plain.is_err();
        (plain.unwrap_or_default(), std::mem::take(self.session.pending()))
    }

    /// Encrypts plain text of the target.
    pub(crate) fn encrypt(&mut self, plain: &[u8]) -> Vec<u8> {
        if self.has_failed || self.session.write(plain).is_err() {
            return Vec::new();
        }
        let encrypted = std::mem::take(self.session.pending());
        if let Some(tap) = &mut self.tap {
            tap.records[Side::Host as usize].all_sent(&encrypted, plain);
        }
        encrypted
    }

    /// Ends the stream of the target in order. Returns bytes for the host.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        self.session.close();
        let encrypted = std::mem::take(self.session.pending());
        if let Some(tap) = &mut self.tap {
            tap.records[Side::Host as usize].sent(encrypted.clone(), Vec::new());
        }
        encrypted
    }

    /// The plain text of bytes that an I/O thread hands to its socket. `None` if these bytes are no records of its session.
    pub(crate) fn host_sends(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.tap.as_mut()?.unparsed.extend(bytes);
        let mut all = Vec::new();
        while let Some(record) = take_record(&mut self.tap.as_mut()?.unparsed) {
            let record = record.ok()?;
            let plain = self.decrypt(&record).ok()?;
            all.extend(&plain);
            self.tap.as_mut()?.records[Side::Target as usize].sent(record, plain);
        }
        Some(all)
    }

    /// The plain text of bytes that an I/O thread receives.
    pub(crate) fn host_receives(&mut self, bytes: &[u8]) -> (Vec<u8>, Received) {
        let tap = self.tap.as_mut().expect("an I/O thread has the connection");
        tap.records[Side::Host as usize].receive(bytes)
    }

    fn decrypt(&mut self, bytes: &[u8]) -> Result<Vec<u8>, TlsError> {
        self.session.receive(bytes);
        let mut all = Vec::new();
        let mut plain = [0; 16 << 10];
        while self.session.handshake()?
            && let bytes @ 1.. = self.session.read(&mut plain)?
        {
            all.extend(&plain[..bytes]);
        }
        Ok(all)
    }
}
