//! Decides: the guest is signalled.
//!
//! The eventfds of a queue, and the alarm for memory faults.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, Timespec, fcntl_getfl, fcntl_setfl, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};

/// The eventfd by which the driver wakes the device.
#[derive(Debug)]
pub(crate) struct Kick(File);

impl Kick {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        if !is_eventfd(&file)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the kick descriptor is no eventfd"));
        }
        // This process is the only reader, so the flag, which the front-end shares, does no harm.
        set_nonblocking(&file)?;
        Ok(Self(file))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn clear(&self) {
        // A read returns the whole count of an eventfd. Errors do not matter: the ring says whether there are requests. The front-end
        // shares the flags of the file, so they cannot keep the read from waiting.
        let mut count = [0; size_of::<u64>()];
        let _ = preadv2(&self.0, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT);
    }
}

/// The eventfds by which the device signals the driver and reports a broken queue to the front-end.
///
/// The front-end may replace them while the queue runs, as QEMU does when the guest masks interrupts. The lock is taken
/// once a loop turn, and contended only at such a moment.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    call: Mutex<Option<Signal>>,
    error: Mutex<Option<Signal>>,
}

/// The write to a descriptor has waited until the thread was interrupted. The descriptor is not used again.
#[derive(Debug)]
pub(crate) struct Blocked;

#[derive(Debug)]
struct Signal {
    file: File,
    /// Whether a write would block while the descriptor is full.
    blocks: bool,
}

impl Notifier {
    /// Sets the call descriptor. Without one, the driver polls.
    pub(crate) fn set_call(&self, file: Option<File>) -> io::Result<()> {
        set_signal(&self.call, file)
    }

    /// Sets the error descriptor.
    pub(crate) fn set_error(&self, file: Option<File>) -> io::Result<()> {
        set_signal(&self.error, file)
    }

    /// Signals the driver.
    pub(crate) fn signal(&self) -> Result<(), Blocked> {
        write_one(&self.call)
    }

    /// Reports a broken queue to the front-end.
    pub(crate) fn report_error(&self) {
        // A descriptor that has blocked is gone, and the queue is broken already.
        let _ = write_one(&self.error);
    }
}

/// Wakes the thread that serves a front-end after a fault in memory that the front-end shares.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // Fails only if the counter is full, which wakes the thread too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until the connection is readable or the alarm rings, at most for `quiet`, and resets the alarm.
    pub(crate) fn wait_or_input(&self, connection: &UnixStream, quiet: Duration) -> io::Result<Wake> {
        let mut fds = [PollFd::new(connection, PollFlags::IN), PollFd::new(&self.0, PollFlags::IN)];
        let quiet = Timespec::try_from(quiet).ok();
        if retry_on_intr(|| poll(&mut fds, quiet.as_ref()))? == 0 {
            return Ok(Wake::Quiet);
        }
        // The counter is empty if the alarm did not ring.
        let _ = rustix::io::read(&self.0, &mut [0; size_of::<u64>()]);
        Ok(if fds[0].revents().is_empty() { Wake::Alarm } else { Wake::Input })
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What ended a wait for a front-end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The connection is readable.
    Input,
    /// The alarm has rung.
    Alarm,
    /// Nothing has happened.
    Quiet,
}

/// Whether a file is an eventfd. Other files could make an I/O thread wait that polls them: FUSE asks its server, and so does an epoll
/// that watches a file of FUSE.
fn is_eventfd(file: &File) -> io::Result<bool> {
    const ANON_INODE_FS_MAGIC: libc::__fsword_t = 0x0904_1934;
    // Of all anonymous inodes, only an eventfd takes eight bytes. Zero leaves its count alone, and wakes its reader once for nothing:
    // a guest may get an interrupt without a completion, which drivers expect.
    Ok(fstatfs(file)?.f_type == ANON_INODE_FS_MAGIC && rustix::io::write(file, &[0; 8]) == Ok(8))
}

fn set_nonblocking(file: &File) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

fn set_signal(signal: &Mutex<Option<Signal>>, file: Option<File>) -> io::Result<()> {
    // Some front-ends (User Mode Linux) pass a pipe. If they do not read it, it must not block an I/O thread. An
    // eventfd keeps its flags: the front-end shares them, and may do blocking reads.
    let new = file.map(|file| {
        const PIPEFS_MAGIC: libc::__fsword_t = 0x5049_5045;
        const SOCKFS_MAGIC: libc::__fsword_t = 0x534f_434b;
        if matches!(fstatfs(&file)?.f_type, PIPEFS_MAGIC | SOCKFS_MAGIC) {
            set_nonblocking(&file)?;
        } else if !is_eventfd(&file)? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the call or error descriptor is no eventfd, pipe or socket",
            ));
        }
        let blocks = !fcntl_getfl(&file)?.contains(OFlags::NONBLOCK);
        Ok::<_, io::Error>(Signal { file, blocks })
    });
    *signal.lock().unwrap_or_else(PoisonError::into_inner) = new.transpose()?;
    Ok(())
}

fn write_one(signal: &Mutex<Option<Signal>>) -> Result<(), Blocked> {
    let mut signal = signal.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Signal { file, blocks }) = &*signal else { return Ok(()) };
    // The front-end can fill the counter of its eventfd itself. A blocking write would then wait for a read.
    let is_full = || poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&Timespec::default())) == Ok(0);
    if *blocks && is_full() {
        return Ok(());
    }
    // If the counter is full, the other side is awake. Any other error means that it is gone, which the socket reports.
    match rustix::io::write(file, &1_u64.to_ne_bytes()) {
        Ok(_) => {}
        // Only a write that waits is interrupted.
        Err(Errno::INTR) => {
            *signal = None;
            return Err(Blocked);
        }
        Err(error) => tracing::debug!(%error, "cannot signal the front-end"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::event::epoll;
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn a_full_pipe_does_not_block() {
        let (mut reader, writer) = io::pipe().unwrap();
        let notifier = Notifier::default();
        notifier.set_call(Some(File::from(std::os::fd::OwnedFd::from(writer)))).unwrap();
        for _ in 0..100_000 {
            notifier.signal().unwrap();
        }
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 8);
    }

    #[test]
    fn a_full_eventfd_does_not_block() {
        for flags in [EventfdFlags::empty(), EventfdFlags::NONBLOCK] {
            let theirs = File::from(eventfd(0, flags).unwrap());
            let notifier = Notifier::default();
            notifier.set_call(Some(theirs.try_clone().unwrap())).unwrap();
            notifier.signal().unwrap();
            let mut count = [0; 8];
            let mut read = || {
                (&theirs).read_exact(&mut count).unwrap();
                u64::from_ne_bytes(count)
            };
            assert_eq!(read(), 1);
            (&theirs).write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
            notifier.signal().unwrap();
            assert_eq!(read(), u64::MAX - 1);
            notifier.signal().unwrap();
            assert_eq!(read(), 1);
        }
    }

    /// The front-end shares the flags.
    #[test]
    fn a_kick_that_is_not_there_is_not_waited_for() {
        let theirs = File::from(eventfd(0, EventfdFlags::empty()).unwrap());
        let kick = Kick::new(theirs.try_clone().unwrap()).unwrap();
        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        kick.clear();
        (&theirs).write_all(&7_u64.to_ne_bytes()).unwrap();
        kick.clear();
        (&theirs).write_all(&1_u64.to_ne_bytes()).unwrap();
        let mut count = [0; 8];
        (&theirs).read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1, "the check has added nothing");
    }

    /// Their files could make an I/O thread wait.
    #[test]
    fn other_files_are_refused() {
        let memory = File::from(memfd_create("file", MemfdFlags::CLOEXEC).unwrap());
        let watches = File::from(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let (_reader, pipe) = io::pipe().unwrap();
        for file in [&memory, &watches] {
            let notifier = Notifier::default();
            assert!(Kick::new(file.try_clone().unwrap()).is_err());
            assert!(notifier.set_call(Some(file.try_clone().unwrap())).is_err());
            assert!(notifier.set_error(Some(file.try_clone().unwrap())).is_err());
        }
        assert!(Kick::new(File::from(OwnedFd::from(pipe))).is_err());
    }
}
