//! A disk that grows while a guest uses it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vhost_user_blk::ServeError;
use virtio_guest::features::{FLUSH, PROTOCOL_FEATURES};

use crate::guest::{Guest, assert_told};
use crate::{Server, geometry};

const FEATURES: u64 = PROTOCOL_FEATURES | FLUSH;
const OUT: u32 = 1;
const OK: u8 = 0;
const IOERR: u8 = 1;

/// A guest whose front-end has passed a back-end channel, and the front-end's end of the channel.
fn listening(server: &Server) -> (Guest, UnixStream) {
    let mut guest = Guest::connect(&server.socket(), FEATURES);
    let channel = guest.listen();
    (guest, channel)
}

pub(crate) fn assert_not_told(mut channel: &UnixStream) {
    channel.set_nonblocking(true).unwrap();
    assert_eq!(channel.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    channel.set_nonblocking(false).unwrap();
}

#[test]
fn a_running_guest_is_told_of_growth_and_uses_it() {
    let server = Server::start(geometry());
    let (mut guest, mut channel) = listening(&server);
    guest.share_memory();
    let mut ring = guest.start(0);
    // When its back-end comes back, QEMU does not read the capacity again, and may have an old one.
    assert_told(&mut channel);
    assert_eq!(guest.capacity_sectors(), 8192);
    let write = |ring: &mut crate::guest::Ring| {
        ring.submit(0, OUT, 8192, &[7; 512]);
        assert_eq!(ring.finish(), [0]);
        ring.status(0)
    };
    assert_eq!(write(&mut ring), IOERR);
    server.ram.grow(16384);
    assert_eq!(server.disk.grow(16384).unwrap(), Some(true), "the front-end is told");
    assert_told(&mut channel);
    assert_eq!((guest.capacity_sectors(), write(&mut ring)), (16384, OK));
    assert_eq!(server.disk.grow(8192).unwrap(), None);
    assert_eq!(guest.capacity_sectors(), 16384);
    assert_not_told(&channel);
    drop(guest);
    server.outcome().unwrap();
    // The next front-end reads the capacity. The one that left is not notified.
    let mut guest = Guest::connect(&server.socket(), FEATURES);
    server.disk.grow(32768).unwrap();
    assert_eq!(guest.capacity_sectors(), 32768);
    assert_eq!(channel.read(&mut [0]).unwrap(), 0, "closed");
}

/// While its device does not run, QEMU ignores notifications, and keeps the old size that it read.
#[test]
fn a_guest_that_starts_after_growth_is_told_of_it() {
    let server = Server::start(geometry());
    let (mut guest, mut channel) = listening(&server);
    guest.share_memory();
    assert_eq!(guest.capacity_sectors(), 8192);
    server.ram.grow(16384);
    server.disk.grow(16384).unwrap();
    assert_told(&mut channel);
    let _ring = guest.start(0);
    assert_told(&mut channel);
    assert_eq!(guest.capacity_sectors(), 16384);
    let _ring = guest.start(1);
    assert_not_told(&channel);
}

/// A QEMU that looks for the vendor window reads all of the space when it connects and while its device does not run.
/// It keeps no size from that.
#[test]
fn a_front_end_that_reads_the_vendor_window_is_still_told_of_the_size() {
    let server = Server::start(geometry());
    let look = |guest: &mut Guest| guest.frontend.get_config(0, 256, VhostUserConfigFlags::empty(), &[0; 256]).unwrap();
    // QEMU is back, and the disk may have grown meanwhile.
    let (mut guest, mut channel) = listening(&server);
    guest.share_memory();
    look(&mut guest);
    let ring = guest.start(0);
    assert_told(&mut channel);
    drop((guest, ring, channel));
    server.outcome().unwrap();
    // QEMU knows a size, and the disk grows while the guest is paused.
    let (mut guest, mut channel) = listening(&server);
    guest.share_memory();
    assert_eq!(guest.capacity_sectors(), 8192);
    server.ram.grow(16384);
    server.disk.grow(16384).unwrap();
    assert_told(&mut channel);
    look(&mut guest);
    let _ring = guest.start(0);
    assert_told(&mut channel);
}

#[test]
fn changes_are_notified_once_the_channel_is_acknowledged() {
    let server = Server::start(geometry());
    let mut guest = Guest::connect(&server.socket(), FEATURES);
    for round in 1..=2000 {
        let mut channel = guest.listen();
        server.disk.grow(8192 + round).unwrap();
        assert_told(&mut channel);
    }
}

#[test]
fn a_front_end_that_does_not_read_its_channel_blocks_nothing() {
    let server = Server::start(geometry());
    let (_guest, channel) = listening(&server);
    for capacity in 8193..100_000 {
        server.disk.grow(capacity).unwrap();
    }
    drop(channel);
    server.disk.grow(100_000).unwrap();
}

fn message(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn an_invalid_channel_message_ends_the_connection() {
    let server = Server::start(geometry());
    let is_refused = |negotiated: u32, words: [u32; 3]| {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        // SET_PROTOCOL_FEATURES.
        stream.write_all(&message(&[16, 1, 8, negotiated, 0])).unwrap();
        stream.write_all(&message(&words)).unwrap();
        assert!(matches!(server.outcome(), Err(ServeError::Message { number: Some(21), .. })), "{words:?}");
    };
    let backend_req = 1 << 5;
    // Without a descriptor, with bytes behind it, with another version, and as a reply.
    for words in [[21, 1, 0], [21, 1, 8], [21, 2, 0], [21, 5, 0]] {
        is_refused(backend_req, words);
    }
    is_refused(0, [21, 1, 0]);
}

/// A newer front-end may know more messages. The number says which one to look up.
#[test]
fn an_unknown_message_ends_the_connection_with_its_number() {
    let server = Server::start(geometry());
    for number in [0, 45, 199, u32::MAX] {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.write_all(&message(&[number, 1, 0])).unwrap();
        let error = server.outcome().unwrap_err();
        assert!(matches!(error, ServeError::UnknownMessage(unknown) if unknown == number), "{error:?}");
        assert_eq!(error.to_string(), format!("vhost-user message {number} is not known"));
    }
}
