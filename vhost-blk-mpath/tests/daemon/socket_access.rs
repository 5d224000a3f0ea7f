//! Mode, owner and group of sockets.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mpath_api::config::DiskConfig;

use crate::support::{Daemon, DaemonDirectory, Target};

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
    let subsystem = crate::support::NQN.parse().unwrap();
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
