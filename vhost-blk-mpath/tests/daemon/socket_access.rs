//! Mode, owner and group of sockets.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mpath_api::client::{Client, ClientError, Position};
use mpath_api::types::{ErrorCode, EventKind};
use mpath_config::{DiskConfig, PolicyKind};
use rustix::process::Signal;

use crate::support::{Daemon, DaemonDirectory, NQN, PATIENCE, Target};

fn mode(socket: &Path) -> u32 {
    fs::metadata(socket).unwrap().mode() & 0o777
}

#[test]
fn sockets_have_the_configured_mode() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--socket-mode 0606 --api-mode 0660");
    assert_eq!((mode(&daemon.socket()), mode(&daemon.place.api())), (0o606, 0o660));
    // Also a disk that is added later.
    let other = Target::start(1);
    let socket = daemon.place.file("later.sock");
    let path = format!("tcp://{}", other.addrs()[0]).parse().unwrap();
    let subsystem = NQN.parse().unwrap();
    let config = DiskConfig::new(socket.to_str().unwrap().parse().unwrap(), subsystem, vec![path]);
    let config = DiskConfig { name: "later".parse().unwrap(), socket_mode: Some("0626".parse().unwrap()), ..config };
    daemon.api.add_disk(&config).unwrap();
    assert_eq!(mode(&socket), 0o626);
}

#[test]
fn without_settings_the_api_is_for_its_owner() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    assert_eq!(mode(&daemon.place.api()), 0o600);
}

#[test]
fn unknown_owners_and_wrong_modes_are_one_line() {
    let target = Target::start(1);
    let place = DaemonDirectory::new();
    let refused = |flags| place.refused(place.command(&target.addrs(), flags));
    refused("--socket-owner no-such-user").says(2, &["`socket-owner`: user `no-such-user` is unknown on this host"]);
    refused("--api-group no-such-group").says(2, &["`api-group`: group `no-such-group` is unknown on this host"]);
    let line =
        "invalid value '660' for '--socket-mode <MODE>': `660` is no socket mode; give a 0 and three octal digits";
    refused("--socket-mode 660").says(2, &[line]);
    assert!(!place.socket().exists() && !place.api().exists());
}

#[test]
fn a_socket_that_only_reads_refuses_changes() {
    let target = Target::start(1);
    let place = DaemonDirectory::new();
    let socket = place.file("read.sock");
    let flags = format!("--api-read-only {} --api-read-only-mode 0626", socket.display());
    let command = place.command(&target.addrs(), &flags);
    let daemon = place.spawn(command).ready();
    assert_eq!((mode(&socket), mode(&daemon.place.api())), (0o626, 0o600));
    let reader = Client::new(&socket, PATIENCE).unwrap();
    assert_eq!(reader.status().unwrap().pid, daemon.api.status().unwrap().pid);
    let mut events = reader.follow(&Position::After(0)).unwrap();
    for refused in [
        reader.set(&PolicyKind::Numa.into()).map(drop).unwrap_err(),
        reader.remove_disk("disk0", true).map(drop).unwrap_err(),
        reader.upgrade(true).map(drop).unwrap_err(),
    ] {
        assert!(matches!(&refused, ClientError::Refused(error) if error.code == ErrorCode::ReadOnly), "{refused}");
        assert!(refused.to_string().contains("this socket only reads"), "{refused}");
    }
    daemon.api.set(&PolicyKind::Numa.into()).unwrap();
    while !events.read().unwrap().unwrap().events.iter().any(|event| event.kind == EventKind::PolicySet) {}
    // No disk may use the socket.
    let path = format!("tcp://{}", target.addrs()[0]).parse().unwrap();
    let config = DiskConfig::new(socket.to_str().unwrap().parse().unwrap(), NQN.parse().unwrap(), vec![path]);
    let refused = daemon.api.add_disk(&DiskConfig { name: "other".parse().unwrap(), ..config }).unwrap_err();
    assert!(refused.to_string().contains("is also the API's socket"), "{refused}");
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    assert!(!socket.exists());
    while events.read().unwrap().is_some() {}
}

#[test]
fn both_api_sockets_must_differ() {
    let target = Target::start(1);
    let place = DaemonDirectory::new();
    let api = place.api();
    let refused = |flags: &str| place.refused(place.command(&target.addrs(), flags));
    refused(&format!("--api-read-only {}", api.display()))
        .says(2, &["api-read-only: ", "is also `api`; give each its own"]);
    let (directory, name) = (api.parent().unwrap(), api.file_name().unwrap());
    let spelt = format!("{}/./{}", directory.display(), name.display());
    refused(&format!("--api-read-only {spelt}")).says(2, &["is the same socket as `api`"]);
}
