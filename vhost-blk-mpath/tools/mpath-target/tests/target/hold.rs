//! Held commands: the stale write, and the guarantees against it.

use std::time::{Duration, Instant};

use mpath_target::{NamespaceConfig, TargetServer};
use nvme_tcp::host::{IoCommand, QueueConfig};
use nvme_tcp::wire::{
    AdminCommand, AsyncEvent, AsyncEventMask, ControllerConfiguration, ControllerInstance, Nqn, Status,
};

use crate::common::raw::RawAdmin;
use crate::common::{Admin, Gone, NQN, PATIENCE, Queue, connect, eventually, host_config, pattern, set, target};

const MIB: u64 = 1 << 20;

fn two_ports() -> TargetServer {
    target(2, &[NamespaceConfig::memory(MIB)])
}

fn held(server: &TargetServer) -> usize {
    server.status()[0].held
}

fn executed_late(server: &TargetServer) -> u64 {
    server.status()[0].executed_late
}

#[test]
fn a_released_command_is_executed_and_answered() {
    let server = two_ports();
    let (_a, mut queue, _) = connect(server.addrs()[0], host_config());
    set(&server, 0, &["hold=on"]);
    let data = pattern(1, 4096);
    let write = queue.submit(IoCommand::Write { slba: 0, blocks: 8, fua: false }, data.clone());
    queue.flush().unwrap();
    eventually("the write is held", || held(&server) == 1);
    // A command that changes no data is not held.
    let old = queue.submit(IoCommand::Read { slba: 0, blocks: 8 }, vec![9; 4096]);
    let completion = queue.completion().unwrap();
    assert_eq!((completion.tag, completion.result), (old, Ok(())));
    assert!(queue.payloads.0[&old].iter().all(|&byte| byte == 0));
    set(&server, 0, &["hold=off"]);
    let completion = queue.completion().unwrap();
    assert_eq!((completion.tag, completion.result), (write, Ok(())));
    assert!(queue.read(0, 8).unwrap() == data);
    assert_eq!((held(&server), executed_late(&server)), (0, 0));
}

#[test]
fn all_commands_that_change_data_are_held() {
    let server = two_ports();
    let (_a, mut queue, _) = connect(server.addrs()[0], host_config());
    set(&server, 0, &["hold=on"]);
    queue.submit(IoCommand::Write { slba: 0, blocks: 1, fua: true }, pattern(1, 512));
    // Data by R2T.
    queue.submit(IoCommand::Write { slba: 8, blocks: 128, fua: false }, pattern(1, 64 << 10));
    queue.submit(IoCommand::WriteZeroes { slba: 0, blocks: 8, deallocate: false, fua: false }, vec![]);
    queue.submit(IoCommand::Deallocate { slba: 0, blocks: 8 }, vec![]);
    eventually("all are held", || {
        queue.turn().unwrap();
        held(&server) == 4
    });
    queue.run(IoCommand::Flush, vec![]).unwrap();
    set(&server, 0, &["hold=off"]);
    for _ in 0..4 {
        queue.completion().unwrap().result.unwrap();
    }
}

/// The hazard: write A on one path without an answer, then write A and write B on the other. Then the first A is executed.
#[test]
fn a_late_write_overwrites_a_newer_one() {
    let server = two_ports();
    let (admin, mut first, _) = connect(server.addrs()[0], host_config());
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    set(&server, 0, &["hold=on"]);
    let (a, b) = (pattern(1, 4096), pattern(2, 4096));
    first.submit(IoCommand::Write { slba: 0, blocks: 8, fua: false }, a.clone());
    first.flush().unwrap();
    eventually("the write is held", || held(&server) == 1);
    // For held commands, neither the close of the host nor the end of the controller is a fence.
    drop((admin, first));
    eventually("the connections end", || server.connections(0) == 0);
    second.write(0, &a, false).unwrap();
    second.write(0, &b, false).unwrap();
    assert_eq!(held(&server), 1);
    set(&server, 0, &["hold=off"]);
    eventually("the write is executed", || executed_late(&server) == 1);
    assert!(second.read(0, 8).unwrap() == a, "B is lost: this is what a host has to fence against");
    assert_eq!(held(&server), 0);
}

#[test]
fn a_command_held_for_a_time_is_executed_even_if_its_listener_has_stopped() {
    let server = two_ports();
    let (_a, mut first, _) = connect(server.addrs()[0], host_config());
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    let time = Duration::from_millis(400);
    set(&server, 0, &["hold=400ms"]);
    let a = pattern(1, 512);
    let start = Instant::now();
    first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, a.clone());
    first.flush().unwrap();
    eventually("the write is held", || held(&server) == 1);
    set(&server, 0, &["listen=off", "reset=all"]);
    assert_eq!(server.connections(0), 0);
    assert!(first.completion().is_err());
    eventually("the write is executed", || executed_late(&server) == 1);
    assert!(start.elapsed() >= time);
    assert!(second.read(0, 1).unwrap() == a);
}

#[test]
fn the_end_of_the_target_discards_held_commands() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let server = target(1, &[NamespaceConfig::file(&path, MIB)]);
    let (_a, mut queue, _) = connect(server.addrs()[0], host_config());
    set(&server, 0, &["hold=on"]);
    queue.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, pattern(1, 512));
    queue.flush().unwrap();
    eventually("the write is held", || held(&server) == 1);
    server.shutdown();
    assert!(std::fs::read(path).unwrap().iter().all(|&byte| byte == 0));
}

/// The drain guarantee: EOF means that no command is left.
#[test]
fn a_half_closed_queue_ends_only_after_its_held_commands() {
    let server = two_ports();
    let (_a, mut first, _) = connect(server.addrs()[0], host_config());
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    set(&server, 0, &["hold=on"]);
    let a = pattern(1, 512);
    let write = first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, a.clone());
    first.flush().unwrap();
    first.stream.shutdown(std::net::Shutdown::Write).unwrap();
    eventually("the write is held", || held(&server) == 1);
    for _ in 0..20 {
        first.turn().expect("it goes on for as long as something is held");
    }
    set(&server, 0, &["hold=off"]);
    assert_eq!(first.completion().unwrap().tag, write);
    let end = std::iter::repeat_with(|| first.turn()).find_map(Result::err);
    assert!(matches!(end, Some(Gone::Eof)), "{end:?}");
    assert!(second.read(0, 1).unwrap() == a);
}

#[test]
fn a_terminated_queue_with_held_commands_does_not_look_drained() {
    let server = two_ports();
    let (_a, mut first, _) = connect(server.addrs()[0], host_config());
    set(&server, 0, &["hold=on"]);
    first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, pattern(1, 512));
    first.flush().unwrap();
    eventually("the write is held", || held(&server) == 1);
    std::io::Write::write_all(&mut first.stream, &[0xff; 128]).unwrap();
    let mut rest = Vec::new();
    first.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = std::io::Read::read_to_end(&mut first.stream, &mut rest);
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(held(&server), 1);
}

/// The configuration of an I/O queue on the first port, without the controller.
fn queue_config(server: &TargetServer) -> QueueConfig {
    let before = server.connections(0);
    let (model, _) = Admin::connect(server.addrs()[0], host_config()).unwrap();
    let config = model.controller.queue_config(1).unwrap();
    drop(model);
    eventually("the connection ends", || server.connections(0) == before);
    config
}

/// An association on the first port, with raw access to its admin queue.
fn raw_association(server: &TargetServer) -> (RawAdmin, Queue) {
    let addr = server.addrs()[0];
    let config = queue_config(server);
    let admin = RawAdmin::connect(addr, Nqn::new(NQN).unwrap());
    let queue = Queue::connect(addr, QueueConfig { cntlid: admin.cntlid, ..config });
    (admin, queue)
}

fn cross_reset(by: &mut RawAdmin, instance: ControllerInstance) -> Result<u64, Status> {
    by.plain(AdminCommand::CrossControllerReset(instance))
}

#[test]
fn a_cross_controller_reset_ends_a_live_controller_and_its_held_commands() {
    let server = two_ports();
    let (mut admin, mut first) = raw_association(&server);
    let instance = admin.instance();
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    let mut other = RawAdmin::connect(server.addrs()[1], Nqn::new(NQN).unwrap());
    set(&server, 0, &["hold=on"]);
    first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, pattern(1, 512));
    first.flush().unwrap();
    eventually("the write is held", || held(&server) == 1);
    assert_eq!(cross_reset(&mut other, instance), Ok(1), "done, and at once");
    eventually("its connections end", || server.connections(0) == 0);
    assert!(first.completion().is_err());
    assert!(admin.is_closed());
    eventually("the held commands are discarded", || held(&server) == 0);
    set(&server, 0, &["hold=off"]);
    assert!(second.read(0, 1).unwrap() == [0; 512]);
    assert_eq!(executed_late(&server), 0);
    // The host can connect again.
    let (_c, mut again, _) = connect(server.addrs()[0], host_config());
    again.write(0, &pattern(3, 512), false).unwrap();
}

#[test]
fn a_cross_controller_reset_ends_held_commands_of_a_lost_controller() {
    let server = two_ports();
    let (mut admin, mut first) = raw_association(&server);
    let instance = admin.instance();
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    let mut other = RawAdmin::connect(server.addrs()[1], Nqn::new(NQN).unwrap());
    set(&server, 0, &["hold=on"]);
    first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, pattern(1, 512));
    first.flush().unwrap();
    eventually("the write is held", || held(&server) == 1);
    drop((admin, first));
    eventually("the connections end", || server.connections(0) == 0);
    // An unknown instance is refused.
    let unknown = ControllerInstance { cirn: instance.cirn ^ 1, ..instance };
    assert_eq!(cross_reset(&mut other, unknown), Err(Status::INVALID_FIELD.with_dnr()));
    assert_eq!(held(&server), 1);
    assert_eq!(cross_reset(&mut other, instance), Ok(1));
    eventually("the held commands are discarded", || held(&server) == 0);
    set(&server, 0, &["hold=off"]);
    assert!(second.read(0, 1).unwrap() == [0; 512]);
    assert_eq!(executed_late(&server), 0);
}

#[test]
fn an_injected_failure_of_a_cross_controller_reset_resets_nothing() {
    let server = two_ports();
    let (mut admin, mut first) = raw_association(&server);
    let instance = admin.instance();
    let mut other = RawAdmin::connect(server.addrs()[1], Nqn::new(NQN).unwrap());
    set(&server, 1, &["cross-reset=fail"]);
    assert_eq!(cross_reset(&mut other, instance), Err(Status::INTERNAL_ERROR));
    first.write(0, &pattern(1, 512), false).unwrap();
    set(&server, 1, &["cross-reset=on"]);
    assert_eq!(cross_reset(&mut other, instance), Ok(1));
    assert!(admin.is_closed());
}

/// Like Linux nvmet: CSTS.RDY is 0 immediately, and the held command is executed nevertheless.
#[test]
fn disabling_a_controller_starts_another_instance_and_keeps_held_commands() {
    let server = two_ports();
    let (mut admin, mut first) = raw_association(&server);
    let config = QueueConfig { cntlid: admin.cntlid, ..queue_config(&server) };
    let (_b, mut second, _) = connect(server.addrs()[1], host_config());
    let before = admin.instance();
    set(&server, 0, &["hold=on"]);
    let a = pattern(1, 512);
    first.submit(IoCommand::Write { slba: 0, blocks: 1, fua: false }, a.clone());
    first.flush().unwrap();
    eventually("the write is held", || held(&server) == 1);
    admin.configure(ControllerConfiguration(0));
    assert!(first.completion().is_err());
    admin.configure(ControllerConfiguration::ENABLED);
    assert_ne!(admin.instance(), before);
    // The admin queue stays, including its events, and the controller accepts a new I/O queue.
    admin.listen_for(AsyncEventMask::ANA_CHANGE);
    let asked = admin.ask_event();
    set(&server, 0, &["ana=non-optimized"]);
    assert_eq!(admin.event(asked), AsyncEvent::ANA_CHANGED);
    let mut again = Queue::connect(server.addrs()[0], config);
    assert!(again.read(0, 1).unwrap() == [0; 512]);
    // A reset of the new instance does not affect the old one.
    let mut other = RawAdmin::connect(server.addrs()[1], Nqn::new(NQN).unwrap());
    let now = admin.instance();
    assert_eq!(cross_reset(&mut other, now), Ok(1));
    assert!(admin.is_closed());
    assert_eq!(held(&server), 1);
    set(&server, 0, &["hold=off"]);
    eventually("the write is executed", || executed_late(&server) == 1);
    assert!(second.read(0, 1).unwrap() == a);
}

#[test]
fn a_controller_cannot_reset_itself() {
    let server = two_ports();
    let mut admin = RawAdmin::connect(server.addrs()[0], Nqn::new(NQN).unwrap());
    let own = admin.instance();
    assert_eq!(own.cntlid, admin.cntlid);
    assert_eq!(cross_reset(&mut admin, own), Err(Status::INVALID_FIELD.with_dnr()));
}
