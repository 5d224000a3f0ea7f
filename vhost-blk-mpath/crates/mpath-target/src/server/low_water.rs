//! `SO_RCVLOWAT` (socket(7)): how many bytes a socket has to have before it is readable.
//!
//! None of our libraries sets it, hence the only `unsafe` of this crate.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

use socket2::Socket;

/// The most that is waited for: of any receive buffer a part, and packets enough that to wake up is nothing beside them.
const MOST_BYTES: u32 = 64 << 10;
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
        let bytes = missing_bytes.clamp(1, MOST_BYTES);
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
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::ioctl_fionread;

    use super::*;

    const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn is_readable(stream: &TcpStream, within: &Timespec) -> bool {
        poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(within)).unwrap() > 0
    }

    /// Sends `bytes`, and waits until they are there.
    fn arrive(sender: &mut TcpStream, stream: &TcpStream, bytes: usize) {
        let before = ioctl_fionread(stream).unwrap();
        sender.write_all(&vec![7; bytes]).unwrap();
        while ioctl_fionread(stream).unwrap() < before + bytes as u64 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_socket_is_readable_with_what_is_missing_or_a_good_part_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut low_water = LowWater::new();
        for (missing, enough) in [(1000, 1000), (MOST_BYTES + 1, MOST_BYTES), (0, MOST_BYTES + 1)] {
            low_water.set(&stream, missing).unwrap();
            let there = ioctl_fionread(&stream).unwrap() as u32;
            if there + 1 < enough {
                arrive(&mut sender, &stream, (enough - 1 - there) as usize);
                assert!(!is_readable(&stream, &AT_ONCE), "{missing} are missing, and one less than {enough} are there");
            }
            arrive(&mut sender, &stream, 1);
            assert!(is_readable(&stream, &PATIENCE), "{missing} are missing, and {enough} are there");
        }
        // And the end of all data is told, however little came.
        low_water.set(&stream, 2 * MOST_BYTES).unwrap();
        let _ = std::io::copy(&mut (&stream).take(u64::from(MOST_BYTES) + 1), &mut std::io::sink()).unwrap();
        drop(sender);
        assert!(is_readable(&stream, &PATIENCE));
    }
}
