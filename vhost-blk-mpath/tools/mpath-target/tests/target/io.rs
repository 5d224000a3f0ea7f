//! Reads and writes through the project's own host.

use mpath_target::{NamespaceConfig, TargetServer};
use nvme_tcp::host::{ControllerConfig, IoCommand, NamespaceLimits};
use nvme_tcp::wire::{Digests, Status};

use crate::common::{Admin, Queue, connect, host_config, only, pattern, target, target_config};

const MIB: u64 = 1 << 20;

/// Writes and reads: small (in the capsule), large (by R2T), and larger than MDTS.
fn round_trips(queue: &mut Queue, block_bytes: usize) {
    for (i, bytes) in [block_bytes, 4096, 8192, 8192 + block_bytes, 128 << 10, 1 << 20, (2 << 20) + block_bytes]
        .into_iter()
        .enumerate()
    {
        let bytes = bytes.next_multiple_of(block_bytes);
        let (slba, data) = (i as u64 * 3, pattern(i as u8, bytes));
        queue.write(slba, &data, i % 2 == 0).unwrap();
        let blocks = (bytes / block_bytes) as u32;
        assert!(queue.read(slba, blocks).unwrap() == data, "{bytes} bytes");
    }
}

#[test]
fn written_data_are_read_with_and_without_digests() {
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let server = target(1, &[NamespaceConfig::memory(8 * MIB)]);
        let config = nvme_tcp::host::ControllerConfig { digests: Digests { header, data }, ..host_config() };
        let (_admin, mut queue, info) = connect(server.addrs()[0], config);
        assert_eq!(info.max_transfer_bytes, 1 << 20);
        assert_eq!(info.in_capsule_bytes, 8192);
        assert_eq!(only(&info).identity.block_bytes, 512);
        round_trips(&mut queue, 512);
    }
}

#[test]
fn blocks_of_4_kib_work() {
    let config =
        mpath_target::TargetConfig { block_size: 4096, ..target_config(1, &[NamespaceConfig::memory(8 * MIB)]) };
    let server = TargetServer::start(config).unwrap();
    let (_admin, mut queue, info) = connect(server.addrs()[0], host_config());
    let namespace = only(&info).identity;
    assert_eq!((namespace.block_bytes, namespace.blocks), (4096, 2048));
    round_trips(&mut queue, 4096);
}

#[test]
fn a_file_keeps_written_data() {
    let dir = tempfile::tempdir().unwrap();
    let namespaces = [NamespaceConfig::file(dir.path().join("disk"), 8 * MIB)];
    let server = target(1, &namespaces);
    let (admin, mut queue, first) = connect(server.addrs()[0], host_config());
    round_trips(&mut queue, 512);
    let data = pattern(9, 64 << 10);
    queue.write(1000, &data, false).unwrap();
    queue.run(IoCommand::Flush, vec![]).unwrap();
    drop((admin, queue));
    server.shutdown();
    let server = target(1, &namespaces);
    let (_admin, mut queue, second) = connect(server.addrs()[0], host_config());
    assert!(queue.read(1000, 128).unwrap() == data);
    assert_eq!(first.namespaces, second.namespaces);
}

#[test]
fn parallel_commands_complete_exactly_once() {
    let server = target(1, &[NamespaceConfig::memory(16 * MIB)]);
    let (_admin, mut queue, _) = connect(server.addrs()[0], host_config());
    let capacity = queue.host.capacity();
    let sizes = [512usize, 4096, 16 << 10, 256 << 10];
    let mut tags: Vec<_> = (0..capacity)
        .map(|i| {
            let (slba, bytes) = (i as u64 * 512, sizes[i % 4]);
            let command = IoCommand::Write { slba, blocks: bytes as u32 / 512, fua: false };
            queue.submit(command, pattern(i as u8, bytes))
        })
        .collect();
    while !tags.is_empty() {
        let completion = queue.completion().unwrap();
        assert_eq!(completion.result, Ok(()));
        let index = tags.iter().position(|&tag| tag == completion.tag).expect("each completes once");
        tags.swap_remove(index);
    }
    for i in 0..capacity {
        let bytes = sizes[i % 4];
        assert!(queue.read(i as u64 * 512, bytes as u32 / 512).unwrap() == pattern(i as u8, bytes), "{i}");
    }
}

#[test]
fn zeroed_and_deallocated_blocks_read_as_zeroes() {
    let dir = tempfile::tempdir().unwrap();
    for namespace in [NamespaceConfig::memory(4 * MIB), NamespaceConfig::file(dir.path().join("disk"), 4 * MIB)] {
        let server = target(1, &[namespace]);
        let (_admin, mut queue, info) = connect(server.addrs()[0], host_config());
        assert!(info.write_zeroes && info.dataset_management && info.volatile_write_cache);
        let namespace = only(&info).identity;
        assert!(namespace.deallocated_reads_zeroes && namespace.write_zeroes_deallocates);
        for command in [
            IoCommand::WriteZeroes { slba: 1, blocks: 2000, deallocate: false, fua: false },
            IoCommand::WriteZeroes { slba: 1, blocks: 2000, deallocate: true, fua: true },
            IoCommand::Deallocate { slba: 1, blocks: 2000 },
        ] {
            let data = pattern(3, 2002 * 512);
            queue.write(0, &data, false).unwrap();
            queue.run(command, vec![]).unwrap();
            let after = queue.read(0, 2002).unwrap();
            assert!(after[..512] == data[..512] && after[2001 * 512..] == data[2001 * 512..], "{command:?}");
            assert!(after[512..2001 * 512].iter().all(|&byte| byte == 0), "{command:?}");
        }
    }
}

#[test]
fn namespaces_have_separate_data() {
    let server = target(1, &[NamespaceConfig::memory(MIB), NamespaceConfig::memory(2 * MIB)]);
    let mut queues = [1, 2].map(|nsid| {
        let config = ControllerConfig { nsids: vec![nsid], ..host_config() };
        let (admin, queue, info) = connect(server.addrs()[0], config);
        let namespace = only(&info).identity;
        assert_eq!((namespace.nsid, namespace.blocks), (nsid, u64::from(nsid) * 2048));
        (admin, queue)
    });
    let contents = [pattern(1, 4096), pattern(2, 4096)];
    for ((_, queue), data) in queues.iter_mut().zip(&contents) {
        queue.write(5, data, false).unwrap();
    }
    for ((_, queue), data) in queues.iter_mut().zip(&contents) {
        assert!(queue.read(5, 8).unwrap() == *data);
    }
}

#[test]
fn a_command_to_a_missing_namespace_fails() {
    let server = target(1, &[NamespaceConfig::memory(MIB)]);
    let (admin, _) = Admin::connect(server.addrs()[0], host_config()).unwrap();
    let mut config = admin.controller.queue_config(1).unwrap();
    let namespace = config.namespaces[0].unwrap();
    config.namespaces = vec![Some(NamespaceLimits { nsid: 2, ..namespace })];
    let mut queue = Queue::connect(server.addrs()[0], config.clone());
    assert_eq!(queue.read(0, 1), Err(Status::INVALID_NAMESPACE.with_dnr()));
    // The target checks the range, even if the host assumes a larger namespace.
    config.qid = 2;
    config.namespaces = vec![Some(NamespaceLimits { namespace_blocks: namespace.namespace_blocks * 2, ..namespace })];
    let mut queue = Queue::connect(server.addrs()[0], config);
    assert_eq!(queue.read(2047, 2), Err(Status::LBA_OUT_OF_RANGE.with_dnr()));
    assert!(queue.read(2047, 1).is_ok());
}
