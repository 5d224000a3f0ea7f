//! Decides: a receive waits for this many bytes.
//!
//! `SO_RCVLOWAT` (socket(7)): the low-water mark of a socket. It is the number of bytes at which the socket becomes
//! readable and a waiting reader is woken.
//!
//! No library of this project sets it, hence the only `unsafe` of this crate.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{SockRef, Socket};

/// Largest mark. It covers enough packets that the cost of the wake-up is small per packet. Readers that take data as a
/// sign of life still see one at each mark.
const MARK_BYTES_MAX: u32 = 32 << 10;
/// Part of the receive buffer that a mark may use, as a divisor. The kernel also counts its own overhead in the buffer:
/// for a small packet in a page of 64 KiB this is 46 times the packet. An MPTCP socket whose buffer is full with
/// overhead is not readable (`mptcp_epollin_ready`), unlike a TCP socket.
const BUFFER_DIVISOR: usize = 64;
/// A reader that gets fewer bytes than this is woken for almost each packet. If the network card merges packets, or
/// over loopback, more bytes arrive at once. A mark would only keep the reader from working in parallel with the
/// sender, and make TCP acknowledge more often.
const SMALL_ARRIVAL_BYTES: usize = 16 << 10;
/// The first receive window of an MPTCP connection after [`widen_first_window`].
pub const FIRST_WINDOW_BYTES: u32 = 2 << 20;

/// The low-water mark of one socket.
#[derive(Debug)]
pub struct LowWater {
    bytes: u32,
    /// Bytes received since the last wait.
    received: usize,
    /// Whether few bytes had arrived at the last wait without a mark.
    arrivals_are_small: bool,
}

impl LowWater {
    /// The state of a socket without a mark.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: 1, received: 0, arrivals_are_small: false }
    }

    /// Counts received bytes.
    pub fn received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes);
    }

    /// Sets the mark. Call this before each wait for `socket`. If packets arrive one by one, the socket becomes
    /// readable only with `missing_bytes`, or a good part of them. All of these bytes must be certain to arrive.
    /// Without a mark, each packet of a payload causes a wake-up. On a slow link that leaves the processor little time
    /// for other work.
    ///
    /// # Errors
    ///
    /// If a mark that was set before cannot be changed. It is no error if a socket takes no mark at all.
    pub fn wait_for(&mut self, socket: impl AsFd, missing_bytes: u32) -> io::Result<()> {
        let received = std::mem::take(&mut self.received);
        if self.bytes == 1 {
            self.arrivals_are_small = received < SMALL_ARRIVAL_BYTES;
        }
        let mut bytes = if self.arrivals_are_small { missing_bytes.clamp(1, MARK_BYTES_MAX) } else { 1 };
        if bytes > 1 {
            let part = SockRef::from(&socket).recv_buffer_size().unwrap_or(0) / BUFFER_DIVISOR;
            bytes = bytes.min(u32::try_from(part).unwrap_or(u32::MAX).max(1));
        }
        if bytes != self.bytes {
            match set(socket, bytes) {
                Ok(()) => self.bytes = bytes,
                Err(error) if self.bytes > 1 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

impl Default for LowWater {
    fn default() -> Self {
        Self::new()
    }
}

/// Gives MPTCP connections accepted on this socket a large first receive window. While a window grows, Linux drops some
/// of the data that arrive out of order behind it, though it has allowed the sender to send them. The whole connection
/// then waits for a retransmission. Call this after `bind` and before `listen`.
///
/// The kernel enlarges a receive buffer for its low-water mark (`mptcp_set_rcvlowat`, Linux 6.8), up to the third value
/// of `net.ipv4.tcp_rmem`, and lets it grow further. `SO_RCVBUF` is limited by `net.core.rmem_max`, and would fix the
/// size.
///
/// # Errors
///
/// Those of `setsockopt(2)`.
pub fn widen_first_window(socket: &Socket) -> io::Result<()> {
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
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::ioctl_fionread;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);
    const SMALL: u32 = SMALL_ARRIVAL_BYTES as u32;

    struct Pair {
        sender: TcpStream,
        stream: TcpStream,
        low_water: LowWater,
    }

    impl Pair {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            Self { sender, stream: listener.accept().unwrap().0, low_water: LowWater::new() }
        }

        /// Sends until `bytes` are in the receive buffer, and waits for their arrival.
        fn arrive(&mut self, bytes: u32) {
            let there = |stream: &TcpStream| ioctl_fionread(stream).unwrap() as u32;
            self.sender.write_all(&vec![7; (bytes - there(&self.stream)) as usize]).unwrap();
            let since = Instant::now();
            while there(&self.stream) < bytes {
                assert!(since.elapsed() < TIMEOUT, "{} of {bytes} bytes", there(&self.stream));
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        fn receive(&mut self, bytes: u32) {
            self.arrive(bytes);
            let mut reader = std::io::Read::take(&self.stream, bytes.into());
            assert_eq!(std::io::copy(&mut reader, &mut std::io::sink()).unwrap(), bytes.into());
            self.low_water.received(bytes as usize);
        }

        fn wait_for(&mut self, missing_bytes: u32) {
            self.low_water.wait_for(&self.stream, missing_bytes).unwrap();
        }

        fn is_readable(&self, within: Duration) -> bool {
            let within = Timespec::try_from(within).unwrap();
            poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&within)).unwrap() > 0
        }
    }

    #[test]
    fn a_socket_is_readable_with_the_missing_bytes_or_a_good_part_of_them() {
        let mut pair = Pair::new();
        let most =
            MARK_BYTES_MAX.min((SockRef::from(&pair.stream).recv_buffer_size().unwrap() / BUFFER_DIVISOR) as u32);
        assert!(most > 1000, "{most}");
        for (missing, enough) in [(1000, 1000), (u32::MAX, most)] {
            pair.wait_for(missing);
            pair.arrive(enough - 1);
            assert!(!pair.is_readable(Duration::ZERO), "{missing} are missing, and one less than {enough} are there");
            pair.arrive(enough);
            assert!(pair.is_readable(TIMEOUT), "{missing} are missing, and {enough} are there");
        }
        pair.receive(most);
        pair.wait_for(0);
        pair.arrive(1);
        assert!(pair.is_readable(TIMEOUT), "none is missing");
        // The end of the data makes the socket readable, whatever the mark.
        pair.wait_for(MARK_BYTES_MAX);
        assert!(!pair.is_readable(Duration::ZERO));
        let Pair { sender, stream, low_water } = pair;
        drop(sender);
        let pair = Pair { sender: stream.try_clone().unwrap(), stream, low_water };
        assert!(pair.is_readable(TIMEOUT));
    }

    #[test]
    fn a_descriptor_without_marks_gets_none() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut low_water = LowWater::new();
        low_water.wait_for(&file, MARK_BYTES_MAX).unwrap();
        assert_eq!(low_water.bytes, 1);
        // If a mark is set, even a descriptor that is no socket gives an error.
        low_water.bytes = 2;
        assert!(low_water.wait_for(&file, MARK_BYTES_MAX).is_err());
    }

    #[test]
    fn large_arrivals_get_no_mark() {
        let mut pair = Pair::new();
        for (received, waits) in
            [(&[SMALL - 1][..], true), (&[SMALL / 2, SMALL / 2], false), (&[], true), (&[2 * SMALL], false)]
        {
            for &bytes in received {
                pair.receive(bytes);
            }
            pair.wait_for(MARK_BYTES_MAX);
            pair.arrive(1);
            assert_eq!(!pair.is_readable(if waits { Duration::ZERO } else { TIMEOUT }), waits, "{received:?}");
            if waits {
                // Bytes received at a mark do not show how packets arrive.
                pair.receive(SMALL);
                pair.wait_for(MARK_BYTES_MAX);
                pair.arrive(1);
                assert!(!pair.is_readable(Duration::ZERO), "{received:?}");
            }
            pair.receive(1);
            pair.wait_for(0);
        }
    }
}
