//! One queue with several namespaces: the limits of its namespace apply to each request.

use crate::host::tests::handshake::Peer;
use crate::host::tests::queue_config;
use crate::host::{ConfigError, IoCommand, NamespaceLimits, QueueConfig, RecallOutcome, SubmitError, Tag};
use crate::wire::{Digests, NvmCommand, Pdu, Sgl, Status};

/// Namespaces with blocks of 512 bytes, unusable, and with blocks of 4096 bytes.
fn config() -> QueueConfig {
    let limits = |nsid, block_bytes, namespace_blocks, noiob_blocks| NamespaceLimits {
        nsid,
        block_bytes,
        namespace_blocks,
        noiob_blocks,
    };
    let namespaces = vec![Some(limits(5, 512, 2048, 0)), None, Some(limits(3, 4096, 100, 24))];
    QueueConfig { namespaces, entries: 32, max_transfer_bytes: 1 << 17, ..queue_config(Digests::default()) }
}

/// NSID and command of all capsules that are sent by this call.
fn sent(peer: &mut Peer) -> Vec<(u32, NvmCommand)> {
    let command = |(pdu, _)| match pdu {
        Pdu::CapsuleCmd(sqe) => (sqe.nsid.get(), NvmCommand::parse(&sqe).unwrap()),
        other => panic!("{other:?}"),
    };
    peer.sent().into_iter().map(command).collect()
}

#[test]
fn each_command_names_its_namespace() {
    let mut peer = Peer::ready_as(config(), 8192);
    let commands = [
        IoCommand::Read { slba: 0, blocks: 1 },
        IoCommand::Write { slba: 1, blocks: 1, fua: false },
        IoCommand::Flush,
        IoCommand::WriteZeroes { slba: 2, blocks: 1, deallocate: false, fua: false },
        IoCommand::Deallocate { slba: 3, blocks: 1 },
    ];
    for (tag, command) in (0..).zip(commands) {
        for (tag, namespace) in [(2 * tag, 0), (2 * tag + 1, 2)] {
            *peer.payloads.of(Tag(tag)) = vec![0; 4096];
            peer.queue.submit(Tag(tag), namespace, command).unwrap();
        }
    }
    let nsids: Vec<u32> = sent(&mut peer).into_iter().map(|(nsid, _)| nsid).collect();
    assert_eq!(nsids, [5, 3].repeat(5));
}

#[test]
fn requests_are_split_by_the_blocks_of_their_namespace() {
    let mut peer = Peer::ready_as(config(), 8192);
    peer.queue.submit(Tag(0), 0, IoCommand::Read { slba: 10, blocks: 300 }).unwrap();
    peer.queue.submit(Tag(1), 2, IoCommand::Read { slba: 10, blocks: 80 }).unwrap();
    let read = |nsid, slba, blocks| (nsid, NvmCommand::Read { slba, blocks });
    // 128 KiB are 256 blocks of the first namespace, and 32 of the other. There NOIOB is the lower limit.
    let first = [read(5, 10, 256), read(5, 266, 44)];
    let second = [read(3, 10, 14), read(3, 24, 24), read(3, 48, 24), read(3, 72, 18)];
    assert_eq!(sent(&mut peer), [&first[..], &second].concat());
}

#[test]
fn payload_lengths_follow_the_block_size() {
    let mut peer = Peer::ready_as(config(), 8192);
    for (tag, namespace, bytes) in [(0, 0, 1024u32), (1, 2, 8192)] {
        *peer.payloads.of(Tag(tag)) = vec![0; bytes as usize];
        peer.queue.submit(Tag(tag), namespace, IoCommand::Read { slba: 0, blocks: 2 }).unwrap();
        let pdus = peer.sent();
        let [(Pdu::CapsuleCmd(sqe), _)] = &pdus[..] else { panic!("{pdus:?}") };
        assert_eq!(sqe.dptr, Sgl::Transport { length: bytes }.emit());
        peer.complete(sqe.cid.get(), Status::INTERNAL_ERROR, 0).unwrap();
        assert_eq!(peer.queue.poll_completion().map(|done| done.tag), Some(Tag(tag)));
    }
}

#[test]
fn requests_beyond_the_end_of_their_namespace_are_refused() {
    let mut peer = Peer::ready_as(config(), 8192);
    let mut submit = |namespace, slba, blocks| {
        let submitted = peer.queue.submit(Tag(0), namespace, IoCommand::Read { slba, blocks });
        if submitted.is_ok() {
            assert_eq!(peer.queue.recall(Tag(0)), RecallOutcome::Unsent);
        }
        submitted
    };
    let out = |slba, namespace_blocks| Err(SubmitError::OutOfRange { slba, blocks: 2, namespace_blocks });
    assert_eq!((submit(0, 2046, 2), submit(0, 2047, 2)), (Ok(()), out(2047, 2048)));
    assert_eq!((submit(2, 98, 2), submit(2, 99, 2)), (Ok(()), out(99, 100)));
}

#[test]
fn the_limit_of_4_gib_follows_the_block_size() {
    let mut config = config();
    config.namespaces.iter_mut().flatten().for_each(|namespace| namespace.namespace_blocks = 1 << 40);
    let mut peer = Peer::ready_as(config, 8192);
    let read = IoCommand::Read { slba: 0, blocks: 1 << 20 };
    assert_eq!(peer.queue.submit(Tag(0), 0, read), Ok(()));
    assert_eq!(peer.queue.submit(Tag(1), 2, read), Err(SubmitError::TooLarge { blocks: 1 << 20 }));
}

#[test]
fn requests_to_unusable_namespaces_are_refused() {
    let mut peer = Peer::ready_as(config(), 8192);
    for namespace in [1, 3, u16::MAX] {
        for command in [IoCommand::Flush, IoCommand::Read { slba: 0, blocks: 1 }] {
            let refused = peer.queue.submit(Tag(0), namespace, command);
            assert_eq!(refused, Err(SubmitError::Namespace { namespace }));
        }
    }
    assert_eq!((peer.queue.in_flight(), sent(&mut peer)), (0, vec![]));
}

#[test]
fn a_namespace_that_becomes_usable_is_added() {
    let mut peer = Peer::ready_as(config(), 8192);
    let limits = |nsid, block_bytes| NamespaceLimits { nsid, block_bytes, namespace_blocks: 100, noiob_blocks: 0 };
    let read = IoCommand::Read { slba: 0, blocks: 64 };
    assert_eq!(peer.queue.submit(Tag(0), 1, read), Err(SubmitError::Namespace { namespace: 1 }));
    let too_large = ConfigError::BlockBytes(1 << 17);
    assert_eq!(peer.queue.add_namespace(1, limits(8, 1 << 17)), Err(too_large));
    assert_eq!(peer.queue.add_namespace(1, limits(8, 4096)), Ok(()));
    peer.queue.submit(Tag(0), 1, read).unwrap();
    // The request is split by the most data of a command.
    let part = |slba| (8, NvmCommand::Read { slba, blocks: 32 });
    assert_eq!(sent(&mut peer), [part(0), part(32)]);
    // A usable namespace keeps its limits.
    assert_eq!(peer.queue.add_namespace(0, limits(9, 4096)), Ok(()));
    peer.queue.submit(Tag(1), 0, IoCommand::Flush).unwrap();
    assert_eq!(sent(&mut peer), [(5, NvmCommand::Flush)]);
}

#[test]
fn a_grown_namespace_is_usable_to_its_new_end() {
    let mut peer = Peer::ready_as(config(), 8192);
    let read = |slba| IoCommand::Read { slba, blocks: 2 };
    let out = |namespace_blocks| SubmitError::OutOfRange { slba: namespace_blocks - 1, blocks: 2, namespace_blocks };
    assert_eq!(peer.queue.submit(Tag(0), 2, read(99)), Err(out(100)));
    let Some(limits) = config().namespaces[2] else { panic!("the namespace is usable") };
    let resized = |namespace_blocks| NamespaceLimits { namespace_blocks, ..limits };
    assert_eq!(peer.queue.add_namespace(2, resized(200)), Ok(()));
    assert_eq!(peer.queue.submit(Tag(0), 2, read(99)), Ok(()));
    // A smaller, outdated size has no effect.
    assert_eq!(peer.queue.add_namespace(2, resized(150)), Ok(()));
    assert_eq!(peer.queue.submit(Tag(1), 2, read(198)), Ok(()));
    assert_eq!(peer.queue.submit(Tag(2), 2, read(199)), Err(out(200)));
}
