//! Metrics over TCP, on `metrics-address`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use mpath_api::types::Reload;
use mpath_config::Config;
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::support::{
    Daemon, DaemonDirectory, Disk, PATIENCE, Target, disk, eventually, own_address, socket_of, target_of,
};
use crate::upgrade::{NextDaemon, is_refused};

/// The port that the documents name, on an address of this test.
fn address() -> SocketAddr {
    SocketAddr::new(own_address().ip(), 9464)
}

/// Status and body of the answer. `None` if nobody listens.
fn ask(address: SocketAddr, request: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{request} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1).unwrap().parse().unwrap(), body.into()))
}

/// Whether metrics of a disk are there.
fn has_metrics(address: SocketAddr) -> bool {
    let answer = ask(address, "GET /metrics");
    answer.is_some_and(|(status, text)| status == 200 && text.contains("vhost_blk_mpath_disk_connected{disk=\""))
}

/// Writes the file of a daemon with its disks and this address.
fn configure(place: &DaemonDirectory, address: Option<&str>) {
    let file = place.file("config.yaml");
    let config = Config { metrics_address: address.map(|text| text.parse().unwrap()), ..Config::load(&file).unwrap() };
    fs::write(&file, serde_json::to_string(&config).unwrap()).unwrap();
}

#[test]
fn metrics_are_read_over_tcp_and_nothing_else_is() {
    let (target, address) = (Target::start(1), address());
    let daemon = Daemon::start(&target.addrs(), &format!("--metrics-address {address}"));
    assert!(has_metrics(address));
    for (request, expected) in [
        ("HEAD /metrics", 200),
        ("GET /v1/status", 404),
        ("GET /v1/configuration", 404),
        ("POST /v1/upgrade", 404),
        ("POST /metrics", 405),
        ("DELETE /metrics", 405),
    ] {
        let (status, body) = ask(address, request).unwrap();
        assert_eq!(status, expected, "{request}: {body}");
    }
    assert!(!daemon.log().contains("everyone who reaches"), "{}", daemon.log());
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
}

#[test]
fn slow_clients_delay_neither_others_nor_disks_nor_the_end() {
    let (target, address) = (Target::start(1), address());
    let daemon = Daemon::start(&target.addrs(), &format!("--metrics-address {address}"));
    let mut disk = Disk::connect(&daemon.socket());
    // More than the server has at a time, and half of them with a request that does not end.
    let mut slow: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Those that were displaced are closed.
    slow.iter_mut().step_by(2).for_each(|stream| drop(stream.write_all(b"GET /metrics HTTP/1.1\r\n")));
    for block in 0..20 {
        assert!(has_metrics(address));
        assert_eq!((disk.write(block, 7), disk.read(block)), (Status::Ok, 7));
    }
    drop(disk);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
}

#[test]
fn an_address_that_cannot_be_used_ends_the_start_with_one_line() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let refused = |flags: &str| place.refused(place.command(&target.addrs(), flags));
    let address = address();
    let other = TcpListener::bind(address).unwrap();
    let flags = format!("--metrics-address {address}");
    let in_use = format!("metrics-address: another process listens on {address}; give another port");
    refused(&flags).says(4, &[&in_use]);
    // The running daemon may be the one that listens.
    let checked = place.command(&target.addrs(), &format!("{flags} --check")).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));
    drop(other);
    let elsewhere = "metrics-address: 192.0.2.1:9464 is no address of this host";
    refused("--metrics-address 192.0.2.1:9464").says(4, &[elsewhere]);
    let checked = place.command(&target.addrs(), "--metrics-address 192.0.2.1:9464 --check").output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.code() == Some(2) && said.contains(elsewhere), "{said}");
    for wrong in ["localhost:9464", "127.0.0.1", "127.0.0.1:0"] {
        let told = format!("'--metrics-address <ADDRESS>': `{wrong}` is not an IP address with a port from 1 to 65535");
        refused(&format!("--metrics-address {wrong}")).says(2, &[&told]);
    }
    assert!(!place.socket().exists() && !place.api().exists());
}

#[test]
fn metrics_come_back_after_an_upgrade() {
    let (target, address) = (target_of(1, 1, 8 << 20), address());
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    configure(&place, Some(&address.to_string()));
    let daemon = place.spawn(command).ready();
    assert!(has_metrics(address));
    let next = NextDaemon::of(&daemon);
    eventually("metrics are back", || has_metrics(address));
    assert_eq!(Disk::connect(&socket_of(&daemon.place, 0)).write(0, 7), Status::Ok);
    next.end();
    assert!(!daemon.log().contains("metrics are not served"), "{}", daemon.log());
}

/// A start with the new address would end, so the running daemon goes on. But it has its own port, on any address.
#[test]
fn an_upgrade_to_an_address_that_cannot_be_used_is_refused() {
    let (target, address) = (target_of(1, 1, 8 << 20), address());
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    configure(&place, Some(&address.to_string()));
    let daemon = place.spawn(command).ready();
    configure(&daemon.place, Some("192.0.2.1:9464"));
    is_refused(&daemon, &["metrics-address: 192.0.2.1:9464 is no address of this host", "the daemon goes on"]);
    let other = TcpListener::bind(own_address()).unwrap();
    let in_use = other.local_addr().unwrap();
    configure(&daemon.place, Some(&in_use.to_string()));
    is_refused(&daemon, &[&format!("metrics-address: another process listens on {in_use}")]);
    assert!(has_metrics(address));
    // The daemon itself listens there.
    configure(&daemon.place, Some(&format!("[::ffff:{}]:{}", address.ip(), address.port())));
    let next = NextDaemon::of(&daemon);
    eventually("metrics are back", || has_metrics(address));
    next.end();
}

#[test]
fn an_upgrade_by_force_waits_for_no_address() {
    let (target, address) = (target_of(1, 1, 8 << 20), address());
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let daemon = place.spawn(command).ready();
    let serves = || assert_eq!(Disk::connect(&socket_of(&daemon.place, 0)).write(0, 7), Status::Ok);
    // Another process listens on the new address.
    let other = TcpListener::bind(address).unwrap();
    configure(&daemon.place, Some(&address.to_string()));
    let next = NextDaemon::by_force(&daemon);
    serves();
    let told = format!("metrics are not served yet: metrics-address: another process listens on {address}");
    eventually("the failure is logged", || daemon.log().contains(&told));
    drop(other);
    eventually("metrics are served", || has_metrics(address));
    assert_eq!(daemon.log().matches(&told).count(), 1, "{}", daemon.log());
    // This host does not have the new address. The end of the daemon does not wait for it either.
    configure(&daemon.place, Some("192.0.2.1:9464"));
    let last = NextDaemon::by_force(&daemon);
    serves();
    eventually("the failure is logged", || daemon.log().contains("192.0.2.1:9464 is no address of this host"));
    assert!(daemon.log().contains("everyone who reaches `metrics-address` can read the metrics"), "{}", daemon.log());
    last.end();
    drop(next);
}

#[test]
fn a_reload_says_that_the_address_needs_a_restart() {
    let (target, address) = (target_of(1, 1, 8 << 20), address());
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    configure(&place, Some(&address.to_string()));
    let daemon = place.spawn(command).ready();
    configure(&daemon.place, None);
    let Reload { applied, failed, not_live, .. } = daemon.api.reload(false, false).unwrap();
    assert_eq!((applied.len(), failed.len()), (0, 0));
    let shown: Vec<_> = not_live.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [format!("metrics-address: {address} becomes nothing; restart the daemon")]);
    assert!(has_metrics(address));
}
