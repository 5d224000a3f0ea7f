//! Ports and associations, and their failures.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use mpath_target::{AnaState, NamespaceConfig, StartError, TargetServer};
use nvme_tcp::host::{
    AdminError, ConnectError, ControllerConfig, ControllerError, ControllerEvent, IoCommand, QueueError,
};
use nvme_tcp::wire::{ConnectField, Nqn, Status};

use crate::common::{
    Admin, Gone, NQN, PATIENCE, Queue, ana_changed, connect, eventually, host_config, only, pattern, set, target,
    target_config,
};

const MIB: u64 = 1 << 20;

#[test]
fn two_ports_lead_to_the_same_namespace() {
    let server = target(2, &[NamespaceConfig::memory(MIB)]);
    let addrs = server.addrs();
    let (_a, mut first, one) = connect(addrs[0], host_config());
    let (_b, mut second, two) = connect(addrs[1], host_config());
    assert_ne!(one.cntlid, two.cntlid);
    assert_eq!(one.serial, two.serial);
    let (one, two) = (only(&one).identity, only(&two).identity);
    one.check_multipath().unwrap();
    one.check_same(&two).unwrap();
    let data = pattern(1, 4096);
    first.write(7, &data, false).unwrap();
    assert!(second.read(7, 8).unwrap() == data);
}

#[test]
fn memory_namespaces_of_two_targets_have_different_identities() {
    let infos = [0, 1].map(|_| {
        let server = target(1, &[NamespaceConfig::memory(MIB)]);
        only(&Admin::connect(server.addrs()[0], host_config()).unwrap().1).identity
    });
    assert!(infos[0].check_same(&infos[1]).is_err());
}

#[test]
fn a_wrong_nqn_is_refused_with_its_field() {
    let server = target(1, &[NamespaceConfig::memory(MIB)]);
    let config = ControllerConfig { subnqn: Nqn::new("nqn.other").unwrap(), ..host_config() };
    let refused = Admin::connect(server.addrs()[0], config).err().unwrap();
    let Gone::Controller(ControllerError::Admin(AdminError::Queue(QueueError::Connect(error)))) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(error, ConnectError::InvalidParameters { field: ConnectField::Subnqn });
}

#[test]
fn a_missing_namespace_is_refused() {
    let server = target(1, &[NamespaceConfig::memory(MIB)]);
    let config = ControllerConfig { nsids: vec![9], ..host_config() };
    let refused = Admin::connect(server.addrs()[0], config).err().unwrap();
    assert!(matches!(refused, Gone::Controller(_)), "{refused:?}");
}

#[test]
fn a_silent_host_loses_its_connections_after_kato() {
    let server = target(1, &[NamespaceConfig::memory(MIB)]);
    // Longer than a busy machine keeps this host from sending keep-alives.
    let kato = Duration::from_secs(1);
    let config = ControllerConfig { keep_alive_tmo: kato.into(), ..host_config() };
    let (mut admin, mut queue, _) = connect(server.addrs()[0], config);
    let start = Instant::now();
    while start.elapsed() < 2 * kato {
        admin.turn().expect("kept alive");
    }
    queue.read(0, 1).unwrap();
    admin.alive = false;
    let (silent, mut gone) = (Instant::now(), false);
    while !gone {
        gone = admin.turn().is_err();
        assert!(silent.elapsed() < PATIENCE);
    }
    // The last keep-alive was at most half of KATO ago.
    assert!(silent.elapsed() >= kato / 4, "{:?}", silent.elapsed());
    queue.submit(IoCommand::Flush, vec![]);
    assert!(queue.completion().is_err(), "its I/O queue is gone too");
}

#[test]
fn all_connections_of_a_port_share_its_rate() {
    const READS: u64 = 16;
    let server = target(2, &[NamespaceConfig::memory(MIB)]);
    set(&server, 0, &["rate=1MiB"]);
    let mut hosts = [(); 2].map(|()| connect(server.addrs()[0], host_config()));
    let start = Instant::now();
    for (_, queue, _) in &mut hosts {
        for slba in 0..READS {
            queue.submit(IoCommand::Read { slba, blocks: 32 }, vec![0; 16 << 10]);
        }
        queue.flush().unwrap();
    }
    for (_, queue, _) in &mut hosts {
        (0..READS).for_each(|_| queue.completion().unwrap().result.unwrap());
    }
    // 512 KiB.
    let all = start.elapsed();
    assert!(all >= Duration::from_millis(500), "{all:?}");
    // The rate affects neither the other port nor later commands without a limit.
    set(&server, 0, &["rate=off"]);
    assert_eq!(server.status()[0].rate, None);
    let (_admin, mut other, _) = connect(server.addrs()[1], host_config());
    other.read(0, 1).unwrap();
}

#[test]
fn delays_are_kept_and_overlap() {
    let server = target(1, &[NamespaceConfig::memory(MIB)]);
    let (_admin, mut queue, _) = connect(server.addrs()[0], host_config());
    server.set_delay(0, Duration::from_micros(500));
    let start = Instant::now();
    queue.read(0, 1).unwrap();
    assert!(start.elapsed() >= Duration::from_micros(500));
    let delay = Duration::from_millis(200);
    server.set_delay(0, delay);
    let start = Instant::now();
    for i in 0..32 {
        queue.submit(IoCommand::Read { slba: i, blocks: 1 }, vec![0; 512]);
    }
    for _ in 0..32 {
        queue.completion().unwrap().result.unwrap();
    }
    // In sequence the commands would take 32 delays.
    let all = start.elapsed();
    assert!(all >= delay && all < 16 * delay, "{all:?}");
    // A command with a shorter delay does not wait for earlier ones with longer delays.
    server.set_delay(0, Duration::from_secs(2));
    let start = Instant::now();
    let slow = queue.submit(IoCommand::Read { slba: 0, blocks: 1 }, vec![0; 512]);
    queue.flush().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    server.set_delay(0, Duration::ZERO);
    let fast = queue.submit(IoCommand::Read { slba: 1, blocks: 1 }, vec![0; 512]);
    assert_eq!(queue.completion().unwrap().tag, fast);
    assert_eq!(queue.completion().unwrap().tag, slow);
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[test]
fn ana_states_are_reported_and_enforced() {
    let mut config = target_config(2, &[NamespaceConfig::memory(MIB)]);
    config.listeners[1].settings = vec!["ana=non-optimized".parse().unwrap()];
    let server = TargetServer::start(config).unwrap();
    let (mut first, mut queue, one) = connect(server.addrs()[0], host_config());
    let (_second, _, two) = connect(server.addrs()[1], host_config());
    assert_eq!((only(&one).ana, only(&two).ana), (AnaState::Optimized, AnaState::NonOptimized));
    for (state, status) in [
        (AnaState::Inaccessible, Some(Status::ANA_INACCESSIBLE)),
        (AnaState::NonOptimized, None),
        (AnaState::Change, Some(Status::ANA_TRANSITION)),
        (AnaState::PersistentLoss, Some(Status::ANA_PERSISTENT_LOSS)),
        (AnaState::Optimized, None),
    ] {
        server.set_ana(0, state);
        assert_eq!(queue.read(0, 1).err(), status);
        assert_eq!(first.event().unwrap(), ana_changed(state));
    }
}

#[test]
fn a_stopped_listener_drops_only_its_own_connections() {
    let server = target(2, &[NamespaceConfig::memory(MIB)]);
    let addrs = server.addrs();
    let (_a, mut first, _) = connect(addrs[0], host_config());
    let (_b, mut second, _) = connect(addrs[1], host_config());
    // Delayed commands do not delay the stop, and they are not executed afterwards.
    server.set_delay(0, Duration::from_secs(1));
    first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, pattern(1, 512));
    first.flush().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    server.stop_listener(0);
    assert_eq!((server.connections(0), server.connections(1)), (0, 2));
    assert!(first.completion().is_err());
    assert!(TcpStream::connect(addrs[0]).is_err());
    std::thread::sleep(Duration::from_millis(1100));
    assert!(second.read(0, 1).unwrap() == [0; 512]);
    server.set_delay(0, Duration::ZERO);
    server.resume_listener(0).unwrap();
    server.resume_listener(0).unwrap();
    assert_eq!(server.addrs(), addrs);
    let (_c, mut again, _) = connect(addrs[0], host_config());
    assert!(again.read(0, 1).is_ok());
}

#[test]
fn an_incomplete_write_of_a_lost_connection_is_not_executed() {
    let server = target(2, &[NamespaceConfig::memory(MIB)]);
    let (_a, mut first, _) = connect(server.addrs()[0], host_config());
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    first.submit(IoCommand::Write { slba: 0, blocks: 256, fua: false }, pattern(1, 128 << 10));
    first.flush().unwrap();
    // After the R2T, half of the data is sent.
    let mut answered = false;
    while !answered {
        let before = first.host.in_flight();
        let mut buffer = [0; 4096];
        if let Ok(bytes) = std::io::Read::read(&mut first.stream, &mut buffer) {
            first.host.receive(&buffer[..bytes], &mut first.payloads).unwrap();
            answered = true;
        }
        assert_eq!(before, 1);
    }
    let (mut staging, mut plan) = (Vec::with_capacity(1 << 16), Vec::new());
    first.host.fill_tx(monotonic::Instant::now(), &mut staging, &first.payloads, &mut plan, u32::MAX);
    std::io::Write::write_all(&mut first.stream, &staging).unwrap();
    std::io::Write::write_all(&mut first.stream, &vec![9; 64 << 10]).unwrap();
    assert!(first.host.into_lost().all(|lost| lost.indeterminate));
    drop(first.stream);
    eventually("the dead connection is noticed", || server.connections(0) == 1);
    assert!(second.read(0, 256).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn a_half_closed_queue_is_drained_before_the_target_closes() {
    let server = target(2, &[NamespaceConfig::memory(MIB)]);
    let (_a, mut first, _) = connect(server.addrs()[0], host_config());
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    server.set_delay(0, Duration::from_millis(100));
    let data = pattern(4, 4096);
    let written = first.submit(IoCommand::Write { slba: 0, blocks: 8, fua: false }, data.clone());
    first.flush().unwrap();
    first.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let completion = first.completion().unwrap();
    assert_eq!((completion.tag, completion.result), (written, Ok(())));
    assert!(matches!(first.turn(), Err(Gone::Eof)));
    assert!(second.read(0, 8).unwrap() == data);
}

#[test]
fn losing_the_admin_queue_is_a_fence() {
    let server = target(2, &[NamespaceConfig::memory(MIB)]);
    let (admin, mut first, _) = connect(server.addrs()[0], host_config());
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    server.set_delay(0, Duration::from_secs(1));
    first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, pattern(1, 512));
    first.flush().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(admin);
    eventually("all connections of the controller end", || server.connections(0) == 0);
    std::thread::sleep(Duration::from_millis(1100));
    assert!(second.read(0, 1).unwrap() == [0; 512]);
}

#[test]
fn an_orderly_shutdown_completes() {
    let server = target(1, &[NamespaceConfig::memory(MIB)]);
    let (mut admin, queue, _) = connect(server.addrs()[0], host_config());
    drop(queue);
    admin.controller.shutdown(monotonic::Instant::now());
    assert_eq!(admin.event().unwrap(), ControllerEvent::ShutdownComplete);
}

#[test]
fn a_protocol_violation_by_the_host_gets_a_terminate_request() {
    use std::io::{Read, Write};
    let server = target(1, &[NamespaceConfig::memory(MIB)]);
    let mut stream = TcpStream::connect(server.addrs()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // C2HTermReq: Invalid PDU Header Field at byte 0.
    assert_eq!(answer[..14], [3, 0, 24, 0, answer.len() as u8, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    drop(stream);
    eventually("the connection ends", || server.connections(0) == 0);
}

#[test]
fn the_number_of_connections_is_limited() {
    let config = mpath_target::TargetConfig { max_connections: 2, ..target_config(1, &[NamespaceConfig::memory(MIB)]) };
    let server = TargetServer::start(config).unwrap();
    let (admin, queue, _) = connect(server.addrs()[0], host_config());
    let refused = Admin::connect(server.addrs()[0], host_config()).err().unwrap();
    assert!(matches!(refused, Gone::Eof | Gone::Failed(_)), "{refused:?}");
    drop(queue);
    eventually("the connection ends", || server.connections(0) == 1);
    Queue::connect(server.addrs()[0], admin.controller.queue_config(1).unwrap());
}

#[test]
fn an_address_in_use_is_refused() {
    let server = target(1, &[NamespaceConfig::memory(MIB)]);
    let mut config = target_config(1, &[NamespaceConfig::memory(MIB)]);
    config.listeners[0].addr = server.addrs()[0];
    let error = TargetServer::start(config).err().unwrap();
    assert!(matches!(error, StartError::Listen { addr, .. } if addr == server.addrs()[0]), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    assert_eq!(NQN, host_config().subnqn.as_str());
}
