//! Faults of single ports, over real sockets.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mpath_target::{AnaState, NamespaceConfig, SettingError, StartError, TargetServer};
use nvme_tcp::host::{ControllerConfig, IoCommand};
use nvme_tcp::wire::{ActiveList, AsyncEvent, AsyncEventMask, Digests, LogPage, Nqn, Status};

use crate::common::raw::RawAdmin;
use crate::common::{
    Admin, Gone, NQN, PATIENCE, Queue, ana_changed, connect, eventually, host_config, only, pattern, set, target,
};

const MIB: u64 = 1 << 20;

fn two_ports() -> TargetServer {
    target(2, &[NamespaceConfig::memory(MIB)])
}

/// Drives the queue until its connection ends.
fn end_of(queue: &mut Queue) -> Gone {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Err(gone) = queue.turn() {
            return gone;
        }
        assert!(Instant::now() < deadline, "it goes on");
    }
}

#[test]
fn reset_connections_can_be_established_again() {
    let server = two_ports();
    let (_a, mut first, _) = connect(server.addrs()[0], host_config());
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    set(&server, 0, &["reset=all"]);
    assert_eq!((server.connections(0), server.connections(1)), (0, 2));
    assert!(matches!(end_of(&mut first), Gone::Failed(ErrorKind::ConnectionReset)));
    second.read(0, 1).unwrap();
    let (_c, mut again, _) = connect(server.addrs()[0], host_config());
    again.read(0, 1).unwrap();
}

#[test]
fn only_the_selected_queues_are_reset() {
    let server = two_ports();
    let (admin, mut queue, _) = connect(server.addrs()[0], host_config());
    set(&server, 0, &["reset=io"]);
    assert_eq!(server.connections(0), 1);
    end_of(&mut queue);
    // The controller stays, and accepts the queue again.
    let mut queue = Queue::connect(server.addrs()[0], admin.controller.queue_config(1).unwrap());
    queue.read(0, 1).unwrap();
    // Without its admin queue the controller ends.
    set(&server, 0, &["reset=admin"]);
    end_of(&mut queue);
    eventually("all its connections end", || server.connections(0) == 0);
}

#[test]
fn a_port_that_does_not_listen_keeps_its_connections() {
    let server = two_ports();
    let (_a, mut queue, _) = connect(server.addrs()[0], host_config());
    set(&server, 0, &["listen=off"]);
    assert!(!server.status()[0].listening);
    assert_eq!(TcpStream::connect(server.addrs()[0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    queue.read(0, 1).unwrap();
    set(&server, 0, &["listen=on"]);
    set(&server, 0, &["listen=on"]);
    connect(server.addrs()[0], host_config());
}

#[test]
fn a_stalled_port_answers_nothing_and_continues_afterwards() {
    let server = two_ports();
    // Longer than a busy machine keeps this host from sending keep-alives.
    let kato = Duration::from_secs(1);
    let (mut admin, mut queue, _) =
        connect(server.addrs()[0], ControllerConfig { keep_alive_tmo: kato.into(), ..host_config() });
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    admin.alive = false;
    set(&server, 0, &["black-hole=stall"]);
    let write = queue.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, pattern(1, 512));
    let start = Instant::now();
    while start.elapsed() < 2 * kato {
        queue.turn().unwrap();
        admin.turn().expect("a stalled target does not look at its clock");
    }
    assert!(queue.host.poll_completion().is_none());
    assert!(second.read(0, 1).unwrap() == [0; 512], "nor does it execute anything");
    // Its kernel accepts new connections, but the target does not answer.
    let mut fresh = TcpStream::connect(server.addrs()[0]).unwrap();
    std::io::Write::write_all(&mut fresh, &[0; 128]).unwrap();
    fresh.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let silent = std::io::Read::read(&mut fresh, &mut [0]).unwrap_err();
    assert!(matches!(silent.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    set(&server, 0, &["black-hole=off"]);
    assert_eq!(queue.completion().unwrap().tag, write);
    assert!(second.read(0, 1).unwrap() == pattern(1, 512));
    // The keep-alive timer of the host starts again.
    admin.alive = true;
    let start = Instant::now();
    while start.elapsed() < 2 * kato {
        admin.turn().unwrap();
        queue.read(0, 1).unwrap();
    }
}

#[test]
fn a_stalled_port_notices_that_a_host_disconnects() {
    let server = two_ports();
    let (admin, queue, _) = connect(server.addrs()[0], host_config());
    set(&server, 0, &["black-hole=stall"]);
    for stream in [&admin.stream, &queue.stream] {
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    drop((admin, queue));
    eventually("its connections end", || server.connections(0) == 0);
}

#[test]
fn a_mute_port_executes_but_does_not_answer() {
    let server = two_ports();
    let (_a, mut queue, _) = connect(server.addrs()[0], host_config());
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    set(&server, 0, &["black-hole=mute"]);
    let data = pattern(1, 512);
    let write = queue.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, data.clone());
    queue.flush().unwrap();
    eventually("the write is executed", || second.read(0, 1).unwrap() == data);
    for _ in 0..10 {
        queue.turn().unwrap();
    }
    assert!(queue.host.poll_completion().is_none());
    set(&server, 0, &["black-hole=off"]);
    assert_eq!(queue.completion().unwrap().tag, write);
}

#[test]
fn the_given_number_of_commands_fails_with_the_given_status() {
    let server = two_ports();
    let (_a, mut queue, _) = connect(server.addrs()[0], host_config());
    set(&server, 0, &["fail=2:0/0x21/crd2"]);
    let status = Status::COMMAND_INTERRUPTED.with_crd(2);
    assert_eq!(queue.write(0, &pattern(1, 512), false), Err(status));
    assert_eq!(server.status()[0].failing, 1);
    assert_eq!(queue.run(IoCommand::Flush, vec![]), Err(status));
    assert!(queue.read(0, 1).unwrap() == [0; 512], "what failed was not executed");
    set(&server, 0, &["fail=1:2/0x81/dnr"]);
    assert_eq!(queue.read(0, 1), Err(Status::UNRECOVERED_READ_ERROR.with_dnr()));
    assert!(queue.read(0, 1).is_ok());
}

fn with_digests() -> ControllerConfig {
    ControllerConfig { digests: Digests { header: true, data: true }, ..host_config() }
}

#[test]
fn a_wrong_data_digest_fails_only_its_command() {
    let server = two_ports();
    let (_a, mut queue, _) = connect(server.addrs()[0], with_digests());
    let data = pattern(1, 512);
    queue.write(0, &data, false).unwrap();
    set(&server, 0, &["data-digests=1"]);
    let failed = queue.read(0, 1).unwrap_err();
    assert!(!failed.dnr(), "{failed}");
    assert!(queue.read(0, 1).unwrap() == data);
    assert_eq!(server.status()[0].data_digests, 0);
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    let server = two_ports();
    let (_a, mut queue, _) = connect(server.addrs()[0], with_digests());
    set(&server, 0, &["header-digests=1"]);
    queue.submit(IoCommand::Read { slba: 0, blocks: 1 }, vec![0; 512]);
    queue.flush().unwrap();
    let error = loop {
        let mut buffer = [0; 4096];
        match std::io::Read::read(&mut queue.stream, &mut buffer) {
            Ok(bytes) => break queue.host.receive(&buffer[..bytes], &mut queue.payloads).unwrap_err(),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}"),
        }
    };
    assert!(error.to_string().contains("digest"), "{error}");
}

#[test]
fn one_port_reports_a_wrong_identity() {
    let uuid = "12345678-1234-4234-8234-123456789abc";
    let server = two_ports();
    let see = |port: usize| only(&Admin::connect(server.addrs()[port], host_config()).unwrap().1).identity;
    let right = see(0);
    for setting in [format!("uuid=1:{uuid}"), format!("nguid=1:{uuid}"), "size=1:512KiB".to_owned()] {
        set(&server, 1, &[&setting]);
        let wrong = see(1);
        assert!(right.check_same(&wrong).is_err(), "{setting}");
        assert_eq!(server.status()[1].namespace_overrides.len(), 1);
        assert!(right.check_same(&see(0)).is_ok());
        let own = format!("{}=1:own", setting.split_once('=').unwrap().0);
        set(&server, 1, &[&own]);
        assert!(right.check_same(&see(1)).is_ok(), "{own}");
        assert!(server.status()[1].namespace_overrides.is_empty());
    }
}

#[test]
fn a_changed_size_notifies_hosts() {
    let server = two_ports();
    set(&server, 0, &["size=1:512KiB"]);
    let mut admin = RawAdmin::connect(server.addrs()[0], Nqn::new(NQN).unwrap());
    admin.listen_for(AsyncEventMask::NAMESPACE_ATTRIBUTE);
    let asked = admin.ask_event();
    assert!(admin.is_silent(Duration::from_millis(50)));
    set(&server, 0, &["size=1:own"]);
    assert_eq!(admin.event(asked), AsyncEvent::NAMESPACE_CHANGED);
    assert_eq!(ActiveList::parse(&admin.log(LogPage::CHANGED_NAMESPACES, 4096, 0)).0, [1]);
    assert!(ActiveList::parse(&admin.log(LogPage::CHANGED_NAMESPACES, 4096, 0)).0.is_empty());
    // The blocks beyond the reported size exist all the time.
    let (_b, mut queue, info) = connect(server.addrs()[0], host_config());
    assert_eq!(only(&info).identity.blocks, 2048);
    queue.write(2047, &pattern(1, 512), false).unwrap();
}

#[test]
fn ana_groups_change_independently_under_load() {
    let server = target(2, &[NamespaceConfig::memory(MIB), NamespaceConfig::memory(MIB)]);
    let config = |nsid| ControllerConfig { nsids: vec![nsid], ..host_config() };
    let (mut one, mut first, _) = connect(server.addrs()[0], config(1));
    let (mut two, mut second, _) = connect(server.addrs()[0], config(2));
    set(&server, 0, &["ana=2:inaccessible"]);
    first.read(0, 1).unwrap();
    assert_eq!(second.read(0, 1), Err(Status::ANA_INACCESSIBLE));
    assert_eq!(two.event().unwrap(), ana_changed(AnaState::Inaccessible));
    assert!(one.controller.poll_event().is_none());
    let ana = server.status()[0].ana.iter().map(|group| group.state.clone()).collect::<Vec<_>>();
    assert_eq!(ana, ["optimized", "inaccessible"]);
    set(&server, 0, &["ana=change"]);
    assert_eq!(first.read(0, 1), Err(Status::ANA_TRANSITION));
    assert_eq!(one.event().unwrap(), ana_changed(AnaState::Change));
}

#[test]
fn an_impossible_setting_is_refused_and_none_is_applied() {
    let server = two_ports();
    let apply = |settings: &[&str]| {
        let settings: Vec<_> = settings.iter().map(|text| text.parse().unwrap()).collect();
        match server.apply(0, &settings) {
            Err(StartError::Setting(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(apply(&["delay=1s", "ana=2:change"]), SettingError::Group { group: 2, groups: 1 });
    assert_eq!(apply(&["delay=1s", "uuid=0:own"]), SettingError::Nsid { nsid: 0, namespaces: 1 });
    assert!(matches!(apply(&["delay=1s", "size=1:1000"]), SettingError::Size { bytes: 1000, .. }));
    assert_eq!(server.status()[0].delay_us, 0);
}
