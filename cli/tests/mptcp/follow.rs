//! `mpathctl mptcp follow`: endpoints go with the carrier of their link and come back with it, and so do subflows.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use mptcp::{State, cookie_of, mptcp_connections, supported};
use patience::PATIENCE;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::namespace::{PORT, Running, Target, in_a_namespace, must_be_inside, sh, skipped};

const MPATHCTL: &str = env!("CARGO_BIN_EXE_mpathctl");
/// A busy machine uses a link that is back in less time. A subflow that waits for the kernel's attempt takes a minute.
const BACK_WITHIN: Duration = Duration::from_secs(30);

/// `mpathctl mptcp follow` while it runs.
struct Follow {
    program: Running,
    lines: mpsc::Receiver<Value>,
}

impl Follow {
    fn new(mut command: Command) -> Self {
        let mut program = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let out = BufReader::new(program.0.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in out.lines() {
                let _ = sender.send(serde_json::from_str(&line.unwrap()).unwrap());
            }
        });
        Self { program, lines }
    }

    fn here() -> Self {
        let mut command = Command::new(MPATHCTL);
        command.args(["mptcp", "follow", "-o", "json"]);
        Self::new(command)
    }

    fn at(target: &Target) -> Self {
        let mut command = target.nsenter();
        command.args([MPATHCTL, "mptcp", "follow", "-o", "json"]);
        Self::new(command)
    }

    /// The next action that the program prints.
    fn does(&self) -> String {
        let done = self.lines.recv_timeout(PATIENCE).unwrap();
        let text = |name: &str| done[name].as_str().unwrap().to_owned();
        format!("{} {} {} on {}: {}", text("action"), done["id"], text("endpoint"), text("link"), text("why"))
    }

    fn signal(&self, signal: &str) {
        sh(&format!("kill -{signal} {}", self.program.0.id()));
    }

    /// Ends the program by SIGTERM. Returns its exit code.
    fn ends(mut self) -> Option<i32> {
        self.signal("TERM");
        self.program.0.wait().unwrap().code()
    }
}

fn endpoints() -> Vec<String> {
    shown(&["mptcp", "endpoint", "show"]).lines().map(|line| line.trim().to_owned()).collect()
}

fn shown(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn neighbours(dev: &str) -> String {
    shown(&["neigh", "show", "dev", dev])
}

/// A connection, and the addresses that its subflows begin at.
struct Connection(Socket);

impl Connection {
    fn new(to: [u8; 4]) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        socket.connect_timeout(&SocketAddr::from((to, PORT)).into(), PATIENCE).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    /// Sends until the established subflows begin at these addresses. Returns how long that took.
    fn goes_by(&mut self, expected: &[&str]) -> Duration {
        let start = Instant::now();
        let cookies = BTreeSet::from([cookie_of(&self.0).unwrap()]);
        loop {
            self.0.write_all(&vec![7; 1 << 18]).unwrap();
            let connection = mptcp_connections(&cookies).unwrap().pop().unwrap();
            let used = connection.subflows.iter().filter(|subflow| subflow.state == State::Established);
            let mut locals: Vec<_> = used.map(|subflow| subflow.local.ip().to_string()).collect();
            locals.sort();
            if locals == expected {
                return start.elapsed();
            }
            assert!(start.elapsed() < PATIENCE, "{locals:?}, not {expected:?}");
        }
    }
}

#[test]
fn subflows_go_and_come_back_with_the_carrier() {
    in_a_namespace("follow::subflows_go_and_come_back_with_the_carrier_in_a_namespace");
}

#[test]
#[ignore = "changes addresses: runs in a namespace, by the test before it"]
fn subflows_go_and_come_back_with_the_carrier_in_a_namespace() {
    must_be_inside();
    let target = Target::new();
    target.sh("ip addr add 10.1.0.9/24 dev b0; ip addr add 10.1.1.9/24 dev b1; ip mptcp limits set subflows 4");
    target.sh("ip mptcp endpoint add 10.1.0.9 dev b0 signal; ip mptcp endpoint add 10.1.1.9 dev b1 signal");
    sh(
        "ip addr add 10.1.0.1/24 dev a0; ip addr add 10.1.1.1/24 dev a1; ip mptcp limits set subflows 4 add_addr_accepted 4",
    );
    sh("ip mptcp endpoint add 10.1.0.1 id 5 subflow; ip mptcp endpoint add 10.1.1.1 id 3 subflow");
    // Packets from the address of one link cannot leave over the other link.
    sh("for i in 0 1; do ip rule add from 10.1.$i.1 table 10$i; ip route add 10.1.$i.0/24 dev a$i table 10$i; \
        ip route add unreachable default table 10$i; done");
    // The kernel notices only after the test that a neighbour does not answer.
    sh("echo 60000 > /proc/sys/net/ipv4/neigh/a0/retrans_time_ms");
    let _sink = target.listening();
    let (here, there) = (Follow::here(), Follow::at(&target));
    // The connection's first subflow is on the link that is lost.
    let mut connection = Connection::new([10, 1, 0, 9]);
    connection.goes_by(&["10.1.0.1", "10.1.1.1"]);

    for _ in 0..3 {
        target.sh("ip link set b0 down");
        assert_eq!(here.does(), "removed 5 10.1.0.1 subflow on a0: the link is down");
        assert_eq!(there.does(), "removed 1 10.1.0.9 dev b0 signal on b0: the link is down");
        assert_eq!(endpoints(), ["10.1.1.1 id 3 subflow"]);
        // This packet makes the kernel ask for an address that nobody has.
        UdpSocket::bind("10.1.0.1:0").unwrap().send_to(b"x", "10.1.0.77:9").unwrap();
        assert!(neighbours("a0").contains("10.1.0.77"));
        connection.goes_by(&["10.1.1.1"]);
        connection.0.write_all(&vec![7; 8 << 20]).unwrap();

        target.sh("ip link set b0 up");
        assert_eq!(here.does(), "added 5 10.1.0.1 subflow on a0: the link is up");
        assert_eq!(endpoints(), ["10.1.1.1 id 3 subflow", "10.1.0.1 id 5 subflow"]);
        // If this were the target's address, the subflow would wait for the kernel's attempt, and fail with it.
        assert!(!neighbours("a0").contains("10.1.0.77"));
        let took = connection.goes_by(&["10.1.0.1", "10.1.1.1"]);
        assert!(took < BACK_WITHIN, "{took:?}");
        assert_eq!(there.does(), "added 1 10.1.0.9 dev b0 signal on b0: the link is up");
    }
    // The announcement adds no second subflow on the link.
    thread::sleep(Duration::from_millis(300));
    connection.goes_by(&["10.1.0.1", "10.1.1.1"]);
    assert_eq!((here.ends(), there.ends()), (Some(0), Some(0)));
}

#[test]
fn what_was_removed_is_there_at_the_end() {
    in_a_namespace("follow::what_was_removed_is_there_at_the_end_in_a_namespace");
}

#[test]
#[ignore = "changes addresses: runs in a namespace, by the test before it"]
fn what_was_removed_is_there_at_the_end_in_a_namespace() {
    must_be_inside();
    let target = Target::new();
    sh("ip addr add 10.1.0.1/24 dev a0; ip addr add 10.1.1.1/24 dev a1; ip link set a1 down");
    sh("ip mptcp endpoint add 10.1.0.1 dev a0 subflow fullmesh; ip mptcp endpoint add 10.1.1.1 subflow");
    let before = endpoints();
    let follow = Follow::here();
    // The link was down at the start.
    assert_eq!(follow.does(), "removed 2 10.1.1.1 subflow on a1: the link is down");
    target.sh("ip link set b0 down");
    assert_eq!(follow.does(), "removed 1 10.1.0.1 dev a0 subflow fullmesh on a0: the link is down");
    assert_eq!(endpoints(), [""; 0]);
    follow.signal("TERM");
    assert_eq!(follow.does(), "added 2 10.1.1.1 subflow on a1: the end");
    assert_eq!(follow.does(), "added 1 10.1.0.1 dev a0 subflow fullmesh on a0: the end");
    assert_eq!(follow.ends(), Some(0));
    assert_eq!(endpoints(), before);
}

#[test]
fn nothing_is_missed_when_the_kernel_had_too_much_to_tell() {
    in_a_namespace("follow::nothing_is_missed_when_the_kernel_had_too_much_to_tell_in_a_namespace");
}

#[test]
#[ignore = "changes links: runs in a namespace, by the test before it"]
fn nothing_is_missed_when_the_kernel_had_too_much_to_tell_in_a_namespace() {
    must_be_inside();
    // An IPv6 address that becomes usable later would be reported, and the program would look at all links because of it.
    sh("cd /proc/sys/net; [ ! -e ipv6 ] || for i in all default; do echo 1 > ipv6/conf/$i/disable_ipv6; done");
    let target = Target::new();
    sh("ip addr add 10.1.0.1/24 dev a0; ip mptcp endpoint add 10.1.0.1 dev a0 subflow; ip addr add 10.1.1.1/24 dev a1");
    // The report about a link that is down shows that the program listens.
    sh("ip link set a1 down; ip mptcp endpoint add 10.1.1.1 dev a1 subflow");
    let follow = Follow::here();
    assert_eq!(follow.does(), "removed 2 10.1.1.1 dev a1 subflow on a1: the link is down");
    follow.signal("STOP");
    let start = Instant::now();
    while !overrun(follow.program.0.id()) {
        assert!(start.elapsed() < PATIENCE, "{}", fs::read_to_string("/proc/net/netlink").unwrap());
        sh("for mtu in 1400 1401 1402 1403 1404 1405 1406 1407; do echo link set a1 mtu $mtu; done | ip -batch -");
    }
    target.sh("ip link set b0 down");
    // The kernel reports that a moment later.
    while !shown(&["link", "show", "dev", "a0"]).contains("NO-CARRIER") {
        assert!(start.elapsed() < PATIENCE);
    }
    thread::sleep(Duration::from_millis(500));
    follow.signal("CONT");
    assert_eq!(follow.does(), "removed 1 10.1.0.1 dev a0 subflow on a0: the link is down");
    assert_eq!(follow.ends(), Some(0));
}

/// Whether the kernel had more to tell a process than its socket holds.
fn overrun(pid: u32) -> bool {
    let sockets = fs::read_to_string("/proc/net/netlink").unwrap();
    let of_it = |line: &&str| line.split_whitespace().nth(2) == Some(&pid.to_string());
    sockets.lines().filter(of_it).any(|line| line.split_whitespace().nth(8) != Some("0"))
}

#[test]
fn what_it_cannot_do_without() {
    in_a_namespace("follow::what_it_cannot_do_without_in_a_namespace");
}

#[test]
#[ignore = "needs endpoints of its own: runs in a namespace, by the test before it"]
fn what_it_cannot_do_without_in_a_namespace() {
    must_be_inside();
    let output = Command::new("timeout")
        .args(["10", "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", MPATHCTL, "mptcp", "follow"])
        .output()
        .unwrap();
    let expected = "mpathctl: MPTCP's endpoints may not be changed here: CAP_NET_ADMIN is missing; run it as root, or with \
                    AmbientCapabilities=CAP_NET_ADMIN in its systemd unit\n";
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(5), expected));
}

#[test]
fn an_interface_that_is_not_there() {
    if supported().is_err() {
        return skipped("without MPTCP, nothing else is asked");
    }
    let output = Command::new(MPATHCTL).args(["mptcp", "follow", "--dev", "nosuchdev"]).output().unwrap();
    let expected = "mpathctl: there is no interface nosuchdev; `ip link` lists them\n";
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(2), expected));
}
