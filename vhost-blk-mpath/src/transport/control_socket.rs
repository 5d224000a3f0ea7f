//! A socket of the control thread, in clear text or in TLS.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use mpath_config::PathAddress;
use nvme_tls::Session;
use nvme_tls::psk::Suite;
use tokio::net::TcpStream;

use super::clear_text::{ClearTextPort, ClearTextPorts};
use super::error::TransportError;
use super::stream::connect_stream;

/// A connected socket with its send buffer. Dropping it resets the connection.
pub(crate) struct ControlSocket {
    /// `None` once the socket is given away.
    stream: Option<TcpStream>,
    /// Established, if the connection uses TLS.
    session: Option<Session>,
    /// `None` if the connection uses TLS.
    clear_text: Option<Box<ClearTextPort>>,
    out: Vec<u8>,
    buffer: Box<[u8]>,
}

impl ControlSocket {
    /// Connects in clear text.
    pub(super) async fn connect_in_clear_text(
        address: &PathAddress,
        ports: &ClearTextPorts,
    ) -> Result<Self, TransportError> {
        Ok(Self::new(connect_stream(address).await?, None, Some(ports.port(address).into())))
    }

    /// An established connection with TLS.
    pub(super) fn with_tls(stream: TcpStream, session: Session) -> Self {
        Self::new(stream, Some(session), None)
    }

    fn new(stream: TcpStream, session: Option<Session>, clear_text: Option<Box<ClearTextPort>>) -> Self {
        let buffer = vec![0; 16 * 1024].into_boxed_slice();
        Self { stream: Some(stream), session, clear_text, out: Vec::new(), buffer }
    }

    /// The address of the controller.
    pub(crate) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream().peer_addr()
    }

    /// The cipher suite. `None` in clear text.
    pub(crate) fn suite(&self) -> Option<Suite> {
        self.session.as_ref()?.suite()
    }

    fn stream(&self) -> &TcpStream {
        self.stream.as_ref().expect("it is given away as a whole")
    }

    /// The send buffer, to append to.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends what the socket accepts now, and returns received bytes, if there are any.
    pub(crate) fn exchange(&mut self) -> Result<Option<&[u8]>, TransportError> {
        let stream = self.stream.as_ref().expect("it is given away as a whole");
        let Some(session) = &mut self.session else {
            let received = send(stream, &mut self.out).and_then(|()| receive(stream, &mut self.buffer));
            if let Some(port) = &mut self.clear_text {
                match received {
                    Ok(None) => {}
                    Ok(Some(_)) => port.answer(),
                    Err(error) => return Err(port.lost(error)),
                }
            }
            return received.map(|received| received.map(|bytes| &self.buffer[..bytes]));
        };
        session.write(&self.out)?;
        self.out.clear();
        send(stream, session.pending())?;
        loop {
            match session.read(&mut self.buffer)? {
                0 => match receive(stream, &mut self.buffer)? {
                    Some(bytes) => session.receive(&self.buffer[..bytes]),
                    None => return Ok(None),
                },
                bytes => return Ok(Some(&self.buffer[..bytes])),
            }
        }
    }

    /// Resolves when the socket is readable, or writable with bytes to be sent. Otherwise wakes the task when it is.
    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let readable = self.stream().poll_read_ready(context);
        let is_sent = self.out.is_empty() && self.session.as_ref().is_none_or(Session::is_sent);
        let writable = if is_sent { Poll::Pending } else { self.stream().poll_write_ready(context) };
        // The next read or write finds any error.
        if readable.is_ready() || writable.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sends an `H2CTermReq`, as far as the socket accepts it at once. The connection is reset next, so the controller
    /// may not get to read it.
    pub(crate) fn tell(&mut self, pdu: &[u8]) {
        let Some(session) = &mut self.session else {
            let _ = self.stream().try_write(pdu);
            return;
        };
        // A session that has ended can tell nothing.
        if session.write(pdu).is_ok() {
            let encrypted = std::mem::take(session.pending());
            let _ = self.stream().try_write(&encrypted);
        }
    }

    /// The socket in blocking mode, as `io_uring` needs it, and its session.
    pub(crate) fn into_blocking(mut self) -> io::Result<(OwnedFd, Option<Session>)> {
        let stream = self.stream.take().expect("it is given away once").into_std()?;
        stream.set_nonblocking(false)?;
        Ok((stream.into(), self.session.take()))
    }
}

/// Sends what the socket accepts now.
pub(super) fn send(stream: &TcpStream, out: &mut Vec<u8>) -> Result<(), TransportError> {
    while !out.is_empty() {
        match stream.try_write(out) {
            Ok(sent) => drop(out.drain(..sent)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(TransportError::Socket(error)),
        }
    }
    Ok(())
}

/// Receives the number of bytes that have arrived, if there are any.
pub(super) fn receive(stream: &TcpStream, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
    match stream.try_read(buffer) {
        Ok(0) => Err(TransportError::Closed),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(TransportError::Socket(error)),
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

impl Drop for ControlSocket {
    /// Resets the connection. A keep-alive still on its way must not arrive after the fence has begun.
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            reactor::reset(stream);
        }
    }
}
