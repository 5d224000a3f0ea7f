//! Test helpers: descriptors that a daemon is started with.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

/// Lets the program inherit a descriptor under its number here.
pub(crate) fn inherit_descriptor(command: &mut Command, fd: &impl AsRawFd) {
    let fd = fd.as_raw_fd();
    // SAFETY: runs in the child between fork and exec: one system call, about a descriptor that the parent keeps open until it has
    // spawned the child.
    unsafe {
        command.pre_exec(move || Ok(fcntl_setfd(BorrowedFd::borrow_raw(fd), FdFlags::empty())?));
    }
}

/// The program with these descriptors, passed as systemd does.
pub(crate) fn activated<T: AsRawFd>(command: &Command, fds: &[&T]) -> Command {
    // In order, so that no descriptor is replaced before it is copied.
    let mut fds: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    fds.sort_unstable();
    let redirected: Vec<_> = (3..).zip(&fds).map(|(number, fd)| format!("{number}<&{fd}")).collect();
    let mut shell = Command::new("bash");
    let (count, redirected) = (fds.len(), redirected.join(" "));
    let script = format!("export LISTEN_PID=$$ LISTEN_FDS={count}; exec \"$0\" \"$@\" {redirected}");
    shell.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    for fd in &fds {
        inherit_descriptor(&mut shell, fd);
    }
    shell
}

/// The program, which starts when the FIFO is opened for writing.
pub(crate) fn started_by_fifo(command: &Command, fifo: &Path) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", ": < \"$0\"; exec \"$@\""]).arg(fifo).arg(command.get_program()).args(command.get_args());
    shell
}
