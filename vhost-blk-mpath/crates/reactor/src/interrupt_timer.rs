//! Interrupts the calling thread from time to time, while it has work.
//!
//! An I/O thread waits for nothing but its ring. Yet it writes to descriptors whose flags a front-end shares. One that is made
//! blocking and full at the right moment would stop the thread, and so all disks that it serves. The signal of the timer ends
//! such a write with `EINTR`.

#![expect(unsafe_code, reason = "no library has timers that signal one thread")]

use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;

/// How long a write can hold up the thread.
const EVERY_MS: libc::c_long = 100;

/// The signal of the timers. The process must have no other handler of it.
#[must_use]
pub fn interrupt_signal() -> libc::c_int {
    libc::SIGRTMIN()
}

/// A timer of the thread that has made it.
pub(crate) struct InterruptTimer {
    timer: libc::timer_t,
    is_armed: bool,
}

impl InterruptTimer {
    /// The timer of the calling thread, not armed.
    ///
    /// # Errors
    /// The process has too many timers, or a filter of system calls forbids them.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        handle_signal()?;
        let mut timer = null_mut();
        // SAFETY: all zero is a valid value, and the kernel reads and writes only these two.
        let result = unsafe {
            let mut event: libc::sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = interrupt_signal();
            event.sigev_notify_thread_id = libc::gettid();
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut timer = Self { timer, is_armed: false };
        // A filter of system calls that forbids this shows now.
        timer.set(true)?;
        timer.set(false)?;
        Ok(timer)
    }

    /// Interrupts the thread every 100 ms from now on, or no more.
    pub(crate) fn arm(&mut self, is_armed: bool) {
        if self.is_armed != is_armed {
            self.set(is_armed).expect("it was set before");
        }
    }

    fn set(&mut self, is_armed: bool) -> io::Result<()> {
        self.is_armed = is_armed;
        let tv_nsec = if is_armed { EVERY_MS * 1_000_000 } else { 0 };
        let every = libc::timespec { tv_sec: 0, tv_nsec };
        let times = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the timer exists, and the kernel reads the times during the call.
        let result = unsafe { libc::timer_settime(self.timer, 0, &raw const times, null_mut()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for InterruptTimer {
    fn drop(&mut self) {
        // SAFETY: the timer exists, and is not used again.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Has the signal interrupt system calls of this thread, rather than end the process.
fn handle_signal() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zero is a valid value: no flags, so that calls are not restarted. The handler does nothing, so it may run at any
    // time.
    let result = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(interrupt_signal(), &raw const action, null_mut())
    };
    // The process may have been started with blocked signals.
    // SAFETY: all zero is a valid set, and the calls read and write only this one.
    unsafe {
        let mut signals: libc::sigset_t = zeroed();
        libc::sigaddset(&raw mut signals, interrupt_signal());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, null_mut());
    }
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{Errno, read, write};

    use super::*;

    #[test]
    fn a_write_that_waits_is_interrupted() {
        let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let mut timer = InterruptTimer::of_this_thread().unwrap();
        timer.arm(true);
        for _ in 0..2 {
            assert_eq!(write(&full, &1_u64.to_ne_bytes()), Err(Errno::INTR));
        }
        read(&full, &mut [0; 8]).unwrap();
        assert_eq!(write(&full, &1_u64.to_ne_bytes()), Ok(8), "one that does not wait is not");
    }
}
