//! `SO_RCVLOWAT` (socket(7)): how many bytes a socket has to have before it is readable, and before who waits for it is woken.
//!
//! None of our libraries sets it, hence the only `unsafe` of this crate.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{SockRef, Socket};

/// The most that is waited for: packets enough that to wake up is little beside them. Who takes data on their way for a sign of life sees one each time.
const MOST_BYTES: u32 = 32 << 10;
/// And the part of the receive buffer that it is at the most. The kernel counts its own overhead in that: of a small packet in a page of 64 KiB
/// 46 times its bytes. An MPTCP socket whose buffer is full for that is not readable (`mptcp_epollin_ready`), as one of TCP is.
const BUFFER_PART: usize = 64;
/// Who gets less than this is woken for each packet, or nearly. Where the card puts packets together, or over loopback, more is there at once; to wait
/// for it there would only keep the reader from working beside the sender, and has TCP acknowledge more often.
const FEW_BYTES: usize = 16 << 10;
/// What the receive window of an MPTCP connection begins with after [`widen_first_window`].
pub const FIRST_WINDOW_BYTES: u32 = 2 << 20;

/// What one socket waits for.
#[derive(Debug)]
pub struct LowWater {
    bytes: u32,
    /// What was received since the last wait.
    received: usize,
    /// The last time that it was not waited for more, little came.
    few: bool,
}

impl LowWater {
    /// Of a socket of which nothing was asked.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: 1, received: 0, few: false }
    }

    /// So many bytes were received.
    pub fn received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes);
    }

    /// To be called before each wait for `socket`: if packets come one by one, it is readable only once it has `missing_bytes`, or a good part of them.
    /// All of them have to be sure to come. Without it there is a wake-up for each packet of a payload, which on a slow link leaves the
    /// processor little time for anything else.
    ///
    /// # Errors
    /// A mark that was set could not be changed. Where none can be set, none is.
    pub fn wait_for(&mut self, socket: impl AsFd, missing_bytes: u32) -> io::Result<()> {
        let received = std::mem::take(&mut self.received);
        if self.bytes == 1 {
            self.few = received < FEW_BYTES;
        }
        let mut bytes = if self.few { missing_bytes.clamp(1, MOST_BYTES) } else { 1 };
        if bytes > 1 {
            let part = SockRef::from(&socket).recv_buffer_size().unwrap_or(0) / BUFFER_PART;
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

/// Has what is accepted on this MPTCP socket begin with a large receive window. While one grows, Linux drops some of what arrives out of order
/// behind it, though it has let the sender send that, and the whole connection waits for a retransmission. To be bound, and not to listen yet.
///
/// The kernel enlarges a receive buffer to what its low-water mark asks for (`mptcp_set_rcvlowat`, Linux 6.8), within the third value of
/// `net.ipv4.tcp_rmem`, and lets it grow on. `SO_RCVBUF` ends at `net.core.rmem_max`, and would fix it.
///
/// # Errors
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

    const PATIENCE: Duration = Duration::from_secs(20);
    const FEW: u32 = FEW_BYTES as u32;

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

        /// Sends so many bytes more that `bytes` are there, and waits until they are.
        fn arrive(&mut self, bytes: u32) {
            let there = |stream: &TcpStream| ioctl_fionread(stream).unwrap() as u32;
            self.sender.write_all(&vec![7; (bytes - there(&self.stream)) as usize]).unwrap();
            let since = Instant::now();
            while there(&self.stream) < bytes {
                assert!(since.elapsed() < PATIENCE, "{} of {bytes} bytes", there(&self.stream));
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
    fn a_socket_is_readable_with_what_is_missing_or_a_good_part_of_it() {
        let mut pair = Pair::new();
        let most = MOST_BYTES.min((SockRef::from(&pair.stream).recv_buffer_size().unwrap() / BUFFER_PART) as u32);
        assert!(most > 1000, "{most}");
        for (missing, enough) in [(1000, 1000), (u32::MAX, most)] {
            pair.wait_for(missing);
            pair.arrive(enough - 1);
            assert!(!pair.is_readable(Duration::ZERO), "{missing} are missing, and one less than {enough} are there");
            pair.arrive(enough);
            assert!(pair.is_readable(PATIENCE), "{missing} are missing, and {enough} are there");
        }
        pair.receive(most);
        pair.wait_for(0);
        pair.arrive(1);
        assert!(pair.is_readable(PATIENCE), "none is missing");
        // And the end of all data is told, however little came.
        pair.wait_for(MOST_BYTES);
        assert!(!pair.is_readable(Duration::ZERO));
        let Pair { sender, stream, low_water } = pair;
        drop(sender);
        let pair = Pair { sender: stream.try_clone().unwrap(), stream, low_water };
        assert!(pair.is_readable(PATIENCE));
    }

    #[test]
    fn where_no_mark_can_be_set_none_is() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut low_water = LowWater::new();
        low_water.wait_for(&file, MOST_BYTES).unwrap();
        assert_eq!(low_water.bytes, 1);
        // Not even for what is no socket at all, if there is a mark.
        low_water.bytes = 2;
        assert!(low_water.wait_for(&file, MOST_BYTES).is_err());
    }

    #[test]
    fn where_much_is_there_at_once_nothing_is_waited_for() {
        let mut pair = Pair::new();
        for (received, waits) in
            [(&[FEW - 1][..], true), (&[FEW / 2, FEW / 2], false), (&[], true), (&[2 * FEW], false)]
        {
            for &bytes in received {
                pair.receive(bytes);
            }
            pair.wait_for(MOST_BYTES);
            pair.arrive(1);
            assert_eq!(!pair.is_readable(if waits { Duration::ZERO } else { PATIENCE }), waits, "{received:?}");
            if waits {
                // What was waited for does not tell how packets come.
                pair.receive(FEW);
                pair.wait_for(MOST_BYTES);
                pair.arrive(1);
                assert!(!pair.is_readable(Duration::ZERO), "{received:?}");
            }
            pair.receive(1);
            pair.wait_for(0);
        }
    }
}
