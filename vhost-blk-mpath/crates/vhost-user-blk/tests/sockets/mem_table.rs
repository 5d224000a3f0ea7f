//! `SET_MEM_TABLE` from front-ends that do not use the `vhost` crate.

use std::io::Read;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;

use vhost_user_blk::ServeError;
use virtio_guest::features::{FLUSH, PROTOCOL_FEATURES};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::guest::Guest;
use crate::{Server, geometry};

const SET_MEM_TABLE: u32 = 5;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
const OUT: u32 = 1;
const OK: u8 = 0;

/// A guest, and the socket of its front-end.
fn connect(server: &Server) -> (Guest, UnixStream) {
    let socket = UnixStream::connect(server.socket()).unwrap();
    (Guest::over(socket.try_clone().unwrap(), PROTOCOL_FEATURES | FLUSH), socket)
}

/// The guest's table with the number `regions`, cut off or padded to `bytes`.
fn table(guest: &Guest, regions: u32, bytes: usize) -> Vec<u8> {
    let region = guest.region();
    let fields = [region.guest_phys_addr, region.memory_size, region.userspace_addr, region.mmap_offset];
    let head = [regions, 0].into_iter().flat_map(u32::to_ne_bytes);
    let mut table: Vec<u8> = head.chain(fields.into_iter().flat_map(u64::to_ne_bytes)).collect();
    table.resize(bytes, 0xff);
    table
}

fn send(mut socket: &UnixStream, table: &[u8], files: &[RawFd]) {
    let header = [SET_MEM_TABLE, VERSION | NEED_REPLY, table.len() as u32].map(u32::to_ne_bytes).concat();
    assert_eq!(socket.send_with_fds(&[&header[..]], files).unwrap(), header.len());
    // After a refused header the connection may be closed already.
    let _ = std::io::Write::write_all(&mut socket, table);
}

#[test]
fn a_table_may_be_longer_than_its_regions() {
    let server = Server::start(geometry());
    // The length of a table of two regions, as Linux in user mode sends it; the most that a message may have; and the
    // exact length.
    for bytes in [8 + 2 * 32, 4096, 8 + 32] {
        let (mut guest, mut socket) = connect(&server);
        send(&socket, &table(&guest, 1, bytes), &[guest.region().mmap_handle]);
        let mut answer = [0; 20];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer.to_vec(), [SET_MEM_TABLE, VERSION | REPLY, 8, 0, 0].map(u32::to_ne_bytes).concat());
        let mut ring = guest.start(0);
        ring.submit(0, OUT, 0, &[bytes as u8; 512]);
        assert_eq!((ring.finish(), ring.status(0)), (vec![0], OK), "{bytes} bytes");
    }
}

#[test]
fn an_invalid_table_ends_its_connection() {
    let server = Server::start(geometry());
    let cases: [(&str, u32, usize, usize); 9] = [
        ("shorter than its region", 1, 8 + 31, 1),
        ("shorter than its regions", 2, 8 + 32, 2),
        ("a second region that is none", 2, 8 + 2 * 32, 2),
        ("no region", 0, 8 + 32, 0),
        ("more regions than can be", u32::MAX, 8 + 32, 1),
        ("no number of regions", 1, 7, 1),
        ("longer than a message may be", 1, 4097, 1),
        ("no descriptor", 1, 8 + 32, 0),
        ("more descriptors than regions", 1, 8 + 32, 2),
    ];
    for (name, regions, bytes, files) in cases {
        let (guest, socket) = connect(&server);
        let handle = guest.region().mmap_handle;
        send(&socket, &table(&guest, regions, bytes), &vec![handle; files]);
        assert!(matches!(server.outcome(), Err(ServeError::Message { number: Some(5), .. })), "{name}");
    }
    // More descriptors than a message may have: they are not counted first.
    let (guest, socket) = connect(&server);
    send(&socket, &table(&guest, 1, 8 + 32), &[guest.region().mmap_handle; 33]);
    assert!(matches!(server.outcome(), Err(ServeError::Message { number: Some(5), .. })));
    connect(&server).0.share_memory();
}
