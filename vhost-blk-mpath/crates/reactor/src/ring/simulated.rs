//! A ring for a simulator, which decides the outcome and the time of each operation.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use low_water::LowWater;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Event, Ring};

/// The smallest page size.
const PAGE_BYTES: usize = 4096;
/// Most segments that the kernel reads in one call (`UIO_MAXIOV`).
const IOVECS_MAX: usize = 1024;

/// A call to a socket that takes no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketCall {
    /// Send these bytes, if there is room for all of them.
    SendAtOnce(Vec<u8>),
    /// Reset the connection, and end its operations soon.
    Shutdown,
    /// End the stream to the peer. No operation is under way.
    EndSending,
    /// Reset the connection. No call follows.
    Reset,
}

/// A send or a receive under way.
struct Operation<S> {
    socket: S,
    token: u64,
    /// Valid until the operation has been reported, as the caller that started it has vouched for.
    segments: Vec<libc::iovec>,
    /// Bytes sent.
    done: usize,
    is_cancelled: bool,
}

impl<S> Operation<S> {
    /// # Safety
    ///
    /// The message and all memory that it names stay valid until the end of the operation has been reported.
    unsafe fn new(socket: S, token: u64, message: *const libc::msghdr) -> Self {
        // SAFETY: vouched for by the caller.
        let segments = unsafe { std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen) };
        Self { socket, token, segments: segments.to_vec(), done: 0, is_cancelled: false }
    }

    fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.iov_len).sum()
    }

    /// The existing memory behind these bytes of the operation.
    fn part(&self, range: Range<usize>) -> Vec<libc::iovec> {
        let (mut skip, mut left) = (range.start, range.len());
        let cut = self.segments.iter().map(|segment| {
            let start = skip.min(segment.iov_len);
            let count = left.min(segment.iov_len - start);
            (skip, left) = (skip - start, left - count);
            libc::iovec { iov_base: segment.iov_base.wrapping_byte_add(start), iov_len: count }
        });
        cut.filter(|segment| segment.iov_len > 0).collect()
    }

    fn end(&self, result: i32) -> Event {
        Event { token: self.token, result, more: false }
    }
}

/// Does the work of the simulation. `mpath-sim instructions` leaves it out, by this name.
#[inline(never)]
fn uncounted_by_valgrind<T>(work: impl FnOnce() -> T) -> T {
    std::hint::black_box(work())
}

/// Splits a segment at page borders.
fn pages(segment: &libc::iovec) -> impl Iterator<Item = libc::iovec> + use<> {
    let (start, end) = (segment.iov_base, segment.iov_base.addr() + segment.iov_len);
    let mut at = start.addr();
    std::iter::from_fn(move || {
        let first = at;
        at = (first + 1).next_multiple_of(PAGE_BYTES).min(end);
        let page = libc::iovec { iov_base: start.wrapping_byte_add(first - start.addr()), iov_len: at - first };
        (first < end).then_some(page)
    })
}

/// Reads memory as the kernel does: an access that would raise SIGBUS is an error. Returns the number of bytes before
/// the first that cannot be read.
fn read(from: &[libc::iovec], to: &mut [u8]) -> usize {
    let to = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: the kernel writes nothing but `to`, and checks itself whether what it reads is there.
    let count = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const to, 1, from.as_ptr(), from.len() as libc::c_ulong, 0)
    };
    usize::try_from(count).unwrap_or_else(|_| {
        let error = io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "a process may read its own memory: {error}");
        0
    })
}

/// A ring whose sockets are named by `S`. Its owner decides how operations end.
pub struct SimulatedRing<S> {
    watches: Vec<(u64, OwnedFd)>,
    sends: Vec<Operation<S>>,
    receives: Vec<Operation<S>>,
    events: Vec<Event>,
    calls: Vec<(S, SocketCall)>,
    /// The bytes that sockets take at once.
    rooms: Vec<(S, usize)>,
    /// Sockets that fail sends at once.
    broken: Vec<S>,
    /// The bytes that sockets have taken at once.
    sent: Vec<(S, Vec<u8>)>,
    /// Sockets whose peers have ended their streams or reset the connection.
    ended: Vec<S>,
}

impl<S: Copy + Eq> Default for SimulatedRing<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Copy + Eq> SimulatedRing<S> {
    /// A ring without operations.
    #[must_use]
    pub fn new() -> Self {
        Self {
            watches: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
            events: Vec::new(),
            calls: Vec::new(),
            rooms: Vec::new(),
            broken: Vec::new(),
            sent: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Reports the watched descriptors that are signalled.
    pub fn poll(&mut self) {
        let mut polled: Vec<_> = self.watches.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)).collect();
        if !polled.is_empty() && poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            let signalled = polled.iter().zip(&self.watches).filter(|(fd, _)| !fd.revents().is_empty());
            self.events.extend(signalled.map(|(_, &(token, _))| Event { token, result: 1, more: true }));
        }
    }

    /// The end of the peer's stream or a reset of the connection has arrived.
    pub fn ended(&mut self, socket: S) {
        if !self.ended.contains(&socket) {
            self.ended.push(socket);
        }
    }

    /// Takes the events to report.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether there are events to report.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the calls made to sockets.
    pub fn take_calls(&mut self) -> Vec<(S, SocketCall)> {
        std::mem::take(&mut self.calls)
    }

    /// Says how many bytes of later sends each of these sockets takes at once. Others take none.
    pub fn set_rooms(&mut self, rooms: impl IntoIterator<Item = (S, usize)>) {
        self.rooms.clear();
        self.rooms.extend(rooms);
    }

    /// Says on which sockets later sends fail at once.
    pub fn set_broken(&mut self, sockets: impl IntoIterator<Item = S>) {
        self.broken.clear();
        self.broken.extend(sockets);
    }

    /// Takes the bytes that sockets have taken at once, in order.
    pub fn take_sent(&mut self) -> Vec<(S, Vec<u8>)> {
        std::mem::take(&mut self.sent)
    }

    /// The result of a send, if the socket can tell at once.
    fn try_send(&mut self, send: &Operation<S>) -> Option<i32> {
        if self.broken.contains(&send.socket) {
            return Some(-libc::EPIPE);
        }
        let (_, room) = self.rooms.iter_mut().find(|(socket, room)| *socket == send.socket && *room > 0)?;
        let parts = send.part(0..*room);
        let mut bytes = vec![0; parts.iter().map(|part| part.iov_len).sum()];
        let readable = read(&parts, &mut bytes);
        bytes.truncate(readable);
        if bytes.is_empty() {
            return Some(-libc::EFAULT);
        }
        *room -= bytes.len();
        let result = i32::try_from(bytes.len()).expect("a send has fewer bytes than 2 GiB");
        self.sent.push((send.socket, bytes));
        Some(result)
    }

    /// Bytes of the send on this socket that are not taken. `None` if there is no send.
    #[must_use]
    pub fn sends(&self, socket: S) -> Option<usize> {
        self.sends.iter().find(|send| send.socket == socket).map(|send| send.bytes() - send.done)
    }

    /// The existing bytes in `range` of those not taken, and how many of them come before the first that the kernel
    /// cannot read. Unreadable bytes are zero.
    #[must_use]
    pub fn unsent(&self, socket: S, range: Range<usize>) -> (Vec<u8>, usize) {
        let Some(send) = self.sends.iter().find(|send| send.socket == socket) else { return (Vec::new(), 0) };
        let parts = send.part(send.done + range.start..send.done + range.end);
        let mut bytes = vec![0; parts.iter().map(|part| part.iov_len).sum()];
        let readable = read(&parts, &mut bytes);
        let mut rest = if readable < bytes.len() { &mut bytes[..] } else { &mut [] };
        for page in parts.iter().flat_map(pages) {
            let (now, later) = rest.split_at_mut(page.iov_len.min(rest.len()));
            read(&[page], now);
            rest = later;
        }
        (bytes, readable)
    }

    /// The socket takes `bytes` more of its send. The last byte ends the send.
    ///
    /// # Panics
    ///
    /// If there is no send.
    pub fn sent(&mut self, socket: S, bytes: usize) {
        let send = self.sends.iter_mut().find(|send| send.socket == socket).expect("a send is under way");
        send.done += bytes;
        if send.done >= send.bytes() {
            self.end_send(socket, 0);
        }
    }

    /// Ends the send on a socket, if there is one. Its result is the number of bytes taken, or `result` if none was.
    pub fn end_send(&mut self, socket: S, result: i32) {
        for send in self.sends.extract_if(.., |send| send.socket == socket) {
            let done = i32::try_from(send.done).unwrap_or(i32::MAX);
            self.events.push(send.end(if done > 0 { done } else { result }));
        }
    }

    /// Bytes that the receive on this socket has room for. `None` if there is none.
    #[must_use]
    pub fn receives(&self, socket: S) -> Option<usize> {
        self.receives.iter().find(|receive| receive.socket == socket).map(Operation::bytes)
    }

    /// How many of the first `bytes` of this socket's receive come before the first byte that the kernel cannot write.
    #[must_use]
    pub fn reachable(&self, socket: S, bytes: usize) -> usize {
        let Some(receive) = self.receives.iter().find(|receive| receive.socket == socket) else { return 0 };
        if bytes == 0 {
            return 0;
        }
        let pages: Vec<_> = receive.part(0..bytes).iter().flat_map(pages).collect();
        // Shared memory is mapped for reading and writing, so the first byte of a page stands for all of it.
        let firsts: Vec<_> = pages.iter().map(|page| libc::iovec { iov_len: 1, ..*page }).collect();
        let are_there = firsts.chunks(IOVECS_MAX).map(|firsts| read(firsts, &mut vec![0; firsts.len()])).sum();
        pages[..are_there].iter().map(|page| page.iov_len).sum()
    }

    /// Ends the receive on the socket with these bytes. All of them must be [reachable](Self::reachable).
    ///
    /// # Panics
    ///
    /// If there is no receive, or it has no room for them.
    pub fn received(&mut self, socket: S, bytes: &[u8]) {
        let receive = self.receives.iter().find(|receive| receive.socket == socket).expect("a receive is under way");
        let mut rest = bytes.iter();
        for segment in &receive.segments {
            for (at, byte) in (0..segment.iov_len).zip(&mut rest) {
                // SAFETY: inside a segment, which is valid while the receive is under way.
                unsafe { segment.iov_base.cast::<u8>().add(at).write_volatile(*byte) };
            }
        }
        assert!(rest.next().is_none(), "no more comes than there is room for");
        self.end_receive(socket, i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    }

    /// Ends the receive on a socket, if there is one.
    pub fn end_receive(&mut self, socket: S, result: i32) {
        for receive in self.receives.extract_if(.., |receive| receive.socket == socket) {
            self.events.push(receive.end(result));
        }
    }

    /// Ends the operations that were cancelled.
    pub fn end_cancelled(&mut self) {
        let sends = self.sends.extract_if(.., |send| send.is_cancelled);
        let receives = self.receives.extract_if(.., |receive| receive.is_cancelled);
        self.events.extend(sends.chain(receives).map(|operation| operation.end(-libc::ECANCELED)));
    }
}

impl<S: Copy + Eq> Ring for SimulatedRing<S> {
    type Socket = S;

    fn watch(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.watches.push((token, fd.try_clone_to_owned()?));
        Ok(())
    }

    fn unwatch(&mut self, token: u64, removal_token: u64) -> io::Result<()> {
        self.watches.retain(|(watched, _)| *watched != token);
        self.events.extend([token, removal_token].map(|token| Event { token, result: 0, more: false }));
        Ok(())
    }

    fn cancel(&mut self, token: u64, cancel_token: u64) -> io::Result<()> {
        let operations = self.sends.iter_mut().chain(&mut self.receives);
        operations.filter(|operation| operation.token == token).for_each(|operation| operation.is_cancelled = true);
        self.events.push(Event { token: cancel_token, result: 0, more: false });
        Ok(())
    }

    unsafe fn send(&mut self, socket: &S, token: u64, message: *const libc::msghdr) -> io::Result<Option<i32>> {
        uncounted_by_valgrind(|| {
            // SAFETY: vouched for by the caller.
            let send = unsafe { Operation::new(*socket, token, message) };
            let result = self.try_send(&send);
            if result.is_none() {
                self.sends.push(send);
            }
            Ok(result)
        })
    }

    unsafe fn receive(&mut self, socket: &S, token: u64, message: *mut libc::msghdr) -> io::Result<()> {
        // SAFETY: vouched for by the caller.
        uncounted_by_valgrind(|| self.receives.push(unsafe { Operation::new(*socket, token, message) }));
        Ok(())
    }

    /// Data that have arrived are there at once, so no wait is needed.
    fn wait_for(&mut self, _socket: &S, _low_water: &mut LowWater, _missing_bytes: u32) -> io::Result<()> {
        Ok(())
    }

    fn send_at_once(&mut self, socket: &S, bytes: &[u8]) {
        self.calls.push((*socket, SocketCall::SendAtOnce(bytes.to_vec())));
    }

    fn shutdown(&mut self, socket: &S) {
        self.calls.push((*socket, SocketCall::Shutdown));
    }

    fn end_sending(&mut self, socket: &S) -> bool {
        let has_ended = self.ended.contains(socket);
        if !has_ended {
            self.calls.push((*socket, SocketCall::EndSending));
        }
        !has_ended
    }

    fn reset(&mut self, socket: S) {
        self.calls.push((socket, SocketCall::Reset));
    }
}
