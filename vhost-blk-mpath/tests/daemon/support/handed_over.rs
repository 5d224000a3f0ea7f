//! Descriptors that a daemon is started with.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

/// Lets the program have a descriptor under the number that it has here.
pub(crate) fn hand_over(command: &mut Command, fd: &impl AsRawFd) {
    let fd = fd.as_raw_fd();
    // SAFETY: runs in the child between fork and exec: one system call, about a descriptor that the parent keeps open until it has
    // spawned the child.
    unsafe {
        command.pre_exec(move || Ok(fcntl_setfd(BorrowedFd::borrow_raw(fd), FdFlags::empty())?));
    }
}

/// The program, with these descriptors as systemd hands them over.
pub(crate) fn activated<T: AsRawFd>(command: &Command, fds: &[&T]) -> Command {
    // In order: so none is needed under a number that was given to another one before.
    let mut fds: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    fds.sort_unstable();
    let redirected: Vec<_> = (3..).zip(&fds).map(|(number, fd)| format!("{number}<&{fd}")).collect();
    let mut shell = Command::new("bash");
    let (count, redirected) = (fds.len(), redirected.join(" "));
    let script = format!("export LISTEN_PID=$$ LISTEN_FDS={count}; exec \"$0\" \"$@\" {redirected}");
    shell.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    for fd in &fds {
        hand_over(&mut shell, fd);
    }
    shell
}

/// The program, which begins when somebody opens the FIFO for writing.
pub(crate) fn held_back(command: &Command, fifo: &Path) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", ": < \"$0\"; exec \"$@\""]).arg(fifo).arg(command.get_program()).args(command.get_args());
    shell
}
