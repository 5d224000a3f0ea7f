//! Decides: a connection with TLS fails, or has ended.
//!
//! The record layer of one connection: bytes of the socket in and out, plain text out and in.
//!
//! ```text
//!   Handshake ── key confirmed by both sides ──▶ Established ── close_notify, alert, error ──▶ ended
//! ```

use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode, SslStream,
    SslVerifyMode, SslVersion,
};

use crate::TlsError;
use crate::pipe::{Pipe, RecordLimit};
use crate::psk::{Candidate, Suite};
use crate::psk_callbacks::{KeyLookup, look_up, offer, offered_identity};

/// OpenSSL cannot set up a session: this system has no memory, or lacks a suite.
#[derive(Debug, thiserror::Error)]
#[error("OpenSSL cannot set up a session: {0}")]
pub struct SetupError(#[from] ErrorStack);

/// A TLS connection without its socket.
pub struct Session {
    stream: SslStream<Pipe>,
    established: bool,
    /// The error that has ended the connection.
    failed: Option<TlsError>,
}

impl Session {
    /// The host's side, which offers this key.
    ///
    /// # Errors
    ///
    /// See [`SetupError`].
    pub fn host(key: Candidate) -> Result<Self, SetupError> {
        // A host that gets a certificate refuses it: no authority is trusted.
        let mut ssl = Ssl::new(&*context(key.suite().name(), SslVerifyMode::PEER)?)?;
        offer(&mut ssl, key);
        ssl.set_connect_state();
        Self::new(ssl)
    }

    /// The controller's side, which takes any of its keys that the host offers.
    ///
    /// # Errors
    ///
    /// See [`SetupError`].
    pub fn controller(keys: Arc<dyn KeyLookup>) -> Result<Self, SetupError> {
        let mut ssl = Ssl::new(&*context("TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256", SslVerifyMode::NONE)?)?;
        look_up(&mut ssl, keys);
        ssl.set_accept_state();
        Self::new(ssl)
    }

    fn new(ssl: Ssl) -> Result<Self, SetupError> {
        Ok(Self { stream: SslStream::new(ssl, Pipe::default())?, established: false, failed: None })
    }

    /// Takes bytes from the socket.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.stream.get_mut().receive(bytes);
    }

    /// Goes on with the handshake as far as the received bytes allow. Returns whether the handshake is over. Send
    /// [`pending`](Self::pending) next, after an error too.
    ///
    /// # Errors
    ///
    /// The peer refuses, or is refused. The connection has ended.
    pub fn handshake(&mut self) -> Result<bool, TlsError> {
        self.check()?;
        if self.established {
            return Ok(true);
        }
        match self.stream.do_handshake() {
            // OpenSSL counts an external key as the key of an earlier session.
            Ok(()) if self.stream.ssl().session_reused() => {
                self.established = true;
                self.stream.get_mut().limit = Some(RecordLimit::default());
                Ok(true)
            }
            Ok(()) => Err(self.fail(TlsError::NoPsk)),
            Err(error) if matches!(error.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE) => Ok(false),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// The suite of an established connection.
    #[must_use]
    pub fn suite(&self) -> Option<Suite> {
        let name = self.stream.ssl().current_cipher().filter(|_| self.established)?.standard_name()?;
        [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384].into_iter().find(|suite| suite.name() == name)
    }

    /// Decrypts received bytes into `plain`. Returns the number of bytes, or 0 if nothing is left to decrypt.
    ///
    /// # Errors
    ///
    /// The peer has closed the connection, a record is not authentic, or too many records have no data. The connection has
    /// ended.
    ///
    /// # Panics
    ///
    /// The handshake is not over, or `plain` is empty.
    pub fn read(&mut self, plain: &mut [u8]) -> Result<usize, TlsError> {
        assert!(self.established && !plain.is_empty(), "nothing is read before the handshake is over");
        self.check()?;
        match self.stream.ssl_read(plain) {
            Ok(bytes) => {
                if let Some(limit) = &mut self.stream.get_mut().limit {
                    limit.data(bytes);
                }
                Ok(bytes)
            }
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(0),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Encrypts all of `plain` for the socket, in records of up to 16 KiB.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    ///
    /// # Panics
    ///
    /// The handshake is not over.
    pub fn write(&mut self, mut plain: &[u8]) -> Result<(), TlsError> {
        assert!(self.established, "nothing is written before the handshake is over");
        self.check()?;
        while !plain.is_empty() {
            match self.stream.ssl_write(plain) {
                Ok(bytes) => plain = &plain[bytes..],
                Err(error) => return Err(self.failure(&error)),
            }
        }
        Ok(())
    }

    /// Sends a `KeyUpdate`, a record without data.
    #[cfg(test)]
    pub(crate) fn update_key(&mut self) {
        crate::psk_callbacks::update_key(self.stream.ssl());
        self.stream.do_handshake().expect("the connection is established");
    }

    /// Tells the peer that nothing more is sent (`close_notify`).
    pub fn close(&mut self) {
        // After an error there is nothing to tell.
        let _ = self.stream.shutdown();
    }

    /// Bytes for the socket. The caller takes from the front what the socket has accepted.
    pub fn pending(&mut self) -> &mut Vec<u8> {
        &mut self.stream.get_mut().to_send
    }

    /// Whether [`pending`](Self::pending) is empty.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.stream.get_ref().to_send.is_empty()
    }

    /// Fails if an error has ended the connection, with that error.
    fn check(&self) -> Result<(), TlsError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: TlsError) -> TlsError {
        self.failed = Some(error.clone());
        error
    }

    fn failure(&mut self, error: &openssl::ssl::Error) -> TlsError {
        let is_flood = self.stream.get_ref().limit.as_ref().is_some_and(RecordLimit::is_exceeded);
        let error = if error.code() == ErrorCode::ZERO_RETURN {
            TlsError::Closed
        } else if is_flood {
            TlsError::TooManyRecords
        } else {
            let stack = error.ssl_error().cloned().unwrap_or_else(ErrorStack::get);
            let ssl = self.stream.ssl();
            if self.established { TlsError::of(stack) } else { TlsError::of_handshake(stack, offered_identity(ssl)) }
        };
        self.fail(error)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("established", &self.established).finish_non_exhaustive()
    }
}

/// TLS 1.3 with these suites, external keys with a Diffie-Hellman exchange, and nothing else. There are no certificates, no
/// tickets and no early data.
fn context(suites: &str, verify: SslVerifyMode) -> Result<SslContext, SetupError> {
    let mut context = SslContextBuilder::new(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_ciphersuites(suites)?;
    context.set_verify(verify);
    context.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION);
    context.set_num_tickets(0)?;
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    Ok(context.build())
}
