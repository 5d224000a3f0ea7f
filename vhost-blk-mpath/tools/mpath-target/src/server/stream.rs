//! The byte stream of a connection, in clear text or in TLS. Nothing blocks.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nvme_tls::{KeyLookup, Session, TlsError};

use super::shared::PortSecurity;
use crate::tls_key::GeneratedKeys;

/// The most plain text that is encrypted before the socket has taken it.
const WRITE_BYTES: usize = 128 << 10;
/// The most bytes of one receive.
const RECEIVE_BYTES: usize = 64 << 10;

/// The content type of a TLS record with a `ClientHello`. NVMe/TCP begins with the type of `ICReq`, which is 0.
const TLS_HANDSHAKE: u8 = 22;

pub(super) struct Stream {
    tcp: TcpStream,
    layer: Layer,
}

enum Layer {
    ClearText,
    Tls(Box<Tls>),
    /// The first byte of the host decides between clear text and TLS with these keys.
    Undecided(Arc<GeneratedKeys>),
}

struct Tls {
    session: Session,
    buffer: Box<[u8]>,
    is_established: bool,
    /// The last read has filled its buffer.
    has_unread: bool,
    /// Why reading has failed, once complete records before the wrong one were read.
    failed: Option<TlsError>,
}

impl Stream {
    /// The stream of a new connection. The host speaks first.
    pub(super) fn new(tcp: TcpStream, security: &PortSecurity) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        let layer = match security {
            PortSecurity::ClearText => Layer::ClearText,
            PortSecurity::Tls(keys) => Layer::Tls(Tls::new(Arc::clone(keys))?),
            PortSecurity::Concatenation(keys) => Layer::Undecided(Arc::clone(keys)),
        };
        Ok(Self { tcp, layer })
    }

    fn tls(&self) -> Option<&Tls> {
        match &self.layer {
            Layer::Tls(tls) => Some(tls),
            Layer::ClearText | Layer::Undecided(_) => None,
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.tls().is_some()
    }

    /// Whether received bytes may wait here to be read. The socket does not report them.
    pub(super) fn has_unread(&self) -> bool {
        self.tls().is_some_and(|tls| tls.has_unread)
    }

    /// Whether encrypted bytes wait for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        self.tls().is_some_and(|tls| !tls.session.is_sent())
    }

    /// Sends encrypted bytes that wait, as far as the socket takes them.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.layer {
            Layer::Tls(tls) => tls.flush(&self.tcp),
            Layer::ClearText | Layer::Undecided(_) => Ok(()),
        }
    }

    /// As [`Read::read`]: fills `buf` as far as bytes have arrived. 0 is the end of the stream.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Layer::Undecided(keys) = &self.layer {
            let mut first = [0];
            if self.tcp.peek(&mut first)? == 0 {
                return Ok(0);
            }
            self.layer = match first {
                [TLS_HANDSHAKE] => Layer::Tls(Tls::new(Arc::clone(keys) as Arc<_>)?),
                _ => Layer::ClearText,
            };
        }
        match &mut self.layer {
            Layer::Tls(tls) => tls.read(&self.tcp, buf),
            Layer::ClearText | Layer::Undecided(_) => (&self.tcp).read(buf),
        }
    }

    /// As [`Write::write`].
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.layer {
            Layer::Tls(tls) => tls.write(&self.tcp, bytes),
            Layer::ClearText | Layer::Undecided(_) => (&self.tcp).write(bytes),
        }
    }

    /// Ends the stream to the host, behind all written bytes.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if let Layer::Tls(tls) = &mut self.layer {
            tls.session.close();
            tls.flush(&self.tcp)?;
        }
        self.tcp.shutdown(Shutdown::Write)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl Tls {
    fn new(keys: Arc<dyn KeyLookup>) -> io::Result<Box<Self>> {
        let session = Session::controller(keys).map_err(io::Error::other)?;
        let buffer = vec![0; RECEIVE_BYTES].into_boxed_slice();
        Ok(Box::new(Self { session, buffer, is_established: false, has_unread: false, failed: None }))
    }

    fn flush(&mut self, mut tcp: &TcpStream) -> io::Result<()> {
        while !self.session.is_sent() {
            match tcp.write(self.session.pending()) {
                Ok(bytes) => drop(self.session.pending().drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Decrypts into `buf` until it is full, or until nothing is left.
    fn read(&mut self, mut tcp: &TcpStream, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        self.has_unread = false;
        if let Some(error) = self.failed.take() {
            return Err(failed("connection", error));
        }
        loop {
            if !self.is_established {
                let done = self.session.handshake();
                let flushed = self.flush(tcp);
                self.is_established = done.map_err(|error| failed("handshake", error))?;
                flushed?;
            }
            while self.is_established && filled < buf.len() {
                match self.session.read(&mut buf[filled..]) {
                    Ok(0) => break,
                    Ok(bytes) => filled += bytes,
                    Err(TlsError::Closed) => return Ok(filled),
                    Err(error) if filled > 0 => {
                        self.failed = Some(error);
                        self.has_unread = true;
                        return Ok(filled);
                    }
                    Err(error) => return Err(failed("connection", error)),
                }
            }
            if filled == buf.len() {
                self.has_unread = true;
                return Ok(filled);
            }
            match tcp.read(&mut self.buffer) {
                Ok(bytes) if bytes > 0 => self.session.receive(&self.buffer[..bytes]),
                _ if filled > 0 => return Ok(filled),
                end_or_error => return end_or_error,
            }
        }
    }

    fn write(&mut self, tcp: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(tcp)?;
        if !self.session.is_sent() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
        self.session.write(bytes).map_err(io::Error::other)?;
        self.flush(tcp)?;
        Ok(bytes.len())
    }
}

/// Reports why a connection ends. Only this side can tell an unknown identity from a wrong key.
fn failed(what: &str, error: TlsError) -> io::Error {
    eprintln!("mpath-target: TLS {what} failed: {error}");
    io::Error::other(error)
}
