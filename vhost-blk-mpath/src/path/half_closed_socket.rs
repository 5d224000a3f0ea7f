//! A half-closed socket.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use tokio::net::TcpStream;

/// The number of reads before anything else is done.
const READS_MAX: usize = 16;

/// The socket of an I/O queue whose sending side is shut down. Dropping it resets the connection, so that undelivered
/// bytes are never delivered.
pub(crate) struct HalfClosedSocket {
    socket: OwnedFd,
    /// The same socket, unless it cannot be watched.
    stream: io::Result<TcpStream>,
}

impl HalfClosedSocket {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let stream = socket.try_clone().and_then(|socket| {
            let stream = StdTcpStream::from(socket);
            stream.set_nonblocking(true)?;
            TcpStream::from_std(stream)
        });
        Self { socket, stream }
    }

    /// Drops bytes that have arrived. Returns whether the stream has ended without a failure, once it has ended.
    pub(crate) fn read_to_end(&self) -> Option<bool> {
        let Ok(stream) = &self.stream else { return Some(false) };
        let mut buffer = [0; 16 << 10];
        for _ in 0..READS_MAX {
            match stream.try_read(&mut buffer) {
                Ok(0) => return Some(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(false),
            }
        }
        None
    }

    /// Resolves when [`read_to_end`](Self::read_to_end) has something to do. Otherwise wakes the task then.
    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        // The next read finds any error.
        self.stream.as_ref().map_or(Poll::Ready(()), |stream| stream.poll_read_ready(context).map(|_| ()))
    }
}

impl Drop for HalfClosedSocket {
    fn drop(&mut self) {
        reactor::reset(&self.socket);
    }
}
