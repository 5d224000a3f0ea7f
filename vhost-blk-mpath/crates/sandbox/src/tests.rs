//! Threads try what their filters forbid, and what their work needs.

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;

use io_uring::IoUring;
use memmap2::MmapMut;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketType, connect, sendmsg_addr, sendto, socket, sockopt,
};
use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// Runs `work` in a thread of this kind, in which forbidden calls return an error in every build.
fn in_thread<T: Send>(kind: ThreadKind, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let calls = system_calls::allowed(kind).unwrap();
            apply_filter(&program(calls, REFUSE, SeccompAction::Allow).unwrap()).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

fn is_forbidden<T>(result: Result<T, impl Into<io::Error>>) -> bool {
    result.err().is_some_and(|error| error.into().raw_os_error() == Some(libc::EPERM))
}

#[test]
fn no_thread_opens_files_starts_programs_creates_sockets_or_sends_signals() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for kind in [ThreadKind::Io, ThreadKind::FrontEnd] {
        in_thread(kind, || {
            assert!(is_forbidden(File::open("/proc/self/status")));
            assert!(is_forbidden(std::fs::remove_file("/nonexistent")));
            assert!(is_forbidden(Command::new("/bin/true").spawn()));
            assert!(is_forbidden(thread::Builder::new().spawn(|| ())));
            assert!(is_forbidden(TcpStream::connect(address)));
            assert!(is_forbidden(socket(AddressFamily::UNIX, SocketType::STREAM, None)));
            assert!(is_forbidden(kill_process(Pid::from_raw(1).unwrap(), Signal::CONT)));
            assert!(is_forbidden(IoUring::new(1)));
            assert!(is_forbidden(MmapMut::map_anon(4096).unwrap().make_exec()));
        });
    }
}

#[test]
fn an_io_thread_connects_no_socket_that_exists() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let unconnected = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    in_thread(ThreadKind::Io, || {
        assert!(is_forbidden(connect(&unconnected, &address)));
        // TCP Fast Open connects by sending.
        let fast_open = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());
        assert!(is_forbidden(sendto(&unconnected, b"x", fast_open, &address)));
        assert!(is_forbidden(sendmsg_addr(
            &unconnected,
            &address,
            &[],
            &mut SendAncillaryBuffer::default(),
            fast_open
        )));
        assert!(is_forbidden(sockopt::set_socket_keepalive(&unconnected, true)));
        assert!(is_forbidden(memfd_create("other", MemfdFlags::CLOEXEC)));
    });
}

#[test]
fn an_io_thread_ends_a_connection() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    in_thread(ThreadKind::Io, || {
        sockopt::set_socket_linger(&ours, None).unwrap();
        ours.shutdown(std::net::Shutdown::Both).unwrap();
        drop(ours);
    });
    assert_eq!(io::read_to_string(theirs).unwrap(), "");
}

#[test]
fn a_front_end_thread_makes_and_maps_shared_memory() {
    in_thread(ThreadKind::FrontEnd, || {
        let file = File::from(memfd_create("inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
        ftruncate(&file, 4096).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
        assert_eq!(file.try_clone().unwrap().metadata().unwrap().len(), 4096);
    });
}
