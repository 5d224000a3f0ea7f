//! Against this kernel, over loopback; what needs addresses and endpoints runs in a network namespace of its own.

// Clippy lets only `#[test]` functions unwrap, not what they share.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mptcp::{Connection, Mptcp, State, cookie_of, mptcp_connections, supported, tcp_connections};
use patience::PATIENCE;
use rustix::io::{read, write};
use rustix::net::{AddressFamily, SocketType, accept, bind, connect, getsockname, ipproto, listen, socket, sockopt};

/// Prints why a test is skipped. Bypasses the test harness, which hides the output of a test that passes.
fn skipped(why: &str) {
    #[allow(clippy::explicit_write)]
    writeln!(std::io::stderr(), "SKIPPED: {}: {why}", std::thread::current().name().unwrap_or("a test")).unwrap();
}

macro_rules! need_mptcp {
    () => {
        if let Err(why) = supported() {
            return skipped(&why.to_string());
        }
    };
}

fn server(at: SocketAddr, mptcp: bool) -> (OwnedFd, SocketAddr) {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let listener = socket(family, SocketType::STREAM, mptcp.then_some(ipproto::MPTCP)).unwrap();
    sockopt::set_socket_reuseaddr(&listener, true).unwrap();
    bind(&listener, &at).unwrap();
    listen(&listener, 8).unwrap();
    let at = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
    (listener, at)
}

/// Both ends of a connection from an MPTCP client, after data has gone in both directions.
fn connected(listener: &OwnedFd, to: SocketAddr) -> (OwnedFd, OwnedFd) {
    connected_over(listener, to, true)
}

fn connected_over(listener: &OwnedFd, to: SocketAddr, mptcp: bool) -> (OwnedFd, OwnedFd) {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let client = socket(family, SocketType::STREAM, mptcp.then_some(ipproto::MPTCP)).unwrap();
    connect(&client, &to).unwrap();
    let server = accept(listener).unwrap();
    let mut buffer = [0; 1000];
    write(&client, &[1; 1000]).unwrap();
    assert_eq!(read(&server, &mut buffer).unwrap(), 1000);
    write(&server, &[2; 10]).unwrap();
    assert_eq!(read(&client, &mut buffer).unwrap(), 10);
    (client, server)
}

fn found(sockets: &[&OwnedFd]) -> Vec<Connection> {
    mptcp_connections(&cookies(sockets)).unwrap()
}

fn cookies(sockets: &[&OwnedFd]) -> BTreeSet<u64> {
    sockets.iter().map(|socket| cookie_of(socket).unwrap()).collect()
}

fn mptcp(of: &Connection) -> &Mptcp {
    of.mptcp.as_ref().unwrap()
}

/// The connection of the socket, once it is as `expected` or [`PATIENCE`] has passed.
fn settled(socket: &OwnedFd, expected: impl Fn(&Connection) -> bool) -> Connection {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let connection = found(&[socket]).pop().unwrap();
        if expected(&connection) || Instant::now() > deadline {
            return connection;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn both_ends_over_mptcp() {
    need_mptcp!();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (listener, at) = server(address.parse().unwrap(), true);
        let (client, accepted) = connected(&listener, at);
        let near = settled(&client, |near| near.subflows[0].bytes_received == Some(10));
        assert_eq!((mptcp(&near).fallback, near.remote), (false, at));
        let [subflow] = &near.subflows[..] else { panic!("{near:?}") };
        assert_eq!((subflow.local, subflow.remote, subflow.state), (near.local, near.remote, State::Established));
        assert_eq!((subflow.bytes_sent, subflow.bytes_received), (Some(1000), Some(10)));
        assert!(subflow.rtt > Some(Duration::ZERO) && subflow.cwnd_segments > Some(0), "{subflow:?}");
        assert!(subflow.mss_bytes > Some(500), "{subflow:?}");
        if let Some(totals) = mptcp(&near).totals {
            assert_eq!((totals.bytes_sent, totals.bytes_received), (1000, 10));
        }
        let far = found(&[&accepted]).pop().unwrap();
        assert_eq!((far.local, far.remote, far.subflows.len()), (near.remote, near.local, 1));
        assert_eq!(far.subflows[0].bytes_received, Some(1000));
    }
}

#[test]
fn a_peer_without_mptcp_is_a_fallback() {
    need_mptcp!();
    let (listener, at) = server("127.0.0.1:0".parse().unwrap(), false);
    let (client, accepted) = connected(&listener, at);
    let near = settled(&client, |near| near.subflows[0].bytes_received == Some(10));
    assert!(mptcp(&near).fallback, "{near:?}");
    let [subflow] = &near.subflows[..] else { panic!("{near:?}") };
    assert_eq!((subflow.remote, subflow.bytes_sent, subflow.bytes_received), (at, Some(1000), Some(10)));
    assert_eq!(found(&[&accepted]), [], "plain TCP");
}

#[test]
fn a_tcp_socket_is_a_connection_with_one_subflow() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (listener, at) = server(address.parse().unwrap(), false);
        let (client, accepted) = connected_over(&listener, at, false);
        let (other, _far_end) = connected_over(&listener, at, false);
        let all = tcp_connections(at.port(), &cookies(&[&client, &other])).unwrap();
        assert_eq!(all.iter().map(|of| of.cookie).collect::<BTreeSet<_>>(), cookies(&[&client, &other]));
        let [near] = &tcp_connections(at.port(), &cookies(&[&client])).unwrap()[..] else { panic!("{all:?}") };
        let [subflow] = &near.subflows[..] else { panic!("{near:?}") };
        assert_eq!((&near.mptcp, near.local, near.remote), (&None, subflow.local, at));
        assert_eq!((subflow.remote, subflow.state, subflow.options), (at, State::Established, None));
        assert_eq!((subflow.bytes_sent, subflow.bytes_received), (Some(1000), Some(10)));
        assert!(subflow.rtt > Some(Duration::ZERO) && subflow.cwnd_segments > Some(0), "{subflow:?}");
        assert!(subflow.retransmitted_segments.is_some(), "{subflow:?}");
        // The other end leads to another port.
        assert_eq!(tcp_connections(at.port(), &cookies(&[&accepted])).unwrap(), []);
        let [far] = &tcp_connections(near.local.port(), &cookies(&[&accepted])).unwrap()[..] else {
            panic!("{near:?}")
        };
        assert_eq!((far.local, far.remote), (at, near.local));
        assert_eq!(tcp_connections(at.port(), &cookies(&[&listener])).unwrap(), [], "it is not connected");
    }
}

#[test]
fn only_what_is_asked_for() {
    need_mptcp!();
    let (listener, at) = server("127.0.0.1:0".parse().unwrap(), true);
    let all = [connected(&listener, at), connected(&listener, at), connected(&listener, at)];
    let found_cookies = |of: Vec<Connection>| of.iter().map(|of| of.cookie).collect::<Vec<_>>();
    let expected = cookies(&[&all[2].0, &all[0].0]);
    assert_eq!(found_cookies(found(&[&all[2].0, &all[0].0])), expected.iter().copied().collect::<Vec<_>>());
    let two = found(&[&all[2].0, &all[0].0]);
    assert!(two.iter().all(|one| one.subflows.len() == 1), "{two:?}");
    assert_eq!(found(&[]), []);
    assert_eq!(found(&[&listener]), [], "it is not connected");
    assert_eq!(mptcp_connections(&BTreeSet::from([u64::MAX])).unwrap(), []);
}

/// Set for tests that have a network namespace of their own, and so may change the network.
const INSIDE: &str = "MPTCP_TEST_HAS_A_NAMESPACE";

fn must_be_inside() {
    assert!(std::env::var_os(INSIDE).is_some(), "this test is run by another one, in a namespace");
}

/// Runs the test of that name, which is ignored otherwise, in a network namespace of its own.
fn in_a_namespace(test: &str) {
    let unshare = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--"]).args(program);
        command
    };
    match unshare(&["ip", "mptcp", "limits", "set", "subflow", "8", "add_addr_accepted", "8"])
        .stdin(Stdio::null())
        .output()
    {
        Err(error) => return skipped(&format!("unshare: {error}")),
        Ok(output) if !output.status.success() => {
            return skipped(&format!("unshare … ip mptcp: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(_) => {}
    }
    let this = std::env::current_exe().unwrap();
    let run = unshare(&[this.to_str().unwrap(), "--exact", test, "--ignored"]).env(INSIDE, "1").output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
}

fn ip(arguments: &str) {
    let run = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(run.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_second_address() {
    need_mptcp!();
    in_a_namespace("a_second_address_in_a_namespace");
}

#[test]
#[ignore = "changes addresses: runs in a namespace, by the test before it"]
fn a_second_address_in_a_namespace() {
    must_be_inside();
    ip("link set lo up");
    ip("mptcp limits set subflow 4 add_addr_accepted 4");
    for last in 1..=3 {
        ip(&format!("addr add 10.7.0.{last}/32 dev lo"));
    }
    ip("mptcp endpoint add 10.7.0.2 dev lo subflow");
    ip("mptcp endpoint add 10.7.0.3 dev lo subflow backup");
    let (listener, at) = server("10.7.0.1:0".parse().unwrap(), true);
    let (client, accepted) = connected(&listener, at);

    let all_there = |of: &Connection| {
        of.subflows.len() == 3 && of.subflows.iter().all(|subflow| subflow.state == State::Established)
    };
    let near = settled(&client, all_there);
    let ips: Vec<_> = near.subflows.iter().map(|subflow| subflow.local.ip().to_string()).collect();
    assert_eq!(ips, ["10.7.0.1", "10.7.0.2", "10.7.0.3"], "{near:?}");
    assert!(near.subflows.iter().all(|subflow| subflow.remote == at), "{near:?}");
    assert_eq!(mptcp(&near).subflows_max, 4);
    let options: Vec<_> = near.subflows.iter().map(|subflow| subflow.options.unwrap()).collect();
    assert_eq!(options.iter().map(|of| of.joined).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(options.iter().map(|of| of.backup_local).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((options[0].id_local, options[1].id_local, options[2].id_local), (0, 1, 2));

    let far = settled(&accepted, all_there);
    let ips: BTreeSet<_> = far.subflows.iter().map(|subflow| subflow.remote).collect();
    assert_eq!(ips, near.subflows.iter().map(|subflow| subflow.local).collect(), "{far:?}");
    let asked = far.subflows.iter().filter(|subflow| subflow.options.unwrap().backup_remote).count();
    assert_eq!(asked, 1, "{far:?}");
}

#[test]
fn mptcp_switched_off() {
    need_mptcp!();
    in_a_namespace("mptcp_switched_off_in_a_namespace");
}

#[test]
#[ignore = "changes a sysctl: runs in a namespace, by the test before it"]
fn mptcp_switched_off_in_a_namespace() {
    must_be_inside();
    std::fs::write("/proc/sys/net/mptcp/enabled", "0").unwrap();
    assert!(matches!(supported(), Err(mptcp::Unsupported::SwitchedOff)));
}
