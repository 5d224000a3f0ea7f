//! One ring for several path sets.

use std::cell::RefCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use low_water::LowWater;

use super::{Ring, Uring};
use crate::ring_token::ThreadToken;

/// The ring of a thread, as one of its path sets sees it. Tokens name that path set.
pub(crate) struct SharedRing {
    ring: Rc<RefCell<Uring>>,
    set: u16,
}

impl SharedRing {
    pub(crate) fn new(ring: &Rc<RefCell<Uring>>, set: u16) -> Self {
        Self { ring: Rc::clone(ring), set }
    }

    fn token(&self, token: u64) -> u64 {
        ThreadToken::Set { set: self.set, token }.encode()
    }
}

impl Ring for SharedRing {
    type Socket = OwnedFd;

    fn watch(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.ring.borrow_mut().watch(fd, self.token(token))
    }

    fn unwatch(&mut self, token: u64, removal_token: u64) -> io::Result<()> {
        self.ring.borrow_mut().unwatch(self.token(token), self.token(removal_token))
    }

    fn cancel(&mut self, token: u64, cancel_token: u64) -> io::Result<()> {
        self.ring.borrow_mut().cancel(self.token(token), self.token(cancel_token))
    }

    unsafe fn send(&mut self, socket: &OwnedFd, token: u64, message: *const libc::msghdr) -> io::Result<Option<i32>> {
        // SAFETY: vouched for by the caller.
        unsafe { self.ring.borrow_mut().send(socket, self.token(token), message) }
    }

    unsafe fn receive(&mut self, socket: &OwnedFd, token: u64, message: *mut libc::msghdr) -> io::Result<()> {
        // SAFETY: vouched for by the caller.
        unsafe { self.ring.borrow_mut().receive(socket, self.token(token), message) }
    }

    fn wait_for(&mut self, socket: &OwnedFd, low_water: &mut LowWater, missing_bytes: u32) -> io::Result<()> {
        self.ring.borrow_mut().wait_for(socket, low_water, missing_bytes)
    }

    fn send_at_once(&mut self, socket: &OwnedFd, bytes: &[u8]) {
        self.ring.borrow_mut().send_at_once(socket, bytes);
    }

    fn shutdown(&mut self, socket: &OwnedFd) {
        self.ring.borrow_mut().shutdown(socket);
    }

    fn end_sending(&mut self, socket: &OwnedFd) -> bool {
        self.ring.borrow_mut().end_sending(socket)
    }

    fn reset(&mut self, socket: OwnedFd) {
        self.ring.borrow_mut().reset(socket);
    }
}
