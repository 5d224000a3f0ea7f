//! Front-ends whose memory fails while in use: the file is truncated, or its file system is full.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserInflight;
use vhost_user_blk::{FaultReason, MemoryFault, ServeError, SharedMemory};
use virtio_guest::features::{FLUSH, FORMATS, LOG_ALL, PROTOCOL_FEATURES};

use crate::guest::{Guest, MEMORY_BYTES, Ring};
use crate::{Server, geometry};

const FEATURES: u64 = PROTOCOL_FEATURES | FLUSH;
const IN: u32 = 0;
const OUT: u32 = 1;
const OK: u8 = 0;
const IO_ERROR: u8 = 1;
/// Guest address of the memory.
const GUEST_START: u64 = 0x4000_0000;
/// Offset of queue 0's requests. Header and status of the first one are in this page.
const REQUESTS: u64 = 0x2000;
/// Its data end in this page.
const DATA_END: u64 = 0x3000;

fn write_and_read(ring: &mut Ring, fill: u8) {
    ring.submit(1, OUT, 0, &[fill; 512]);
    assert_eq!((ring.finish(), ring.status(1)), (vec![1], OK));
    ring.submit(1, IN, 0, &[0; 512]);
    assert_eq!((ring.finish(), ring.status(1)), (vec![1], OK));
    assert_eq!(ring.data(1), [fill; 512]);
}

fn connect(server: &Server, format: u64) -> (Guest, Ring) {
    let mut guest = Guest::connect(&server.socket(), FEATURES | format);
    guest.share_memory();
    let ring = guest.start(0);
    (guest, ring)
}

/// The connection must end with this fault.
fn fault(server: &Server) -> MemoryFault {
    match server.outcome() {
        Err(ServeError::Memory(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

fn truncated(fault: &MemoryFault, to: u64, memory: SharedMemory) {
    let FaultReason::Truncated { file_bytes, mapped_bytes } = fault.reason else { panic!("{fault}") };
    assert!(file_bytes == to && mapped_bytes > to && fault.memory == memory, "{fault}");
}

/// A correct front-end must work before, during and after a fault of another one. During the fault it uses another
/// disk.
fn others_go_on(format: u64, happens: impl FnOnce(&Server)) {
    let (server, other) = (Server::start(geometry()), Server::start(geometry()));
    let (_other_guest, mut other_ring) = connect(&other, format);
    write_and_read(&mut other_ring, 1);
    happens(&server);
    write_and_read(&mut other_ring, 2);
    let (_guest, mut ring) = connect(&server, format);
    write_and_read(&mut ring, 3);
}

#[test]
fn rings_that_are_cut_off_while_a_queue_runs() {
    for format in FORMATS {
        others_go_on(format, |server| {
            let (guest, mut ring) = connect(server, format);
            write_and_read(&mut ring, 9);
            guest.cut_off(0);
            ring.kick.write(1).unwrap();
            let fault = fault(server);
            truncated(&fault, 0, SharedMemory::Guest);
            assert!((GUEST_START..GUEST_START + REQUESTS).contains(&fault.address), "{fault}");
            let text = ServeError::Memory(fault).to_string();
            assert!(
                text.starts_with("guest memory at guest address 0x4000") && text.contains("truncated to 0"),
                "{text}"
            );
        });
    }
}

/// The front-end's thread meets the fault first.
#[test]
fn rings_that_are_cut_off_before_a_queue_runs() {
    for format in FORMATS {
        others_go_on(format, |server| {
            let (mut guest, mut ring) = connect(server, format);
            write_and_read(&mut ring, 9);
            guest.frontend.set_vring_enable(0, false).unwrap();
            guest.cut_off(0);
            assert!(guest.frontend.set_vring_enable(0, true).is_err());
            truncated(&fault(server), 0, SharedMemory::Guest);
        });
    }
}

/// Cuts off memory after `bytes`, then lets the device find a request of 4 KiB in the ring.
fn cut_off_under(server: &Server, format: u64, kind: u32, bytes: u64) -> (Guest, Ring) {
    let (mut guest, mut ring) = connect(server, format);
    write_and_read(&mut ring, 9);
    guest.frontend.set_vring_enable(0, false).unwrap();
    ring.submit(0, kind, 0, &[7; 4096]);
    guest.cut_off(bytes);
    guest.frontend.set_vring_enable(0, true).unwrap();
    (guest, ring)
}

/// The guest gets its answer before the hang-up.
#[test]
fn buffers_that_are_cut_off() {
    for format in FORMATS {
        for kind in [IN, OUT] {
            others_go_on(format, |server| {
                let (_guest, mut ring) = cut_off_under(server, format, kind, DATA_END);
                let fault = fault(server);
                truncated(&fault, DATA_END, SharedMemory::Guest);
                // A copy need not touch the first missing byte first.
                let missing = GUEST_START + DATA_END..GUEST_START + DATA_END + 4096;
                assert!(missing.contains(&fault.address), "{fault}");
                assert_eq!((ring.reap(), ring.status(0)), (vec![0], IO_ERROR));
            });
        }
    }
}

/// The operation of such a request is not known, so it gets no answer.
#[test]
fn headers_that_are_cut_off() {
    for format in FORMATS {
        others_go_on(format, |server| {
            let (_guest, mut ring) = cut_off_under(server, format, OUT, REQUESTS);
            truncated(&fault(server), REQUESTS, SharedMemory::Guest);
            assert!(ring.reap().is_empty());
        });
    }
}

#[test]
fn in_flight_memory_that_is_cut_off() {
    const BYTES: u64 = 1 << 20;
    for format in FORMATS {
        others_go_on(format, |server| {
            let mut guest = Guest::connect(&server.socket(), FEATURES | format);
            guest.share_memory();
            let file = File::from(memfd_create("inflight", MemfdFlags::CLOEXEC).unwrap());
            file.set_len(BYTES).unwrap();
            guest.set_inflight(&(VhostUserInflight::new(BYTES, 0, 4, 64), file.try_clone().unwrap()));
            let mut ring = guest.start(0);
            write_and_read(&mut ring, 9);
            file.set_len(0).unwrap();
            ring.submit(1, IN, 0, &[0; 512]);
            ring.kick.write(1).unwrap();
            let fault = fault(server);
            truncated(&fault, 0, SharedMemory::Inflight);
            assert!(fault.to_string().starts_with("in-flight memory at offset 0x"), "{fault}");
        });
    }
}

/// Marks would be lost, and with them the guest's writes.
#[test]
fn a_dirty_log_that_is_cut_off() {
    for format in FORMATS {
        others_go_on(format, |server| {
            let (guest, mut ring) = connect(server, format);
            let log = guest.set_log(Guest::LOG_BYTES, Guest::LOG_BYTES).unwrap();
            guest.set_features(FEATURES | format | LOG_ALL);
            guest.set_addresses(0, true);
            write_and_read(&mut ring, 9);
            log.file().set_len(0).unwrap();
            ring.submit(1, IN, 0, &[0; 512]);
            ring.kick.write(1).unwrap();
            truncated(&fault(server), 0, SharedMemory::DirtyLog);
        });
    }
}

/// A file system of its own, unmounted at the end.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// `None`, with the reason printed, if this process may not mount.
    fn mount(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(folder.path());
        let mounted = command.output();
        if mounted.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        // Written directly: the output of a passing test is not shown.
        let _ = writeln!(io::stderr(), "SKIPPED: no tmpfs can be mounted here: {mounted:?}");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

/// The kernel finds no page for memory that the guest has not touched.
#[test]
fn memory_in_a_file_system_that_is_full() {
    for format in FORMATS {
        // Room for the pages below, not for all of the guest's memory.
        let Some(tmpfs) = Tmpfs::mount(1 << 20) else { return };
        others_go_on(format, |server| {
            let memory = File::create_new(tmpfs.path().join("memory")).unwrap();
            memory.set_len(MEMORY_BYTES).unwrap();
            let stream = UnixStream::connect(server.socket()).unwrap();
            let mut guest = Guest::arriving(stream, FEATURES | format, memory);
            guest.share_memory();
            let mut ring = guest.start(0);
            write_and_read(&mut ring, 9);
            guest.frontend.set_vring_enable(0, false).unwrap();
            ring.submit(0, IN, 0, &[7; 4096]);
            // The last page of the data is as if it was never touched.
            guest.punch(DATA_END..MEMORY_BYTES);
            assert!(std::fs::write(tmpfs.path().join("more"), vec![1; 1 << 20]).is_err(), "it is full");
            guest.frontend.set_vring_enable(0, true).unwrap();
            let fault = fault(server);
            assert_eq!(fault.reason, FaultReason::Missing, "{fault}");
            assert_eq!((ring.reap(), ring.status(0)), (vec![0], IO_ERROR));
        });
    }
}
