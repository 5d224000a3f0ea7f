//! `io_uring`: set-up, submission, and one turn of waiting and reaping.

use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use low_water::LowWater;
use monotonic::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use socket2::SockRef;

use super::{Event, Ring};

/// Submission entries. A larger burst is submitted early.
const ENTRIES: u32 = 256;

/// A receive waits for data before its first attempt (`IORING_RECVSEND_POLL_FIRST`).
const POLL_FIRST: u16 = 1;

/// The sysctl that turns `io_uring` off.
const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

/// The operations of [`Ring`].
const OPERATIONS: [u8; 6] = [
    opcode::PollAdd::CODE,
    opcode::PollRemove::CODE,
    opcode::AsyncCancel::CODE,
    opcode::SendMsg::CODE,
    opcode::Recv::CODE,
    opcode::RecvMsg::CODE,
];

/// Why a ring cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The host has turned `io_uring` off.
    #[error(
        "io_uring cannot be set up: {source}: kernel.io_uring_disabled is {value} on this host; run `sysctl kernel.io_uring_disabled=0`"
    )]
    Disabled {
        /// The value of the sysctl: 1 or 2.
        value: u8,
        /// The error of `io_uring_setup`.
        source: io::Error,
    },
    /// A filter forbids `io_uring_setup` to this process, or the kernel lacks it.
    #[error(
        "io_uring cannot be set up: {0}: a seccomp filter, as containers have, or a security module forbids io_uring to this process, or the kernel \
         lacks it; allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile of the container or in \
         SystemCallFilter= of the unit, and use Linux 6.1 or newer with CONFIG_IO_URING"
    )]
    Forbidden(#[source] io::Error),
    /// `io_uring_setup` failed for another reason. A limit on locked memory or file descriptors may be reached.
    #[error(
        "io_uring cannot be set up: {0}; it needs Linux 6.1 or newer, and room under RLIMIT_MEMLOCK and RLIMIT_NOFILE"
    )]
    Setup(#[source] io::Error),
}

impl RingError {
    /// An error of `io_uring_setup`, explained by `disabled`, the text of the sysctl if it can be read.
    fn of_setup(source: io::Error, disabled: Option<&str>) -> Self {
        if !matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) {
            return Self::Setup(source);
        }
        match disabled.and_then(|text| text.trim().parse().ok()) {
            None | Some(0) => Self::Forbidden(source),
            Some(value) => Self::Disabled { value, source },
        }
    }
}

pub(crate) struct Uring {
    io: IoUring,
    /// The tokens of receives whose sockets had more data when they ended.
    with_more: Vec<u64>,
}

/// Resets a connection: the kernel discards undelivered data.
///
/// Closing with `SO_LINGER` does the same for TCP, but for MPTCP only with kernels of 2026 and later.
pub fn reset(socket: impl AsFd) {
    let (family, bytes) = (libc::AF_UNSPEC as libc::sa_family_t, size_of::<libc::sa_family_t>());
    // The address is only its family, because the sandbox of I/O threads forbids longer ones.
    // SAFETY: the kernel reads as many bytes as `family` has.
    let result =
        unsafe { libc::connect(socket.as_fd().as_raw_fd(), (&raw const family).cast(), bytes as libc::socklen_t) };
    if result < 0 {
        // The connection may have ended already.
        tracing::debug!(error = %io::Error::last_os_error(), "cannot reset a connection");
    }
}

impl Uring {
    pub(crate) fn new() -> Result<Self, RingError> {
        // One thread submits and reaps. Completion work runs when it waits, and does not interrupt it.
        let io = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(4 * ENTRIES)
            .setup_r_disabled()
            .build(ENTRIES)
            .map_err(|error| RingError::of_setup(error, fs::read_to_string(DISABLED).ok().as_deref()))?;
        // Operations of a ring pass the thread's filter of system calls. So the ring executes no others, and nothing can
        // be registered with it.
        let mut allowed = OPERATIONS.map(Restriction::sqe_op);
        io.submitter().register_restrictions(&mut allowed).map_err(RingError::Setup)?;
        io.submitter().register_enable_rings().map_err(RingError::Setup)?;
        Ok(Self { io, with_more: Vec::new() })
    }

    /// Queues an operation. If there is no room, submits the queued ones first.
    ///
    /// # Safety
    ///
    /// Every address in `entry` must stay valid until its completion has been reaped.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: forwarded from the caller.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.io.submit() {
                Ok(_) => {}
                // Both pass: a signal, and a moment without memory.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether [`Uring::turn`] has something to do: operations to submit, events, or work that produces events. Reads memory only.
    pub(crate) fn has_work(&mut self) -> bool {
        let has_to_enter = {
            let submission = self.io.submission();
            !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
        };
        has_to_enter || !self.io.completion().is_empty()
    }

    /// Submits the queued operations, waits for an event, and appends all events to `events`. Waits at most `timeout`.
    /// `None` waits for ever, zero does not wait.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let submitted = match timeout {
            None => self.io.submit_and_wait(1),
            // Without a wait. Version 0.7.15 of the crate passes the flag by which the kernel runs deferred work, if there is some.
            Some(Duration::ZERO) => self.io.submit(),
            Some(timeout) => {
                let timespec = types::Timespec::from(std::time::Duration::from(timeout));
                self.io.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&timespec))
            }
        };
        match submitted {
            Ok(_) => {}
            // ETIME: the wait ended. EBUSY: completions must be reaped first, as is done next. EINTR: a signal.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EBUSY | libc::EINTR | libc::EAGAIN)) => {}
            Err(error) => return Err(error),
        }
        for entry in self.io.completion() {
            let (token, flags) = (entry.user_data(), entry.flags());
            if cqueue::sock_nonempty(flags) && !self.with_more.contains(&token) {
                self.with_more.push(token);
            }
            events.push(Event { token, result: entry.result(), more: cqueue::more(flags) });
        }
        Ok(())
    }
}

impl Ring for Uring {
    type Socket = OwnedFd;

    fn watch(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let entry =
            opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).multi(true).build().user_data(token);
        // SAFETY: a poll names no memory; the kernel takes its own reference on the file.
        unsafe { self.push(&entry) }
    }

    fn unwatch(&mut self, token: u64, removal_token: u64) -> io::Result<()> {
        let entry = opcode::PollRemove::new(token).build().user_data(removal_token);
        // SAFETY: names no memory.
        unsafe { self.push(&entry) }
    }

    fn cancel(&mut self, token: u64, cancel_token: u64) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(token).build().user_data(cancel_token);
        // SAFETY: names no memory.
        unsafe { self.push(&entry) }
    }

    unsafe fn send(&mut self, socket: &OwnedFd, token: u64, message: *const libc::msghdr) -> io::Result<Option<i32>> {
        // Most sends find room in the socket. The end of an operation would cost a turn of its own.
        // SAFETY: vouched for by the caller.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        let result = match i32::try_from(sent) {
            Ok(bytes) if bytes >= 0 => bytes,
            _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        };
        if !matches!(-result, libc::EAGAIN | libc::EINTR) {
            return Ok(Some(result));
        }
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
        let entry = opcode::SendMsg::new(types::Fd(socket.as_raw_fd()), message).flags(flags).build();
        // SAFETY: vouched for by the caller.
        unsafe { self.push(&entry.user_data(token))? };
        Ok(None)
    }

    unsafe fn receive(&mut self, socket: &OwnedFd, token: u64, message: *mut libc::msghdr) -> io::Result<()> {
        let fd = types::Fd(socket.as_raw_fd());
        // SAFETY: the caller vouches that both can be read.
        let (segments, first) = unsafe { ((*message).msg_iovlen, *(*message).msg_iov) };
        // An empty socket is polled at once. The attempt to receive from it would be in vain.
        let at = self.with_more.iter().position(|with_more| *with_more == token);
        let has_more = at.map(|at| self.with_more.swap_remove(at)).is_some();
        let priority = if has_more { 0 } else { POLL_FIRST };
        let entry = if segments == 1 {
            // A plain receive is cheaper.
            let len = u32::try_from(first.iov_len).unwrap_or(u32::MAX);
            opcode::Recv::new(fd, first.iov_base.cast(), len).ioprio(priority).build()
        } else {
            opcode::RecvMsg::new(fd, message).ioprio(priority).build()
        };
        // SAFETY: vouched for by the caller.
        unsafe { self.push(&entry.user_data(token)) }
    }

    fn wait_for(&mut self, socket: &OwnedFd, low_water: &mut LowWater, missing_bytes: u32) -> io::Result<()> {
        low_water.wait_for(socket, missing_bytes)
    }

    fn send_at_once(&mut self, socket: &OwnedFd, bytes: &[u8]) {
        let _ = SockRef::from(socket).send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }

    fn shutdown(&mut self, socket: &OwnedFd) {
        let socket = SockRef::from(socket);
        // On a connected socket neither call can fail in a way that matters here. The first is for a process that ends
        // before it resets the connection: the kernel would still deliver its send buffer.
        let _ = socket.set_linger(Some(Duration::ZERO.into()));
        let _ = socket.shutdown(Shutdown::Both);
    }

    fn end_sending(&mut self, socket: &OwnedFd) -> bool {
        // The kernel adds HUP and ERR, which show a reset.
        let mut ended = [PollFd::new(socket, PollFlags::RDHUP)];
        let is_open = retry_on_intr(|| poll(&mut ended, Some(&Timespec::default()))) == Ok(0);
        is_open && SockRef::from(socket).shutdown(Shutdown::Write).is_ok()
    }

    fn reset(&mut self, socket: OwnedFd) {
        reset(socket);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn a_kernel_that_forbids_rings_is_told_from_a_filter() {
        let said = |errno, disabled| RingError::of_setup(io::Error::from_raw_os_error(errno), disabled).to_string();
        assert!(said(libc::EPERM, Some("2\n")).contains("kernel.io_uring_disabled is 2 on this host; run `sysctl"));
        for (errno, disabled) in [(libc::EPERM, Some("0\n")), (libc::ENOSYS, None), (libc::EACCES, Some("?"))] {
            let said = said(errno, disabled);
            assert!(said.contains("seccomp filter") && said.contains("SystemCallFilter="), "{said}");
        }
        let said = said(libc::ENOMEM, Some("0\n"));
        assert!(said.contains("RLIMIT_MEMLOCK") && !said.contains("seccomp"), "{said}");
    }

    /// The kernel has the event as deferred work, which it does only if it is told to.
    #[test]
    fn a_turn_without_a_wait_finds_what_has_happened() {
        let (mut ring, mut events) = (Uring::new().unwrap(), Vec::new());
        let watched = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        ring.watch(watched.as_fd(), 7).unwrap();
        ring.turn(Some(Duration::ZERO), &mut events).unwrap();
        assert!(events.is_empty() && !ring.has_work());
        rustix::io::write(&watched, &1_u64.to_ne_bytes()).unwrap();
        assert!(ring.has_work());
        ring.turn(Some(Duration::ZERO), &mut events).unwrap();
        assert_eq!(events.iter().map(|event| (event.token, event.more)).collect::<Vec<_>>(), [(7, true)]);
    }

    #[test]
    fn a_ring_executes_only_its_operations() {
        let mut ring = Uring::new().unwrap();
        let (name, mut events) = (c"/", Vec::new());
        let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), name.as_ptr()).build();
        for entry in [open, opcode::Nop::new().build()] {
            // SAFETY: `name` outlives the ring.
            unsafe { ring.push(&entry).unwrap() };
            ring.turn(None, &mut events).unwrap();
            assert_eq!(events.pop().map(|event| event.result), Some(-libc::EACCES));
        }
        let mut probe = io_uring::Probe::new();
        let registered = ring.io.submitter().register_probe(&mut probe);
        assert_eq!(registered.unwrap_err().raw_os_error(), Some(libc::EACCES));
    }
}
