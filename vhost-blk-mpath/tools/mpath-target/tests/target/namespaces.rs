//! Several namespaces over one association, which share only its controller and queues.

use std::time::{Duration, Instant};

use mpath_target::{AnaState, NamespaceConfig, TargetServer};
use nvme_tcp::host::{ControllerConfig, ControllerEvent, IoCommand, NamespaceError, Tag};
use nvme_tcp::wire::Status;

use crate::common::{Admin, PATIENCE, Queue, connect, host_config, pattern, set, target, target_config};

const MIB: u64 = 1 << 20;

/// Namespaces of 1, 2 and 3 MiB, configured in the order 3, 1, 2.
fn three() -> (TargetServer, ControllerConfig) {
    let server = target(1, &[1, 2, 3].map(|size| NamespaceConfig::memory(size * MIB)));
    (server, ControllerConfig { nsids: vec![3, 1, 2], ..host_config() })
}

/// The next `count` events: the position, and the ANA state or the number of blocks.
fn events(admin: &mut Admin, count: usize) -> Vec<(usize, Result<AnaState, u64>)> {
    let short = |event| match event {
        ControllerEvent::AnaChanged { namespace, state } => (namespace, Ok(state)),
        ControllerEvent::NamespaceChanged { namespace, identity } => (namespace, Err(identity.unwrap().blocks)),
        other => panic!("{other:?}"),
    };
    (0..count).map(|_| short(admin.event().unwrap())).collect()
}

#[test]
fn one_queue_reaches_all_namespaces() {
    let (server, config) = three();
    let (_admin, mut queue, info) = connect(server.addrs()[0], config);
    let blocks: Vec<_> = info.namespaces.iter().map(|namespace| namespace.clone().unwrap().identity.blocks).collect();
    assert_eq!(blocks, [3 * 2048, 2048, 2 * 2048]);
    // In the capsule, by R2T, and larger than MDTS, all in flight together.
    for bytes in [4096, 64 << 10, (1 << 20) - 512] {
        let contents = [1, 2, 3].map(|seed| pattern(seed, bytes));
        let blocks = (bytes / 512) as u32;
        let mut tags: Vec<Tag> = Vec::new();
        for (namespace, data) in (0..).zip(&contents) {
            queue.namespace = namespace;
            tags.push(queue.submit(IoCommand::Write { slba: 0, blocks, fua: false }, data.clone()));
        }
        for _ in &tags {
            let completion = queue.completion().unwrap();
            completion.result.unwrap();
            tags.iter().find(|&&tag| tag == completion.tag).expect("one of ours");
        }
        for (namespace, data) in (0..).zip(&contents) {
            queue.namespace = namespace;
            assert!(queue.read(0, blocks).unwrap() == *data, "namespace {namespace}, {bytes} bytes");
        }
    }
    // The last block of each namespace.
    for (namespace, last) in (0..).zip(blocks) {
        queue.namespace = namespace;
        queue.write(last - 1, &pattern(9, 512), false).unwrap();
    }
}

#[test]
fn a_missing_namespace_does_not_affect_the_others() {
    let (server, config) = three();
    let config = ControllerConfig { nsids: vec![9, 2], ..config };
    let (admin, mut queue, info) = connect(server.addrs()[0], config);
    assert_eq!(info.namespaces[0], Err(NamespaceError::Missing { nsid: 9, available: vec![1, 2, 3] }));
    assert_eq!(admin.controller.queue_config(1).unwrap().namespaces[0], None);
    queue.namespace = 1;
    queue.write(0, &pattern(1, 4096), false).unwrap();
}

#[test]
fn each_namespace_has_its_own_ana_state() {
    let (server, config) = three();
    let (mut admin, mut queue, info) = connect(server.addrs()[0], config);
    let optimized = info.namespaces.iter().all(|it| it.as_ref().unwrap().ana == AnaState::Optimized);
    assert!(optimized, "{info:?}");
    set(&server, 0, &["ana=1:inaccessible"]);
    let told = [(0, Ok(AnaState::Optimized)), (1, Ok(AnaState::Inaccessible)), (2, Ok(AnaState::Optimized))];
    assert_eq!(events(&mut admin, 3), told);
    let read = |namespace, queue: &mut Queue| {
        queue.namespace = namespace;
        queue.read(0, 1).map(drop)
    };
    let results = [0, 1, 2].map(|namespace| read(namespace, &mut queue));
    assert_eq!(results, [Ok(()), Err(Status::ANA_INACCESSIBLE), Ok(())]);
}

#[test]
fn a_changed_size_leads_to_an_event_for_each_namespace() {
    let (server, config) = three();
    let (mut admin, _queue, _) = connect(server.addrs()[0], config);
    set(&server, 0, &["size=2:1MiB"]);
    let told = events(&mut admin, 6);
    assert_eq!(told.iter().filter(|told| told.1.is_ok()).count(), 3);
    let blocks: Vec<_> = told.into_iter().filter_map(|(namespace, it)| Some((namespace, it.err()?))).collect();
    assert_eq!(blocks, [(0, 3 * 2048), (1, 2048), (2, 2048)]);
}

#[test]
fn a_namespace_stuck_in_change_does_not_end_the_association() {
    let mut config = target_config(1, &[NamespaceConfig::memory(MIB), NamespaceConfig::memory(MIB)]);
    config.anatt_seconds = 1;
    let server = TargetServer::start(config).unwrap();
    let (mut admin, mut queue, _) = connect(server.addrs()[0], ControllerConfig { nsids: vec![1, 2], ..host_config() });
    set(&server, 0, &["ana=2:change"]);
    assert_eq!(events(&mut admin, 2), [(0, Ok(AnaState::Optimized)), (1, Ok(AnaState::Change))]);
    let begin = Instant::now();
    let Ok(ControllerEvent::NamespaceChanged { namespace: 1, identity }) = admin.event() else { panic!() };
    assert_eq!(*identity, Err(NamespaceError::AnaTransition { after: Duration::from_secs(2).into() }));
    assert!((Duration::from_secs(1)..PATIENCE).contains(&begin.elapsed()));
    queue.read(0, 1).unwrap();
    set(&server, 0, &["ana=2:optimized"]);
    let told = [(0, Ok(AnaState::Optimized)), (1, Err(2048)), (1, Ok(AnaState::Optimized))];
    assert_eq!(events(&mut admin, 3), told);
}
