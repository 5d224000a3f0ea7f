//! Another project's driver: libblkio's virtio-driver over a real socket.

use std::os::fd::{AsFd, AsRawFd};

use ::virtio_driver::{VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags};
use rustix::fs::{MemfdFlags, memfd_create};
use vhost_user_blk::DiskGeometry;
use vm_memory::{FileOffset, MmapRegion};

use crate::guest::wait_readable;
use crate::{Server, geometry};

const BUFFER_BYTES: usize = 1 << 20;
const QUEUE_SIZE: u16 = 64;

struct Driver {
    /// Declared before the transport, whose memory contains the queues.
    queues: Vec<VirtioBlkQueue<'static, usize>>,
    transport: Box<VirtioBlkTransport>,
    buffer: MmapRegion<()>,
}

impl Driver {
    fn connect(server: &Server, num_queues: usize, ring_features: VirtioFeatureFlags) -> Self {
        let features = (ring_features | VirtioFeatureFlags::VERSION_1).bits() | VirtioBlkFeatureFlags::all().bits();
        let mut transport: Box<VirtioBlkTransport> =
            Box::new(VhostUser::new(server.socket().to_str().unwrap(), features).unwrap());
        let mut queues = VirtioBlkQueue::setup_queues(&mut *transport, num_queues, QUEUE_SIZE).unwrap();
        for queue in &mut queues {
            queue.set_used_notif_enabled(true);
        }
        let file = std::fs::File::from(memfd_create("buffers", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(BUFFER_BYTES as u64).unwrap();
        let fd = file.try_clone().unwrap();
        let buffer = MmapRegion::from_file(FileOffset::new(file, 0), BUFFER_BYTES).unwrap();
        // The queues run already, and are stopped and started for it.
        transport.map_mem_region(buffer.as_ptr() as usize, BUFFER_BYTES, fd.as_raw_fd(), 0).unwrap();
        Self { queues, transport, buffer }
    }

    fn slice(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        assert!(offset + bytes <= BUFFER_BYTES);
        // SAFETY: inside the mapping, and `&mut self` while the device does nothing.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_ptr().add(offset), bytes) }
    }

    /// Queues a read of `bytes` at `from` on the disk to `to` in the buffer.
    fn read(&mut self, queue: usize, from: u64, (to, bytes): (usize, usize), context: usize) {
        let to = self.slice(to, bytes).as_mut_ptr();
        // SAFETY: in the buffer, which stays mapped and is not looked at before the completion.
        unsafe { self.queues[queue].read_raw(from, to, bytes, context).unwrap() }
    }

    /// Queues a write of `bytes` at `from` in the buffer to `to` on the disk.
    fn write(&mut self, queue: usize, (from, bytes): (usize, usize), to: u64, context: usize) {
        let from = self.slice(from, bytes).as_ptr();
        // SAFETY: in the buffer, which stays mapped and is not changed before the completion.
        unsafe { self.queues[queue].write_raw(to, from, bytes, context).unwrap() }
    }

    /// Kicks queue `queue` and waits for `count` completions: `(context, ret)` sorted.
    fn finish(&mut self, queue: usize, count: usize) -> Vec<(usize, i32)> {
        self.transport.get_submission_notifier(queue).notify().unwrap();
        let mut done = Vec::new();
        loop {
            done.extend(self.queues[queue].completions().map(|completion| (completion.context, completion.ret)));
            if done.len() == count {
                done.sort_unstable();
                return done;
            }
            let completed = self.transport.get_completion_fd(queue);
            wait_readable(completed.as_fd());
            completed.read().unwrap();
        }
    }
}

fn ok(count: usize) -> Vec<(usize, i32)> {
    (0..count).map(|context| (context, 0)).collect()
}

#[test]
fn the_configuration_arrives() {
    let server = Server::start(DiskGeometry { opt_io_blocks: 64, ..geometry() });
    let driver = Driver::connect(&server, 1, VirtioFeatureFlags::empty());
    let config = driver.transport.get_config().unwrap();
    assert_eq!((u64::from(config.capacity), u32::from(config.blk_size)), (8192, 512));
    assert_eq!((u16::from(config.num_queues), u32::from(config.opt_io_size)), (4, 64));
    assert_eq!(driver.transport.max_queues(), Some(4));
    let features = VirtioBlkFeatureFlags::from_bits_truncate(driver.transport.get_features());
    assert!(
        features.contains(VirtioBlkFeatureFlags::FLUSH | VirtioBlkFeatureFlags::DISCARD | VirtioBlkFeatureFlags::MQ)
    );
    assert!(!features.contains(VirtioBlkFeatureFlags::RO));
}

fn queues_read_what_others_wrote(ring_features: VirtioFeatureFlags) {
    const BLOCK: usize = 4096;
    const PER_QUEUE: usize = 20;
    let server = Server::start(geometry());
    let mut driver = Driver::connect(&server, 4, ring_features);
    let pattern = |queue: usize, i: usize| (queue * 37 + i * 11 + 1) as u8;
    let disk_at = |queue: usize, i: usize| ((queue * PER_QUEUE + i) * BLOCK) as u64;
    for queue in 0..4 {
        for i in 0..PER_QUEUE {
            driver.slice(i * BLOCK, BLOCK).fill(pattern(queue, i));
            driver.write(queue, (i * BLOCK, BLOCK), disk_at(queue, i), i);
        }
        assert_eq!(driver.finish(queue, PER_QUEUE), ok(PER_QUEUE));
    }
    driver.slice(0, BUFFER_BYTES).fill(0);
    // All queues at once. Each reads what its neighbour wrote.
    for queue in 0..4 {
        for i in 0..PER_QUEUE {
            driver.read(queue, disk_at((queue + 1) % 4, i), ((queue * PER_QUEUE + i) * BLOCK, BLOCK), i);
        }
        driver.transport.get_submission_notifier(queue).notify().unwrap();
    }
    for queue in 0..4 {
        assert_eq!(driver.finish(queue, PER_QUEUE), ok(PER_QUEUE));
    }
    for queue in 0..4 {
        for i in 0..PER_QUEUE {
            let expected = pattern((queue + 1) % 4, i);
            assert!(driver.slice((queue * PER_QUEUE + i) * BLOCK, BLOCK).iter().all(|&byte| byte == expected));
        }
    }
    drop(driver);
    server.outcome().unwrap();
}

#[test]
fn multi_queue_with_direct_descriptors() {
    queues_read_what_others_wrote(VirtioFeatureFlags::empty());
}

#[test]
fn multi_queue_with_indirect_descriptors_and_event_idx() {
    queues_read_what_others_wrote(VirtioFeatureFlags::RING_INDIRECT_DESC | VirtioFeatureFlags::RING_EVENT_IDX);
}

#[test]
fn multi_queue_with_packed_rings() {
    let packed = VirtioFeatureFlags::RING_PACKED;
    queues_read_what_others_wrote(packed);
    queues_read_what_others_wrote(packed | VirtioFeatureFlags::RING_INDIRECT_DESC | VirtioFeatureFlags::RING_EVENT_IDX);
}

#[test]
fn flush_discard_and_write_zeroes() {
    let server = Server::start(geometry());
    let mut driver = Driver::connect(&server, 1, VirtioFeatureFlags::RING_EVENT_IDX);
    driver.slice(0, 8192).fill(0xff);
    driver.write(0, (0, 8192), 0, 0);
    assert_eq!(driver.finish(0, 1), ok(1));
    driver.queues[0].write_zeroes(512, 512, false, 0).unwrap();
    driver.queues[0].write_zeroes(1536, 512, true, 1).unwrap();
    driver.queues[0].discard(4096, 4096, 2).unwrap();
    driver.queues[0].flush(3).unwrap();
    assert_eq!(driver.finish(0, 4), ok(4));
    driver.read(0, 0, (0, 8192), 0);
    assert_eq!(driver.finish(0, 1), ok(1));
    let data = driver.slice(0, 8192);
    let zero = |range: std::ops::Range<usize>| data[range].iter().all(|&byte| byte == 0);
    assert!(zero(512..1024) && zero(1536..2048) && zero(4096..8192));
    assert!(data[..512].iter().chain(&data[1024..1536]).chain(&data[2048..4096]).all(|&byte| byte == 0xff));
    let counters = server.ram.counters();
    let counters = counters.lock().unwrap();
    assert_eq!((counters.flushes, counters.durable_writes), (1, 0));
}

#[test]
fn an_unsupported_request_fails_alone() {
    let server = Server::start(geometry());
    let mut driver = Driver::connect(&server, 1, VirtioFeatureFlags::RING_INDIRECT_DESC);
    let end = 8192 * 512;
    driver.queues[0].discard(0, 1025 * 512, 0).unwrap();
    driver.queues[0].write_zeroes(end - 512, 1024, false, 1).unwrap();
    driver.read(0, end, (0, 512), 2);
    driver.write(0, (0, 100), 0, 3);
    driver.read(0, 0, (0, 512), 4);
    let error = -libc::EIO;
    assert_eq!(driver.finish(0, 5), [(0, error), (1, error), (2, error), (3, error), (4, 0)]);
}

#[test]
fn a_front_end_may_hang_up_and_another_come() {
    let server = Server::start(geometry());
    for round in 0..3_u8 {
        let mut driver = Driver::connect(&server, 2, VirtioFeatureFlags::RING_EVENT_IDX);
        driver.read(1, 0, (0, 512), 0);
        assert_eq!(driver.finish(1, 1), ok(1));
        assert_eq!(driver.slice(0, 512), [round; 512], "what the one before wrote");
        driver.slice(0, 512).fill(round + 1);
        driver.write(0, (0, 512), 0, 0);
        assert_eq!(driver.finish(0, 1), ok(1));
        drop(driver);
        server.outcome().unwrap();
    }
}

#[test]
fn a_front_end_may_hang_up_with_requests_in_flight() {
    let server = Server::start(geometry());
    for _ in 0..5 {
        let mut driver = Driver::connect(&server, 4, VirtioFeatureFlags::RING_INDIRECT_DESC);
        for queue in 0..4 {
            for i in 0..16 {
                driver.read(queue, 0, (i * 4096, 4096), i);
            }
            driver.transport.get_submission_notifier(queue).notify().unwrap();
        }
        drop(driver);
        server.outcome().unwrap();
    }
}
