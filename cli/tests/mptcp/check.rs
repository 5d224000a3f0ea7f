//! `mpathctl mptcp check`: what it finds, whether the printed commands correct that, and whether MPTCP then uses both cards.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use mptcp::{Connection, State, cookie_of, mptcp_connections, supported};
use patience::PATIENCE;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::namespace::{PORT, Target, in_a_namespace, must_be_inside, sh, skipped};

fn check(arguments: &[&str]) -> (Output, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpathctl"));
    let output = command.args(["mptcp", "check", "-o", "json"]).args(arguments).output().unwrap();
    let findings = serde_json::from_slice(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, findings.unwrap_or_else(|_| panic!("{error}")))
}

fn of_level(findings: &[Value], level: &str) -> Vec<String> {
    let text =
        |finding: &Value| format!("{}: {}", finding["check"].as_str().unwrap(), finding["found"].as_str().unwrap());
    findings.iter().filter(|finding| finding["level"] == level).map(text).collect()
}

/// Runs the commands of the findings, word for word.
fn mend(findings: &[Value]) {
    for finding in findings {
        for command in finding["commands"].as_array().unwrap() {
            sh(command.as_str().unwrap());
        }
    }
}

/// Connects until a connection uses both links, four times at most. The kernel tries only once to open a second subflow, and
/// under load the attempt may get lost.
fn over_both_links(to: [u8; 4]) -> Connection {
    let mut connection = connect(to);
    for _ in 0..3 {
        if connection.subflows.len() > 1 {
            break;
        }
        connection = connect(to);
    }
    connection
}

/// Connects and sends, until two subflows have carried data or five seconds have passed. Returns the connection's state.
fn connect(to: [u8; 4]) -> Connection {
    let mut socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    socket.connect_timeout(&SocketAddr::from((to, PORT)).into(), PATIENCE).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    let cookies = BTreeSet::from([cookie_of(&socket).unwrap()]);
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        socket.write_all(&vec![7; 1 << 20]).unwrap();
        let connection = mptcp_connections(&cookies).unwrap().pop().unwrap();
        let used =
            |subflow: &&mptcp::Subflow| subflow.state == State::Established && subflow.bytes_acked > Some(1 << 20);
        if connection.subflows.iter().filter(used).count() > 1 || Instant::now() > deadline {
            let _keep: OwnedFd = socket.into();
            return connection;
        }
    }
}

/// Bytes that a card of this side has sent.
fn sent_by(dev: &str) -> u64 {
    let output = Command::new("ip").args(["-j", "-s", "link", "show", "dev", dev]).output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    shown[0]["stats64"]["tx"]["bytes"].as_u64().unwrap()
}

fn assert_both_used(to: [u8; 4]) {
    let connection = over_both_links(to);
    let locals: BTreeSet<_> = connection.subflows.iter().map(|subflow| subflow.local.ip().to_string()).collect();
    assert_eq!(locals.len(), 2, "{connection:?}");
    let sent = [sent_by("a0"), sent_by("a1")];
    assert!(sent.iter().all(|bytes| *bytes > 1 << 20), "{sent:?}: {connection:?}");
}

const STRICT: &str = "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter";

#[test]
fn two_cards_in_one_network() {
    in_a_namespace("check::two_cards_in_one_network_in_a_namespace");
}

#[test]
#[ignore = "changes addresses: runs in a namespace, by the test before it"]
fn two_cards_in_one_network_in_a_namespace() {
    must_be_inside();
    let target = Target::new();
    target.sh("ip link add br0 type bridge; ip link set b0 master br0; ip link set b1 master br0; ip link set br0 up");
    target.sh("ip addr add 10.1.0.9/24 dev br0");
    sh("ip addr add 10.1.0.1/24 dev a0; ip addr add 10.1.0.2/24 dev a1");
    sh(STRICT);

    let (output, findings) = check(&["10.1.0.9"]);
    assert_eq!(output.status.code(), Some(4));
    let expected = [
        "endpoints: 10.1.0.1 (a0) has no endpoint with `subflow`",
        "endpoints: 10.1.0.2 (a1) has no endpoint with `subflow`",
        "routes: packets from 10.1.0.2 (a1) to 10.1.0.9 leave by a0",
        "reverse-path-filter: the reverse path filter is strict on a0, a1",
    ];
    assert_eq!(of_level(&findings, "problem"), expected);
    assert_mended(&findings, &["10.1.0.9"]);
    let _sink = target.listening();
    assert_both_used([10, 1, 0, 9]);
}

#[test]
fn two_cards_with_a_gateway_each() {
    in_a_namespace("check::two_cards_with_a_gateway_each_in_a_namespace");
}

#[test]
#[ignore = "changes addresses: runs in a namespace, by the test before it"]
fn two_cards_with_a_gateway_each_in_a_namespace() {
    must_be_inside();
    let target = Target::new();
    target.sh("ip addr add 10.1.0.254/24 dev b0; ip addr add 10.1.1.254/24 dev b1; ip addr add 10.9.0.9/32 dev lo");
    sh("ip addr add 10.1.0.1/24 dev a0; ip addr add 10.1.1.1/24 dev a1");
    sh("ip route add default via 10.1.0.254 dev a0; ip route add default via 10.1.1.254 dev a1 metric 200");
    // One endpoint is bound to the wrong interface, and no interface has the address of the other.
    sh("ip mptcp endpoint add 10.1.1.1 dev a0 subflow; ip mptcp endpoint add 10.1.7.7 subflow");
    sh("ip mptcp limits set subflows 0 add_addr_accepted 0");

    let (output, findings) = check(&["10.9.0.9"]);
    assert_eq!(output.status.code(), Some(4));
    let expected = [
        "endpoints: endpoint 1, 10.1.1.1, is bound to a0, but the address is that of a1",
        "endpoints: endpoint 2 is 10.1.7.7, which no interface has",
        "limits: subflows 0, add_addr_accepted 0",
        "routes: packets from 10.1.1.1 (a1) to 10.9.0.9 leave by a0",
    ];
    assert_eq!(of_level(&findings, "problem"), expected);
    assert_mended(&findings, &["10.9.0.9"]);
    let _sink = target.listening();
    assert_both_used([10, 9, 0, 9]);
}

#[test]
fn two_networks_apart() {
    in_a_namespace("check::two_networks_apart_in_a_namespace");
}

#[test]
#[ignore = "changes addresses: runs in a namespace, by the test before it"]
fn two_networks_apart_in_a_namespace() {
    must_be_inside();
    let target = Target::new();
    target.sh("ip addr add 10.1.0.9/24 dev b0; ip addr add 10.1.1.9/24 dev b1");
    target.sh("ip mptcp endpoint add 10.1.1.9 dev b1 signal");
    sh("ip addr add 10.1.0.1/24 dev a0; ip addr add 10.1.1.1/24 dev a1");
    let targets = ["10.1.0.9", "10.1.1.9"];

    let (output, findings) = check(&targets);
    assert_eq!(output.status.code(), Some(4));
    assert!(of_level(&findings, "problem").contains(&"limits: subflows 2, add_addr_accepted 0".into()), "{findings:?}");
    assert_mended(&findings, &targets);
    let (_, findings) = check(&targets);
    assert!(
        of_level(&findings, "note")
            .contains(&"routes: 10.1.1.1 (a1) does not lead to 10.1.0.9, but to 10.1.1.9".into()),
        "{findings:?}"
    );
    let _sink = target.listening();
    assert_both_used([10, 1, 0, 9]);
}

/// Carries out the findings, and checks that the next check has none to carry out.
fn assert_mended(findings: &[Value], targets: &[&str]) {
    mend(findings);
    let (output, findings) = check(targets);
    assert_eq!(output.status.code(), Some(0), "{findings:?}");
    let left: Vec<_> = findings.iter().flat_map(|finding| finding["commands"].as_array().unwrap()).collect();
    assert!(left.is_empty(), "{findings:?}");
}

#[test]
fn mptcp_switched_off() {
    in_a_namespace("check::mptcp_switched_off_in_a_namespace");
}

#[test]
#[ignore = "changes sysctls: runs in a namespace, by the test before it"]
fn mptcp_switched_off_in_a_namespace() {
    must_be_inside();
    sh("echo 0 > /proc/sys/net/mptcp/enabled");
    let (output, findings) = check(&[]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(of_level(&findings, "problem"), ["kernel: MPTCP is switched off"]);
    mend(&findings);
    sh("echo 1 > /proc/sys/net/mptcp/pm_type");
    let (_, findings) = check(&[]);
    assert!(of_level(&findings, "problem").contains(&"path-manager: the path manager is userspace".into()));
    mend(&findings);
    assert!(of_level(&check(&[]).1, "ok").contains(&"path-manager: the kernel opens subflows".into()));
}

#[test]
fn a_host_without_ip_and_wrong_arguments() {
    let run = |path: Option<&str>, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mpathctl"));
        command.args(["mptcp", "check"]).args(arguments);
        path.map(|path| command.env("PATH", path));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (wrong, said) in [
        ("", "is no address or host name of a target; give one such as 192.0.2.1, or none\n"),
        (" ", "is no address or host name of a target; give one such as 192.0.2.1, or none\n"),
        ("rdma://192.0.2.1", "unknown transport `rdma`; write tcp:// or mptcp://\n"),
        ("tcp://192.0.2.1:0", "`0` is no port; give a number from 1 to 65535, or leave the port out for 4420\n"),
    ] {
        let (code, error) = run(None, &[wrong]);
        assert!(code == Some(2) && error.lines().count() == 1 && error.ends_with(said), "{error}");
        assert!(error.contains("[TARGET]"), "{error}");
    }
    if supported().is_err() {
        return skipped("without MPTCP, nothing else is asked");
    }
    let missing = "mpathctl: there is no `ip`; install iproute2\n";
    assert_eq!(run(Some("/nowhere"), &[]), (Some(5), missing.into()));
    let unknown = "mpathctl: there is no interface nosuchdev; `ip link` lists them\n";
    assert_eq!(run(None, &["--dev", "nosuchdev"]), (Some(2), unknown.into()));
    let (code, error) = run(None, &["tcp://name.invalid:4420"]);
    assert!(code == Some(2) && error.starts_with("mpathctl: name.invalid: "), "{error}");
}
