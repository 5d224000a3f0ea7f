//! Takes from a thread every system call that its work does not need (seccomp filters).
//!
//! The threads that read what guests, front-ends and targets send open no files, start no programs, and create no
//! sockets. Their filters allow calls by name, so a call that is missing here is forbidden.
//!
//! A forbidden call returns `EPERM`. In builds with debug assertions, such as those of tests, it ends the process with SIGSYS.
//! So a test notices a call that a thread needs and that its filter lacks.

mod system_calls;
#[cfg(test)]
mod tests;

use std::env::consts::ARCH;

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use crate::system_calls::Calls;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// Serves virtqueues and connections that exist, with an `io_uring` that exists.
    Io,
    /// Accepts front-ends, reads their messages, and maps their memory.
    FrontEnd,
}

/// Why a thread cannot be restricted.
#[derive(Debug, thiserror::Error)]
pub enum RestrictError {
    /// No filter can be made for this processor.
    #[error("no filter of system calls for {ARCH}: {0}")]
    Filter(#[from] BackendError),
    /// The kernel refuses the filter.
    #[error(
        "the kernel takes no filter of system calls: {0}; it needs CONFIG_SECCOMP_FILTER, and a filter that is in effect \
         has to allow seccomp; in systemd: SystemCallFilter=seccomp"
    )]
    Kernel(#[from] seccompiler::Error),
}

/// Restricts the calling thread for the rest of its life, and threads that it starts.
///
/// Call it when the thread has all files that it will open itself.
pub fn restrict_thread(kind: ThreadKind) -> Result<(), RestrictError> {
    let mut calls = system_calls::allowed(kind)?;
    if cfg!(debug_assertions) {
        // With two filters, the more severe answer counts.
        let tried = system_calls::tried_by_the_c_library();
        apply_filter(&program(tried.clone(), SeccompAction::Allow, REFUSE)?)?;
        calls.extend(tried);
        Ok(apply_filter(&program(calls, SeccompAction::Trap, SeccompAction::Allow)?)?)
    } else {
        Ok(apply_filter(&program(calls, REFUSE, SeccompAction::Allow)?)?)
    }
}

const REFUSE: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// A filter with one action for the listed calls, and another for all others.
fn program(calls: Calls, others: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(calls, others, listed, TargetArch::try_from(ARCH)?)?.try_into()
}
