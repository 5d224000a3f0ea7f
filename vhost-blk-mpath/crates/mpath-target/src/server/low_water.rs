//! `SO_RCVLOWAT` (socket(7)): how many bytes a socket has to have before it is readable.
//!
//! None of our libraries sets it, hence the only `unsafe` of this crate.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{SockRef, Socket};

/// The most that is waited for: packets enough that to wake up is nothing beside them.
const MOST_BYTES: u32 = 64 << 10;
/// And the part of the receive buffer that it is at the most. The kernel's own overhead is counted in that, and an MPTCP socket whose buffer
/// is full of small packets is not readable for that (`mptcp_epollin_ready`).
const BUFFER_PART: usize = 16;
/// What the receive window of an MPTCP connection begins with.
pub(super) const FIRST_WINDOW_BYTES: u32 = 2 << 20;

/// What a connection waits for.
pub(super) struct LowWater {
    bytes: u32,
}

impl LowWater {
    /// Of a socket of which nothing was asked.
    pub(super) fn new() -> Self {
        Self { bytes: 1 }
    }

    /// From now on `stream` is readable once it has `missing_bytes`, all of which have to be sure to come, or a good part of them. Without
    /// it there is a wake-up for each packet of a payload, which on a slow link leaves the processor little time for anything else.
    pub(super) fn set(&mut self, stream: &TcpStream, missing_bytes: u32) -> io::Result<()> {
        let mut bytes = missing_bytes.clamp(1, MOST_BYTES);
        if bytes > 1 {
            let part = SockRef::from(stream).recv_buffer_size()? / BUFFER_PART;
            bytes = bytes.min(u32::try_from(part).unwrap_or(u32::MAX).max(1));
        }
        if bytes != self.bytes {
            set(stream, bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

/// Has what is accepted on this MPTCP socket begin with a large receive window. While one grows, Linux drops some of what arrives out of order
/// behind it, though it has let the sender send that, and the whole connection waits for a retransmission. To be bound, and not to listen yet.
///
/// The kernel enlarges a receive buffer to what its low-water mark asks for (`mptcp_set_rcvlowat`, Linux 6.8), within the third value of
/// `net.ipv4.tcp_rmem`, and lets it grow on. `SO_RCVBUF` ends at `net.core.rmem_max`, and would fix it.
pub(super) fn widen_first_window(socket: &Socket) -> io::Result<()> {
    set(socket, FIRST_WINDOW_BYTES)?;
    set(socket, 1)
}

#[expect(unsafe_code, reason = "no library sets this option")]
fn set(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let fd = socket.as_fd();
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let length = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of an integer that lives until the call returns.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const bytes).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::ioctl_fionread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn is_readable(stream: &TcpStream, within: Duration) -> bool {
        let within = Timespec::try_from(within).unwrap();
        poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&within)).unwrap() > 0
    }

    fn there(stream: &TcpStream) -> u32 {
        ioctl_fionread(stream).unwrap() as u32
    }

    /// Sends so many bytes more that `bytes` are there, and waits until they are.
    fn arrive(sender: &mut TcpStream, stream: &TcpStream, bytes: u32) {
        sender.write_all(&vec![7; (bytes - there(stream)) as usize]).unwrap();
        let since = Instant::now();
        while there(stream) < bytes {
            assert!(since.elapsed() < PATIENCE, "{} of {bytes} bytes", there(stream));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_socket_is_readable_with_what_is_missing_or_a_good_part_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let most = MOST_BYTES.min((SockRef::from(&stream).recv_buffer_size().unwrap() / BUFFER_PART) as u32);
        assert!(most > 1000, "{most}");
        let mut low_water = LowWater::new();
        for (missing, enough) in [(1000, 1000), (u32::MAX, most)] {
            low_water.set(&stream, missing).unwrap();
            arrive(&mut sender, &stream, enough - 1);
            assert!(
                !is_readable(&stream, Duration::ZERO),
                "{missing} are missing, and one less than {enough} are there"
            );
            arrive(&mut sender, &stream, enough);
            assert!(is_readable(&stream, PATIENCE), "{missing} are missing, and {enough} are there");
        }
        std::io::copy(&mut (&stream).take(most.into()), &mut std::io::sink()).unwrap();
        low_water.set(&stream, 0).unwrap();
        arrive(&mut sender, &stream, 1);
        assert!(is_readable(&stream, PATIENCE), "none is missing");
        // And the end of all data is told, however little came.
        low_water.set(&stream, MOST_BYTES).unwrap();
        assert!(!is_readable(&stream, Duration::ZERO));
        drop(sender);
        assert!(is_readable(&stream, PATIENCE));
    }
}
