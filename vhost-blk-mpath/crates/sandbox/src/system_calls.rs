//! The system calls that each kind of thread may make.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq};
use seccompiler::{BackendError, SeccompCondition, SeccompRule};

use crate::ThreadKind;

/// Rules by the number of the system call. A call without rules may have any arguments.
pub(crate) type Calls = BTreeMap<c_long, Vec<SeccompRule>>;

/// Memory, time, locks, wake-ups, what is left of signals, and the end of a thread.
const OF_EVERY_THREAD: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// `pread64` reads the runnable threads of the host from a file that is open. `statx` asks for the length of a memory file
/// after a fault. The timer interrupts a thread that a front-end makes wait.
const OF_IO_THREADS: &[c_long] =
    &[libc::SYS_io_uring_enter, libc::SYS_pread64, libc::SYS_statx, libc::SYS_timer_delete, libc::SYS_timer_settime];

const OF_FRONT_END_THREADS: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_eventfd2,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_memfd_create,
    libc::SYS_preadv2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_statx,
];

/// Commands of `fcntl`.
const FCNTL_COMMANDS: [i32; 5] =
    [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_GETFL, libc::F_SETFL, libc::F_ADD_SEALS];

/// Options of `setsockopt` at `SOL_SOCKET`.
const SOCKET_OPTIONS: [i32; 2] = [libc::SO_LINGER, libc::SO_RCVLOWAT];

/// Bytes of an address that is only its family. That family is `AF_UNSPEC`, with which `connect` ends a connection: the
/// addresses of all others are longer.
const FAMILY_BYTES: u32 = size_of::<libc::sa_family_t>() as u32;

/// The calls of a kind of thread.
pub(crate) fn allowed(kind: ThreadKind) -> Result<Calls, BackendError> {
    let mut allowed = Calls::new();
    allow(&mut allowed, OF_EVERY_THREAD);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let executable = libc::PROT_EXEC as u32;
        allowed.insert(call, vec![rule([argument(2, MaskedEq(executable.into()), 0)?])?]);
    }
    for command in FCNTL_COMMANDS {
        let rules = allowed.entry(libc::SYS_fcntl).or_default();
        rules.push(rule([argument(1, Eq, command.cast_unsigned())?])?);
    }
    // With this flag, a call connects its socket.
    let connects = libc::MSG_FASTOPEN.cast_unsigned();
    allowed.insert(libc::SYS_sendmsg, vec![rule([argument(2, MaskedEq(connects.into()), 0)?])?]);
    allowed.insert(libc::SYS_sendto, vec![rule([argument(3, MaskedEq(connects.into()), 0)?])?]);
    // `abort` signals its own process.
    allowed.insert(libc::SYS_tgkill, vec![rule([argument(0, Eq, std::process::id())?])?]);
    match kind {
        ThreadKind::Io => {
            allow(&mut allowed, OF_IO_THREADS);
            allowed.insert(libc::SYS_connect, vec![rule([argument(2, Eq, FAMILY_BYTES)?])?]);
            for option in SOCKET_OPTIONS {
                let level = argument(1, Eq, libc::SOL_SOCKET.cast_unsigned())?;
                let rules = allowed.entry(libc::SYS_setsockopt).or_default();
                rules.push(rule([level, argument(2, Eq, option.cast_unsigned())?])?);
            }
        }
        ThreadKind::FrontEnd => allow(&mut allowed, OF_FRONT_END_THREADS),
    }
    Ok(allowed)
}

/// Calls that the C library tries, and can do without: `free` looks for `/proc/sys/vm/overcommit_memory`.
pub(crate) fn tried_by_the_c_library() -> Calls {
    Calls::from([(libc::SYS_openat, Vec::new())])
}

fn allow(calls: &mut Calls, with_any_arguments: &[c_long]) {
    calls.extend(with_any_arguments.iter().map(|&call| (call, Vec::new())));
}

/// A rule that holds if all conditions hold.
fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

/// Compares the argument at this index, 0 to 5, by its low 32 bits, which are all that the kernel uses of it.
fn argument(index: u8, compare: SeccompCmpOp, value: u32) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, Dword, compare, value.into())
}
