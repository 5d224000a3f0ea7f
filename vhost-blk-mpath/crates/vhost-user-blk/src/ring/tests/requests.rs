//! What the disk does with each kind of request.

use std::sync::Arc;

use virtio_guest::features::{CONFIG_WCE, DISCARD, FLUSH, WRITE_ZEROES};
use virtio_guest::{Virtqueue, WRITE};

use super::driver::{BUFFERS, TestDriver};
use super::{DATA, HEADER, SIZE, STATUS, UNTOUCHED};
use crate::disk::{DiskGeometry, VirtioDisk};
use crate::request::{BlkStatus, Op};

const ALL: u64 = FLUSH | CONFIG_WCE | DISCARD | WRITE_ZEROES;

const OK: u8 = BlkStatus::Ok as u8;
const IOERR: u8 = BlkStatus::IoErr as u8;
const UNSUPP: u8 = BlkStatus::Unsupp as u8;

fn geometry() -> DiskGeometry {
    DiskGeometry {
        serial: *b"a serial of 20 bytes",
        max_discard_sectors: 64,
        max_write_zeroes_sectors: 32,
        ..DiskGeometry::new(1024, 512)
    }
}

/// The result of one chain.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Request { op: Op, sector: u64, bytes: u32 },
    Answer { status: u8, written: u32 },
}

fn answer(status: u8) -> Outcome {
    Outcome::Answer { status, written: 1 }
}

/// Sends a chain of a header, `payload`, a buffer of `space` writable bytes, and a status.
fn outcome_of(disk: VirtioDisk, features: u64, (kind, sector): (u32, u64), payload: &[u8], space: u32) -> Outcome {
    let mut driver = TestDriver::new(SIZE, features);
    driver.write(STATUS, &[UNTOUCHED]);
    driver.header(HEADER, kind, sector);
    driver.write(DATA, payload);
    let read = (DATA, payload.len() as u32, 0);
    driver.chain(0, &[(HEADER, 16, 0), read, (BUFFERS + 0x2_0000, space, WRITE), (STATUS, 1, WRITE)]);
    driver.make_available(0);
    let mut queue = driver.queue(&Arc::new(disk));
    if let Some(request) = queue.pop().unwrap() {
        let mut data = vec![0; payload.len().min(request.segments.bytes() as usize)];
        request.segments.copy_to(0, &mut data);
        if matches!(request.op, Op::Write { .. }) {
            assert_eq!(data, payload);
        }
        assert_eq!(driver.read(STATUS, 1), [UNTOUCHED]);
        return Outcome::Request { op: request.op, sector: request.sector, bytes: request.bytes };
    }
    queue.publish();
    Outcome::Answer { status: driver.read(STATUS, 1)[0], written: driver.used()[0].1 }
}

fn write(disk: VirtioDisk, features: u64, sector: u64, bytes: usize) -> Outcome {
    outcome_of(disk, features, (1, sector), &vec![3; bytes], 0)
}

fn read(disk: VirtioDisk, sector: u64, bytes: u32) -> Outcome {
    outcome_of(disk, ALL, (0, sector), &[], bytes)
}

fn range(disk: VirtioDisk, kind: u32, ranges: &[(u64, u32, u32)]) -> Outcome {
    let mut payload = Vec::new();
    for (sector, sectors, flags) in ranges {
        payload.extend(sector.to_le_bytes());
        payload.extend(sectors.to_le_bytes());
        payload.extend(flags.to_le_bytes());
    }
    outcome_of(disk, ALL, (kind, 0), &payload, 0)
}

fn disk() -> VirtioDisk {
    VirtioDisk::new(geometry()).unwrap()
}

fn read_only() -> VirtioDisk {
    VirtioDisk::new(DiskGeometry { read_only: true, ..geometry() }).unwrap()
}

#[test]
fn reads_and_writes_inside_the_disk_go_through() {
    assert_eq!(read(disk(), 0, 512), Outcome::Request { op: Op::Read, sector: 0, bytes: 512 });
    assert_eq!(read(disk(), 1023, 512), Outcome::Request { op: Op::Read, sector: 1023, bytes: 512 });
    let op = Op::Write { fua: false };
    assert_eq!(write(disk(), ALL, 9, 4096), Outcome::Request { op, sector: 9, bytes: 4096 });
}

#[test]
fn reads_and_writes_outside_fail() {
    for (sector, bytes) in [(1023, 1024), (1024, 512), (u64::MAX, 512), (u64::MAX / 512, 512)] {
        assert_eq!(read(disk(), sector, bytes), Outcome::Answer { status: IOERR, written: 0 }, "{sector}");
        assert_eq!(write(disk(), ALL, sector, bytes as usize), answer(IOERR), "{sector}");
    }
}

#[test]
fn data_must_be_whole_blocks() {
    let blocks = || {
        VirtioDisk::new(DiskGeometry {
            max_discard_sectors: 0,
            max_write_zeroes_sectors: 0,
            block_size: 4096,
            ..geometry()
        })
    };
    assert_eq!(write(disk(), ALL, 0, 513), answer(IOERR));
    assert_eq!(write(disk(), ALL, 0, 511), answer(IOERR));
    assert_eq!(write(blocks().unwrap(), ALL, 0, 512), answer(IOERR));
    assert_eq!(write(blocks().unwrap(), ALL, 1, 4096), answer(IOERR));
    let op = Op::Write { fua: false };
    assert_eq!(write(blocks().unwrap(), ALL, 8, 4096), Outcome::Request { op, sector: 8, bytes: 4096 });
}

#[test]
fn a_transfer_without_data_succeeds() {
    assert_eq!(read(disk(), 0, 0), answer(OK));
    assert_eq!(write(disk(), ALL, 0, 0), answer(OK));
}

#[test]
fn more_data_than_advertised_fails() {
    let small = || VirtioDisk::new(DiskGeometry { size_max: 1024, seg_max: 2, ..geometry() }).unwrap();
    assert_eq!(read(small(), 0, 2048), Outcome::Request { op: Op::Read, sector: 0, bytes: 2048 });
    assert_eq!(read(small(), 0, 2560), Outcome::Answer { status: IOERR, written: 0 });
}

#[test]
fn a_read_only_disk_refuses_changes() {
    assert_eq!(write(read_only(), ALL, 0, 512), answer(IOERR));
    assert_eq!(range(read_only(), 11, &[(0, 8, 0)]), answer(IOERR));
    assert_eq!(range(read_only(), 13, &[(0, 8, 0)]), answer(IOERR));
    assert_eq!(read(read_only(), 0, 512), Outcome::Request { op: Op::Read, sector: 0, bytes: 512 });
}

#[test]
fn writes_are_durable_without_flush_or_in_write_through_mode() {
    let fua = |features: u64, writeback: bool| {
        let disk = VirtioDisk::new(DiskGeometry { writeback, ..geometry() }).unwrap();
        let Outcome::Request { op: Op::Write { fua }, .. } = write(disk, features, 0, 512) else { panic!() };
        fua
    };
    for writeback in [false, true] {
        assert!(fua(0, writeback), "no way to flush");
        assert!(fua(CONFIG_WCE, writeback), "no way to flush");
        assert!(!fua(FLUSH, writeback), "no cache mode negotiated");
        assert_eq!(fua(FLUSH | CONFIG_WCE, writeback), !writeback);
    }
}

#[test]
fn the_cache_mode_takes_effect_on_the_next_request() {
    let disk = Arc::new(disk());
    let mut driver = TestDriver::new(SIZE, ALL);
    driver.header(HEADER, 1, 0);
    driver.chain(0, &[(HEADER, 16, 0), (DATA, 512, 0), (STATUS, 1, WRITE)]);
    let mut queue = driver.queue(&disk);
    for writeback in [true, false, true] {
        disk.set_writeback(writeback);
        driver.make_available(0);
        assert_eq!(queue.pop().unwrap().unwrap().op, Op::Write { fua: !writeback });
    }
}

#[test]
fn flush_goes_through() {
    let flush = Outcome::Request { op: Op::Flush, sector: 0, bytes: 0 };
    assert_eq!(outcome_of(disk(), ALL, (4, 77), &[], 0), flush);
    assert_eq!(outcome_of(read_only(), 0, (4, 0), &[], 0), flush);
}

#[test]
fn unknown_types_are_unsupported() {
    for kind in [2, 3, 5, 9, 10, 12, 14, 15, 1 << 31, u32::MAX] {
        assert_eq!(outcome_of(disk(), ALL, (kind, 0), &[], 0), answer(UNSUPP), "{kind}");
    }
    for kind in [11, 13] {
        assert_eq!(outcome_of(disk(), FLUSH, (kind, 0), &[0; 16], 0), answer(UNSUPP), "{kind} was not negotiated");
    }
}

#[test]
fn get_id_tells_the_serial() {
    let get_id = |space: u32| {
        let mut driver = TestDriver::new(SIZE, 0);
        driver.header(HEADER, 8, 0);
        driver.chain(0, &[(HEADER, 16, 0), (DATA, space, WRITE), (STATUS, 1, WRITE)]);
        driver.make_available(0);
        let mut queue = driver.queue(&Arc::new(disk()));
        assert!(queue.pop().unwrap().is_none());
        queue.publish();
        (driver.read(DATA, 24), driver.used()[0].1)
    };
    assert_eq!(get_id(20), (b"a serial of 20 bytes\0\0\0\0".to_vec(), 21));
    assert_eq!(get_id(512), (b"a serial of 20 bytes\0\0\0\0".to_vec(), 20), "the rest is not written");
    assert_eq!(get_id(8), (b"a serial\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(), 9));
}

#[test]
fn ranges_go_through() {
    assert_eq!(range(disk(), 11, &[(960, 64, 0)]), Outcome::Request { op: Op::Discard, sector: 960, bytes: 64 * 512 });
    for unmap in [false, true] {
        let op = Op::WriteZeroes { unmap, fua: false };
        assert_eq!(
            range(disk(), 13, &[(1, 32, u32::from(unmap))]),
            Outcome::Request { op, sector: 1, bytes: 32 * 512 }
        );
    }
    assert_eq!(range(disk(), 11, &[(0, 0, 0)]), answer(OK));
}

#[test]
fn bad_ranges_fail() {
    assert_eq!(range(disk(), 11, &[(0, 65, 0)]), answer(IOERR), "longer than the maximum");
    assert_eq!(range(disk(), 13, &[(0, 33, 0)]), answer(IOERR), "longer than the maximum");
    assert_eq!(range(disk(), 11, &[(0, u32::MAX, 0)]), answer(IOERR), "longer than the maximum");
    assert_eq!(range(disk(), 13, &[(1023, 2, 0)]), answer(IOERR), "past the end");
    assert_eq!(range(disk(), 13, &[(u64::MAX, 1, 0)]), answer(IOERR), "past the end");
    assert_eq!(range(disk(), 11, &[(0, 1, 1)]), answer(UNSUPP), "discard with unmap");
    assert_eq!(range(disk(), 13, &[(0, 1, 2)]), answer(UNSUPP), "unknown flag");
    assert_eq!(range(disk(), 11, &[(0, 1, 1 << 31)]), answer(UNSUPP), "unknown flag");
    assert_eq!(range(disk(), 11, &[(0, 1, 0), (8, 1, 0)]), answer(UNSUPP), "one range is the maximum");
    assert_eq!(range(disk(), 11, &[]), answer(IOERR), "no range");
    assert_eq!(outcome_of(disk(), ALL, (13, 0), &[0; 15], 0), answer(IOERR), "half a range");
}
