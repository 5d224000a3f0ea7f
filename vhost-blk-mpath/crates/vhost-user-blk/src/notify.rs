//! Decides: the guest is signalled.
//!
//! The eventfds of a queue, and the alarm for memory faults.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// The write to a descriptor has waited until the thread was interrupted.
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

    /// Sets the call descriptor, and signals the driver. An earlier daemon may have been killed between the used index and its
    /// signal, and a spurious signal does no harm.
    pub(crate) fn set_call_and_signal(&self, file: Option<File>) -> io::Result<()> {
        // I/O threads take the lock, so the write, which may wait, has a descriptor of its own.
        let own = file.as_ref().map(File::try_clone).transpose()?;
        self.set_call(file)?;
        if let Some(own) = own {
            let _ = Signal::new(own)?.write_one();
        }
        Ok(())
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
    pub(crate) fn report_error(&self) -> Result<(), Blocked> {
        write_one(&self.error)
    }
}

/// Wakes the thread that serves a front-end, after a fault in memory that the front-end shares, or when one of its descriptors has
/// made a thread wait.
#[derive(Debug)]
pub(crate) struct Alarm {
    fd: OwnedFd,
    has_blocked: AtomicBool,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, has_blocked: AtomicBool::new(false) })
    }

    pub(crate) fn ring(&self) {
        // Fails only if the counter is full, which wakes the thread too.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// A descriptor of the front-end has made a thread wait.
    #[cold]
    pub(crate) fn blocked(&self) {
        self.has_blocked.store(true, Ordering::Relaxed);
        self.ring();
    }

    pub(crate) fn has_blocked(&self) -> bool {
        self.has_blocked.load(Ordering::Relaxed)
    }

    /// Waits until the connection is readable or the alarm rings, at most for `quiet`, and resets the alarm.
    pub(crate) fn wait_or_input(&self, connection: &UnixStream, quiet: Duration) -> io::Result<Wake> {
        let mut fds = [PollFd::new(connection, PollFlags::IN), PollFd::new(&self.fd, PollFlags::IN)];
        let quiet = Timespec::try_from(quiet).ok();
        if retry_on_intr(|| poll(&mut fds, quiet.as_ref()))? == 0 {
            return Ok(Wake::Quiet);
        }
        // The counter is empty if the alarm did not ring.
        let _ = rustix::io::read(&self.fd, &mut [0; size_of::<u64>()]);
        Ok(if fds[0].revents().is_empty() { Wake::Alarm } else { Wake::Input })
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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
    let new = file.map(Signal::new).transpose()?;
    // Closed without the lock, because to close a socket may take long.
    let _old = std::mem::replace(&mut *signal.lock().unwrap_or_else(PoisonError::into_inner), new);
    Ok(())
}

fn write_one(signal: &Mutex<Option<Signal>>) -> Result<(), Blocked> {
    let signal = signal.lock().unwrap_or_else(PoisonError::into_inner);
    signal.as_ref().map_or(Ok(()), Signal::write_one)
}

impl Signal {
    fn new(file: File) -> io::Result<Self> {
        // Some front-ends (User Mode Linux) pass a pipe. If they do not read it, it must not block an I/O thread. An
        // eventfd keeps its flags: the front-end shares them, and may do blocking reads.
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
        Ok(Self { file, blocks })
    }

    fn write_one(&self) -> Result<(), Blocked> {
        // The front-end can fill the counter of its eventfd itself. A blocking write would then wait for a read.
        let is_writable =
            |file| retry_on_intr(|| poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&Timespec::default())));
        if self.blocks && is_writable(&self.file) == Ok(0) {
            return Ok(());
        }
        // If the counter is full, the other side is awake. Any other error means that it is gone, which the socket reports.
        match rustix::io::write(&self.file, &1_u64.to_ne_bytes()) {
            // Only a write that waits is interrupted.
            Err(Errno::INTR) => return Err(Blocked),
            Err(error) => tracing::debug!(%error, "cannot signal the front-end"),
            Ok(_) => {}
        }
        Ok(())
    }
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
