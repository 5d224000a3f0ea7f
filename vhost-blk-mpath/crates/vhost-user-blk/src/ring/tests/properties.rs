//! Properties for any driver: no panic, no access outside guest memory, one completion per chain. The layout of a
//! request does not change its meaning.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use virtio_guest::features::{DISCARD, EVENT_IDX, FLUSH, INDIRECT_DESC, PACKED, WRITE_ZEROES};
use virtio_guest::{NEXT, Virtqueue, WRITE};

use super::driver::{BUFFERS, DESCRIPTORS, MEMORY_BYTES, PAGE_BYTES, TestDriver, USED};
use super::{BlkStatus, Queue, QueueError, Request};
use crate::disk::{DiskGeometry, VirtioDisk};
use crate::request::Op;

fn disk() -> Arc<VirtioDisk> {
    let geometry =
        DiskGeometry { max_discard_sectors: 64, max_write_zeroes_sectors: 64, ..DiskGeometry::new(1 << 40, 512) };
    Arc::new(VirtioDisk::new(geometry).unwrap())
}

const SIZE: u16 = 8;

/// Interesting addresses: buffers, the rings, edges, unmapped ones.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => BUFFERS..BUFFERS + 0x800,
        1 => 0..BUFFERS,
        1 => MEMORY_BYTES / 2 - 64..MEMORY_BYTES / 2 + 64,
        1 => MEMORY_BYTES - 64..MEMORY_BYTES + 64,
        1 => any::<u64>(),
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..40, 4 => Just(16_u32), 2 => Just(512), 1 => (0_u32..9).prop_map(|n| n * 16), 1 => any::<u32>()]
}

fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let flags = prop_oneof![8 => 0_u16..8, 1 => any::<u16>()];
    let next = prop_oneof![12 => 0..SIZE, 1 => any::<u16>()];
    (address(), length(), flags, next)
}

/// Takes all requests, accesses their data, and completes them. Returns why the queue broke, if it did. Checks that a
/// migration marks all changes.
fn complete_all(queue: &mut Queue, driver: &TestDriver) -> Option<QueueError> {
    let before = driver.snapshot();
    queue.disable_notifications();
    let mut requests: Vec<Request> = Vec::new();
    let broken = loop {
        match queue.pop() {
            Ok(Some(request)) => requests.push(request),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    for (request, status) in requests.into_iter().zip([BlkStatus::IoErr, BlkStatus::Ok].into_iter().cycle()) {
        let bytes = request.segments.bytes() as usize;
        assert!(request.op != Op::Flush || bytes == 0);
        match request.op {
            Op::Read => request.segments.copy_from(0, &vec![0x77; bytes]),
            _ => request.segments.copy_to(0, &mut vec![0; bytes]),
        }
        queue.complete(request, status);
    }
    queue.publish();
    let _ = queue.enable_notifications();
    assert_eq!(queue.outstanding(), 0);
    if driver.is_migrating() {
        let marked = driver.marked();
        let unmarked = driver.changed_since(&before).into_iter().filter(|page| !marked.contains(page));
        assert_eq!(unmarked.collect::<Vec<_>>(), Vec::<u64>::new());
    }
    broken
}

/// Changes to the rings during a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rings {
    /// Nothing. Only then do the rings contain what the device wrote.
    OutOfReach,
    /// Requests may overwrite the rings.
    InReach,
    /// Requests may overwrite the rings during a migration, which marks all of it.
    Migrating,
}

impl Rings {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![2 => Just(Self::OutOfReach), 1 => Just(Self::InReach), 1 => Just(Self::Migrating)]
    }

    fn set(self, driver: &mut TestDriver) {
        match self {
            Self::OutOfReach => driver.put_rings_out_of_reach(),
            Self::InReach => {}
            Self::Migrating => driver.migrate(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_split_ring_is_handled_and_each_chain_completed_once(
        table in prop::collection::vec(descriptor(), usize::from(SIZE)),
        indirect in prop::collection::vec(descriptor(), 16),
        headers in prop::collection::vec((prop_oneof![0_u32..16, any::<u32>()], prop_oneof![0_u64..64, any::<u64>()]), 8),
        heads in prop::collection::vec(prop_oneof![20 => 0..SIZE, 1 => any::<u16>()], 0..20),
        extra in prop_oneof![4 => Just(0_u16), 1 => any::<u16>()],
        start: u16,
        rings in Rings::any(),
        features in prop_oneof![Just(0), Just(EVENT_IDX | INDIRECT_DESC | FLUSH | DISCARD | WRITE_ZEROES), Just(INDIRECT_DESC)],
    ) {
        let mut driver = TestDriver::new(SIZE, features);
        driver.start_at(start);
        for (i, descriptor) in table.iter().enumerate() {
            driver.descriptor(i as u16, *descriptor);
        }
        // Tables and headers for addresses in BUFFERS.
        for (i, descriptor) in indirect.iter().enumerate() {
            driver.write_descriptor(BUFFERS + 0x400 + 16 * i as u64, *descriptor);
        }
        for (i, &(kind, sector)) in headers.iter().enumerate() {
            driver.header(BUFFERS + 0x100 + 16 * i as u64, kind, sector);
        }
        rings.set(&mut driver);
        let mut queue = driver.queue(&disk());
        let mut expected = BTreeMap::new();
        let mut completed = Vec::new();
        let mut broken = false;
        for chunk in heads.chunks(usize::from(SIZE)) {
            for head in chunk {
                driver.make_available(*head);
            }
            // The available index may be invalid too.
            if extra != 0 && chunk.len() < 4 {
                driver.set_available_idx(start.wrapping_add(extra).into());
            }
            broken |= complete_all(&mut queue, &driver).is_some();
            if rings == Rings::OutOfReach && !broken && extra == 0 {
                for head in chunk {
                    *expected.entry(u32::from(*head)).or_insert(0) += 1;
                }
                completed.extend(driver.used().into_iter().map(|used| used.0));
            }
        }
        driver.assert_guards();
        if !broken && extra == 0 {
            let mut counted = BTreeMap::new();
            for head in completed {
                *counted.entry(head).or_insert(0) += 1;
            }
            prop_assert_eq!(counted, expected);
        }
    }

    #[test]
    fn any_packed_ring_is_handled_and_each_chain_completed_once(
        size in 4_u16..12,
        chains in prop::collection::vec(prop::collection::vec(descriptor(), 1..5), 0..20),
        indirect in prop::collection::vec(descriptor(), 16),
        headers in prop::collection::vec((prop_oneof![0_u32..16, any::<u32>()], prop_oneof![0_u64..64, any::<u64>()]), 8),
        endless in prop_oneof![4 => Just(20_usize), 1 => 0_usize..20],
        start: u16,
        rings in Rings::any(),
        features in prop_oneof![Just(0), Just(EVENT_IDX | INDIRECT_DESC | FLUSH | DISCARD | WRITE_ZEROES), Just(INDIRECT_DESC)],
    ) {
        let mut driver = TestDriver::new(size, features | PACKED);
        driver.start_at(start);
        // In a table the third and fourth value are id and flags. Any values will do.
        for (i, descriptor) in indirect.iter().enumerate() {
            driver.write_descriptor(BUFFERS + 0x400 + 16 * i as u64, *descriptor);
        }
        for (i, &(kind, sector)) in headers.iter().enumerate() {
            driver.header(BUFFERS + 0x100 + 16 * i as u64, kind, sector);
        }
        rings.set(&mut driver);
        let mut queue = driver.queue(&disk());
        let (mut room, mut broken) = (usize::from(size), None);
        let mut expected = Vec::new();
        let mut completed = Vec::new();
        for (id, chain) in chains.iter().enumerate() {
            if chain.len() > room {
                broken = broken.or(complete_all(&mut queue, &driver));
                if broken.is_some() || endless < id {
                    break;
                }
                if rings == Rings::OutOfReach {
                    completed.extend(driver.used().into_iter().map(|used| used.0));
                }
                room = size.into();
            }
            room -= chain.len();
            let last = chain.len() - 1;
            // One chain runs into the descriptors behind it.
            let next = |i: usize| if i < last || id == endless { NEXT } else { 0 };
            let flags = |i: usize, flags: u16| flags & !(1 << 7 | 1 << 15 | NEXT) | next(i);
            let chain: Vec<_> = (0..).zip(chain).map(|(i, &(addr, len, any, _))| (addr, len, flags(i, any))).collect();
            driver.make_packed_available(id as u16, &chain);
            expected.push(id as u32);
        }
        broken = broken.or(complete_all(&mut queue, &driver));
        driver.assert_guards();
        if rings == Rings::OutOfReach && endless >= chains.len() {
            match broken {
                None => {}
                // It has answered the chains before.
                Some(QueueError::NoStatus { id, .. }) => expected.truncate(id.into()),
                Some(error) => panic!("{error}"),
            }
            completed.extend(driver.used().into_iter().map(|used| used.0));
            completed.sort_unstable();
            prop_assert_eq!(completed, expected);
        }
    }

    /// Whatever comes before the status byte, it has a status afterwards.
    #[test]
    fn a_chain_that_ends_with_a_status_byte_gets_its_status_there(
        buffers in prop::collection::vec((address(), prop_oneof![4 => 0_u32..600, 1 => any::<u32>()], any::<bool>()), 0..12),
        repeated in prop_oneof![4 => Just(1_usize), 1 => 1_usize..300],
        // Two operations that are not supported, and a flush.
        kind in 2_u32..5,
        packed: bool,
        indirect: bool,
    ) {
        const STATUS: u64 = MEMORY_BYTES / 2 + 0x1_0000;
        const TABLE: u64 = STATUS + 0x1000;
        let buffers = || buffers.iter().map(|&(at, bytes, write)| (at, bytes, if write { WRITE } else { 0 }));
        let middle = (0..repeated).flat_map(|_| buffers());
        let header = STATUS + 0x100;
        let chain: Vec<_> = std::iter::once((header, 16, 0)).chain(middle).chain([(STATUS, 1, WRITE)]).collect();
        let indirect = indirect || chain.len() > 16;
        let mut driver = TestDriver::new(16, INDIRECT_DESC | if packed { PACKED } else { 0 });
        driver.put_rings_out_of_reach();
        driver.header(header, kind, 8);
        // A driver that presets success.
        driver.write(STATUS, &[0]);
        if indirect { driver.indirect_chain(0, TABLE, &chain) } else { driver.chain(0, &chain) }
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        let request = queue.pop().unwrap();
        let is_executed = request.is_some();
        if let Some(request) = request {
            queue.complete(request, BlkStatus::Ok);
        }
        queue.publish();
        prop_assert_eq!(driver.used().len(), 1);
        prop_assert_eq!(driver.read(STATUS, 1)[0] == 0, is_executed);
    }

    /// A request is the same in any layout. Its answer has the same place, and no other bytes change.
    #[test]
    fn the_layout_does_not_matter(
        is_read: bool,
        sectors in 1_u32..9,
        sector in 0_u64..1 << 30,
        readable_cuts in prop::collection::vec(0..10_000_usize, 0..4),
        writable_cuts in prop::collection::vec(0..10_000_usize, 0..4),
        packed: bool,
        direct in 0_usize..12,
        order in Just((0..12_u64).collect::<Vec<_>>()).prop_shuffle(),
        status in prop_oneof![Just(BlkStatus::Ok), Just(BlkStatus::IoErr)],
    ) {
        let bytes = sectors * 512;
        let mut driver = TestDriver::new(16, INDIRECT_DESC | FLUSH | if packed { PACKED } else { 0 });
        let data: Vec<u8> = (0..bytes).map(|i| (i % 249) as u8).collect();
        let mut readable = Vec::new();
        readable.extend(u32::from(!is_read).to_le_bytes());
        readable.extend([9; 4]);
        readable.extend(sector.to_le_bytes());
        let mut writable_bytes = 1;
        if is_read { writable_bytes += bytes as usize } else { readable.extend(&data) }

        // Pieces of both runs of bytes, scattered over memory.
        let pieces = |len: usize, cuts: &[usize]| {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut % (len + 1)).chain([0, len]).collect();
            at.sort_unstable();
            at.windows(2).map(|pair| pair[0]..pair[1]).collect::<Vec<_>>()
        };
        let mut slots = order.iter().map(|slot| BUFFERS + slot * 0x3000 + slot);
        let mut buffers = Vec::new();
        let mut written_at = Vec::new();
        for piece in pieces(readable.len(), &readable_cuts) {
            let at = slots.next().unwrap();
            driver.write(at, &readable[piece.clone()]);
            buffers.push((at, piece.len() as u32, 0));
        }
        for piece in pieces(writable_bytes, &writable_cuts) {
            let at = slots.next().unwrap();
            written_at.extend(at..at + piece.len() as u64);
            buffers.push((at, piece.len() as u32, WRITE));
        }
        // Some descriptors in the ring, the rest in a table. In a packed ring all or none.
        let direct = if packed && direct < 6 { 0 } else if packed { buffers.len() } else { direct.min(buffers.len()) };
        if direct == buffers.len() {
            driver.chain(0, &buffers);
        } else {
            driver.indirect_chain(direct as u16, MEMORY_BYTES - 0x1000, &buffers[direct..]);
            for (i, &(at, len, flags)) in buffers[..direct].iter().enumerate() {
                driver.descriptor(i as u16, (at, len, flags | super::NEXT, i as u16 + 1));
            }
        }
        driver.make_available(0);
        driver.migrate();
        let before = driver.snapshot();

        let mut queue = driver.queue(&disk());
        let request = queue.pop().unwrap().unwrap();
        let op = if is_read { Op::Read } else { Op::Write { fua: false } };
        prop_assert_eq!((request.op, request.sector, request.bytes), (op, sector, bytes));
        prop_assert_eq!(request.segments.bytes(), u64::from(bytes));
        if is_read {
            request.segments.copy_from(0, &data);
        } else {
            let mut seen = vec![0; bytes as usize];
            request.segments.copy_to(0, &mut seen);
            prop_assert_eq!(&seen, &data);
        }
        queue.complete(request, status);
        queue.publish();
        let full = if is_read { bytes + 1 } else { 1 };
        let written = if status == BlkStatus::Ok || !is_read { full } else { 0 };
        prop_assert_eq!(driver.used(), vec![(0, written)]);

        let mut expected = before;
        let filled = data.iter().filter(|_| is_read).copied().chain([status as u8]);
        for (at, byte) in written_at.iter().zip(filled) {
            expected[*at as usize] = byte;
        }
        let after = driver.snapshot();
        let pages = (0..after.len()).step_by(4096).filter(|&at| after[at..at + 4096] != expected[at..at + 4096]);
        let changed: Vec<_> = pages.flat_map(|at| at..at + 4096).filter(|&at| after[at] != expected[at]).collect();
        // Only the used ring's index and one entry change. In a packed ring: the used descriptor except its address.
        let used = if packed { 8..16 } else { 0xa002..0xa00c };
        prop_assert!(changed.iter().all(|at| used.contains(at)), "{changed:x?}");
        driver.assert_guards();
        // A migration marks those pages, and no others.
        let ring = if packed { DESCRIPTORS } else { USED };
        let mut pages: Vec<_> = written_at.iter().chain(&[ring]).map(|at| at / PAGE_BYTES).collect();
        pages.sort_unstable();
        pages.dedup();
        prop_assert_eq!(driver.marked(), pages);
    }
}
